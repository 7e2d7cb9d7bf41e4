//! Datagrams of several sources.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::sleep;
use std::time::Duration;

use crate::{Outcome, socket};

/// Datagrams between two pauses: fewer than a veth's queue holds.
const BURST: u64 = 16;

/// Sends `packets` datagrams of `bytes` from the first address, twice as many from the second, and so on.
pub fn send(to: SocketAddr, packets: u64, bytes: usize, from: &[Ipv4Addr]) -> Outcome {
    let payload = vec![0; bytes];
    for (address, times) in from.iter().zip(1..) {
        let socket = socket(*address, to)?;
        for number in 1..=packets * times {
            socket.send(&payload)?;
            if number % BURST == 0 {
                sleep(Duration::from_millis(1));
            }
        }
    }
    Ok(())
}
