//! Attempts by the interpreter and by every kind of translation, and what came of them.

use std::fmt;

use hpu_vm::jit::Executor;
use hpu_vm::{Checks, Exit};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::PAGE;

use crate::attack::{Attack, Ends, FILL, LIMIT};
use crate::canary::Canaries;
use crate::device::{Access, Recorder};
use crate::guest::{CODE, Guest, OWN, Way};

/// A row of the table.
pub struct Tried {
    name: String,
    way: Way,
    exit: Exit,
    /// What is wrong with it.
    pub complaint: Option<String>,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, way, exit, complaint } = self;
        let exit = match exit {
            Exit::Fault(fault) => format!("{fault}"),
            other => format!("{other:?}"),
        };
        let wrong = if complaint.is_some() { "  WRONG" } else { "" };
        write!(f, "{name:<50} {:<20} {exit}{wrong}", way.name())
    }
}

/// What can be seen of a run.
#[derive(PartialEq, Eq)]
struct Outcome {
    exit: Exit,
    memory: Vec<u8>,
    log: Vec<Access>,
}

/// Makes every attempt in every way.
pub fn all(attacks: &[Attack]) -> Vec<Tried> {
    let executor = Executor::new().expect("a timer");
    let mut canaries = Canaries::new();
    let mut rows = Vec::new();
    for attack in attacks {
        for checks in [Checks::Exact, Checks::Page] {
            let way = Way::interpreter(checks);
            let expected = attempt(attack, way, &executor, &mut canaries);
            rows.push(row(attack, way, &expected, None, &canaries));
            // Which instruction the clock would end it at is for the clock to say.
            let endless = matches!(expected.exit, Exit::Fault(fault) if fault.cause.is_limit());
            for way in Way::translated(checks).filter(|way| way.counts() || !endless) {
                let outcome = attempt(attack, way, &executor, &mut canaries);
                rows.push(row(attack, way, &outcome, Some(&expected), &canaries));
            }
        }
    }
    rows
}

fn attempt(attack: &Attack, way: Way, executor: &Executor, canaries: &mut Canaries) -> Outcome {
    let code = attack.program.code();
    let mut guest = Guest::new(OWN, &code, FILL);
    canaries.surround(guest.slot.space());
    let mut recorder = Recorder::default();
    let exit = way.run(executor, &mut guest, OWN, (&code, &attack.taken), LIMIT, &mut recorder);
    let bytes = attack.program.bytes();
    assert_eq!(guest.code(CODE, bytes.len()), bytes, "{}: code was written", attack.name);
    Outcome { exit, memory: guest.memory(), log: recorder.log }
}

fn row(attack: &Attack, way: Way, outcome: &Outcome, expected: Option<&Outcome>, canaries: &Canaries) -> Tried {
    let Attack { name, ends, .. } = attack;
    let mut wrong = Vec::new();
    if !ends.allows(way, outcome.exit) {
        wrong.push(format!("ended with {:x?}, not {ends:x?}", outcome.exit));
    }
    if let Some(expected) = expected {
        wrong.extend(difference(*ends, way, expected, outcome));
    }
    wrong.extend(canaries.harmed());
    let complaint = (!wrong.is_empty()).then(|| format!("{name}, {}: {}", way.name(), wrong.join("; ")));
    Tried { name: name.clone(), way, exit: outcome.exit, complaint }
}

/// What a translation did that the interpreter did not.
fn difference(ends: Ends, way: Way, expected: &Outcome, outcome: &Outcome) -> Option<String> {
    let missed = |exit: Exit| matches!(exit, Exit::Fault(fault) if fault.cause == Cause::DeviceAccess);
    if matches!(ends, Ends::DeviceOr(_)) && missed(outcome.exit) {
        return None;
    }
    if !same(way.checks, expected.exit, outcome.exit) {
        return Some(format!("the interpreter ends with {:x?}, not {:x?}", expected.exit, outcome.exit));
    }
    if expected.log != outcome.log {
        return Some(format!("the device saw {:x?}, not {:x?}", outcome.log, expected.log));
    }
    let at = expected.memory.iter().zip(&outcome.memory).position(|(a, b)| a != b)?;
    Some(format!("byte {at:#x} of its memory is {:#x}, not {:#x}", outcome.memory[at], expected.memory[at]))
}

/// Equal, but that with page checks the fault of an access over the end of a page may name the next page.
fn same(checks: Checks, expected: Exit, actual: Exit) -> bool {
    let (Exit::Fault(fault), Exit::Fault(other)) = (expected, actual) else { return expected == actual };
    let next_page = (fault.address | (PAGE - 1)).wrapping_add(1);
    let crosses = checks == Checks::Page && next_page.wrapping_sub(fault.address) < 4;
    fault == other || (crosses && other == Fault { address: next_page, ..fault })
}
