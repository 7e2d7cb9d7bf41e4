//! The MPQ engine against a naive model, under random arrivals and random orders of feedback.

use std::collections::VecDeque;

use proptest::prelude::*;
use spin_engine::mpq::{Her, Latch, MpqId, Mpqs, Stage, Task};

const QUEUES: u32 = 3;
const HERS: u32 = 12;

/// Packets are numbered in order of arrival; a packet that is lost or doubled shows as a number.
type Packet = u32;
type Context = u32;

#[derive(Clone, Debug)]
enum Op {
    Push {
        mpq: u32,
        context: Context,
        header: bool,
        completion: bool,
        end_of_message: bool,
    },
    Take,
    /// Feed back the n-th task in flight (modulo their number).
    Feedback(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..QUEUES, 0..4u32, any::<bool>(), any::<bool>(), prop::bool::weighted(0.3)).prop_map(
            |(mpq, context, header, completion, end_of_message)| Op::Push { mpq, context, header, completion, end_of_message }
        ),
        4 => Just(Op::Take),
        3 => any::<usize>().prop_map(Op::Feedback),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    latch: Latch<Context>,
    end: bool,
    packet: Packet,
}

/// One queue as the paper's prose describes it: all arrivals in a list, and how far the first message has come.
#[derive(Default)]
struct Naive {
    arrivals: VecDeque<Arrival>,
    header_sent: bool,
    header_done: bool,
    payloads_sent: usize,
    payloads_done: usize,
    completion_sent: bool,
}

impl Naive {
    /// Packets of the first message that have arrived, and whether its end has.
    fn message(&self) -> (usize, bool) {
        match self.arrivals.iter().position(|arrival| arrival.end) {
            Some(end) => (end + 1, true),
            None => (self.arrivals.len(), false),
        }
    }

    /// The task this queue may start now: stage, packet, and whether it is the packet's last.
    fn startable(&self) -> Option<(Stage, Context, Packet, bool)> {
        let first = self.arrivals.front()?;
        let Latch { context, header, completion } = first.latch;
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

    /// Returns whether the message is done.
    fn finish(&mut self, stage: Stage) -> bool {
        match stage {
            Stage::Header => self.header_done = true,
            Stage::Payload => self.payloads_done += 1,
            Stage::Completion => {}
        }
        let (arrived, ended) = self.message();
        let completion = self.arrivals[0].latch.completion;
        let done = ended && self.payloads_done == arrived && (!completion || stage == Stage::Completion);
        if done {
            self.arrivals.drain(..arrived);
            *self = Self { arrivals: std::mem::take(&mut self.arrivals), ..Self::default() };
        }
        done
    }
}

struct Run {
    mpqs: Mpqs<Context, Packet>,
    naive: Vec<Naive>,
    /// Ready queues in the order they became ready: who must be served next.
    round_robin: VecDeque<u32>,
    in_flight: Vec<Task<Context, Packet>>,
    next_packet: Packet,
    held: usize,
    released: Vec<Packet>,
}

impl Run {
    fn new() -> Self {
        Self {
            mpqs: Mpqs::new(QUEUES, HERS, Latch { context: 0, header: false, completion: false }),
            naive: (0..QUEUES).map(|_| Naive::default()).collect(),
            round_robin: VecDeque::new(),
            in_flight: Vec::new(),
            next_packet: 0,
            held: 0,
            released: Vec::new(),
        }
    }

    fn note_ready(&mut self) {
        for queue in 0..QUEUES {
            if self.naive[queue as usize].startable().is_some() && !self.round_robin.contains(&queue) {
                self.round_robin.push_back(queue);
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Push { mpq, context, header, completion, end_of_message } => {
                let latch = Latch { context, header, completion };
                let packet = self.next_packet;
                let result = self.mpqs.push(MpqId(mpq), Her { latch, end_of_message, packet });
                assert_eq!(result.is_ok(), self.held < HERS as usize, "full exactly when {HERS} HERs are held");
                if result.is_ok() {
                    self.held += 1;
                    self.next_packet += 1;
                    self.naive[mpq as usize].arrivals.push_back(Arrival { latch, end: end_of_message, packet });
                }
            }
            Op::Take => self.take(),
            Op::Feedback(_) if self.in_flight.is_empty() => {}
            Op::Feedback(which) => self.feed_back(which % self.in_flight.len()),
        }
        self.note_ready();
        assert_eq!(self.mpqs.room(), HERS as usize - self.held);
    }

    fn take(&mut self) {
        let task = self.mpqs.next_task();
        let Some(queue) = self.round_robin.pop_front() else {
            assert!(task.is_none(), "nothing may start, yet {task:?} did");
            return;
        };
        let task = task.expect("a queue is ready");
        assert_eq!(task.mpq, MpqId(queue), "round-robin");
        let naive = &mut self.naive[queue as usize];
        let expected = naive.startable().expect("was ready");
        assert_eq!((task.stage, task.context, task.packet, task.last_use), expected);
        naive.start(task.stage);
        if task.last_use {
            self.held -= 1;
        }
        self.in_flight.push(task);
    }

    fn feed_back(&mut self, which: usize) {
        let task = self.in_flight.swap_remove(which);
        let feedback = self.mpqs.feedback(task.mpq, task.stage, (!task.last_use).then_some(task.packet));
        if task.last_use {
            self.released.push(task.packet);
        }
        let naive = &mut self.naive[task.mpq.0 as usize];
        assert_eq!(feedback.message_done, naive.finish(task.stage));
        assert_eq!(feedback.idle, naive.arrivals.is_empty());
    }

    /// Ends every open message and runs dry: nothing may stay behind.
    fn finish(&mut self) {
        loop {
            while !self.round_robin.is_empty() || !self.in_flight.is_empty() {
                self.apply(&Op::Take);
                self.apply(&Op::Feedback(0));
            }
            let open = (0..QUEUES).find(|&queue| !self.naive[queue as usize].arrivals.is_empty());
            let Some(mpq) = open else { break };
            let push = Op::Push { mpq, context: 9, header: false, completion: false, end_of_message: true };
            self.apply(&push);
        }
        assert!(self.mpqs.next_task().is_none());
        self.released.sort_unstable();
        assert_eq!(self.released, (0..self.next_packet).collect::<Vec<_>>(), "each packet released exactly once");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

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
        // Payload packets whose task was sent are gone, except the last one that waits for its completion handler.
        let retained = naive.arrivals.front().is_some_and(|first| first.latch.completion);
        let (arrived, ended) = naive.message();
        let gone = naive.payloads_sent - usize::from(retained && ended && naive.payloads_sent == arrived && arrived > 0);
        let expected: Vec<Packet> = naive.arrivals.iter().skip(gone).map(|arrival| arrival.packet).collect();
        let mut back = Vec::new();
        run.mpqs.reset(MpqId(victim), |packet| back.push(packet));
        prop_assert_eq!(back.len(), expected.len());
        prop_assert_eq!(&back, &expected);
        prop_assert_eq!(run.mpqs.room(), HERS as usize - run.held + back.len());
        for other in (0..QUEUES).filter(|&other| other != victim) {
            run.mpqs.reset(MpqId(other), |_| {});
        }
        prop_assert_eq!(run.mpqs.room(), HERS as usize);
        let latch = Latch { context: 7, header: false, completion: false };
        let pushed = run.mpqs.push(MpqId(victim), Her { latch, end_of_message: true, packet: 99 });
        prop_assert!(pushed.is_ok());
        let mut seen = false;
        while let Some(task) = run.mpqs.next_task() {
            seen |= (task.mpq, task.context, task.packet) == (MpqId(victim), 7, 99);
            run.mpqs.feedback(task.mpq, task.stage, (!task.last_use).then_some(task.packet));
        }
        prop_assert!(seen, "the queue serves again after a reset");
    }
}
