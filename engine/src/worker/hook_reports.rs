//! What a worker has to do with its contexts' programs in the XDP hook: their commands and faults, and what users do in user space.

use std::collections::BTreeMap;

use hpu_vm::bpf::queue::HostCommand;
use spin_abi::command::Direction;
use spin_abi::counters::Counter;
use spin_abi::events::{Event, What};
use spin_pspin::mpq::Stage;

use crate::context::Context;
use crate::hook::{HookCommand, HookFault};
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
    let unit = worker.core.part.unit;
    let context = worker.core.contexts.get(slot);
    for (number, (flow, fault)) in (count + 1 - faults.len() as u64..).zip(faults) {
        context.record_fault(unit, Stage::Payload, *fault, None, number);
        let what = What::Fault { stage: Stage::Payload as u32, fault: *fault };
        context.event_ring.emit_event(Event { flow: *flow, what });
    }
}

/// Makes commands for host memory of a context's program.
pub fn make_hook_commands(worker: &mut Worker, id: u32, commands: &[HookCommand]) {
    // The context may be gone.
    let Ok(slot) = worker.core.contexts.find(id, User(0)) else { return };
    let Context { host, counts, event_ring, .. } = worker.core.contexts.get(slot);
    for (flow, command) in commands {
        let HostCommand { host: address, bytes, is_copy, event } = command;
        let place = host.find(*address, bytes.len());
        let written = place.and_then(|(mapping, offset)| mapping.write(offset, bytes).ok());
        if written.is_none() {
            counts.add(Counter::CommandErrors, 1);
            counts.add(Counter::CommandsBadHostAddress, 1);
            continue;
        }
        counts.add(if *is_copy { Counter::CommandsDma } else { Counter::CommandsHostDirect }, 1);
        counts.add(Counter::DmaToHostBytes, bytes.len() as u64);
        if *event {
            let length = bytes.len() as u32;
            let what = What::Copied { direction: Direction::ToHost, host: *address, length };
            event_ring.emit_event(Event { flow: *flow, what });
        }
    }
}
