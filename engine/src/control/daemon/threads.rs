//! Starts the engine's threads for a configuration.

use spin_nic::Queue;

use super::error::DaemonError;
use crate::control::config::Config;
use crate::cores::packet_channels::Ends;
use crate::cores::receive_only::ReceiveOnly;
use crate::cores::{ClusterThread, PollThread, Receiving, SharedConfig, ThreadError, WorkerLinks};
use crate::settings::Mode;
use spin_pspin::hpu::memory::saturate;

/// Starts a thread for each queue of the NIC, with its share of the clusters. In pipeline mode, starts threads for the clusters; the
/// first of them, or a further thread, has the NIC.
///
/// # Errors
/// See [`ThreadError`].
pub fn start(
    config: &Config,
    shared: &SharedConfig,
    nics: Vec<Box<dyn Queue>>,
) -> Result<(Vec<ClusterThread>, Receiving), DaemonError> {
    if config.mode == Mode::RunToCompletion {
        let links = nics.into_iter().map(WorkerLinks::from_nic).collect::<Result<_, _>>()?;
        return Ok((start_clusters(config, shared, &config.cores, links)?, Receiving::Each));
    }
    let nic = nics.into_iter().next().ok_or_else(no_queue)?;
    let (own, others) = config.cores.split_first().map_or((None, &[][..]), |(own, others)| (Some(*own), others));
    let links_of = |ends: Ends| ends.into_iter().map(|(arrivals, queue)| WorkerLinks::from_channel(arrivals, queue));
    if config.local_share > 0 {
        let (first, ends) = WorkerLinks::with_local_share(nic, others.len(), config.sizes.hers, config.local_share)?;
        let links = std::iter::once(first).chain(links_of(ends)).collect();
        return Ok((start_clusters(config, shared, &config.cores, links)?, Receiving::First));
    }
    let (receiver, ends) = ReceiveOnly::new(nic, others.len(), config.sizes.hers)?;
    let clusters = start_clusters(config, shared, others, links_of(ends).collect())?;
    let wakeup = receiver.wakeup().clone();
    let receiver = PollThread::start(shared.clone(), "receiver".to_owned(), own, wakeup, move || Ok(receiver))?;
    Ok((clusters, Receiving::Apart(receiver)))
}

/// The error of a NIC without queues.
pub fn no_queue() -> ThreadError {
    ThreadError::Failed("there is no queue to receive from".to_owned())
}

/// Starts threads with these links and a share of the clusters each, on these cores.
fn start_clusters(
    config: &Config,
    shared: &SharedConfig,
    cores: &[usize],
    mut links: Vec<WorkerLinks>,
) -> Result<Vec<ClusterThread>, ThreadError> {
    WorkerLinks::connect(&mut links);
    let (clusters, threads) = (config.machine.clusters, saturate(links.len() as u64));
    let share = |thread: u32| clusters * thread / threads;
    let start = |(thread, links): (u32, WorkerLinks)| {
        let clusters = share(thread)..share(thread + 1);
        let core = cores.get(thread as usize).copied();
        let worker = PollThread::start_engine(shared.clone(), links, clusters.clone(), core)?;
        Ok(ClusterThread { clusters, worker })
    };
    (0..threads).zip(links).map(start).collect()
}
