//! Random frames and rules, for property tests of everything that evaluates the same tests.
//!
//! Addresses, ports and the like are drawn from small pools that frames and rules share, so that rules hold about as
//! often as they do not.

mod frames;
mod rules;

pub use frames::{Built, frames, honest_frames, plain_frames};
pub use rules::{keys, rules, terms};

use proptest::prelude::{Strategy, any};
use proptest::prop_oneof;
use proptest::sample::select;

const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0xff; 6]];
const IPV4: [u32; 4] = [0x0a00_0001, 0x0a00_0002, 0x0a01_0101, 0xc0a8_0001];
const IPV6: [u128; 4] = [
    0x2001_0db8_0000_0000_0000_0000_0000_0001,
    0x2001_0db8_0000_0000_0000_0000_0000_0002,
    0x2001_0db8_0000_0000_0001_0000_0000_0001,
    0xfe80_0000_0000_0000_0000_0000_0000_0001,
];
const PORTS: [u16; 5] = [53, 80, 85, 9330, 9999];
const VLANS: [u16; 3] = [0, 100, 4095];
const ETHERTYPES: [u16; 4] = [0x0806, 0x88b5, 0x0800, 0x86dd];
const PROTOCOLS: [u8; 6] = [1, 6, 17, 47, 58, 132];

fn ports() -> impl Strategy<Value = u16> {
    prop_oneof![4 => select(&PORTS[..]), 1 => any::<u16>()]
}

fn macs() -> impl Strategy<Value = [u8; 6]> {
    select(&MACS[..])
}
