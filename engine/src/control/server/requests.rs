//! Requests to the control thread, from any thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};

use spin_abi::control::{Reply, Request, Stats};
use spin_shm::{Attached, Region};

use crate::cores::{ChangeResult, Transaction};
use crate::install::{MatchSpec, Prepared, User};
use crate::settings::Limits;

/// A request to the control thread.
#[derive(Debug)]
pub enum Work {
    /// Install a prepared context; answered by [`Answer::Installed`].
    Install(Box<Prepared>),
    /// Replace the rules of a context.
    SetRules(u32, User, Box<MatchSpec>),
    /// Attach memory of the application to a context, at a host address.
    AttachRegion(u32, User, u64, Arc<Attached>),
    /// Check that a user may change a context.
    Check(u32, User),
    /// A request that needs no preparation.
    Request(Request, User),
    /// Replay a capture.
    Replay(Vec<u8>),
    /// Set limits, and change contexts of the configuration; answered by [`Answer::Changed`].
    Change(Box<Transaction>, Limits),
}

/// An answer of the control thread.
#[derive(Debug)]
pub enum Answer {
    /// The new context's id.
    Installed(u32),
    /// Results of changes.
    Changed(ChangeResult),
    /// A reply, its blob, and the shared memory whose descriptor is sent along.
    Reply(Reply, Vec<u8>, Option<Arc<Region>>),
}

impl Answer {
    /// A reply without blob and descriptor.
    #[must_use]
    pub const fn plain(reply: Reply) -> Self {
        Self::Reply(reply, Vec::new(), None)
    }
}

/// A request, and the recipient of its answer.
pub struct Ticket {
    /// The user whose turn it takes. Requests on behalf of a user may have the rights of root.
    pub user: User,
    /// The request.
    pub work: Work,
    /// Recipient of the answer.
    pub reply: Responder,
}

/// Sends the answer to one request.
pub struct Responder(pub(super) SyncSender<Result<Answer, String>>);

impl Responder {
    /// Sends the answer.
    pub fn answer(self, answer: Result<Answer, String>) {
        // The connection's thread may have ended with its peer.
        let _ = self.0.send(answer);
    }
}

/// Sends requests to the control thread, from any thread.
#[derive(Clone)]
pub struct ControlHandle {
    pub(super) tickets: Sender<Ticket>,
    pub(super) wake: Arc<OwnedFd>,
}

impl ControlHandle {
    /// Sends a request and waits for the answer. It takes a turn of `user`.
    ///
    /// # Errors
    /// The reason for a refusal, or that spind is stopping.
    pub fn ask(&self, user: User, work: Work) -> Result<Answer, String> {
        let stopping = || "spind is stopping".to_owned();
        let (reply, answer) = sync_channel(1);
        self.tickets.send(Ticket { user, work, reply: Responder(reply) }).map_err(|_| stopping())?;
        // The counter of an eventfd overflows after 2^64 - 1 wake-ups; otherwise this cannot fail.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        answer.recv().map_err(|_| stopping())?
    }

    /// All counters. Takes a turn of root.
    ///
    /// # Errors
    /// The error says that spind is stopping.
    pub fn stats(&self) -> Result<Stats, String> {
        match self.ask(User(0), Work::Request(Request::Stats, User(0)))? {
            Answer::Reply(Reply::Stats(stats), ..) => Ok(stats),
            _ => Err("the engine gave an unexpected answer".to_owned()),
        }
    }
}
