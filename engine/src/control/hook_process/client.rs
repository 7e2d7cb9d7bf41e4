//! Starting the hook process, and asking it.

use std::io;
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use hpu_vm::bpf::{Layout, Options};
use spin_nic::hook::Support;
use spin_shm::channel;

use super::ARGUMENT;
use super::message::{HandlerKind, LayoutMessage, LoadMessage, MapToken, ProgramFacts, Reply, Request};
use crate::control::notify;

/// Reason why no handler runs in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookUnavailable {
    /// The kernel tier is off.
    #[error("the kernel tier is off")]
    Off,
    /// There is no interface.
    #[error("spind serves no interface (--iface NAME)")]
    NoInterface,
    /// The kernel lacks features, or the process privileges.
    #[error("{0}")]
    Missing(String),
    /// The hook process does not start.
    #[error("the hook process does not start: {0}")]
    NotStarted(String),
}

/// Reason why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The hook process has ended, or its socket failed.
    #[error("the hook process: {0}")]
    Process(String),
    /// The hook process refused the request, or the kernel did.
    #[error("{0}")]
    Refused(String),
}

/// Reason why a handler was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum HookLoadError {
    /// The handler cannot run in the hook.
    #[error("{0}")]
    NotEligible(String),
    /// The kernel's verifier refused the program.
    #[error("the kernel refused the program: {0}")]
    NotAccepted(String),
    /// The request was not carried out.
    #[error(transparent)]
    Hook(#[from] HookError),
}

/// A payload handler to load.
#[derive(Clone, Copy, Debug)]
pub struct LoadRequest<'a> {
    /// Its name for tools, of 1 to 15 letters, digits, underscores or dots.
    pub name: &'a str,
    /// The image's file.
    pub image: &'a [u8],
    /// The handler's memory.
    pub layout: &'a Layout,
    /// Options of the translation. The hook process chooses [`Options::opaque`] and [`Options::forgetful`].
    pub options: Options,
    /// Maps by [`MapIndex`](hpu_vm::bpf::insn::MapIndex).
    pub maps: &'a [MapToken],
}

/// A program in the kernel. It keeps its maps.
#[derive(Debug)]
pub struct LoadedProgram {
    /// Its descriptor.
    pub fd: OwnedFd,
    /// Facts about it.
    pub facts: ProgramFacts,
}

/// The hook process of this spind. It ends when this is dropped, or the process ends.
#[derive(Debug)]
pub struct HookProcess {
    /// One request at a time.
    stream: Mutex<UnixStream>,
    /// Never waited for, so that spind's end waits for no verification.
    _process: Child,
}

impl HookProcess {
    /// Starts `program`, a spind, as hook process with the privileges of this process, if the kernel tier `is_on` and the kernel has
    /// what it needs.
    ///
    /// # Errors
    /// See [`HookUnavailable`].
    pub fn start(program: &Path, is_on: bool) -> Result<Self, HookUnavailable> {
        if !is_on {
            return Err(HookUnavailable::Off);
        }
        let support = Support::probe();
        if !support.is_complete() {
            return Err(HookUnavailable::Missing(support.missing().join("; ")));
        }
        Self::spawn(program).map_err(|error| HookUnavailable::NotStarted(error.to_string()))
    }

    fn spawn(program: &Path) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(program);
        // In a group of its own, a terminal's ^C does not end it before spind.
        // The service manager hears from the main process alone.
        command.env_remove(notify::SOCKET).current_dir("/").process_group(0);
        command.arg(ARGUMENT).stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        Ok(Self { stream: Mutex::new(ours), _process: command.spawn()? })
    }

    fn ask(
        &self,
        request: &Request,
        blob: &[u8],
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(Reply, Option<OwnedFd>), HookError> {
        // After an error in the middle of a message the hook process is gone, which the next request notices.
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: channel::ChannelError| HookError::Process(error.to_string());
        channel::send(&stream, request, blob, fd).map_err(failed)?;
        let reply = channel::receive::<Reply>(&stream).map_err(failed)?;
        let reply = reply.ok_or_else(|| HookError::Process("it has ended".to_owned()))?;
        match reply.body {
            Reply::Refused(reason) => Err(HookError::Refused(reason)),
            body => Ok((body, reply.fd)),
        }
    }

    /// Makes an array map with one zeroed value of `len` bytes, at most 64 MiB, which can be mapped from its start on. The name, of 1 to
    /// 15 letters, digits, underscores or dots, is for tools. The hook process keeps the map until [`HookProcess::free_maps`].
    ///
    /// # Errors
    /// See [`HookError`]. [`HookError::Refused`] for a name or size that no map can have, and when there is no memory.
    pub fn make_map(&self, name: &str, len: u32) -> Result<(MapToken, OwnedFd), HookError> {
        match self.ask(&Request::MakeMap { name: name.to_owned(), len }, &[], None)? {
            (Reply::Map(token), Some(fd)) => Ok((token, fd)),
            _ => Err(unexpected()),
        }
    }

    /// Makes a map of AF_XDP sockets available to programs: [`Options::sockets`].
    ///
    /// # Errors
    /// See [`HookError`]. [`HookError::Refused`] when the descriptor is of something else.
    pub fn add_sockets(&self, map: BorrowedFd<'_>) -> Result<MapToken, HookError> {
        match self.ask(&Request::AddSockets, &[], Some(map))? {
            (Reply::Map(token), _) => Ok(token),
            _ => Err(unexpected()),
        }
    }

    /// Has the hook process close maps. Programs, descriptors and mappings keep those that they use.
    ///
    /// # Errors
    /// See [`HookError`]. [`HookError::Refused`] when one does not exist; the others are closed then, too.
    pub fn free_maps(&self, tokens: &[MapToken]) -> Result<(), HookError> {
        self.ask(&Request::FreeMaps { tokens: tokens.to_vec() }, &[], None).map(drop)
    }

    /// Translates and loads a payload handler. Takes up to about four seconds, in which other requests wait: the kernel verifies up to
    /// four forms of the program, and no form is tried after three seconds.
    ///
    /// # Errors
    /// See [`HookLoadError`].
    pub fn load(&self, request: LoadRequest<'_>) -> Result<LoadedProgram, HookLoadError> {
        let LoadRequest { name, image, layout, options, maps } = request;
        let message = LoadMessage {
            name: name.to_owned(),
            handler: HandlerKind::Payload,
            layout: LayoutMessage::from(layout),
            options: options.into(),
            maps: maps.to_vec(),
        };
        match self.ask(&Request::Load(message), image, None)? {
            (Reply::Loaded(facts), Some(fd)) => Ok(LoadedProgram { fd, facts }),
            (Reply::NotEligible(reason), _) => Err(HookLoadError::NotEligible(reason)),
            (Reply::NotAccepted(reason), _) => Err(HookLoadError::NotAccepted(reason)),
            _ => Err(unexpected().into()),
        }
    }
}

fn unexpected() -> HookError {
    HookError::Process("it gave an unexpected answer".to_owned())
}

impl Drop for HookProcess {
    fn drop(&mut self) {
        // It ends at the end of its input.
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = stream.shutdown(Shutdown::Both);
    }
}
