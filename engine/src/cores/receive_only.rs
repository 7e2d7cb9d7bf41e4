//! A distributor without a local share, on a thread that runs no handlers. It hands all packets over to workers, and takes the
//! frames back.

use std::sync::Arc;
use std::time::Duration;

use spin_abi::counters::Counter;
use spin_nic::{Frame, NicError, Queue, Wakeup};

use crate::cores::distributor::Distributor;
use crate::cores::packet_channels::{Ends, PacketChannels};
use crate::egress::TRANSMIT_BACKLOG;
use crate::egress::pass_cost::MAX_PASSING;
use crate::ingress::matched::Match;
use crate::ingress::rx_batch::{BATCH, RoutingTable, RxBatch};
use crate::telemetry::statistics::Statistics;
use spin_pspin::counts::Counts;

/// The state of a thread that only receives.
pub struct ReceiveOnly {
    nic: Box<dyn Queue>,
    distributor: Distributor,
    wakeup: Arc<Wakeup>,
    inbound: RxBatch,
    spent: Vec<Frame>,
    transmit: Vec<Frame>,
    /// Frames for the kernel, in order.
    passing: Vec<Frame>,
    counts: Counts,
    /// Whether reception has ended.
    closed: bool,
    /// Whether the last attempt to receive found no room.
    stalled: bool,
}

impl ReceiveOnly {
    /// A distributor for `threads` workers with `hers` HERs each. Also returns the channel ends of the workers.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn new(nic: Box<dyn Queue>, threads: usize, hers: u32) -> Result<(Self, Ends), NicError> {
        let wakeup = Wakeup::new()?;
        let (channels, ends) = PacketChannels::new(nic.max_frame(), &wakeup, threads, hers)?;
        let most = channels.size();
        let receiver = Self {
            nic,
            distributor: Distributor::new(channels),
            wakeup,
            inbound: RxBatch::default(),
            spent: Vec::with_capacity(most),
            transmit: Vec::with_capacity(most),
            passing: Vec::with_capacity(MAX_PASSING + most),
            counts: Counts::default(),
            closed: false,
            stalled: false,
        };
        Ok((receiver, ends))
    }

    /// Runs one poll: returned frames go to the NIC or the kernel, and received ones to their channels. `clock` is read only when
    /// there are frames for the kernel. Returns the number of frames.
    ///
    /// # Errors
    /// When the NIC is no longer usable.
    pub fn poll(&mut self, clock: impl Fn() -> Duration) -> Result<usize, NicError> {
        let returned = self.take_back();
        let arrived = self.receive();
        self.distributor.channels.hand_over(|| self.nic.allocate());
        let passed = if self.passing.is_empty() { 0 } else { self.pass(clock) };
        self.nic.send(&mut self.transmit);
        self.nic.flush()?;
        Ok(arrived + returned + passed)
    }

    /// Passes some frames to the kernel, and drops those beyond the bound of waiting ones. Returns the number of both.
    #[cold]
    fn pass(&mut self, clock: impl Fn() -> Duration) -> usize {
        let Self { nic, distributor, passing, counts, .. } = self;
        let waiting = passing.len();
        counts.add(Counter::DropShare, distributor.pass_bounded(&mut **nic, passing, clock));
        waiting - passing.len()
    }

    fn take_back(&mut self) -> usize {
        let Self { nic, distributor, spent, transmit, passing, .. } = self;
        let returned = distributor.channels.take_back([spent, transmit, passing]);
        nic.recycle_all(spent);
        returned
    }

    /// Receives a batch.
    fn receive(&mut self) -> usize {
        if self.closed {
            return 0;
        }
        let room = self.distributor.channels.begin_batch().min(BATCH);
        let stalls = room == 0 || self.transmit.len() >= TRANSMIT_BACKLOG;
        // Counted once per stall: this thread has nothing else to do, and retries in each poll.
        self.counts.add(Counter::HerStalls, u64::from(stalls && !self.stalled));
        self.stalled = stalls;
        if stalls {
            return 0;
        }
        let Self { nic, distributor, inbound, spent, counts, .. } = self;
        let arrived = distributor.receive(&mut **nic, inbound, room, counts);
        distributor.distribute(
            inbound,
            spent,
            |_| (),
            |_, frame, _| {
                counts.add(Counter::DropUnmatched, 1);
                Some(frame)
            },
        );
        nic.recycle_all(spent);
        arrived
    }

    /// Sets the routes, also of frames that are staged and not handed over. The NIC's own rules are set separately: see
    /// [`Queue::steering`].
    pub fn set_routes(&mut self, routes: RoutingTable) {
        let Self { nic, distributor, counts, .. } = self;
        distributor.routes = routes;
        let staged: Vec<_> = distributor.channels.unstage().collect();
        for frame in staged {
            let found =
                distributor.routes.find(&frame, |owner, key, end_of_message| Match { owner, end_of_message, key });
            let found = found.unwrap_or_default();
            match distributor.channels.channel_of(&found, &distributor.routes.homes) {
                Some(channel) => channel.stage(frame, &found),
                None => {
                    counts.add(Counter::DropRemoved, 1);
                    nic.recycle(frame);
                }
            }
        }
    }

    /// Ends reception from the NIC.
    pub const fn close(&mut self) {
        self.closed = true;
    }

    /// The number of frames that are on channels, or that have not left.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.distributor.channels.out() + self.passing.len() + self.unsent()
    }

    /// The number of frames that have not left.
    pub(crate) fn unsent(&self) -> usize {
        self.transmit.len() + self.nic.pending()
    }

    /// The number of frames received.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.counts.get(Counter::RxPackets)
    }

    /// The wake-up that is notified when frames were returned.
    #[must_use]
    pub const fn wakeup(&self) -> &Arc<Wakeup> {
        &self.wakeup
    }

    /// Whether there are returned frames.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.distributor.channels.has_news()
    }

    /// Whether no more frames will arrive, and none is out.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.nic.exhausted() && self.backlog() == 0
    }

    /// The NIC.
    pub fn nic(&mut self) -> &mut dyn Queue {
        &mut *self.nic
    }

    /// The current statistics block.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics { counts: self.counts.clone(), ..Statistics::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spin_abi::counters::Counter;
    use spin_matcher::{Table, TableEntry};
    use spin_nic::memory::{MemoryQueue, pair};
    use spin_nic::{Queue, TxQueue};

    use super::ReceiveOnly;
    use crate::cores::packet_channel::{ChannelQueue, PacketRx};
    use crate::egress::pass_cost::{MAX_PASSED, MAX_PASSING};
    use crate::ingress::rx_batch::{BATCH, RoutingTable};
    use spin_pspin::ids::Slot;

    /// The number of HERs: all frames may be out.
    const HERS: u32 = 4096;

    /// A distributor that hands all frames to one channel.
    fn receiver() -> (ReceiveOnly, MemoryQueue, PacketRx, ChannelQueue) {
        let (near, far) = pair(4096).expect("a pair");
        let (mut receiver, mut ends) = ReceiveOnly::new(Box::new(near), 1, HERS).expect("a channel");
        let entry = TableEntry { rules: "any".parse().expect("a rule"), ..TableEntry::default() };
        receiver.set_routes(RoutingTable {
            table: Table::new(&[entry]).expect("fits").into(),
            slots: vec![Slot(0)],
            ..RoutingTable::default()
        });
        let (arrivals, queue) = ends.remove(0);
        (receiver, far, arrivals, queue)
    }

    fn arrive(far: &mut MemoryQueue, count: usize) {
        let mut batch: Vec<_> = (0..count).map(|_| far.allocate().expect("there are as many")).collect();
        batch.iter_mut().for_each(|frame| frame.fill(&[7; 60]).expect("short"));
        assert_eq!(far.send(&mut batch), count);
        far.flush().expect("memory does not fail");
    }

    /// Runs a poll. The worker then returns all its frames for the kernel. Returns the number of frames that the poll handled.
    fn poll(receiver: &mut ReceiveOnly, arrivals: &mut PacketRx, queue: &mut ChannelQueue) -> usize {
        let count = receiver.poll(|| Duration::ZERO).expect("memory does not fail");
        let mut frames = Vec::new();
        arrivals.take(arrivals.len(), |frame| frames.push(frame), |_| {});
        queue.pass_to_kernel(&mut frames);
        queue.flush().expect("a channel does not fail");
        count
    }

    #[test]
    fn packets_are_received_while_others_wait_for_the_kernel() {
        let (mut receiver, mut far, mut arrivals, mut queue) = receiver();
        arrive(&mut far, 1000);
        let polls = 1000_usize.div_ceil(BATCH) + 1;
        (0..polls).for_each(|_| _ = poll(&mut receiver, &mut arrivals, &mut queue));
        assert_eq!(receiver.received(), 1000);
        assert!(receiver.passing.len() >= 1000 - polls * MAX_PASSED, "{}", receiver.passing.len());
        // The rest is passed too, although nothing else arrives.
        while receiver.backlog() > 0 {
            assert!(poll(&mut receiver, &mut arrivals, &mut queue) > 0, "it does not sleep before");
        }
        assert_eq!(receiver.counts.get(Counter::DropShare), 0);
    }

    #[test]
    fn what_waits_for_the_kernel_leaves_the_nic_buffers() {
        let (mut receiver, mut far, mut arrivals, mut queue) = receiver();
        arrive(&mut far, 3000);
        while receiver.received() < 3000 {
            poll(&mut receiver, &mut arrivals, &mut queue);
            assert!(receiver.passing.len() <= MAX_PASSING);
        }
        while receiver.backlog() > 0 {
            poll(&mut receiver, &mut arrivals, &mut queue);
        }
        let dropped = receiver.counts.get(Counter::DropShare);
        assert!((1000..2000).contains(&dropped), "{dropped}");
    }
}
