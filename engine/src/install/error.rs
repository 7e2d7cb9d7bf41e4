//! Why contexts are not installed, changed or removed.

use std::sync::Arc;

use hpu_vm::memory::SpaceError;
use spin_abi::control::Abi;
use spin_matcher::{ListError, ParseError, TableError};
use spin_nic::NicError;
use spin_shm::RegionError;

use crate::context::image_error::ImageError;

/// Longest name of a context, in bytes.
pub(crate) const MAX_NAME: usize = 64;
/// Most bytes of rules, predicate and key of a context: the reply to `list` with all contexts has to fit a message.
pub(crate) const MAX_TEXT: usize = 4096;

/// Why a context was not installed, changed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The image is not one this machine can run.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The image was built for another ABI.
    #[error("handler image: it was built for abi {built} (spin-cc --abi), and is to be installed for {asked} (--abi)")]
    OtherAbi {
        /// What it was built for.
        built: Abi,
        /// What it is to be installed for.
        asked: Abi,
    },
    /// Its handlers return verdicts, which would be ignored.
    #[error("handler image: its handlers return verdicts (SPIN_VERDICTS); install it with --verdicts")]
    Verdicts,
    /// Its handlers return nothing: a stale register would be taken for a verdict.
    #[error(
        "handler image: its handlers return nothing, so there are no verdicts to heed; define SPIN_VERDICTS before spin.h is included, or \
         install it without --verdicts"
    )]
    NoVerdicts,
    /// More clusters than handlers of that machine know.
    #[error("abi {abi}: its handlers know {known} clusters, this machine has {clusters}; run spind --preset {abi}")]
    Clusters {
        /// Whose handlers they are.
        abi: Abi,
        /// What they know.
        known: u32,
        /// What there is.
        clusters: u32,
    },
    /// No rule: the context would match nothing.
    #[error("no rule: say which packets the handlers are for, e.g. --rule 'udp dport 9999'")]
    NoRule,
    /// A rule is not understood.
    #[error(transparent)]
    Rule(#[from] ListError),
    /// The end-of-message predicate is not understood.
    #[error("end of message: {0}")]
    Eom(ParseError),
    /// The key is not understood.
    #[error("message key: {0}")]
    Key(ParseError),
    /// The rules of all contexts together do not fit.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A name that is too long or would garble logs and terminals.
    #[error("name {0:?}: at most {MAX_NAME} printable ASCII characters")]
    Name(String),
    /// Too much text.
    #[error("rules, end of message and key of {0} bytes together: at most {MAX_TEXT}; use prefixes and ranges")]
    Text(usize),
    /// More than the machine or the configuration allows.
    #[error("{what} of {asked} bytes: at most {limit}")]
    TooLarge {
        /// What was asked for.
        what: &'static str,
        /// How much.
        asked: u64,
        /// How much there is.
        limit: u64,
    },
    /// No limit at all, or one beyond the daemon's.
    #[error("{what} {asked}: between 1 and {limit}{setting}")]
    Limit {
        /// Which limit.
        what: &'static str,
        /// The setting that changes the limit, as a suffix of the text; empty: none.
        setting: &'static str,
        /// What was asked for.
        asked: u64,
        /// The daemon's.
        limit: u64,
    },
    /// There is no memory for it.
    #[error("memory of handlers: {0}")]
    Memory(#[from] SpaceError),
    /// No context is left.
    #[error("all {most} contexts are in use{}; remove one, or raise limits.contexts", ending_note(*.ending))]
    Full {
        /// How many there may be.
        most: usize,
        /// Replaced contexts that end with their last messages.
        ending: u32,
    },
    /// Host memory cannot be made.
    #[error("host memory: {0}")]
    HostMemory(#[from] RegionError),
    /// No such context.
    #[error("no context {0} is installed")]
    NoSuchContext(u32),
    /// Somebody else's context.
    #[error("context {id} belongs to user {owner}")]
    NotYours {
        /// The context.
        id: u32,
        /// Its user.
        owner: u32,
    },
    /// The context has no host memory.
    #[error("context {0} has no host memory")]
    NoHostMemory(u32),
    /// The engine's threads have ended.
    #[error("spind is stopping")]
    Stopped,
    /// The NIC refused the rules of all contexts that were to be installed together.
    #[error(transparent)]
    Nic(Arc<NicError>),
}

impl From<NicError> for InstallError {
    fn from(error: NicError) -> Self {
        Self::Nic(Arc::new(error))
    }
}

fn ending_note(ending: u32) -> String {
    if ending == 0 { String::new() } else { format!(" ({ending} were replaced, and go within a minute)") }
}
