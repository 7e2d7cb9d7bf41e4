//! The application's side of spind: connect, install an execution context, and share host memory with its handlers.
//!
//! ```no_run
//! use libspin::{Client, Install};
//!
//! let mut spind = Client::connect(libspin::DEFAULT_SOCKET)?;
//! let image = std::fs::read("handler.elf")?;
//! let context = spind.install(
//!     &Install { rules: vec!["udp dport 9999".into()], host_mem: 4096, ..Install::default() },
//!     &image,
//! )?;
//! let host = context.host.expect("host memory was asked for");
//! println!("{}", host.load_u64(0)?); // as a handler wrote it
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! A context lives as long as its [`Client`], unless it is installed with another [`Lifetime`].
#![forbid(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub use spin_abi::command::Direction;
pub use spin_abi::control::{Abi, Area, Areas, Capabilities, Compat, Guarantees, LatencyInfo, LimitsInfo, MachineInfo};
pub use spin_abi::control::{
    BadUnitCount, Bill, Checks, Early, Engine, Full, Isolation, Lifetime, Placement, RunInfo, Tier, TierInfo, UnitCount,
};
pub use spin_abi::control::{
    ContextInfo, DEFAULT_SOCKET, FaultInfo, Install, MAX_BLOB, PRESSURE, Replayed, SourceLine, Stats, ThreadInfo,
    UserInfo, Users,
};
use spin_abi::control::{Reply, Request};
pub use spin_abi::counter_values::Counters;
pub use spin_abi::counters::{Counter, ENGINE_ONLY, nic_meaning};
pub use spin_abi::events::{Event, What};
pub use spin_abi::handler_names::{BadHandlerNames, HandlerNames};
pub use spin_abi::units::{SizeError, parse_size};
use spin_shm::channel;
pub use spin_shm::channel::ChannelError;
pub use spin_shm::{EventFd, Mapping, OutOfBounds, Region, RegionError};

mod error;
mod events;
mod names;

pub use error::Error;
pub use events::Events;

/// An installed execution context.
#[derive(Debug)]
pub struct Context {
    /// Context id.
    pub id: u32,
    /// Host memory, if some was requested. Handlers use its address in this process. The mapping outlives the context
    /// while this value is kept. A client that keeps much memory of removed contexts (`limits.host_mem`) gets no more
    /// until it releases some.
    pub host: Option<Region>,
    /// Addresses of the handlers and handler memory in NIC memory.
    pub areas: Areas,
    /// Warnings of spind: rules that never hold, and why handlers are interpreted.
    pub warnings: Vec<String>,
}

/// A connection to spind.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Client {
    /// Connects to the daemon that listens at `path`.
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let stream = UnixStream::connect(path).map_err(|source| Error::Connect { path: path.to_path_buf(), source })?;
        Ok(Self { stream })
    }

    /// Installs a context that runs the handlers of `image`, the bytes of an ELF file.
    ///
    /// # Errors
    /// [`Error::Refused`] with spind's reason when image, rules or sizes are not acceptable.
    pub fn install(&mut self, install: &Install, image: &[u8]) -> Result<Context, Error> {
        let (reply, _, fd) = self.call(&Request::Install(Box::new(install.clone())), image)?;
        let Reply::Installed { context, host_mem, areas, warnings, .. } = reply else { return Err(unexpected(&reply)) };
        let host = match fd {
            Some(fd) if install.lifetime == Lifetime::Connection => match self.map_host(context, fd, host_mem) {
                Ok(region) => Some(region),
                Err(error) => {
                    // The caller gets no id for the context, which would take packets as long as this connection lives.
                    let _ = self.remove(context);
                    return Err(error);
                }
            },
            _ => None,
        };
        Ok(Context { id: context, host, areas, warnings })
    }

    /// Maps a context's host memory and reports its address to spind, since handlers use that address.
    fn map_host(&mut self, context: u32, fd: OwnedFd, len: u64) -> Result<Region, Error> {
        let region = Region::from_fd(fd, len)?;
        self.expect_ok(&Request::MapHost { context, address: region.address() })?;
        Ok(region)
    }

    /// Maps the host memory of a context that this user installed, possibly from another process. The returned address
    /// is the one that handlers use; it does not change.
    ///
    /// # Errors
    /// [`Error::Refused`] when the context does not exist, has no host memory, or belongs to another user.
    pub fn host_memory(&mut self, context: u32) -> Result<(Region, u64), Error> {
        match self.call(&Request::HostMemory { context }, &[])? {
            (Reply::HostMemory { len, address }, _, Some(fd)) => Ok((Region::from_fd(fd, len)?, address)),
            (other, ..) => Err(unexpected(&other)),
        }
    }

    /// Returns a context's event stream, beginning with the oldest event that is still stored.
    ///
    /// # Errors
    /// [`Error::Refused`] when the context does not exist or belongs to another user.
    pub fn events(&mut self, context: u32) -> Result<Events, Error> {
        match self.call(&Request::Events { context }, &[])? {
            (Reply::Events { len }, _, Some(fd)) => Ok(Events::new(Region::from_fd(fd, len)?)),
            (other, ..) => Err(unexpected(&other)),
        }
    }

    /// Attaches a region to a context: handlers reach it by its addresses in this process, until it is detached or the context is gone.
    /// Make regions by [`Region::create`] or [`Region::create_huge`]. A context may have 16 of them, each of at most
    /// [`LimitsInfo::host_mem`] bytes. It keeps the memory when this value is dropped; detach the region first, since its addresses may
    /// become other memory's.
    ///
    /// # Errors
    /// [`Error::Refused`] with spind's reason.
    pub fn attach(&mut self, context: u32, region: &Region) -> Result<(), Error> {
        self.attach_file(context, region.fd(), region.address(), region.len())
    }

    /// Attaches a memory file that this program has: a memfd (memfd_create(2)) in pages of any size, of `len` bytes, which are whole pages
    /// and allocated, with the seals F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL. Handlers reach its first byte at `address`, where the
    /// program has mapped it. Anonymous memory has no file: use [`Region::create`] instead.
    ///
    /// # Errors
    /// [`Error::Refused`] with spind's reason.
    pub fn attach_file(&mut self, context: u32, file: BorrowedFd<'_>, address: u64, len: u64) -> Result<(), Error> {
        match self.call(&Request::AttachRegion { context, address, len }, &[])?.0 {
            Reply::SendMemory => {}
            other => return Err(unexpected(&other)),
        }
        spin_shm::send_with_fds(&self.stream, &[0], &[file])?;
        match self.receive()?.0 {
            Reply::Ok => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Detaches the region that begins at `address` from a context.
    ///
    /// # Errors
    /// [`Error::Refused`] when there is none.
    pub fn detach(&mut self, context: u32, address: u64) -> Result<(), Error> {
        self.expect_ok(&Request::DetachRegion { context, address })
    }

    /// Reads NIC memory of a context that this client installed, at the addresses that handlers use: image data,
    /// handler memory, scratchpads.
    ///
    /// # Errors
    /// [`Error::Refused`] when some of these bytes are not the context's, or another client installed it.
    pub fn read_memory(&mut self, context: u32, address: u32, to: &mut [u8]) -> Result<(), Error> {
        self.read_unit_memory(context, 0, address, to)
    }

    /// Reads NIC memory of one unit of a context, as [`Client::read_memory`] does. `unit` counts from 0 among the units that run the
    /// context. Units share handler memory and image data unless [`Install::handler_mem_per_unit`] is set; each has its own scratchpads.
    ///
    /// # Errors
    /// As [`Client::read_memory`], and when the context has no such unit.
    pub fn read_unit_memory(&mut self, context: u32, unit: u32, address: u32, to: &mut [u8]) -> Result<(), Error> {
        let len = u32::try_from(to.len()).unwrap_or(u32::MAX);
        match self.call(&Request::ReadMemory { context, address, len, unit }, &[])? {
            (Reply::Ok, bytes, _) if bytes.len() == to.len() => {
                to.copy_from_slice(&bytes);
                Ok(())
            }
            (other, ..) => Err(unexpected(&other)),
        }
    }

    /// Writes NIC memory of a context that this client installed. Aligned doublewords are written atomically, in order
    /// of their addresses.
    ///
    /// # Errors
    /// As [`Client::read_memory`], and when handlers may not write the memory; nothing is written then.
    pub fn write_memory(&mut self, context: u32, address: u32, from: &[u8]) -> Result<(), Error> {
        self.write_unit_memory(context, 0, address, from)
    }

    /// Writes NIC memory of one unit of a context: see [`Client::read_unit_memory`].
    ///
    /// # Errors
    /// As [`Client::write_memory`], and when the context has no such unit.
    pub fn write_unit_memory(&mut self, context: u32, unit: u32, address: u32, from: &[u8]) -> Result<(), Error> {
        match self.call(&Request::WriteMemory { context, address, unit }, from)?.0 {
            Reply::Ok => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Replaces the rules of a context: see [`Install::rules`] and [`Install::eom`].
    ///
    /// # Errors
    /// [`Error::Refused`] with spind's reason; the rules are then unchanged.
    pub fn set_rules(&mut self, context: u32, rules: Vec<String>, eom: Option<String>) -> Result<(), Error> {
        self.expect_ok(&Request::SetRules { context, rules, eom })
    }

    /// Removes a context.
    ///
    /// # Errors
    /// [`Error::Refused`] when the context does not exist or belongs to another user.
    pub fn remove(&mut self, context: u32) -> Result<(), Error> {
        self.expect_ok(&Request::Remove { context })
    }

    /// Lists contexts in order of priority.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn contexts(&mut self) -> Result<Vec<ContextInfo>, Error> {
        match self.call(&Request::List, &[])?.0 {
            Reply::Contexts { contexts } => Ok(contexts),
            other => Err(unexpected(&other)),
        }
    }

    /// Reads the bills of users: of all for root, else of this one.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn users(&mut self) -> Result<Users, Error> {
        match self.call(&Request::Users, &[])?.0 {
            Reply::Users(users) => Ok(users),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the id of a context given by id or, if no context has that id, by name. A name stands for a context of this
    /// user. Root may also name a context of another user, if root has none of that name.
    ///
    /// # Errors
    /// [`Error::NoSuchContext`], [`Error::Ambiguous`], and when the connection fails.
    pub fn find(&mut self, wanted: &str) -> Result<u32, Error> {
        match (self.contexts(), wanted.parse()) {
            // An id can be used without listing the contexts.
            (Err(Error::Refused(_)), Ok(id)) => Ok(id),
            (contexts, _) => names::find(&contexts?, wanted),
        }
    }

    /// Returns the capabilities of spind and its machine: memory sizes, maximum packet length, limits, and packet
    /// guarantees. They do not change while spind runs.
    ///
    /// # Errors
    /// When the connection fails; [`Error::Refused`] by a spind that does not know the request.
    pub fn capabilities(&mut self) -> Result<Capabilities, Error> {
        match self.call(&Request::Capabilities, &[])?.0 {
            Reply::Capabilities(capabilities) => Ok(*capabilities),
            other => Err(unexpected(&other)),
        }
    }

    /// Reads all counters.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn stats(&mut self) -> Result<Stats, Error> {
        self.send(&Request::Stats, &[])?;
        let message = channel::receive_either::<Stats, Reply>(&self.stream)?.ok_or(Error::Closed)?;
        message.body.or_else(|reply| match reply {
            Reply::Stats(stats) => Ok(stats),
            Reply::Error { message } => Err(Error::Refused(message)),
            other => Err(unexpected(&other)),
        })
    }

    /// On a daemon with `--nic loopback`: receives the frames of a pcap and returns the sent frames as a pcap.
    ///
    /// # Errors
    /// [`Error::Refused`] on another NIC or when `pcap` cannot be read.
    pub fn replay(&mut self, pcap: &[u8]) -> Result<Vec<u8>, Error> {
        self.replay_counted(pcap).map(|(sent, _)| sent)
    }

    /// Replays a pcap as [`Client::replay`] does, and also returns the counts.
    ///
    /// # Errors
    /// As [`Client::replay`].
    pub fn replay_counted(&mut self, pcap: &[u8]) -> Result<(Vec<u8>, Replayed), Error> {
        let (reply, blob, _) = self.call(&Request::Replay, pcap)?;
        match reply {
            Reply::Replayed(replayed) => Ok((blob, replayed)),
            other => Err(unexpected(&other)),
        }
    }

    fn expect_ok(&mut self, request: &Request) -> Result<(), Error> {
        match self.call(request, &[])?.0 {
            Reply::Ok => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn call(&mut self, request: &Request, blob: &[u8]) -> Result<(Reply, Vec<u8>, Option<OwnedFd>), Error> {
        self.send(request, blob)?;
        self.receive()
    }

    fn send(&mut self, request: &Request, blob: &[u8]) -> Result<(), Error> {
        // A spind that refuses the connection sends the reason and closes it, possibly before this write.
        let written = channel::send(&self.stream, request, blob, None);
        if let Err(error) = written
            && !matches!(error, ChannelError::Io(_))
        {
            return Err(error.into());
        }
        Ok(())
    }

    fn receive(&self) -> Result<(Reply, Vec<u8>, Option<OwnedFd>), Error> {
        let message = channel::receive(&self.stream)?.ok_or(Error::Closed)?;
        match message.body {
            Reply::Error { message } => Err(Error::Refused(message)),
            reply => Ok((reply, message.blob, message.fd)),
        }
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::Unexpected(format!("{reply:?}"))
}
