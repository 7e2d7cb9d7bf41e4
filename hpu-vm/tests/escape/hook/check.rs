//! What a program did, compared with what it may do and with what the interpreter does.

use hpu_vm::bpf::layout::{self, Counter, Counters, FAULT_ENTRY, FAULT_RING, L1_PACKET, Outcome, Record};
use hpu_vm::bpf::{L1Packet, Program};
use hpu_vm::{Checks, Exit};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::{STACK_WINDOW, TASK_BLOCK};

use super::Form;
use super::expected::Expected;
use super::memory::{Memory, counters_end};
use super::oracle::{Interpreted, interpret};
use crate::attack::Attack;
use crate::guest::{PACKET, Way};

/// Results of an XDP program.
const DROP: u32 = 1;
const PASS: u32 = 2;
const TX: u32 = 3;

/// A run of a program.
pub struct Run<'r> {
    pub attack: &'r Attack,
    pub program: &'r Program,
    pub form: Form,
    pub before: Memory,
    pub after: Memory,
    pub action: u32,
}

/// The outcome, and what is wrong with it.
pub fn check(run: &Run<'_>, expected: Expected) -> (String, Vec<String>) {
    let Some((processor, record)) = record(&run.after) else {
        return ("none".to_owned(), vec!["there is not one record".to_owned()]);
    };
    let mut memory = run.before.clone();
    let interpreted = interpret(run.attack, &mut memory, processor);
    let mut complaints: Vec<String> = trespass(run, processor).into_iter().collect();
    complaints.extend(miscounted(run, processor, &record));
    if run.form.checks == Checks::Exact && !run.attack.ends.allows(Way::interpreter(Checks::Exact), interpreted.exit) {
        complaints.push(format!("the interpreter ends with {:x?}, not {:x?}", interpreted.exit, run.attack.ends));
    }
    let (outcome, differs) = match record.outcome {
        Outcome::Left(reason) => {
            let (name, actual) = match record.address {
                0 => ("left", Expected::Left(reason)),
                _ => ("lost", Expected::Lost(reason)),
            };
            let differs = (actual != expected).then(|| format!("expected {expected:?}, it has {name}: {reason:?}"));
            (format!("{name}: {reason:?}"), differs.or_else(|| seen(run).filter(|_| record.address == 0)))
        }
        _ => {
            let (outcome, differs) = compare(run, &record, &interpreted);
            let other = || format!("expected {expected:?}, not this end: {outcome}");
            let differs = differs.or_else(|| (expected != Expected::Interpreted).then(other));
            // How often a loop is run depends on the kind of limit.
            let is_limit = is_limit(interpreted.exit);
            (outcome, differs.or_else(|| memory_differs(run, processor, &mut memory).filter(|_| !is_limit)))
        }
    };
    complaints.extend(differs);
    (outcome, complaints)
}

/// The only record, and the processor whose it is.
pub fn record(memory: &Memory) -> Option<(u32, Record)> {
    let processors = 0..u32::try_from(memory.slots.len() / layout::SLOT as usize).ok()?;
    let mut records = processors.filter_map(|number| Some((number, Record::read(&memory.slots, number)?)));
    records.next().filter(|_| records.next().is_none())
}

/// Bytes that changed, and are not the attacker's.
fn trespass(run: &Run<'_>, processor: u32) -> Option<String> {
    trespass_but(run, processor, &run.before)
}

/// As [`trespass`], but that frame and maps may also be as in `allowed`.
pub fn trespass_but(run: &Run<'_>, processor: u32, allowed: &Memory) -> Option<String> {
    let (mut before, mut after) = (allowed.clone(), run.after.clone());
    // What the attacker may write is made equal.
    let uses_copy = run.program.l1_packet() == Some(L1Packet::Copied);
    let (slot, written) = (after.slot(processor), before.slot(processor));
    let own = [
        0..(STACK_WINDOW - TASK_BLOCK) as usize,
        L1_PACKET as usize..(L1_PACKET + if uses_copy { PACKET } else { 0 }) as usize,
        layout::RECORD as usize..(layout::RECORD + Record::SIZE) as usize,
        layout::COUNTERS as usize..counters_end(),
        FAULT_RING as usize..(FAULT_RING + FAULT_ENTRY - 4) as usize,
    ];
    for bytes in own {
        slot[bytes.clone()].copy_from_slice(&written[bytes]);
    }
    let length = (after.frame.len() != before.frame.len()).then(|| "the frame has another length".to_owned());
    after.frame.clone_from(&before.frame);
    for (from, to) in before.parts(processor).into_iter().zip(after.parts(processor)).skip(3) {
        if from.writable {
            to.bytes.copy_from_slice(from.bytes);
        }
    }
    let changed = |name: &str, before: &[u8], after: &[u8]| {
        if before == after {
            return None;
        }
        let at = before.iter().zip(after).position(|(a, b)| a != b)?;
        Some(format!("byte {at:#x} of {name} changed, which is not the attacker's"))
    };
    let mut maps = before.maps().zip(after.maps());
    length
        .or_else(|| changed("the slots", &before.slots, &after.slots))
        .or_else(|| changed("the configuration", &before.configuration, &after.configuration))
        .or_else(|| maps.find_map(|(before, after)| changed("a map", before, after)))
}

/// Counters that do not say what the record says.
pub fn miscounted(run: &Run<'_>, processor: u32, record: &Record) -> Option<String> {
    let mut after = run.after.clone();
    let counters = Counters::sum(after.slot(processor));
    let left = matches!(record.outcome, Outcome::Left(_));
    let lost = left && record.address != 0;
    let sent = !left && record.sent != 0;
    let one = |condition: bool| u64::from(condition);
    let expected = [
        (Counter::Runs, one(!left)),
        (Counter::Faults, one(matches!(record.outcome, Outcome::Faulted(_)))),
        (Counter::Left, one(left && !lost)),
        (Counter::Lost, one(lost)),
        (Counter::Sent, one(sent)),
    ];
    let wrong = expected.into_iter().find(|&(counter, count)| counters.get(counter) != count);
    let action = if sent {
        TX
    } else if left && !lost {
        PASS
    } else {
        DROP
    };
    match wrong {
        Some((counter, count)) => Some(format!("{counter:?} is {}, not {count}", counters.get(counter))),
        None if run.action != action => Some(format!("the action is {}, not {action}", run.action)),
        None => None,
    }
}

/// The outcome, and how it differs from the interpreter's.
fn compare(run: &Run<'_>, record: &Record, expected: &Interpreted) -> (String, Option<String>) {
    let exit = match record.outcome {
        Outcome::Faulted(code) => {
            let cause = Cause::ALL.into_iter().find(|cause| cause.code() == code).expect("a cause");
            Exit::Fault(Fault { cause, pc: record.pc, address: record.address })
        }
        Outcome::Finished => Exit::Finished,
        _ => Exit::Returned,
    };
    let outcome = match exit {
        Exit::Fault(fault) => fault.to_string(),
        other => format!("{other:?}"),
    };
    if is_limit(exit) && is_limit(expected.exit) {
        let is_inside = run.attack.program.code().contains(record.pc) && record.address == 0;
        return (outcome, (!is_inside).then(|| "the fault of the limit names no instruction".to_owned()));
    }
    let same = exit == expected.exit && (exit != Exit::Returned || record.result == expected.result);
    let differs =
        || format!("ends with {exit:x?}, the interpreter with {:x?}, a0 {:#x}", expected.exit, expected.result);
    (outcome, (!same).then(differs))
}

fn is_limit(exit: Exit) -> bool {
    matches!(exit, Exit::Fault(fault) if fault.cause.is_limit())
}

/// What others see of a handler that is said to have written nothing.
fn seen(run: &Run<'_>) -> Option<String> {
    let same = run.before.frame == run.after.frame && run.before.maps().eq(run.after.maps());
    (!same).then(|| "it has written what others see, which the record denies".to_owned())
}

/// A difference of the memory to the interpreter's.
fn memory_differs(run: &Run<'_>, processor: u32, expected: &mut Memory) -> Option<String> {
    let mut after = run.after.clone();
    if run.program.l1_packet() != Some(L1Packet::Copied) {
        // The interpreter's window must be as it was: the packet.
        after.parts(processor)[1].bytes.copy_from_slice(&run.before.frame);
    }
    let mut parts = expected.parts(processor).into_iter().zip(after.parts(processor));
    parts.find_map(|(expected, actual)| {
        if expected.bytes == actual.bytes {
            return None;
        }
        let (base, kind) = (expected.base, expected.kind);
        let mut bytes = (base..).zip(expected.bytes.iter().zip(actual.bytes.iter()));
        let (address, (expected, actual)) = bytes.find(|(_, (expected, actual))| expected != actual)?;
        Some(format!("byte {address:#x} of {kind:?} is {actual:#x}, not {expected:#x}"))
    })
}
