//! What a program adds: callbacks do so while the simulation runs, so it is kept apart from that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ec::Context;
use crate::host::Access;

/// A packet to come.
#[derive(Debug)]
pub struct Added {
    /// Its context.
    pub context: Arc<Context>,
    /// Its message.
    pub msgid: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// How many of them are copied to L1.
    pub l1_len: usize,
    /// It is its message's last.
    pub eom: bool,
    /// Cycles until the next one.
    pub wait_cycles: u32,
    /// Whatever the program likes.
    pub user: u64,
}

/// What was added and not taken.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Packets, in their order.
    pub packets: VecDeque<Added>,
    /// Accesses to NIC memory, with their bytes, that were made and are not complete.
    pub accesses: VecDeque<(Access, usize, usize)>,
    /// No more packets come.
    pub eos: bool,
}

/// Shared by program and simulation.
#[derive(Debug, Default)]
pub struct Inbox(Mutex<Waiting>);

impl Inbox {
    /// Adds packets, unless no more come; says whether it did.
    #[must_use]
    pub fn add(&self, packets: impl IntoIterator<Item = Added>) -> bool {
        self.change(|waiting| {
            if !waiting.eos {
                waiting.packets.extend(packets);
            }
            !waiting.eos
        })
    }

    /// Notes an access of so many bytes.
    pub fn access(&self, access: Access, len: usize, user: usize) {
        self.change(|waiting| waiting.accesses.push_back((access, len, user)));
    }

    /// No more packets come.
    pub fn end(&self) {
        self.change(|waiting| waiting.eos = true);
    }

    /// Does something with what waits.
    pub fn change<R>(&self, change: impl FnOnce(&mut Waiting) -> R) -> R {
        // Every step leaves it whole.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
