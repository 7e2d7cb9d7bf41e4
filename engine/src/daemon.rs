//! spind's main loop: the engine's turns, applications' requests between them, and a graceful end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spin_abi::control::{MAX_BLOB, Reply, Request, Stats};
use spin_nic::afxdp::{AfXdp, AfXdpConfig, Mode};
use spin_nic::memory::MemoryQueue;
use spin_nic::pcap::{Packet, PcapQueue, read_all, write_all};
use spin_nic::{NicError, Queue};

use crate::config::{Config, Idle, Limits, Nic, StaticContext, XdpMode};
use crate::install::{InstallError, Prepared, User};
use crate::loader::Loader;
use crate::pipeline::Engine;
use crate::privileges;
use crate::server::{Answer, Server, ServerError, Ticket, Work};
use crate::statistics::Statistics;

/// Frames in flight between the two ends of the loopback NIC.
const LOOPBACK_FRAMES: usize = 1024;
/// Bytes of a packet's record head in a capture.
const RECORD: usize = 16;
/// Turns without a packet before the thread sleeps: a burst's next packet is usually closer than a wake-up.
const TURNS_BEFORE_SLEEP: u32 = 2_000;
/// Longest sleep: how late a signal that arrives just before it can be noticed.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// How long frames that handlers sent may take to leave after the last one was received.
const DRAIN: Duration = Duration::from_millis(500);

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
    engine: Engine,
    /// The far end of the loopback NIC.
    far: Option<MemoryQueue>,
    server: Server,
    limits: Limits,
    idle: Idle,
    /// The NIC's end is the end of the job, not a failure.
    ends: bool,
    start: Instant,
}

impl Daemon {
    /// Checks each of the configuration's contexts and binds the control socket before the NIC is touched; then opens it
    /// and installs the contexts.
    ///
    /// # Errors
    /// See [`DaemonError`].
    pub fn new(config: &Config) -> Result<Self, DaemonError> {
        raise_descriptors();
        let loader = Arc::new(Loader::new(config.machine, config.engine));
        let contexts: Vec<_> =
            config.contexts.iter().map(|context| prepare(context, config, &loader)).collect::<Result<_, _>>()?;
        let mut server = Server::bind(&config.socket, config.socket_mode)?;
        let (nic, far) = open(config)?;
        tracing::info!("serving {}", nic.describe());
        let mut engine = Engine::new(loader.clone(), nic).map_err(|error| DaemonError::Thread(error.to_string()))?;
        for (prepared, context) in contexts.into_iter().zip(&config.contexts) {
            engine.install(prepared, &config.limits).map_err(|source| failed(context, source))?;
        }
        privileges::drop_unneeded().map_err(DaemonError::Privileges)?;
        server.start(loader, config.limits)?;
        tracing::info!("listening on {}", config.socket.display());
        let ends = matches!(config.nic, Nic::Pcap { .. });
        Ok(Self { engine, far, server, limits: config.limits, idle: config.idle, ends, start: Instant::now() })
    }

    /// Runs until `stop` is set or the NIC is exhausted, then lets what is under way finish.
    ///
    /// # Errors
    /// When the NIC fails.
    pub fn run(mut self, stop: &Arc<AtomicBool>) -> Result<Statistics, DaemonError> {
        let mut empty_turns = 0;
        while !stop.load(Ordering::Relaxed) {
            // One request a turn: however many wait, packets and signals are seen to in between.
            let asked = self.server.next().map(|ticket| self.serve(ticket)).is_some();
            if self.turn()? > 0 || asked {
                empty_turns = 0;
                continue;
            }
            if self.engine.nic.exhausted() {
                if !self.ends {
                    return Err(DaemonError::Gone(self.engine.nic.describe()));
                }
                break;
            }
            empty_turns += 1;
            if self.idle == Idle::Sleep && empty_turns >= TURNS_BEFORE_SLEEP {
                self.engine.nic.wait(Some(self.server.wake()), LONGEST_SLEEP)?;
                self.server.clear_wake();
                empty_turns = 0;
            }
        }
        self.drain()?;
        Ok(self.engine.statistics())
    }

    fn turn(&mut self) -> Result<usize, NicError> {
        let start = self.start;
        self.engine.turn(|| start.elapsed())
    }

    /// No new frames are matched; those already received are processed, and all that was sent leaves.
    fn drain(&mut self) -> Result<(), NicError> {
        self.engine.nic.set_rules(&[])?;
        let deadline = Instant::now() + DRAIN;
        while (self.turn()? > 0 || self.engine.backlog() > 0) && Instant::now() < deadline {}
        match self.engine.backlog() {
            0 => {}
            left => tracing::warn!("{left} frames were not sent: the NIC took none for {DRAIN:?}"),
        }
        Ok(())
    }

    fn serve(&mut self, ticket: Ticket) {
        let Ticket { work, reply } = ticket;
        let answer = match work {
            Work::Install(prepared) => {
                self.engine.install(*prepared, &self.limits).map(Answer::Installed).map_err(|error| error.to_string())
            }
            Work::Replay(capture) => self.replay(&capture).map(|sent| Answer::Reply(Reply::Ok, sent, None)),
            Work::Request(request, user) => match request {
                Request::Remove { context } => done(self.engine.remove(context, user)),
                Request::MapHost { context, address } => done(self.engine.map_host(context, user, address)),
                Request::List => Ok(Reply::Contexts { contexts: self.engine.context_infos() }),
                Request::Stats => Ok(Reply::Stats(self.stats())),
                Request::HostMemory { context } => {
                    return reply.answer(self.host_memory(context, user).map_err(|error| error.to_string()));
                }
                Request::Install(_) | Request::Replay => Err("this request needs its image or capture".to_owned()),
            }
            .map(|reply| Answer::Reply(reply, Vec::new(), None)),
        };
        reply.answer(answer);
    }

    fn host_memory(&self, context: u32, user: User) -> Result<Answer, InstallError> {
        let (region, address) = self.engine.host_memory(context, user)?;
        Ok(Answer::Reply(Reply::HostMemory { len: region.len(), address }, Vec::new(), Some(region)))
    }

    fn stats(&mut self) -> Stats {
        let nic_counters = self.engine.nic.counters();
        Stats {
            nic: self.engine.nic.describe(),
            engine: self.engine.statistics().counts.named().collect(),
            nic_counters: nic_counters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            contexts: self.engine.context_infos(),
        }
    }

    /// Lets the frames of a capture arrive on the loopback NIC, and returns what was sent meanwhile, as a capture.
    fn replay(&mut self, capture: &[u8]) -> Result<Vec<u8>, String> {
        let mut far = self.far.take().ok_or("only a spind with --nic loopback can replay a capture")?;
        let result = read_all(capture)
            .map_err(|error| format!("capture: {error}"))
            .and_then(|packets| self.replay_through(&mut far, &packets));
        self.far = Some(far);
        result
    }

    fn replay_through(&mut self, far: &mut MemoryQueue, packets: &[Packet]) -> Result<Vec<u8>, String> {
        let mut sent = Vec::new();
        let mut bytes = 0;
        for captured in packets {
            let mut frame = far.allocate().ok_or("the loopback NIC has no buffer left")?;
            if let Err(error) = frame.fill(&captured.data) {
                far.recycle(frame);
                return Err(format!("capture: a frame of {} bytes: {error}", captured.data.len()));
            }
            far.send(&mut vec![frame]);
            for reply in self.settle(far).map_err(|error| error.to_string())? {
                bytes += reply.len() + RECORD;
                sent.push(Packet::whole(captured.time, reply));
            }
            if bytes > MAX_BLOB {
                return Err(format!("handlers sent more than the {MAX_BLOB} bytes an answer can hold: replay less"));
            }
        }
        Ok(write_all(&sent))
    }

    /// Turns until nothing arrives and nothing leaves any more; returns what was sent.
    fn settle(&mut self, far: &mut MemoryQueue) -> Result<Vec<Vec<u8>>, NicError> {
        let mut sent = Vec::new();
        let mut batch = Vec::new();
        loop {
            far.flush()?;
            let arrived = self.turn()?;
            let left = far.receive(&mut batch, LOOPBACK_FRAMES);
            for frame in batch.drain(..) {
                sent.push(frame.to_vec());
                far.recycle(frame);
            }
            if arrived == 0 && left == 0 {
                return Ok(sent);
            }
        }
    }
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

fn open(config: &Config) -> Result<(Box<dyn Queue>, Option<MemoryQueue>), NicError> {
    Ok(match &config.nic {
        Nic::Interface(interface) => {
            let mode = match config.xdp_mode {
                XdpMode::Auto => Mode::Auto,
                XdpMode::Native => Mode::Native,
                XdpMode::Generic => Mode::Generic,
            };
            let settings = AfXdpConfig { mode, ..AfXdpConfig::new(interface) };
            (Box::new(AfXdp::open(&settings)?), None)
        }
        Nic::Loopback => {
            let (near, far) = spin_nic::memory::pair(LOOPBACK_FRAMES)?;
            (Box::new(near), Some(far))
        }
        Nic::Pcap { input, output } => (Box::new(PcapQueue::open(input, output)?), None),
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
