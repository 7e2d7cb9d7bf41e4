//! Calls every function of the headers.

use std::io::Write;
use std::sync::{Arc, Mutex};

use spin_abi::counters::Counter;
use tracing_subscriber::fmt::MakeWriter;

use super::common::{ROOT, payload, udp};
use super::{FPSPIN, PSPIN, Target, build, everywhere, host_word};

/// Minimum number of checks that `api.c` makes.
const CHECKS: u32 = 70;

/// Captured log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// The numbers in the log come from one source, whichever compiler built it.
pub fn log_of(test: impl FnOnce()) -> String {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
    tracing::subscriber::with_default(subscriber, test);
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn everything_does_what_it_should() {
    everywhere(|target, compiler, kind| {
        let image = build(target, compiler, "api.c", &[]);
        let what = format!("{}, {compiler}, {kind}", target.abi);
        let mut printed = String::new();
        let logged = log_of(|| {
            let mut lab = target.lab(kind);
            let (id, host) = lab.try_install(&image, target.install(), ROOT).expect("installs");
            let host = host.expect("host memory");
            let replies = lab.exchange(&[udp(9999, b"abcdefgh")]);
            assert_eq!(lab.faults(id), [], "{what}");
            let failures = host_word(&host, 4);
            let lines: Vec<u32> = (0..failures.min(30)).map(|n| host_word(&host, 8 + 4 * u64::from(n))).collect();
            assert!(lines.is_empty(), "{what}: lines {lines:?} of api.c do not hold");
            assert!(host_word(&host, 0) >= CHECKS, "{what}: {} checks", host_word(&host, 0));
            assert_eq!(
                [Counter::HeaderRuns, Counter::PayloadRuns, Counter::CompletionRuns].map(|run| lab.count(id, run)),
                [1, 1, 1]
            );
            assert_eq!(lab.count(id, Counter::CommandErrors), 0, "{what}");
            assert_eq!(
                [4112, 4116, 4120, 4124].map(|at| host_word(&host, at)),
                [0x5566_7788, 0x1122_3344, 0xddee_ff00, 0x99aa_bbcc]
            );
            let [put, reply] = &replies[..] else { panic!("{what}: {} frames", replies.len()) };
            assert_eq!(
                (put[5], &put[12..20]),
                (3, &[0x88, 0xb5, 0, 1, 0, 0, 0, 1][..]),
                "to node 3, the last, on queue pair 1"
            );
            assert_eq!(put[32..36], 0x5566_7788_u32.to_le_bytes());
            assert_eq!(put.len(), 48);
            assert_eq!(payload(reply), b"abcdefgh");
            assert_eq!(
                (&reply[..6], &reply[26..30], &reply[34..36]),
                (&[2, 0, 0, 0, 0, 1][..], &[10, 0, 0, 2][..], &9999u16.to_be_bytes()[..])
            );
        });
        printed.push_str(&logged);
        for line in ["] HPU 0: one line", "] another", "] !"] {
            assert!(printed.contains(line), "{what}: {line:?} in\n{printed}");
        }
        assert!(
            printed.contains("[0.0] another")
                || printed.contains("[1.0] another")
                || printed.contains("[2.0] another")
                || printed.contains("[3.0] another")
        );
    });
}

/// Handlers of PsPIN and FPsPIN see the same fields. Their answers are wire frames: link-layer addresses exchanged,
/// checksums correct.
#[test]
fn answers_are_the_same_on_the_wire() {
    let answer = |target: Target| {
        let image = build(target, "clang", "api.c", &[]);
        let mut lab = target.lab(super::Kind::Check);
        lab.try_install(&image, target.install(), ROOT).expect("installs");
        lab.exchange(&[udp(9999, b"abcdefgh")])
    };
    assert_eq!(answer(PSPIN), answer(FPSPIN));
}
