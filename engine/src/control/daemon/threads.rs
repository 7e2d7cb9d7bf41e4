//! Starts the engine's threads for a configuration.

use spin_nic::Queue;

use super::error::DaemonError;
use crate::control::config::Config;
use crate::cores::packet_channels::Ends;
use crate::cores::receive_only::ReceiveOnly;
use crate::cores::units::PlannedWorker;
use crate::cores::{ClusterThread, PollThread, Receiving, SharedConfig, ThreadError, WorkerLinks};
use crate::settings::Mode;

/// Starts a thread for each queue of the NIC, with its part of the units. In pipeline mode, starts the threads of the units; the first of
/// them, or a further thread, has the NIC.
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
        return Ok((start_workers(config, shared, links)?, Receiving::Each));
    }
    let nic = nics.into_iter().next().ok_or_else(no_queue)?;
    let others = config.cores.len().saturating_sub(1);
    let links_of = |ends: Ends| ends.into_iter().map(|(arrivals, queue)| WorkerLinks::from_channel(arrivals, queue));
    if config.local_share > 0 {
        let (first, ends) = WorkerLinks::with_local_share(nic, others, config.sizes.hers, config.local_share)?;
        let links = std::iter::once(first).chain(links_of(ends)).collect();
        return Ok((start_workers(config, shared, links)?, Receiving::First));
    }
    let (receiver, ends) = ReceiveOnly::new(nic, others, config.sizes.hers)?;
    let workers = start_workers(config, shared, links_of(ends).collect())?;
    let wakeup = receiver.wakeup().clone();
    let receiver =
        PollThread::start(shared.clone(), "receiver".to_owned(), config.first_core, wakeup, move || Ok(receiver))?;
    Ok((workers, Receiving::Apart(receiver)))
}

/// The error of a NIC without queues.
pub fn no_queue() -> ThreadError {
    ThreadError::Failed("there is no queue to receive from".to_owned())
}

/// Starts the workers' threads with these links.
fn start_workers(
    config: &Config,
    shared: &SharedConfig,
    mut links: Vec<WorkerLinks>,
) -> Result<Vec<ClusterThread>, ThreadError> {
    WorkerLinks::connect(&mut links, &config.workers);
    let start = |(planned, links): (&PlannedWorker, WorkerLinks)| {
        let worker = PollThread::start_engine(shared.clone(), links, planned.part.clone(), planned.runs_on)?;
        Ok(ClusterThread { planned: planned.clone(), worker })
    };
    config.workers.iter().zip(links).map(start).collect()
}
