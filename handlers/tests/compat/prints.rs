//! `SPIN_PRINTF`, `DEBUG_PRINT` and `ASSERT`: lines of the log, and the outcome of an assertion (`prints.c`).

use spin_abi::fault::Cause;

use super::api::log_of;
use super::common::{Kind, ROOT, udp};
use super::{COMPILERS, FPSPIN, PSPIN, Target, build, host_word};

/// Line of the assertion.
const LINE: u32 = 104;

/// What a handler has done.
struct Outcome {
    /// Printed lines, without the HPU's tag.
    lines: Vec<String>,
    /// Cause and address of its fault, if there is one.
    fault: Option<(Cause, u32)>,
    /// The word that it writes at its end.
    word: u32,
}

fn run(target: Target, compiler: &str, defines: &[&str], payload: &[u8]) -> Outcome {
    let image = build(target, compiler, "prints.c", defines);
    let (mut fault, mut word) = (None, 0);
    let log = log_of(|| {
        let mut lab = target.lab(Kind::Jit);
        let (id, host) = lab.try_install(&image, target.install(), ROOT).expect("installs");
        lab.exchange(&[udp(9999, payload)]);
        let faults = lab.faults(id);
        assert!(faults.len() < 2, "{faults:?}");
        fault = faults.first().map(|fault| (fault.fault.cause, fault.fault.address));
        word = host_word(&host.expect("host memory"), 0);
    });
    // A printed line follows the HPU's tag, `[cluster.HPU] `.
    let printed = |line: &str| {
        let (_, text) = line.rsplit_once("] ").filter(|(before, _)| before.contains('['))?;
        Some(text.trim_end().to_owned())
    };
    Outcome { lines: log.lines().filter_map(printed).collect(), fault, word }
}

#[test]
fn what_is_printed_and_asserted_depends_on_what_is_defined() {
    let always = ["prints.c:prints_ph:100: 3 and four", "prints.c:prints_ph:101: without arguments"];
    let logged = ["with LOG: 5", "nothing else"];
    let said = format!("prints.c:prints_ph:{LINE}: ++reached && *payload == 103 does not hold");
    for target in [PSPIN, FPSPIN] {
        for compiler in COMPILERS {
            let what = format!("{}, {compiler}", target.abi);
            // Without CHECK_ASSERTS, the condition is not evaluated.
            let outcome = run(target, compiler, &[], b"bad");
            assert_eq!(
                (outcome.lines, outcome.fault, outcome.word),
                (always.map(Into::into).to_vec(), None, 1),
                "{what}"
            );
            let defines = ["-DCHECK_ASSERTS", "-DLOG"];
            let lines: Vec<String> = [always, logged].concat().into_iter().map(Into::into).collect();
            let outcome = run(target, compiler, &defines, b"good");
            assert_eq!((&outcome.lines, outcome.fault, outcome.word), (&lines, None, 2), "{what}");
            let outcome = run(target, compiler, &defines, b"bad");
            let lines = [lines, vec![said.clone()]].concat();
            assert_eq!((outcome.lines, outcome.word), (lines, 0), "{what}: it ends there");
            assert_eq!(outcome.fault, Some((Cause::Reported, LINE)), "{what}");
        }
    }
}
