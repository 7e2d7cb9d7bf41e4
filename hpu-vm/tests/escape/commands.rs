//! What commands take from a task's memory by address and length, both of the task's choice, and the guards around it.

use hpu_vm::Code;
use hpu_vm::RegionKind;
use hpu_vm::memory::{GUARD_ABOVE, GUARD_BELOW};
use proptest::prelude::*;
use spin_abi::map::{DRIVER_BASE, L1_ALIAS, PAGE, TASK_BLOCK};
use spin_abi::regs::{TASK_END, TASK_FIRST};

use crate::guest::{Guest, MACHINE, OWN, PACKET};

/// Ranges as a list: base, length.
fn ranges() -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = OWN.ranges().iter().map(|&(_, base, len)| (base, len)).collect();
    let l1 = MACHINE.l1_base(OWN.cluster);
    let aliased = |&(base, len): &(u32, u32)| {
        let at = base.wrapping_sub(l1);
        (at < MACHINE.l1_size).then_some((L1_ALIAS + at, len))
    };
    let aliases: Vec<(u32, u32)> = ranges.iter().filter_map(aliased).collect();
    ranges.extend(aliases);
    ranges.push((OWN.l2_packet(), PACKET));
    ranges.push((DRIVER_BASE + TASK_FIRST, TASK_END - TASK_FIRST));
    ranges
}

/// Whether all bytes lie in one range, without any arithmetic that could wrap.
fn within(address: u32, len: u32) -> bool {
    let (first, past) = (u64::from(address), u64::from(address) + u64::from(len));
    ranges().iter().any(|&(base, size)| first >= u64::from(base) && past <= u64::from(base) + u64::from(size))
}

/// Addresses and lengths at ends of ranges and of memory, and any others.
fn span() -> impl Strategy<Value = (u32, u32)> {
    let edges: Vec<u32> =
        ranges().into_iter().flat_map(|(base, len)| [base, base + len]).chain([0, u32::MAX]).collect();
    let address = (proptest::sample::select(edges), -8_i32..8).prop_map(|(edge, by)| edge.wrapping_add_signed(by));
    let address = prop_oneof![4 => address, 1 => any::<u32>()];
    let len = prop_oneof![
        4 => 1_u32..16,
        2 => proptest::sample::select(vec![PACKET, PAGE, PAGE + 1, 1 << 31, u32::MAX - 1, u32::MAX]),
        1 => 1_u32..9000,
    ];
    // Lengths that end right where the address began.
    (address, len, any::<bool>())
        .prop_map(|(address, len, wrap)| (address, if wrap { len.wrapping_sub(address) } else { len }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_commands_copy_is_within_one_range(spans in proptest::collection::vec(span(), 16)) {
        let mut guest = Guest::new(OWN, &Code::new(Vec::new()), 0x11);
        let mut frame = vec![0x22; PACKET as usize];
        let wrong = guest.slot.offer(&mut frame, |view| {
            spans.into_iter().find(|&(address, len)| {
                let may = len > 0 && within(address, len);
                let asked = view.kind_of(address, len).is_some();
                if len == 0 || len > 1 << 20 {
                    // No buffer is as long: who copies asks first.
                    return len > 0 && asked != may;
                }
                let copied = view.copy_out(address, &mut vec![0; len as usize]).is_some();
                asked != may || copied != may
            })
        });
        prop_assert_eq!(wrong, None);
    }
}

#[test]
fn task_registers_have_a_name_wherever_they_are_read() {
    let mut guest = Guest::new(OWN, &Code::new(Vec::new()), 0);
    let view = guest.slot.view();
    assert_eq!(view.kind_of(DRIVER_BASE + TASK_FIRST, 4), Some((RegionKind::Task, 0)));
    for offset in 1..4 {
        assert_eq!(view.kind_of(DRIVER_BASE + TASK_END - offset, 4), None, "over their end");
    }
    // The same bytes at the stack's top are the stack's.
    let top = OWN.stack_end() - TASK_BLOCK;
    assert_eq!(view.kind_of(top, 4).map(|(kind, _)| kind), Some(RegionKind::Stack));
}

/// No register and offset reach out of the reservation, and nothing but what was mapped is accessible in it.
#[test]
fn the_guards_take_in_every_offset() {
    const LOWEST: i64 = -2048;
    const HIGHEST: i64 = u32::MAX as i64 + 2047 + 4;
    let guest = Guest::new(OWN, &Code::at(crate::guest::CODE, &[0; 16]), 0);
    let base = guest.slot.space().base().addr();
    assert!(-LOWEST <= i64::try_from(GUARD_BELOW).unwrap());
    assert!(HIGHEST <= (1 << 32) + i64::try_from(GUARD_ABOVE).unwrap());
    let (first, past) = (base - GUARD_BELOW, base + (1 << 32) + GUARD_ABOVE);
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this process's mappings");
    let (mut covered, mut open) = (first, Vec::new());
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (from, to) = words.next().and_then(|range| range.split_once('-')).expect("a range");
        let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).expect("an address"));
        let permissions = words.next().expect("permissions");
        if to <= first || from >= past {
            continue;
        }
        assert!(from <= covered, "a hole at {covered:#x}");
        covered = to;
        if permissions != "---p" && permissions != "---s" {
            open.push((from.max(first) - base, to - base, permissions.to_owned()));
        }
    }
    assert!(covered >= past);
    assert!(open.iter().all(|(_, _, permissions)| !permissions.contains('x')), "{open:x?}");
    let mapped = |at: usize| {
        let at = u32::try_from(at).unwrap();
        let code = at == crate::guest::CODE;
        code || ranges().iter().any(|&(base, len)| at.wrapping_sub(base - base % PAGE) < len.next_multiple_of(PAGE))
    };
    for (from, to, _) in &open {
        assert!((*from..*to).step_by(PAGE as usize).all(mapped), "{from:#x} to {to:#x} is open");
    }
    assert!(open.len() >= 5, "{open:x?}");
}
