//! What handlers of a context may send.
//!
//! * [`SendRights`]: the rights of a context.
//! * `source`: [`SendSource`], the host in whose name handlers send.
//! * `received`: [`Received`], what is remembered of a packet; `fields`: its header fields.
//! * `check`: the check of a frame.
//!
//! A handler may overwrite its packet before it sends, and so may earlier handlers of that packet. The fields of a received packet are
//! therefore read before any handler runs. While the packet is queued, they are in the spare bytes of its frame's chunk, which handlers
//! do not reach.

mod check;
mod fields;
mod received;
mod source;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use received::Received;
pub use source::{HostAddresses, SendSource};

/// Frames that the handlers of a context may send.
#[derive(Clone, Debug, Default)]
pub enum SendRights {
    /// Any frame.
    #[default]
    Raw,
    /// Packets from the host, to any destination.
    Own(Arc<SendSource>),
    /// Packets from the host to the sender of the packet that is handled.
    Reply(Arc<SendSource>),
}

impl SendRights {
    /// Rights to send from the host to any destination.
    #[must_use]
    pub fn own(source: SendSource) -> Self {
        Self::Own(Arc::new(source))
    }

    /// Rights to answer the sender of the packet that is handled.
    #[must_use]
    pub fn reply(source: SendSource) -> Self {
        Self::Reply(Arc::new(source))
    }

    /// Whether frames are checked. The fields of received packets are then kept.
    #[must_use]
    #[inline]
    pub const fn is_restricted(&self) -> bool {
        !matches!(self, Self::Raw)
    }

    /// Whether `frame` may be sent by a handler of the packet that was `received`.
    #[must_use]
    #[inline]
    pub fn allow(&self, received: &Received, frame: &[u8]) -> bool {
        !self.is_restricted() || self.allow_restricted(received, frame)
    }

    /// Apart, so that sends of unrestricted handlers stay short.
    #[inline(never)]
    fn allow_restricted(&self, received: &Received, frame: &[u8]) -> bool {
        match (self, received) {
            (Self::Raw, _) => true,
            (Self::Own(source), _) => check::own(source, &received.fields(), frame),
            (Self::Reply(source), Received::Plain(head)) if check::is_plain_reply(source, head, frame) => true,
            (Self::Reply(source), _) => check::reply(source, &received.fields(), frame),
        }
    }
}
