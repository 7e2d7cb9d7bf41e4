//! The engine's threads: each takes the turns of some of the machine's clusters, on a core of its own, with a NIC queue of its
//! own (run to completion) or fed by one that receives (pipeline), which may run handlers too (spread). They share no state that packets
//! touch but the rings of [`crate::handover`] and [`crate::peers`]; what the control thread wants of them is done between two turns.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver as Receiving, RecvError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use spin_abi::control::Schedule;
use spin_nic::{Bell, NicError, Queue};
use spin_sync::{Inbox, Mailbox, mailbox};

use super::error::ThreadError;
use super::idle::Rest;
use crate::handover::{Arrivals, LaneQueue};
use crate::lanes::{Ends, Lanes};
use crate::loader::Loader;
use crate::peers::Peers;
use crate::pipeline::Engine;
use crate::receiver::Receiver;
use crate::settings::{Idle, Sizes};
use crate::statistics::Statistics;

/// Longest sleep: how late a stop that comes just before it can be noticed.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// The same while frames that were sent have not left: some drivers go on with them only when they are asked to.
const SENDING: Duration = Duration::from_millis(1);
/// How late a thread that was not told to go notices that it is.
const NOTICE: Duration = Duration::from_millis(1);
/// How long frames that handlers sent may take to leave after the last one was received.
const DRAIN: Duration = Duration::from_millis(250);

/// What a thread takes turns of: an engine, or a receiver that feeds engines.
pub trait Part {
    /// One turn. Returns whether there was something to do.
    ///
    /// # Errors
    /// When the NIC is of no use any more.
    fn turn(&mut self, clock: &dyn Fn() -> Duration) -> Result<bool, NicError>;

    /// Whether something is under way that should not be cut short: it may take some more turns.
    fn is_busy(&self) -> bool;

    /// Asks no more of other threads.
    fn wind_up(&mut self) {}

    /// Whether other threads may still ask something of it.
    fn is_needed(&self) -> bool {
        false
    }

    /// Whether frames that were sent have not left.
    fn is_sending(&self) -> bool;

    /// Takes no more frames from the NIC.
    fn close(&mut self);

    /// Its thread goes to sleep.
    fn rest(&mut self) {}

    /// Whether something came from another thread.
    fn has_news(&self) -> bool;

    /// Whether nothing will ever come any more.
    fn is_over(&self) -> bool;

    /// What it waits for packets of.
    fn nic(&mut self) -> &mut dyn Queue;

    /// The statistics block so far.
    fn statistics(&self) -> Statistics;
}

impl Part for Engine {
    fn turn(&mut self, clock: &dyn Fn() -> Duration) -> Result<bool, NicError> {
        let taken = Self::turn(self, clock)?;
        Ok(taken > 0 || self.has_tasks() || self.has_exchanged() || self.is_busy_for_others())
    }

    fn rest(&mut self) {
        self.executor.rest();
    }

    fn is_busy(&self) -> bool {
        let fed = self.arrivals.as_ref().is_some_and(|arrivals| !arrivals.is_over());
        fed || self.has_tasks() || self.backlog() > 0
    }

    fn is_needed(&self) -> bool {
        self.may_borrow()
    }

    fn wind_up(&mut self) {
        self.stop_lending();
    }

    fn is_sending(&self) -> bool {
        self.unsent() > 0
    }

    fn close(&mut self) {
        self.closed = true;
    }

    fn has_news(&self) -> bool {
        let arrived = self.arrivals.as_ref().is_some_and(|arrivals| !arrivals.is_empty() || arrivals.is_over());
        arrived || self.has_loans() || self.is_busy_for_others()
    }

    fn is_over(&self) -> bool {
        match &self.arrivals {
            Some(arrivals) => arrivals.is_over(),
            None => self.out_on_lanes() == 0 && self.nic.exhausted(),
        }
    }

    fn nic(&mut self) -> &mut dyn Queue {
        &mut *self.nic
    }

    fn statistics(&self) -> Statistics {
        self.statistics()
    }
}

impl Part for Receiver {
    fn turn(&mut self, clock: &dyn Fn() -> Duration) -> Result<bool, NicError> {
        Ok(Self::turn(self, clock)? > 0)
    }

    fn is_busy(&self) -> bool {
        self.backlog() > 0
    }

    fn is_sending(&self) -> bool {
        self.unsent() > 0
    }

    fn close(&mut self) {
        self.close();
    }

    fn has_news(&self) -> bool {
        self.has_news()
    }

    fn is_over(&self) -> bool {
        self.is_exhausted()
    }

    fn nic(&mut self) -> &mut dyn Queue {
        self.nic()
    }

    fn statistics(&self) -> Statistics {
        self.statistics()
    }
}

/// What a thread is asked to do with its part.
type Request<P> = Box<dyn FnOnce(&mut P) + Send>;

/// What all threads of an engine have in common.
#[derive(Clone)]
pub struct Common {
    /// Of images and translations.
    pub loader: Arc<Loader>,
    /// Room of each thread's engine.
    pub sizes: Sizes,
    /// Whose tasks run next.
    pub schedule: Schedule,
    /// What to do when idle.
    pub idle: Idle,
    /// They take no packets until it is set: all contexts that there are from the start are installed first.
    pub go: Arc<AtomicBool>,
    /// They end soon after it is set.
    pub stop: Arc<AtomicBool>,
    /// The moment that times are counted from.
    pub start: Instant,
    /// Written when a thread ends.
    pub ended: Arc<OwnedFd>,
}

/// What a thread has done, and what ended it if that is not what it was told.
type Ended = (Statistics, Result<(), NicError>);

/// A running thread.
pub struct Worker<P> {
    requests: Mailbox<Request<P>>,
    thread: JoinHandle<Ended>,
}

impl<P: Part + 'static> Worker<P> {
    /// Starts a thread on `core`, or wherever the system puts it, for what `make` makes there. `bell` is what it sleeps on.
    ///
    /// # Errors
    /// When there is no thread to be had, or it cannot run handlers or not on that core.
    pub fn start(
        common: Common,
        name: String,
        core: Option<usize>,
        bell: Arc<Bell>,
        make: impl FnOnce() -> Result<P, String> + Send + 'static,
    ) -> Result<Self, ThreadError> {
        let fail = |error: &dyn std::fmt::Display| ThreadError::Failed(error.to_string());
        let (requests, asked) = mailbox(bell);
        let (ready, begun) = sync_channel(1);
        let life = move || live(&common, core, &asked, &ready, make);
        let thread = thread::Builder::new().name(name).spawn(life).map_err(|error| fail(&error))?;
        match begun.recv() {
            Ok(Ok(())) => Ok(Self { requests, thread }),
            Ok(Err(error)) => Err(ThreadError::Failed(error)),
            Err(RecvError) => Err(ThreadError::Failed("a thread ended before it began".to_owned())),
        }
    }

    /// Has the thread do something between two turns, and waits until it has; `None` when it has ended.
    pub fn ask<R: Send + 'static>(&self, what: impl FnOnce(&mut P) -> R + Send + 'static) -> Option<R> {
        self.begin(what).wait()
    }

    /// Has the thread do something between two turns. Others can be asked before its answer is waited for: where threads have to
    /// share cores, each answer may be some milliseconds away.
    pub fn begin<R: Send + 'static>(&self, what: impl FnOnce(&mut P) -> R + Send + 'static) -> Asked<R> {
        let (reply, answer) = sync_channel(1);
        let request = move |part: &mut P| {
            // Whoever asked may have given up.
            let _ = reply.send(what(part));
        };
        // An ended thread has nobody to take it: the answer's other end is dropped with it.
        self.requests.put(Box::new(request));
        Asked(answer)
    }

    /// Whether it has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end, which something else brings about.
    ///
    /// # Errors
    /// The NIC's, or that it panicked.
    pub fn join(self) -> Result<Statistics, ThreadError> {
        let (statistics, ended) = self.finish();
        ended.map(|()| statistics)
    }

    /// The same. What it has done, however it ended.
    pub fn finish(self) -> (Statistics, Result<(), ThreadError>) {
        match self.thread.join() {
            Ok((statistics, ended)) => (statistics, ended.map_err(ThreadError::from)),
            Err(_) => {
                let panicked = ThreadError::Failed("a thread of the engine panicked".to_owned());
                (Statistics::default(), Err(panicked))
            }
        }
    }
}

/// What a thread was asked to do.
pub struct Asked<R>(Receiving<R>);

impl<R> Asked<R> {
    /// Waits until it is done; `None` when the thread has ended.
    #[must_use]
    pub fn wait(self) -> Option<R> {
        self.0.recv().ok()
    }
}

/// Where an engine's packets come from.
pub struct Feed {
    /// What its thread sleeps on.
    bell: Arc<Bell>,
    nic: Box<dyn Queue>,
    /// From another thread, not from the NIC.
    arrivals: Option<Arrivals>,
    /// To other threads, for which it receives too.
    lanes: Option<Lanes>,
    /// Threads that tasks may overflow to.
    peers: Option<Peers>,
}

impl Feed {
    /// From a NIC of its own.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn of_nic(nic: Box<dyn Queue>) -> Result<Self, NicError> {
        Ok(Self::with(Bell::new()?, nic))
    }

    /// From a [`Receiver`].
    #[must_use]
    pub fn of_lane(arrivals: Arrivals, queue: LaneQueue) -> Self {
        let arrivals_bell = arrivals.bell().clone();
        Self { arrivals: Some(arrivals), ..Self::with(arrivals_bell, Box::new(queue)) }
    }

    const fn with(bell: Arc<Bell>, nic: Box<dyn Queue>) -> Self {
        Self { bell, nic, arrivals: None, lanes: None, peers: None }
    }

    /// From a NIC of its own, for `others` too, which have room for so many HERs each. It keeps `local_share` percent of another's share
    /// of the messages. Returns also what each of these needs.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn spreading(
        nic: Box<dyn Queue>,
        others: usize,
        hers: u32,
        local_share: u32,
    ) -> Result<(Self, Ends), NicError> {
        let own = Self::of_nic(nic)?;
        let (lanes, ends) = Lanes::spreading(own.nic.max_frame(), &own.bell, others, hers, local_share)?;
        Ok((Self { lanes: Some(lanes), ..own }, ends))
    }

    /// Has the threads of several feeds take tasks over from each other.
    pub fn connect(feeds: &mut [Self]) {
        let bells: Vec<_> = feeds.iter().map(|feed| feed.bell.clone()).collect();
        if bells.len() > 1 {
            feeds.iter_mut().zip(Peers::of(&bells)).for_each(|(feed, peers)| feed.peers = Some(peers));
        }
    }

    /// The engine that it feeds, for `clusters`.
    fn engine(self, common: Common, clusters: Range<u32>) -> Result<Engine, String> {
        let Self { nic, arrivals, lanes, peers, .. } = self;
        let engine = Engine::new(common.loader, nic, common.sizes, common.schedule, clusters);
        let mut engine = engine.map_err(|error| error.to_string())?;
        if let Some(arrivals) = arrivals {
            engine = engine.fed_by(arrivals);
        }
        if let Some(lanes) = lanes {
            engine = engine.spreading(lanes);
        }
        if let Some(peers) = peers {
            engine = engine.with_peers(peers);
        }
        Ok(engine)
    }
}

impl Worker<Engine> {
    /// Starts a thread that runs the handlers of `clusters`: see [`Worker::start`].
    ///
    /// # Errors
    /// As there.
    pub fn start_engine(
        common: Common,
        feed: Feed,
        clusters: Range<u32>,
        core: Option<usize>,
    ) -> Result<Self, ThreadError> {
        let name = format!("cluster-{}", clusters.start);
        let (bell, with) = (feed.bell.clone(), common.clone());
        Self::start(common, name, core, bell, move || feed.engine(with, clusters))
    }
}

/// A thread from its beginning to its end.
fn live<P: Part>(
    common: &Common,
    core: Option<usize>,
    asked: &Inbox<Request<P>>,
    ready: &SyncSender<Result<(), String>>,
    make: impl FnOnce() -> Result<P, String>,
) -> Ended {
    // Whatever ends it, panics too: the control thread has to know.
    let _bell = Knell(&common.ended);
    let mut part = match core.map_or(Ok(()), spin_nic::affinity::pin).and_then(|()| make()) {
        Ok(part) => part,
        Err(error) => {
            // Whoever starts it waits for this.
            let _ = ready.send(Err(error));
            return (Statistics::default(), Ok(()));
        }
    };
    let _ = ready.send(Ok(()));
    prepare(&mut part, common, asked);
    let ended = run(&mut part, common, asked).and_then(|()| drain(&mut part, common));
    (part.statistics(), ended)
}

/// Rings when dropped.
struct Knell<'b>(&'b OwnedFd);

impl Drop for Knell<'_> {
    fn drop(&mut self) {
        // The counter of an eventfd overflows after 2^64 - 1 wake-ups; otherwise this cannot fail.
        let _ = rustix::io::write(self.0, &1_u64.to_ne_bytes());
    }
}

/// Does what it is asked for until packets are to be taken.
fn prepare<P: Part>(part: &mut P, common: &Common, asked: &Inbox<Request<P>>) {
    while !common.go.load(Relaxed) && !common.stop.load(Relaxed) {
        if let Some(request) = asked.wait(NOTICE) {
            request(part);
        }
    }
}

/// Turns, with requests and sleep in between, until it is told to stop or nothing comes any more.
fn run<P: Part>(part: &mut P, common: &Common, asked: &Inbox<Request<P>>) -> Result<(), NicError> {
    let clock = || common.start.elapsed();
    let mut rest = Rest::new(common.idle);
    while !common.stop.load(Relaxed) {
        // One request a turn: however many wait, packets are seen to in between.
        let request = asked.next();
        let busy = request.is_some();
        if let Some(request) = request {
            request(part);
        }
        if part.turn(&clock)? || busy {
            rest.over();
            continue;
        }
        if part.is_over() {
            return Ok(());
        }
        if rest.wanted(clock) {
            part.rest();
            let longest = if part.is_sending() { SENDING } else { LONGEST_SLEEP };
            asked.sleep(|bell| if part.has_news() { Ok(()) } else { part.nic().wait(Some(bell), longest) })?;
            rest.over();
        }
    }
    Ok(())
}

/// The NIC hands over no more frames; those that it has are processed, and all that was sent leaves.
fn drain<P: Part>(part: &mut P, common: &Common) -> Result<(), NicError> {
    if let Err(error) = part.nic().steering().set_rules(&[]) {
        // So it goes on handing frames over, for as long as they are waited for.
        tracing::warn!("the NIC keeps its rules: {error}");
    }
    part.wind_up();
    let clock = || common.start.elapsed();
    let deadline = Instant::now() + DRAIN;
    // Whether it is needed is asked before whether there is something to do: the last that others ask is seen then.
    while (part.is_needed() | part.turn(&clock)? || part.is_busy()) && Instant::now() < deadline {}
    // A NIC without a kernel below it does not come to an end.
    part.close();
    let deadline = Instant::now() + DRAIN;
    while part.is_busy() && Instant::now() < deadline {
        part.turn(&clock)?;
    }
    if part.is_busy() {
        tracing::warn!("frames were left: the NIC took none, or handlers did not end, for {DRAIN:?}");
    }
    Ok(())
}
