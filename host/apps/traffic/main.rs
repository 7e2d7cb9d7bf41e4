//! Packets for the three applications. Checks the answers.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

mod cache;
mod messages;
mod sources;

type Outcome = Result<(), Box<dyn Error>>;

const USAGE: &str = "usage: app-traffic sources ADDRESS:PORT PACKETS BYTES FROM...
           from each address FROM; from the second one twice PACKETS, and so on
       app-traffic cache ADDRESS:PORT KEYS ROUNDS
           gets each key ROUNDS times, then sets each and gets it again
       app-traffic messages ADDRESS:PORT MESSAGES
           messages of many sizes, up to eight at a time";

/// Time after which an answer counts as lost.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a socket at an address of this host, for datagrams to `to`.
fn socket(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((from, 0))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["sources", to, packets, bytes, ref from @ ..] => {
            let from = from.iter().map(|address| address.parse()).collect::<Result<Vec<_>, _>>()?;
            sources::send(to.parse()?, packets.parse()?, bytes.parse()?, &from)
        }
        ["cache", to, keys, rounds] => cache::exchange(to.parse()?, keys.parse()?, rounds.parse()?),
        ["messages", to, messages] => messages::send(to.parse()?, messages.parse()?),
        _ => Err(USAGE.into()),
    }
}
