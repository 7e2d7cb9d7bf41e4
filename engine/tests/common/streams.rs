//! Messages of several packets, for contexts that replace each other.

use spin_abi::control::Install;

use crate::common::{Lab, rule, udp_from};

/// A context whose messages end with a packet of 1.
pub fn streams(replaces: Option<u32>) -> Install {
    Install { eom: Some("payload[0:1] = 1".into()), replaces, ..rule("udp dport 1") }
}

/// A packet of a message.
pub fn packet(flow: u16, last: bool) -> Vec<u8> {
    udp_from(flow, 1, &[u8::from(last); 30])
}

/// The number of replies to each of some packets, sent one by one.
pub fn answers(lab: &mut Lab, packets: &[Vec<u8>]) -> Vec<usize> {
    packets.iter().map(|packet| lab.exchange(std::slice::from_ref(packet)).len()).collect()
}
