//! Pipeline mode's first stage: a thread that receives, matches, and hands frames over to the threads of their messages' home
//! clusters, of which it may be one itself; and takes them back, to the NIC.

use std::sync::Arc;

use spin_abi::counters::Counter;
use spin_nic::{Bell, Frame, NicError, Queue};

use crate::counts::Counts;
use crate::handover::{Arrivals, Back, Lane, LaneQueue, lane};
use crate::inbound::{BATCH, Found, Inbound, Routes};
use crate::pipeline::TRANSMIT_BACKLOG;
use crate::statistics::Statistics;

/// Frames on each lane at a time: enough for batches on their way in both directions, few enough to stay in the caches.
const LANE: usize = 1024;

/// The receiving thread's part.
pub struct Receiver {
    nic: Box<dyn Queue>,
    routes: Routes,
    lanes: Vec<Lane>,
    /// Quarters of a share that the first lane has less than the others.
    less: usize,
    bell: Arc<Bell>,
    inbound: Inbound,
    spent: Vec<Frame>,
    transmit: Vec<Frame>,
    passing: Vec<Frame>,
    counts: Counts,
    /// Nothing is taken from the NIC any more.
    closed: bool,
}

impl Receiver {
    /// Feeds `threads` threads. Returns also what each of them needs.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn new(nic: Box<dyn Queue>, threads: usize) -> Result<(Self, Vec<(Arrivals, LaneQueue)>), NicError> {
        let bells = std::iter::repeat_with(Bell::new).take(threads).collect::<Result<_, _>>()?;
        Ok(Self::of(nic, Bell::new()?, bells, 0))
    }

    /// Feeds the thread that it is on, and `others` others. Returns also what each of them needs, its own thread first, which has a quarter
    /// less of the messages: it receives, too.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn running(nic: Box<dyn Queue>, others: usize) -> Result<(Self, Vec<(Arrivals, LaneQueue)>), NicError> {
        let own = Bell::new()?;
        let others = std::iter::repeat_with(Bell::new).take(others);
        let bells = std::iter::once(Ok(own.clone())).chain(others).collect::<Result<_, _>>()?;
        Ok(Self::of(nic, own, bells, 1))
    }

    /// Feeds threads with these bells from a thread with this `bell`.
    fn of(
        nic: Box<dyn Queue>,
        bell: Arc<Bell>,
        bells: Vec<Arc<Bell>>,
        less: usize,
    ) -> (Self, Vec<(Arrivals, LaneQueue)>) {
        let threads = bells.len();
        let (mut lanes, mut ends) = (Vec::new(), Vec::new());
        for cluster in bells {
            let (own, arrivals, queue) = lane(LANE, nic.max_frame(), bell.clone(), cluster);
            lanes.push(own);
            ends.push((arrivals, queue));
        }
        let receiver = Self {
            nic,
            routes: Routes::default(),
            lanes,
            less,
            bell,
            inbound: Inbound::default(),
            spent: Vec::with_capacity(LANE * threads),
            transmit: Vec::with_capacity(LANE * threads),
            passing: Vec::with_capacity(BATCH),
            counts: Counts::default(),
            closed: false,
        };
        (receiver, ends)
    }

    /// One turn: what came back goes to the NIC, what arrived to its lane. Returns how many frames there were of both.
    ///
    /// # Errors
    /// When the NIC is of no use any more.
    pub fn turn(&mut self) -> Result<usize, NicError> {
        let returned = self.take_back();
        let arrived = self.receive();
        for lane in &mut self.lanes {
            lane.hand_over(|| self.nic.allocate());
        }
        if !self.passing.is_empty() {
            self.nic.pass(&mut self.passing);
        }
        self.nic.send(&mut self.transmit);
        self.nic.flush()?;
        Ok(arrived + returned)
    }

    fn take_back(&mut self) -> usize {
        let Self { nic, lanes, spent, transmit, passing, .. } = self;
        let mut returned = 0;
        for lane in lanes {
            returned += lane.take_back(|frame, back| match back {
                Back::Spent => spent.push(frame),
                Back::Outgoing => transmit.push(frame),
                Back::Passing => passing.push(frame),
            });
        }
        nic.recycle_all(spent);
        returned
    }

    /// Receives a batch, if every lane could take all of it.
    fn receive(&mut self) -> usize {
        let room = self.lanes.iter().map(Lane::credit).min().unwrap_or(0).min(BATCH);
        if room == 0 || self.closed || self.transmit.len() >= TRANSMIT_BACKLOG {
            self.counts.add(Counter::HerStalls, 1);
            return 0;
        }
        let arrived = self.inbound.receive(&mut *self.nic, &self.routes, room, &mut self.counts);
        let Self { nic, lanes, less, inbound, counts, .. } = self;
        while let Some((frame, found)) = inbound.take() {
            if found.slot().is_none() {
                counts.add(Counter::DropUnmatched, 1);
                nic.recycle(frame);
                continue;
            }
            lane_of(lanes, *less, found).stage(frame, found);
        }
        arrived
    }

    /// Where frames go from here on, those too that were not handed over yet. The NIC is to be told apart: see
    /// [`Queue::steering`].
    pub fn follow(&mut self, routes: Routes) {
        self.routes = routes;
        let staged: Vec<_> = self.lanes.iter_mut().flat_map(Lane::unstage).collect();
        let mut found = Found::default();
        for frame in staged {
            match self.routes.find(&frame, &mut found.key) {
                Some((owner, end_of_message)) => {
                    (found.owner, found.end_of_message) = (owner, end_of_message);
                    lane_of(&mut self.lanes, self.less, &found).stage(frame, &found);
                }
                None => {
                    self.counts.add(Counter::DropRemoved, 1);
                    self.nic.recycle(frame);
                }
            }
        }
    }

    /// Takes nothing from the NIC any more.
    pub const fn close(&mut self) {
        self.closed = true;
    }

    /// Frames that are on lanes, or that have not left.
    #[must_use]
    pub fn backlog(&self) -> usize {
        let out: usize = self.lanes.iter().map(Lane::out).sum();
        out + self.transmit.len() + self.nic.pending()
    }

    /// Frames received so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.counts.get(Counter::RxPackets)
    }

    /// What rings when frames came back.
    #[must_use]
    pub const fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Whether frames came back.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.lanes.iter().any(Lane::has_news)
    }

    /// Whether no frame will ever come any more, and none is out.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.nic.exhausted() && self.backlog() == 0
    }

    /// The NIC.
    pub fn nic(&mut self) -> &mut dyn Queue {
        &mut *self.nic
    }

    /// The statistics block so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics { counts: self.counts.clone(), ..Statistics::default() }
    }
}

/// The lane to the thread of a message: by other bits of the hash than the home cluster among those of a thread. All have four quarters
/// of a share, but for what the first one has `less`.
#[inline]
fn lane_of<'l>(lanes: &'l mut [Lane], less: usize, found: &Found) -> &'l mut Lane {
    let quarter = ((found.key.hash() >> 16) as usize * (4 * lanes.len() - less)) >> 16;
    &mut lanes[(quarter + less) / 4]
}
