//! Round trips of ICMP echo, with an AF_XDP socket that polls at the client's end.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use crate::outcome::RoundTrips;
use crate::peers::lab::{ADDRESSES, Lab, LabError, MACS};
use crate::peers::measure::{Effort, Figures, PAUSE};
use crate::pktgen::clock::now;
use crate::pktgen::port::{ICMP_RULE, Port, XdpPort};
use crate::raw::parse_mac;
use crate::wire::{ICMP, Ipv4, echo_request, ethernet, parse};

/// Most round trips before those that count.
const WARM_UP: u32 = 100;
/// Longest wait for a reply, in nanoseconds.
const TIMEOUT: u64 = 1_000_000_000;
/// Bytes of Ethernet, IPv4 and ICMP headers.
const HEADERS: u16 = 14 + 20 + 8;
/// Identifier of the requests.
const IDENTIFIER: u16 = 0x5350;

/// Measurement of pings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Bytes of a frame.
    pub len: u16,
    /// Whether each ping waits 2 ms after the reply to the previous one.
    pub paused: bool,
}

impl Ping {
    /// Name in tables and results.
    #[must_use]
    pub fn name(self) -> String {
        let pause = if self.paused { " after 2 ms" } else { "" };
        format!("ICMP round trip{pause}, {} B", self.len)
    }

    /// Measures the program that is running in the lab.
    ///
    /// # Errors
    /// The program does not answer, or with wrong bytes.
    pub fn take(self, lab: &Lab, effort: Effort) -> Result<Figures, LabError> {
        let (count, pause) = match self.paused {
            false => (effort.round_trips, Duration::ZERO),
            true => (effort.paused_round_trips, Duration::from_micros(PAUSE.into())),
        };
        let mut times = RoundTrips::default();
        lab.at_client(|| {
            let mut port = XdpPort::open_for(lab.client_link(), &[ICMP_RULE])?;
            let warm_up = count.min(WARM_UP);
            for number in 0..warm_up + count {
                // Sequence numbers may repeat: each request waits for its reply.
                let request = request(self.len, number as u16);
                let time = round_trip(&mut port, &request)?.ok_or_else(|| LabError::Silent(self.name()))?;
                if number >= warm_up {
                    times.record(Duration::from_nanos(time));
                    thread::sleep(pause);
                }
            }
            Ok::<_, LabError>(())
        })??;
        let [p50, p99, p999] =
            [0.5, 0.99, 0.999].map(|share| times.quantile_us(share).ok_or_else(|| LabError::Silent(self.name())));
        Ok(Figures { main: p50?, tail: Some([p99?, p999?]) })
    }
}

/// The frame of a ping.
fn request(len: u16, sequence: u16) -> Vec<u8> {
    let [source, destination] = ADDRESSES.map(|text| text.parse().unwrap_or(Ipv4Addr::UNSPECIFIED));
    let data: Vec<u8> = (0..len.saturating_sub(HEADERS)).map(|at| (at ^ sequence) as u8).collect();
    let payload = echo_request(IDENTIFIER, sequence, &data);
    let packet = Ipv4 { source, destination, protocol: ICMP, id: sequence, fragment: 0, options: Vec::new(), payload };
    let [client, server] = MACS.map(|text| parse_mac(text).unwrap_or_default());
    ethernet(server, client, &[], &packet.bytes())
}

/// Whether a frame is the correct reply to a request.
fn answers(frame: &[u8], request: &[u8]) -> bool {
    let Ok(reply) = parse(frame) else { return false };
    let (message, asked) = (reply.l4(), &request[reply.l4_at.min(request.len())..]);
    reply.protocol == ICMP && message[..2] == [0, 0] && message[4..] == asked[asked.len().min(4)..]
}

/// Sends a request and polls for its reply. Returns the time in nanoseconds.
fn round_trip(port: &mut dyn Port, request: &[u8]) -> Result<Option<u64>, LabError> {
    let sent = now();
    let mut write = |buffer: &mut [u8]| {
        buffer[..request.len()].copy_from_slice(request);
        request.len()
    };
    while port.send(1, &mut write)? == 0 {}
    let mut time = None;
    while time.is_none() && now() - sent < TIMEOUT {
        port.receive(&mut |frame| {
            let arrived = now();
            if answers(frame, request) {
                time = Some(arrived - sent);
            }
        })?;
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::{answers, request};

    #[test]
    fn only_the_reply_answers() {
        let asked = request(64, 7);
        assert_eq!(asked.len(), 64);
        let mut reply = asked.clone();
        reply[34] = 0;
        let sum = u16::from_be_bytes([reply[36], reply[37]]);
        // The type's word fell by 0x800.
        let (sum, over) = sum.overflowing_add(0x800);
        reply[36..38].copy_from_slice(&(sum + u16::from(over)).to_be_bytes());
        assert!(answers(&reply, &asked));
        assert!(!answers(&asked, &asked) && !answers(&reply, &request(64, 8)) && !answers(&reply[..50], &asked));
    }
}
