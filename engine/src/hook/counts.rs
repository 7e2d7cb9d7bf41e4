//! Counters and faults of a program, as the engine's.

use hpu_vm::bpf::layout::{Counter as InHook, Counters};
use spin_abi::counters::Counter;

/// What a program has counted on all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookCounts(Counters);

impl HookCounts {
    /// The sum of all processors' counters. Each counter is read whole; they may be of different moments.
    #[must_use]
    pub fn sum(usage: &[Counters]) -> Self {
        Self(usage.iter().fold(Counters::default(), |sum, other| sum.plus(other)))
    }

    /// A counter of the program.
    #[must_use]
    pub const fn get(&self, counter: InHook) -> u64 {
        self.0.get(counter)
    }

    /// What to add to the context's counters. A payload handler runs on each packet, which is a message.
    pub fn of_context(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        let runs = self.get(InHook::Runs);
        let lost = self.get(InHook::Lost);
        let sent = self.get(InHook::Sent);
        [
            (Counter::Matched, runs + lost),
            (Counter::PayloadRuns, runs),
            (Counter::Released, runs + lost),
            (Counter::Messages, runs + lost),
            (Counter::CommandsSend, sent),
            (Counter::TxPackets, sent),
            (Counter::TxBytes, self.get(InHook::SentBytes)),
            (Counter::TxMoved, sent),
            (Counter::Faults, self.get(InHook::Faults)),
            (Counter::Passed, self.get(InHook::Passed)),
            (Counter::DropVerdict, self.get(InHook::Discarded)),
            (Counter::DropVerdictBytes, self.get(InHook::DiscardedBytes)),
            (Counter::BadVerdicts, self.get(InHook::BadVerdicts)),
            (Counter::HookRuns, runs),
            (Counter::CommandErrors, self.get(InHook::Forbidden)),
            (Counter::CommandsForbiddenSend, self.get(InHook::Forbidden)),
            (Counter::PassForbidden, self.get(InHook::PassForbidden)),
            (Counter::HookHeld, self.get(InHook::Held)),
            (Counter::DropHook, lost),
        ]
        .into_iter()
    }
}
