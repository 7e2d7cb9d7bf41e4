//! A connection to spind and the program's context there.

use std::env;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libspin::{Abi, Area, Areas, Client, Compat, DEFAULT_SOCKET, Full, Install, MachineInfo, OutOfBounds, Region};

use spin_abi::map::Machine;

use crate::image::{Image, ImageError};
use crate::layout::{Counter, DMA_ALIGN, Flag, FlagParts, NUM_COUNTERS, NUM_HPUS, PAGE_SIZE, Ruleset};
use crate::rules::{self, RulesError};

/// Device name that stands for the default spind: its socket is [`SOCKET_VARIABLE`] or, if unset, spind's default.
const DEFAULT_DEVICE: &str = "/dev/pspin0";
/// Environment variable with the socket path of the default spind.
const SOCKET_VARIABLE: &str = "FPSPIN_SOCKET";
/// Maximum length of a context's name.
const MAX_NAME: usize = 64;
/// Maximum number of bytes of NIC memory written per request.
const WRITE_PIECE: usize = 1 << 20;
/// Size of each cluster's scratchpad in bytes.
const SCRATCHPAD: u32 = 4096;
/// End of the NIC memory that images and contexts use.
const L2_END: u32 = Machine::FPSPIN.handler_mem_base + Machine::FPSPIN.handler_mem_size;
/// End-of-message predicate of packet mode.
const NEVER: &str = "never";
/// Offset of the counters in `__host_data`.
const COUNTERS: usize = NUM_HPUS * 8;

/// Reason why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// spind cannot be reached, or refused the request.
    #[error(transparent)]
    Spin(#[from] libspin::Error),
    /// An image cannot be used.
    #[error("image {}: {source}", path.display())]
    Image {
        /// Path of the image.
        path: PathBuf,
        /// Cause.
        source: ImageError,
    },
    /// Rulesets were refused.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The number of pages is negative.
    #[error("{0} pages of host memory")]
    Pages(i32),
    /// No context of this process has the id.
    #[error("context {0}: this program has no context with that ctx_id")]
    NoContext(i32),
    /// No image is loaded.
    #[error("no image is loaded")]
    NotLoaded,
    /// The HPU does not exist, or has no page of host memory.
    #[error("HPU {0}: there is no page of host memory for it")]
    Hpu(i32),
    /// The counter does not exist.
    #[error("counter {0}: there are {NUM_COUNTERS}")]
    Counter(i32),
    /// The write is longer than NIC memory.
    #[error("{0} bytes do not fit NIC memory")]
    Long(usize),
    /// An access beyond the end of host memory.
    #[error("host memory: {0}")]
    Bounds(#[from] OutOfBounds),
}

/// An installed image.
#[derive(Debug)]
pub struct Loaded {
    context: u32,
    /// Host memory; `None` if the context has none.
    pub host: Option<Region>,
    /// Address of `__host_data` in NIC memory.
    pub host_data: u32,
    /// Addresses of handlers and handler memory.
    pub areas: Areas,
    /// What the program's user should know.
    pub warnings: Vec<String>,
}

/// A connection to spind.
#[derive(Debug)]
pub struct Session {
    client: Mutex<Client>,
    fd: i32,
    ctx_id: i32,
    compat: Compat,
    machine: MachineInfo,
    rulesets: Mutex<Vec<Ruleset>>,
    loaded: Mutex<Option<Arc<Loaded>>>,
}

/// Locks a mutex and ignores poisoning: the guarded data are consistent at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the socket path of the spind that `device` names.
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
    pub fn connect(device: &Path, ctx_id: i32, rulesets: Vec<Ruleset>) -> Result<Self, SessionError> {
        let mut client = Client::connect(socket(device))?;
        let capabilities = client.capabilities()?;
        rules::together(&rulesets, capabilities.compat)?;
        Ok(Self {
            fd: client.as_fd().as_raw_fd(),
            ctx_id,
            client: Mutex::new(client),
            compat: capabilities.compat,
            machine: capabilities.machine,
            rulesets: Mutex::new(rulesets),
            loaded: Mutex::default(),
        })
    }

    /// Returns the descriptor of the connection. It identifies the session while the session lives.
    #[must_use]
    pub const fn fd(&self) -> i32 {
        self.fd
    }

    /// Returns the context id that the program gave.
    #[must_use]
    pub const fn ctx_id(&self) -> i32 {
        self.ctx_id
    }

    /// Returns the loaded image.
    ///
    /// # Errors
    /// [`SessionError::NotLoaded`].
    pub fn loaded(&self) -> Result<Arc<Loaded>, SessionError> {
        lock(&self.loaded).clone().ok_or(SessionError::NotLoaded)
    }

    /// Installs the image at `path` with `host_mem` bytes of host memory, in place of the loaded one.
    ///
    /// # Errors
    /// See [`SessionError`]; afterwards no image is loaded.
    pub fn load(&self, path: &Path, host_mem: u64) -> Result<Arc<Loaded>, SessionError> {
        match self.unload() {
            // A refusal means that the context was removed by another client.
            Ok(()) | Err(SessionError::Spin(libspin::Error::Refused(_))) => {}
            Err(error) => return Err(error),
        }
        let image = Image::read(path).map_err(|source| SessionError::Image { path: path.to_path_buf(), source })?;
        let install = self.install(path, &image, host_mem)?;
        let first = lock(&self.client).install(&install, &image.bytes);
        let per_packet = install.eom.as_deref() == Some(NEVER);
        let (context, idle) = match first {
            // In packet mode, spind refuses an image with handlers that would never run.
            Err(refused @ libspin::Error::Refused(_)) if per_packet => {
                let declared = if image.declares { self.declared_payload(&image, &install)? } else { None };
                let handlers = image.payload_only(declared).ok_or(refused)?;
                let install = Install { handlers: Some(handlers), ..install };
                (lock(&self.client).install(&install, &image.bytes)?, true)
            }
            first => (first?, false),
        };
        let mut areas = context.areas;
        if let Some(data) = &image.handler_data {
            // FPsPIN counts the size from the start of the section.
            areas.handler_mem = Area { address: data.end, size: L2_END.saturating_sub(data.start) };
        }
        let mut warnings = context.warnings;
        if idle {
            warnings.push("no ruleset ends a message, so header and completion handlers do not run".to_owned());
        }
        let loaded =
            Arc::new(Loaded { context: context.id, host: context.host, host_data: image.host_data, areas, warnings });
        *lock(&self.loaded) = Some(loaded.clone());
        Ok(loaded)
    }

    /// Address of the payload handler that an image declares. spind tells it for a context, so one without packets is installed and removed.
    fn declared_payload(&self, image: &Image, install: &Install) -> Result<Option<u32>, SessionError> {
        let (rules, eom) = rules::together(&[Ruleset::BYPASS], self.compat)?;
        let without_packets =
            Install { rules: vec![rules.to_string()], eom: Some(eom.to_string()), host_mem: 0, ..install.clone() };
        let mut client = lock(&self.client);
        let context = client.install(&without_packets, &image.bytes)?;
        client.remove(context.id)?;
        let [_, payload, _] = context.areas.handlers;
        Ok(Some(payload.address).filter(|&address| address != 0))
    }

    /// Makes the install request. The context gets the whole machine, as on FPsPIN.
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
            scratchpad: SCRATCHPAD.min(self.machine.scratchpad),
            handlers: image.handler_names(),
            abi: Abi::Fpspin,
            // FPsPIN's hardware holds packets back instead of dropping them.
            full: Full::Wait,
            hpus: Some(self.machine.hpus_per_cluster),
            ..Install::default()
        })
    }

    /// Removes the loaded image, if any.
    ///
    /// # Errors
    /// [`SessionError::Spin`].
    pub fn unload(&self) -> Result<(), SessionError> {
        match lock(&self.loaded).take() {
            Some(loaded) => Ok(lock(&self.client).remove(loaded.context)?),
            None => Ok(()),
        }
    }

    /// Replaces the context's rulesets.
    ///
    /// # Errors
    /// See [`SessionError`]; the rulesets are then unchanged.
    pub fn set_rulesets(&self, rulesets: Vec<Ruleset>) -> Result<(), SessionError> {
        let (rules, eom) = rules::together(&rulesets, self.compat)?;
        if let Ok(loaded) = self.loaded() {
            lock(&self.client).set_rules(loaded.context, vec![rules.to_string()], Some(eom.to_string()))?;
        }
        *lock(&self.rulesets) = rulesets;
        Ok(())
    }

    /// Returns an HPU's request flag and the start of its payload, unless the flag still has the id `taken`.
    ///
    /// # Errors
    /// [`SessionError::NotLoaded`], [`SessionError::Hpu`].
    pub fn request(&self, hpu: i32, taken: u8) -> Result<Option<(Flag, *mut u8)>, SessionError> {
        let loaded = self.loaded()?;
        let (at, host) = loaded.page(hpu)?;
        let mut word = [0; 8];
        host.read(at as u64, &mut word)?;
        let flag = Flag::of(u64::from_le_bytes(word));
        Ok((flag.parts.dma_id != taken).then(|| (flag, host.as_ptr().wrapping_add(at + DMA_ALIGN))))
    }

    /// Answers an HPU's request with the id `dma_id`, with a payload of `len` bytes.
    ///
    /// # Errors
    /// [`SessionError::NotLoaded`], [`SessionError::Hpu`], [`SessionError::Spin`].
    pub fn respond(&self, hpu: i32, dma_id: u8, len: u32) -> Result<(), SessionError> {
        let loaded = self.loaded()?;
        loaded.page(hpu)?;
        let number = u16::try_from(hpu).map_err(|_| SessionError::Hpu(hpu))?;
        let parts = FlagParts { dma_id, len, hpu_id: number };
        let word = Flag { parts, spare: 0 }.word();
        let place = loaded.host_data + u32::from(number) * 8;
        Ok(lock(&self.client).write_memory(loaded.context, place, &word.to_le_bytes())?)
    }

    /// Reads a counter that handlers update.
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

    /// Writes NIC memory. A long write that fails may be partly done.
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
    /// Returns the offset of an HPU's page in host memory; the whole page lies within it.
    fn page(&self, hpu: i32) -> Result<(usize, &Region), SessionError> {
        let number = usize::try_from(hpu).ok().filter(|&number| number < NUM_HPUS);
        let found = number.zip(self.host.as_ref()).map(|(number, host)| (number * PAGE_SIZE, host));
        let found = found.filter(|(at, host)| (at + PAGE_SIZE) as u64 <= host.len());
        found.ok_or(SessionError::Hpu(hpu))
    }

    /// Returns the address of a counter in NIC memory.
    fn counter(&self, id: i32) -> Result<u32, SessionError> {
        let number = usize::try_from(id).ok().filter(|&number| number < NUM_COUNTERS);
        let offset = number.and_then(|number| u32::try_from(COUNTERS + number * 8).ok());
        Ok(self.host_data + offset.ok_or(SessionError::Counter(id))?)
    }
}
