//! The XDP program in the kernel against the matcher: both decide alike on every frame for all rules.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use spin_abi::rules::Target;
use spin_matcher::testing::{addressed_frames, frames, overlapping_entries, rules, targets};
use spin_matcher::{Headers, Table, TableEntry};
use spin_nic::{Filter, FlowSteering};
use spin_testing::bounded;

/// Number of frames per rule table.
const FRAMES: usize = 64;
/// Frame lengths that the kernel accepts for a test run.
const LENGTHS: std::ops::RangeInclusive<usize> = 14..=3400;

#[test]
fn kernel_and_matcher_decide_alike() {
    if !rustix::process::geteuid().is_root() {
        spin_testing::skip("loading the XDP program needs root");
        return;
    }
    let filter = Filter::load().expect("the kernel takes the XDP program");
    let (matched, passed) = (Cell::new(0u32), Cell::new(0u32));
    let frames = frames().prop_filter("length for a test run", |frame| LENGTHS.contains(&frame.len()));
    let strategy = (prop::collection::vec((rules(), targets()), 1..4), prop::collection::vec(frames, FRAMES));
    let mut runner =
        TestRunner::new(Config { cases: bounded(150, 400), failure_persistence: None, ..Config::default() });
    let result = runner.run(&strategy, |(contexts, frames)| {
        let entry = |(id, (rules, target))| TableEntry { context: id, rules, target, ..TableEntry::default() };
        let entries: Vec<_> = (1..).zip(contexts).map(entry).collect();
        let Ok(table) = Table::new(&entries) else { return Err(TestCaseError::reject("too many tests")) };
        filter.set_rules(table.rules()).expect("the kernel takes the table");
        for frame in frames {
            let ours = table.match_frame(&frame, &Headers::parse(&frame)).map(|found| entries[found.index].target);
            let kernels = filter.test_run(&frame).expect("the kernel runs the program");
            prop_assert_eq!(kernels, ours, "{:?}, frame {:02x?}", table.rules(), frame);
            let decided = if ours.is_some() { &matched } else { &passed };
            decided.set(decided.get() + 1);
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let (matched, passed) = (matched.get(), passed.get());
    eprintln!("{matched} frames matched, {passed} passed");
    assert!(matched > 1000 && passed > 1000, "both decisions were made often: {matched} and {passed}");
}

#[test]
fn frames_go_to_the_target_of_their_context() {
    if !rustix::process::geteuid().is_root() {
        spin_testing::skip("loading the XDP program needs root");
        return;
    }
    let filter = Filter::load().expect("the kernel takes the XDP program");
    let strategy = (overlapping_entries(), prop::collection::vec(addressed_frames(), 2 * FRAMES));
    let mut runner =
        TestRunner::new(Config { cases: bounded(100, 400), failure_persistence: None, ..Config::default() });
    let called = Cell::new(0_u32);
    let result = runner.run(&strategy, |(entries, frames)| {
        let table = Table::new(&entries).expect("few tests");
        filter.set_rules(table.rules()).expect("the kernel takes the table");
        for frame in frames.iter().filter(|frame| LENGTHS.contains(&frame.len())) {
            let ours = table.match_frame(frame, &Headers::parse(frame)).map(|found| entries[found.index].target);
            let kernels = filter.test_run(frame).expect("the kernel runs the program");
            prop_assert_eq!(kernels, ours, "{:?}, frame {:02x?}", table.rules(), frame);
            called.set(called.get() + u32::from(matches!(ours, Some(Target::Program(_)))));
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(called.get() > 1000, "{} frames go to programs", called.get());
}
