//! Receives messages on UDP port 7003, checks and acknowledges them. Ends after MESSAGES of them.
//! Usage: `receiver HANDLERS.elf MESSAGES [SOCKET]`
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use libspin::{Client, Context, DEFAULT_SOCKET, Install, Region};
use rustix::event::{PollFd, PollFlags, poll};

const PORT: u16 = 7003;
/// Datagrams with at least a message's header.
const RULE: &str = "udp dport 7003 and l4[4:2] in 24..65535";
const SLOTS: u32 = 16;
/// Bytes of a slot in host memory: descriptor and message. The descriptor has length (8 bytes, 0: none), id, address, port.
const SLOT: u64 = 65536;
const DESCRIPTOR: u64 = 64;
/// Bytes of a slot's state in handler memory.
const STATE: u32 = 16;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn install(spind: &mut Client, file: &str) -> Outcome<Context> {
    let install = Install {
        name: "receiver".into(),
        rules: vec![RULE.into()],
        key: Some("flow + payload[0:4]".into()), // sender and id: a message
        eom: Some("payload[12:4] = 1".into()),   // its last packet
        message_timeout_us: Some(2_000_000),     // if that is lost
        host_mem: u64::from(SLOTS) * SLOT,
        handler_mem: SLOTS * STATE,
        verdicts: true,
        ..Install::default()
    };
    Ok(spind.install(&install, &std::fs::read(file)?)?)
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Reads and prints the message of a slot. Returns id and address for the acknowledgement if its checksum is right.
fn take(host: &Region, slot: u64, length: u64) -> Outcome<Option<(u32, SocketAddrV4)>> {
    let id = host.load_u32(slot + 8)?;
    let sender = Ipv4Addr::from(host.load_u32(slot + 12)?.to_le_bytes());
    let port = u16::try_from(host.load_u32(slot + 16)?)?;
    let mut message = vec![0; usize::try_from(length)?];
    host.read(slot + DESCRIPTOR, &mut message)?;
    let right = message.split_first_chunk().is_some_and(|(sum, rest)| u64::from_le_bytes(*sum) == hash(rest));
    println!("message {id}: {length} bytes, checksum {}", if right { "right" } else { "WRONG" });
    Ok(right.then_some((id, SocketAddrV4::new(sender, port))))
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, messages, socket @ ..] = &arguments[..] else {
        return Err("usage: receiver HANDLERS.elf MESSAGES [SOCKET]".into());
    };
    let (expected, mut received) = (messages.parse::<u32>()?, 0u32);
    let server = UdpSocket::bind(("0.0.0.0", PORT))?;
    server.set_nonblocking(true)?;
    let mut spind = Client::connect(socket.first().map_or(DEFAULT_SOCKET, String::as_str))?;
    let context = install(&mut spind, file)?;
    let host = context.host.ok_or("no host memory")?;
    let mut events = spind.events(context.id)?;
    let arrival = events.eventfd()?;
    println!("waiting for {expected} messages: {RULE}");
    while received < expected {
        let mut ready = [PollFd::new(&arrival, PollFlags::IN), PollFd::new(&server, PollFlags::IN)];
        poll(&mut ready, None)?;
        // A datagram without a header reaches the socket past the handlers, and asks for the number of messages.
        if let Ok((_, from)) = server.recv_from(&mut []) {
            _ = server.send_to(&received.to_be_bytes(), from);
        }
        arrival.clear();
        events.by_ref().for_each(drop);
        for number in 0..SLOTS {
            let slot = u64::from(number) * SLOT;
            // The handler writes the length last.
            let length = host.load_u64(slot)?;
            if length == 0 {
                continue;
            }
            let sender = take(&host, slot, length)?;
            host.store_u64(slot, 0)?;
            spind.write_memory(context.id, context.areas.handler_mem.address + number * STATE, &[0; 4])?;
            if let Some((id, sender)) = sender {
                _ = server.send_to(&id.to_be_bytes(), sender);
            }
            received += 1;
        }
    }
    Ok(())
}
