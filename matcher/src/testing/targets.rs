//! Contexts that compete for frames, and such frames.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use spin_abi::rules::Target;

use super::plain_frames;
use crate::TableEntry;

/// User space, or one of three programs.
pub fn targets() -> impl Strategy<Value = Target> {
    prop_oneof![Just(Target::UserSpace), (0..3_u16).prop_map(Target::Program)]
}

/// Contexts whose rules overlap in many ways.
pub fn overlapping_entries() -> impl Strategy<Value = Vec<TableEntry>> {
    let rules = [
        "udp dport 1",
        "udp dport 1-2",
        "ip dst 10.0.0.1 and udp dport 1",
        "ip dst 10.0.0.2 and udp dport 1-2",
        "udp dport 2-80",
        "udp and ip src 10.0.0.1",
        "ip dst 10.0.0.2 or udp dport 3",
        "any",
    ];
    let entry = (select(rules.to_vec()), targets()).prop_map(|(rules, target)| TableEntry {
        rules: rules.parse().expect("rules"),
        target,
        ..TableEntry::default()
    });
    vec(entry, 1..7)
}

/// Frames that rules of [`overlapping_entries`] are about.
pub fn addressed_frames() -> impl Strategy<Value = Vec<u8>> {
    (plain_frames(), 0..3_u8, 0..3_u8, 0..5_u16).prop_map(|(mut frame, from, to, port)| {
        if frame.len() >= 38 {
            frame[26..34].copy_from_slice(&[10, 0, 0, from, 10, 0, 0, to]);
            frame[36..38].copy_from_slice(&port.to_be_bytes());
        }
        frame
    })
}
