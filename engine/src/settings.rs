//! Settings of threads and contexts, as set by the configuration file and the command line.

use std::fmt;

use serde::Deserialize;
use spin_abi::control::MAX_JSON;
use spin_abi::units::size;

/// Behaviour of threads while no packets arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Idle {
    /// Always poll: lowest latency, but each thread keeps its core busy. For cores without other work.
    Spin,
    /// Poll while packets arrive, and sleep after a while without any. Only the first packet after a sleep waits for a wake-up.
    #[default]
    Adaptive,
    /// Sleep in the kernel as soon as there is no work: least CPU time, but a wake-up for most packets.
    Sleep,
}

/// How threads divide the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Each thread receives from its own queue and runs the handlers. All packets of a message have to arrive on one queue.
    #[default]
    RunToCompletion,
    /// The first thread receives, and distributes messages to the other threads, which run the handlers. It also runs handlers for a
    /// local share of the messages, unless `--local-share` is 0.
    #[serde(alias = "spread")]
    #[value(alias = "spread")]
    Pipeline,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RunToCompletion => "run-to-completion",
            Self::Pipeline => "pipeline",
        })
    }
}

/// Sizes of each thread's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sizes {
    /// Message processing queues: the maximum number of open messages. Default: PsPIN's 256.
    pub queues: u32,
    /// HERs: the maximum number of packets that wait for their handlers.
    pub hers: u32,
    /// Bytes copied at once between NIC and host memory. Each thread has a buffer of that size.
    #[serde(deserialize_with = "size")]
    pub dma_chunk: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { queues: 256, hers: 1024, dma_chunk: 1024 }
    }
}

/// Limits for applications: for all of them together, unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Execution contexts, at most [`MAX_CONTEXTS`].
    pub contexts: usize,
    /// Execution contexts of one user other than root. `None`: half of `contexts`.
    pub user_contexts: Option<usize>,
    /// Bytes of host memory of one context. Also the bytes that a user may keep of removed contexts.
    #[serde(deserialize_with = "size")]
    pub host_mem: u64,
    /// Microseconds that a handler may run: default and maximum of a context.
    pub watchdog_us: u64,
    /// Instructions that a handler may run: default and maximum of a context. `None`: instructions are not counted.
    pub instruction_limit: Option<u64>,
    /// Concurrent control connections of one user.
    pub connections: usize,
    /// Bytes that contexts and requests of all users may take. `None`: three quarters of what spind may take.
    #[serde(deserialize_with = "some_size")]
    pub memory: Option<u64>,
    /// Bytes that those of one user other than root may take. `None`: half of that.
    #[serde(deserialize_with = "some_size")]
    pub user_memory: Option<u64>,
}

/// A size, which the configuration may leave out.
fn some_size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    size(deserializer).map(Some)
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            contexts: MAX_CONTEXTS,
            user_contexts: None,
            host_mem: 64 << 20,
            watchdog_us: 10_000,
            instruction_limit: None,
            connections: 32,
            memory: None,
            user_memory: None,
        }
    }
}

/// Maximum number of contexts: the reply to `list` takes up to 16 KiB for each, and has to fit a message.
pub const MAX_CONTEXTS: usize = MAX_JSON >> 14;
