//! Bounds of handlers: checks, isolation, placement and limits, on the engine in memory.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{Kind, Lab, ROOT, image, rule, udp};
use spin_abi::control::{Checks, Install, Isolation, Placement};
use spin_abi::counters::Counter;
use spin_abi::fault::Cause;

const ENGINES: [Kind; 3] = [Kind::Interp, Kind::Jit, Kind::Check];

#[test]
fn the_clock_ends_a_loop_and_what_lies_between_is_answered() {
    for kind in ENGINES {
        let mut lab = Lab::new(kind);
        let (looping, _) =
            lab.install_with("endless_loop", Install { watchdog_us: Some(3_000), ..rule("udp dport 1") });
        lab.install("udp_pingpong", "udp dport 9999");
        let frames = [udp(1, b""), udp(9999, b"a"), udp(1, b""), udp(9999, b"b"), udp(1, b""), udp(9999, b"c")];
        assert_eq!(lab.exchange(&frames).len(), 3, "{kind}");
        let faults = lab.faults(looping);
        assert!(faults.iter().all(|fault| fault.fault.cause == Cause::Watchdog), "{kind}: {faults:?}");
        assert_eq!(faults.len(), 3, "{kind}");
    }
}

#[test]
fn limits_are_the_daemons_at_most() {
    let mut lab = Lab::new(Kind::Interp);
    lab.limits.watchdog_us = 1000;
    lab.limits.instruction_limit = Some(5);
    let mut refused = |install| match lab.try_install(&image("empty"), install, ROOT) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("accepted"),
    };
    let wish = |watchdog_us| Install { watchdog_us: Some(watchdog_us), ..rule("any") };
    assert_eq!(
        refused(wish(1001)),
        "time limit in microseconds 1001: between 1 and 1000 (limits.watchdog_us of spind's configuration)"
    );
    assert_eq!(
        refused(wish(0)),
        "time limit in microseconds 0: between 1 and 1000 (limits.watchdog_us of spind's configuration)"
    );
    let wish = Install { instruction_limit: Some(6), ..rule("any") };
    assert_eq!(
        refused(wish),
        "instruction limit 6: between 1 and 5 (limits.instruction_limit of spind's configuration)"
    );
    let id = lab.try_install(&image("empty"), rule("any"), ROOT).unwrap().0;
    let run = lab.info(id).run;
    assert_eq!((run.watchdog_us, run.instruction_limit), (1000, Some(5)));
}

#[test]
fn commands_without_end_are_refused_at_last_and_the_clock_ends_the_task() {
    for kind in [Kind::Interp, Kind::Jit] {
        let mut lab = Lab::new(kind);
        let id = lab.install("command_loop", "udp dport 1");
        let sent = lab.exchange(&[udp(1, b"go")]).len();
        assert!((1..1000).contains(&sent), "{kind}: {sent} frames");
        assert_eq!(lab.faults(id)[0].fault.cause, Cause::Watchdog, "{kind}");
        assert!(lab.total(Counter::CommandErrors) >= lab.total(Counter::CommandsOverBudget), "{kind}");
    }
}

#[test]
fn one_byte_too_far_is_a_fault_to_the_byte_only() {
    for kind in ENGINES {
        for choice in [b"e", b"E"] {
            let mut lab = Lab::new(kind);
            let exact = Install { checks: Checks::Exact, ..rule("udp dport 1") };
            let (exact, _) = lab.install_with("store_outside", exact);
            let page = lab.install("store_outside", "udp dport 2");
            assert_eq!(lab.exchange(&[udp(1, choice), udp(2, choice)]).len(), 1, "{kind}");
            assert_eq!(lab.faults(exact)[0].fault.cause, Cause::StoreAccess, "{kind}");
            assert!(lab.faults(page).is_empty(), "{kind}: {:?}", lab.faults(page));
        }
    }
}

#[test]
fn at_home_another_clusters_l1_is_out_of_reach_and_said_to_be() {
    for kind in ENGINES {
        let mut lab = Lab::new(kind);
        let scratchpad = 4096;
        let home = Install { scratchpad, placement: Placement::Home, ..rule("udp dport 1") };
        let (home, _) = lab.install_with("remote_l1", home);
        let (any, _) = lab.install_with("remote_l1", Install { scratchpad, ..rule("udp dport 2") });
        let mut sums = |port| -> Vec<u8> {
            let replies = lab.exchange(&[udp(port, b"0x"), udp(port, b"1x"), udp(port, b"1x"), udp(port, b"0x")]);
            replies.iter().map(|reply| reply[43]).collect()
        };
        assert_eq!(sums(1), [1, 2], "{kind}");
        assert_eq!(sums(2), [1, 1, 2, 2], "{kind}");
        let faults = lab.faults(home);
        assert_eq!(faults.len(), 2, "{kind}");
        assert_eq!(faults[0].fault.cause, Cause::StoreAccess, "{kind}");
        let note = faults[0].note.as_deref().unwrap_or_default();
        assert!(note.starts_with("remote L1: cluster "), "{kind}: {note:?}");
        assert!(lab.faults(any).is_empty(), "{kind}");
    }
}

/// The marks that a message finds in stack, L1 and L2, and bytes of a longer packet behind its own.
fn found(kind: Kind, isolation: Isolation) -> [u8; 4] {
    let mut lab = Lab::new(kind);
    let id = lab.install_with("snoop", Install { isolation, ..rule("udp dport 1") }).0;
    let long = udp(1, &[0xab; 1400]);
    // All packets are of one flow and so share a home. Each is a message of its own.
    let replies = lab.exchange(&[udp(1, b"P"), long, udp(1, b"Snnnn")]);
    assert!(lab.faults(id).is_empty(), "{:?}", lab.faults(id));
    *replies[0].last_chunk().expect("four bytes")
}

#[test]
fn messages_find_nothing_of_others_where_they_are_to_be_isolated() {
    for kind in ENGINES {
        assert_eq!(found(kind, Isolation::Message), [0; 4], "{kind}");
        let [stack, l1, l2, longer] = found(kind, Isolation::Context);
        assert!(stack > 0 && l1 > 0 && l2 > 0, "{kind}: the handler finds what is there: {stack} {l1} {l2}");
        assert_eq!(longer, 0, "{kind}: a longer packet is not left in sight");
    }
}

#[test]
fn task_registers_are_not_sent() {
    for kind in ENGINES {
        let mut lab = Lab::new(kind);
        let id = lab.install("task_sender", "udp dport 1");
        let replies = lab.exchange(&[udp(1, &[0; 18])]);
        assert_eq!(replies.len(), 2, "{kind}: the stack below them, and the reply");
        // 3: bad NIC address.
        assert_eq!(replies[1].last_chunk(), Some(&[3, 3, 3]), "{kind}: {:?}", lab.faults(id));
    }
}

#[test]
fn an_image_that_hides_a_device_is_translated_anew() {
    let mut lab = Lab::new(Kind::Jit);
    let id = lab.install("hidden_device", "udp dport 1");
    let hidden = udp(1, &[0x1a, b'\n']);
    assert_eq!(lab.info(id).run.engine, Kind::Jit);
    assert_eq!(lab.exchange(std::slice::from_ref(&hidden)).len(), 0);
    assert_eq!(lab.faults(id)[0].fault.cause, Cause::DeviceAccess);
    let deadline = Instant::now() + Duration::from_secs(60);
    // Interpreted at first, and translated in the end. Both give the same result.
    loop {
        assert_eq!(lab.exchange(std::slice::from_ref(&hidden)).len(), 1);
        if lab.info(id).run.engine == Kind::Jit {
            break;
        }
        assert!(Instant::now() < deadline, "no translation came");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(lab.exchange(std::slice::from_ref(&hidden)).len(), 1);
    assert_eq!(lab.faults(id).len(), 1);
    // A context that is installed while the image is in use does not fault first.
    let again = lab.install("hidden_device", "udp dport 2");
    assert_eq!(lab.exchange(&[udp(2, &[0x1a, b'\n'])]).len(), 1);
    assert!(lab.faults(again).is_empty());
}
