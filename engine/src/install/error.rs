//! Errors of installing, changing or removing contexts.

use std::sync::Arc;

use hpu_vm::memory::SpaceError;
use spin_abi::control::{Abi, UnitCount};
use spin_abi::rules::MAX_KEYS;
use spin_matcher::compile::CompileError;
use spin_matcher::table::RuleUse;
use spin_matcher::{ListError, ParseError, TableError};
use spin_nic::NicError;
use spin_pspin::host_memory::AddressError;
use spin_shm::RegionError;

use super::ledger::OverBudget;
use crate::context::image_error::ImageError;

/// Maximum length of a context's name, in bytes.
pub(crate) const MAX_NAME: usize = 64;
/// Maximum length of a context's rules, predicate and key together, in bytes. The reply to `list` with all contexts has to fit a
/// message.
pub(crate) const MAX_TEXT: usize = 4096;

/// Rules that the contexts of a user other than root may take together.
pub(crate) const USER_RULES: RuleUse = RuleUse { tests: 64, keys: MAX_KEYS / 4 };

/// The reason why a context was not installed, changed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The image is not one this machine can run.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The image was built for another ABI.
    #[error("handler image: it was built for abi {built} (spin-cc --abi), and is to be installed for {asked} (--abi)")]
    OtherAbi {
        /// The ABI that the image was built for.
        built: Abi,
        /// The ABI that was requested.
        asked: Abi,
    },
    /// The handlers return verdicts, which would be ignored.
    #[error("handler image: its handlers return verdicts (SPIN_VERDICTS); install it with --verdicts")]
    Verdicts,
    /// The handlers return nothing. A stale register would be taken for a verdict.
    #[error(
        "handler image: its handlers return nothing, so there are no verdicts to heed; define SPIN_VERDICTS before spin.h is included, or \
         install it without --verdicts"
    )]
    NoVerdicts,
    /// The machine has more clusters than handlers of that ABI can address.
    #[error("abi {abi}: its handlers know {known} clusters, this machine has {clusters}; run spind --preset {abi}")]
    Clusters {
        /// The ABI of the handlers.
        abi: Abi,
        /// The number of clusters that the ABI knows.
        known: u32,
        /// The number of clusters of the machine.
        clusters: u32,
    },
    /// There is no such unit.
    #[error("unit {first}, {count} units: this spind has {units}, numbered from 0")]
    NoUnit {
        /// The first unit.
        first: u32,
        /// Their number.
        count: u32,
        /// The number of units that there are.
        units: u32,
    },
    /// Handlers that know one unit.
    #[error("units {0}: {1}; leave --units out")]
    OneUnit(UnitCount, &'static str),
    /// A context in other units than the one that it replaces, which those have packets of.
    #[error(
        "unit: context {old} runs in units {first} to {last}, and what replaces it has to run there; leave --unit and --units as they were"
    )]
    OtherUnits {
        /// The replaced context.
        old: u32,
        /// Its first unit.
        first: u32,
        /// Its last unit.
        last: u32,
    },
    /// No rule: the context would match nothing.
    #[error("no rule: say which packets the handlers are for, e.g. --rule 'udp dport 9999'")]
    NoRule,
    /// A rule that cannot be parsed.
    #[error(transparent)]
    Rule(#[from] ListError),
    /// An end-of-message predicate that cannot be parsed.
    #[error("end of message: {0}")]
    Eom(ParseError),
    /// The context is in packet mode and has handlers that never run there.
    #[error(
        "end of message: no packet ends a message, so that each packet is a task of its own and no {idle} handler runs; give a rule \
         that ends messages (--eom), or name only the payload handler (--handlers ph=NAME)"
    )]
    NeverEnds {
        /// The handlers, by stage.
        idle: String,
    },
    /// A rule for headers that cannot be parsed.
    #[error("rule for headers: {0}")]
    Header(ParseError),
    /// A rule for headers that is too long.
    #[error("rule for headers: {0}")]
    HeaderTests(CompileError),
    /// The context is in packet mode and has a rule for headers.
    #[error(
        "rule for headers: no packet ends a message, so that each packet is a task of its own; give a rule that ends messages (--eom)"
    )]
    HeaderNeverEnds,
    /// A key that cannot be parsed.
    #[error("message key: {0}")]
    Key(ParseError),
    /// The rules of all contexts together do not fit.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A name that is too long or would garble logs and terminals.
    #[error("name {0:?}: at most {MAX_NAME} printable ASCII characters")]
    Name(String),
    /// Rules, predicate and key that are too long, and their length in bytes.
    #[error("rules, end of message and key of {0} bytes together: at most {MAX_TEXT}; use prefixes and ranges")]
    Text(usize),
    /// A size beyond the limit of the machine or the configuration.
    #[error("{what} of {asked} bytes: at most {limit}{setting}")]
    TooLarge {
        /// The object with that size.
        what: &'static str,
        /// How to change the limit, as a suffix of the text; empty: it is the machine's.
        setting: String,
        /// The requested size.
        asked: u64,
        /// The limit.
        limit: u64,
    },
    /// A limit of zero, or one beyond the daemon's.
    #[error("{what} {asked}: between 1 and {limit}{setting}")]
    Limit {
        /// The name of the limit.
        what: &'static str,
        /// The setting that changes the limit, as a suffix of the text; empty: none.
        setting: &'static str,
        /// The requested limit.
        asked: u64,
        /// The daemon's limit.
        limit: u64,
    },
    /// The memory of the context cannot be allocated.
    #[error("memory of handlers: {0}")]
    Memory(#[from] SpaceError),
    /// The maximum number of contexts is reached.
    #[error("all {most} contexts are in use{}; remove one, or raise limits.contexts", ending_note(*.ending))]
    Full {
        /// The maximum number of contexts.
        most: usize,
        /// The number of replaced contexts that are draining.
        ending: u32,
    },
    /// The user has the maximum number of contexts.
    #[error("user {uid} has {most} contexts; remove one, or raise limits.user_contexts")]
    UserContexts {
        /// The user.
        uid: u32,
        /// The maximum number of contexts.
        most: usize,
    },
    /// The rules of a user's contexts together are too many. Every packet pays for tests.
    #[error(
        "rules of user {uid}'s contexts: {} tests, at most {}, and {} pairs of an address and a port, at most {}; a rule that names up to \
         64 destination ports, and no more than an address, needs no tests",
        takes.tests, USER_RULES.tests, takes.keys, USER_RULES.keys
    )]
    UserRules {
        /// The user.
        uid: u32,
        /// What they would take.
        takes: RuleUse,
    },
    /// Host memory cannot be allocated.
    #[error("host memory: {0}")]
    HostMemory(#[from] RegionError),
    /// The host addresses are not free, or no region is there.
    #[error(transparent)]
    HostAddress(#[from] AddressError),
    /// No context has this id.
    #[error("no context {0} is installed")]
    NoSuchContext(u32),
    /// The context belongs to another user.
    #[error("context {id} belongs to user {owner}")]
    NotYours {
        /// The id of the context.
        id: u32,
        /// The user that it belongs to.
        owner: u32,
    },
    /// The context has no host memory.
    #[error("context {0} has no host memory")]
    NoHostMemory(u32),
    /// The user's memory, or that of all users, is used up.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// The policy does not allow the rules.
    #[error("{0}")]
    Policy(Box<dyn std::error::Error + Send + Sync>),
    /// The handlers cannot run in the kernel's XDP hook.
    #[error("tier kernel: {0}")]
    Tier(TierRefusal),
    /// The engine's threads have ended.
    #[error("spind is stopping")]
    Stopped,
    /// The NIC refused the rules of contexts that were to be installed together.
    #[error(transparent)]
    Nic(Arc<NicError>),
}

/// The reason why handlers of a context do not run in the kernel's XDP hook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TierRefusal {
    /// The daemon has no kernel tier.
    #[error("the kernel tier is off (`kernel_tier = true` in spind's configuration turns it on)")]
    Off,
    /// The policy does not allow it to this user.
    #[error("not allowed; an administrator allows it with kernel_tier = true in [policy.user.{0}]")]
    Policy(u32),
    /// The handler cannot run there.
    #[error("{0}")]
    Unable(String),
}

impl From<NicError> for InstallError {
    fn from(error: NicError) -> Self {
        Self::Nic(Arc::new(error))
    }
}

fn ending_note(ending: u32) -> String {
    if ending == 0 { String::new() } else { format!(" ({ending} were replaced, and go within a minute)") }
}
