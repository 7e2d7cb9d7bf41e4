//! Effects of a handler that was ended: its commands, its message, and one trap.

use spin_abi::control::{FaultInfo, Install};
use spin_abi::counters::Counter;
use spin_abi::fault::Cause;

use super::common::{Kind, ROOT, udp};
use super::{FPSPIN, Target, build, everywhere, host_word};

/// Receives a datagram with this payload. Returns the number of sent frames, the faults, and the first word of host
/// memory.
fn one(target: Target, compiler: &str, kind: Kind, name: &str, payload: &[u8]) -> (usize, Vec<FaultInfo>, u32) {
    let mut lab = target.lab(kind);
    let image = build(target, compiler, name, &[]);
    // Payload `l` makes the handler loop until its watchdog ends it.
    let install = Install { watchdog_us: (payload == b"l").then_some(50_000), ..target.install() };
    let (id, host) = lab.try_install(&image, install, ROOT).expect("installs");
    let replies = lab.exchange(&[udp(9999, payload)]);
    assert_eq!(lab.count(id, Counter::Messages), 1, "the message is complete");
    assert_eq!(lab.count(id, Counter::Released), 1, "the packet's buffer is given back");
    (replies.len(), lab.faults(id), host_word(&host.expect("host memory"), 0))
}

#[test]
fn a_command_is_delivered_and_the_message_completed_whatever_the_handler_does_then() {
    everywhere(|target, compiler, kind| {
        let run = |payload: &[u8]| {
            let (sent, faults, completions) = one(target, compiler, kind, "fault.c", payload);
            assert_eq!((sent, completions), (1, 1), "{payload:?}: sent, and the completion handler has run");
            assert!(faults.iter().all(|fault| fault.handler == "payload"));
            faults.iter().map(|fault| (fault.fault.cause, fault.fault.address)).collect::<Vec<_>>()
        };
        assert_eq!(run(b"nothing"), []);
        assert_eq!(run(b"f"), [(Cause::StoreAccess, 0)]);
        assert_eq!(run(b"i"), [(Cause::IllegalInstruction, 0)]);
        assert_eq!(run(b"r"), [(Cause::Reported, 5)]);
        let absent = (target == FPSPIN).then_some((Cause::DeviceAccess, 0x10a0_1820));
        assert_eq!(run(b"d"), Vec::from_iter(absent));
        // The shadow interpreter is left out: the clock does not end interpreter and translated code at the same
        // instruction.
        if kind != Kind::Check {
            assert_eq!(run(b"l"), [(Cause::Watchdog, 0)]);
        }
    });
}

/// A handler without a return falls through to the code that follows, which is no error by itself. Only a trap is
/// reported.
#[test]
fn falling_off_the_end_is_reported_when_it_traps() {
    everywhere(|target, compiler, kind| {
        let (sent, faults, word) = one(target, compiler, kind, "falls.c", b"x");
        assert_eq!((sent, word), (0, 0x0f01_1035), "the function behind it has run");
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!((&*fault.handler, fault.fault.cause), ("completion", Cause::IllegalInstruction));
    });
}
