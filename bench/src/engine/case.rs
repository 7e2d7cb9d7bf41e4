//! Cases: handlers and the frames that arrive for them.

use std::fmt;

use spin_abi::counters::Counter;

use crate::wire::{Ipv4, UDP, datagram, ethernet};

/// Bytes before a datagram's payload: Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;
/// UDP port of the rules.
const PORT: u16 = 9999;
const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A handler image and its frames.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name of the case.
    pub name: &'static str,
    /// Frame size in bytes.
    pub size: usize,
    /// Name of the handlers' image, without folder and extension.
    pub image: &'static str,
    /// User of the context. One other than root may only send replies.
    pub uid: u32,
    /// Host memory that the handlers need, in bytes.
    pub host_mem: u64,
    /// Number of open messages.
    pub flows: u32,
    /// Packets per message; `None`: messages never end.
    pub packets: Option<u32>,
    /// Whether packets belong to no message, if `packets` is `None`.
    pub packet_mode: bool,
    /// Counters that increase once per processed packet.
    pub per_packet: &'static [Counter],
    /// Counters that increase once per message.
    pub per_message: &'static [Counter],
}

const PAYLOAD: &[Counter] = &[Counter::Released, Counter::PayloadRuns];
const SENT: &[Counter] = &[Counter::Released, Counter::PayloadRuns, Counter::TxPackets];
const COPIED: &[Counter] = &[Counter::Released, Counter::PayloadRuns, Counter::CommandsDma];
const MESSAGE: &[Counter] = &[Counter::Messages];
const THREE: &[Counter] = &[Counter::Messages, Counter::HeaderRuns, Counter::CompletionRuns];

/// Messages of many packets, with a handler that does nothing.
const EMPTY: Case = Case {
    name: "empty",
    size: 64,
    image: "empty",
    uid: 0,
    host_mem: 0,
    flows: 256,
    packets: Some(16),
    packet_mode: false,
    per_packet: PAYLOAD,
    per_message: MESSAGE,
};
/// Messages that never end.
const LIVE: Case = Case { packets: None, per_message: &[], ..EMPTY };
const DATAGRAMS: Case = Case { name: "datagrams", packets: Some(1), ..EMPTY };
/// Each packet is answered.
pub const PINGPONG: Case = Case { name: "pingpong", image: "udp_pingpong", per_packet: SENT, ..DATAGRAMS };
/// Each packet is answered by a handler of an ordinary user.
const USER_PINGPONG: Case = Case { name: "pingpong-user", uid: 1000, ..PINGPONG };

/// Each packet is copied to host memory.
const TO_HOST: Case = Case { name: "to-host", image: "to_host", host_mem: 256 << 10, per_packet: COPIED, ..EMPTY };

/// The headers of each packet are copied to host memory.
const HEADERS_TO_HOST: Case = Case { name: "headers", image: "keep_headers", ..TO_HOST };

/// The cases of unloaded latency: an empty handler on a message of one packet, in the sizes for which the PsPIN paper
/// gives a latency.
pub const UNLOADED: [Case; 2] = [DATAGRAMS, Case { size: 1024, ..DATAGRAMS }];
/// The case of the stage breakdown.
pub const BREAKDOWN: Case = EMPTY;

/// All cases.
pub const CASES: [Case; 13] = [
    EMPTY,
    Case { name: "message", image: "empty_three", per_message: THREE, ..EMPTY },
    Case { name: "one-live", flows: 1, ..LIVE },
    Case { name: "10000-live", flows: 10_000, ..LIVE },
    Case { name: "packet-mode", packet_mode: true, ..LIVE },
    DATAGRAMS,
    PINGPONG,
    Case { size: 1514, ..PINGPONG },
    USER_PINGPONG,
    HEADERS_TO_HOST,
    TO_HOST,
    Case { size: 1514, ..TO_HOST },
    Case { name: "aggregate", size: 1024, image: "aggregate", host_mem: 4096, per_message: THREE, ..EMPTY },
];

/// Minimum number of frames of a case.
const FRAMES: u32 = 4096;

impl Case {
    /// Returns the context's end-of-message rule.
    #[must_use]
    pub const fn eom(&self) -> &'static str {
        match self.packets {
            Some(_) => "payload[0:1] = 1",
            None if self.packet_mode => "never",
            None => "ether type 0xffff",
        }
    }

    /// Returns the rule that the frames match.
    #[must_use]
    pub fn rule() -> String {
        format!("udp dport {PORT}")
    }

    /// Returns the frames in arrival order: one of each message, then the next of each. If messages end at all, all are
    /// complete at the end.
    pub fn frames(&self) -> impl Iterator<Item = Vec<u8>> {
        let (case, packets) = (*self, self.packets.unwrap_or(u32::MAX));
        let rounds = FRAMES.div_ceil(self.flows).next_multiple_of(self.packets.unwrap_or(1));
        (0..rounds).flat_map(move |round| {
            let last = (round + 1).is_multiple_of(packets);
            (0..case.flows).map(move |flow| case.frame(flow, round, last))
        })
    }

    fn frame(&self, flow: u32, round: u32, last: bool) -> Vec<u8> {
        let mut content = vec![0x5a; self.size - HEADERS];
        content[0] = u8::from(last);
        content[1..5].copy_from_slice(&round.to_le_bytes());
        let [_, _, high, low] = flow.to_be_bytes();
        let (source, destination) = ([10, 1, high, low].into(), [10, 0, 0, 2].into());
        // Source and destination port are equal, so the frame still matches after a handler has exchanged them.
        let payload = datagram(source, destination, [PORT, PORT], &content);
        let packet = Ipv4 { source, destination, protocol: UDP, id: 0, fragment: 0, options: Vec::new(), payload };
        ethernet(SERVER, CLIENT, &[], &packet.bytes())
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::CASES;
    use std::collections::HashSet;

    #[test]
    fn frames_are_distinct_and_of_their_size() {
        for case in CASES {
            let frames: Vec<_> = case.frames().collect();
            assert!(frames.len() >= 4096 && frames.iter().all(|frame| frame.len() == case.size), "{case}");
            assert_eq!(frames.iter().collect::<HashSet<_>>().len(), frames.len(), "{case}");
            let ends = frames.iter().filter(|frame| frame[42] == 1).count();
            assert_eq!(ends, case.packets.map_or(0, |packets| frames.len() / packets as usize), "{case}");
        }
    }
}
