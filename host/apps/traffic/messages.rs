//! A sender of messages of many datagrams, which repeats those that are not acknowledged.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use crate::{Outcome, socket};

/// Bytes of a message in each datagram.
const PART: usize = 1400;
/// Longest message.
const LONGEST: usize = 65472;
/// Messages sent before the first of them is acknowledged.
const WINDOW: usize = 8;
/// Times that a message is sent at most.
const TRIES: u32 = 5;

/// A message: its FNV-1a hash, then bytes that depend on its id.
fn message(id: u32) -> Vec<u8> {
    let len = if id == 0 { LONGEST } else { 8 + id as usize * 7919 % (LONGEST - 8) };
    let rest: Vec<u8> = (0..len - 8)
        .map(|at| (at as u32 ^ id.wrapping_mul(0x9e37_79b1)).wrapping_mul(0x85eb_ca6b).to_be_bytes()[0])
        .collect();
    let hash = rest
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    [&hash.to_le_bytes()[..], &rest].concat()
}

/// Sends the datagrams of a message: id, length, offset, 1 for the last one, and bytes.
fn send_parts(socket: &UdpSocket, id: u32, message: &[u8]) -> Outcome {
    let parts = message.chunks(PART).zip((0..).step_by(PART));
    for (bytes, offset) in parts {
        let last = u32::from(offset as usize + bytes.len() == message.len());
        let header = [id, u32::try_from(message.len())?, offset, last];
        let mut datagram: Vec<u8> = header.iter().flat_map(|word| word.to_be_bytes()).collect();
        datagram.extend(bytes);
        socket.send(&datagram)?;
    }
    Ok(())
}

/// Returns the id that the receiver acknowledges next, or `None` if it takes too long.
fn acknowledged(socket: &UdpSocket) -> Result<Option<u32>, std::io::Error> {
    let mut id = [0; 4];
    match socket.recv(&mut id) {
        Ok(_) => Ok(Some(u32::from_be_bytes(id))),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends `messages` messages, and prints them in the receiver's words. An empty datagram in between must tell how many have arrived.
pub fn send(to: SocketAddr, messages: u32) -> Outcome {
    let socket = socket(Ipv4Addr::UNSPECIFIED, to)?;
    ask(&socket, 0)?;
    // Messages under way, and how often they were sent.
    let mut open = BTreeMap::new();
    let mut ids = 0..messages;
    loop {
        while open.len() < WINDOW
            && let Some(id) = ids.next()
        {
            send_parts(&socket, id, &message(id))?;
            println!("message {id}: {} bytes, checksum right", message(id).len());
            open.insert(id, 1);
        }
        if open.is_empty() {
            return Ok(());
        }
        match acknowledged(&socket)? {
            Some(id) => _ = open.remove(&id),
            None => repeat(&socket, &mut open)?,
        }
    }
}

/// Asks how many messages have arrived.
fn ask(socket: &UdpSocket, expected: u32) -> Outcome {
    socket.send(&[])?;
    match acknowledged(socket)? {
        Some(messages) if messages == expected => Ok(()),
        answer => Err(format!("messages before the first: {answer:?}, expected {expected}").into()),
    }
}

/// Sends all open messages again.
fn repeat(socket: &UdpSocket, open: &mut BTreeMap<u32, u32>) -> Outcome {
    for (id, tries) in open {
        if *tries == TRIES {
            return Err(format!("message {id} was sent {TRIES} times and not acknowledged").into());
        }
        *tries += 1;
        eprintln!("message {id} is sent again");
        send_parts(socket, *id, &message(*id))?;
    }
    Ok(())
}
