//! Pipeline mode's first stage: a thread that receives, matches, and hands frames over to the threads of their messages' home
//! clusters; and takes them back, to the NIC.

use std::sync::Arc;
use std::time::Duration;

use spin_abi::counters::Counter;
use spin_nic::{Bell, Frame, NicError, Queue};

use crate::context::Slot;
use crate::counts::Counts;
use crate::inbound::{BATCH, Found, Inbound, Routes};
use crate::lanes::{Ends, Lanes};
use crate::pipeline::TRANSMIT_BACKLOG;
use crate::statistics::Statistics;

/// The receiving thread's part.
pub struct Receiver {
    nic: Box<dyn Queue>,
    routes: Routes,
    lanes: Lanes,
    bell: Arc<Bell>,
    inbound: Inbound,
    spent: Vec<Frame>,
    transmit: Vec<Frame>,
    passing: Vec<Frame>,
    counts: Counts,
    /// Nothing is taken from the NIC any more.
    closed: bool,
    /// Nothing could be taken when that was asked last.
    stalled: bool,
}

impl Receiver {
    /// Feeds `threads` threads, which have room for so many HERs each. Returns also what each of them needs.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn new(nic: Box<dyn Queue>, threads: usize, hers: u32) -> Result<(Self, Ends), NicError> {
        let bell = Bell::new()?;
        let (lanes, ends) = Lanes::new(nic.max_frame(), &bell, threads, hers)?;
        let most = lanes.size();
        let receiver = Self {
            nic,
            routes: Routes::default(),
            lanes,
            bell,
            inbound: Inbound::default(),
            spent: Vec::with_capacity(most),
            transmit: Vec::with_capacity(most),
            passing: Vec::with_capacity(BATCH),
            counts: Counts::default(),
            closed: false,
            stalled: false,
        };
        Ok((receiver, ends))
    }

    /// One turn: what came back goes to the NIC, what arrived to its lane. `clock` is read when there are frames for the kernel. Returns
    /// how many frames there were of both.
    ///
    /// # Errors
    /// When the NIC is of no use any more.
    pub fn turn(&mut self, clock: impl Fn() -> Duration) -> Result<usize, NicError> {
        let returned = self.take_back();
        let arrived = self.receive();
        self.lanes.hand_over(|| self.nic.allocate());
        if !self.passing.is_empty() {
            self.lanes.toll().pass(&mut *self.nic, &mut self.passing, clock);
        }
        self.nic.send(&mut self.transmit);
        self.nic.flush()?;
        Ok(arrived + returned)
    }

    fn take_back(&mut self) -> usize {
        let Self { nic, lanes, spent, transmit, passing, .. } = self;
        let returned = lanes.take_back([spent, transmit, passing]);
        nic.recycle_all(spent);
        returned
    }

    /// Receives a batch, if every lane could take all of it.
    fn receive(&mut self) -> usize {
        if self.closed {
            return 0;
        }
        let room = self.lanes.credit().min(BATCH);
        let stalls = room == 0 || self.transmit.len() >= TRANSMIT_BACKLOG;
        // This thread has nothing else to do, and asks on and on.
        self.counts.add(Counter::HerStalls, u64::from(stalls && !self.stalled));
        self.stalled = stalls;
        if stalls {
            return 0;
        }
        let arrived = self.inbound.receive(&mut *self.nic, &self.routes, room, &mut self.counts);
        let Self { nic, lanes, inbound, counts, .. } = self;
        while let Some((frame, found)) = inbound.take() {
            match lanes.lane_of(found) {
                Some(lane) => lane.stage(frame, found),
                None => {
                    counts.add(Counter::DropUnmatched, 1);
                    nic.recycle(frame);
                }
            }
        }
        arrived
    }

    /// Where frames go from here on, those too that were not handed over yet. The NIC is to be told apart: see
    /// [`Queue::steering`].
    pub fn follow(&mut self, routes: Routes) {
        self.routes = routes;
        let staged: Vec<_> = self.lanes.unstage().collect();
        let mut found = Found::default();
        for frame in staged {
            let owner = self.routes.find(&frame, &mut found.key);
            (found.owner, found.end_of_message) = owner.unwrap_or((Slot::NOBODY, false));
            match self.lanes.lane_of(&found) {
                Some(lane) => lane.stage(frame, &found),
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
        self.lanes.out() + self.unsent()
    }

    /// Frames that have not left.
    pub(crate) fn unsent(&self) -> usize {
        self.transmit.len() + self.nic.pending()
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
        self.lanes.has_news()
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
