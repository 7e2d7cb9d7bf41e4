//! spind: opens the NIC, starts the engine's threads, and carries out applications' requests until the end.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spin_abi::control::{ContextInfo, Reply, Request, Stats, ThreadInfo};
use spin_nic::afxdp::{AfXdp, AfXdpConfig, Mode};
use spin_nic::memory::MemoryQueue;
use spin_nic::pcap::PcapQueue;
use spin_nic::{NicError, Queue};

use crate::capabilities;
use crate::config::{Config, Limits, Mode as Threads, Nic, StaticContext, XdpMode};
use crate::inbound::Routes;
use crate::install::{InstallError, Prepared, User};
use crate::loader::Loader;
use crate::memory::saturate;
use crate::pipeline::Engine;
use crate::privileges;
use crate::receiver::Receiver;
use crate::replay::replay;
use crate::server::{Answer, Server, ServerError, Ticket, Work};
use crate::statistics::Statistics;
use crate::threads::{Common, Feed, Part, Worker};

/// Frames in flight between the two ends of the loopback NIC.
const LOOPBACK_FRAMES: usize = 1024;
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
    /// Handlers cannot be run.
    #[error("cannot run handlers: {0}")]
    Thread(String),
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

/// A thread that runs handlers.
struct ClusterThread {
    /// Its part of the machine's clusters.
    clusters: Range<u32>,
    worker: Worker<Engine>,
}

/// The daemon, ready to run.
pub struct Daemon {
    /// At least one. Without a receiver the first speaks for the NIC.
    workers: Vec<ClusterThread>,
    /// Who receives for all of them, in pipeline mode.
    receiver: Option<Worker<Receiver>>,
    /// The far end of the loopback NIC.
    far: Option<MemoryQueue>,
    server: Server,
    limits: Limits,
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
        let loader = Arc::new(Loader::new(config.machine, config.engine));
        let contexts: Vec<_> =
            config.contexts.iter().map(|context| prepare(context, config, &loader)).collect::<Result<_, _>>()?;
        let server = Server::bind(&config.socket, config.socket_mode, config.metrics.as_ref())?;
        let (nics, far) = open(config)?;
        let capabilities = capabilities::of(config, &nics);
        let nic = capabilities.nic.clone();
        tracing::info!("serving {nic}");
        // Threads started from here on have no other privileges.
        privileges::drop_unneeded().map_err(DaemonError::Privileges)?;
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
        let (workers, receiver) = start_workers(config, &common, nics)?;
        let ends = matches!(config.nic, Nic::Pcap { .. });
        let mut daemon = Self { workers, receiver, far, server, limits: config.limits, ends, nic, common };
        for (prepared, context) in contexts.into_iter().zip(&config.contexts) {
            daemon.install(prepared).map_err(|source| failed(context, source))?;
        }
        daemon.common.go.store(true, Relaxed);
        daemon.server.start(loader, config.limits, capabilities)?;
        tracing::info!("listening on {}", config.socket.display());
        Ok(daemon)
    }

    /// Carries out requests until it is told to stop or the NIC is exhausted, then lets what is under way finish.
    ///
    /// # Errors
    /// When the NIC fails.
    pub fn run(mut self) -> Result<Statistics, DaemonError> {
        while !self.common.stop.load(Relaxed) && !self.has_ended() {
            // One request at a time: however many wait, the end is not missed.
            match self.server.next() {
                Some(ticket) => self.serve(ticket),
                None => self.server.wait(LONGEST_WAIT).map_err(DaemonError::Wait)?,
            }
        }
        let told = self.common.stop.swap(true, Relaxed);
        let mut statistics = Statistics::default();
        for thread in self.workers {
            statistics.merge(&thread.worker.join()?);
        }
        if let Some(receiver) = self.receiver {
            statistics.merge(&receiver.join()?);
        }
        if told || self.ends { Ok(statistics) } else { Err(DaemonError::Gone(self.nic)) }
    }

    /// Whether one of the threads has come to its end.
    fn has_ended(&self) -> bool {
        self.receiver.as_ref().is_some_and(Worker::ended) || self.workers.iter().any(|thread| thread.worker.ended())
    }

    fn serve(&mut self, ticket: Ticket) {
        let Ticket { work, reply } = ticket;
        let answer = match work {
            Work::Install(prepared) => {
                self.install(*prepared).map(Answer::Installed).map_err(|error| error.to_string())
            }
            Work::Replay(capture) => self.replay(capture).map(|sent| Answer::Reply(Reply::Ok, sent, None)),
            Work::Request(request, user) => match request {
                Request::Remove { context } => done(self.remove(context, user)),
                Request::MapHost { context, address } => {
                    done(self.all(move |engine| engine.map_host(context, user, address)))
                }
                Request::List => Ok(Reply::Contexts { contexts: self.context_infos() }),
                Request::Stats => Ok(Reply::Stats(self.stats())),
                Request::Events { context } => {
                    return reply.answer(self.events(context, user).map_err(|error| error.to_string()));
                }
                Request::HostMemory { context } => {
                    return reply.answer(self.host_memory(context, user).map_err(|error| error.to_string()));
                }
                Request::Install(_) | Request::Replay => Err("this request needs its image or capture".to_owned()),
                Request::Capabilities => Err("the control thread is not asked for capabilities".to_owned()),
            }
            .map(|reply| Answer::Reply(reply, Vec::new(), None)),
        };
        reply.answer(answer);
    }

    /// Links a context in on every thread, then has the NIC hand over its frames. Ids are the same everywhere, since all
    /// threads install and remove the same contexts in the same order.
    fn install(&mut self, prepared: Prepared) -> Result<u32, InstallError> {
        let limits = self.limits;
        let mut rest = Some(prepared);
        let mut linked = Err(InstallError::Stopped);
        for (index, thread) in self.workers.iter().enumerate() {
            let Some(mut part) = rest.take() else { break };
            rest = self.workers.get(index + 1).map(|next| part.split_off(next.clusters.start));
            linked = thread.worker.ask(move |engine| engine.link(part, &limits)).unwrap_or(Err(InstallError::Stopped));
            // What the first thread has room for, the others have too.
            if linked.is_err() {
                break;
            }
        }
        let id = linked?;
        if let Err(error) = self.announce() {
            self.all(move |engine| engine.undo_link(id))?;
            return Err(error);
        }
        self.all(move |engine| engine.retire_replaced(id))?;
        Ok(id)
    }

    fn announce(&self) -> Result<(), InstallError> {
        match &self.receiver {
            None => self.first(Engine::announce),
            Some(receiver) => set_routes(receiver, self.first(|engine| Ok(engine.routes()))?),
        }
    }

    fn unlink(&self, id: u32) -> Result<(), InstallError> {
        self.all(move |engine| engine.unlink(id, User(0)))
    }

    /// The NIC forgets a context's rules before its threads do: else its frames would be taken and dropped.
    fn remove(&self, id: u32, user: User) -> Result<(), InstallError> {
        match &self.receiver {
            None => self.first(move |engine| engine.retire(id, user))?,
            Some(receiver) => {
                let routes = self.first(move |engine| engine.routes_for(id, user))?;
                if let Err(error) = set_routes(receiver, routes) {
                    // As in `Engine::retire`.
                    tracing::warn!("the NIC keeps the rules of removed context {id}: {error}");
                }
            }
        }
        self.unlink(id)
    }

    /// Has the first thread do something.
    fn first<R: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Engine) -> Result<R, InstallError> + Send + 'static,
    ) -> Result<R, InstallError> {
        self.workers.first().and_then(|thread| thread.worker.ask(what)).unwrap_or(Err(InstallError::Stopped))
    }

    /// Has every thread do something, one after the other, up to the first that fails.
    fn all(
        &self,
        what: impl Fn(&mut Engine) -> Result<(), InstallError> + Clone + Send + 'static,
    ) -> Result<(), InstallError> {
        self.workers.iter().try_for_each(|thread| thread.worker.ask(what.clone()).unwrap_or(Err(InstallError::Stopped)))
    }

    fn events(&self, context: u32, user: User) -> Result<Answer, InstallError> {
        let region = self.first(move |engine| engine.descriptor(context, user))?;
        Ok(Answer::Reply(Reply::Events { len: region.len() }, Vec::new(), Some(region)))
    }

    fn host_memory(&self, context: u32, user: User) -> Result<Answer, InstallError> {
        let (region, address) = self.first(move |engine| engine.host_memory(context, user))?;
        Ok(Answer::Reply(Reply::HostMemory { len: region.len(), address }, Vec::new(), Some(region)))
    }

    /// What every thread says.
    fn asked<R: Send + 'static>(
        &self,
        what: impl Fn(&mut Engine) -> R + Copy + Send + 'static,
    ) -> impl Iterator<Item = R> {
        self.workers.iter().filter_map(move |thread| thread.worker.ask(what))
    }

    /// Contexts as all threads together have them.
    fn context_infos(&self) -> Vec<ContextInfo> {
        let mut all: Vec<ContextInfo> = Vec::new();
        for infos in self.asked(|engine: &mut Engine| engine.context_infos()) {
            if all.is_empty() {
                all = infos;
                continue;
            }
            for (sum, info) in all.iter_mut().zip(infos) {
                sum.merge(info);
            }
        }
        all
    }

    fn stats(&self) -> Stats {
        let mut statistics = Statistics::default();
        let mut nic_counters: Vec<(String, u64)> = Vec::new();
        let mut threads = Vec::new();
        let mut add = |(part, counters): Read| {
            statistics.merge(&part);
            let named = counters.into_iter().map(|(name, value)| (name.to_owned(), value));
            spin_abi::counters::add_named(&mut nic_counters, named);
        };
        for ClusterThread { clusters, worker } in &self.workers {
            let Some(part) = worker.ask(read) else { continue };
            let counters = part.0.counts.named().collect();
            threads.push(ThreadInfo { clusters: (clusters.start, clusters.end - 1), counters });
            add(part);
        }
        if let Some(part) = self.receiver.as_ref().and_then(|receiver| receiver.ask(read)) {
            add(part);
        }
        Stats {
            nic: self.nic.clone(),
            engine: statistics.counts.named().collect(),
            threads,
            nic_counters,
            latencies: statistics.latencies.infos().into(),
            contexts: self.context_infos(),
        }
    }

    /// Lets the frames of a capture arrive on the loopback NIC, and returns what was sent meanwhile, as a capture.
    fn replay(&mut self, capture: Vec<u8>) -> Result<Vec<u8>, String> {
        let mut far = self.far.take().ok_or("only a spind with --nic loopback can replay a capture")?;
        let start = self.common.start;
        let thread = self.workers.first().ok_or("spind is stopping")?;
        let replayed = thread.worker.ask(move |engine| (replay(engine, &mut far, &capture, start), far));
        let (sent, far) = replayed.ok_or("spind is stopping")?;
        self.far = Some(far);
        sent
    }
}

/// Statistics of a thread's part, and what its NIC counts.
type Read = (Statistics, Vec<(&'static str, u64)>);

fn read(part: &mut impl Part) -> Read {
    (part.statistics(), part.nic().counters())
}

fn set_routes(receiver: &Worker<Receiver>, routes: Routes) -> Result<(), InstallError> {
    let set = receiver.ask(move |receiver| receiver.set_routes(routes));
    Ok(set.ok_or(InstallError::Stopped)??)
}

/// A thread for each part of the NIC, with its share of the clusters; in pipeline mode one for the NIC, and others for the
/// clusters.
fn start_workers(
    config: &Config,
    common: &Common,
    nics: Vec<Box<dyn Queue>>,
) -> Result<(Vec<ClusterThread>, Option<Worker<Receiver>>), DaemonError> {
    if config.mode == Threads::RunToCompletion {
        let feeds = nics.into_iter().map(Feed::of_nic).collect::<Result<_, _>>()?;
        return Ok((start_clusters(config, common, &config.cores, feeds)?, None));
    }
    let nic = nics.into_iter().next().ok_or_else(|| DaemonError::Thread("there is no queue to receive from".into()))?;
    let (own, cores) = config.cores.split_first().map_or((None, &[][..]), |(own, cores)| (Some(*own), cores));
    let (receiver, ends) = Receiver::new(nic, cores.len())?;
    let feeds = ends.into_iter().map(|(arrivals, queue)| Feed::of_lane(arrivals, queue)).collect();
    let clusters = start_clusters(config, common, cores, feeds)?;
    let bell = receiver.bell().clone();
    let receiver = Worker::start(common.clone(), "receiver".to_owned(), own, bell, move || Ok(receiver))?;
    Ok((clusters, Some(receiver)))
}

fn start_clusters(
    config: &Config,
    common: &Common,
    cores: &[usize],
    feeds: Vec<Feed>,
) -> Result<Vec<ClusterThread>, DaemonError> {
    let (clusters, threads) = (config.machine.clusters, saturate(feeds.len() as u64));
    let share = |thread: u32| clusters * thread / threads;
    let start = |(thread, feed): (u32, Feed)| {
        let clusters = share(thread)..share(thread + 1);
        let core = cores.get(thread as usize).copied();
        Ok(ClusterThread {
            clusters: clusters.clone(),
            worker: Worker::start_engine(common.clone(), feed, clusters, core)?,
        })
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

fn done(result: Result<(), InstallError>) -> Result<Reply, String> {
    result.map(|()| Reply::Ok).map_err(|error| error.to_string())
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
            let settings = AfXdpConfig { mode, ..AfXdpConfig::new(interface) };
            let parts = if config.mode == Threads::Pipeline { 1 } else { config.cores.len() };
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
