use std::path::Path;
use std::time::Duration;

use spin_abi::control::{Engine as Kind, Schedule};
use tempfile::TempDir;

use super::case::{BREAKDOWN, UNLOADED};
use super::lab::Setting;
use super::shares::{Arena, Greed};

/// Makes a folder with the images of test handlers.
fn images(names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in names {
        let image = spin_handlers::build(&spin_handlers::source(name));
        std::fs::write(folder.path().join(name).with_extension("elf"), image).expect("a file");
    }
    folder
}

#[test]
fn a_lone_packet_is_released_by_the_turn_it_arrives_in() {
    let images = images(&["empty"]);
    for case in UNLOADED {
        let setting = Setting::new(case, images.path(), Kind::Jit).expect("an image");
        let unloaded = setting.unloaded(100).expect("every packet is released");
        assert!(unloaded.median <= unloaded.p99, "{case}");
    }
}

#[test]
fn every_packet_goes_through_all_stages() {
    let images = images(&["empty"]);
    let setting = Setting::new(BREAKDOWN, images.path(), Kind::Jit).expect("an image");
    // More packets than frames, so that frames repeat.
    assert!(setting.stages(10_000).expect("every handler returns").iter().all(|stage| *stage >= 0.0));
}

#[test]
fn round_robin_runs_as_many_packets_of_both() {
    let images = images(&["spin"]);
    let arena = Arena::new(images.path(), Kind::Jit, Duration::from_millis(100)).expect("an image");
    let all = arena.contests(Schedule::RoundRobin, [1, 1]).expect("both run");
    for (greed, shares) in Greed::ALL.into_iter().zip(all) {
        let [first, second] = shares.packets;
        assert!((first + second - 1.0).abs() < 1e-9 && (0.3..0.7).contains(&first), "{greed:?}: {first}");
    }
}

#[test]
fn an_image_that_is_missing_is_named() {
    let error = Setting::new(BREAKDOWN, Path::new("/nonexistent"), Kind::Jit).err().expect("there is none");
    assert!(error.to_string().contains("/nonexistent/empty.elf"), "{error}");
}
