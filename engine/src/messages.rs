//! Which queue a message is in: the NIC's mapping of message keys to MPQs (PsPIN paper §III-D, "message matching").
//!
//! A key holds its queue from its first frame until the queue is idle; then the queue can serve another key.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;
use spin_matcher::MessageKey;

use crate::context::Slot;
use crate::mpq::MpqId;

/// What names a message: keys of different contexts never meet.
type Name = (Slot, MessageKey);

/// Message keys and the queues they hold. Nothing allocates after [`Messages::new`].
pub struct Messages {
    by_name: HashMap<Name, MpqId, FxBuildHasher>,
    /// By queue: the message it serves.
    names: Vec<Option<Name>>,
    free: Vec<MpqId>,
}

impl Messages {
    /// For `queues` queues, all of them free.
    #[must_use]
    pub fn new(queues: u32) -> Self {
        Self {
            // Twice the room, so that a full table of removed and inserted keys never grows.
            by_name: HashMap::with_capacity_and_hasher(queues as usize * 2, FxBuildHasher),
            names: vec![None; queues as usize],
            free: (0..queues).rev().map(MpqId).collect(),
        }
    }

    /// The queue of a message, a free one if it is new; `None` when it is new and every queue is taken.
    pub fn queue(&mut self, context: Slot, key: MessageKey) -> Option<MpqId> {
        let name = (context, key);
        if let Some(&mpq) = self.by_name.get(&name) {
            return Some(mpq);
        }
        let mpq = self.free.pop()?;
        self.by_name.insert(name, mpq);
        self.names[mpq.0 as usize] = Some(name);
        Some(mpq)
    }

    /// Frees an idle queue.
    pub fn release(&mut self, mpq: MpqId) {
        if let Some(name) = self.names[mpq.0 as usize].take() {
            self.by_name.remove(&name);
            self.free.push(mpq);
        }
    }

    /// Queues that messages of a context hold.
    pub fn of_context(&self, context: Slot) -> impl Iterator<Item = MpqId> {
        (0u32..).zip(&self.names).filter_map(move |(index, name)| match name {
            Some((holder, _)) if *holder == context => Some(MpqId(index)),
            _ => None,
        })
    }
}
