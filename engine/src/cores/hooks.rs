//! Programs in the XDP hook of installed contexts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use hpu_vm::bpf::layout::{Counter, Counters as InHook};
use spin_abi::counter_values::Counters;

use super::hook_shares::Charge;
use crate::hook::{Hook, HookCommand, HookFault};

/// The programs by context id, and what those of removed contexts have counted.
#[derive(Debug, Default)]
pub struct Hooks {
    programs: RefCell<BTreeMap<u32, Entry>>,
    retired: RefCell<Counters>,
}

/// The program of a context.
#[derive(Debug)]
struct Entry {
    hook: Arc<Hook>,
    uid: u32,
    /// Why its packets go to user space, if they do.
    left: Option<&'static str>,
    /// What had been counted on each processor at the last look.
    usage: Vec<InHook>,
    /// Whether packets were over its share between the last two looks.
    is_held: bool,
    /// Number of faults on each processor that are reported.
    reported: Vec<u64>,
}

/// New faults of a context's program.
#[derive(Debug)]
pub(super) struct NewFaults {
    pub(super) context: u32,
    pub(super) faults: Vec<HookFault>,
    /// All faults of the program so far.
    pub(super) count: u64,
}

/// Why the packets of a context go to user space, although it has a program.
const OVER_SHARE: &str = "other users are active: packets over its share go to user space";

impl Hooks {
    /// Whether no context has a program.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.programs.borrow().is_empty()
    }

    /// Has the packets of attached contexts of users go to their programs. A context whose program the kernel refuses stays in user
    /// space.
    pub(super) fn activate(&self, hooks: impl Iterator<Item = (u32, u32, Arc<Hook>)>) {
        for (id, uid, hook) in hooks {
            let activated = hook.activate();
            let refused =
                activated.inspect_err(|refusal| tracing::warn!("context {id} stays in user space: {refusal}"));
            let left = refused.is_err().then_some("the kernel did not take its program");
            let usage = hook.usage();
            let reported = vec![0; usage.len()];
            let entry = Entry { hook, uid, left, usage, is_held: false, reported };
            self.programs.borrow_mut().insert(id, entry);
        }
    }

    /// Has the packets of a context go to user space from now on.
    pub(super) fn leave(&self, id: u32, why: &'static str) {
        if let Some(entry) = self.programs.borrow_mut().get_mut(&id) {
            entry.hook.deactivate();
            entry.left = Some(why);
        }
    }

    /// Whether the packets of a context with a program go there, and what else there is to say. `None`: it has no program.
    #[must_use]
    pub fn state(&self, id: u32) -> Option<(bool, &'static str)> {
        let programs = self.programs.borrow();
        let Entry { left, is_held, .. } = programs.get(&id)?;
        Some((left.is_none(), left.unwrap_or(if *is_held { OVER_SHARE } else { "" })))
    }

    /// Forgets the programs of contexts that are gone, and keeps what they have counted.
    pub(super) fn retire(&self, gone: &[u32]) {
        for id in gone {
            if let Some(Entry { hook, .. }) = self.programs.borrow_mut().remove(id) {
                hook.deactivate();
                self.retired.borrow_mut().add(&counters(&hook));
            }
        }
    }

    /// Has no other program get the places of these: the kernel's rules may still lead there.
    pub(super) fn keep_places(&self, of: impl Iterator<Item = u32>) {
        let programs = self.programs.borrow();
        of.filter_map(|id| programs.get(&id)).for_each(|entry| entry.hook.keep_place());
    }

    /// What the program of a context has counted.
    #[must_use]
    pub fn of(&self, id: u32) -> Option<Counters> {
        self.programs.borrow().get(&id).map(|entry| counters(&entry.hook))
    }

    /// What all programs have counted, also those of removed contexts.
    #[must_use]
    pub fn sum(&self) -> Counters {
        let mut sum = self.retired.borrow().clone();
        self.programs.borrow().values().for_each(|entry| sum.add(&counters(&entry.hook)));
        sum
    }

    /// What each program was charged since the last look, by processor.
    pub(super) fn take_charges(&self) -> Vec<Vec<Charge>> {
        let mut charges: Vec<Vec<Charge>> = Vec::new();
        for entry in self.programs.borrow_mut().values_mut() {
            let usage = entry.hook.usage();
            charges.resize(charges.len().max(usage.len()), Vec::new());
            for (of, (before, now)) in charges.iter_mut().zip(entry.usage.iter().zip(&usage)) {
                of.push(Charge {
                    uid: entry.uid,
                    charged: now.get(Counter::Charged).saturating_sub(before.get(Counter::Charged)),
                });
            }
            entry.is_held =
                entry.usage.iter().zip(&usage).any(|(before, now)| now.get(Counter::Held) > before.get(Counter::Held));
            entry.usage = usage;
        }
        charges
    }

    /// Sets what the programs may be charged from the last look on, by processor in the order of [`take_charges`](Self::take_charges).
    pub(super) fn allow(&self, amounts: &[Vec<Option<u64>>]) {
        for (index, entry) in self.programs.borrow().values().enumerate() {
            for (processor, (amounts, usage)) in amounts.iter().zip(&entry.usage).enumerate() {
                let amount = amounts.get(index).copied().flatten();
                entry.hook.allow(
                    processor,
                    amount.map_or(u64::MAX, |amount| usage.get(Counter::Charged).saturating_add(amount)),
                );
            }
        }
    }

    /// Whether some handlers may issue commands for host memory.
    #[must_use]
    pub fn have_queues(&self) -> bool {
        self.programs.borrow().values().any(|entry| entry.hook.has_queue())
    }

    /// The commands for host memory that wait, by context.
    pub(super) fn take_commands(&self) -> Vec<(u32, Vec<HookCommand>)> {
        let programs = self.programs.borrow();
        let taken = programs.iter().map(|(id, entry)| (*id, entry.hook.take_commands()));
        taken.filter(|(_, commands)| !commands.is_empty()).collect()
    }

    /// Tells the handlers of a context the host address of its host memory.
    pub fn set_host(&self, id: u32, address: u64) {
        if let Some(entry) = self.programs.borrow().get(&id) {
            entry.hook.set_host(address);
        }
    }

    /// Faults up to the last look that were not taken yet.
    pub(super) fn take_faults(&self) -> Vec<NewFaults> {
        let mut programs = self.programs.borrow_mut();
        programs.iter_mut().filter_map(|(id, entry)| entry.take_faults(*id)).collect()
    }
}

impl Entry {
    fn take_faults(&mut self, context: u32) -> Option<NewFaults> {
        let mut faults = Vec::new();
        for (processor, (usage, reported)) in self.usage.iter().zip(&mut self.reported).enumerate() {
            let count = usage.get(Counter::Faults);
            if count > *reported {
                faults.extend(self.hook.faults(processor, *reported, count));
                *reported = count;
            }
        }
        let count = self.reported.iter().sum();
        (!faults.is_empty()).then_some(NewFaults { context, faults, count })
    }
}

fn counters(hook: &Hook) -> Counters {
    let counts = hook.counts();
    let counted = counts.of_context().filter(|(_, value)| *value > 0);
    counted.map(|(counter, value)| (counter.name(), value)).collect()
}
