//! What a worker has to do with its contexts' programs in the XDP hook: their faults, and the time that users take in user space.

use std::collections::BTreeMap;

use spin_abi::counters::Counter;
use spin_abi::events::{Event, What};
use spin_pspin::mpq::Stage;

use crate::hook::HookFault;
use crate::install::User;
use crate::worker::Worker;

/// A user of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserActivity {
    /// The weight of the user's share.
    pub weight: u32,
    /// Packets that the contexts of the user have had in user space.
    pub matched: u64,
}

/// The users of a worker's contexts.
#[must_use]
pub fn user_activity(worker: &Worker) -> BTreeMap<u32, UserActivity> {
    let mut users = BTreeMap::<u32, UserActivity>::new();
    for context in worker.core.contexts.list.iter().flatten() {
        let user = users.entry(context.weights.uid).or_default();
        user.weight = context.weights.user_weight;
        user.matched += context.counts.get(Counter::Matched);
    }
    users
}

/// Records faults of a context's program for its application, and sends events. `count`: the faults of the program so far.
pub fn record_hook_faults(worker: &mut Worker, id: u32, faults: &[HookFault], count: u64) {
    // The context may be gone.
    let Ok(slot) = worker.core.contexts.find(id, User(0)) else { return };
    let context = worker.core.contexts.get(slot);
    for (number, (flow, fault)) in (count + 1 - faults.len() as u64..).zip(faults) {
        context.record_fault(Stage::Payload, *fault, None, number);
        let what = What::Fault { stage: Stage::Payload as u32, fault: *fault };
        context.event_ring.emit_event(Event { flow: *flow, what });
    }
}
