//! Checks of sizes, limits and cores.

use spin_abi::map::Machine;

use super::error::ConfigError;
use super::nic::Nic;
use super::topology::Topology;
use crate::cores::units::{PlannedWorker, plan};
use crate::settings::{Limits, MAX_CONTEXTS, Mode, Sizes};

/// Maximum number of threads that run handlers: each pair of them has channels.
const MAX_WORKERS: usize = 1024;
/// Maximum number of queues, and of waiting packets.
const MAX_SIZE: u32 = 1 << 20;
/// Minimum number of bytes copied at a time.
const MIN_DMA_CHUNK: u32 = 64;
/// Maximum number of bytes copied at a time.
const MAX_DMA_CHUNK: u32 = 1 << 20;
/// Maximum time limit of a handler, in microseconds: an hour.
const MAX_WATCHDOG_US: u64 = 3_600_000_000;
/// Default of `local_share`, in percent: receiving takes about a quarter of the receiving core's time.
const LOCAL_SHARE: u32 = 75;

/// Checks the sizes of each thread's tables.
pub(super) fn check_sizes(sizes: &Sizes) -> Vec<ConfigError> {
    let Sizes { queues, hers, dma_chunk } = *sizes;
    let bounds = [
        ("queues", queues, 1, MAX_SIZE),
        ("hers", hers, 1, MAX_SIZE),
        ("dma_chunk", dma_chunk, MIN_DMA_CHUNK, MAX_DMA_CHUNK),
    ];
    let wrong = bounds.into_iter().filter(|(_, size, least, most)| !(least..=most).contains(&size));
    wrong.map(|(name, size, least, most)| ConfigError::Size { name, size, least, most }).collect()
}

/// Checks the limits for applications.
pub(super) fn check_limits(limits: &Limits) -> Vec<ConfigError> {
    let &Limits { contexts, user_contexts, connections, watchdog_us, instruction_limit, .. } = limits;
    let checks = [
        (contexts == 0, ConfigError::Nobody("contexts")),
        (user_contexts == Some(0), ConfigError::Nobody("user_contexts")),
        (connections == 0, ConfigError::Nobody("connections")),
        (contexts > MAX_CONTEXTS, ConfigError::Contexts(contexts)),
        (watchdog_us == 0, ConfigError::NoTime("watchdog_us")),
        (watchdog_us > MAX_WATCHDOG_US, ConfigError::TooMuchTime { given: watchdog_us, most: MAX_WATCHDOG_US }),
        (instruction_limit == Some(0), ConfigError::NoTime("instruction_limit")),
    ];
    checks.into_iter().filter_map(|(is_wrong, error)| is_wrong.then_some(error)).collect()
}

/// Checks the engine's cores: one for each thread.
pub(super) fn check_cores(
    cores: &[usize],
    mode: Mode,
    local_share: u32,
    nic: &Nic,
    topology: &Topology,
) -> Result<(), ConfigError> {
    let again = cores.iter().enumerate().find(|(index, core)| cores[..*index].contains(core));
    if let Some((_, &core)) = again {
        return Err(ConfigError::SameCore(core));
    }
    if mode != Mode::RunToCompletion && cores.len() < 2 {
        return Err(ConfigError::FewCores(cores.len()));
    }
    let receives_only = receive_only_cores(mode, local_share);
    if cores.len() - receives_only > MAX_WORKERS {
        return Err(ConfigError::ManyCores { cores: cores.len() - receives_only, most: MAX_WORKERS });
    }
    if let Some(&core) = cores.iter().find(|&&core| topology.node(core).is_none()) {
        return Err(ConfigError::NoSuchCore(core));
    }
    let has_queues = match nic {
        Nic::Interface(_) => true,
        Nic::Loopback => mode == Mode::RunToCompletion,
        Nic::Pcap { .. } => false,
    };
    if cores.len() > 1 && !has_queues {
        return Err(ConfigError::OneQueue(cores.len()));
    }
    Ok(())
}

/// How many cores only receive: 1 or 0, the first one.
fn receive_only_cores(mode: Mode, local_share: u32) -> usize {
    usize::from(mode == Mode::Pipeline && local_share == 0)
}

/// The threads that run handlers: all, but for one that only receives.
///
/// # Errors
/// [`ConfigError::Units`].
pub(super) fn workers(
    cores: &[usize],
    mode: Mode,
    local_share: u32,
    machine: &Machine,
    (topology, units): (&Topology, Option<u32>),
) -> Result<Vec<PlannedWorker>, ConfigError> {
    let receives_only = receive_only_cores(mode, local_share);
    let node = |core| topology.node(core).unwrap_or(0);
    let mut workers = plan(cores.get(receives_only..).unwrap_or_default(), node, machine.clusters, units)?;
    let available = spin_nic::affinity::available();
    for worker in &mut workers {
        worker.runs_on = worker.core.map(|core| topology.on_machine(core, &available));
    }
    Ok(workers)
}

/// The core of this machine that stands for the first one.
pub(super) fn first_core(cores: &[usize], topology: &Topology) -> Option<usize> {
    cores.first().map(|&core| topology.on_machine(core, &spin_nic::affinity::available()))
}

/// The receiving core's share of the messages, in percent of another core's share.
pub(super) fn local_share(percent: Option<u32>) -> Result<u32, ConfigError> {
    let percent = percent.unwrap_or(LOCAL_SHARE);
    if percent <= 100 { Ok(percent) } else { Err(ConfigError::LocalShare(percent)) }
}
