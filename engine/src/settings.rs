//! Settings that threads and contexts use. The configuration file and the command line set them.

use serde::Deserialize;

/// What the engine's threads do when no packet waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Idle {
    /// Keep polling: lowest latency, a core busy for each thread. For cores that have nothing else to do.
    Spin,
    /// Poll while packets flow, and sleep when none came for a while: only the first one after that waits for a wake-up.
    #[default]
    Adaptive,
    /// Sleep in the kernel as soon as there is nothing to do: least processor time, and a wake-up for most packets.
    Sleep,
}

/// How the engine's threads share the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Each receives from queues of its own, and runs the handlers: a message has to arrive on one queue.
    #[default]
    RunToCompletion,
    /// The first receives and matches for all. Each runs the handlers of the messages that are at home there, the first those of its
    /// local share.
    #[serde(alias = "spread")]
    #[value(alias = "spread")]
    Pipeline,
}

/// How much the engine has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sizes {
    /// Message processing queues: messages open at the same time. Default: PsPIN's 256.
    pub queues: u32,
    /// HERs, packets that wait for their handlers, at the same time.
    pub hers: u32,
    /// Bytes that are copied at a time between NIC and host memory, by way of a buffer of that size, which each thread has.
    pub dma_chunk: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { queues: 256, hers: 1024, dma_chunk: 1024 }
    }
}

/// What applications may take, all of them together unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Execution contexts, at most 256.
    pub contexts: usize,
    /// Bytes of host memory of one context, and of what a user may keep of contexts that are gone.
    pub host_mem: u64,
    /// Microseconds a handler may run when its context says nothing, and at most.
    pub watchdog_us: u64,
    /// Instructions a handler may run when its context says nothing, and at most. Default: they are not counted.
    pub instruction_limit: Option<u64>,
    /// Control connections of one user at the same time.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { contexts: 64, host_mem: 64 << 20, watchdog_us: 10_000, instruction_limit: None, connections: 32 }
    }
}
