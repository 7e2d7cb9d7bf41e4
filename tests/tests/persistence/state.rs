//! A spind with a state folder.

use std::path::{Path, PathBuf};

use libspin::{Client, ContextInfo, Install, Lifetime};
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_tests::{Spind, udp};

/// The state folder in a folder of a test.
pub fn state(folder: &Path) -> PathBuf {
    folder.join("state")
}

/// Starts spind with the state folder in a folder that keeps its socket, too.
pub fn start(folder: tempfile::TempDir) -> Spind {
    let state = state(folder.path());
    Spind::start_in(folder, &["--nic", "loopback", "--state", state.to_str().expect("UTF-8")])
}

/// A persistent context for a port, named by it.
pub fn persistent(port: u16) -> Install {
    let rules = vec![format!("udp dport {port}")];
    Install { name: port.to_string(), rules, lifetime: Lifetime::Persistent, ..Install::default() }
}

/// All contexts, in order of priority: id, name and rules.
pub fn contexts(client: &mut Client) -> Vec<(u32, String, String)> {
    let describe = |info: ContextInfo| (info.context, info.name, info.rules.join(" or "));
    client.contexts().expect("a list").into_iter().map(describe).collect()
}

/// Replays a datagram to each port. Returns the number of answers.
pub fn answers(client: &mut Client, ports: &[u16]) -> usize {
    let frames: Vec<_> = ports.iter().map(|&port| Packet::whole(0, udp(port, b"?"))).collect();
    read_all(&client.replay(&write_all(&frames)).expect("loopback replays")).expect("a capture").len()
}
