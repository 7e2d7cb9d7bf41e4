//! What holds for all packets of a context when they are ordered.

use std::ops::Range;

use spin_matcher::MessageKey;
use spin_pspin::ids::{MessageRef, Slot};
use spin_pspin::mpq::{MessageParams, Stage};

use crate::context::Context;

/// What is the same for all of a context's packets.
#[derive(Clone, Copy)]
pub(crate) struct PacketRules {
    pub(crate) slot: Slot,
    /// HERs that it may hold without more ado.
    pub(crate) soft_limit: u32,
    header: bool,
    completion: bool,
}

impl PacketRules {
    /// Of a context that is nobody's successor.
    #[inline]
    pub(crate) fn of(slot: Slot, context: &Context) -> Self {
        let [header, completion] = [Stage::Header, Stage::Completion].map(|stage| context.handler(stage).is_some());
        Self { slot, soft_limit: context.share.soft_limit, header, completion }
    }

    /// Whether no other handler than that for payload runs.
    #[inline]
    pub(crate) const fn is_simple(&self) -> bool {
        !self.header && !self.completion
    }

    /// What the message of a packet latches, if it is its first.
    #[inline]
    pub(crate) fn params(&self, clusters: &Range<u32>, key: &MessageKey, message: u64) -> MessageParams<MessageRef> {
        let context = MessageRef { slot: self.slot, home: home(clusters, key), message };
        MessageParams { context, header: self.header, completion: self.completion }
    }
}

/// The cluster on which a message's tasks run: the paper's home cluster.
#[inline]
pub(crate) fn home(clusters: &Range<u32>, key: &MessageKey) -> u32 {
    match clusters.end - clusters.start {
        1 => clusters.start,
        count => clusters.start + key.hash() % count,
    }
}
