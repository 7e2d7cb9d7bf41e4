//! Starting the descriptor process, and receiving through it.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use spin_shm::{recv_with_fds, send_with_fds};

use super::ARGUMENT;
use super::children::{Child, Children, MAX_OF_ALL, MAX_OF_USER};
use super::report::Report;
use crate::control::notify;
use crate::control::privileges::Account;

/// Longest wait for a descriptor, and for the start of a child.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest wait for the end of a child that has reported. The user's next one then finds room.
const END_LIMIT: Duration = Duration::from_millis(100);

/// Reason why no descriptor was received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The user, or all users but root together, have too many children.
    #[error(
        "too many files of this user (at most {MAX_OF_USER}) or of all users (at most {MAX_OF_ALL}) are being received, or block when \
         they are closed; try again when some are closed"
    )]
    TooMany,
    /// No child was started.
    #[error("cannot receive a descriptor: {0}; try again, or restart spind")]
    NotStarted(io::Error),
    /// The application could not be asked for the descriptor.
    #[error("cannot ask for a descriptor: {0}")]
    NotAsked(io::Error),
    /// A byte came without a descriptor.
    #[error("no descriptor came: send one byte with the descriptor of a memory file (SCM_RIGHTS)")]
    NoDescriptor,
    /// The descriptor is of another file.
    #[error(
        "the descriptor is not of a memory file: send one of memfd_create(2), or of a file on tmpfs or hugetlbfs, open to read and write"
    )]
    NotMemory,
    /// Nothing came.
    #[error("no descriptor came within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The connection closed.
    #[error("the connection closed before a descriptor came")]
    Closed,
    /// The child failed.
    #[error("no descriptor was received: {0}")]
    Failed(io::Error),
}

impl ReceiveError {
    /// Whether the connection can take another request. Otherwise it must be closed: the application may still send the descriptor.
    #[must_use]
    pub const fn leaves_connection_usable(&self) -> bool {
        match self {
            Self::TooMany | Self::NotStarted(_) | Self::NoDescriptor | Self::NotMemory => true,
            Self::NotAsked(_) | Self::TimedOut(_) | Self::Closed | Self::Failed(_) => false,
        }
    }
}

/// The descriptor process of this spind. It ends when this is dropped, or the process ends.
#[derive(Debug)]
pub struct DescriptorProcess {
    stream: UnixStream,
    children: Children,
    /// Longest wait for a descriptor.
    limit: Duration,
    /// Never waited for, so that spind's end waits for no other process.
    _process: std::process::Child,
}

impl DescriptorProcess {
    /// Starts `program`, a spind, as descriptor process with the privileges of this process. It drops all of them, and becomes a process
    /// of `account` if it is root.
    ///
    /// # Errors
    /// The system starts no process.
    pub fn start(program: &Path, account: Option<&Account>) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(LIMIT))?;
        let mut command = Command::new(program);
        // In a group of its own, a terminal's ^C does not end it before spind.
        // The service manager hears from the main process alone. A child that blocks keeps no file system busy by its working directory.
        command.env_remove(notify::SOCKET).current_dir("/").process_group(0);
        command.arg(ARGUMENT).args(account.map(ToString::to_string));
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        Ok(Self { stream: ours, children: Children::default(), limit: LIMIT, _process: command.spawn()? })
    }

    /// Sets the longest wait for a descriptor, which is ten seconds otherwise.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Receives the descriptor of a memory file, or of another file of the kernel's memory, from the peer of `connection`, a user. The
    /// descriptor comes with one byte. `ready` asks the peer to send it; it is called when the connection accepts descriptors. Only the
    /// caller's thread waits, and nobody reads from the connection meanwhile. Seals and size are not checked.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub fn receive(
        &self,
        uid: u32,
        connection: BorrowedFd<'_>,
        ready: impl FnOnce() -> io::Result<()>,
    ) -> Result<OwnedFd, ReceiveError> {
        let (ours, theirs) = UnixStream::pair().map_err(ReceiveError::NotStarted)?;
        ours.set_read_timeout(Some(LIMIT)).map_err(ReceiveError::NotStarted)?;
        let child = self.children.add(uid, ours).ok_or(ReceiveError::TooMany)?;
        send_with_fds(&self.stream, &[0], &[connection, theirs.as_fd()]).map_err(ReceiveError::NotStarted)?;
        drop(theirs);
        let received = self.follow(&child, ready);
        // A child that still waits for the descriptor ends. The socket stays open to count it.
        let _ = child.0.shutdown(Shutdown::Write);
        if !matches!(received, Err(ReceiveError::TimedOut(_))) {
            child.ends_within(END_LIMIT);
        }
        received
    }

    fn follow(&self, child: &Child, ready: impl FnOnce() -> io::Result<()>) -> Result<OwnedFd, ReceiveError> {
        match next(child) {
            Ok((Report::Ready, _)) => {}
            Ok(_) => return Err(ReceiveError::Failed(unexpected())),
            // A child reads from the connection after this report only.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(ReceiveError::NotStarted(error)),
            Err(error) => return Err(ReceiveError::Failed(error)),
        }
        ready().map_err(ReceiveError::NotAsked)?;
        child.0.set_read_timeout(Some(self.limit)).map_err(ReceiveError::Failed)?;
        match next(child) {
            Ok((Report::Memory, Some(fd))) => Ok(fd),
            Ok((Report::NoDescriptor, _)) => Err(ReceiveError::NoDescriptor),
            Ok((Report::NotMemory, _)) => Err(ReceiveError::NotMemory),
            Ok((Report::Closed, _)) => Err(ReceiveError::Closed),
            Ok((Report::Memory | Report::Ready, _)) => Err(ReceiveError::Failed(unexpected())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(ReceiveError::TimedOut(self.limit)),
            Err(error) => Err(ReceiveError::Failed(error)),
        }
    }
}

/// The next report of a child, and the descriptor that came with it.
fn next(child: &Child) -> io::Result<(Report, Option<OwnedFd>)> {
    let mut byte = [0];
    let mut received = recv_with_fds(&*child.0, &mut byte, 1)?;
    if received.len == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the process that receives it has ended"));
    }
    Ok((Report::of(byte[0]).ok_or_else(unexpected)?, received.fds.pop()))
}

fn unexpected() -> io::Error {
    io::Error::other("the process that receives it gave an unexpected report")
}
