//! A connection to spind, and the context that a program has there.

use std::env;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libspin::{Abi, Areas, Client, Compat, DEFAULT_SOCKET, Full, Install, MachineInfo, OutOfBounds, Region};

use crate::image::{Image, ImageError};
use crate::layout::{Counter, DMA_ALIGN, Flag, NUM_COUNTERS, NUM_HPUS, NUM_RULESETS, PAGE_SIZE, Ruleset};
use crate::rules::{self, RulesError};

/// The device that stands for the spind that listens where [`SOCKET_VARIABLE`] or, without it, spind's default says.
const DEFAULT_DEVICE: &str = "/dev/pspin0";
/// Environment variable that names the default spind's socket.
const SOCKET_VARIABLE: &str = "FPSPIN_SOCKET";
/// Longest name of a context.
const MAX_NAME: usize = 64;
/// Bytes written to NIC memory with one request.
const WRITE_PIECE: usize = 1 << 20;
/// Bytes of `__host_data` before its counters.
const COUNTERS: usize = NUM_HPUS * 8;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// spind could not be reached, or refused.
    #[error(transparent)]
    Spin(#[from] libspin::Error),
    /// The image.
    #[error("image {}: {source}", path.display())]
    Image {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        source: ImageError,
    },
    /// The rulesets.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// A negative number of pages, or more than there can be.
    #[error("{0} pages of host memory")]
    Pages(i32),
    /// No image is loaded.
    #[error("no image is loaded")]
    NotLoaded,
    /// An HPU that there is not, or that has no page of host memory.
    #[error("HPU {0}: there is no page of host memory for it")]
    Hpu(i32),
    /// A counter that there is not.
    #[error("counter {0}: there are {NUM_COUNTERS}")]
    Counter(i32),
    /// A ruleset that there is not.
    #[error("ruleset {0}: there are {NUM_RULESETS}")]
    Ruleset(i32),
    /// More than NIC memory has.
    #[error("{0} bytes do not fit NIC memory")]
    Long(usize),
    /// Host memory ends before that.
    #[error("host memory: {0}")]
    Bounds(#[from] OutOfBounds),
}

/// An image that is installed.
#[derive(Debug)]
pub struct Loaded {
    context: u32,
    /// Host memory, if it has some.
    pub host: Option<Region>,
    /// Address of `__host_data` in NIC memory.
    pub host_data: u32,
    /// Handlers and handler memory.
    pub areas: Areas,
}

/// A connection to spind.
#[derive(Debug)]
pub struct Session {
    client: Mutex<Client>,
    fd: i32,
    compat: Compat,
    machine: MachineInfo,
    rulesets: Mutex<Vec<Ruleset>>,
    loaded: Mutex<Option<Arc<Loaded>>>,
}

/// What it guards is whole at any moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the spind listens that `device` names.
fn socket(device: &Path) -> PathBuf {
    if device != Path::new(DEFAULT_DEVICE) {
        return device.to_path_buf();
    }
    env::var_os(SOCKET_VARIABLE).map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from)
}

impl Session {
    /// Connects to the spind that `device` names.
    ///
    /// # Errors
    /// [`SessionError::Spin`], [`SessionError::Rules`].
    pub fn connect(device: &Path, rulesets: Vec<Ruleset>) -> Result<Self, SessionError> {
        let mut client = Client::connect(socket(device))?;
        let capabilities = client.capabilities()?;
        rules::together(&rulesets, capabilities.compat)?;
        Ok(Self {
            fd: client.as_fd().as_raw_fd(),
            client: Mutex::new(client),
            compat: capabilities.compat,
            machine: capabilities.machine,
            rulesets: Mutex::new(rulesets),
            loaded: Mutex::default(),
        })
    }

    /// The connection's descriptor: names the session while it lives.
    #[must_use]
    pub const fn fd(&self) -> i32 {
        self.fd
    }

    /// What is loaded.
    ///
    /// # Errors
    /// [`SessionError::NotLoaded`].
    pub fn loaded(&self) -> Result<Arc<Loaded>, SessionError> {
        lock(&self.loaded).clone().ok_or(SessionError::NotLoaded)
    }

    /// Installs the image at `path`, in place of what is loaded, with `pages` pages of host memory.
    ///
    /// # Errors
    /// See [`SessionError`]; nothing is loaded then.
    pub fn load(&self, path: &Path, pages: i32) -> Result<Arc<Loaded>, SessionError> {
        match self.unload() {
            // Somebody else has removed it.
            Ok(()) | Err(SessionError::Spin(libspin::Error::Refused(_))) => {}
            Err(error) => return Err(error),
        }
        let host_mem = u64::try_from(pages).map_err(|_| SessionError::Pages(pages))? * PAGE_SIZE as u64;
        let image = Image::read(path).map_err(|source| SessionError::Image { path: path.to_path_buf(), source })?;
        let install = self.install(path, &image, host_mem)?;
        let context = lock(&self.client).install(&install, &image.bytes)?;
        let loaded = Arc::new(Loaded {
            context: context.id,
            host: context.host,
            host_data: image.host_data,
            areas: context.areas,
        });
        *lock(&self.loaded) = Some(loaded.clone());
        Ok(loaded)
    }

    /// All of the machine for it, as there.
    fn install(&self, path: &Path, image: &Image, host_mem: u64) -> Result<Install, SessionError> {
        let (rules, eom) = rules::together(&lock(&self.rulesets), self.compat)?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let name = stem.chars().filter(char::is_ascii_graphic).take(MAX_NAME).collect();
        Ok(Install {
            name,
            rules: vec![rules.to_string()],
            eom: Some(eom.to_string()),
            key: Some(rules::key(self.compat)),
            host_mem,
            handler_mem: image.handler_mem_left,
            scratchpad: self.machine.scratchpad,
            abi: Abi::Fpspin,
            // The hardware holds packets back: it loses none.
            full: Full::Wait,
            hpus: Some(self.machine.hpus_per_cluster),
            ..Install::default()
        })
    }

    /// Removes what is loaded, if something is.
    ///
    /// # Errors
    /// [`SessionError::Spin`].
    pub fn unload(&self) -> Result<(), SessionError> {
        match lock(&self.loaded).take() {
            Some(loaded) => Ok(lock(&self.client).remove(loaded.context)?),
            None => Ok(()),
        }
    }

    /// Has the context take the packets of other rulesets.
    ///
    /// # Errors
    /// See [`SessionError`]; nothing has changed then.
    pub fn set_rulesets(&self, rulesets: Vec<Ruleset>) -> Result<(), SessionError> {
        let (rules, eom) = rules::together(&rulesets, self.compat)?;
        if let Ok(loaded) = self.loaded() {
            lock(&self.client).set_rules(loaded.context, vec![rules.to_string()], Some(eom.to_string()))?;
        }
        *lock(&self.rulesets) = rulesets;
        Ok(())
    }

    /// Sets one of the rulesets. Those before it that were not set match nothing.
    ///
    /// # Errors
    /// As [`Session::set_rulesets`], and [`SessionError::Ruleset`].
    pub fn set_ruleset(&self, id: i32, ruleset: Ruleset) -> Result<(), SessionError> {
        let at = usize::try_from(id).ok().filter(|&at| at < NUM_RULESETS).ok_or(SessionError::Ruleset(id))?;
        let mut rulesets = lock(&self.rulesets).clone();
        rulesets.resize(rulesets.len().max(at + 1), Ruleset::BYPASS);
        rulesets[at] = ruleset;
        self.set_rulesets(rulesets)
    }

    /// The flag in an HPU's page of host memory, if it names another request than `taken`, and where its payload begins.
    ///
    /// # Errors
    /// [`SessionError::NotLoaded`], [`SessionError::Hpu`].
    pub fn request(&self, hpu: i32, taken: u8) -> Result<Option<(Flag, *mut u8)>, SessionError> {
        let loaded = self.loaded()?;
        let (at, host) = loaded.page(hpu)?;
        let mut word = [0; 8];
        host.read(at as u64, &mut word)?;
        let flag = Flag::of(u64::from_le_bytes(word));
        Ok((flag.dma_id != taken).then(|| (flag, host.as_ptr().wrapping_add(at + DMA_ALIGN))))
    }

    /// Gives an HPU its answer.
    ///
    /// # Errors
    /// [`SessionError::NotLoaded`], [`SessionError::Hpu`], [`SessionError::Spin`].
    pub fn respond(&self, hpu: i32, flag: Flag) -> Result<(), SessionError> {
        let loaded = self.loaded()?;
        loaded.page(hpu)?;
        let number = u16::try_from(hpu).map_err(|_| SessionError::Hpu(hpu))?;
        let word = Flag { hpu_id: number, ..flag }.word();
        let place = loaded.host_data + u32::from(number) * 8;
        Ok(lock(&self.client).write_memory(loaded.context, place, &word.to_le_bytes())?)
    }

    /// What handlers counted.
    ///
    /// # Errors
    /// [`SessionError::NotLoaded`], [`SessionError::Counter`], [`SessionError::Spin`].
    pub fn counter(&self, id: i32) -> Result<Counter, SessionError> {
        let loaded = self.loaded()?;
        let mut bytes = [0; 8];
        lock(&self.client).read_memory(loaded.context, loaded.counter(id)?, &mut bytes)?;
        let [a, b, c, d, e, f, g, h] = bytes;
        Ok(Counter { sum: u32::from_le_bytes([a, b, c, d]), count: u32::from_le_bytes([e, f, g, h]) })
    }

    /// Sets a counter to zero.
    ///
    /// # Errors
    /// As [`Session::counter`].
    pub fn clear_counter(&self, id: i32) -> Result<(), SessionError> {
        let loaded = self.loaded()?;
        Ok(lock(&self.client).write_memory(loaded.context, loaded.counter(id)?, &[0; 8])?)
    }

    /// Writes NIC memory. A long write that fails may have been done in part.
    ///
    /// # Errors
    /// [`SessionError::NotLoaded`], [`SessionError::Long`], [`SessionError::Spin`].
    pub fn write_memory(&self, address: u32, bytes: &[u8]) -> Result<(), SessionError> {
        let loaded = self.loaded()?;
        for (number, piece) in bytes.chunks(WRITE_PIECE).enumerate() {
            let skipped = u32::try_from(number * WRITE_PIECE).ok();
            let at = skipped.and_then(|skipped| address.checked_add(skipped));
            let at = at.ok_or(SessionError::Long(bytes.len()))?;
            lock(&self.client).write_memory(loaded.context, at, piece)?;
        }
        Ok(())
    }
}

impl Loaded {
    /// Where in host memory an HPU's page begins, all of which is there.
    fn page(&self, hpu: i32) -> Result<(usize, &Region), SessionError> {
        let number = usize::try_from(hpu).ok().filter(|&number| number < NUM_HPUS);
        let found = number.zip(self.host.as_ref()).map(|(number, host)| (number * PAGE_SIZE, host));
        let found = found.filter(|(at, host)| (at + PAGE_SIZE) as u64 <= host.len());
        found.ok_or(SessionError::Hpu(hpu))
    }

    /// Where in NIC memory a counter is.
    fn counter(&self, id: i32) -> Result<u32, SessionError> {
        let number = usize::try_from(id).ok().filter(|&number| number < NUM_COUNTERS);
        let offset = number.and_then(|number| u32::try_from(COUNTERS + number * 8).ok());
        Ok(self.host_data + offset.ok_or(SessionError::Counter(id))?)
    }
}
