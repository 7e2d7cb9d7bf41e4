//! The way to the control thread, for any thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};

use spin_abi::control::{Reply, Request, Stats};
use spin_shm::Region;

use crate::install::{Matching, Prepared, User};

/// What the engine is asked to do.
#[derive(Debug)]
pub enum Work {
    /// Link a checked context in; answered by [`Answer::Installed`].
    Install(Box<Prepared>),
    /// Have a context take other packets.
    SetRules(u32, User, Box<Matching>),
    /// Everything that needs no preparation.
    Request(Request, User),
    /// Frames to replay, as a capture.
    Replay(Vec<u8>),
}

/// What the engine answers.
#[derive(Debug)]
pub enum Answer {
    /// The new context's id.
    Installed(u32),
    /// A reply to pass on, with its blob and the host memory whose descriptor goes along.
    Reply(Reply, Vec<u8>, Option<Arc<Region>>),
}

impl Answer {
    /// A reply that has nothing else with it.
    #[must_use]
    pub const fn plain(reply: Reply) -> Self {
        Self::Reply(reply, Vec::new(), None)
    }
}

/// A request under way.
pub struct Ticket {
    /// What to do.
    pub work: Work,
    /// Where the answer goes.
    pub reply: Responder,
}

/// Takes the answer to one request.
pub struct Responder(SyncSender<Result<Answer, String>>);

impl Responder {
    /// Answers.
    pub fn answer(self, answer: Result<Answer, String>) {
        // The connection's thread may have ended with its peer: then nobody waits for this.
        let _ = self.0.send(answer);
    }
}

/// The way to the control thread, for any thread.
#[derive(Clone)]
pub struct Control {
    pub(super) tickets: Sender<Ticket>,
    pub(super) wake: Arc<OwnedFd>,
}

impl Control {
    /// Has the engine do something, and waits until it has.
    ///
    /// # Errors
    /// The engine's refusal, or that spind is stopping.
    pub fn ask(&self, work: Work) -> Result<Answer, String> {
        let stopping = || "spind is stopping".to_owned();
        let (reply, answer) = sync_channel(1);
        self.tickets.send(Ticket { work, reply: Responder(reply) }).map_err(|_| stopping())?;
        // The counter of an eventfd overflows after 2^64 - 1 wake-ups; otherwise this cannot fail.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        answer.recv().map_err(|_| stopping())?
    }

    /// All counters.
    ///
    /// # Errors
    /// That spind is stopping.
    pub fn stats(&self) -> Result<Stats, String> {
        match self.ask(Work::Request(Request::Stats, User(0)))? {
            Answer::Reply(Reply::Stats(stats), ..) => Ok(stats),
            _ => Err("the engine gave an unexpected answer".to_owned()),
        }
    }
}
