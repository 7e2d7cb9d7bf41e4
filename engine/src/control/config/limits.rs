//! Checks of sizes, limits and cores.

use spin_abi::map::Machine;

use super::error::ConfigError;
use super::nic::Nic;
use crate::settings::{Limits, MAX_CONTEXTS, Mode, Sizes};

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

/// Checks the engine's cores: one for each thread, and at least one cluster for each thread that runs handlers.
pub(super) fn check_cores(
    cores: &[usize],
    mode: Mode,
    local_share: u32,
    nic: &Nic,
    machine: &Machine,
) -> Result<(), ConfigError> {
    let again = cores.iter().enumerate().find(|(index, core)| cores[..*index].contains(core));
    if let Some((_, &core)) = again {
        return Err(ConfigError::SameCore(core));
    }
    let receiving = usize::from(mode == Mode::Pipeline && local_share == 0);
    if mode != Mode::RunToCompletion && cores.len() < 2 {
        return Err(ConfigError::FewCores(cores.len()));
    }
    if cores.len() - receiving.min(cores.len()) > machine.clusters as usize {
        return Err(ConfigError::ManyCores { cores: cores.len() - receiving, clusters: machine.clusters });
    }
    if cores.len() > 1 && !matches!(nic, Nic::Interface(_)) {
        return Err(ConfigError::OneQueue(cores.len()));
    }
    Ok(())
}

/// The receiving core's share of the messages, in percent of another core's share.
pub(super) fn local_share(percent: Option<u32>) -> Result<u32, ConfigError> {
    let percent = percent.unwrap_or(LOCAL_SHARE);
    if percent <= 100 { Ok(percent) } else { Err(ConfigError::LocalShare(percent)) }
}
