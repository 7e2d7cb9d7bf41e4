//! The MPQ engine against a naive model, under random arrivals and random orders of completion.

use std::collections::VecDeque;

use proptest::prelude::*;
use spin_pspin::mpq::{Her, MessageParams, MpqId, Mpqs, Owned, Rejected, Stage, Task};
use spin_testing::bounded;

const QUEUES: u32 = 3;
const HERS: u32 = 12;
const OWNERS: u32 = 2;

/// Packets are numbered in order of arrival, so that a lost or duplicated packet shows.
type Packet = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Context(u32);

impl Owned for Context {
    fn owner(&self) -> u32 {
        self.0 % OWNERS
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push {
        mpq: u32,
        context: Context,
        header: bool,
        completion: bool,
        early: bool,
        end_of_message: bool,
    },
    /// A packet that may need no queue.
    Pass {
        mpq: u32,
        context: Context,
        header: bool,
        completion: bool,
        early: bool,
        end_of_message: bool,
    },
    Take {
        owner: u32,
    },
    Kill {
        mpq: u32,
    },
    /// Cancels the arriving message behind a cancelled one, if there is one.
    KillBehind {
        mpq: u32,
    },
    /// Ends the arriving message of a queue whose messages have payload handlers only.
    Close {
        mpq: u32,
    },
    /// The message of a running handler is kept open.
    KeepOpen(usize),
    /// Completes the n-th task in flight (modulo their number).
    Feedback(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let flags = || (any::<bool>(), any::<bool>(), prop::bool::weighted(0.3), prop::bool::weighted(0.3));
    let arrival = || (0..QUEUES, (0..4u32).prop_map(Context), flags());
    prop_oneof![
        4 => arrival().prop_map(|(mpq, context, (header, completion, early, end_of_message))| {
            Op::Push { mpq, context, header, completion, early, end_of_message }
        }),
        2 => arrival().prop_map(|(mpq, context, (header, completion, early, end_of_message))| {
            Op::Pass { mpq, context, header, completion, early, end_of_message }
        }),
        4 => (0..OWNERS).prop_map(|owner| Op::Take { owner }),
        1 => (0..QUEUES).prop_map(|mpq| Op::Kill { mpq }),
        1 => (0..QUEUES).prop_map(|mpq| Op::KillBehind { mpq }),
        1 => (0..QUEUES).prop_map(|mpq| Op::Close { mpq }),
        1 => any::<usize>().prop_map(Op::KeepOpen),
        3 => any::<usize>().prop_map(Op::Feedback),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    params: MessageParams<Context>,
    end: bool,
    packet: Packet,
}

/// One queue as the paper's text describes it: a list of all arrivals, and the progress of the first message.
#[derive(Default)]
struct Naive {
    arrivals: VecDeque<Arrival>,
    header_sent: bool,
    header_done: bool,
    payloads_sent: usize,
    payloads_done: usize,
    completion_sent: bool,
    completion_done: bool,
    killed: bool,
    /// Whether the first message continues after its end.
    kept_open: bool,
    /// The latched parameters of a message that continued.
    carried: Option<MessageParams<Context>>,
    /// Whether the end of the cancelled message came after the cancellation.
    end_refused: bool,
    /// Whether the arriving message was cancelled behind the first one.
    refusing: bool,
}

impl Naive {
    /// The latched parameters of the first message.
    fn params(&self) -> Option<MessageParams<Context>> {
        self.carried.or(self.arrivals.front().map(|first| first.params))
    }

    /// The number of packets of the first message that have arrived, and whether its end has.
    fn message(&self) -> (usize, bool) {
        match self.arrivals.iter().position(|arrival| arrival.end) {
            Some(end) => (end + 1, true),
            None => (self.arrivals.len(), false),
        }
    }

    /// Whether the first message waits for its header.
    fn waits(&self) -> bool {
        let begun = self.carried.is_some() || self.header_sent || self.payloads_sent > 0;
        !self.killed && !begun && self.arrivals.front().is_some_and(|first| first.params.early)
    }

    /// Takes the header of a message that waits for it before all other packets.
    fn settle(&mut self) {
        let header = self.arrivals.iter().position(|arrival| !arrival.params.early);
        if let Some(header) = header.filter(|_| self.waits()).and_then(|at| self.arrivals.remove(at)) {
            self.arrivals.push_front(header);
        }
    }

    fn in_flight(&self) -> usize {
        usize::from(self.header_sent && !self.header_done)
            + (self.payloads_sent - self.payloads_done)
            + usize::from(self.completion_sent && !self.completion_done)
    }

    /// Packets of the first message whose last task has not started.
    fn queued(&self) -> Vec<Packet> {
        let (arrived, ended) = self.message();
        let kept = ended
            && !self.end_refused
            && self.payloads_sent == arrived
            && !self.completion_sent
            && self.params().is_some_and(|params| params.completion);
        let from = self.payloads_sent - usize::from(kept);
        self.arrivals.range(from..arrived).map(|arrival| arrival.packet).collect()
    }

    /// Advances to the next message, or behind the end of one that is kept open.
    fn next(&mut self) {
        let (arrived, _) = self.message();
        let carried = self.params().filter(|_| self.kept_open);
        self.arrivals.drain(..arrived);
        // A cancelled message is not continued.
        let carried = carried.filter(|_| !self.refusing || !self.arrivals.is_empty());
        let (past, refusing) = (carried.is_some(), self.refusing);
        let arrivals = std::mem::take(&mut self.arrivals);
        *self = Self { arrivals, carried, header_sent: past, header_done: past, refusing, ..Self::default() };
        self.settle();
    }

    /// Drops the packets of a cancelled message once none of its tasks is in flight.
    fn drain_cancelled(&mut self) -> Vec<Packet> {
        if !self.killed || self.in_flight() > 0 {
            return Vec::new();
        }
        let dropped = self.queued();
        if self.message().1 || self.end_refused {
            self.next();
        } else {
            // The message stays cancelled until its end arrives.
            let carried = self.params();
            let Self { kept_open, refusing, .. } = *self;
            *self = Self { carried, killed: true, kept_open, refusing, ..Self::default() };
        }
        dropped
    }

    fn idle(&self) -> bool {
        self.arrivals.is_empty() && !self.killed && self.carried.is_none() && !self.refusing
    }

    /// Whether the next arrival belongs to a message that has begun.
    fn goes_on(&self) -> bool {
        self.refusing || self.kept_open || self.waits() || self.arrivals.back().is_none_or(|last| !last.end)
    }

    /// The task that this queue may start: stage, packet, and whether it is the packet's last.
    fn startable(&self) -> Option<(Stage, Context, Packet, bool)> {
        let first = self.arrivals.front().filter(|_| !self.killed && !self.waits())?;
        let MessageParams { context, header, completion, .. } = self.params()?;
        let (arrived, ended) = self.message();
        if header && !self.header_sent {
            return Some((Stage::Header, context, first.packet, false));
        }
        if header && !self.header_done {
            return None;
        }
        if self.payloads_sent < arrived {
            let next = &self.arrivals[self.payloads_sent];
            return Some((Stage::Payload, context, next.packet, !(next.end && completion)));
        }
        (ended && self.payloads_done == arrived && completion && !self.completion_sent)
            .then(|| (Stage::Completion, context, self.arrivals[arrived - 1].packet, true))
    }

    fn start(&mut self, stage: Stage) {
        match stage {
            Stage::Header => self.header_sent = true,
            Stage::Payload => self.payloads_sent += 1,
            Stage::Completion => self.completion_sent = true,
        }
    }

    /// Finishes a task. Returns whether the message is done.
    fn finish(&mut self, stage: Stage) -> bool {
        match stage {
            Stage::Header => self.header_done = true,
            Stage::Payload => self.payloads_done += 1,
            Stage::Completion => self.completion_done = true,
        }
        let (arrived, ended) = self.message();
        let completion = self.params().is_some_and(|params| params.completion);
        let done = ended && self.payloads_done == arrived && (!completion || stage == Stage::Completion);
        let over = done && !self.killed && !self.kept_open;
        if done && !self.killed {
            self.next();
        }
        over
    }
}

struct Run {
    mpqs: Mpqs<Context, Packet>,
    naive: Vec<Naive>,
    /// Ready queues by owner, in the order in which they became ready, which is the order of service.
    round_robin: [VecDeque<u32>; OWNERS as usize],
    in_flight: Vec<Task<Context, Packet>>,
    next_packet: Packet,
    held: usize,
    released: Vec<Packet>,
}

impl Run {
    fn new() -> Self {
        let mut mpqs = Mpqs::new(QUEUES, HERS, MessageParams::payload_only(Context(0)));
        mpqs.add_owner(OWNERS - 1);
        Self {
            mpqs,
            naive: (0..QUEUES).map(|_| Naive::default()).collect(),
            round_robin: Default::default(),
            in_flight: Vec::new(),
            next_packet: 0,
            held: 0,
            released: Vec::new(),
        }
    }

    fn note_ready(&mut self) {
        for queue in 0..QUEUES {
            let Some((_, context, ..)) = self.naive[queue as usize].startable() else { continue };
            let ready = &mut self.round_robin[context.owner() as usize];
            if !ready.contains(&queue) {
                ready.push_back(queue);
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Push { mpq, context, header, completion, early, end_of_message } => {
                let params = MessageParams { header, completion, early, ..MessageParams::payload_only(context) };
                let packet = self.next_packet;
                let result = self.mpqs.push(MpqId(mpq), Her { params, end_of_message, packet });
                let naive = &mut self.naive[mpq as usize];
                let of_cancelled = naive.killed && !naive.message().1;
                if naive.refusing || of_cancelled {
                    let behind = naive.refusing;
                    naive.refusing &= !end_of_message;
                    if of_cancelled {
                        naive.end_refused = end_of_message;
                        // Arrivals behind it belong to the next message.
                        naive.arrivals.iter_mut().next_back().into_iter().for_each(|last| last.end = end_of_message);
                        let buried = naive.drain_cancelled();
                        assert!(buried.is_empty(), "a dead message has no packets");
                    }
                    assert_eq!(result, Err(Rejected::Cancelled { packet, behind, idle: naive.idle() }));
                    self.released.push(packet);
                    self.next_packet += 1;
                } else if self.held < HERS as usize {
                    assert_eq!(result, Ok(()), "there is room");
                    self.held += 1;
                    self.next_packet += 1;
                    naive.arrivals.push_back(Arrival { params, end: end_of_message, packet });
                    naive.settle();
                } else {
                    assert_eq!(result, Err(Rejected::Full(packet)));
                }
            }
            Op::Pass { mpq, context, header, completion, early, end_of_message } => {
                let params = MessageParams { header, completion, early, ..MessageParams::payload_only(context) };
                self.pass(mpq, params, end_of_message);
            }
            Op::Take { owner } => self.take(owner),
            Op::Kill { mpq } => self.kill(mpq),
            Op::KillBehind { mpq } => self.cancel_next(mpq),
            Op::Close { mpq } => self.close(mpq),
            Op::KeepOpen(_) if self.in_flight.is_empty() => {}
            Op::KeepOpen(which) => {
                let mpq = self.in_flight[which % self.in_flight.len()].mpq;
                self.mpqs.keep_open(mpq);
                self.naive[mpq.0 as usize].kept_open = true;
            }
            Op::Feedback(_) if self.in_flight.is_empty() => {}
            Op::Feedback(which) => self.complete_task(which % self.in_flight.len()),
        }
        self.note_ready();
        self.mpqs.check();
        assert_eq!(self.mpqs.tasks_in_flight(), self.in_flight.len());
        for (queue, naive) in (0..).zip(&self.naive) {
            assert_eq!(self.mpqs.is_free(MpqId(queue)), naive.idle(), "queue {queue}");
        }
        assert_eq!(self.mpqs.room(), HERS as usize - self.held);
        for (queue, naive) in (0..).zip(&self.naive).filter(|(_, naive)| !naive.idle()) {
            let waiting = naive.waits().then_some(naive.arrivals.len() as u32);
            assert_eq!(self.mpqs.waiting(MpqId(queue)), waiting);
            assert_eq!(self.mpqs.is_message_open(MpqId(queue)), naive.goes_on());
        }
        for owner in 0..OWNERS {
            let owned = |arrival: &&Arrival| arrival.params.context.owner() == owner;
            let held: usize = self.naive.iter().map(|naive| naive.arrivals.iter().filter(owned).count()).sum();
            assert!(self.mpqs.held(owner) as usize <= held, "owner {owner} holds too much");
            assert!(self.round_robin[owner as usize].is_empty() || self.mpqs.backlogged().contains(&owner));
        }
        assert_eq!((0..OWNERS).map(|owner| self.mpqs.held(owner) as usize).sum::<usize>(), self.held);
    }

    /// A packet takes the fast path exactly when it would be the queue's only one, and its payload task the only one to run.
    fn pass(&mut self, mpq: u32, params: MessageParams<Context>, end_of_message: bool) {
        let naive = &mut self.naive[mpq as usize];
        let latched = naive.params().unwrap_or(params);
        let waits =
            naive.killed || naive.refusing || naive.waits() || naive.in_flight() > 0 || naive.startable().is_some();
        let begins = naive.params().is_none();
        let other =
            !naive.header_done && latched.header || latched.completion && end_of_message || begins && params.early;
        let expected = !(waits || other);
        let passed = self.mpqs.try_inline(MpqId(mpq), end_of_message, || params);
        assert_eq!(passed, expected.then_some(latched.context));
        let Some(context) = passed else { return };
        let packet = self.next_packet;
        self.next_packet += 1;
        naive.arrivals.push_back(Arrival { params: latched, end: end_of_message, packet });
        assert_eq!(naive.startable(), Some((Stage::Payload, context, packet, true)));
        naive.start(Stage::Payload);
        if packet.is_multiple_of(2) {
            // The task ends before anything else happens.
            let done = naive.finish(Stage::Payload);
            let ended = end_of_message.then(|| self.mpqs.end_inline(MpqId(mpq)));
            let ended = ended.map_or((false, false), |feedback| (feedback.message_done, feedback.idle));
            assert_eq!(ended, (done, naive.idle()));
            return self.released.push(packet);
        }
        self.mpqs.begin_inline(MpqId(mpq), end_of_message);
        self.in_flight.push(Task { mpq: MpqId(mpq), stage: Stage::Payload, context, packet, releases_packet: true });
    }

    fn kill(&mut self, mpq: u32) {
        let idle = self.mpqs.cancel(MpqId(mpq));
        let sunk: Vec<Packet> = std::iter::from_fn(|| self.mpqs.pop_cancelled()).collect();
        let naive = &mut self.naive[mpq as usize];
        if naive.refusing && naive.arrivals.is_empty() {
            return assert!(!idle && sunk.is_empty(), "it is dead");
        }
        naive.kept_open &= naive.killed;
        naive.killed = true;
        let mut buried = naive.drain_cancelled();
        buried.reverse();
        assert_eq!(sunk, buried);
        assert_eq!(idle, naive.idle());
        self.round_robin.iter_mut().for_each(|ready| ready.retain(|&queue| queue != mpq));
        self.held -= buried.len();
        self.released.extend(buried);
    }

    fn cancel_next(&mut self, mpq: u32) {
        let naive = &mut self.naive[mpq as usize];
        if !naive.killed || !naive.message().1 || naive.refusing {
            return;
        }
        self.mpqs.cancel_next(MpqId(mpq));
        assert!(!self.mpqs.accepts(MpqId(mpq)));
        let whole = naive.arrivals.iter().rposition(|arrival| arrival.end).map_or(0, |last| last + 1);
        let gone: Vec<Packet> = naive.arrivals.drain(whole..).map(|arrival| arrival.packet).rev().collect();
        naive.refusing = true;
        assert_eq!(std::iter::from_fn(|| self.mpqs.pop_cancelled()).collect::<Vec<_>>(), gone);
        self.held -= gone.len();
        self.released.extend(gone);
    }

    fn take(&mut self, owner: u32) {
        let next = self.mpqs.next_packet(owner).copied();
        let task = self.mpqs.next_task(owner);
        assert_eq!(next, task.as_ref().map(|task| task.packet));
        let Some(queue) = self.round_robin[owner as usize].pop_front() else {
            assert!(task.is_none(), "nothing may start, yet {task:?} did");
            return;
        };
        let task = task.expect("a queue is ready");
        assert_eq!(task.mpq, MpqId(queue), "round-robin");
        let naive = &mut self.naive[queue as usize];
        let expected = naive.startable().expect("was ready");
        assert_eq!((task.stage, task.context, task.packet, task.releases_packet), expected);
        naive.start(task.stage);
        if task.releases_packet {
            self.held -= 1;
        }
        self.in_flight.push(task);
    }

    fn complete_task(&mut self, which: usize) {
        let task = self.in_flight.swap_remove(which);
        let feedback = self.mpqs.complete(task.mpq, task.stage, (!task.releases_packet).then_some(task.packet));
        if task.releases_packet {
            self.released.push(task.packet);
        }
        let naive = &mut self.naive[task.mpq.0 as usize];
        assert_eq!(feedback.message_done, naive.finish(task.stage));
        let mut buried = naive.drain_cancelled();
        assert_eq!(feedback.idle, naive.idle());
        self.held -= buried.len();
        self.released.extend(&buried);
        while let Some(packet) = self.mpqs.pop_cancelled() {
            assert_eq!(buried.pop(), Some(packet));
        }
        assert!(buried.is_empty(), "all of a dead message's packets come back");
    }

    fn close(&mut self, mpq: u32) {
        let naive = &mut self.naive[mpq as usize];
        let is_plain = |params: &MessageParams<Context>| !params.header && !params.completion && !params.early;
        let has_plain_messages = naive.arrivals.iter().all(|arrival| is_plain(&arrival.params));
        if !has_plain_messages || !naive.carried.iter().all(is_plain) {
            return;
        }
        (naive.kept_open, naive.refusing) = (false, false);
        let waiting = naive.arrivals.len() - naive.payloads_sent.min(naive.arrivals.len());
        let idle = naive.in_flight() == 0 && waiting == 0;
        if idle {
            *naive = Naive::default();
        } else if let Some(last) = naive.arrivals.back_mut() {
            last.end = true;
        }
        assert_eq!(self.mpqs.close(MpqId(mpq)), idle);
    }

    /// Ends every open message and completes all tasks. Nothing may be left.
    fn finish(&mut self) {
        loop {
            while self.round_robin.iter().any(|ready| !ready.is_empty()) || !self.in_flight.is_empty() {
                (0..OWNERS).for_each(|owner| self.apply(&Op::Take { owner }));
                self.apply(&Op::Feedback(0));
            }
            let find = |what: &dyn Fn(&Naive) -> bool| (0..QUEUES).find(|&queue| what(&self.naive[queue as usize]));
            let waiting = find(&|naive| naive.waits());
            let Some(mpq) = waiting.or_else(|| find(&|naive| !naive.idle())) else { break };
            if self.held == HERS as usize {
                // There is no room for a header.
                self.apply(&Op::Kill { mpq });
                continue;
            }
            let end_of_message = waiting.is_none() || self.naive[mpq as usize].refusing;
            let context = Context(9);
            self.apply(&Op::Push { mpq, context, header: false, completion: false, early: false, end_of_message });
        }
        assert!((0..OWNERS).all(|owner| self.mpqs.next_task(owner).is_none()));
        assert!(self.mpqs.backlogged().is_empty());
        self.released.sort_unstable();
        assert_eq!(self.released, (0..self.next_packet).collect::<Vec<_>>(), "each packet released exactly once");
    }
}

/// Packets that are messages of their own: tasks start in order of arrival, any number at once, each with its own context.
#[test]
fn single_packets_start_in_order_and_never_end_their_queue() {
    let mut mpqs = Mpqs::new(1, 8, MessageParams::payload_only(Context(0)));
    mpqs.add_owner(0);
    mpqs.grow(3);
    let queue = MpqId(2);
    let her = |number: u32| {
        let params = MessageParams { per_packet: true, ..MessageParams::payload_only(Context(number * OWNERS)) };
        Her { params, end_of_message: false, packet: number }
    };
    for round in 0..1000 {
        let numbers = round * 8..round * 8 + 8;
        numbers.clone().for_each(|number| mpqs.push(queue, her(number)).expect("there is room"));
        let tasks: Vec<_> = std::iter::from_fn(|| mpqs.next_task(0)).collect();
        assert!(
            tasks.iter().map(|task| (task.packet, task.context.0)).eq(numbers.map(|number| (number, number * OWNERS)))
        );
        assert_eq!((mpqs.room(), mpqs.has_hers(queue), mpqs.is_quiescent(queue)), (8, false, false));
        for task in tasks.into_iter().rev() {
            assert!(task.releases_packet && task.stage == Stage::Payload);
            let completed = mpqs.complete(task.mpq, task.stage, None);
            assert!(!completed.message_done && !completed.idle);
        }
        assert!(mpqs.is_quiescent(queue) && mpqs.is_free(MpqId(0)));
        mpqs.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: bounded(1000, 3000), ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_naive_model(ops in prop::collection::vec(op(), 1..120)) {
        let mut run = Run::new();
        for op in &ops {
            run.apply(op);
        }
        run.finish();
    }

    #[test]
    fn reset_gives_back_every_queued_packet(ops in prop::collection::vec(op(), 1..60), victim in 0..QUEUES) {
        let mut run = Run::new();
        for op in &ops {
            run.apply(op);
        }
        while !run.in_flight.is_empty() {
            run.apply(&Op::Feedback(0));
        }
        let naive = &run.naive[victim as usize];
        // Payload packets whose task was started are gone, except the last one, which waits for its completion handler.
        let mut expected = naive.queued();
        expected.extend(naive.arrivals.range(naive.message().0..).map(|arrival| arrival.packet));
        let mut back = Vec::new();
        run.mpqs.reset(MpqId(victim), |packet| back.push(packet));
        prop_assert_eq!(back.len(), expected.len());
        prop_assert_eq!(&back, &expected);
        prop_assert_eq!(run.mpqs.room(), HERS as usize - run.held + back.len());
        for other in (0..QUEUES).filter(|&other| other != victim) {
            run.mpqs.reset(MpqId(other), |_| {});
        }
        prop_assert_eq!(run.mpqs.room(), HERS as usize);
        let params = MessageParams::payload_only(Context(7));
        let pushed = run.mpqs.push(MpqId(victim), Her { params, end_of_message: true, packet: 99 });
        prop_assert!(pushed.is_ok());
        let mut seen = false;
        while let Some(task) = run.mpqs.next_task(params.context.owner()) {
            seen |= (task.mpq, task.context, task.packet) == (MpqId(victim), params.context, 99);
            run.mpqs.complete(task.mpq, task.stage, (!task.releases_packet).then_some(task.packet));
        }
        prop_assert!(seen, "the queue serves again after a reset");
    }
}
