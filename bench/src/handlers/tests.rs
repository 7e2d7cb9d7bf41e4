//! Variants against the reference, and handlers with malformed packets.

use super::case::{Case, Handler};
use super::interp::Interp;
use super::measure::{Failure, round};
use super::native::Twins;
use super::reference::Expected;
use super::runner::Runner;
use super::work::Work;
use fastrand::Rng;
use spin_handlers::{build, source};
use std::path::Path;
use std::process::Command;

fn interp(handler: Handler, work: &Work) -> Interp {
    Interp::new(&build(&source(handler.symbol())), work).unwrap()
}

fn all_rounds(size: usize, mut runner: impl FnMut(&Work) -> Box<dyn Runner>) {
    for handler in Handler::ALL {
        let case = Case { handler, size };
        let work = Work::new(case);
        let figure = round(&work, &mut *runner(&work), &mut Expected::of(&work));
        assert!(figure.as_ref().is_ok_and(|nanoseconds| *nanoseconds > 0.0), "{case}: {figure:?}");
    }
}

#[test]
fn interpreted_handlers_do_what_the_reference_says() {
    all_rounds(100, |work| Box::new(interp(work.case.handler, work)));
}

#[test]
fn native_twins_do_what_the_reference_says() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("native/build");
    assert!(Command::new(script).arg(folder.path()).status().unwrap().success());
    for name in ["native-scalar", "native-vector", "native-atomics"] {
        let twins = Twins::load(&folder.path().join(name).with_extension("so")).unwrap();
        all_rounds(301, |work| Box::new(twins.runner(work).unwrap()));
    }
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
        let image = build(&source(handler.symbol()));
        let mut work = Work::new(Case { handler, size: 128 });
        for size in 0..128 {
            work.case.size = size;
            let mut runner = Interp::new(&image, &work).unwrap();
            runner.memory().reset(&work);
            runner.place(&work, 0..4);
            runner.run(0..4).unwrap_or_else(|ended| panic!("{handler:?} on {size} bytes: {ended}"));
            assert_eq!(runner.log().commands(), 0, "{handler:?} answers {size} bytes of 128");
        }
    }
}
