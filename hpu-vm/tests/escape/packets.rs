//! Packets longer than their window, and windows that are not a page.

use hpu_vm::jit::{Executor, Options, Slot};
use hpu_vm::memory::{Access, Region, Space};
use hpu_vm::{Exit, NoDevice, Op, RegionKind};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::{PACKET_WINDOW, PAGE};

use crate::assembly::{A2, A3, Assembly, Known};
use crate::guest::{OWN, task, translate};

fn page() -> std::sync::Arc<Region> {
    Region::new(PAGE as usize).expect("memory")
}

/// A stack and nothing else.
fn space() -> Space {
    let mut space = Space::new().expect("a space");
    space.map(RegionKind::Stack, OWN.stack_end() - PAGE, &page(), 0, PAGE, Access::Write).expect("mapped");
    space
}

/// Loads a word with exact checks, in a slot of its own, by the interpreter and in translation.
fn load(address: u32, packet: &mut [u8], slot: &dyn Fn() -> Slot, allowed: bool) {
    let executor = Executor::new().expect("a timer");
    let program = Assembly::new().address(A2, address, Known::Loaded).imm(Op::Lw, A3, A2, 0);
    let (pc, code) = (program.pc() - 4, program.ret().code());
    let translation = translate(&code, &[], Options::default());
    let refused = Exit::Fault(Fault { cause: Cause::LoadAccess, pc, address });
    for translation in [None, Some(&translation)] {
        let exit = executor.run(&mut slot(), packet, &task(OWN, &code, translation), &mut NoDevice);
        let expected = if allowed { Exit::Returned } else { refused };
        assert_eq!(exit, expected, "{address:#x}, translated: {}", translation.is_some());
    }
}

#[test]
fn of_a_packet_longer_than_its_window_in_l2_the_window_is_shown() {
    let (base, mut packet) = (OWN.l2_packet(), vec![7; PACKET_WINDOW as usize + 900]);
    let slot = || {
        let mut space = space();
        space.map_l2_packet(base).expect("mapped");
        space.map(RegionKind::Data, base + PACKET_WINDOW, &page(), 0, PAGE, Access::Write).expect("mapped");
        Slot::new(0, space)
    };
    // An access in two ranges is in none.
    for (at, allowed) in [(4092, true), (4093, false), (4095, false), (4096, true)] {
        load(base + at, &mut packet, &slot, allowed);
    }
}

#[test]
fn a_packet_window_within_a_page_is_exact() {
    let slot = || {
        let mut space = space();
        space.map(RegionKind::Packet, 0x1000_8800, &page(), 0x800, 0x800, Access::Write).expect("mapped");
        let mut slot = Slot::new(0, space);
        slot.set_packet_len(100).expect("there is room");
        slot
    };
    for (at, allowed) in [(0, false), (16, false), (0x7fe, false), (0x800, true), (0x860, true), (0x861, false)] {
        load(0x1000_8000 + at, &mut [], &slot, allowed);
    }
}

#[test]
fn a_packet_window_of_two_pages_is_exact() {
    for (len, ends) in [(100, 100), (PAGE, PAGE), (PAGE + 8, PAGE + 8), (2 * PAGE, 2 * PAGE)] {
        let slot = || {
            let (mut space, region) = (space(), Region::new(2 * PAGE as usize).expect("memory"));
            space.map(RegionKind::Packet, 0x1000_8000, &region, 0, 2 * PAGE, Access::Write).expect("mapped");
            let mut slot = Slot::new(0, space);
            slot.set_packet_len(len).expect("there is room");
            slot
        };
        for at in [0, 96, 97, 4092, 4093, 4096, 4100, 4101, 8188] {
            load(0x1000_8000 + at, &mut [], &slot, at + 4 <= ends);
        }
    }
}
