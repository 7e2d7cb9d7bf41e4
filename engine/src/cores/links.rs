//! Links of a worker's thread: the source of its packets, and the threads that it shares tasks with.

use std::sync::Arc;

use spin_nic::{NicError, Queue, Wakeup};

use super::error::ThreadError;
use super::thread::{PollThread, SharedConfig};
use crate::cores::hand_over::HandOver;
use crate::cores::helpers::Helpers;
use crate::cores::packet_channel::{ChannelQueue, PacketRx};
use crate::cores::packet_channels::{Ends, PacketChannels};
use crate::cores::units::{PlannedWorker, UnitPart};
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
    /// The threads that it hands packets to, and takes theirs from.
    hand_over: Option<HandOver>,
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
        Self { wakeup, nic, arrivals: None, channels: None, helpers: None, hand_over: None }
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

    /// Connects the threads of workers: those of a unit share tasks, and those with NIC queues hand packets to each other.
    pub fn connect(links: &mut [Self], workers: &[PlannedWorker]) {
        let mut from = 0;
        for unit in workers.chunk_by(|one, other| one.part.unit == other.part.unit) {
            let of = &mut links[from..from + unit.len()];
            let wakeups: Vec<_> = of.iter().map(|link| link.wakeup.clone()).collect();
            if wakeups.len() > 1 {
                of.iter_mut().zip(Helpers::of(&wakeups)).for_each(|(link, helpers)| link.helpers = Some(helpers));
            }
            from += unit.len();
        }
        let has_queue = |link: &Self| link.arrivals.is_none() && link.channels.is_none();
        if links.len() > 1 && links.iter().all(has_queue) {
            let wakeups: Vec<_> = links.iter().map(|link| link.wakeup.clone()).collect();
            links.iter_mut().zip(HandOver::of(&wakeups)).for_each(|(link, hand_over)| link.hand_over = Some(hand_over));
        }
    }

    /// A worker with this part of the units and these links.
    fn engine(self, shared: SharedConfig, part: UnitPart) -> Result<Worker, String> {
        let Self { nic, arrivals, channels, helpers, hand_over, .. } = self;
        let engine = Worker::new(shared.loader, nic, shared.sizes, shared.schedule, part.clusters);
        let mut engine = engine.map_err(|error| error.to_string())?.in_unit(part.worker, part.unit);
        if let Some(hand_over) = hand_over {
            engine = engine.with_hand_over(hand_over);
        }
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
    /// Starts a thread that runs the handlers of a part of the units, on a core of its own if one is given: see [`PollThread::start`].
    ///
    /// # Errors
    /// See [`PollThread::start`].
    pub fn start_engine(
        shared: SharedConfig,
        links: WorkerLinks,
        part: impl Into<UnitPart>,
        core: Option<usize>,
    ) -> Result<Self, ThreadError> {
        let part = part.into();
        let unit = if part.unit == 0 { String::new() } else { format!("u{}-", part.unit) };
        let name = format!("{unit}cluster-{}", part.clusters.start);
        let (wakeup, with) = (links.wakeup.clone(), shared.clone());
        Self::start(shared, name, core, wakeup, move || links.engine(with, part))
    }
}
