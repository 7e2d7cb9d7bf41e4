//! Settings that threads and contexts use. The configuration file and the command line set them.

use serde::Deserialize;
use spin_abi::control::MAX_JSON;
use spin_abi::units::size;

/// What the engine's threads do when no packet waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Idle {
    /// Always poll: lowest latency, and a busy core for each thread. For cores that have nothing else to do.
    Spin,
    /// Poll while packets flow, and sleep when none came for a while. Only the first packet after that waits for a wake-up.
    #[default]
    Adaptive,
    /// Sleep in the kernel as soon as there is nothing to do: least processor time, and a wake-up for most packets.
    Sleep,
}

/// How the engine's threads divide the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Each thread receives from its own queue and runs the handlers. All packets of a message have to arrive on one queue.
    #[default]
    RunToCompletion,
    /// The first thread receives and distributes messages to all threads, which run the handlers. It keeps a local share of the messages
    /// (`--local-share`).
    #[serde(alias = "spread")]
    #[value(alias = "spread")]
    Pipeline,
}

/// Sizes of each thread's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sizes {
    /// Message processing queues: messages open at the same time. Default: PsPIN's 256.
    pub queues: u32,
    /// HERs at the same time: packets that wait for their handlers.
    pub hers: u32,
    /// Bytes that are copied at a time between NIC and host memory. Each thread has a buffer of that size.
    #[serde(deserialize_with = "size")]
    pub dma_chunk: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { queues: 256, hers: 1024, dma_chunk: 1024 }
    }
}

/// Limits for applications, for all of them together unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Execution contexts, at most [`MAX_CONTEXTS`].
    pub contexts: usize,
    /// Bytes of host memory of one context, and of memory that a user may keep of removed contexts.
    #[serde(deserialize_with = "size")]
    pub host_mem: u64,
    /// Microseconds that a handler may run: the default of a context, and the most it may ask for.
    pub watchdog_us: u64,
    /// Instructions that a handler may run: the default of a context, and the most it may ask for. `None`: they are not counted.
    pub instruction_limit: Option<u64>,
    /// Control connections of one user at the same time.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { contexts: 64, host_mem: 64 << 20, watchdog_us: 10_000, instruction_limit: None, connections: 32 }
    }
}

/// Most contexts: the reply to `list` takes up to 16 KiB for each, and has to fit a message.
pub const MAX_CONTEXTS: usize = MAX_JSON >> 14;
