//! Links of a worker's thread: the source of its packets, and the threads that it shares tasks with.

use std::ops::Range;
use std::sync::Arc;

use spin_nic::{NicError, Queue, Wakeup};

use super::error::ThreadError;
use super::thread::{PollThread, SharedConfig};
use crate::cores::helpers::Helpers;
use crate::cores::packet_channel::{ChannelQueue, PacketRx};
use crate::cores::packet_channels::{Ends, PacketChannels};
use crate::worker::Worker;

/// Links of a worker's thread to its NIC queue and to other threads.
pub struct WorkerLinks {
    /// The wake-up that the thread sleeps on.
    wakeup: Arc<Wakeup>,
    nic: Box<dyn Queue>,
    /// The packet channel from a distributor, if packets come from there and not from the NIC.
    arrivals: Option<PacketRx>,
    /// The channels to other threads, if this thread receives for them.
    channels: Option<PacketChannels>,
    /// The threads that it shares tasks with.
    helpers: Option<Helpers>,
}

impl WorkerLinks {
    /// Links of a thread with a NIC queue of its own.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn from_nic(nic: Box<dyn Queue>) -> Result<Self, NicError> {
        Ok(Self::with(Wakeup::new()?, nic))
    }

    /// Links of a thread that gets its packets from a distributor.
    #[must_use]
    pub fn from_channel(arrivals: PacketRx, queue: ChannelQueue) -> Self {
        let arrivals_bell = arrivals.wakeup().clone();
        Self { arrivals: Some(arrivals), ..Self::with(arrivals_bell, Box::new(queue)) }
    }

    const fn with(wakeup: Arc<Wakeup>, nic: Box<dyn Queue>) -> Self {
        Self { wakeup, nic, arrivals: None, channels: None, helpers: None }
    }

    /// Links of a thread that has the NIC queue and receives for `others` too. Each of these has room for `hers` HERs. The thread
    /// keeps `local_share` percent of another thread's share of the messages. Also returns the channel ends for the others.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn with_local_share(
        nic: Box<dyn Queue>,
        others: usize,
        hers: u32,
        local_share: u32,
    ) -> Result<(Self, Ends), NicError> {
        let own = Self::from_nic(nic)?;
        let (channels, ends) =
            PacketChannels::with_local_share(own.nic.max_frame(), &own.wakeup, others, hers, local_share)?;
        Ok((Self { channels: Some(channels), ..own }, ends))
    }

    /// Connects threads so that they share tasks.
    pub fn connect(links: &mut [Self]) {
        let wakeups: Vec<_> = links.iter().map(|link| link.wakeup.clone()).collect();
        if wakeups.len() > 1 {
            links.iter_mut().zip(Helpers::of(&wakeups)).for_each(|(link, helpers)| link.helpers = Some(helpers));
        }
    }

    /// A worker of `clusters` with these links.
    fn engine(self, shared: SharedConfig, clusters: Range<u32>) -> Result<Worker, String> {
        let Self { nic, arrivals, channels, helpers, .. } = self;
        let engine = Worker::new(shared.loader, nic, shared.sizes, shared.schedule, clusters);
        let mut engine = engine.map_err(|error| error.to_string())?;
        if let Some(arrivals) = arrivals {
            engine = engine.fed_by(arrivals);
        }
        if let Some(channels) = channels {
            engine = engine.with_local_share(channels);
        }
        if let Some(helpers) = helpers {
            engine = engine.with_helpers(helpers);
        }
        Ok(engine)
    }
}

impl PollThread<Worker> {
    /// Starts a thread that runs the handlers of `clusters`: see [`PollThread::start`].
    ///
    /// # Errors
    /// See [`PollThread::start`].
    pub fn start_engine(
        shared: SharedConfig,
        links: WorkerLinks,
        clusters: Range<u32>,
        core: Option<usize>,
    ) -> Result<Self, ThreadError> {
        let name = format!("cluster-{}", clusters.start);
        let (wakeup, with) = (links.wakeup.clone(), shared.clone());
        Self::start(shared, name, core, wakeup, move || links.engine(with, clusters))
    }
}
