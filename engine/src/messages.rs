//! Which queue a message is in: the NIC's mapping of message keys to MPQs (PsPIN paper §III-D, "message matching").
//!
//! A key holds its queue from its first frame until the queue is idle; then the queue can serve another key.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use rustc_hash::FxBuildHasher;
use spin_matcher::MessageKey;

use crate::context::Slot;
use crate::mpq::MpqId;

/// An open message of one's own context that got nothing for this long may be ended for a new one.
const OWN_IDLE: Duration = Duration::from_secs(10);

/// What names a message: keys of different contexts never meet.
type Name = (Slot, MessageKey);

/// A queue that is taken.
#[derive(Clone, Copy)]
struct Holder {
    name: Name,
    /// When its last frame arrived.
    used: Duration,
}

/// Message keys and the queues they hold. Nothing allocates per message.
pub struct Messages {
    by_name: HashMap<Name, MpqId, FxBuildHasher>,
    /// By queue: the message it serves.
    holders: Vec<Option<Holder>>,
    free: Vec<MpqId>,
    /// By context: queues its messages hold.
    held: Vec<u32>,
}

impl Messages {
    /// For `queues` queues, all of them free.
    #[must_use]
    pub fn new(queues: u32) -> Self {
        Self {
            // Twice the room, so that a full table of removed and inserted keys never grows.
            by_name: HashMap::with_capacity_and_hasher(queues as usize * 2, FxBuildHasher),
            holders: vec![None; queues as usize],
            free: (0..queues).rev().map(MpqId).collect(),
            held: Vec::new(),
        }
    }

    /// Makes room for the messages of a context.
    pub fn add_context(&mut self, context: Slot) {
        let slots = self.held.len().max(context.0 as usize + 1);
        self.held.resize(slots, 0);
    }

    /// The queue of a message that a frame arrived for at `now`, a free one if it is new; `None` when it is new and every
    /// queue is taken.
    pub fn queue(&mut self, context: Slot, key: MessageKey, now: Duration) -> Option<MpqId> {
        let name = (context, key);
        let known = self.by_name.get(&name).copied();
        let mpq = match known {
            Some(mpq) => mpq,
            None => self.free.pop()?,
        };
        if known.is_none() {
            self.by_name.insert(name, mpq);
            self.held[context.0 as usize] += 1;
        }
        self.holders[mpq.0 as usize] = Some(Holder { name, used: now });
        Some(mpq)
    }

    /// Frees an idle queue.
    pub fn release(&mut self, mpq: MpqId) {
        if let Some(holder) = self.holders[mpq.0 as usize].take() {
            self.by_name.remove(&holder.name);
            self.held[holder.name.0.0 as usize] -= 1;
            self.free.push(mpq);
        }
    }

    /// When every queue is taken: the one that a new message of `context` may take over, among the `quiescent` ones. It is
    /// the longest unused of the context that holds most, of those that hold more than `context` will then; else one of
    /// the context's own that was not used for a long time. So no context's open messages keep others from their share.
    pub fn victim(&self, context: Slot, now: Duration, quiescent: impl Fn(MpqId) -> bool) -> Option<MpqId> {
        let own = self.held[context.0 as usize];
        let held = |holder: &Holder| self.held[holder.name.0.0 as usize];
        let idle = |holder: &Holder| now.saturating_sub(holder.used) >= OWN_IDLE;
        self.taken()
            .filter(|(_, holder)| held(holder) > own + 1 || (holder.name.0 == context && idle(holder)))
            .filter(|(mpq, _)| quiescent(*mpq))
            .min_by_key(|(_, holder)| (Reverse(held(holder)), holder.used))
            .map(|(mpq, _)| mpq)
    }

    /// Queues that messages of a context hold.
    pub fn of_context(&self, context: Slot) -> impl Iterator<Item = MpqId> {
        self.taken().filter(move |(_, holder)| holder.name.0 == context).map(|(mpq, _)| mpq)
    }

    fn taken(&self) -> impl Iterator<Item = (MpqId, &Holder)> {
        (0u32..).map(MpqId).zip(&self.holders).filter_map(|(mpq, holder)| Some((mpq, holder.as_ref()?)))
    }
}
