//! spind: opens the NIC, starts the engine's threads, and carries out applications' requests until the end.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use hpu_vm::jit::Executor;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spin_abi::control::{Reply, Request};
use spin_nic::afxdp::{AfXdp, AfXdpConfig, Mode};
use spin_nic::frame::CHUNK;
use spin_nic::memory::MemoryQueue;
use spin_nic::pcap::PcapQueue;
use spin_nic::{NicError, Queue};

use crate::control::audit::Wanted;
use crate::control::capabilities;
use crate::control::config::{Config, Nic, StaticContext, XdpMode};
use crate::control::log::LOG;
use crate::control::privileges;
use crate::control::replay::Replay;
use crate::control::server::{Answer, Responder, Server, ServerError, Ticket, Work};
use crate::control::stats_cache::{Reading, Readings};
use crate::cores::ThreadError;
use crate::cores::group::{Changed, Changes, ClusterThread, Fleet, Receiving};
use crate::cores::thread::{Common, Feed, Worker};
use crate::install::{InstallError, Prepared, User};
use crate::lanes::{Ends, Lanes};
use crate::loader::Loader;
use crate::memory::saturate;
use crate::pipeline::Engine;
use crate::receiver::Receiver;
use crate::settings::Mode as Threads;
use crate::statistics::Statistics;

/// Frames of a queue that are left to send when contexts have all that they may have.
const TO_SEND: usize = 1024;
/// Bytes of a huge page, which frames fill.
const HUGE: usize = 2 << 20;
/// Frames in flight between the two ends of the loopback NIC.
const LOOPBACK_FRAMES: usize = 1024;
/// Requests that are answered together.
const TOGETHER: usize = 64;
/// Pause after requests for which the threads that serve packets were asked, so that nobody takes their time by asking again and again;
/// and after some that were refused, which need not wait for the NIC.
const PAUSE: Duration = Duration::from_millis(1);
const REFUSED: Duration = Duration::from_millis(5);
/// How long frames of a capture arrive before other requests have their turn.
const REPLAYED: Duration = Duration::from_millis(10);
/// Longest wait for a request: how late a signal that arrives just before it can be noticed.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Why spind stopped.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The NIC.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The control socket.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The NIC went away.
    #[error("the NIC is gone: {0}")]
    Gone(String),
    /// A thread of the engine.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// Requests cannot be waited for.
    #[error("cannot wait for requests: {0}")]
    Wait(rustix::io::Errno),
    /// Capabilities cannot be given up.
    #[error("cannot give up capabilities: {0}")]
    Privileges(rustix::io::Errno),
    /// A context of the configuration file.
    #[error("context of image {}: {source}", image.display())]
    Context {
        /// Its image.
        image: PathBuf,
        /// What was wrong.
        source: Box<InstallError>,
    },
    /// An image of the configuration file cannot be read.
    #[error("image {}: {source}", image.display())]
    ReadImage {
        /// The image.
        image: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The daemon, ready to run.
pub struct Daemon {
    fleet: Fleet,
    /// The far end of the loopback NIC.
    far: Option<MemoryQueue>,
    /// Captures whose frames arrive there, one capture after the other, and whose answers wait for that.
    replays: VecDeque<(Replay, Responder)>,
    server: Server,
    readings: Readings,
    /// The NIC's end is the end of the job, not a failure.
    ends: bool,
    /// What the NIC is, in words.
    nic: String,
    common: Common,
}

impl Daemon {
    /// Checks each of the configuration's contexts and binds the control socket before the NIC is touched; then opens it
    /// and installs the contexts. The engine's threads end soon after `stop` is set.
    ///
    /// # Errors
    /// See [`DaemonError`].
    pub fn new(config: &Config, stop: &Arc<AtomicBool>) -> Result<Self, DaemonError> {
        raise_descriptors();
        let loader = Arc::new(Loader::new(config.machine, config.engine).with_compat(config.compat));
        let contexts: Vec<_> =
            config.contexts.iter().map(|context| prepare(context, config, &loader)).collect::<Result<_, _>>()?;
        let server = Server::bind(&config.socket, config.socket_mode, config.metrics.as_ref())?;
        let (nics, far) = open(config)?;
        let capabilities = capabilities::of(config, &nics);
        let nic = capabilities.nic.clone();
        tracing::info!("serving {nic}");
        if !Executor::start_monitor() {
            tracing::info!("no real-time priority (CAP_SYS_NICE): timers look for handlers that run too long");
        }
        // Threads started from here on have no other privileges.
        privileges::drop_unneeded().map_err(DaemonError::Privileges)?;
        LOG.set_apart().map_err(ServerError::Io)?;
        let common = Common {
            loader: loader.clone(),
            sizes: config.sizes,
            schedule: config.schedule,
            idle: config.idle,
            go: Arc::default(),
            stop: stop.clone(),
            start: Instant::now(),
            ended: server.waker(),
        };
        let steering = nics.first().ok_or_else(no_queue)?.steering();
        let (workers, receiving) = start_workers(config, &common, nics)?;
        let ends = matches!(config.nic, Nic::Pcap { .. });
        let fleet = Fleet::new(workers, receiving, steering, config.limits);
        let (replays, readings) = (VecDeque::new(), Readings::default());
        let mut daemon = Self { fleet, far, replays, server, readings, ends, nic, common };
        let installed = daemon.fleet.change(Changes { installs: contexts, ..Changes::default() }).installed;
        for (installed, context) in installed.into_iter().zip(&config.contexts) {
            installed.map_err(|source| failed(context, source))?;
        }
        daemon.common.go.store(true, Relaxed);
        daemon.server.start(loader, config.limits, capabilities)?;
        tracing::info!("listening on {}", config.socket.display());
        Ok(daemon)
    }

    /// Carries out requests until it is told to stop or the NIC is exhausted, then lets what is under way finish. What there is to tell of it
    /// all, and whether the NIC failed.
    pub fn run(mut self) -> (Statistics, Result<(), DaemonError>) {
        let carried_out = self.carry_out();
        let told = self.common.stop.swap(true, Relaxed);
        let (statistics, ended) = self.fleet.finish();
        let (ends, nic) = (told || self.ends, self.nic);
        let gone = || if ends { Ok(()) } else { Err(DaemonError::Gone(nic)) };
        (statistics, carried_out.and(ended.map_err(DaemonError::from)).and_then(|()| gone()))
    }

    /// Carries out requests until it is told to stop or a thread has ended.
    fn carry_out(&mut self) -> Result<(), DaemonError> {
        while !self.common.stop.load(Relaxed) && !self.fleet.has_ended() {
            // So many at a time: however many wait, the end is not missed.
            let tickets: Vec<_> = std::iter::from_fn(|| self.server.next()).take(TOGETHER).collect();
            if tickets.is_empty() && self.replays.is_empty() {
                let longest = self.readings.wait().map_or(LONGEST_WAIT, |wait| wait.min(LONGEST_WAIT));
                self.server.wait(longest).map_err(DaemonError::Wait)?;
            }
            let pause = self.serve(tickets);
            self.replay();
            self.readings.answer(&self.fleet, &self.nic);
            sleep(pause);
        }
        Ok(())
    }

    /// Answers requests. Contexts are changed together: whose requests wait at the same time did not wait for each other. Returns how
    /// long the threads that serve packets are then left in peace.
    fn serve(&mut self, tickets: Vec<Ticket>) -> Duration {
        let mut changes = Changes::default();
        let (mut questions, mut askers) = (Vec::new(), Vec::new());
        let (mut installers, mut rulers, mut removers) = (Vec::new(), Vec::new(), Vec::new());
        for Ticket { work, reply } in tickets {
            match work {
                Work::Install(prepared) => {
                    changes.installs.push(*prepared);
                    installers.push(reply);
                }
                Work::SetRules(context, user, rules) => {
                    changes.rules.push((context, user, *rules));
                    rulers.push(reply);
                }
                Work::Request(Request::Remove { context }, user) => {
                    changes.removals.push((context, user));
                    removers.push(reply);
                }
                Work::Replay(capture) => match self.replay_of(&capture) {
                    Ok(replay) => self.replays.push_back((replay, reply)),
                    Err(error) => reply.answer(Err(error)),
                },
                Work::Request(Request::List, _) => self.readings.ask(Reading::Contexts, reply),
                Work::Request(Request::Stats, _) => self.readings.ask(Reading::Stats, reply),
                Work::Request(request, user) => {
                    questions.push((request, user));
                    askers.push(reply);
                }
            }
        }
        let asked = !askers.is_empty();
        askers.into_iter().zip(self.answers(questions)).for_each(|(reply, answer)| reply.answer(answer));
        if installers.is_empty() && rulers.is_empty() && removers.is_empty() {
            return if asked { PAUSE } else { Duration::ZERO };
        }
        let wanted = Wanted::of(&changes);
        let Changed { installed, ruled, removed } = self.fleet.change(changes);
        wanted.log(&installed, &ruled, &removed);
        let mut outcomes = ruled.iter().chain(&removed).map(Result::is_ok).chain(installed.iter().map(Result::is_ok));
        let pause = if outcomes.all(|fine| fine) { PAUSE } else { REFUSED };
        for (reply, installed) in installers.into_iter().zip(installed) {
            reply.answer(installed.map(Answer::Installed).map_err(|error| error.to_string()));
        }
        for (reply, changed) in rulers.into_iter().zip(ruled).chain(removers.into_iter().zip(removed)) {
            reply.answer(done(changed).map(Answer::plain));
        }
        pause
    }

    /// What becomes of requests that concern one context each: all threads are asked at once.
    fn answers(&self, questions: Vec<(Request, User)>) -> Vec<Result<Answer, String>> {
        if questions.is_empty() {
            return Vec::new();
        }
        let count = questions.len();
        let each = self.fleet.all(move |engine| {
            let ask = |(request, user): &(Request, User)| answer(engine, request, *user);
            questions.iter().map(ask).collect::<Vec<_>>()
        });
        let mut each: Vec<_> = each.into_iter().map(Vec::into_iter).collect();
        let of_all = |_| each.iter_mut().filter_map(Iterator::next).reduce(Result::and);
        (0..count).map(of_all).map(|answer| answer.unwrap_or_else(|| Err(InstallError::Stopped.to_string()))).collect()
    }

    fn replay_of(&self, capture: &[u8]) -> Result<Replay, String> {
        if self.far.is_none() {
            return Err("only a spind with --nic loopback can replay a capture".to_owned());
        }
        Replay::new(capture)
    }

    /// Lets some frames of a capture arrive on the loopback NIC. When they are through, what was sent meanwhile is the answer, as a capture,
    /// and how many there were.
    fn replay(&mut self) {
        let Some((mut replay, reply)) = self.replays.pop_front() else { return };
        let (start, thread) = (self.common.start, self.fleet.workers.first());
        // Who waits for the answer is told that spind is stopping when nobody is left to give one.
        let (Some(mut far), Some(thread)) = (self.far.take(), thread) else { return };
        let went_on = thread.worker.ask(move |engine| match replay.go_on(engine, &mut far, start, REPLAYED) {
            Ok(true) => (far, Ok(replay.end(engine)), None),
            Ok(false) => (far, Ok(Default::default()), Some(replay)),
            Err(error) => (far, Err(error), None),
        });
        let Some((far, outcome, more)) = went_on else { return };
        self.far = Some(far);
        match more {
            Some(replay) => self.replays.push_front((replay, reply)),
            None => reply.answer(outcome.map(|(sent, told)| Answer::Reply(Reply::Replayed(told), sent, None))),
        }
    }
}

/// A thread for each part of the NIC, with its share of the clusters; or threads for the clusters, of which the first one or another one has the
/// NIC.
fn start_workers(
    config: &Config,
    common: &Common,
    nics: Vec<Box<dyn Queue>>,
) -> Result<(Vec<ClusterThread>, Receiving), DaemonError> {
    if config.mode == Threads::RunToCompletion {
        let feeds = nics.into_iter().map(Feed::of_nic).collect::<Result<_, _>>()?;
        return Ok((start_clusters(config, common, &config.cores, feeds)?, Receiving::Each));
    }
    let nic = nics.into_iter().next().ok_or_else(no_queue)?;
    let (own, others) = config.cores.split_first().map_or((None, &[][..]), |(own, others)| (Some(*own), others));
    let fed = |ends: Ends| ends.into_iter().map(|(arrivals, queue)| Feed::of_lane(arrivals, queue));
    if config.local_share > 0 {
        let (first, ends) = Feed::spreading(nic, others.len(), config.sizes.hers, config.local_share)?;
        let feeds = std::iter::once(first).chain(fed(ends)).collect();
        return Ok((start_clusters(config, common, &config.cores, feeds)?, Receiving::First));
    }
    let (receiver, ends) = Receiver::new(nic, others.len(), config.sizes.hers)?;
    let clusters = start_clusters(config, common, others, fed(ends).collect())?;
    let bell = receiver.bell().clone();
    let receiver = Worker::start(common.clone(), "receiver".to_owned(), own, bell, move || Ok(receiver))?;
    Ok((clusters, Receiving::Apart(receiver)))
}

fn no_queue() -> DaemonError {
    DaemonError::Thread(ThreadError::Failed("there is no queue to receive from".to_owned()))
}

/// Threads for these feeds, each with its share of the clusters, on these cores.
fn start_clusters(
    config: &Config,
    common: &Common,
    cores: &[usize],
    mut feeds: Vec<Feed>,
) -> Result<Vec<ClusterThread>, DaemonError> {
    Feed::connect(&mut feeds);
    let (clusters, threads) = (config.machine.clusters, saturate(feeds.len() as u64));
    let share = |thread: u32| clusters * thread / threads;
    let start = |(thread, feed): (u32, Feed)| {
        let clusters = share(thread)..share(thread + 1);
        let core = cores.get(thread as usize).copied();
        let worker = Worker::start_engine(common.clone(), feed, clusters.clone(), core)?;
        Ok(ClusterThread { clusters, worker })
    };
    (0..threads).zip(feeds).map(start).collect()
}

/// A context's memory takes a few descriptors: as many are allowed as may be.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!("the limit of open files stays: {error}");
    }
}

/// What one thread's part of a context says to a request.
fn answer(engine: &mut Engine, request: &Request, user: User) -> Result<Answer, String> {
    let answer = match *request {
        Request::MapHost { context, address } => {
            engine.map_host(context, user, address).map(|()| Answer::plain(Reply::Ok))
        }
        Request::Events { context } => engine
            .descriptor(context, user)
            .map(|region| Answer::Reply(Reply::Events { len: region.len() }, Vec::new(), Some(region))),
        Request::HostMemory { context } => engine.host_memory(context, user).map(|(region, address)| {
            Answer::Reply(Reply::HostMemory { len: region.len(), address }, Vec::new(), Some(region))
        }),
        _ => return Err("the engine is not asked this".to_owned()),
    };
    answer.map_err(|error| error.to_string())
}

fn done(result: Result<(), InstallError>) -> Result<Reply, String> {
    result.map(|()| Reply::Ok).map_err(|error| error.to_string())
}

/// Frames for a queue: so many that there are some to receive into and to send, even if contexts leave all waiting that they may.
fn frames(config: &Config, settings: &AfXdpConfig) -> u32 {
    let hers = config.sizes.hers as usize;
    let others = config.cores.len().saturating_sub(1);
    let held = match config.mode {
        Threads::RunToCompletion => hers,
        Threads::Pipeline => {
            let own = if config.local_share == 0 { 0 } else { hers };
            own + Lanes::most(others, config.sizes.hers)
        }
    };
    let all = settings.rx_ring as usize + held + TO_SEND;
    saturate(all.next_multiple_of(HUGE / CHUNK) as u64).max(settings.frames_per_queue)
}

/// A queue for each thread, and the far end of the loopback NIC.
type Nics = (Vec<Box<dyn Queue>>, Option<MemoryQueue>);

fn open(config: &Config) -> Result<Nics, NicError> {
    Ok(match &config.nic {
        Nic::Interface(interface) => {
            let mode = match config.xdp_mode {
                XdpMode::Auto => Mode::Auto,
                XdpMode::Native => Mode::Native,
                XdpMode::Generic => Mode::Generic,
            };
            let settings = AfXdpConfig { mode, cores: config.cores.clone(), ..AfXdpConfig::new(interface) };
            let frames_per_queue = frames(config, &settings);
            let settings = AfXdpConfig { frames_per_queue, ..settings };
            let parts = if config.mode == Threads::RunToCompletion { config.cores.len() } else { 1 };
            let parts = AfXdp::open_parts(&settings, parts)?;
            (parts.into_iter().map(|part| Box::new(part) as Box<dyn Queue>).collect(), None)
        }
        Nic::Loopback => {
            let (near, far) = spin_nic::memory::pair(LOOPBACK_FRAMES)?;
            (vec![Box::new(near)], Some(far))
        }
        Nic::Pcap { input, output } => (vec![Box::new(PcapQueue::open(input, output)?)], None),
    })
}

/// Checks a context of the configuration.
fn prepare(context: &StaticContext, config: &Config, loader: &Loader) -> Result<Prepared, DaemonError> {
    let image = &context.image;
    let file = std::fs::read(image).map_err(|source| DaemonError::ReadImage { image: image.clone(), source })?;
    let mut install = context.install.clone();
    if install.name.is_empty() {
        install.name = image.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    }
    let uid = rustix::process::getuid().as_raw();
    Prepared::new(install, &file, uid, loader, &config.limits).map_err(|source| failed(context, source))
}

fn failed(context: &StaticContext, source: InstallError) -> DaemonError {
    DaemonError::Context { image: context.image.clone(), source: Box::new(source) }
}
