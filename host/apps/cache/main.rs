//! Answers the requests on UDP port 7002 that the cache on the NIC cannot answer, and fills the cache. Ends after ANSWERS
//! of them. Usage: `cache HANDLERS.elf ANSWERS [SOCKET]`
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::UdpSocket;

use libspin::{Client, DEFAULT_SOCKET, Install};

const PORT: u16 = 7002;
const RULE: &str = "udp dport 7002";
const KEYS: u32 = 4096;
/// Entries of the cache.
const ENTRIES: u32 = 1024;
/// Bytes of an entry: version, key, value, version, 4 unused bytes.
const ENTRY: u32 = 32;
/// Bytes of a request: operation and key in network order, value.
const REQUEST: usize = 24;
const GET: u32 = 1;
const SET: u32 = 2;
const ANSWER: u32 = 4;

type Value = [u8; 16];

fn word(bytes: &[u8; REQUEST], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn first_value(key: u32) -> Value {
    let mut value = Value::default();
    let text = format!("value {key}");
    value[..text.len()].copy_from_slice(text.as_bytes());
    value
}

/// Reads or changes the store, and completes the answer. Returns the key, or `None` if it is no request.
fn serve(store: &mut [Value], request: &mut [u8; REQUEST]) -> Option<u32> {
    let (operation, key) = (word(request, 0), word(request, 4));
    let value = store.get_mut(key as usize)?;
    match operation {
        GET => request[8..].copy_from_slice(value),
        SET => value.copy_from_slice(&request[8..]),
        _ => return None,
    }
    request[..4].copy_from_slice(&ANSWER.to_be_bytes());
    Some(key)
}

/// An entry of the cache. The handler uses it if both versions are equal and not 0.
fn entry(version: u32, answer: &[u8; REQUEST]) -> [u8; ENTRY as usize] {
    let mut entry = [0; ENTRY as usize];
    entry[..4].copy_from_slice(&version.to_le_bytes());
    entry[4..24].copy_from_slice(&answer[4..]);
    entry[24..28].copy_from_slice(&version.to_le_bytes());
    entry
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, answers, socket @ ..] = &arguments[..] else {
        return Err("usage: cache HANDLERS.elf ANSWERS [SOCKET]".into());
    };
    let answers: u32 = answers.parse()?;
    let mut store: Vec<Value> = (0..KEYS).map(first_value).collect();
    // Gets the packets that the handler passes to the kernel.
    let server = UdpSocket::bind(("0.0.0.0", PORT))?;
    let mut spind = Client::connect(socket.first().map_or(DEFAULT_SOCKET, String::as_str))?;
    let install = Install {
        name: "cache".into(),
        rules: vec![RULE.into()],
        handler_mem: ENTRIES * ENTRY,
        verdicts: true,
        ..Install::default()
    };
    let context = spind.install(&install, &std::fs::read(file)?)?;
    println!("waiting for {answers} requests: {RULE}");
    let mut answered = 0;
    while answered < answers {
        let mut request = [0; REQUEST];
        let (len, from) = server.recv_from(&mut request)?;
        let Some(key) = serve(&mut store, &mut request).filter(|_| len == REQUEST) else { continue };
        answered += 1;
        let at = context.areas.handler_mem.address + key % ENTRIES * ENTRY;
        // Before the answer, so that a client that was told a new value never gets the old one.
        spind.write_memory(context.id, at, &entry(answered, &request))?;
        // A sender that cannot be reached must not end the program.
        _ = server.send_to(&request, from);
    }
    println!("{answered} requests answered");
    Ok(())
}
