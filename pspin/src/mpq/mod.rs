//! Message processing queues: the order of handlers within each message (PsPIN paper §III-B1).
//!
//! ```text
//! Free --HER--> header handler present ? Header : Payload
//! Header --task sent--> HeaderRunning --feedback--> Payload
//! Payload --(task sent for the end-of-message packet)--> PayloadDraining
//! PayloadDraining --(feedback, in_flight was 1)--> completion handler present ? Completion : Free
//! Completion --task sent--> CompletionRunning --feedback--> Free
//! ```
//! The context and which handlers it has are latched from a message's first HER. The header task sees the first packet,
//! which stays queued: the payload task runs on it too. With a completion handler the end-of-message packet stays
//! until the completion task has seen it. Queues that are ready are listed by their message's owner, and an owner's are served
//! round-robin; the scheduler chooses the owner.
//!
//! A message that is [killed](Mpqs::cancel) at any point gets no more tasks; its packets, those that are still to come too, are given
//! up until its end, and with that its queue is Free.
//!
//! A message that is [kept open](Mpqs::keep_open) does not end with its last packet: instead of Free its queue is Payload again, and
//! what comes next is part of it, up to the next packet that is a last one.
//!
//! Where the RTL wedges, these are our rules: a HER that arrives after the end of its message was seen belongs to the next
//! message of that queue, which starts when this one is Free; a message whose first HER is also its last has one packet.
//!
//! A packet is moved into a [`Task`] and back by [`Mpqs::complete`]: one owner at any time. Nothing allocates after
//! [`Mpqs::new`] and [`Mpqs::add_owner`].

use hpu_vm::Kind;
use spin_frame::prefetch_in;

/// Index of a message processing queue; handlers know it as the flow id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MpqId(pub u32);

impl MpqId {
    /// None of them.
    pub const NONE: Self = Self(u32::MAX);
}

/// Which of a context's handlers runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// On the first packet, before any payload handler.
    Header,
    /// On every packet.
    Payload,
    /// On the last packet, after every payload handler.
    Completion,
}

impl Stage {
    /// As users know it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Payload => "payload",
            Self::Completion => "completion",
        }
    }

    /// The handler of an image that runs in this stage.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Header => Kind::Header,
            Self::Payload => Kind::Payload,
            Self::Completion => Kind::Completion,
        }
    }
}

/// Whose messages are whose.
pub trait Owned {
    /// Index of the owner, which [`Mpqs::add_owner`] was told of.
    fn owner(&self) -> u32;
}

/// What a message latches from its first HER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageParams<C> {
    /// The execution context.
    pub context: C,
    /// It has a header handler.
    pub header: bool,
    /// It has a completion handler.
    pub completion: bool,
}

/// Handler execution request: a packet that waits for its handlers.
#[derive(Debug)]
pub struct Her<C, P> {
    /// What its message latches if this is the first.
    pub params: MessageParams<C>,
    /// The last packet of its message.
    pub end_of_message: bool,
    /// The packet itself.
    pub packet: P,
}

/// A handler to run now.
#[derive(Debug)]
pub struct Task<C, P> {
    /// The queue it belongs to.
    pub mpq: MpqId,
    /// Which handler.
    pub stage: Stage,
    /// The context its message latched.
    pub context: C,
    /// The packet, owned by the task until its feedback.
    pub packet: P,
    /// No later task needs this packet.
    pub releases_packet: bool,
}

/// What a finished task leaves to do.
#[derive(Debug, PartialEq, Eq)]
pub struct Completed {
    /// The message is complete.
    pub message_done: bool,
    /// The queue holds nothing any more and can serve another message key.
    pub idle: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Header,
    HeaderRunning,
    Payload,
    PayloadDraining,
    Completion,
    CompletionRunning,
    /// Killed, and tasks are in flight.
    Cancelling,
    /// Killed, and its end is still to come.
    Cancelled,
}

/// Why a HER was not queued.
#[derive(Debug, PartialEq, Eq)]
pub enum Rejected<P> {
    /// There is no [room](Mpqs::room): the inbound engine has to wait.
    Full(P),
    /// Its message was killed.
    Cancelled {
        /// The packet.
        packet: P,
        /// Its message was [behind](Mpqs::cancel_next) the current one then.
        behind: bool,
        /// It was the message's last, and the queue holds nothing any more.
        idle: bool,
    },
}

/// Index into [`Mpqs::slots`], or [`NONE`].
type SlotIndex = u32;

/// No slot, and no queue: the end of a list.
const NONE: u32 = u32::MAX;

/// A place for one HER, linked into its queue or into the free list.
struct Slot<C, P> {
    /// `None` in the free list and while a task owns the packet.
    packet: Option<P>,
    params: MessageParams<C>,
    end_of_message: bool,
    next: SlotIndex,
}

#[repr(align(64))]
struct Mpq<C> {
    params: Option<MessageParams<C>>,
    state: State,
    /// HERs in order of arrival: the current message's first, then those of the messages after it.
    head: SlotIndex,
    tail: SlotIndex,
    /// HERs of the current message that no payload task was sent for.
    length: u32,
    in_flight: u32,
    /// The current message's last HER has arrived.
    end_seen: bool,
    /// The current message goes on after its next end.
    kept_open: bool,
    /// What arrives is of a message that was killed behind the current one, up to its end.
    rejecting: bool,
    /// Listed with its owner's ready queues.
    listed: bool,
    /// The next of that list.
    next_ready: u32,
}

impl<C> Mpq<C> {
    const fn new() -> Self {
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

    /// What a message latches whose first packet is about to get its payload task.
    #[inline]
    fn first_params(&self, params: impl FnOnce() -> MessageParams<C>) -> Option<MessageParams<C>> {
        let is_first = self.state == State::Free && self.params.is_none() && self.head == NONE && self.in_flight == 0;
        is_first.then(params).filter(|params| !params.header)
    }

    /// A payload task is in flight, of a packet that was never queued.
    #[inline]
    const fn begin_payload(&mut self, end_of_message: bool) {
        self.in_flight += 1;
        if end_of_message {
            (self.end_seen, self.state) = (true, State::PayloadDraining);
        }
    }

    #[inline]
    const fn ready(&self) -> bool {
        match self.state {
            State::Header | State::Completion => true,
            State::Payload => self.length > 0,
            _ => false,
        }
    }
}

/// What an owner's messages have waiting.
#[derive(Clone, Copy)]
struct Owner {
    /// First and last of its ready queues; the last one means nothing if there is no first one.
    ready: [u32; 2],
    /// HERs of its messages.
    hers: u32,
    /// Listed in [`Mpqs::backlogged`].
    listed: bool,
}

impl Owner {
    const NEW: Self = Self { ready: [NONE; 2], hers: 0, listed: false };
}

/// All message processing queues of one home thread.
pub struct Mpqs<C, P> {
    queues: Vec<Mpq<C>>,
    slots: Vec<Slot<C, P>>,
    free: SlotIndex,
    free_count: usize,
    owners: Vec<Owner>,
    /// All owners with ready queues, in no order, and others that had some until [`Mpqs::next_task`] is asked for one more.
    backlogged: Vec<u32>,
    /// See [`Mpqs::pop_cancelled`].
    cancelled: Vec<P>,
}

impl<C: Copy + Owned, P> Mpqs<C, P> {
    /// `queues` queues that share room for `hers` HERs. `blank` fills unused slots.
    #[must_use]
    pub fn new(queues: u32, hers: u32, blank: MessageParams<C>) -> Self {
        let slots = (0..hers)
            .map(|index| Slot {
                packet: None,
                params: blank,
                end_of_message: false,
                next: if index + 1 < hers { index + 1 } else { NONE },
            })
            .collect();
        Self {
            queues: (0..queues).map(|_| Mpq::new()).collect(),
            slots,
            free: if hers > 0 { 0 } else { NONE },
            free_count: hers as usize,
            owners: Vec::new(),
            backlogged: Vec::new(),
            cancelled: Vec::with_capacity(hers as usize),
        }
    }

    /// Makes room for the messages of an owner.
    pub fn add_owner(&mut self, owner: u32) {
        let owners = self.owners.len().max(owner as usize + 1);
        self.owners.resize(owners, Owner::NEW);
        self.backlogged.reserve(owners);
    }

    /// Owners that have a task to run, in no order, and some that had until their last one was taken.
    #[must_use]
    #[inline]
    pub fn backlogged(&self) -> &[u32] {
        &self.backlogged
    }

    /// HERs that the messages of an owner hold.
    #[must_use]
    #[inline]
    pub fn held(&self, owner: u32) -> u32 {
        self.owners[owner as usize].hers
    }

    /// How many more HERs fit: the inbound engine's credit.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.free_count
    }

    /// Queues a HER.
    ///
    /// # Errors
    /// Gives the packet back: see [`Refused`].
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
        self.free != NONE
            && !queue.rejecting
            && (queue.end_seen || !matches!(queue.state, State::Cancelling | State::Cancelled))
    }

    /// Whether what comes next is of a message that the queue has some of: the last one's end has not arrived.
    #[must_use]
    pub fn is_message_open(&self, mpq: MpqId) -> bool {
        let queue = &self.queues[mpq.0 as usize];
        let ended = queue.end_seen && !queue.kept_open && !queue.rejecting;
        !ended || self.slots.get(queue.tail as usize).is_some_and(|last| !last.end_of_message)
    }

    /// Queues a HER that the queue [takes](Mpqs::accepts). Its parts go to their places one by one: as a whole they would be written
    /// to memory and read back before the stores are through.
    ///
    /// # Panics
    /// When the queue does not take it.
    #[inline(always)]
    pub fn put(&mut self, mpq: MpqId, her: Her<C, P>) {
        let Her { params, end_of_message, packet } = her;
        let index = self.free;
        let Some(slot @ Slot { packet: None, .. }) = self.slots.get_mut(index as usize) else {
            unreachable!("a slot that is free holds no packet")
        };
        self.free = slot.next;
        self.free_count -= 1;
        self.owners[params.context.owner() as usize].hers += 1;
        (slot.packet, slot.params, slot.end_of_message, slot.next) = (Some(packet), params, end_of_message, NONE);
        let queue = &mut self.queues[mpq.0 as usize];
        match self.slots.get_mut(std::mem::replace(&mut queue.tail, index) as usize) {
            Some(tail) => tail.next = index,
            None => queue.head = index,
        }
        if queue.state == State::Free {
            self.start_message(mpq);
        } else if !queue.end_seen {
            queue.length += 1;
            queue.end_seen = end_of_message;
            self.list_if_ready(mpq);
        }
    }

    /// Whether a packet need not wait for its payload task: nothing of its message is queued or in flight, and no other handler has to
    /// run on it. Returns what the task is bound to then, which has the packet for the [last time](Task::releases_packet). `latch` is what its
    /// message latches if this is the first.
    ///
    /// The task is to be [held](Mpqs::begin_inline) if it is the message's last one, or before anything but this is asked of the queue.
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

    /// The same of a packet that is not its message's first.
    #[inline(always)]
    pub fn try_inline_next(&self, mpq: MpqId, end_of_message: bool) -> Option<C> {
        let queue = &self.queues[mpq.0 as usize];
        let params = queue.params.as_ref().filter(|_| queue.state == State::Payload && queue.head == NONE)?;
        (queue.in_flight == 0 && !(params.completion && end_of_message)).then_some(params.context)
    }

    /// The task of a packet that [passed](Mpqs::try_inline) is in flight, up to its [feedback](Mpqs::complete).
    #[inline]
    pub fn begin_inline(&mut self, mpq: MpqId, end_of_message: bool) {
        self.queues[mpq.0 as usize].begin_payload(end_of_message);
    }

    /// The task of a message's last packet is over, which [passed](Mpqs::try_inline): as [held](Mpqs::begin_inline) and [fed back](Mpqs::complete).
    #[inline]
    pub fn end_inline(&mut self, mpq: MpqId) -> Completed {
        let queue = &mut self.queues[mpq.0 as usize];
        if queue.kept_open || queue.rejecting {
            self.begin_inline(mpq, true);
            return self.complete(mpq, Stage::Payload, None);
        }
        debug_assert!(queue.head == NONE && queue.in_flight == 0 && queue.state == State::Payload, "it passed");
        (queue.state, queue.params) = (State::Free, None);
        Completed { message_done: true, idle: true }
    }

    /// Why the queue does not [take](Mpqs::accepts) a HER: for want of room, or it is one of a message that was killed.
    #[cold]
    pub fn reject(&mut self, mpq: MpqId, her: Her<C, P>) -> Rejected<P> {
        let queue = &mut self.queues[mpq.0 as usize];
        let behind = queue.rejecting;
        if behind {
            queue.rejecting = !her.end_of_message;
        } else if queue.end_seen || !matches!(queue.state, State::Cancelling | State::Cancelled) {
            return Rejected::Full(her.packet);
        } else {
            queue.end_seen = her.end_of_message;
            // All that is queued is of this message: what comes behind it is not.
            if let Some(last) = self.slots.get_mut(queue.tail as usize) {
                last.end_of_message = her.end_of_message;
            }
        }
        if her.end_of_message && queue.state == State::Cancelled {
            self.end_message(mpq);
        }
        Rejected::Cancelled { packet: her.packet, behind, idle: self.queues[mpq.0 as usize].state == State::Free }
    }

    /// Gives up the message of which packets arrive behind a dead one whose end has come: those that are here are in
    /// [`Mpqs::pop_cancelled`], those still to come are refused up to its end.
    ///
    /// # Panics
    /// When there is no such message.
    pub fn cancel_next(&mut self, mpq: MpqId) {
        let queue = &mut self.queues[mpq.0 as usize];
        assert!(
            queue.state == State::Cancelling && queue.end_seen && !queue.rejecting,
            "nothing arrives behind a cancelled message"
        );
        let (mut before, mut first) = (NONE, queue.head);
        let next = |at: u32| self.slots.get(at as usize).map(|slot| (slot.end_of_message, slot.next));
        for _ in 0..queue.length {
            (before, first) = (first, next(first).map_or(NONE, |(_, next)| next));
        }
        // Its HERs are those behind the last end.
        let mut at = first;
        while let Some((end, next)) = next(at) {
            if end {
                (before, first) = (at, next);
            }
            at = next;
        }
        match self.slots.get_mut(before as usize) {
            Some(slot) => slot.next = NONE,
            None => queue.head = NONE,
        }
        (queue.tail, queue.rejecting) = (before, true);
        while let Some(slot) = self.slots.get_mut(first as usize) {
            let next = std::mem::replace(&mut slot.next, std::mem::replace(&mut self.free, first));
            self.free_count += 1;
            self.owners[slot.params.context.owner() as usize].hers -= 1;
            self.cancelled.extend(slot.packet.take());
            first = next;
        }
    }

    /// Gives up the current message of a queue, or the one that is about to begin there, with all its packets that are here or
    /// still to come, up to its end: it is not kept open unless that is asked for again. Those that are here are in
    /// [`Mpqs::pop_cancelled`] as soon as no task of the message is in flight. Returns whether the queue holds nothing any more.
    pub fn cancel(&mut self, mpq: MpqId) -> bool {
        if self.is_cancelled(mpq) {
            return false;
        }
        // While it is on its owner's list it counts as ready.
        self.unlist(mpq);
        let queue = &mut self.queues[mpq.0 as usize];
        let kept = matches!(queue.state, State::PayloadDraining | State::Completion)
            && queue.params.is_some_and(|params| params.completion);
        // From here on: those that have a place in the queue.
        queue.length += u32::from(kept);
        queue.state = State::Cancelling;
        queue.kept_open = false;
        if queue.in_flight == 0 {
            self.drain_cancelled(mpq);
        }
        self.queues[mpq.0 as usize].state == State::Free
    }

    /// The current message of a queue, of which a task is in flight, goes on after its next end.
    pub fn keep_open(&mut self, mpq: MpqId) {
        self.queues[mpq.0 as usize].kept_open = true;
    }

    /// Whether the current message of a queue was killed.
    #[must_use]
    pub fn is_cancelled(&self, mpq: MpqId) -> bool {
        matches!(self.queues[mpq.0 as usize].state, State::Cancelling | State::Cancelled)
    }

    /// Hands over the packets of a dying message that has no task in flight.
    fn drain_cancelled(&mut self, mpq: MpqId) {
        for _ in 0..std::mem::take(&mut self.queues[mpq.0 as usize].length) {
            if let Some(packet) = self.pop(mpq) {
                self.cancelled.push(packet);
            }
        }
        let queue = &mut self.queues[mpq.0 as usize];
        if queue.end_seen {
            self.end_message(mpq);
        } else {
            queue.state = State::Cancelled;
        }
    }

    /// A packet of a message that was killed.
    pub fn pop_cancelled(&mut self) -> Option<P> {
        self.cancelled.pop()
    }

    /// What the next task of an owner is bound to, and which handler's it is.
    #[must_use]
    #[inline]
    pub fn peek(&self, owner: u32) -> Option<(C, Stage)> {
        let [first, _] = self.owners[owner as usize].ready;
        let queue = self.queues.get(first as usize)?;
        let stage = match queue.state {
            State::Header => Stage::Header,
            State::Completion => Stage::Completion,
            _ => Stage::Payload,
        };
        queue.params.map(|params| (params.context, stage))
    }

    /// The packet of the next task of an owner.
    #[must_use]
    #[inline]
    pub fn next_packet(&self, owner: u32) -> Option<&P> {
        let [first, _] = self.owners[owner as usize].ready;
        let head = self.queues.get(first as usize)?.head;
        self.slots.get(head as usize)?.packet.as_ref()
    }

    /// The queue whose next task comes first, of an owner's of which none is in flight.
    #[must_use]
    pub fn next_to_begin(&self, owner: u32) -> Option<MpqId> {
        let known = |at: u32| self.queues.get(at as usize).map(|queue| (MpqId(at), queue));
        let [first, _] = self.owners[owner as usize].ready;
        let mut ready = std::iter::successors(known(first), |(_, queue)| known(queue.next_ready));
        ready.find(|(_, queue)| queue.in_flight == 0).map(|(mpq, _)| mpq)
    }

    /// Takes an owner's next task, round-robin among its ready queues.
    #[inline(always)]
    pub fn next_task(&mut self, owner: u32) -> Option<Task<C, P>> {
        let own = &mut self.owners[owner as usize];
        let mpq = MpqId(own.ready[0]);
        let Some(queue) = self.queues.get_mut(mpq.0 as usize) else {
            self.remove_backlog(owner);
            return None;
        };
        own.ready[0] = std::mem::replace(&mut queue.next_ready, NONE);
        let (Some(slot), Some(params)) = (self.slots.get_mut(queue.head as usize), queue.params) else {
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
        let Some(packet) = slot.packet.take() else { unreachable!("a ready queue's packet is at home") };
        queue.listed = false;
        if releases_packet {
            unlink(queue, slot, &mut self.free);
            self.free_count += 1;
            self.owners[slot.params.context.owner() as usize].hers -= 1;
        }
        if queue.ready() {
            self.list(mpq, owner);
        }
        Some(Task { mpq, stage, context: params.context, packet, releases_packet })
    }

    /// The owner has no task any more.
    pub fn remove_backlog(&mut self, owner: u32) {
        if std::mem::take(&mut self.owners[owner as usize].listed) {
            self.backlogged.retain(|&other| other != owner);
        }
    }

    /// Reports a finished task. `packet` is the task's packet, to be kept for the message's later tasks; it is `None` if
    /// and only if the task had it for the [last time](Task::releases_packet).
    ///
    /// # Panics
    /// When that is violated, or no such task is in flight: a bug in the caller, never in a packet.
    #[inline(always)]
    pub fn complete(&mut self, mpq: MpqId, stage: Stage, packet: Option<P>) -> Completed {
        let queue = &mut self.queues[mpq.0 as usize];
        assert!(queue.in_flight > 0, "feedback for a queue with nothing in flight");
        queue.in_flight -= 1;
        // What most tasks come to: others of the message change nothing about it.
        if packet.is_none() && queue.state == State::Payload && stage == Stage::Payload {
            return Completed { message_done: false, idle: false };
        }
        self.complete_end(mpq, stage, packet)
    }

    /// Feedback of a task after which another one may have to come, of another kind.
    fn complete_end(&mut self, mpq: MpqId, stage: Stage, packet: Option<P>) -> Completed {
        let queue = &mut self.queues[mpq.0 as usize];
        if let Some(packet) = packet {
            // The retained packet is the head: the first one while the header runs, the last one of the message
            // once payload tasks have popped all others.
            let Some(Slot { packet: home, .. }) = self.slots.get_mut(queue.head as usize) else {
                unreachable!("a retained packet keeps its place")
            };
            assert!(home.is_none(), "a packet came back for a place that is taken");
            *home = Some(packet);
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
            (state, stage) => panic!("feedback of a {stage:?} task in state {state:?}"),
        }
        self.list_if_ready(mpq);
        Completed { message_done, idle: self.queues[mpq.0 as usize].state == State::Free }
    }

    /// Empties a queue and makes it Free, handing its packets to `sink`.
    ///
    /// # Panics
    /// When a task of this queue is in flight; its packet would have no place to return to.
    pub fn reset(&mut self, mpq: MpqId, sink: impl FnMut(P)) {
        assert!(self.queues[mpq.0 as usize].in_flight == 0, "reset of a queue with tasks in flight");
        self.abandon(mpq, sink);
    }

    /// The same, of a queue that may have tasks in flight. These are its no longer: there is to be no feedback of them.
    pub fn abandon(&mut self, mpq: MpqId, mut sink: impl FnMut(P)) {
        while self.queues[mpq.0 as usize].head != NONE {
            if let Some(packet) = self.pop(mpq) {
                sink(packet);
            }
        }
        self.unlist(mpq);
        self.queues[mpq.0 as usize] = Mpq::new();
    }

    /// Takes a queue off its owner's list.
    fn unlist(&mut self, mpq: MpqId) {
        let Mpq { listed: true, params: Some(params), next_ready, .. } = self.queues[mpq.0 as usize] else { return };
        let [first, last] = &mut self.owners[params.context.owner() as usize].ready;
        let (mut before, mut at) = (NONE, *first);
        while at != mpq.0 {
            (before, at) = (at, self.queues[at as usize].next_ready);
        }
        match self.queues.get_mut(before as usize) {
            Some(queue) => queue.next_ready = next_ready,
            None => *first = next_ready,
        }
        if next_ready == NONE {
            *last = before;
        }
        let queue = &mut self.queues[mpq.0 as usize];
        (queue.next_ready, queue.listed) = (NONE, false);
    }

    /// Asks for what is known of a queue to be brought near.
    #[inline]
    pub fn prefetch(&self, mpq: MpqId) {
        prefetch_in(&self.queues, mpq.0 as usize);
    }

    /// Whether the queue is between two packets of an open message: nothing queued, nothing in flight.
    #[must_use]
    pub fn is_quiescent(&self, mpq: MpqId) -> bool {
        let queue = &self.queues[mpq.0 as usize];
        queue.head == NONE && queue.in_flight == 0
    }

    /// The context whose message the queue is serving.
    #[must_use]
    pub fn context(&self, mpq: MpqId) -> Option<C> {
        self.queues[mpq.0 as usize].params.map(|params| params.context)
    }

    /// Begins a message with the HER at the head of a Free queue, and counts its HERs that are already here.
    #[inline]
    fn start_message(&mut self, mpq: MpqId) {
        let queue = &mut self.queues[mpq.0 as usize];
        let Some(first) = self.slots.get(queue.head as usize) else { return };
        let params = first.params;
        queue.params = Some(params);
        queue.state = if params.header { State::Header } else { State::Payload };
        self.count_hers(mpq);
    }

    /// Counts the HERs of the message that begins, or goes on, at the head of a queue.
    #[inline]
    fn count_hers(&mut self, mpq: MpqId) {
        let queue = &mut self.queues[mpq.0 as usize];
        let mut next = self.slots.get(queue.head as usize);
        while let (Some(slot), false) = (next, queue.end_seen) {
            queue.length += 1;
            queue.end_seen = slot.end_of_message;
            next = self.slots.get(slot.next as usize);
        }
        self.list_if_ready(mpq);
    }

    /// Frees a queue, and starts the message that waits behind the one that ended. If that was kept open, it goes on instead.
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
        if !queue.ready() || queue.listed {
            return;
        }
        let Some(owner) = queue.params.map(|params| params.context.owner()) else { return };
        self.list(mpq, owner);
    }

    /// Puts a queue that is ready on its owner's list.
    #[inline]
    fn list(&mut self, mpq: MpqId, owner: u32) {
        self.queues[mpq.0 as usize].listed = true;
        let Owner { ready: [first, last], listed, .. } = &mut self.owners[owner as usize];
        let before = std::mem::replace(last, mpq.0);
        if *first != NONE {
            self.queues[before as usize].next_ready = mpq.0;
            return;
        }
        *first = mpq.0;
        if !std::mem::replace(listed, true) {
            self.backlogged.push(owner);
        }
    }

    /// Unlinks the head of a queue and returns its packet, if it is at home.
    #[inline]
    fn pop(&mut self, mpq: MpqId) -> Option<P> {
        let queue = &mut self.queues[mpq.0 as usize];
        let slot = self.slots.get_mut(queue.head as usize)?;
        unlink(queue, slot, &mut self.free);
        self.free_count += 1;
        self.owners[slot.params.context.owner() as usize].hers -= 1;
        slot.packet.take()
    }
}

/// Moves the slot at the head of a queue to the free list.
#[inline]
const fn unlink<C, P>(queue: &mut Mpq<C>, slot: &mut Slot<C, P>, free: &mut SlotIndex) {
    let index = std::mem::replace(&mut queue.head, slot.next);
    if queue.head == NONE {
        queue.tail = NONE;
    }
    slot.next = std::mem::replace(free, index);
}
