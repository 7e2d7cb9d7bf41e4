//! A client of the key-value cache. Checks each value, and who answered.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use crate::{Outcome, socket};

const GET: u32 = 1;
const SET: u32 = 2;
/// Answer of the handler.
const HIT: u32 = 3;
/// Answer of the application.
const ANSWER: u32 = 4;
/// Entries of the cache: keys of this distance have the same entry.
const ENTRIES: u32 = 1024;

struct Client {
    socket: UdpSocket,
    /// Number of answers of the handler, and of the application.
    hits: u32,
    answers: u32,
}

impl Client {
    /// Sends a request; the answer must have a certain operation and value.
    fn request(&mut self, operation: u32, key: u32, value: &str, expected: (u32, &str)) -> Outcome {
        self.socket.send(&message(operation, key, value))?;
        let mut answer = [0; 25];
        let len = self.socket.recv(&mut answer).map_err(|error| format!("key {key}: no answer: {error}"))?;
        if answer[..len] != message(expected.0, key, expected.1) {
            return Err(format!("key {key}: {:?}, expected {expected:?}", &answer[..len]).into());
        }
        *(if expected.0 == HIT { &mut self.hits } else { &mut self.answers }) += 1;
        Ok(())
    }
}

fn message(operation: u32, key: u32, value: &str) -> [u8; 24] {
    let mut message = [0; 24];
    message[..4].copy_from_slice(&operation.to_be_bytes());
    message[4..8].copy_from_slice(&key.to_be_bytes());
    message[8..8 + value.len()].copy_from_slice(value.as_bytes());
    message
}

/// Gets each key `rounds` times: the application answers the first time. Then sets each key, and gets it again. Then has one key
/// displace another. The last request is the application's to answer.
pub fn exchange(to: SocketAddr, keys: u32, rounds: u32) -> Outcome {
    let mut client = Client { socket: socket(Ipv4Addr::UNSPECIFIED, to)?, hits: 0, answers: 0 };
    for round in 0..rounds {
        for key in 0..keys {
            let by = if round == 0 { ANSWER } else { HIT };
            client.request(GET, key, "", (by, &format!("value {key}")))?;
        }
    }
    for key in 0..keys {
        let value = format!("new {key}");
        client.request(SET, key, &value, (ANSWER, &value))?;
        client.request(GET, key, "", (HIT, &value))?;
    }
    let other = format!("value {ENTRIES}");
    client.request(GET, ENTRIES, "", (ANSWER, &other))?;
    client.request(GET, ENTRIES, "", (HIT, &other))?;
    client.request(GET, 0, "", (ANSWER, "new 0"))?;
    println!("{} answers by the handler, {} by the application, all values right", client.hits, client.answers);
    Ok(())
}
