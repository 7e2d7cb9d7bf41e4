//! State of one queue.

use super::types::{HerIndex, MessageParams, NONE};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// The message's packets wait for its header, which has not arrived.
    Waiting,
    Header,
    HeaderRunning,
    Payload,
    PayloadDraining,
    Completion,
    CompletionRunning,
    /// The message is cancelled; tasks of it are in flight.
    Cancelling,
    /// The message is cancelled, no task of it is in flight, and its end has not arrived.
    Cancelled,
}

/// One queue. Aligned to a cache line, so each queue costs one cache miss.
#[repr(align(64))]
pub(super) struct Queue<C> {
    pub(super) params: Option<MessageParams<C>>,
    pub(super) state: State,
    /// HERs in order of arrival: first the current message's, then those of later messages.
    pub(super) head: HerIndex,
    pub(super) tail: HerIndex,
    /// Number of HERs of the current message that have had no payload task. Of a waiting message: of all HERs.
    pub(super) length: u32,
    pub(super) in_flight: u32,
    /// Whether the last HER of the current message has arrived.
    pub(super) end_seen: bool,
    /// Whether the current message continues after its next end.
    pub(super) kept_open: bool,
    /// Whether arriving HERs belong to a message that was cancelled behind the current one. They are rejected up to
    /// that message's end.
    pub(super) rejecting: bool,
    /// Whether the queue is in its owner's ready list.
    pub(super) listed: bool,
    /// Next queue in that list.
    pub(super) next_ready: u32,
}

impl<C> Queue<C> {
    pub(super) const fn new() -> Self {
        Self {
            params: None,
            state: State::Free,
            head: NONE,
            tail: NONE,
            length: 0,
            in_flight: 0,
            end_seen: false,
            kept_open: false,
            rejecting: false,
            listed: false,
            next_ready: NONE,
        }
    }

    /// Parameters of a message whose first packet can run its payload task at once. `None` if the packet is not the
    /// first of a message, a header handler has to run before it, or it is not the message's header.
    #[inline]
    pub(super) fn first_params(&self, params: impl FnOnce() -> MessageParams<C>) -> Option<MessageParams<C>> {
        let is_first = self.state == State::Free && self.params.is_none() && self.head == NONE && self.in_flight == 0;
        is_first.then(params).filter(|params| !params.header && !params.early)
    }

    /// Puts a payload task in flight for a packet that was never queued.
    #[inline]
    pub(super) const fn begin_payload(&mut self, end_of_message: bool) {
        self.in_flight += 1;
        if end_of_message {
            (self.end_seen, self.state) = (true, State::PayloadDraining);
        }
    }

    /// Whether the queue has a task to run.
    #[inline]
    pub(super) const fn is_ready(&self) -> bool {
        match self.state {
            State::Header | State::Completion => true,
            State::Payload => self.length > 0,
            _ => false,
        }
    }

    /// Whether the message is cancelled.
    #[inline]
    pub(super) const fn is_cancelled(&self) -> bool {
        matches!(self.state, State::Cancelling | State::Cancelled)
    }

    /// Checks the state of the queue with this number against its other fields.
    pub(super) fn check(&self, number: usize) {
        let about = |what: &str| format!("queue {number}, {:?}: {what}", self.state);
        assert_eq!(self.is_ready(), self.listed, "{}", about("ready and not listed, or the other way round"));
        if self.state == State::Free {
            let is_empty = self.head == NONE && self.in_flight == 0 && self.length == 0;
            assert!(is_empty && self.params.is_none(), "{}", about("it has a message"));
            assert!(!self.end_seen && !self.kept_open && !self.rejecting, "{}", about("flags of a message"));
        } else {
            assert!(self.params.is_some() || self.is_cancelled(), "{}", about("it has no message"));
        }
    }
}
