//! Message processing queues: the order of handlers within each message (PsPIN paper §III-B1).
//!
//! ```text
//! Free --HER--> header handler present ? Header : Payload
//! Free --early HER--> Waiting --header HER--> header handler present ? Header : Payload
//! Header --task sent--> HeaderRunning --complete--> Payload
//! Payload --(task sent for the end-of-message packet)--> PayloadDraining
//! PayloadDraining --(complete, in_flight was 1)--> completion handler present ? Completion : Free
//! Completion --task sent--> CompletionRunning --complete--> Free
//! ```
//! The first HER of a message fixes its context and its handlers ([`MessageParams`]). The first packet stays queued during the header
//! task, because its payload task follows. With a completion handler, the end-of-message packet stays queued until the completion task
//! has run. Each owner of messages has a list of ready queues and serves them round-robin; the scheduler chooses the owner.
//!
//! A message can be [cancelled](Mpqs::cancel) at any point. It gets no further tasks. Its packets are dropped up to its end, including
//! those that have not arrived. At its end the queue becomes Free.
//!
//! A message that is [kept open](Mpqs::keep_open) does not end with its last packet. The queue goes to Payload instead of Free, and the
//! following packets belong to the message, up to the next packet that ends it.
//!
//! The network may deliver packets before their message's header. A HER that is [early](MessageParams::early) begins a message that waits
//! for its header. The header is then taken before all of them. It is the first HER of the queue that is not early, even behind an end of
//! message. Messages that wait for headers need keys that no other message has.
//!
//! A queue [per packet](MessageParams::per_packet) holds packets that belong to no message. It stays in Payload. Each packet gets one
//! payload task, and tasks start in order of arrival.
//!
//! The RTL has no rule for two cases. Here a HER that arrives after the end of its message belongs to the next message of that queue,
//! which starts when the queue is Free. A message whose first HER is also its last has one packet.
//!
//! A packet moves into a [`Task`] and returns by [`Mpqs::complete`]: it has one owner at any time. Nothing allocates after [`Mpqs::new`]
//! and [`Mpqs::add_owner`].
//!
//! * `types`: value types; `pool`: memory for HERs; `state`: state of a queue; `ready`: owners and their ready queues.
//! * `cancel`: cancelling messages and emptying queues; `check`: consistency, for tests.

mod cancel;
mod pool;
mod ready;
mod state;
mod types;

use spin_frame::prefetch_in;

pub use types::{Completed, Her, MessageParams, MpqId, Owned, Rejected, Stage, Task};

use pool::{HerPool, HerSlot};
use ready::Owners;
use state::{Queue, State};
use types::NONE;

/// All message processing queues of one home thread.
pub struct Mpqs<C, P> {
    queues: Vec<Queue<C>>,
    pool: HerPool<C, P>,
    owners: Owners,
    /// Packets that [`Mpqs::pop_cancelled`] returns.
    cancelled: Vec<P>,
}

impl<C: Copy + Owned, P> Mpqs<C, P> {
    /// `queues` queues that share room for `hers` HERs. `blank` fills unused slots.
    #[must_use]
    pub fn new(queues: u32, hers: u32, blank: MessageParams<C>) -> Self {
        Self {
            queues: (0..queues).map(|_| Queue::new()).collect(),
            pool: HerPool::new(hers, blank),
            owners: Owners::default(),
            cancelled: Vec::with_capacity(hers as usize),
        }
    }

    /// Reserves memory for the messages of an owner.
    pub fn add_owner(&mut self, owner: u32) {
        self.owners.add(owner);
    }

    /// Makes `queues` queues, if there are less.
    pub fn grow(&mut self, queues: u32) {
        let queues = self.queues.len().max(queues as usize);
        self.queues.resize_with(queues, Queue::new);
    }

    /// Owners that have a task to run, in no order. Owners whose last task was taken stay until [`Mpqs::next_task`] finds none.
    #[must_use]
    #[inline]
    pub fn backlogged(&self) -> &[u32] {
        self.owners.backlogged()
    }

    /// Number of HERs that the messages of an owner hold.
    #[must_use]
    #[inline]
    pub fn held(&self, owner: u32) -> u32 {
        self.owners.hers(owner)
    }

    /// Number of further HERs that fit: the inbound engine's credit.
    #[must_use]
    #[inline]
    pub const fn room(&self) -> usize {
        self.pool.room()
    }

    /// Queues a HER.
    ///
    /// # Errors
    /// Returns the packet: see [`Rejected`].
    pub fn push(&mut self, mpq: MpqId, her: Her<C, P>) -> Result<(), Rejected<P>> {
        if !self.accepts(mpq) {
            return Err(self.reject(mpq, her));
        }
        self.put(mpq, her);
        Ok(())
    }

    /// Whether [`Mpqs::push`] would queue a HER.
    #[must_use]
    #[inline]
    pub fn accepts(&self, mpq: MpqId) -> bool {
        let queue = &self.queues[mpq.0 as usize];
        self.pool.has_room() && !queue.rejecting && (queue.end_seen || !queue.is_cancelled())
    }

    /// Whether the next HER belongs to a message that the queue already has HERs of: the end of the last one has not
    /// arrived.
    #[must_use]
    #[inline]
    pub fn is_message_open(&self, mpq: MpqId) -> bool {
        let queue = &self.queues[mpq.0 as usize];
        let ended = queue.end_seen && !queue.kept_open && !queue.rejecting;
        !ended || self.pool.get(queue.tail).is_some_and(|last| !last.end_of_message)
    }

    /// Queues a HER that the queue [accepts](Mpqs::accepts).
    ///
    /// # Panics
    /// When the queue does not accept it.
    #[inline(always)]
    pub fn put(&mut self, mpq: MpqId, her: Her<C, P>) {
        let Her { params, end_of_message, packet } = her;
        let index = self.pool.fill(params, end_of_message, packet);
        self.owners.add_her(&params.context);
        let queue = &mut self.queues[mpq.0 as usize];
        match self.pool.get_mut(std::mem::replace(&mut queue.tail, index)) {
            Some(tail) => tail.next = index,
            None => queue.head = index,
        }
        if queue.state == State::Free {
            self.start_message(mpq);
        } else if queue.state == State::Waiting {
            queue.length += 1;
            if !params.early {
                self.start_message(mpq);
            }
        } else if !queue.end_seen {
            queue.length += 1;
            queue.end_seen = end_of_message;
            self.list_if_ready(mpq);
        }
    }

    /// Context of the payload task of a packet that can run without being queued. That requires that nothing of its message is queued or
    /// in flight and that no other handler has to run on the packet. The task then [releases the packet](Task::releases_packet). `params`
    /// returns the message's parameters if the packet is its first.
    ///
    /// Call [`begin_inline`](Mpqs::begin_inline) if the packet is the message's last. Also call it before any other call for this queue,
    /// except this one.
    #[inline]
    pub fn try_inline(
        &mut self,
        mpq: MpqId,
        end_of_message: bool,
        params: impl FnOnce() -> MessageParams<C>,
    ) -> Option<C> {
        self.try_inline_next(mpq, end_of_message).or_else(|| {
            let queue = &mut self.queues[mpq.0 as usize];
            let params = queue.first_params(params).filter(|params| !params.completion || !end_of_message)?;
            (queue.params, queue.state) = (Some(params), State::Payload);
            Some(params.context)
        })
    }

    /// [`try_inline`](Mpqs::try_inline) for a packet that is not the first of its message.
    #[inline(always)]
    pub fn try_inline_next(&self, mpq: MpqId, end_of_message: bool) -> Option<C> {
        let queue = &self.queues[mpq.0 as usize];
        let params = queue.params.as_ref().filter(|_| queue.state == State::Payload && queue.head == NONE)?;
        (queue.in_flight == 0 && !queue.rejecting && !(params.completion && end_of_message)).then_some(params.context)
    }

    /// Puts the task of an [inline](Mpqs::try_inline) packet in flight, up to its [completion](Mpqs::complete).
    #[inline]
    pub fn begin_inline(&mut self, mpq: MpqId, end_of_message: bool) {
        self.queues[mpq.0 as usize].begin_payload(end_of_message);
    }

    /// Completes the task of an [inline](Mpqs::try_inline) packet that is the last of its message. Equal to
    /// [`begin_inline`](Mpqs::begin_inline) and [`complete`](Mpqs::complete).
    #[inline]
    pub fn end_inline(&mut self, mpq: MpqId) -> Completed {
        let queue = &mut self.queues[mpq.0 as usize];
        if queue.kept_open || queue.rejecting {
            self.begin_inline(mpq, true);
            return self.complete(mpq, Stage::Payload, None);
        }
        debug_assert!(
            queue.head == NONE && queue.in_flight == 0 && queue.state == State::Payload,
            "the packet ran inline"
        );
        (queue.state, queue.params) = (State::Free, None);
        Completed { message_done: true, idle: true }
    }

    /// Keeps the current message of a queue open after its next end. A task of the message is in flight.
    pub fn keep_open(&mut self, mpq: MpqId) {
        self.queues[mpq.0 as usize].kept_open = true;
    }

    /// Context and stage of an owner's next task.
    #[must_use]
    #[inline]
    pub fn peek(&self, owner: u32) -> Option<(C, Stage)> {
        let queue = self.queues.get(self.owners.first_ready(owner) as usize)?;
        let stage = match queue.state {
            State::Header => Stage::Header,
            State::Completion => Stage::Completion,
            _ => Stage::Payload,
        };
        queue.params.map(|params| (params.context, stage))
    }

    /// Packet of an owner's next task.
    #[must_use]
    #[inline]
    pub fn next_packet(&self, owner: u32) -> Option<&P> {
        let head = self.queues.get(self.owners.first_ready(owner) as usize)?.head;
        self.pool.get(head)?.packet.as_ref()
    }

    /// First ready queue of an owner that has no task in flight.
    #[must_use]
    pub fn next_to_begin(&self, owner: u32) -> Option<MpqId> {
        let known = |at: u32| self.queues.get(at as usize).map(|queue| (MpqId(at), queue));
        let first = self.owners.first_ready(owner);
        let mut ready = std::iter::successors(known(first), |(_, queue)| known(queue.next_ready));
        ready.find(|(_, queue)| queue.in_flight == 0).map(|(mpq, _)| mpq)
    }

    /// Takes an owner's next task, round-robin among its ready queues.
    #[inline(always)]
    pub fn next_task(&mut self, owner: u32) -> Option<Task<C, P>> {
        let mpq = MpqId(self.owners.first_ready(owner));
        let Some(queue) = self.queues.get_mut(mpq.0 as usize) else {
            self.remove_backlog(owner);
            return None;
        };
        self.owners.pop_ready(owner, queue);
        let (Some(slot), Some(params)) = (self.pool.get_mut(queue.head), queue.params) else {
            unreachable!("a ready queue has a message and its packet");
        };
        queue.in_flight += 1;
        let (stage, releases_packet) = match queue.state {
            State::Payload => {
                queue.length -= 1;
                if slot.end_of_message {
                    queue.state = State::PayloadDraining;
                }
                (Stage::Payload, !(slot.end_of_message && params.completion))
            }
            State::Header => {
                queue.state = State::HeaderRunning;
                (Stage::Header, false)
            }
            State::Completion => {
                queue.state = State::CompletionRunning;
                (Stage::Completion, true)
            }
            state => unreachable!("a queue in state {state:?} is never listed as ready"),
        };
        let Some(packet) = slot.packet.take() else { unreachable!("no task owns a ready queue's packet") };
        let context = if params.per_packet { slot.params.context } else { params.context };
        if releases_packet && let Some(slot) = self.pool.free_head(queue) {
            self.owners.remove_her(&slot.params.context);
        }
        if queue.is_ready() {
            self.owners.push_ready(&mut self.queues, mpq, owner);
        }
        Some(Task { mpq, stage, context, packet, releases_packet })
    }

    /// Removes an owner that has no task left from [`Mpqs::backlogged`].
    pub fn remove_backlog(&mut self, owner: u32) {
        self.owners.remove_backlog(owner);
    }

    /// Reports a finished task. `packet` is the task's packet, kept for later tasks of the message. It is `None` if and
    /// only if the task [releases the packet](Task::releases_packet).
    ///
    /// # Panics
    /// When that is violated, or no such task is in flight: a bug in the caller, never in a packet.
    #[inline(always)]
    pub fn complete(&mut self, mpq: MpqId, stage: Stage, packet: Option<P>) -> Completed {
        let queue = &mut self.queues[mpq.0 as usize];
        assert!(queue.in_flight > 0, "completion for a queue with nothing in flight");
        queue.in_flight -= 1;
        // The common case: a payload task in the middle of its message changes no state.
        if packet.is_none() && queue.state == State::Payload && stage == Stage::Payload {
            return Completed { message_done: false, idle: false };
        }
        self.complete_stage(mpq, stage, packet)
    }

    /// Completes a task that may be followed by one of another stage.
    fn complete_stage(&mut self, mpq: MpqId, stage: Stage, packet: Option<P>) -> Completed {
        let queue = &mut self.queues[mpq.0 as usize];
        if let Some(packet) = packet {
            // The retained packet is the head: the first packet while the header task runs, the last one of the message
            // once payload tasks have popped all others.
            let Some(HerSlot { packet: place, .. }) = self.pool.get_mut(queue.head) else {
                unreachable!("a retained packet keeps its slot")
            };
            assert!(place.is_none(), "a packet came back to a slot that is taken");
            *place = Some(packet);
        }
        let mut message_done = false;
        match (queue.state, stage) {
            (State::HeaderRunning, Stage::Header) => queue.state = State::Payload,
            (State::Payload, Stage::Payload) => {}
            (State::PayloadDraining, Stage::Payload) if queue.in_flight > 0 => {}
            (State::PayloadDraining, Stage::Payload) if queue.params.is_some_and(|params| params.completion) => {
                queue.state = State::Completion;
            }
            (State::PayloadDraining, Stage::Payload) | (State::CompletionRunning, Stage::Completion) => {
                message_done = !queue.kept_open;
                self.end_message(mpq);
            }
            (State::Cancelling, _) if queue.in_flight > 0 => {}
            (State::Cancelling, _) => self.drain_cancelled(mpq),
            (state, stage) => panic!("completion of a {stage:?} task in state {state:?}"),
        }
        self.list_if_ready(mpq);
        Completed { message_done, idle: self.queues[mpq.0 as usize].state == State::Free }
    }

    /// Prefetches the state of a queue.
    #[inline]
    pub fn prefetch(&self, mpq: MpqId) {
        prefetch_in(&self.queues, mpq.0 as usize);
    }

    /// Whether a queue has HERs.
    #[must_use]
    #[inline]
    pub fn has_hers(&self, mpq: MpqId) -> bool {
        self.queues[mpq.0 as usize].head != NONE
    }

    /// Whether nothing of the queue is queued or in flight: it is Free, or between two packets of an open message.
    #[must_use]
    #[inline]
    pub fn is_quiescent(&self, mpq: MpqId) -> bool {
        let queue = &self.queues[mpq.0 as usize];
        queue.head == NONE && queue.in_flight == 0
    }

    /// Whether the queue has no task to run and none in flight: nothing is queued, or its message waits for its header.
    #[must_use]
    pub fn is_idle(&self, mpq: MpqId) -> bool {
        self.is_quiescent(mpq) || self.waiting(mpq).is_some()
    }

    /// Number of packets of a message that wait for its header. `None`: the queue's message does not wait for one.
    #[must_use]
    pub fn waiting(&self, mpq: MpqId) -> Option<u32> {
        let queue = &self.queues[mpq.0 as usize];
        (queue.state == State::Waiting).then_some(queue.length)
    }

    /// Context of the queue's current message.
    #[must_use]
    #[inline]
    pub fn context(&self, mpq: MpqId) -> Option<C> {
        self.queues[mpq.0 as usize].params.map(|params| params.context)
    }

    /// Begins a message with the HER at the head of a Free queue, and counts its HERs that have arrived. A message whose header has not
    /// arrived waits.
    #[inline]
    fn start_message(&mut self, mpq: MpqId) {
        let queue = &mut self.queues[mpq.0 as usize];
        let Some(first) = self.pool.get(queue.head) else { return };
        let mut params = first.params;
        if params.early {
            let Some(header) = self.pool.header_first(queue) else {
                (queue.params, queue.state, queue.length) = (Some(params), State::Waiting, self.pool.count(queue));
                return;
            };
            params = header;
        }
        queue.params = Some(params);
        queue.length = 0;
        queue.state = if params.header { State::Header } else { State::Payload };
        self.count_hers(mpq);
    }

    /// Counts the HERs of the message that begins or continues at the head of a queue.
    #[inline]
    fn count_hers(&mut self, mpq: MpqId) {
        let queue = &mut self.queues[mpq.0 as usize];
        let mut next = self.pool.get(queue.head);
        while let (Some(slot), false) = (next, queue.end_seen) {
            queue.length += 1;
            queue.end_seen = slot.end_of_message;
            next = self.pool.get(slot.next);
        }
        self.list_if_ready(mpq);
    }

    /// Ends the current message and starts the next one that has HERs. A message that is kept open continues instead.
    fn end_message(&mut self, mpq: MpqId) {
        let queue = &mut self.queues[mpq.0 as usize];
        queue.end_seen = false;
        if queue.rejecting && queue.head == NONE {
            (queue.state, queue.params, queue.kept_open) = (State::Cancelled, None, false);
            return;
        }
        if std::mem::take(&mut queue.kept_open) {
            queue.state = State::Payload;
            return self.count_hers(mpq);
        }
        queue.state = State::Free;
        queue.params = None;
        self.start_message(mpq);
    }

    #[inline(always)]
    fn list_if_ready(&mut self, mpq: MpqId) {
        let queue = &mut self.queues[mpq.0 as usize];
        if !queue.is_ready() || queue.listed {
            return;
        }
        let Some(owner) = queue.params.map(|params| params.context.owner()) else { return };
        self.owners.push_ready(&mut self.queues, mpq, owner);
    }

    /// Whether a queue is Free: it has no message, no HER and no task in flight.
    #[doc(hidden)]
    #[must_use]
    pub fn is_free(&self, mpq: MpqId) -> bool {
        self.queues[mpq.0 as usize].state == State::Free
    }

    /// Number of tasks in flight.
    #[doc(hidden)]
    #[must_use]
    pub fn tasks_in_flight(&self) -> usize {
        self.queues.iter().map(|queue| queue.in_flight as usize).sum()
    }

    /// Checks queues, the HER pool and the ready lists against each other. Takes time proportional to their sizes.
    ///
    /// # Panics
    /// When they disagree: a bug.
    #[doc(hidden)]
    pub fn check(&self) {
        let mut queued = 0;
        let mut by_owner = vec![0; self.owners.count()];
        for (number, queue) in self.queues.iter().enumerate() {
            queue.check(number);
            let (mut at, mut last) = (queue.head, NONE);
            while let Some(slot) = self.pool.get(at) {
                let is_with_task = at == queue.head && queue.in_flight > 0;
                assert!(slot.packet.is_some() || is_with_task, "queue {number}: a HER without packet");
                by_owner[slot.params.context.owner() as usize] += 1;
                queued += 1;
                (last, at) = (at, slot.next);
            }
            assert_eq!(queue.tail, last, "queue {number}: its last HER");
        }
        self.pool.check(queued);
        let listed = self.owners.check(&self.queues, &by_owner);
        let ready = self.queues.iter().filter(|queue| queue.is_ready()).count();
        assert_eq!(listed, ready, "ready queues in their owners' lists");
        assert!(self.cancelled.is_empty(), "packets of cancelled messages are left");
    }
}
