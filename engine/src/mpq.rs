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
//! until the completion task has seen it. Ready queues are served round-robin.
//!
//! Where the RTL wedges, these are our rules: a HER that arrives after the end of its message was seen belongs to the next
//! message of that queue, which starts when this one is Free; a message whose first HER is also its last has one packet.
//!
//! A packet is moved into a [`Task`] and back by [`Mpqs::feedback`]: one owner at any time. Nothing allocates after
//! [`Mpqs::new`].

use std::collections::VecDeque;

use hpu_vm::Kind;

/// Index of a message processing queue; handlers know it as the flow id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MpqId(pub u32);

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

/// What a message latches from its first HER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latch<C> {
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
    pub latch: Latch<C>,
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
    pub last_use: bool,
}

/// What a finished task leaves to do.
#[derive(Debug, PartialEq, Eq)]
pub struct Feedback {
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
}

/// Index into [`Mpqs::slots`].
type SlotIndex = u32;

/// A place for one HER, linked into its queue or into the free list.
struct Slot<C, P> {
    /// `None` in the free list and while a task owns the packet.
    packet: Option<P>,
    latch: Latch<C>,
    end_of_message: bool,
    next: Option<SlotIndex>,
}

struct Mpq<C> {
    state: State,
    latch: Option<Latch<C>>,
    /// HERs in order of arrival: the current message's first, then those of the messages after it.
    head: Option<SlotIndex>,
    tail: Option<SlotIndex>,
    /// HERs of the current message that no payload task was sent for.
    length: u32,
    in_flight: u32,
    /// The current message's last HER has arrived.
    end_seen: bool,
    /// Listed in [`Mpqs::ready`].
    listed: bool,
}

impl<C> Mpq<C> {
    const fn new() -> Self {
        Self {
            state: State::Free,
            latch: None,
            head: None,
            tail: None,
            length: 0,
            in_flight: 0,
            end_seen: false,
            listed: false,
        }
    }

    const fn ready(&self) -> bool {
        match self.state {
            State::Header | State::Completion => true,
            State::Payload => self.length > 0,
            _ => false,
        }
    }
}

/// All message processing queues of one home thread.
pub struct Mpqs<C, P> {
    queues: Vec<Mpq<C>>,
    slots: Vec<Slot<C, P>>,
    free: Option<SlotIndex>,
    free_count: usize,
    ready: VecDeque<MpqId>,
}

impl<C: Copy, P> Mpqs<C, P> {
    /// `queues` queues that share room for `hers` HERs. `blank` fills unused slots.
    #[must_use]
    pub fn new(queues: u32, hers: u32, blank: Latch<C>) -> Self {
        let slots = (0..hers)
            .map(|index| Slot {
                packet: None,
                latch: blank,
                end_of_message: false,
                next: (index + 1 < hers).then_some(index + 1),
            })
            .collect();
        Self {
            queues: (0..queues).map(|_| Mpq::new()).collect(),
            slots,
            free: (hers > 0).then_some(0),
            free_count: hers as usize,
            ready: VecDeque::with_capacity(queues as usize),
        }
    }

    /// How many more HERs fit: the inbound engine's credit.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.free_count
    }

    /// Queues a HER.
    ///
    /// # Errors
    /// Gives the HER back when there is no [room](Self::room): the inbound engine has to wait.
    #[inline]
    pub fn push(&mut self, mpq: MpqId, her: Her<C, P>) -> Result<(), Her<C, P>> {
        let Some(index) = self.free else { return Err(her) };
        let slot = &mut self.slots[index as usize];
        self.free = slot.next.take();
        self.free_count -= 1;
        *slot = Slot { packet: Some(her.packet), latch: her.latch, end_of_message: her.end_of_message, next: None };

        let queue = &mut self.queues[mpq.0 as usize];
        match queue.tail.replace(index) {
            None => queue.head = Some(index),
            Some(tail) => self.slots[tail as usize].next = Some(index),
        }
        if queue.state == State::Free {
            self.start_message(mpq);
        } else if !queue.end_seen {
            queue.length += 1;
            queue.end_seen = her.end_of_message;
            self.list_if_ready(mpq);
        }
        Ok(())
    }

    /// Takes the next task, round-robin among ready queues.
    #[inline]
    pub fn next_task(&mut self) -> Option<Task<C, P>> {
        let mpq = self.ready.pop_front()?;
        let queue = &mut self.queues[mpq.0 as usize];
        queue.listed = false;
        let (Some(head), Some(latch)) = (queue.head, queue.latch) else {
            unreachable!("a ready queue has a message and its packet");
        };
        queue.in_flight += 1;
        let (stage, last_use) = match queue.state {
            State::Header => {
                queue.state = State::HeaderRunning;
                (Stage::Header, false)
            }
            State::Payload => {
                queue.length -= 1;
                let ends = self.slots[head as usize].end_of_message;
                if ends {
                    queue.state = State::PayloadDraining;
                }
                (Stage::Payload, !(ends && latch.completion))
            }
            State::Completion => {
                queue.state = State::CompletionRunning;
                (Stage::Completion, true)
            }
            state => unreachable!("a queue in state {state:?} is never listed as ready"),
        };
        let packet = if last_use { self.pop(mpq) } else { self.slots[head as usize].packet.take() };
        let Some(packet) = packet else { unreachable!("a ready queue's packet is at home") };
        self.list_if_ready(mpq);
        Some(Task { mpq, stage, context: latch.context, packet, last_use })
    }

    /// Reports a finished task. `packet` is the task's packet, to be kept for the message's later tasks; it is `None` if
    /// and only if the task had it for the [last time](Task::last_use).
    ///
    /// # Panics
    /// When that is violated, or no such task is in flight: a bug in the caller, never in a packet.
    #[inline]
    pub fn feedback(&mut self, mpq: MpqId, stage: Stage, packet: Option<P>) -> Feedback {
        let queue = &mut self.queues[mpq.0 as usize];
        assert!(queue.in_flight > 0, "feedback for a queue with nothing in flight");
        queue.in_flight -= 1;
        if let Some(packet) = packet {
            // The retained packet is the head: the first one while the header runs, the last one of the message
            // once payload tasks have popped all others.
            let Some(head) = queue.head else { unreachable!("a retained packet keeps its place") };
            let home = &mut self.slots[head as usize].packet;
            assert!(home.is_none(), "a packet came back for a place that is taken");
            *home = Some(packet);
        }
        let mut message_done = false;
        match (queue.state, stage) {
            (State::HeaderRunning, Stage::Header) => queue.state = State::Payload,
            (State::Payload, Stage::Payload) => {}
            (State::PayloadDraining, Stage::Payload) if queue.in_flight > 0 => {}
            (State::PayloadDraining, Stage::Payload) if queue.latch.is_some_and(|latch| latch.completion) => {
                queue.state = State::Completion;
            }
            (State::PayloadDraining, Stage::Payload) | (State::CompletionRunning, Stage::Completion) => {
                message_done = true;
                self.end_message(mpq);
            }
            (state, stage) => panic!("feedback of a {stage:?} task in state {state:?}"),
        }
        self.list_if_ready(mpq);
        Feedback { message_done, idle: self.queues[mpq.0 as usize].state == State::Free }
    }

    /// Empties a queue and makes it Free, handing its packets to `sink`.
    ///
    /// # Panics
    /// When a task of this queue is in flight; its packet would have no place to return to.
    pub fn reset(&mut self, mpq: MpqId, mut sink: impl FnMut(P)) {
        assert!(self.queues[mpq.0 as usize].in_flight == 0, "reset of a queue with tasks in flight");
        while self.queues[mpq.0 as usize].head.is_some() {
            if let Some(packet) = self.pop(mpq) {
                sink(packet);
            }
        }
        if self.queues[mpq.0 as usize].listed {
            self.ready.retain(|&listed| listed != mpq);
        }
        self.queues[mpq.0 as usize] = Mpq::new();
    }

    /// Whether the queue is between two packets of an open message: nothing queued, nothing in flight.
    #[must_use]
    pub fn is_quiescent(&self, mpq: MpqId) -> bool {
        let queue = &self.queues[mpq.0 as usize];
        queue.head.is_none() && queue.in_flight == 0
    }

    /// The context whose message the queue is serving.
    #[must_use]
    pub fn context(&self, mpq: MpqId) -> Option<C> {
        self.queues[mpq.0 as usize].latch.map(|latch| latch.context)
    }

    /// Begins a message with the HER at the head of a Free queue, and counts its HERs that are already here.
    #[inline]
    fn start_message(&mut self, mpq: MpqId) {
        let queue = &mut self.queues[mpq.0 as usize];
        let mut at = queue.head;
        let Some(first) = at else { return };
        let latch = self.slots[first as usize].latch;
        queue.latch = Some(latch);
        queue.state = if latch.header { State::Header } else { State::Payload };
        while let (Some(index), false) = (at, queue.end_seen) {
            let slot = &self.slots[index as usize];
            queue.length += 1;
            queue.end_seen = slot.end_of_message;
            at = slot.next;
        }
        self.list_if_ready(mpq);
    }

    /// Frees a queue, and starts the message that waits behind the one that ended.
    fn end_message(&mut self, mpq: MpqId) {
        let queue = &mut self.queues[mpq.0 as usize];
        queue.state = State::Free;
        queue.latch = None;
        queue.end_seen = false;
        self.start_message(mpq);
    }

    #[inline]
    fn list_if_ready(&mut self, mpq: MpqId) {
        let queue = &mut self.queues[mpq.0 as usize];
        if queue.ready() && !queue.listed {
            queue.listed = true;
            self.ready.push_back(mpq);
        }
    }

    /// Unlinks the head of a queue and returns its packet, if it is at home.
    #[inline]
    fn pop(&mut self, mpq: MpqId) -> Option<P> {
        let queue = &mut self.queues[mpq.0 as usize];
        let index = queue.head?;
        let slot = &mut self.slots[index as usize];
        let packet = slot.packet.take();
        queue.head = slot.next.take();
        if queue.head.is_none() {
            queue.tail = None;
        }
        slot.next = self.free.replace(index);
        self.free_count += 1;
        packet
    }
}
