//! Pools of addresses, ports and the like that frames and rules share.

use proptest::prelude::{Strategy, any};
use proptest::prop_oneof;
use proptest::sample::select;

pub(super) const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0xff; 6]];
pub(super) const IPV4: [u32; 4] = [0x0a00_0001, 0x0a00_0002, 0x0a01_0101, 0xc0a8_0001];
pub(super) const IPV6: [u128; 4] = [
    0x2001_0db8_0000_0000_0000_0000_0000_0001,
    0x2001_0db8_0000_0000_0000_0000_0000_0002,
    0x2001_0db8_0000_0000_0001_0000_0000_0001,
    0xfe80_0000_0000_0000_0000_0000_0000_0001,
];
pub(super) const PORTS: [u16; 5] = [53, 80, 85, 9330, 9999];
pub(super) const VLANS: [u16; 3] = [0, 100, 4095];
pub(super) const ETHERTYPES: [u16; 4] = [0x0806, 0x88b5, 0x0800, 0x86dd];
pub(super) const PROTOCOLS: [u8; 6] = [1, 6, 17, 47, 58, 132];

pub(super) fn ports() -> impl Strategy<Value = u16> {
    prop_oneof![4 => select(&PORTS[..]), 1 => any::<u16>()]
}

pub(super) fn macs() -> impl Strategy<Value = [u8; 6]> {
    select(&MACS[..])
}

/// ICMP types of rules and frames. Echo requests are frequent, so that rules hold often enough.
pub const ICMP_KINDS: [u8; 10] = [0, 8, 8, 8, 3, 128, 128, 128, 129, 135];
