//! Expected counters of a context that loses nothing: the orders in its packets determine all of them.

use spin_abi::counters::Counter;
use spin_abi::verdict::{Fate, Verdict};

use crate::policy::Policy;
use crate::traffic::{FLOWS, Order};

/// Lost packets, and messages that end early. For a context with none of these, all counters are determined.
const LOSSES: [Counter; 6] = [
    Counter::DropShare,
    Counter::DropNoMpq,
    Counter::DropKilled,
    Counter::MessagesEvicted,
    Counter::MessagesTimedOut,
    Counter::MessagesKilled,
];

/// An open message.
#[derive(Clone, Copy, Debug)]
struct Message {
    /// The fate of the message's packets, if a handler cancelled the message.
    given_up: Option<Fate>,
    /// Whether a handler keeps the message open behind its next end.
    kept_open: bool,
}

/// The expected counters of a context, and its open messages.
#[derive(Debug)]
pub struct Expected {
    open: [Option<Message>; FLOWS],
    /// The number of header, payload and completion runs.
    runs: [u64; 3],
    messages: u64,
    released: u64,
    passed: u64,
    dropped: u64,
    bad_verdicts: u64,
}

impl Expected {
    pub const fn new() -> Self {
        Self { open: [None; FLOWS], runs: [0; 3], messages: 0, released: 0, passed: 0, dropped: 0, bad_verdicts: 0 }
    }

    /// Processes an arriving packet. A flow's packets are processed in the order of their arrival.
    pub fn received(&mut self, policy: &Policy, order: &Order) {
        let begins = self.open[usize::from(order.flow)].is_none();
        let message = Message { given_up: None, kept_open: false };
        let mut message = self.open[usize::from(order.flow)].take().unwrap_or(message);
        if begins && policy.header {
            self.runs[0] += 1;
            let verdict = self.verdict(policy, order, 0);
            // A header handler decides on the whole message.
            message.given_up = Some(verdict.fate()).filter(|&fate| fate != Fate::Process);
            message.kept_open |= verdict.stays_open();
        }
        match message.given_up {
            Some(Fate::Pass) => self.passed += 1,
            Some(_) => self.dropped += 1,
            None => self.payload(policy, order, &mut message),
        }
        if order.end && message.given_up.is_none() {
            self.runs[2] += u64::from(policy.completion);
            self.messages += u64::from(!message.kept_open);
        }
        let goes_on = !order.end || message.kept_open;
        if order.end {
            message = Message { given_up: None, kept_open: false };
        }
        self.open[usize::from(order.flow)] = Some(message).filter(|_| goes_on);
    }

    fn payload(&mut self, policy: &Policy, order: &Order, message: &mut Message) {
        self.runs[1] += 1;
        let verdict = self.verdict(policy, order, 1);
        match verdict.fate() {
            Fate::Process => self.released += 1,
            Fate::Pass => self.passed += 1,
            Fate::Discard => {
                self.dropped += 1;
                (message.given_up, message.kept_open) = (Some(Fate::Discard), false);
            }
        }
        message.kept_open |= verdict.stays_open();
    }

    /// The effective verdict of a handler.
    fn verdict(&mut self, policy: &Policy, order: &Order, stage: usize) -> Verdict {
        if !policy.verdicts || !order.actions[stage].returns() {
            return Verdict::Success;
        }
        let verdict = Verdict::from_code(order.verdicts[stage].into());
        self.bad_verdicts += u64::from(verdict.is_none());
        verdict.unwrap_or(Verdict::Success)
    }

    /// Compares the expected counters with those of the context, whose messages hold `queues` queues. Returns whether nothing was
    /// lost; otherwise they cannot be compared.
    pub fn verify(&self, policy: &Policy, counters: &dyn Fn(Counter) -> u64, queues: u32) -> bool {
        if LOSSES.iter().any(|&loss| counters(loss) > 0) {
            return false;
        }
        let expected = [
            (Counter::HeaderRuns, self.runs[0]),
            (Counter::PayloadRuns, self.runs[1]),
            (Counter::CompletionRuns, self.runs[2]),
            (Counter::Messages, self.messages),
            (Counter::Released, self.released),
            (Counter::Passed, self.passed),
            (Counter::DropVerdict, self.dropped),
            (Counter::BadVerdicts, self.bad_verdicts),
        ];
        for (counter, expected) in expected {
            let name = counter.name();
            assert_eq!(counters(counter), expected, "{name}: {self:?}\n{policy:#?}");
        }
        let open = self.open.iter().flatten().count();
        assert_eq!(queues as usize, open, "queues held by open messages: {self:?}\n{policy:#?}");
        true
    }
}
