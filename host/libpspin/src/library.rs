//! Implementation of the C headers' functions in safe Rust: one simulation per process.
//!
//! Callbacks may call most of these functions. During a run only the simulation itself is locked; a nested run is
//! refused.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use hpu_vm::jit::Executor;

use crate::MAX_PACKET;
use crate::conf::{Conf, ConfError, Settings};
use crate::ec::{Context, Ec, EcError};
use crate::host::{Access, Host};
use crate::image::{IMAGE_VARIABLE, ImageError, Loaded};
use crate::inbox::{Added, Inbox};
use crate::memory::{NicMemory, NoMemory};
use crate::simulation::{End, Simulation};
use crate::trace::{self, TraceError};

/// Maximum size in bytes of an image file; the machine's memories are smaller.
const MOST_IMAGE: u64 = 64 << 20;
/// Maximum size in bytes of a trace file.
const MOST_TRACE: u64 = 2 << 30;
/// Maximum number of contexts.
const MOST_CONTEXTS: usize = 4096;

/// Reason why a function returns `SPIN_ERR`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No simulation exists.
    #[error("pspinsim_init was not called, or pspinsim_fini was")]
    NotOpen,
    /// A simulation exists already.
    #[error("the simulation is initialised already: call pspinsim_fini first")]
    Open,
    /// A run was requested from a callback or from a second thread.
    #[error("the simulation is running: callbacks may neither run nor end it")]
    Running,
    /// All packets are processed, but the program has not ended the packet stream.
    #[error("all packets are through, and no more can come: pspinsim_packet_eos was not called")]
    Waiting,
    /// The program has ended the packet stream.
    #[error("no more packets come: pspinsim_packet_eos was called, or a trace was read")]
    Ended,
    /// The configuration is invalid.
    #[error("configuration: {0}")]
    Conf(#[from] ConfError),
    /// The context is invalid.
    #[error("execution context: {0}")]
    Ec(#[from] EcError),
    /// There are too many contexts.
    #[error("more than {MOST_CONTEXTS} execution contexts")]
    Contexts,
    /// The packet is longer than a packet window.
    #[error("a packet of {0} bytes: 1 to {MAX_PACKET}")]
    Length(usize),
    /// An image cannot be loaded.
    #[error("{}: {source}", path.display())]
    Image {
        /// Path of the image.
        path: PathBuf,
        /// Cause.
        source: ImageError,
    },
    /// NIC memory cannot be allocated.
    #[error("NIC memory: {0}")]
    Memory(#[from] hpu_vm::memory::SpaceError),
    /// The address is outside NIC memory.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// A trace file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A trace is malformed.
    #[error("{}: {source}", path.display())]
    Trace {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: TraceError,
    },
    /// A line of a trace describes an invalid context.
    #[error("{}: line {line}: {source}", path.display())]
    TraceEc {
        /// Path of the file.
        path: PathBuf,
        /// Line number.
        line: usize,
        /// Cause.
        source: Box<Error>,
    },
    /// This thread cannot run handlers.
    #[error("handlers cannot be run: {0}")]
    Executor(String),
    /// An argument is invalid.
    #[error("{0}")]
    Argument(&'static str),
}

/// State that callbacks may need too.
#[derive(Debug, Default)]
struct Parts {
    open: bool,
    memory: Option<Arc<NicMemory>>,
    image: Option<Arc<Loaded>>,
    inbox: Arc<Inbox>,
    contexts: HashMap<Ec, Arc<Context>>,
}

static PARTS: Mutex<Option<Parts>> = Mutex::new(None);
/// The simulation, locked during a run; no function waits for the lock.
static SIMULATION: Mutex<Option<Simulation>> = Mutex::new(None);

thread_local! {
    /// Executor of handlers on this thread, made for the first one.
    static EXECUTOR: OnceCell<Executor> = const { OnceCell::new() };
}

/// Runs a function on the shared parts. The function must not take a lock.
fn with_parts<R>(act: impl FnOnce(&mut Parts) -> R) -> R {
    // The parts are consistent after every step, so poisoning is ignored.
    let mut parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
    act(parts.get_or_insert_default())
}

/// Reads a file of at most `most` bytes.
fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Locks the simulation for one run.
fn simulation() -> Result<MutexGuard<'static, Option<Simulation>>, Error> {
    match SIMULATION.try_lock() {
        Ok(guard) => Ok(guard),
        // A run panicked; the remaining simulation can still be ended.
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Error::Running),
    }
}

fn with_simulation<R>(act: impl FnOnce(&mut Simulation, &Executor) -> R) -> Result<R, Error> {
    let mut guard = simulation()?;
    let simulation = guard.as_mut().ok_or(Error::NotOpen)?;
    EXECUTOR.with(|executor| {
        if executor.get().is_none() {
            let made = Executor::new().map_err(|error| Error::Executor(error.to_string()))?;
            let _ = executor.set(made);
        }
        let executor = executor.get().ok_or_else(|| Error::Executor("none was made".into()))?;
        Ok(act(simulation, executor))
    })
}

impl Parts {
    fn memory(&mut self) -> Result<Arc<NicMemory>, Error> {
        if let Some(memory) = &self.memory {
            return Ok(memory.clone());
        }
        let memory = Arc::new(NicMemory::new()?);
        Ok(self.memory.insert(memory).clone())
    }

    /// Loads an image, unless it is loaded already.
    fn load(&mut self, path: &Path) -> Result<Arc<Loaded>, Error> {
        let failed = |source| Error::Image { path: path.to_owned(), source };
        let file = read(path, MOST_IMAGE).map_err(|error| failed(error.into()))?;
        match &self.image {
            Some(image) if image.is(&file) => return Ok(image.clone()),
            Some(_) => return Err(failed(ImageError::Another)),
            None => {}
        }
        let memory = self.memory()?;
        let image = Arc::new(Loaded::new(file, &memory).map_err(failed)?);
        Ok(self.image.insert(image).clone())
    }

    /// Returns the program's image, or the one that the environment names.
    fn image(&mut self) -> Result<Arc<Loaded>, Error> {
        match (&self.image, std::env::var_os(IMAGE_VARIABLE)) {
            (Some(image), _) => Ok(image.clone()),
            (None, Some(path)) => self.load(Path::new(&path)),
            (None, None) => Err(EcError::NoImage.into()),
        }
    }

    /// Returns the context that a program describes.
    fn context(&mut self, ec: &Ec) -> Result<Arc<Context>, Error> {
        if let Some(context) = self.contexts.get(ec) {
            return Ok(context.clone());
        }
        if self.contexts.len() == MOST_CONTEXTS {
            return Err(Error::Contexts);
        }
        let image = self.image()?;
        let id = u32::try_from(self.contexts.len()).unwrap_or(u32::MAX);
        let context = Arc::new(Context::new(id, ec, &image)?);
        self.contexts.insert(*ec, context.clone());
        Ok(context)
    }

    const fn check_open(&self) -> Result<(), Error> {
        if self.open { Ok(()) } else { Err(Error::NotOpen) }
    }
}

/// `pspinsim_init`.
///
/// # Errors
/// [`Error::Conf`], [`Error::Open`], [`Error::Running`], [`Error::Memory`].
pub fn init(conf: &Conf) -> Result<(), Error> {
    let settings = Settings::try_from(conf)?;
    let mut guard = simulation()?;
    if guard.is_some() {
        return Err(Error::Open);
    }
    let inbox = with_parts(|parts| {
        parts.memory()?;
        parts.open = true;
        Ok::<_, Error>(parts.inbox.clone())
    })?;
    *guard = Some(Simulation::new(&settings, inbox));
    Ok(())
}

/// `pspinsim_run`.
///
/// # Errors
/// [`Error::NotOpen`], [`Error::Running`], [`Error::Waiting`], [`Error::Executor`].
pub fn run(host: &mut impl Host) -> Result<(), Error> {
    match with_simulation(|simulation, executor| simulation.run(executor, host))? {
        End::Done => Ok(()),
        End::Waiting => Err(Error::Waiting),
    }
}

/// `pspinsim_run_tick`: whether all is done.
///
/// # Errors
/// [`Error::NotOpen`], [`Error::Running`], [`Error::Executor`].
pub fn run_tick(host: &mut impl Host) -> Result<bool, Error> {
    with_simulation(|simulation, executor| simulation.tick(executor, host))
}

/// `pspinsim_fini`: returns the statistics and discards everything.
///
/// # Errors
/// [`Error::NotOpen`], [`Error::Running`].
pub fn fini() -> Result<String, Error> {
    let mut guard = simulation()?;
    let simulation = guard.take().ok_or(Error::NotOpen)?;
    with_parts(|parts| *parts = Parts::default());
    Ok(simulation.totals.to_string())
}

/// Arguments of `pspinsim_packet_add`.
#[derive(Clone, Copy, Debug)]
pub struct NewPacket<'p> {
    /// Context of the packet.
    pub ec: &'p Ec,
    /// Message of the packet.
    pub msgid: u32,
    /// Bytes of the packet.
    pub bytes: &'p [u8],
    /// Number of bytes copied to L1; values beyond the packet's length mean all.
    pub l1_len: usize,
    /// Whether the packet is the last of its message.
    pub eom: bool,
    /// Cycles until the next packet.
    pub wait_cycles: u32,
    /// Program-defined value.
    pub user: u64,
}

impl NewPacket<'_> {
    fn added(&self, parts: &mut Parts) -> Result<Added, Error> {
        let Self { msgid, bytes, l1_len, eom, wait_cycles, user, .. } = *self;
        if bytes.is_empty() || bytes.len() > MAX_PACKET {
            return Err(Error::Length(bytes.len()));
        }
        let (context, l1_len) = (parts.context(self.ec)?, l1_len.min(bytes.len()));
        Ok(Added { context, msgid, bytes: bytes.to_vec(), l1_len, eom, wait_cycles, user })
    }
}

/// `pspinsim_packet_add`.
///
/// # Errors
/// [`Error::NotOpen`], [`Error::Length`], [`Error::Ec`], [`Error::Ended`]; also the errors of loading the image that
/// the environment names.
pub fn packet_add(packet: &NewPacket<'_>) -> Result<(), Error> {
    with_parts(|parts| {
        parts.check_open()?;
        let added = packet.added(parts)?;
        if parts.inbox.add([added]) { Ok(()) } else { Err(Error::Ended) }
    })
}

/// `pspinsim_packet_eos`.
///
/// # Errors
/// [`Error::NotOpen`].
pub fn packet_eos() -> Result<(), Error> {
    with_parts(|parts| {
        parts.check_open()?;
        parts.inbox.end();
        Ok(())
    })
}

/// `pspinsim_packet_trace_read`: adds all packets of a trace and ends the packet stream. If one packet is wrong, none
/// is added.
///
/// # Errors
/// [`Error::NotOpen`], [`Error::File`], [`Error::Trace`], [`Error::TraceEc`], [`Error::Ended`].
pub fn packet_trace_read(packets: &Path, data: &Path) -> Result<(), Error> {
    with_parts(|parts| {
        parts.check_open()?;
        let read = |path: &Path| read(path, MOST_TRACE).map_err(|source| Error::File { path: path.to_owned(), source });
        let (text, bytes) = (read(packets)?, read(data)?);
        let in_trace = |source| Error::Trace { path: packets.to_owned(), source };
        let lines = trace::parse(&text).map_err(in_trace)?;
        let bytes = trace::packets(&lines, &bytes).map_err(in_trace)?;
        let all = lines.iter().zip(bytes).map(|(line, bytes)| {
            let trace::Line { ec, msgid, l1_len, eom, wait_cycles, number, .. } = line;
            let packet =
                NewPacket { ec, msgid: *msgid, bytes, l1_len: *l1_len, eom: *eom, wait_cycles: *wait_cycles, user: 0 };
            packet.added(parts).map_err(|source| Error::TraceEc {
                path: packets.to_owned(),
                line: *number,
                source: Box::new(source),
            })
        });
        let all: Vec<Added> = all.collect::<Result<_, _>>()?;
        if !parts.inbox.add(all) {
            return Err(Error::Ended);
        }
        parts.inbox.end();
        Ok(())
    })
}

/// `spin_find_handler_by_name`: loads the image unless it is loaded. Returns the function's address, if it exists.
///
/// # Errors
/// [`Error::Image`].
pub fn find_handler(path: &Path, name: &str) -> Result<Option<u32>, Error> {
    let image = with_parts(|parts| parts.load(path))?;
    Ok(image.image.symbol(name).filter(|&address| image.is_code(address)))
}

/// `spin_nicmem_write`.
///
/// # Errors
/// [`Error::NotOpen`], [`Error::NoMemory`].
pub fn nicmem_write(address: u32, from: &[u8], user: usize) -> Result<(), Error> {
    with_parts(|parts| {
        parts.check_open()?;
        parts.memory()?.write(address, from)?;
        parts.inbox.access(Access::Write, from.len(), user);
        Ok(())
    })
}

/// `spin_nicmem_read`.
///
/// # Errors
/// [`Error::NotOpen`], [`Error::NoMemory`].
pub fn nicmem_read(address: u32, to: &mut [u8], user: usize) -> Result<(), Error> {
    with_parts(|parts| {
        parts.check_open()?;
        parts.memory()?.read(address, to)?;
        parts.inbox.access(Access::Read, to.len(), user);
        Ok(())
    })
}
