use super::layout::FaultOutcome;
use super::{Access, GUARD_BELOW, Region, Space, SpaceError, TaskStart, Window};
use crate::code::Code;
use crate::device::NoDevice;
use crate::hart::Hart;
use crate::inst::{Inst, Op, Reg};
use crate::interp::{Exit, run};
use crate::view::{Checks, Memory, Range, RegionKind, View};
use proptest::prelude::*;
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::{DRIVER_BASE, L1_ALIAS, PAGE};
use spin_abi::regs::{DOORBELL, TASK_FIRST};
use std::sync::Arc;
use std::thread;

const DATA: RegionKind = RegionKind::Data;
const L1: u32 = 0x1040_0000;
const L2: u32 = 0x1c40_0000;

fn region(pages: u32) -> Arc<Region> {
    Region::new((pages * PAGE) as usize).expect("a region")
}

fn space() -> Space {
    Space::new().expect("a space")
}

/// The bytes at `address` as a task loads them.
fn bytes<const N: usize>(space: &mut Space, address: u32) -> Option<[u8; N]> {
    space.view().load(address)
}

#[test]
fn regions_are_rounded_to_pages_and_begin_as_zeroes() {
    assert_eq!(Region::new(1).expect("a region").len(), 4096);
    assert_eq!(Region::new(0).unwrap_err(), SpaceError::Length(0));
    assert_eq!(Region::new(usize::MAX).unwrap_err(), SpaceError::Length(usize::MAX));
    let mut space = space();
    space.map(DATA, 0x1000, &region(1), 0, PAGE, Access::Write).expect("mapped");
    let mut all = [1; PAGE as usize];
    space.copy_out(0x1000, &mut all).expect("readable");
    assert!(all.iter().all(|&byte| byte == 0));
}

#[test]
fn a_region_is_the_same_bytes_in_every_space() {
    let (region, mut one, mut two) = (region(2), space(), space());
    one.map(DATA, 0x1000, &region, 0, 2 * PAGE, Access::Write).expect("mapped");
    two.map(DATA, 0x8000_0010, &region, 0x10, PAGE, Access::Read).expect("mapped");
    one.copy_in(0x1010, b"shared").expect("writable");
    assert_eq!(bytes(&mut two, 0x8000_0010), Some(*b"shar"));
    assert_eq!(two.copy_in(0x8000_0010, b"x"), None);
    assert_eq!(bytes::<1>(&mut two, 0x8000_000f), None);
    one.clear(0x1011, 2).expect("writable");
    assert_eq!(bytes(&mut two, 0x8000_0010), Some([b's', 0, 0, b'r']));
}

#[test]
fn segments_may_begin_in_the_middle_of_a_page() {
    let mut space = space();
    let segment: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let region = Region::around(0x1d00_0ffe, &segment).expect("a region");
    assert_eq!(region.len(), 3 * 4096);
    space.map(RegionKind::Code, 0x1d00_0ffe, &region, 0xffe, 5000, Access::Read).expect("mapped");
    let mut read = vec![0; 5000];
    space.copy_out(0x1d00_0ffe, &mut read).expect("readable");
    assert_eq!(read, segment);
    assert_eq!(bytes::<1>(&mut space, 0x1d00_0ffd), None);
    assert_eq!(bytes::<1>(&mut space, 0x1d00_0ffe + 5000), None);
}

#[test]
fn impossible_mappings_are_refused_and_change_nothing() {
    let (memory, other, mut space) = (region(4), region(1), space());
    let mut map = |base, region: &Arc<Region>, offset, len| space.map(DATA, base, region, offset, len, Access::Write);
    assert_eq!(map(0x5000, &memory, 0, 2 * PAGE + 1), Ok(()));
    let reserved = |base, len| Err(SpaceError::Reserved { kind: DATA, base, len });
    for (base, len) in [(0, 1), (0xfff, 1), (0xfff, 2), (0xffff_f000, 1), (0xffff_e000, PAGE + 1), (0xffff_ffff, 1)] {
        assert_eq!(map(base, &memory, base % PAGE, len), reserved(base, len), "{base:#x}");
    }
    assert_eq!(map(0xffff_e000, &other, 0, PAGE), Ok(()));
    assert_eq!(map(0x1000, &other, 4, 1), Err(SpaceError::Misaligned { kind: DATA, base: 0x1000, offset: 4 }));
    let outside = |offset, len| Err(SpaceError::Outside { offset, len, region: 4096 });
    for (offset, len) in [(0, PAGE + 1), (PAGE, 1), (1, PAGE), (u32::MAX, 1), (1, u32::MAX)] {
        assert_eq!(map(0x1000 + offset % PAGE, &other, offset, len), outside(offset, len));
    }
    // The third page of the first mapping contains one of its bytes.
    assert_eq!(map(0x7800, &other, 0x800, 4), Err(SpaceError::Shared { kind: DATA, base: 0x7000, other: DATA }));
    assert!(matches!(map(0x7000, &memory, 2 * PAGE, 1), Err(SpaceError::View(_))));
    assert_eq!(map(0x7800, &memory, 2 * PAGE + 0x800, 4), Ok(()));
    assert_eq!(map(0x9000, &other, 0, 0), Ok(()));
    assert_eq!(bytes::<1>(&mut space, 0x9000), None);
    assert_eq!(bytes(&mut space, 0x7800), Some([0; 4]));
}

#[test]
fn lengths_change_within_what_is_mapped() {
    let mut space = space();
    space.map(RegionKind::Packet, 0x1000, &region(1), 0, PAGE, Access::Write).expect("mapped");
    for len in [0, 60, PAGE, 1] {
        space.set_len(RegionKind::Packet, len).expect("room");
        assert_eq!(space.view().kind_of(0x1000, len).is_some(), len > 0);
        assert_eq!(space.view().kind_of(0x1000, len + 1), None);
    }
    let refused = |kind, len| Err(SpaceError::NoRoom { kind, len });
    assert_eq!(space.set_len(RegionKind::Packet, PAGE + 1), refused(RegionKind::Packet, PAGE + 1));
    assert_eq!(space.set_len(RegionKind::Stack, 1), refused(RegionKind::Stack, 1));
}

#[test]
fn the_cached_window_has_its_current_length() {
    let mut space = space();
    space.set_l1_alias(L1, 0x4_0000).expect("an alias");
    space.map(DATA, 0x1000, &region(1), 0, 100, Access::Write).expect("mapped");
    space.map(RegionKind::Scratchpad, L1, &region(1), 0, PAGE, Access::Write).expect("mapped");
    space.copy_in(0x1000 + 90, b"at the end").expect("writable");
    space.copy_in(L1_ALIAS + 8, b"elsewhere").expect("writable");
    let copied = |space: &mut Space, address, len| {
        let mut bytes = vec![0; len];
        space.view().copy_out(address, &mut bytes).map(|()| bytes)
    };
    for _ in 0..2 {
        for address in [L1 + 8, L1_ALIAS + 8] {
            assert_eq!(copied(&mut space, 0x1000 + 90, 10).as_deref(), Some(&b"at the end"[..]));
            assert_eq!(copied(&mut space, 0x1000 + 91, 10), None, "it runs over the end");
            assert_eq!(copied(&mut space, 0x1000 - 1, 2), None, "and this over the beginning");
            assert_eq!((copied(&mut space, 0x1000 + 99, 0), copied(&mut space, 0x1000 + 100, 0)), (Some(vec![]), None));
            assert_eq!(copied(&mut space, address, 9).as_deref(), Some(&b"elsewhere"[..]));
        }
    }
    let not_all = |space: &mut Space| {
        for _ in 0..3 {
            assert_eq!(copied(space, 0x1000 + 90, 9).as_deref(), Some(&b"at the en"[..]));
        }
    };
    not_all(&mut space);
    space.set_len(DATA, 99).expect("shorter");
    assert_eq!(copied(&mut space, 0x1000 + 90, 10), None);
    not_all(&mut space);
    space.set_len(DATA, 100).expect("as long as it was");
    assert_eq!(copied(&mut space, 0x1000 + 90, 10).as_deref(), Some(&b"at the end"[..]));
}

/// Copies from memory at the addresses of other memory's alias.
#[test]
fn aliases_hold_for_each_copy() {
    let shared = |kind, base: u32, byte| {
        let region = Region::around(base, &[byte; 2 * PAGE as usize]).expect("memory");
        let window = Window::new(&region, 0, 2 * PAGE, Access::Write).expect("all of it");
        Range { kind, base, memory: Memory::Shared(window) }
    };
    let mut view = View::new();
    view.push(shared(RegionKind::Data, L1_ALIAS - PAGE, 1)).expect("room");
    view.push(shared(RegionKind::Scratchpad, 0x1000_0000, 2)).expect("room");
    view.set_l1_alias(0x1000_0000, 2 * PAGE);
    let copied = |address| {
        let mut bytes = [0; 2];
        view.copy_out(address, &mut bytes).map(|()| bytes)
    };
    for _ in 0..3 {
        assert_eq!(copied(L1_ALIAS - 2), Some([1; 2]));
    }
    assert_eq!(copied(L1_ALIAS + 2), Some([2; 2]));
}

#[test]
fn the_alias_shows_what_is_mapped_before_and_after() {
    let mut space = space();
    space.map(RegionKind::Stack, L1, &region(1), 0, PAGE, Access::Write).expect("mapped");
    space.set_l1_alias(L1, 0x4_0000).expect("an alias");
    space.map(RegionKind::Scratchpad, L1 + 0x3_f000, &region(1), 0, 100, Access::Write).expect("mapped");
    for offset in [0x10, 0x3_f010] {
        space.copy_in(L1_ALIAS + offset, b"seen").expect("writable");
        assert_eq!(bytes(&mut space, L1 + offset), Some(*b"seen"));
        // SAFETY: both pages were just mapped.
        #[allow(unsafe_code, reason = "the mapping itself is tested")]
        let mapped = unsafe { space.base().add((L1_ALIAS + offset) as usize).cast::<[u8; 4]>().read_volatile() };
        assert_eq!(mapped, *b"seen");
    }
    assert_eq!(bytes::<1>(&mut space, L1_ALIAS + 0x1000), None);
    let taken = space.map(DATA, L1_ALIAS + 0x2000, &region(1), 0, 1, Access::Write);
    let kind = RegionKind::Scratchpad;
    assert_eq!(taken, Err(SpaceError::Shared { kind: DATA, base: L1_ALIAS + 0x2000, other: kind }));
    assert_eq!(space.set_l1_alias(L1, PAGE), Err(SpaceError::AlreadyMapped("L1 alias")));
    let mut occupied = self::space();
    occupied.map(DATA, L1_ALIAS, &region(1), 0, 1, Access::Write).expect("mapped");
    assert_eq!(occupied.set_l1_alias(L1, PAGE), Err(SpaceError::Shared { kind, base: L1_ALIAS, other: DATA }));
}

#[test]
fn the_page_below_the_stack_is_known_in_the_alias_window() {
    let mut space = space();
    space.map(RegionKind::Stack, L1 + PAGE, &region(1), 0, PAGE, Access::Write).expect("mapped");
    space.set_l1_alias(L1, 0x4_0000).expect("an alias");
    let mut below = |at| (space.parts().1.below_stack(at), space.parts().0.resolve_fault(at, Access::Read));
    let overflow = FaultOutcome::Fault(Cause::StackOverflow);
    assert_eq!([L1, L1_ALIAS + 0xfff].map(&mut below), [(true, overflow), (true, overflow)]);
}

#[test]
fn task_registers_are_seen_in_the_driver_page() {
    let mut space = space();
    space.map(RegionKind::Stack, L1, &region(1), 0, PAGE, Access::Write).expect("mapped");
    space.set_task_alias(L1 + PAGE - 96);
    let (first, behind) = (DRIVER_BASE + TASK_FIRST, DRIVER_BASE + DOORBELL);
    space.copy_in(first, b"registers").expect("writable");
    assert_eq!(bytes(&mut space, L1 + PAGE - 96), Some(*b"regi"));
    assert_eq!(space.view().kind_of(first + 4, 68), Some((RegionKind::Task, 4)));
    assert_eq!(space.view().kind_of(first + 4, 69), None);
    // Accesses across either end are the device's.
    assert_eq!(bytes::<4>(&mut space, behind - 2), None);
    assert_eq!(bytes::<2>(&mut space, behind - 2), Some([0; 2]));
    assert_eq!(bytes::<4>(&mut space, first - 1), None);
    assert_eq!(bytes::<1>(&mut space, behind), None);
}

#[test]
fn pages_are_open_around_exact_ranges_when_asked() {
    let (memory, mut space) = (region(3), space());
    space.map(DATA, 0x5010, &memory, 0x10, 0x20, Access::Write).expect("mapped");
    space.map(DATA, 0x5800, &memory, 0x800, 4, Access::Read).expect("mapped");
    space.map(RegionKind::Code, 0x6000, &region(1), 0, 4, Access::Read).expect("mapped");
    let view = space.view();
    view.set_checks(Checks::Page);
    assert_eq!(view.store(0x5000, *b"head"), Some(()));
    // One of the page's two ranges is writable.
    assert_eq!(view.store(0x5802, *b"tail"), Some(()));
    assert_eq!(view.load(0x5804), Some(*b"il\0\0"));
    // Across to the next page, which is read-only.
    assert_eq!(view.load(0x5ffe), Some([0; 4]));
    assert_eq!(view.store(0x5ffe, [1; 4]), None);
    assert_eq!(view.load(0x5ffe), Some([0; 2]));
    assert_eq!(view.load::<4>(0x6ffe), None);
    assert_eq!(view.load::<4>(0x4ffe), None);
    // Copies and kinds stay exact.
    assert_eq!(view.kind_of(0x5000, 1), None);
    assert_eq!(view.copy_in(0x5800, &[1]), None);
    view.set_checks(Checks::Exact);
    assert_eq!(view.load::<1>(0x5000), None);
    assert_eq!(view.store(0x5802, [1]), None);
}

/// Runs `program` on packet `frame` in L2, whose address is in a0.
fn on_packet(space: &mut Space, frame: &mut [u8], program: &[Inst]) -> (Exit, u32) {
    let code = Code::of(0x1d00_0000, program.iter().chain([&Inst::new(Op::Jalr).rs1(Reg::RA)]));
    let mut hart = Hart::new(0);
    hart.begin(0x1d00_0000, 0, L2);
    let exit = space.with_packet(frame, TaskStart::New, |_, view| run(&mut hart, &code, view, &mut NoDevice, 100));
    (exit, hart.get(Reg::A1))
}

#[test]
fn a_packet_is_in_l2_for_those_who_look() {
    let mut space = space();
    space.map_l2_packet(L2).expect("mapped");
    assert_eq!(space.map_l2_packet(L2 + PAGE), Err(SpaceError::AlreadyMapped("packet window")));
    let load = |offset| Inst::new(Op::Lbu).rd(Reg::A1).rs1(Reg::A0).imm(offset);
    let store = Inst::new(Op::Sb).rs1(Reg::A0).rs2(Reg::A0).imm(1);

    assert_eq!(on_packet(&mut space, &mut [1, 2, 3], &[]), (Exit::Returned, 0));
    assert_eq!((space.l2_read(), space.l2_written()), (false, false));
    let beyond = Fault { cause: Cause::LoadAccess, pc: 0x1d00_0000, address: L2 + 3 };
    assert_eq!(on_packet(&mut space, &mut [1, 2, 3], &[load(3)]).0, Exit::Fault(beyond));
    assert_eq!((space.l2_read(), space.l2_written()), (false, false));

    assert_eq!(on_packet(&mut space, &mut [1, 2, 3], &[load(2)]), (Exit::Returned, 3));
    assert_eq!((space.l2_read(), space.l2_written()), (true, false));
    let mut frame = [4, 5, 6];
    assert_eq!(on_packet(&mut space, &mut frame, &[store, load(2)]), (Exit::Returned, 6));
    assert_eq!((frame, space.l2_written()), ([4, 0, 6], true));
    // The next packet is a new one.
    let mut frame = [7, 8, 9];
    assert_eq!(on_packet(&mut space, &mut frame, &[load(1)]), (Exit::Returned, 8));
    assert_eq!(frame, [7, 8, 9]);
    assert_eq!(bytes::<1>(&mut space, L2), None, "no packet, no bytes");
}

#[test]
fn nothing_of_a_longer_packet_is_left_behind_a_shorter_one() {
    let (memory, mut space) = (region(2), space());
    memory.write(PAGE as usize - 1, &[1]).expect("inside");
    space.map_l2_packet_in(L2, &memory, PAGE).expect("mapped");
    space.view().set_checks(Checks::Page);
    let mut in_window = |packet: &mut [u8], look: bool| {
        space.with_packet(packet, TaskStart::New, |_, view| if look { view.load::<4>(L2) } else { None });
        let mut bytes = [0; 6];
        memory.read(PAGE as usize - 1, &mut bytes).expect("inside");
        bytes
    };
    assert_eq!(in_window(&mut [9; 4], false), [1, 0, 0, 0, 0, 0]);
    assert_eq!(in_window(&mut [9; 4], true), [1, 9, 9, 9, 9, 0]);
    assert_eq!(in_window(&mut [5; 2], false), [1, 5, 5, 0, 0, 0]);
    assert_eq!(in_window(&mut [6; 5], false), [1, 6, 6, 6, 6, 6]);
    assert_eq!(in_window(&mut [], false), [1, 0, 0, 0, 0, 0]);
    let outside = SpaceError::Outside { offset: PAGE, len: PAGE, region: PAGE as usize };
    assert_eq!(self::space().map_l2_packet_in(L2, &region(1), PAGE), Err(outside));
}

#[test]
fn regions_are_read_written_and_cleared_within_their_bounds() {
    let memory = region(2);
    let len = memory.len();
    let read = |offset| {
        let mut bytes = [7; 2];
        memory.read(offset, &mut bytes).map(|()| bytes)
    };
    assert_eq!(memory.write(len - 2, &[1, 2]), Some(()));
    assert_eq!((read(len - 2), read(len - 1), read(usize::MAX)), (Some([1, 2]), None, None));
    assert_eq!((memory.write(len - 1, &[1, 2]), memory.write(len, &[])), (None, Some(())));
    assert_eq!((memory.clear(1, len), memory.clear(len + 1, 0), read(len - 2)), (None, None, Some([1, 2])));
    assert_eq!((memory.clear(1, len - 2), read(len - 2)), (Some(()), Some([0, 2])));
}

#[test]
fn copies_see_the_packet_without_looking_at_it_and_change_it() {
    let mut space = space();
    space.map_l2_packet(L2).expect("mapped");
    let mut frame = [1, 2, 3, 4];
    space.with_packet(&mut frame, TaskStart::New, |_, view| {
        let mut out = [0; 2];
        view.copy_out(L2 + 1, &mut out).expect("readable");
        assert_eq!((out, view.kind_of(L2, 4)), ([2, 3], Some((RegionKind::L2Packet, 0))));
        assert_eq!(view.copy_out(L2 + 3, &mut out), None);
    });
    assert_eq!((space.l2_read(), space.l2_written()), (false, false));
    space.with_packet(&mut frame, TaskStart::New, |_, view| {
        view.copy_in(L2 + 1, &[9]).expect("writable");
        let mut out = [0; 4];
        view.copy_out(L2, &mut out).expect("readable");
        assert_eq!(out, [1, 9, 3, 4]);
    });
    assert_eq!((frame, space.l2_read(), space.l2_written()), ([1, 9, 3, 4], false, true));
}

/// A space with the packet's windows in the first and second page of the region, with two bytes visible in L1.
fn with_packet() -> (Space, Arc<Region>) {
    let (mut space, windows) = (space(), region(2));
    space.map_packet_in(&windows, (L1, 0), (L2, PAGE)).expect("mapped");
    assert_eq!(space.map_l2_packet(L2 + PAGE), Err(SpaceError::AlreadyMapped("packet window")));
    space.set_l1_alias(L1, PAGE).expect("an alias");
    space.set_len(RegionKind::Packet, 2).expect("room");
    (space, windows)
}

#[test]
fn each_window_has_a_copy_of_its_own_for_those_who_look() {
    let (mut space, windows) = with_packet();
    let in_l1 = || {
        let mut bytes = [0; 4];
        windows.read(0, &mut bytes).map(|()| bytes).expect("inside")
    };
    let (mut frame, mut forwarded) = ([1, 2, 3, 4], [0; 2]);
    space.with_packet(&mut frame, TaskStart::New, |_, view| {
        assert_eq!(view.with_frame_bytes(L1, 2, <[u8]>::to_vec), Some(vec![1, 2]));
        view.copy_out(L1_ALIAS, &mut forwarded).expect("readable");
        assert_eq!((view.with_frame_bytes(L1, 3, |_| ()), view.load::<4>(L1)), (None, None), "two bytes are shown");
    });
    assert_eq!(
        (forwarded, in_l1(), space.packet().map(|windows| windows.expected_copy_len(2))),
        ([1, 2], [0; 4], Some(PAGE as usize))
    );
    space.with_packet(&mut frame, TaskStart::New, |_, view| {
        // The later copy in L1 lacks changes in L2.
        view.store(L2, [9]).expect("writable");
        assert_eq!((view.load(L1_ALIAS), view.load(L2 + 1)), (Some([1, 2]), Some([2])));
        view.store(L1 + 1, [8]).expect("writable");
        assert_eq!(
            (view.load(L1), view.load(L2), view.with_frame_bytes(L1, 2, |_| ())),
            (Some([1, 8]), Some([9, 2]), None)
        );
    });
    assert_eq!((frame, in_l1()), ([9, 2, 3, 4], [1, 8, 0, 0]));
    // From here on the packet is copied before the task.
    space.with_packet(&mut [5, 6, 7], TaskStart::New, |_, _| {});
    assert_eq!(in_l1(), [5, 6, 0, 0]);
    space.with_packet(&mut [4], TaskStart::New, |_, _| {});
    assert_eq!(in_l1(), [4, 0, 0, 0]);
}

#[test]
fn a_parked_task_keeps_its_packet_in_l1() {
    for looks_before in [false, true] {
        let (mut space, _) = with_packet();
        let mut frame = [1, 2, 3];
        space.with_packet(&mut frame, TaskStart::New, |_, view| {
            view.store(L2, [9]).expect("writable");
            if looks_before {
                view.store(L1 + 1, [8]).expect("writable");
            }
            super::keep_in_l1();
        });
        assert_eq!(frame, [9, 2, 3]);
        let kept = if looks_before { [1, 8] } else { [1, 2] };
        let found = space.with_packet(&mut frame, TaskStart::Resumed, |_, view| (view.load(L1), view.load(L2)));
        assert_eq!(found, (Some(kept), Some([9, 2, 3])));
        assert_eq!(space.with_packet(&mut frame, TaskStart::New, |_, view| view.load(L1)), Some([9, 2]));
    }
}

#[test]
fn windows_of_the_packet_are_apart() {
    let windows = region(2);
    let shared = |kind, base, other| Err(SpaceError::Shared { kind, base, other });
    assert!(space().map_packet_in(&windows, (L2, 0), (L2, PAGE)).is_err());
    let mut space = space();
    space.map(DATA, L1 + 0x20, &region(1), 0x20, 8, Access::Write).expect("mapped");
    assert!(space.map_packet_in(&windows, (L1, 0), (L2, PAGE)).is_err());
    space.map_packet_in(&windows, (L1 + PAGE, 0), (L2, PAGE)).expect("nothing of the other was left");
    assert_eq!(space.map(DATA, L2, &windows, PAGE, 1, Access::Write), shared(DATA, L2, RegionKind::L2Packet));
    let outside = SpaceError::Outside { offset: 2 * PAGE, len: PAGE, region: 2 * PAGE as usize };
    assert_eq!(self::space().map_packet_in(&windows, (L1, 0), (L2, 2 * PAGE)), Err(outside));
    let misaligned = SpaceError::Misaligned { kind: RegionKind::Packet, base: L1 + 0x800, offset: 0x800 };
    assert_eq!(self::space().map_packet_in(&windows, (L1 + 0x800, 0x800), (L2, PAGE)), Err(misaligned));
}

#[test]
fn a_view_that_is_kept_knows_no_packet_afterwards() {
    let mut space = space();
    space.map_l2_packet(L2).expect("mapped");
    let mut kept = space.with_packet(&mut [1, 2], TaskStart::New, |_, view| std::mem::take(view));
    assert_eq!(kept.load::<1>(L2), None);
    drop(space);
    assert_eq!(kept.load::<1>(L2), None);
    // Nor on another thread, while a packet is lent on this one.
    let mut space = self::space();
    space.map_l2_packet(L2).expect("mapped");
    space.with_packet(&mut [1, 2], TaskStart::New, |_, view| {
        let mut taken = std::mem::take(view);
        let there = thread::scope(|scope| scope.spawn(|| taken.load::<1>(L2)).join().expect("no panic"));
        assert_eq!((there, taken.load::<1>(L2)), (None, Some([1])));
    });
}

#[test]
fn a_view_that_is_kept_has_its_memory_when_the_space_is_gone() {
    let (memory, mut space) = (region(1), space());
    space.map(DATA, 0x1000, &memory, 0, 8, Access::Write).expect("mapped");
    let mut kept = std::mem::take(space.view());
    drop(space);
    drop(self::space());
    kept.store(0x1000, [1, 2, 3, 4]).expect("writable");
    assert_eq!(kept.load_word(0x1000), Some(0x0403_0201));
    let mut other = self::space();
    other.map(DATA, 0x2000, &memory, 0, 8, Access::Read).expect("mapped");
    assert_eq!(other.view().load_word(0x2000), Some(0x0403_0201), "it is the same memory");
}

#[test]
fn the_window_of_the_packet_in_l2_shares_no_page() {
    let (memory, mut first, mut second) = (region(1), space(), space());
    let refused = |kind, other| Err::<(), _>(SpaceError::Shared { kind, base: 0x1000, other });
    first.map(DATA, 0x1000, &memory, 0, 8, Access::Write).expect("mapped");
    first.set_len(DATA, 0).expect("shorter");
    assert_eq!(first.map_l2_packet_in(0x1000, &memory, 0), refused(RegionKind::L2Packet, DATA));
    second.map_l2_packet_in(0x1000, &memory, 0).expect("mapped");
    second.set_len(RegionKind::L2Packet, 0).expect("shorter");
    assert_eq!(second.map(DATA, 0x1000, &memory, 0, 8, Access::Write), refused(DATA, RegionKind::L2Packet));
}

#[test]
fn a_page_that_may_be_read_and_written_is_writable_in_either_order() {
    let memory = region(3);
    for order in [[0, 1], [1, 0]] {
        let mut space = space();
        for at in order {
            let (base, len, access) = [(0x1800, 16, Access::Write), (0x1810, 0x1000, Access::Read)][at];
            space.map(DATA, base, &memory, base - 0x1000, len, access).expect("mapped");
        }
        space.copy_in(0x1800, &[7]).expect("writable");
        assert_eq!(space.copy_in(0x1810, &[7]), None);
        assert_eq!((bytes(&mut space, 0x1800), bytes(&mut space, 0x2000)), (Some([7]), Some([0])));
    }
}

#[test]
fn a_packet_is_there_again_after_one_of_another_space_s_was_offered_meanwhile() {
    let [mut outer, mut inner] = [(); 2].map(|()| {
        let mut space = space();
        space.map_l2_packet(L2).expect("mapped");
        space
    });
    outer.with_packet(&mut [1, 2], TaskStart::New, |_, view| {
        assert_eq!(inner.with_packet(&mut [3], TaskStart::New, |_, view| view.load::<1>(L2)), Some([3]));
        assert_eq!((view.load::<1>(L2), inner.view().load::<1>(L2)), (Some([1]), None));
    });
}

#[test]
fn threads_that_share_memory_lose_no_atomic() {
    const ROUNDS: u32 = 20_000;
    let memory = region(1);
    let hammer = || {
        let mut space = space();
        space.map(DATA, 0x1000, &memory, 0, 8, Access::Write).expect("mapped");
        let view = space.view();
        for _ in 0..ROUNDS {
            view.update_word(0x1000, |old| old.wrapping_add(1)).expect("writable");
            loop {
                let old = view.load_word(0x1004).expect("readable");
                if view.exchange_word(0x1004, old, old + 3).expect("writable") {
                    break;
                }
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(hammer);
        hammer();
    });
    let mut space = space();
    space.map(DATA, 0x1000, &memory, 0, 8, Access::Read).expect("mapped");
    let words = [0x1000, 0x1004].map(|at| space.view().load_word(at));
    assert_eq!(words, [Some(2 * ROUNDS), Some(6 * ROUNDS)]);
    assert_eq!(space.view().update_word(0x1000, |old| old), None);
}

#[test]
fn the_guards_are_where_addresses_wrap() {
    let mut space = space();
    let (layout, _) = space.parts();
    let base = layout.base().addr();
    assert_eq!(layout.guest_address(base - 1), Some(u32::MAX));
    assert_eq!(layout.guest_address(base - GUARD_BELOW), Some(u32::MAX - (PAGE - 1)));
    assert_eq!(layout.guest_address(base - GUARD_BELOW - 1), None);
    assert_eq!(layout.guest_address(base + (1 << 32) + 5), Some(5));
    assert_eq!(layout.guest_address(base + (1 << 32) + super::GUARD_ABOVE), None);
}

#[test]
fn an_alias_that_only_the_view_has_maps_nothing() {
    let mut space = space();
    space.view().set_l1_alias(0x1000, 0xffff_e000);
    space.set_task_alias(0x2000);
    // At the alias it would lie beyond the 4 GiB.
    space.map(DATA, 0xe500_0000, &region(1), 0, PAGE, Access::Write).expect("mapped");
    let (layout, _) = space.parts();
    assert_eq!((layout.addresses().l1_size(), layout.addresses().task_base()), (0, 0x2000));
    space.set_l1_alias(L1, 2 * PAGE).expect("there is none yet");
    space.view().set_l1_alias(0x1000, 0xffff_e000);
    space.map(DATA, L1, &region(1), 0, PAGE, Access::Write).expect("mapped");
    let (layout, _) = space.parts();
    assert_eq!((layout.addresses().l1_base(), layout.addresses().l1_size()), (L1, 2 * PAGE));
}

/// A load, store or copy of random bytes.
#[derive(Clone, Debug)]
enum Step {
    Load(u32, u8),
    Store(u32, u8, u32),
    Add(u32, u32),
    Exchange(u32, u32, u32),
    Copy(u32, Vec<u8>),
    Clear(u32, u32),
}

/// Result of a step.
fn step(view: &mut View<'_>, step: &Step) -> Option<Vec<u8>> {
    match *step {
        Step::Load(at, 0) => view.load::<1>(at).map(Vec::from),
        Step::Load(at, 1) => view.load::<2>(at).map(Vec::from),
        Step::Load(at, _) => view.load::<4>(at).map(Vec::from),
        Step::Store(at, 0, value) => view.store(at, [value.to_le_bytes()[0]]).map(|()| vec![]),
        Step::Store(at, 1, value) => view.store(at, [value.to_le_bytes()[0], 0x55]).map(|()| vec![]),
        Step::Store(at, _, value) => view.store(at, value.to_le_bytes()).map(|()| vec![]),
        Step::Add(at, value) => {
            view.update_word(at & !3, |old| old.wrapping_add(value)).map(|old| old.to_le_bytes().to_vec())
        }
        Step::Exchange(at, old, new) => view.exchange_word(at & !3, old, new).map(|done| vec![done.into()]),
        Step::Copy(at, ref bytes) => {
            let mut seen = vec![0; bytes.len()];
            let read = view.copy_out(at, &mut seen).is_some();
            view.copy_in(at, bytes).map(|()| seen).filter(|_| read)
        }
        Step::Clear(at, len) => view.clear(at, len).map(|()| vec![]),
    }
}

/// Ranges: base, length, whether writable. Two share a page.
const RANGES: [(u32, u32, bool); 4] =
    [(0x1ffc, 10, true), (0x3010, 0x20, true), (0x3040, 0x11, true), (0x4ff0, 0x1010, false)];

fn address() -> impl Strategy<Value = u32> {
    let near = |at: u32| at - 6..at + 6;
    let ends = RANGES.map(|(base, len, _)| prop_oneof![near(base), near(base + len), base..base + len]);
    let [a, b, c, d] = ends;
    prop_oneof![a, b, c, d, any::<u32>()]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let small = || 0_u32..3;
    let one = prop_oneof![
        (address(), 0_u8..3).prop_map(|(at, width)| Step::Load(at, width)),
        (address(), 0_u8..3, any::<u32>()).prop_map(|(at, width, value)| Step::Store(at, width, value)),
        (address(), small()).prop_map(|(at, value)| Step::Add(at, value)),
        (address(), small(), small()).prop_map(|(at, old, new)| Step::Exchange(at, old, new)),
        (address(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(at, bytes)| Step::Copy(at, bytes)),
        (address(), 0_u32..0x1100).prop_map(|(at, len)| Step::Clear(at, len)),
    ];
    prop::collection::vec(one, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Shared and borrowed memory agree in each access, and in their final contents.
    #[test]
    fn shared_and_borrowed_memory_agree(steps in steps()) {
        let mut plain: Vec<Vec<u8>> = RANGES.iter().map(|&(base, len, _)| (0..len).map(|i| (base + i) as u8).collect()).collect();
        let page = region(1);
        let mut space = space();
        for ((base, len, write), bytes) in RANGES.into_iter().zip(&plain) {
            let access = if write { Access::Write } else { Access::Read };
            let region = if base >> 12 == 3 { page.clone() } else { Region::around(base, bytes).expect("a region") };
            space.map(DATA, base, &region, base % PAGE, len, access).expect("mapped");
            if base >> 12 == 3 {
                space.copy_in(base, bytes).expect("writable");
            }
        }
        let mut view = View::new();
        for ((base, _, write), bytes) in RANGES.into_iter().zip(&mut plain) {
            let memory = if write { Memory::ReadWrite(bytes) } else { Memory::ReadOnly(bytes) };
            view.push(Range { kind: DATA, base, memory }).expect("disjoint");
        }
        for each in &steps {
            prop_assert_eq!(step(&mut view, each), step(space.view(), each), "{:?}", each);
        }
        for (base, len, _) in RANGES {
            let mut both = [vec![0; len as usize], vec![1; len as usize]];
            view.copy_out(base, &mut both[0]).expect("readable");
            space.copy_out(base, &mut both[1]).expect("readable");
            prop_assert_eq!(&both[0], &both[1]);
        }
    }
}
