//! A handler in the kernel and in the interpreter, on one frame after the other.

use hpu_vm::Exit;
use hpu_vm::bpf::L1Packet;
use hpu_vm::bpf::layout::{Counter, Counters, L1_PACKET, Outcome, Reason, Record};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::STACK_WINDOW;
use spin_abi::verdict::{Fate, Verdict};

use crate::loaded::{Loaded, Observed};
use crate::reference::{End, Expected, Reference};

/// Results of an XDP program.
const DROP: u32 = 1;
const PASS: u32 = 2;
const TX: u32 = 3;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fared {
    Sent,
    Dropped,
    Passed,
    Discarded,
    Faulted,
    /// User space begins again with it.
    Left,
    /// User space cannot begin again, since others have seen an effect.
    Lost,
}

/// Both, with the same memory.
pub struct Pair<'l, 'h> {
    loaded: &'l Loaded<'h>,
    reference: Reference<'h>,
}

impl<'l, 'h> Pair<'l, 'h> {
    /// Both with initial memory.
    pub fn new(loaded: &'l Loaded<'h>) -> Self {
        loaded.reset();
        Self { loaded, reference: Reference::new(loaded.handler) }
    }

    /// Gives a frame to both.
    ///
    /// # Errors
    /// What differs.
    pub fn step(&mut self, frame: &[u8]) -> Result<Fared, String> {
        let before = self.reference.shared.clone();
        let expected = self.reference.run(frame);
        let observed = self.loaded.run(frame);
        let record = Record::read(&observed.slot, 0).ok_or("there is no record")?;
        let begins_again = matches!(record.outcome, Outcome::Left(_)) && record.address == 0;
        if begins_again && (before != self.reference.shared || expected.sent.is_some()) {
            return Err("user space begins again, although others have seen an effect".to_owned());
        }
        let (action, fared) = self.expect(&expected, &record, frame.len());
        check_record(&expected, &record, self.loaded.handler.decides)?;
        same("the action", &action, &observed.action)?;
        self.check_memory(&expected, &observed, frame, action)?;
        let counters = Counters::sum(&observed.slot);
        for counter in COUNTERS {
            let (expected, actual) = (self.reference.counters[counter as usize], counters.get(counter));
            same(&format!("counter {counter:?}"), &expected, &actual)?;
        }
        Ok(fared)
    }

    /// The action for what the interpreter came to. Counts it.
    fn expect(&mut self, expected: &Expected, record: &Record, len: usize) -> (u32, Fared) {
        let reference = &mut self.reference;
        let bytes = u64::try_from(len).unwrap_or(u64::MAX);
        reference.count(Counter::Commands, expected.commands.into());
        let returned = expected.end == End::Exit(Exit::Returned);
        let verdict = (returned && self.loaded.handler.decides).then(|| Verdict::from_code(expected.result));
        let fate = verdict.flatten().map(Verdict::fate);
        // A frame is sent or passed, not both.
        let both = fate == Some(Fate::Pass) && expected.sent.is_some();
        if both || matches!(expected.end, End::Left(_)) {
            let lost = record.address != 0;
            reference.count(if lost { Counter::Lost } else { Counter::Left }, 1);
            return if lost { (DROP, Fared::Lost) } else { (PASS, Fared::Left) };
        }
        reference.count(Counter::Runs, 1);
        let faulted = matches!(expected.end, End::Exit(Exit::Fault(_)));
        reference.count(Counter::Faults, u64::from(faulted));
        let fared = match (verdict, fate) {
            (Some(None), _) => {
                reference.count(Counter::BadVerdicts, 1);
                Fared::Dropped
            }
            (_, Some(Fate::Pass)) => {
                reference.count(Counter::Passed, 1);
                return (PASS, Fared::Passed);
            }
            (_, Some(Fate::Discard)) => {
                reference.count(Counter::Discarded, 1);
                reference.count(Counter::DiscardedBytes, bytes);
                Fared::Discarded
            }
            _ if faulted => Fared::Faulted,
            _ => Fared::Dropped,
        };
        let Some(sent) = expected.sent else { return (DROP, fared) };
        reference.count(Counter::Sent, 1);
        reference.count(Counter::SentBytes, sent.into());
        (TX, if fared == Fared::Dropped { Fared::Sent } else { fared })
    }

    fn check_memory(&self, expected: &Expected, observed: &Observed, frame: &[u8], action: u32) -> Result<(), String> {
        let [l1, l2] = &expected.packets;
        let sent = expected.sent.filter(|_| action == TX);
        let len = sent.map_or(l2.len(), |sent| sent as usize);
        same_bytes("the frame", &l2[..len], &observed.frame)?;
        if action == PASS && matches!(expected.end, End::Left(_)) {
            same_bytes("the frame that user space gets", frame, &observed.frame)?;
        }
        let stack = ..STACK_WINDOW as usize;
        same_bytes("the stack", &self.reference.slot[stack], &observed.slot[stack])?;
        if self.loaded.l1 == Some(L1Packet::Copied) {
            let start = L1_PACKET as usize;
            same_bytes("the packet in L1", l1, &observed.slot[start..start + l1.len()])?;
        } else {
            same_bytes("the packet in L1", frame, l1)?;
        }
        Ok(())
    }

    /// Whether the handler has written memory that all processors share.
    pub fn has_written(&self) -> bool {
        let mut parts = self.reference.shared.iter().zip(&self.loaded.handler.shared);
        parts.any(|(now, before)| now.bytes != before.bytes)
    }

    /// Compares the memory that all processors share.
    ///
    /// # Errors
    /// What differs.
    pub fn compare_shared(&self) -> Result<(), String> {
        let mut parts = self.reference.shared.iter().zip(self.loaded.shared());
        parts.try_for_each(|(part, actual)| {
            same_bytes(&format!("{:?} at {:#x}", part.kind, part.base), &part.bytes, &actual)
        })
    }
}

/// All counters but the one of loops, which the interpreter does not count.
const COUNTERS: [Counter; 11] = [
    Counter::Runs,
    Counter::Sent,
    Counter::SentBytes,
    Counter::Faults,
    Counter::Left,
    Counter::Lost,
    Counter::Passed,
    Counter::Discarded,
    Counter::DiscardedBytes,
    Counter::BadVerdicts,
    Counter::Commands,
];

/// Compares the record with what the interpreter came to.
fn check_record(expected: &Expected, record: &Record, decides: bool) -> Result<(), String> {
    let passes = decides && Verdict::from_code(expected.result).map(Verdict::fate) == Some(Fate::Pass);
    let outcome = match record.outcome {
        Outcome::Returned => End::Exit(Exit::Returned),
        Outcome::Finished => End::Exit(Exit::Finished),
        Outcome::Left(Reason::Command) if passes && expected.sent.is_some() => expected.end,
        Outcome::Left(reason) => End::Left(reason),
        Outcome::Faulted(code) => {
            let cause = Cause::ALL.into_iter().find(|cause| cause.code() == code).ok_or("the cause is none")?;
            End::Exit(Exit::Fault(Fault { cause, pc: record.pc, address: record.address }))
        }
    };
    same("the end", &expected.end, &outcome)?;
    same("the length that is sent", &expected.sent.unwrap_or(0), &record.sent)?;
    if record.outcome == Outcome::Returned {
        same("a0", &expected.result, &record.result)?;
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, actual: &T) -> Result<(), String> {
    if expected == actual { Ok(()) } else { Err(format!("{what} is {actual:x?}, not {expected:x?}")) }
}

fn same_bytes(what: &str, expected: &[u8], actual: &[u8]) -> Result<(), String> {
    same(&format!("the length of {what}"), &expected.len(), &actual.len())?;
    if expected == actual {
        return Ok(());
    }
    let at = expected.iter().zip(actual).position(|(a, b)| a != b).unwrap_or(0);
    Err(format!("byte {at:#x} of {what} is {:#x}, not {:#x}", actual[at], expected[at]))
}
