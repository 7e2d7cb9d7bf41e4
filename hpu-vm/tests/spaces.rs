//! Spaces come and go without a trace, and not without bound. One test, since it counts what the process has.

use std::fs;

use hpu_vm::RegionKind;
use hpu_vm::memory::{Access, Region, Space, SpaceError, set_max_spaces};
use spin_abi::map::PAGE;

/// Mappings and open files of this process.
fn traces() -> (usize, usize) {
    let maps = fs::read_to_string("/proc/self/maps").expect("mappings").lines().count();
    (maps, fs::read_dir("/proc/self/fd").expect("files").count())
}

fn full_space() -> Space {
    let mut space = Space::new().expect("a space");
    let region = Region::new(4 * PAGE as usize).expect("a region");
    space.set_l1_alias(0x1000_0000, 0x4_0000).expect("an alias");
    space.map(RegionKind::Stack, 0x1000_0000, &region, 0, PAGE, Access::Write).expect("mapped");
    space.map(RegionKind::Code, 0x1d00_0004, &region, PAGE + 4, PAGE, Access::Read).expect("mapped");
    space.map_l2_packet(0x1c40_0000).expect("mapped");
    space.copy_in(0x1000_0ffc, b"used").expect("writable");
    space
        .map(RegionKind::Data, 0x1000_0000, &Region::new(1).expect("a region"), 0, 1, Access::Write)
        .expect_err("taken");
    space
}

#[test]
fn spaces_leave_no_trace_and_are_bounded() {
    drop(full_space());
    let before = traces();
    for _ in 0..10_000 {
        drop(full_space());
    }
    let (maps, files) = traces();
    // The allocator may have come by a few mappings of its own.
    assert!(maps <= before.0 + 8, "{maps} mappings, {} before", before.0);
    assert_eq!(files, before.1);

    set_max_spaces(2);
    let two = [full_space(), full_space()];
    let refused = Space::new().expect_err("two are there");
    assert!(matches!(refused, SpaceError::Full { used, limit } if used.spaces == 2 && limit.spaces == 2), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("2 of 2 address spaces") && text.contains("vm.max_map_count"), "{text}");
    drop(two);
    assert!(Space::new().is_ok());
}
