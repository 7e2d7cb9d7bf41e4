//! Routes, the trie that holds them, and packets to be routed.

use super::{Flow, Work, datagram_frame, random, source};
use fastrand::Rng;
use std::net::Ipv4Addr;
use std::sync::LazyLock;

/// Number of nodes.
const NODES: usize = 256;
/// Size of a node in bytes: for each value of a byte the child and the next hop, of two bytes each.
const NODE: usize = 1024;
/// Number of next hops; number 0 stands for none.
const HOPS: u16 = 64;
/// Offset of the next hops, of eight bytes each, of which the first six are the address.
const HOPS_AT: usize = NODES * NODE;
/// Offset of the numbers of forwarded packets and of packets without a route.
pub const COUNTERS_AT: usize = HOPS_AT + HOPS as usize * 8;

/// Lengths of prefixes, by frequency.
const LENGTHS: [u32; 16] = [8, 12, 14, 16, 16, 18, 20, 22, 23, 24, 24, 24, 24, 26, 28, 32];
/// Number of drawn routes.
const DRAWN: usize = 600;

/// A route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Network address.
    pub network: u32,
    /// Length of the prefix in bits.
    pub length: u32,
    /// Number of the next hop.
    pub hop: u16,
}

impl Route {
    /// Whether the route leads to an address.
    #[must_use]
    pub fn leads_to(&self, address: u32) -> bool {
        (address ^ self.network) >> (32 - self.length) == 0
    }
}

/// All routes, in any order. No two are to the same network.
pub static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let rng = &mut Rng::with_seed(1);
    let mut routes: Vec<Route> = Vec::new();
    for _ in 0..DRAWN {
        let length = LENGTHS[rng.usize(..LENGTHS.len())];
        let address = u32::from_be_bytes([rng.u8(10..18), rng.u8(..12), rng.u8(..32), rng.u8(..)]);
        let route = Route { network: address & u32::MAX << (32 - length), length, hop: rng.u16(1..HOPS) };
        if !routes.iter().any(|other| (other.network, other.length) == (route.network, length)) {
            routes.push(route);
        }
    }
    routes
});

/// Returns the address of a next hop.
#[must_use]
pub fn mac(hop: u16) -> [u8; 6] {
    let [high, low] = hop.to_be_bytes();
    [2, 0, 0, 3, high, low]
}

pub(super) fn make(work: &mut Work, rng: &mut Rng) {
    work.handler_mem = memory();
    let room = work.data();
    work.fill_frames(|_| {
        let flow = Flow { source: source(rng), destination: destination(rng), ports: [4000, 9999] };
        let mut frame = datagram_frame(flow, &random(rng, room));
        if rng.u8(..32) == 0 {
            // Another protocol than IPv4.
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        }
        frame
    });
}

/// Draws an address: one in eight is of a network that may have no route.
fn destination(rng: &mut Rng) -> Ipv4Addr {
    if rng.u8(..8) == 0 {
        return Ipv4Addr::new(rng.u8(8..20), rng.u8(..), rng.u8(..), rng.u8(..));
    }
    let route = ROUTES[rng.usize(..ROUTES.len())];
    Ipv4Addr::from_bits(route.network | rng.u32(..).checked_shr(route.length).unwrap_or(0))
}

/// Makes handler memory with the trie and the next hops.
fn memory() -> Vec<u8> {
    let mut routes = ROUTES.clone();
    routes.sort_by_key(|route| route.length);
    let mut memory = vec![0; COUNTERS_AT + 8];
    let mut nodes = 1;
    // Longer prefixes come later and overwrite the next hops of shorter ones.
    for route in routes {
        insert(&mut memory, &mut nodes, route);
    }
    for hop in 1..HOPS {
        let at = HOPS_AT + usize::from(hop) * 8;
        memory[at..at + 6].copy_from_slice(&mac(hop));
    }
    memory
}

/// Inserts a route; `nodes` counts the nodes in use.
fn insert(memory: &mut [u8], nodes: &mut u16, route: Route) {
    let bytes = route.network.to_be_bytes();
    let level = (route.length as usize - 1) / 8;
    let mut node = 0;
    for byte in &bytes[..level] {
        let at = usize::from(node) * NODE + usize::from(*byte) * 4;
        node = u16::from_le_bytes([memory[at], memory[at + 1]]);
        if node == 0 {
            node = *nodes;
            *nodes += 1;
            assert!(usize::from(node) < NODES, "the routes need few nodes");
            memory[at..at + 2].copy_from_slice(&node.to_le_bytes());
        }
    }
    let free = 8 * (level + 1) - route.length as usize;
    let first = usize::from(bytes[level]);
    for value in first..first + (1 << free) {
        let at = usize::from(node) * NODE + value * 4 + 2;
        memory[at..at + 2].copy_from_slice(&route.hop.to_le_bytes());
    }
}
