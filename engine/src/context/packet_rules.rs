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
    kind: PacketKind,
}

/// The relation of a context's packets to messages.
#[derive(Clone, Copy)]
enum PacketKind {
    /// Packets belong to messages with these handlers.
    Message { header: bool, completion: bool },
    /// Packet mode: no packet ends a message, so each is a task of its own.
    Single {
        /// Whether the flow is the message id of FPsPIN's keys, or else the key's hash.
        fpspin: bool,
    },
}

impl PacketRules {
    /// The rules of a context. It must not be replacing another one.
    #[inline]
    pub(crate) fn of(slot: Slot, context: &Context) -> Self {
        let kind = if context.matching.is_per_packet() {
            PacketKind::Single { fpspin: context.matching.entry.key.is_fpspin() }
        } else {
            let [header, completion] = [Stage::Header, Stage::Completion].map(|stage| context.handler(stage).is_some());
            PacketKind::Message { header, completion }
        };
        Self { slot, soft_limit: context.share.soft_limit, kind }
    }

    /// Whether packets belong to messages, and the context has no handler but the payload handler.
    #[inline]
    pub(crate) const fn is_simple(&self) -> bool {
        matches!(self.kind, PacketKind::Message { header: false, completion: false })
    }

    /// Whether the context is in packet mode.
    #[inline]
    pub(crate) const fn is_per_packet(&self) -> bool {
        matches!(self.kind, PacketKind::Single { .. })
    }

    /// The parameters that a message latches from its first packet, or those of a single packet.
    #[inline]
    pub(crate) fn params(&self, clusters: &Range<u32>, key: &MessageKey, message: u64) -> MessageParams<MessageRef> {
        // The number of clusters is small.
        let (slot, home) = (self.slot, home(clusters, key) as u16);
        match self.kind {
            PacketKind::Message { header, completion } => {
                let context = MessageRef { slot, home, flow: None, message };
                MessageParams { context, header, completion, per_packet: false }
            }
            PacketKind::Single { fpspin } => {
                let flow = if fpspin { key.first_byte() } else { key.hash() as u8 };
                let context = MessageRef { slot, home, flow: Some(flow), message };
                MessageParams { per_packet: true, ..MessageParams::payload_only(context) }
            }
        }
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
