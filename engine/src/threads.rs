//! The engine's threads: each takes the turns of some of the machine's clusters, on a core of its own, with a NIC queue of its
//! own (run to completion). They share no state that packets touch; what the control thread wants of them is done between
//! two turns.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvError, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_setaffinity};
use spin_abi::control::Schedule;
use spin_nic::{NicError, Queue};

use crate::config::{Idle, Sizes};
use crate::daemon::DaemonError;
use crate::loader::Loader;
use crate::pipeline::Engine;
use crate::statistics::Statistics;

/// Turns without a packet before a thread sleeps: a burst's next packet is usually closer than a wake-up.
const TURNS_BEFORE_SLEEP: u32 = 2_000;
/// Longest sleep: how late a stop that comes just before it can be noticed.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// How long frames that handlers sent may take to leave after the last one was received.
const DRAIN: Duration = Duration::from_millis(500);

/// What a thread is asked to do with its engine.
type Request = Box<dyn FnOnce(&mut Engine) + Send>;

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

/// A running thread.
pub struct Worker {
    clusters: Range<u32>,
    requests: Sender<Request>,
    /// Wakes it when it sleeps.
    wake: Arc<OwnedFd>,
    thread: JoinHandle<Result<Statistics, NicError>>,
}

impl Worker {
    /// Starts a thread for `clusters` on `core`, or wherever the system puts it.
    ///
    /// # Errors
    /// When there is no thread to be had, or it cannot run handlers or not on that core.
    pub fn start(
        common: Common,
        nic: Box<dyn Queue>,
        clusters: Range<u32>,
        core: Option<usize>,
    ) -> Result<Self, DaemonError> {
        let fail = |error: &dyn std::fmt::Display| DaemonError::Thread(error.to_string());
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|errno| fail(&errno))?;
        let wake = Arc::new(wake);
        let (requests, asked) = channel();
        let (ready, begun) = sync_channel(1);
        let (own, bell) = (clusters.clone(), wake.clone());
        let life = move || live(&common, nic, own, core, &asked, &bell, &ready);
        let name = format!("cluster-{}", clusters.start);
        let thread = thread::Builder::new().name(name).spawn(life).map_err(|error| fail(&error))?;
        match begun.recv() {
            Ok(Ok(())) => Ok(Self { clusters, requests, wake, thread }),
            Ok(Err(error)) => Err(DaemonError::Thread(error)),
            Err(RecvError) => Err(DaemonError::Thread("a thread ended before it began".to_owned())),
        }
    }

    /// The clusters it runs.
    #[must_use]
    pub const fn clusters(&self) -> &Range<u32> {
        &self.clusters
    }

    /// Has the thread do something between two turns, and waits until it has; `None` when it has ended.
    pub fn ask<R: Send + 'static>(&self, what: impl FnOnce(&mut Engine) -> R + Send + 'static) -> Option<R> {
        let (reply, answer) = sync_channel(1);
        let request = move |engine: &mut Engine| {
            // Whoever asked waits for it.
            let _ = reply.send(what(engine));
        };
        self.requests.send(Box::new(request)).ok()?;
        // The counter of an eventfd overflows after 2^64 - 1 wake-ups; otherwise this cannot fail.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        answer.recv().ok()
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
    pub fn join(self) -> Result<Statistics, DaemonError> {
        match self.thread.join() {
            Ok(result) => Ok(result?),
            Err(_) => Err(DaemonError::Thread("a thread of the engine panicked".to_owned())),
        }
    }
}

/// A thread from its beginning to its end.
fn live(
    common: &Common,
    nic: Box<dyn Queue>,
    clusters: Range<u32>,
    core: Option<usize>,
    asked: &Receiver<Request>,
    wake: &OwnedFd,
    ready: &SyncSender<Result<(), String>>,
) -> Result<Statistics, NicError> {
    // Whatever ends it, panics too: the control thread has to know.
    let _bell = Bell(&common.ended);
    let engine = pin(core).and_then(|()| {
        Engine::new(common.loader.clone(), nic, common.sizes, common.schedule, clusters)
            .map_err(|error| error.to_string())
    });
    let mut engine = match engine {
        Ok(engine) => engine,
        Err(error) => {
            // Whoever starts it waits for this.
            let _ = ready.send(Err(error));
            return Ok(Statistics::default());
        }
    };
    let _ = ready.send(Ok(()));
    run(&mut engine, common, asked, wake)?;
    drain(&mut engine, common)?;
    Ok(engine.statistics())
}

/// Rings when dropped.
struct Bell<'b>(&'b OwnedFd);

impl Drop for Bell<'_> {
    fn drop(&mut self) {
        // As in `Worker::ask`.
        let _ = rustix::io::write(self.0, &1_u64.to_ne_bytes());
    }
}

fn pin(core: Option<usize>) -> Result<(), String> {
    let Some(core) = core else { return Ok(()) };
    if core >= CpuSet::MAX_CPU {
        return Err(format!("there is no core {core}"));
    }
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).map_err(|errno| format!("cannot run on core {core}: {errno}"))
}

/// Turns, with requests and sleep in between, until it is told to stop or its NIC has come to its end.
fn run(engine: &mut Engine, common: &Common, asked: &Receiver<Request>, wake: &OwnedFd) -> Result<(), NicError> {
    let mut empty_turns = 0;
    while !common.stop.load(Relaxed) {
        // One request a turn: however many wait, packets are seen to in between.
        let request = asked.try_recv();
        let busy = request.is_ok();
        if let Ok(request) = request {
            request(engine);
        }
        if !common.go.load(Relaxed) {
            thread::park_timeout(Duration::from_millis(1));
            continue;
        }
        if engine.turn(|| common.start.elapsed())? > 0 || busy || engine.is_busy() {
            empty_turns = 0;
            continue;
        }
        if engine.nic.exhausted() {
            return Ok(());
        }
        empty_turns += 1;
        if common.idle == Idle::Sleep && empty_turns >= TURNS_BEFORE_SLEEP {
            engine.nic.wait(Some(wake.as_fd()), LONGEST_SLEEP)?;
            // EAGAIN when nobody woke it.
            let _ = rustix::io::read(wake, &mut [0; 8]);
            empty_turns = 0;
        }
    }
    Ok(())
}

/// No new frames are matched; those already received are processed, and all that was sent leaves.
fn drain(engine: &mut Engine, common: &Common) -> Result<(), NicError> {
    engine.nic.set_rules(&[])?;
    let deadline = Instant::now() + DRAIN;
    while (engine.turn(|| common.start.elapsed())? > 0 || engine.is_busy() || engine.backlog() > 0)
        && Instant::now() < deadline
    {}
    match engine.backlog() {
        0 => {}
        left => tracing::warn!("{left} frames were not sent: the NIC took none for {DRAIN:?}"),
    }
    Ok(())
}
