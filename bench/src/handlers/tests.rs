//! Variants against the reference, and handlers with malformed packets.

use super::case::{Case, Handler};
use super::interp::Interp;
use super::jit::Jit;
use super::measure::{Failure, round};
use super::native::Twins;
use super::reference::Expected;
use super::runner::Runner;
use super::work::{Work, json, trie};
use fastrand::Rng;
use hpu_vm::Checks;
use hpu_vm::jit::Executor;
use spin_handlers::{build, source};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::OnceLock;

/// Returns the image of a handler, which is compiled once.
fn image(handler: Handler) -> &'static [u8] {
    static IMAGES: [OnceLock<Vec<u8>>; Handler::ALL.len()] = [const { OnceLock::new() }; Handler::ALL.len()];
    let number = Handler::ALL.iter().position(|other| *other == handler).unwrap();
    IMAGES[number].get_or_init(|| {
        if !Handler::UNTUNED.contains(&handler) {
            return build(&source(handler.symbol()));
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("handlers");
        build(&folder.join(handler.symbol()).with_extension("c"))
    })
}

fn interp(handler: Handler, work: &Work) -> Interp {
    Interp::new(image(handler), work).unwrap()
}

/// Runs a round of every handler in each of the variants that `variants` makes.
fn all_rounds(size: usize, variants: impl Fn(&Work) -> Vec<Box<dyn Runner>>) {
    for handler in Handler::ALL {
        let case = Case { handler, size };
        let work = Work::new(case);
        let mut expected = Expected::of(&work);
        for (number, mut variant) in variants(&work).into_iter().enumerate() {
            let figure = round(&work, &mut *variant, &mut expected);
            assert!(figure.as_ref().is_ok_and(|nanoseconds| *nanoseconds > 0.0), "{case}, {number}: {figure:?}");
        }
    }
}

#[test]
fn interpreted_handlers_do_what_the_reference_says() {
    all_rounds(100, |work| vec![Box::new(interp(work.case.handler, work))]);
}

#[test]
fn translated_handlers_do_what_the_reference_says() {
    let executor = Rc::new(Executor::new().unwrap());
    all_rounds(301, |work| {
        let jit = |checks| Box::new(Jit::new(executor.clone(), image(work.case.handler), work, checks).unwrap());
        vec![jit(Checks::Page), jit(Checks::Exact)]
    });
}

/// Each counter that the handlers keep counts something, so that no kind of packet is missing from the work.
#[test]
fn work_has_common_and_rare_packets() {
    let counters: [(Handler, Part, usize, usize); 7] = [
        (Handler::TcpHeader, Part::Scratchpad, 0, 19),
        (Handler::Crc32, Part::Handler, 1024, 3),
        (Handler::Lz4Check, Part::Scratchpad, 0, 3),
        (Handler::Bloom, Part::Handler, 1024, 3),
        (Handler::TokenBucket, Part::Handler, 3, 2),
        (Handler::TrieLookup, Part::Handler, trie::COUNTERS_AT / 4, 2),
        (Handler::JsonField, Part::Handler, json::COUNTERS_AT / 4, 3),
    ];
    for (handler, part, first, count) in counters {
        let mut expected = Expected::of(&Work::new(Case { handler, size: 512 }));
        let memory = expected.memory.parts();
        let bytes = if part == Part::Scratchpad { memory.scratchpad } else { memory.handler };
        for counter in bytes.chunks_exact(4).skip(first).take(count) {
            assert_ne!(counter, [0; 4], "{handler:?}: {:?}", &bytes[first * 4..(first + count) * 4]);
        }
    }
}

/// Where a handler keeps its counters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Scratchpad,
    Handler,
}

#[test]
fn native_twins_do_what_the_reference_says() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("native/build");
    assert!(Command::new(script).arg(folder.path()).status().unwrap().success());
    let load = |name: &str| Twins::load(&folder.path().join(name).with_extension("so")).unwrap();
    let libraries = ["native-scalar", "native-vector", "native-atomics"].map(load);
    all_rounds(301, |work| {
        let runner = |twins: &Twins| Box::new(twins.runner(work).unwrap()) as Box<dyn Runner>;
        libraries.iter().map(runner).collect()
    });
}

#[test]
fn other_results_are_noticed() {
    let failure = |expected: Handler, does: Handler| {
        let work = Work::new(Case { handler: expected, size: 64 });
        round(&work, &mut interp(does, &work), &mut Expected::of(&work)).unwrap_err()
    };
    assert!(matches!(
        failure(Handler::Pingpong, Handler::Empty),
        Failure::Sends { packet: 0, found: None, expected: Some(_) }
    ));
    assert!(matches!(
        failure(Handler::Empty, Handler::Pingpong),
        Failure::Sends { packet: 0, found: Some(_), expected: None }
    ));
    assert!(matches!(
        failure(Handler::StridedDdt, Handler::Empty),
        Failure::Copies { packet: 0, found, expected } if found.count == 0 && expected.count > 0
    ));
    assert!(matches!(failure(Handler::Reduce, Handler::Aggregate), Failure::Memory("scratchpad")));
    assert!(matches!(failure(Handler::Crc32, Handler::Empty), Failure::Memory("handler memory")));
}

/// A view ends at the packet's end, so a handler that trusts a wrong length faults.
#[test]
fn damaged_packets_harm_no_handler() {
    let rng = &mut Rng::with_seed(7);
    for handler in Handler::ALL {
        let mut work = Work::new(Case { handler, size: 128 });
        for packet in work.packets.chunks_exact_mut(work.stride) {
            for _ in 0..rng.usize(1..4) {
                packet[rng.usize(12..60)] = rng.u8(..);
            }
        }
        let mut runner = interp(handler, &work);
        runner.memory().reset(&work);
        runner.place(&work, 0..1024);
        runner.run(0..1024).unwrap_or_else(|ended| panic!("{handler:?}: {ended}"));
    }
}

#[test]
fn short_packets_harm_no_handler() {
    for handler in Handler::ALL {
        let image = image(handler);
        let mut work = Work::new(Case { handler, size: 128 });
        for size in 0..128 {
            work.case.size = size;
            let mut runner = Interp::new(image, &work).unwrap();
            runner.memory().reset(&work);
            runner.place(&work, 0..4);
            runner.run(0..4).unwrap_or_else(|ended| panic!("{handler:?} on {size} bytes: {ended}"));
            assert_eq!(runner.log().commands(), 0, "{handler:?} answers {size} bytes of 128");
        }
    }
}
