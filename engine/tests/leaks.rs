//! Installing and removing contexts leaks nothing. The only test of its program, since it examines the whole process.

mod common;

use std::fs;

use common::{Kind, Lab, ROOT, udp};
use spin_abi::control::Install;

/// Contexts installed and removed.
const CONTEXTS: usize = if cfg!(debug_assertions) { 500 } else { 10_000 };

/// The number of mappings, of open files, and of mappings of code that belongs to no file.
fn held() -> [usize; 3] {
    let maps = fs::read_to_string("/proc/self/maps").expect("the kernel tells");
    let translated = |line: &&str| line.contains(" r-xp ") && !line.contains(['/', '[']);
    let files = fs::read_dir("/proc/self/fd").expect("the kernel tells").count();
    [maps.lines().count(), files, maps.lines().filter(translated).count()]
}

#[test]
fn contexts_that_are_gone_hold_nothing() {
    let mut lab = Lab::new(Kind::Jit);
    let install = |lab: &mut Lab| {
        let install = Install { rules: vec!["udp dport 1".into()], scratchpad: 4096, ..Install::default() };
        let (id, _) = lab.install_with("counter", install);
        assert_eq!(lab.exchange(&[udp(1, &[0; 8])]).len(), 1);
        id
    };
    let first = install(&mut lab);
    let during = held();
    lab.engine.remove(first, ROOT).expect("installed");
    let before = held();
    assert!(during.iter().zip(before).all(|(during, before)| *during > before), "{during:?} {before:?}");
    for _ in 0..CONTEXTS {
        let id = install(&mut lab);
        lab.engine.remove(id, ROOT).expect("installed");
    }
    let after = held();
    // The allocator may have taken a few mappings.
    assert!(after[0] <= before[0] + 16, "{before:?} before, {after:?} after {CONTEXTS}");
    assert_eq!(after[1..], before[1..], "open files and code");
    println!("{CONTEXTS} contexts: {before:?} before, {after:?} after (mappings, files, code)");
}
