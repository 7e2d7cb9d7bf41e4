//! Memory of applications: receives it, maps it, and attaches it to a context.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use spin_abi::control::{BillKind, Reply};
use spin_shm::{AttachError, Attached, channel};

use super::requests::Work;
use super::shared::Shared;
use crate::control::descriptor_process::client::ReceiveError;
use crate::control::install::at_most;
use crate::install::ledger::OverBudget;
use crate::install::{InstallError, User};

/// Reason why memory is not attached.
#[derive(Debug, thiserror::Error)]
pub enum RegionRefusal {
    /// A region is longer than the configuration allows.
    #[error(transparent)]
    TooLarge(#[from] InstallError),
    /// The user's memory is used up.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// No descriptor came.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The memory is not as it must be.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The engine refuses.
    #[error("{0}")]
    Engine(String),
}

impl RegionRefusal {
    /// Whether the connection can take another request.
    pub const fn leaves_connection_usable(&self) -> bool {
        match self {
            Self::Receive(error) => error.leaves_connection_usable(),
            _ => true,
        }
    }
}

/// Memory to attach to a context.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Id of the context.
    pub context: u32,
    /// Host address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub len: u64,
    /// Maximum number of bytes.
    pub most: u64,
}

/// Asks the peer for a memory file, maps it, and attaches it to a context of the user.
///
/// # Errors
/// See [`RegionRefusal`].
pub fn attach(stream: &UnixStream, user: User, wanted: Wanted, shared: &Shared) -> Result<(), RegionRefusal> {
    let Wanted { context, address, len, most } = wanted;
    at_most("a region", len, most, Some("host_mem"))?;
    let ask = |work| shared.control.ask(user, work).map_err(RegionRefusal::Engine);
    ask(Work::Check(context, user))?;
    // The user pays until the region is detached or its context is gone.
    let charge = shared.loader.ledger.charge(user.0, BillKind::HostMemory, len)?;
    let ready = || channel::send(stream, &Reply::SendMemory, &[], None).map_err(io::Error::other);
    let fd = shared.descriptors.receive(user.0, stream.as_fd(), ready)?;
    let region = Arc::new(Attached::new(&fd, len, Box::new(charge))?);
    // This thread's reference outlasts those of packet threads in case of an error, so that none of them unmaps the region.
    ask(Work::AttachRegion(context, user, address, region.clone()))?;
    Ok(())
}
