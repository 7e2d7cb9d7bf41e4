//! Orders to the handler `hostile`, which sends forged frames.
#![allow(dead_code, reason = "each test file uses its part of this")]

use spin_pspin::hpu::send_rights::{HostAddresses, SendSource};

use crate::common::udp;

/// Orders to `hostile`.
pub const NOTHING: u8 = 0;
pub const PUT: u8 = 18;
pub const AS_SENT: u8 = 19;
/// All forgeries except those that only `Reply` forbids.
pub const FORGERIES: [u8; 13] = [1, 2, 3, 4, 6, 7, 8, 9, 14, 15, 16, 17, PUT];
/// Another destination, which `Own` allows: a group, port, IP address, MAC address.
pub const DESTINATIONS: [u8; 4] = [5, 10, 11, 12];
/// TCP without a TCP header.
pub const PROTOCOL: u8 = 13;
/// L2, L1, handler memory, scratchpad, host memory.
pub const PLACES: [u8; 5] = [0, 1, 2, 3, 4];
pub const VICTIM: u8 = 99;

/// Handlers that exist: payload; header and payload; header and completion.
pub const STAGES: [&[&str]; 3] = [&[], &["-DHEADER"], &["-DHEADER", "-DCOMPLETION"]];

#[derive(Clone, Copy, Debug)]
pub struct Order {
    pub forgery: u8,
    pub place: u8,
    pub overwrite: u8,
    pub wait: bool,
    pub flags: [u8; 2],
}

impl Order {
    pub fn new(forgery: u8, place: u8) -> Self {
        Self { forgery, place, overwrite: 0, wait: false, flags: [0; 2] }
    }

    pub fn frame(self) -> Vec<u8> {
        let Self { forgery, place, overwrite, wait, flags: [own, other] } = self;
        udp(1, &[&[forgery, place, overwrite, wait.into(), own, other][..], &[0x5a; 20]].concat())
    }
}

pub fn source() -> SendSource {
    let addresses = vec![[10, 0, 0, 2].into(), [10, 0, 0, 3].into()];
    SendSource {
        host: Some(HostAddresses { mac: [2, 0, 0, 0, 0, 2], ip: addresses }),
        udp: vec![1..=1, 5..=9],
        tcp: vec![1..=1],
        ..SendSource::default()
    }
}

/// The correct reply to an order.
pub fn reply(order: Order) -> Vec<u8> {
    let mut frame = order.frame();
    frame[..12].rotate_left(6);
    frame[26..34].rotate_left(4);
    frame[34..38].rotate_left(2);
    frame
}
