//! Checks the handlers' records for their order, and derives the counters from them. Input is what the NIC sees: packets
//! received, and frames sent. Of the engine, the judge sees only its counters.

use std::collections::{HashMap, VecDeque};

use spin_abi::control::Full;
use spin_abi::counters::Counter;

use crate::expected::Expected;
use crate::policy::{Ending, Policy};
use crate::traffic::{
    Action, BAD_VERDICT, DROP, DROP_PENDING, HEADERS, ORDER, Order, PASS, PROCESS_DATA_PENDING, SUCCESS_PENDING, filler,
};

/// Bytes of a record.
const RECORD: usize = 36;
const RECORD_TYPE: [u8; 2] = [0x88, 0xb5];
const HEADER: usize = 0;
const PAYLOAD: usize = 1;
const COMPLETION: usize = 2;

/// The handler that ran, and its packet.
#[derive(Clone, Copy, Debug)]
struct Record {
    kind: u8,
    context: u8,
    flow: u16,
    cluster: u16,
    message: u32,
    sequence: u32,
    instance: u32,
    run: u32,
}

impl Record {
    fn read(frame: &[u8]) -> Option<Self> {
        if frame.len() != RECORD || frame[12..14] != RECORD_TYPE {
            return None;
        }
        let half = |at: usize| u16::from_le_bytes([frame[at], frame[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
        let (message, sequence, instance, run) = (word(20), word(24), word(28), word(32));
        let (flow, cluster) = (half(16), half(18));
        Some(Self { kind: frame[14], context: frame[15], flow, cluster, message, sequence, instance, run })
    }
}

/// The phase of a flow's message.
#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Between,
    /// The header handler ran on this packet.
    Begun(Order),
    /// A payload handler ran.
    Open,
    /// A payload handler ran on this packet, which is the last one. The completion handler has not run yet.
    Ended(Order),
    /// A verdict cancelled the message.
    Dead,
    /// The message is behind an end where it may stay open.
    Unclear,
}

/// Whether a handler keeps the message open behind its next end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KeptOpen {
    #[default]
    No,
    Yes,
    /// A handler did, and that end may have been processed without a record.
    Unclear,
}

#[derive(Default)]
struct Flow {
    /// Packets behind the last one whose payload handler ran.
    queue: VecDeque<Order>,
    phase: Phase,
    kept_open: KeptOpen,
    /// Packets whose payload handlers wait.
    waiting: Vec<Order>,
}

impl Flow {
    fn find(&self, instance: u32) -> Option<usize> {
        self.queue.iter().position(|order| order.instance == instance)
    }

    /// Whether a cancelled message that stays open is behind its end, after packets were `skipped`.
    fn is_resumed(&self, skipped: &[Order]) -> bool {
        matches!(self.phase, Phase::Dead) && self.kept_open == KeptOpen::Yes && skipped.iter().any(|order| order.end)
    }

    /// Advances to the phase behind the end of a message.
    fn ended(&mut self) -> Phase {
        match std::mem::take(&mut self.kept_open) {
            KeptOpen::No => Phase::Between,
            KeptOpen::Yes => Phase::Open,
            KeptOpen::Unclear => Phase::Unclear,
        }
    }

    /// Notes that packets were `skipped`: some may have been processed without a record.
    fn skip(&mut self, skipped: &[Order]) {
        let unseen_end = |order: &Order| order.end && order.actions[PAYLOAD] == Action::FaultUnseen;
        match self.phase {
            Phase::Begun(_) | Phase::Open if self.kept_open == KeptOpen::Yes && skipped.iter().any(unseen_end) => {
                self.kept_open = KeptOpen::Unclear;
            }
            Phase::Ended(order)
                if order.actions[COMPLETION] == Action::FaultUnseen && self.kept_open != KeptOpen::No =>
            {
                (self.phase, self.kept_open) = (Phase::Unclear, KeptOpen::No);
            }
            _ => {}
        }
    }
}

/// The records of a context's packets.
#[derive(Debug, Default)]
struct Tally {
    /// Records of header, payload and completion handlers.
    seen: [u64; 3],
    /// The number of the next record.
    run: u32,
    /// Handlers that faulted on request, with a record.
    faults: u64,
    /// Handlers that waited and did not resume.
    vain: u64,
    /// Packets that were released after processing, and packets that the kernel got.
    released: u64,
    passed: u64,
    dropped: u64,
    bad_verdicts: u64,
    /// Messages cancelled by a handler, except those that stay open.
    given_up: u64,
    /// Ends behind which messages with a completion handler stay open.
    kept_open: u64,
    /// Ends for which that is unknown.
    unclear: u64,
    /// Messages that ended early, for a reason that only the engine knows.
    cut: u64,
    /// Irregularities that a handler may explain that the clock ended before its record: other handlers' actions meanwhile, and
    /// missing record numbers. Each such handler explains one of either kind.
    doubts: u64,
    gaps: u64,
    /// The word sent last.
    told: u32,
}

/// The judge of one NIC's frames.
pub struct Judge {
    cluster: u32,
    policies: Vec<Policy>,
    flows: HashMap<(u8, u16), Flow>,
    tallies: Vec<Tally>,
    expected: Vec<Expected>,
    /// Frames that handlers announced to send, by packet.
    replies: HashMap<u32, (Order, u32)>,
    /// The total number of records.
    pub records: u64,
}

impl Judge {
    pub fn new(policies: Vec<Policy>, cluster: u32) -> Self {
        let tallies = policies.iter().map(|_| Tally::default()).collect();
        let expected = policies.iter().map(|_| Expected::new()).collect();
        Self { cluster, policies, flows: HashMap::new(), tallies, expected, replies: HashMap::new(), records: 0 }
    }

    /// Notes a packet handed to the engine.
    pub fn received(&mut self, order: Order) {
        let context = usize::from(order.context);
        self.expected[context].received(&self.policies[context], &order);
        self.flows.entry((order.context, order.flow)).or_default().queue.push_back(order);
    }

    /// Notes a sent frame that a handler created or copied.
    pub fn copied(&mut self, frame: &[u8]) {
        match Record::read(frame) {
            Some(record) => self.record(record),
            None => self.replied(frame, None),
        }
    }

    /// Notes a sent frame that had arrived as packet `instance`.
    pub fn moved(&mut self, frame: &[u8], instance: u32) {
        self.replied(frame, Some(instance));
    }

    fn replied(&mut self, frame: &[u8], moved: Option<u32>) {
        assert!(frame.len() >= HEADERS + ORDER, "a frame nobody asked for: {frame:?}");
        let place = &frame[HEADERS + 20..HEADERS + 24];
        let instance = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
        assert!(moved.is_none_or(|moved| moved == instance), "packet {moved:?} was sent as {instance}");
        let Some((_, left)) = self.replies.get_mut(&instance) else { panic!("packet {instance} was sent unasked") };
        *left -= 1;
        if *left == 0 {
            self.replies.remove(&instance);
        }
        let intact = (HEADERS + ORDER..frame.len()).all(|at| frame[at] == filler(instance, at));
        assert!(intact, "packet {instance} was changed: {frame:?}");
    }

    fn record(&mut self, record: Record) {
        let context = usize::from(record.context);
        assert!(context < self.tallies.len() && u32::from(record.cluster) == self.cluster, "{record:?}");
        self.records += 1;
        let gap = record.run.wrapping_sub(self.tallies[context].run);
        self.tallies[context].run = record.run.wrapping_add(1);
        assert!(gap < 1 << 31, "a record came again, or late: {record:?}");
        if gap > 0 {
            self.needs_clock(context, || format!("{gap} records before {record:?} did not come"));
            self.tallies[context].gaps += u64::from(gap);
        }
        let key = (record.context, record.flow);
        let mut flow = self.flows.remove(&key).unwrap_or_default();
        match record.kind {
            b'H' => self.header(context, &mut flow, &record),
            b'P' => self.payload(context, &mut flow, &record),
            b'C' => self.completion(context, &mut flow, &record),
            b'E' => self.went_on(context, &mut flow, &record),
            _ => panic!("{record:?}"),
        }
        self.flows.insert(key, flow);
    }

    /// Notes an irregularity, which is allowed only if the clock ended a handler before its record.
    fn doubt(&mut self, context: usize, what: impl FnOnce() -> String) {
        self.needs_clock(context, what);
        self.tallies[context].doubts += 1;
    }

    fn needs_clock(&self, context: usize, what: impl FnOnce() -> String) {
        assert!(self.policies[context].ending == Ending::Clock, "{}\n{:#?}", what(), self.policies[context]);
    }

    /// Notes a record, for all kinds of handlers.
    fn ran(&mut self, context: usize, order: &Order, record: &Record, stage: usize) {
        let same = (order.message, order.sequence) == (record.message, record.sequence);
        assert!(same && order.actions[stage] != Action::FaultUnseen, "{order:?}: {record:?}");
        let bad = self.verdict(context, order, stage) == Some(BAD_VERDICT);
        let tally = &mut self.tallies[context];
        tally.bad_verdicts += u64::from(bad);
        tally.seen[stage] += 1;
        tally.faults += u64::from(order.actions[stage].faults());
        if order.actions[stage] == Action::Send {
            self.replies.entry(order.instance).or_insert((*order, 0)).1 += 1;
        }
    }

    /// The verdict of a handler, if it has an effect.
    fn verdict(&self, context: usize, order: &Order, stage: usize) -> Option<u8> {
        (self.policies[context].verdicts && order.actions[stage].returns())
            .then(|| order.verdicts.get(stage).copied())
            .flatten()
    }

    fn header(&mut self, context: usize, flow: &mut Flow, record: &Record) {
        assert!(self.policies[context].header, "{record:?}");
        let Some(at) = flow.find(record.instance) else { panic!("on no packet, or an earlier one: {record:?}") };
        let skipped: Vec<Order> = flow.queue.drain(..at).collect();
        self.conclude(context, flow, &skipped);
        let order = flow.queue[0];
        self.ran(context, &order, record, HEADER);
        let verdict = self.verdict(context, &order, HEADER);
        let given_up = matches!(verdict, Some(DROP | DROP_PENDING | PASS));
        flow.kept_open = if stays_open(verdict) { KeptOpen::Yes } else { KeptOpen::No };
        self.tallies[context].given_up += u64::from(given_up && !stays_open(verdict));
        flow.phase = if given_up { Phase::Dead } else { Phase::Begun(order) };
    }

    /// Begins another message of the flow, after packets that were `skipped`.
    fn conclude(&mut self, context: usize, flow: &mut Flow, skipped: &[Order]) {
        // Waiting tasks of a cancelled message resume. All others have ended.
        self.tallies[context].vain += std::mem::take(&mut flow.waiting).len() as u64;
        let unseen_end = |order: &Order| order.end && order.actions[PAYLOAD] == Action::FaultUnseen;
        let over = match std::mem::take(&mut flow.phase) {
            Phase::Between | Phase::Unclear => true,
            Phase::Begun(_) | Phase::Open => !self.policies[context].completion && skipped.iter().any(unseen_end),
            Phase::Ended(order) if order.actions[COMPLETION] == Action::FaultUnseen => true,
            Phase::Ended(order) => return self.incomplete(context, &order),
            // A message that stays open may have continued and ended.
            Phase::Dead if std::mem::take(&mut flow.kept_open) != KeptOpen::No => true,
            Phase::Dead => self.policies[context].frees_dead_queues() || skipped.iter().any(|order| order.end),
        };
        self.tallies[context].cut += u64::from(!over);
    }

    /// Notes the end of a message after its last payload handler, without completion handler.
    fn incomplete(&mut self, context: usize, order: &Order) {
        if self.policies[context].full != Full::Kill {
            return self.doubt(context, || format!("no completion handler ran on {order:?}"));
        }
        let passes = self.verdict(context, order, PAYLOAD) == Some(PASS);
        let tally = &mut self.tallies[context];
        // The packet was kept for that handler, and lost.
        *(if passes { &mut tally.passed } else { &mut tally.released }) -= 1;
        tally.cut += 1;
    }

    fn payload(&mut self, context: usize, flow: &mut Flow, record: &Record) {
        let Some(at) = flow.find(record.instance) else { panic!("a second time, or out of order: {record:?}") };
        let mut skipped: Vec<Order> = flow.queue.drain(..=at).collect();
        let Some(order) = skipped.pop() else { unreachable!("the one that was found") };
        self.admissible(context, flow, &skipped, &order);
        self.ran(context, &order, record, PAYLOAD);
        let verdict = self.verdict(context, &order, PAYLOAD);
        let completion = self.policies[context].completion;
        let tally = &mut self.tallies[context];
        match verdict {
            Some(PASS) => tally.passed += 1,
            Some(DROP | DROP_PENDING) => {
                tally.dropped += 1;
                tally.given_up += u64::from(verdict == Some(DROP) && !matches!(flow.phase, Phase::Dead));
                flow.kept_open = KeptOpen::No;
            }
            _ => tally.released += 1,
        }
        match order.actions[PAYLOAD] {
            Action::Wait => flow.waiting.push(order),
            Action::Set => tally.told = tally.told.max(order.word),
            _ => {}
        }
        if stays_open(verdict) {
            flow.kept_open = KeptOpen::Yes;
        }
        flow.phase = match verdict {
            Some(DROP | DROP_PENDING) if !order.end => Phase::Dead,
            Some(DROP | DROP_PENDING) => flow.ended(),
            _ if order.end && completion => Phase::Ended(order),
            _ if order.end => flow.ended(),
            _ => Phase::Open,
        };
    }

    /// Whether a payload handler may run at this point.
    fn admissible(&mut self, context: usize, flow: &mut Flow, skipped: &[Order], order: &Order) {
        let unseen = |order: &Order, stage: usize| order.actions[stage] == Action::FaultUnseen;
        flow.skip(skipped);
        if flow.is_resumed(skipped) {
            (flow.phase, flow.kept_open) = (Phase::Open, KeptOpen::No);
            return;
        }
        if !self.policies[context].header {
            if matches!(flow.phase, Phase::Ended(_) | Phase::Dead) {
                self.conclude(context, flow, skipped);
            }
            return;
        }
        let goes_on = match flow.phase {
            Phase::Open | Phase::Unclear => true,
            Phase::Begun(first) => first.instance == order.instance || unseen(&first, PAYLOAD),
            Phase::Between | Phase::Ended(_) | Phase::Dead => false,
        };
        if unseen(order, HEADER) {
            // The packet may have begun a message.
            if !goes_on {
                self.conclude(context, flow, skipped);
            }
            return;
        }
        if !goes_on {
            let phase = flow.phase;
            self.doubt(context, || format!("a payload handler on {order:?} in phase {phase:?}"));
            return self.conclude(context, flow, skipped);
        }
        if self.policies[context].keeps_messages_whole() {
            for lost in skipped.iter().filter(|order| !unseen(order, PAYLOAD)) {
                self.doubt(context, || format!("{lost:?} was lost, and then {order:?} of its message was not"));
            }
        }
    }

    fn completion(&mut self, context: usize, flow: &mut Flow, record: &Record) {
        assert!(self.policies[context].completion, "{record:?}");
        let order = match flow.phase {
            Phase::Ended(order) if order.instance == record.instance => order,
            phase => {
                let Some(at) = flow.find(record.instance) else { panic!("in phase {phase:?}: {record:?}") };
                let order = flow.queue[at];
                let before: Vec<Order> = flow.queue.range(..at).copied().collect();
                let dead = matches!(phase, Phase::Dead) && self.policies[context].header && !flow.is_resumed(&before);
                if !order.end || order.actions[PAYLOAD] != Action::FaultUnseen || dead {
                    self.doubt(context, || format!("in phase {phase:?}, without a payload handler: {record:?}"));
                }
                let skipped: Vec<Order> = flow.queue.drain(..=at).collect();
                flow.skip(&before);
                if matches!(flow.phase, Phase::Dead | Phase::Ended(_)) {
                    self.conclude(context, flow, &skipped);
                }
                order
            }
        };
        self.tallies[context].vain += std::mem::take(&mut flow.waiting).len() as u64;
        self.ran(context, &order, record, COMPLETION);
        self.tallies[context].kept_open += u64::from(flow.kept_open == KeptOpen::Yes);
        self.tallies[context].unclear += u64::from(flow.kept_open == KeptOpen::Unclear);
        flow.phase = flow.ended();
    }

    /// Notes that a waiting handler resumed.
    fn went_on(&mut self, context: usize, flow: &mut Flow, record: &Record) {
        let waited = flow.waiting.iter().position(|order| order.instance == record.instance);
        let Some(at) = waited else { panic!("after its message's end, or it did not wait: {record:?}") };
        let order = flow.waiting.swap_remove(at);
        assert!(order.word <= self.tallies[context].told, "nobody told it to: {record:?}");
    }
}

/// Whether a verdict keeps its message open.
const fn stays_open(verdict: Option<u8>) -> bool {
    matches!(verdict, Some(PROCESS_DATA_PENDING | DROP_PENDING | SUCCESS_PENDING))
}

/// Counters of a context, or of an engine.
pub type Counters<'c> = &'c dyn Fn(Counter) -> u64;

impl Judge {
    /// Closes the records at the end. The context `removed` lost what it had in flight.
    pub fn close(&mut self, removed: Option<usize>) {
        for (key, mut flow) in std::mem::take(&mut self.flows) {
            let context = usize::from(key.0);
            if matches!(flow.phase, Phase::Ended(_)) && removed != Some(context) {
                self.conclude(context, &mut flow, &[]);
            }
            self.tallies[context].vain += std::mem::take(&mut flow.waiting).len() as u64;
        }
    }

    /// Compares the records of a context with its counters. Its messages hold `queues` queues. Returns whether nothing was lost,
    /// so that everything was compared.
    pub fn verify(&self, context: usize, counters: Counters<'_>, queues: u32) -> bool {
        let (policy, tally) = (&self.policies[context], &self.tallies[context]);
        let runs = [Counter::HeaderRuns, Counter::PayloadRuns, Counter::CompletionRuns].map(counters);
        let missing = |stage: usize| runs[stage].checked_sub(tally.seen[stage]);
        let Some(unseen) = [HEADER, PAYLOAD, COMPLETION].into_iter().map(missing).sum::<Option<u64>>() else {
            panic!("more records than runs {runs:?}: {tally:?}\n{policy:#?}");
        };
        let lost_replies: u64 = self
            .replies
            .values()
            .filter(|(order, _)| usize::from(order.context) == context)
            .map(|(_, left)| u64::from(*left))
            .sum();
        let told = tally.faults + tally.vain + unseen;
        let faults = counters(Counter::Faults);
        let by_clock = faults.checked_sub(told).filter(|&by_clock| policy.ending == Ending::Clock || by_clock == 0);
        let about = || format!("runs {runs:?}, {faults} faults, {unseen} unseen: {tally:#?}\n{policy:#?}");
        assert!(by_clock.is_some(), "{}", about());
        assert!(lost_replies <= by_clock.unwrap_or(0), "{lost_replies} frames were not sent: {}", about());
        assert!(tally.doubts <= unseen && tally.gaps <= unseen, "{}", about());
        let least = tally.released + runs[PAYLOAD] - tally.seen[PAYLOAD];
        // A message without a record of its completion handler may have been killed before it.
        let unclear = if policy.ending == Ending::Clock { runs[COMPLETION] - tally.seen[COMPLETION] } else { 0 };
        let released = counters(Counter::Released);
        assert!((least..=least + unclear).contains(&released), "{released} released, not {least}: {}", about());
        let early = [Counter::MessagesEvicted, Counter::MessagesTimedOut, Counter::MessagesKilled].map(counters);
        assert!(tally.cut <= early.iter().sum::<u64>() + tally.doubts + tally.gaps, "{early:?}: {}", about());
        assert_eq!(counters(Counter::BadVerdicts), tally.bad_verdicts, "{}", about());
        // Includes the other packets of their messages.
        let passed = counters(Counter::Passed);
        assert!(passed >= tally.passed, "{passed} passed: {}", about());
        assert!(counters(Counter::DropVerdict) >= tally.dropped, "{}", about());
        if policy.completion {
            let incomplete = runs[COMPLETION].checked_sub(counters(Counter::Messages));
            // For a message that began without a record, handlers of the previous message may have been recorded.
            let unsure = if policy.verdicts { unseen + tally.unclear + early.iter().sum::<u64>() } else { 0 };
            let close = incomplete.is_some_and(|incomplete| incomplete.abs_diff(tally.kept_open) <= unsure);
            assert!(close, "{incomplete:?} incomplete messages, {} stay open: {}", tally.kept_open, about());
        }
        // Each of these ends a message that had begun.
        let ends = counters(Counter::Messages) + counters(Counter::MessagesTimedOut) + tally.given_up;
        assert!(!policy.header || ends <= runs[HEADER], "{ends} messages ended: {}", about());
        Self::verify_policy(policy, counters);
        self.expected[context].verify(policy, counters, queues)
    }

    /// Checks that nothing happened that the context's policy excludes.
    fn verify_policy(policy: &Policy, counters: Counters<'_>) {
        let zero = |none: bool, counter: Counter| {
            assert!(!none || counters(counter) == 0, "{}: {}\n{policy:#?}", counter.name(), counters(counter));
        };
        // Killing a message needs a queue. Without one, the packet is dropped.
        zero(policy.full == Full::Wait && policy.alone, Counter::DropShare);
        zero(policy.full != Full::Kill, Counter::DropKilled);
        zero(policy.full != Full::Kill, Counter::MessagesKilled);
        zero(policy.full != Full::Mark, Counter::EcnMarked);
        zero(!policy.verdicts, Counter::DropVerdict);
        zero(!policy.verdicts, Counter::Passed);
        zero(policy.install.message_timeout_us.is_none(), Counter::MessagesTimedOut);
        zero(true, Counter::CommandErrors);
        zero(true, Counter::CheckDifferences);
    }
}

#[test]
fn a_context_that_is_removed_owes_no_completion_handler() {
    let policy = Policy::all(false, false, true, &mut fastrand::Rng::with_seed(1)).into_iter().find(|policy| {
        policy.completion && !policy.header && policy.ending == Ending::Instructions && policy.full != Full::Kill
    });
    let policy = Policy { index: 0, ..policy.expect("each kind of image meets each policy in some order") };
    let order = Order { end: true, instance: 1, ..Order::default() };
    let ended = || {
        let mut judge = Judge::new(vec![policy.clone()], 0);
        judge.received(order);
        let (context, flow, cluster) = (order.context, order.flow, 0);
        let Order { message, sequence, instance, .. } = order;
        judge.record(Record { kind: b'P', context, flow, cluster, message, sequence, instance, run: 0 });
        judge
    };
    ended().close(Some(0));
    let owed = std::panic::catch_unwind(|| ended().close(None));
    assert!(owed.is_err(), "one that stays does");
}
