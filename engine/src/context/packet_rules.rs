//! Properties that all packets of a context share when they are queued.

use std::ops::Range;

use spin_matcher::MessageKey;
use spin_pspin::ids::{MessageRef, Slot};
use spin_pspin::mpq::{MessageParams, Stage};

use crate::context::Context;

/// The properties of a context's packets.
#[derive(Clone, Copy)]
pub(crate) struct PacketRules {
    pub(crate) slot: Slot,
    /// The number of HERs above which the `--full` policy applies.
    pub(crate) soft_limit: u32,
    header: bool,
    completion: bool,
}

impl PacketRules {
    /// The rules of a context. It must not be replacing another one.
    #[inline]
    pub(crate) fn of(slot: Slot, context: &Context) -> Self {
        let [header, completion] = [Stage::Header, Stage::Completion].map(|stage| context.handler(stage).is_some());
        Self { slot, soft_limit: context.share.soft_limit, header, completion }
    }

    /// Whether the context has no handler but the payload handler.
    #[inline]
    pub(crate) const fn is_simple(&self) -> bool {
        !self.header && !self.completion
    }

    /// The parameters that a message latches from its first packet.
    #[inline]
    pub(crate) fn params(&self, clusters: &Range<u32>, key: &MessageKey, message: u64) -> MessageParams<MessageRef> {
        let context = MessageRef { slot: self.slot, home: home(clusters, key), message };
        MessageParams { context, header: self.header, completion: self.completion }
    }
}

/// The home cluster (PsPIN paper): the cluster on which a message's tasks run.
#[inline]
pub(crate) fn home(clusters: &Range<u32>, key: &MessageKey) -> u32 {
    match clusters.end - clusters.start {
        1 => clusters.start,
        count => clusters.start + key.hash() % count,
    }
}
