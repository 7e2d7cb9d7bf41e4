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
    /// Packet mode: no packet ends a message, so each is a task of its own. `None`: packets belong to messages.
    single: Option<FlowNumber>,
}

/// The flow number of a packet in packet mode.
#[derive(Clone, Copy)]
enum FlowNumber {
    KeyHash,
    /// The message id of FPsPIN's keys.
    MessageId,
}

impl PacketRules {
    /// The rules of a context. It must not be replacing another one.
    #[inline]
    pub(crate) fn of(slot: Slot, context: &Context) -> Self {
        let [header, completion] = [Stage::Header, Stage::Completion].map(|stage| context.handler(stage).is_some());
        let number =
            if context.matching.entry.entry().key.is_fpspin() { FlowNumber::MessageId } else { FlowNumber::KeyHash };
        let single = context.matching.is_per_packet().then_some(number);
        Self { slot, soft_limit: context.share.soft_limit, header, completion, single }
    }

    /// Whether packets belong to messages, and the context has no handler but the payload handler.
    #[inline]
    pub(crate) const fn is_simple(&self) -> bool {
        !self.header && !self.completion
    }

    /// Whether the context is in packet mode.
    #[inline]
    pub(crate) const fn is_per_packet(&self) -> bool {
        self.single.is_some()
    }

    /// The parameters that a message latches from its first packet, or those of a single packet.
    #[inline]
    pub(crate) fn params(&self, clusters: &Range<u32>, key: &MessageKey, message: u64) -> MessageParams<MessageRef> {
        if self.is_per_packet() {
            self.single_params(clusters, key, message)
        } else {
            self.message_params(clusters, key, message)
        }
    }

    /// The parameters that a message latches from its first packet.
    #[inline]
    pub(crate) fn message_params(
        &self,
        clusters: &Range<u32>,
        key: &MessageKey,
        message: u64,
    ) -> MessageParams<MessageRef> {
        // The number of clusters is small.
        let context = MessageRef { slot: self.slot, home: home(clusters, key) as u16, flow: None, message };
        MessageParams { header: self.header, completion: self.completion, ..MessageParams::payload_only(context) }
    }

    /// The parameters of a packet in packet mode.
    #[inline]
    pub(crate) fn single_params(
        &self,
        clusters: &Range<u32>,
        key: &MessageKey,
        message: u64,
    ) -> MessageParams<MessageRef> {
        let flow = match self.single {
            Some(FlowNumber::MessageId) => key.first_byte(),
            // Bits that the choice of the home cluster seldom depends on: the flow's number depends on both.
            _ => (key.hash() >> 8) as u8,
        };
        let context = MessageRef { slot: self.slot, home: home(clusters, key) as u16, flow: Some(flow), message };
        MessageParams { per_packet: true, ..MessageParams::payload_only(context) }
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
