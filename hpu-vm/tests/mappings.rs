//! GuestUsage do not take all mappings that a process may have: alone in its process, since the limit is the process's.

use hpu_vm::RegionKind;
use hpu_vm::memory::{Access, Region, Space, SpaceError};
use spin_abi::map::{L2_BASE, PAGE};

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("this process's mappings").lines().count()
}

/// Has a space show a page in many places.
fn fill(space: &mut Space, region: &std::sync::Arc<Region>) -> Result<(), SpaceError> {
    // Not next to each other, so that each is a mapping of its own.
    (0..24)
        .try_for_each(|index| space.map(RegionKind::Data, L2_BASE + 2 * PAGE * index, region, 0, PAGE, Access::Write))
}

#[test]
fn who_wants_more_mappings_than_there_are_for_guests_is_refused_and_others_go_on() {
    let region = Region::new(PAGE as usize).expect("memory");
    let before = mappings();
    let full = || {
        let mut space = Space::new()?;
        fill(&mut space, &region).map(|()| space)
    };
    let mut spaces = Vec::new();
    let refused = loop {
        match full() {
            Ok(space) => spaces.push(space),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(refused, SpaceError::Full { used, limit } if used.mappings + 50 > limit.mappings && used.spaces < limit.spaces),
        "{refused:?}"
    );
    // The rest of the process has what it needs.
    let threads: Vec<_> = (0..64).map(|_| std::thread::spawn(std::thread::park)).collect();
    let found = mappings();
    println!("{} spaces, {found} mappings, {refused:?}", spaces.len());
    threads.into_iter().for_each(|thread| {
        thread.thread().unpark();
        thread.join().expect("it was started");
    });
    // All of it comes back.
    spaces.clear();
    assert!(mappings() < before + 500, "{} mappings, {before} before", mappings());
    full().expect("there is room again");
}
