//! Programs in the XDP hook of installed contexts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use spin_abi::counter_values::Counters;

use crate::hook::Hook;

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
    /// Why its packets go to user space, if they do.
    left: Option<&'static str>,
}

impl Hooks {
    /// Has the packets of attached contexts go to their programs. A context whose program the kernel refuses stays in user
    /// space.
    pub(super) fn activate(&self, hooks: impl Iterator<Item = (u32, Arc<Hook>)>) {
        for (id, hook) in hooks {
            match hook.activate() {
                Ok(()) => drop(self.programs.borrow_mut().insert(id, Entry { hook, left: None })),
                Err(refusal) => tracing::warn!("context {id} stays in user space: {refusal}"),
            }
        }
    }

    /// Has the packets of a context go to user space from now on.
    pub(super) fn leave(&self, id: u32, why: &'static str) {
        if let Some(entry) = self.programs.borrow_mut().get_mut(&id) {
            entry.hook.deactivate();
            entry.left = Some(why);
        }
    }

    /// Why the packets of a context go to user space, although it has a program.
    #[must_use]
    pub fn left(&self, id: u32) -> Option<&'static str> {
        self.programs.borrow().get(&id)?.left
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
}

fn counters(hook: &Hook) -> Counters {
    let counts = hook.counts();
    let counted = counts.of_context().filter(|(_, value)| *value > 0);
    counted.map(|(counter, value)| (counter.name(), value)).collect()
}
