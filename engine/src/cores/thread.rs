//! A thread of the engine, on a core of its own. It polls a worker, which runs the handlers of some of the machine's clusters. A
//! worker has a NIC queue of its own (run to completion), or gets packets from a distributor (pipeline). Another kind of thread
//! polls a distributor without handlers. The only state that threads share on the packet path are the rings of
//! [`crate::cores::packet_channel`] and [`crate::cores::helpers`]. Requests of the control thread are carried out between two
//! polls.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use spin_abi::control::Schedule;
use spin_abi::rules::RuleSet;
use spin_nic::{NicError, Wakeup};
use spin_sync::{RequestRx, RequestTx, request_queue};

use super::error::ThreadError;
use super::idle::IdleBackoff;
use super::poller::Poller;
use crate::context::loader::Loader;
use crate::settings::{Idle, Sizes};
use crate::telemetry::statistics::Statistics;

/// Longest sleep. A stop that comes just before a sleep is noticed this late.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// Longest sleep while sent frames have not left: some drivers continue only when they are called.
const SLEEP_WHILE_SENDING: Duration = Duration::from_millis(1);
/// Delay after which a thread notices that it may receive.
const START_DELAY: Duration = Duration::from_millis(1);
/// Time for sent frames to leave after reception has ended.
const DRAIN: Duration = Duration::from_millis(250);

/// A request of the control thread.
type Request<P> = Box<dyn FnOnce(&mut P) + Send>;

/// Settings and flags that all threads of an engine share.
#[derive(Clone)]
pub struct SharedConfig {
    /// The loader of images and translations.
    pub loader: Arc<Loader>,
    /// Sizes of each worker's tables.
    pub sizes: Sizes,
    /// Scheduling policy between contexts.
    pub schedule: Schedule,
    /// Behaviour of threads without work.
    pub idle: Idle,
    /// Whether threads may receive. Set after the contexts of the configuration are installed.
    pub go: Arc<AtomicBool>,
    /// Whether threads are to end.
    pub stop: Arc<AtomicBool>,
    /// The origin of all times.
    pub start: Instant,
    /// An eventfd, written when a thread ends.
    pub ended: Arc<OwnedFd>,
}

/// Statistics of a thread, and the error that ended it.
type Ended = (Statistics, Result<(), NicError>);

/// A running thread that polls a `P`.
pub struct PollThread<P> {
    requests: RequestTx<Request<P>>,
    thread: JoinHandle<Ended>,
}

impl<P: Poller + 'static> PollThread<P> {
    /// Starts a thread on `core`, or on any core. `make` is called on the thread, and returns the object to poll. The thread
    /// sleeps on `wakeup`.
    ///
    /// # Errors
    /// When the system starts no thread, refuses the core, or `make` fails.
    pub fn start(
        shared: SharedConfig,
        name: String,
        core: Option<usize>,
        wakeup: Arc<Wakeup>,
        make: impl FnOnce() -> Result<P, String> + Send + 'static,
    ) -> Result<Self, ThreadError> {
        let fail = |error: &dyn std::fmt::Display| ThreadError::Failed(error.to_string());
        let (requests, inbox) = request_queue(wakeup);
        let (ready, started) = sync_channel(1);
        let main = move || thread_main(&shared, core, &inbox, &ready, make);
        let thread = thread::Builder::new().name(name).spawn(main).map_err(|error| fail(&error))?;
        match started.recv() {
            Ok(Ok(())) => Ok(Self { requests, thread }),
            Ok(Err(error)) => Err(ThreadError::Failed(error)),
            Err(RecvError) => Err(ThreadError::Failed("a thread ended before it began".to_owned())),
        }
    }

    /// Calls `what` on the thread between two polls, and waits for the result; `None` when the thread has ended.
    pub fn ask<R: Send + 'static>(&self, what: impl FnOnce(&mut P) -> R + Send + 'static) -> Option<R> {
        self.begin(what).wait()
    }

    /// Starts a call of `what` on the thread between two polls. The caller can ask other threads before it waits for the reply.
    /// Where threads share cores, each reply may take some milliseconds.
    pub fn begin<R: Send + 'static>(&self, what: impl FnOnce(&mut P) -> R + Send + 'static) -> PendingReply<R> {
        let (sender, reply) = sync_channel(1);
        let request = move |poller: &mut P| {
            // The caller may have dropped its end.
            let _ = sender.send(what(poller));
        };
        // A thread that has ended drops the request, and with it the sender.
        self.requests.send(Box::new(request));
        PendingReply(reply)
    }

    /// Whether the thread has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until the thread has ended. The caller has stopped it by other means.
    ///
    /// # Errors
    /// The NIC's error, or that the thread panicked.
    pub fn join(self) -> Result<Statistics, ThreadError> {
        let (statistics, ended) = self.finish();
        ended.map(|()| statistics)
    }

    /// Waits as [`PollThread::join`] does. Returns statistics also when the thread failed.
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

/// The reply to a request of the control thread.
pub struct PendingReply<R>(Receiver<R>);

impl<R> PendingReply<R> {
    /// Waits for the reply; `None` when the thread has ended.
    #[must_use]
    pub fn wait(self) -> Option<R> {
        self.0.recv().ok()
    }
}

/// Runs a thread from start to end.
fn thread_main<P: Poller>(
    shared: &SharedConfig,
    core: Option<usize>,
    requests: &RequestRx<Request<P>>,
    ready: &SyncSender<Result<(), String>>,
    make: impl FnOnce() -> Result<P, String>,
) -> Ended {
    // The control thread has to notice every end, even by a panic.
    let _notifier = ExitNotifier(&shared.ended);
    let mut poller = match core.map_or(Ok(()), spin_nic::affinity::pin).and_then(|()| make()) {
        Ok(poller) => poller,
        Err(error) => {
            // The starting thread waits for this.
            let _ = ready.send(Err(error));
            return (Statistics::default(), Ok(()));
        }
    };
    let _ = ready.send(Ok(()));
    prepare(&mut poller, shared, requests);
    let ended = run(&mut poller, shared, requests).and_then(|()| drain(&mut poller, shared));
    (poller.statistics(), ended)
}

/// Writes an eventfd when dropped.
struct ExitNotifier<'e>(&'e OwnedFd);

impl Drop for ExitNotifier<'_> {
    fn drop(&mut self) {
        // The counter of an eventfd overflows after 2^64 - 1 wake-ups; otherwise this cannot fail.
        let _ = rustix::io::write(self.0, &1_u64.to_ne_bytes());
    }
}

/// Carries out requests until the thread may receive.
fn prepare<P: Poller>(poller: &mut P, shared: &SharedConfig, requests: &RequestRx<Request<P>>) {
    while !shared.go.load(Relaxed) && !shared.stop.load(Relaxed) {
        if let Some(request) = requests.wait(START_DELAY) {
            request(poller);
        }
    }
}

/// Polls until the thread is stopped or nothing will arrive from here on. Carries out requests and sleeps in between.
fn run<P: Poller>(poller: &mut P, shared: &SharedConfig, requests: &RequestRx<Request<P>>) -> Result<(), NicError> {
    let clock = || shared.start.elapsed();
    let mut backoff = IdleBackoff::new(shared.idle);
    while !shared.stop.load(Relaxed) {
        // One request per poll, so that packets do not wait for many requests.
        let request = requests.next();
        let busy = request.is_some();
        if let Some(request) = request {
            request(poller);
        }
        if poller.poll(&clock)? {
            backoff.reset();
            continue;
        }
        if busy {
            // A request is no sign of packets: where threads share cores, each would keep others waiting.
            continue;
        }
        if poller.is_finished() {
            return Ok(());
        }
        if backoff.should_sleep(clock) {
            poller.idle();
            let longest = if poller.is_sending() { SLEEP_WHILE_SENDING } else { LONGEST_SLEEP };
            requests
                .sleep(|wakeup| if poller.has_pending() { Ok(()) } else { poller.nic().wait(Some(wakeup), longest) })?;
        }
    }
    Ok(())
}

/// Processes frames that the NIC has already handed over, and waits until sent frames have left.
fn drain<P: Poller>(poller: &mut P, shared: &SharedConfig) -> Result<(), NicError> {
    if let Err(error) = poller.nic().steering().set_rules(&RuleSet::default()) {
        // The NIC then continues to hand frames over until the deadline.
        tracing::warn!("the NIC keeps its rules: {error}");
    }
    poller.shutdown();
    let clock = || shared.start.elapsed();
    let deadline = Instant::now() + DRAIN;
    // `has_dependents` is read before the poll: the poll then sees the last request of other threads.
    while (poller.has_dependents() | poller.poll(&clock)? || poller.is_busy()) && Instant::now() < deadline {}
    // A NIC without a kernel below it never ends by itself.
    poller.close();
    let deadline = Instant::now() + DRAIN;
    while poller.is_busy() && Instant::now() < deadline {
        poller.poll(&clock)?;
    }
    if poller.is_busy() {
        tracing::warn!("frames were left: the NIC took none, or handlers did not end, for {DRAIN:?}");
    }
    Ok(())
}
