//! The channels from a distributor to its workers.

use std::sync::Arc;

use spin_nic::{Frame, NicError, Wakeup};

use crate::cores::packet_channel::{ChannelQueue, PacketRx, PacketTx, ReturnAction, packet_channel};
use crate::egress::pass_cost::PassCost;
use crate::ingress::matched::Match;
use crate::ingress::rx_batch::BATCH;
use crate::install::{Home, WorkerRange};
use spin_pspin::hpu::memory::saturate;

/// Frames out on each channel beyond the worker's HERs and refills: batches in transit in both directions. Packets that wait in
/// the worker's queues do not count.
const ON_THE_WAY: usize = 2 * BATCH;
/// Packets that may wait on each channel while its worker runs a long handler, if several contexts share it. This is 1.5 times
/// the default receive ring. One of two contexts of equal weight then has room for 0.8 times the ring beside a flood of the
/// other.
const WAITING: usize = 3072;
/// Refills of each channel, enough for some batches of handlers that send copies.
const REFILLS: usize = 256;
/// Refills of each channel if the distributor runs handlers too, since none are sent meanwhile. `REFILLS_IN_ALL` bounds those of
/// all channels together, since the distributor needs some frames too.
const REFILLS_LOCAL_SHARE: usize = 512;
const REFILLS_IN_ALL: usize = 768;
/// A worker's share of the messages, in percent.
const SHARE: usize = 100;

/// The channels of one distributor.
#[derive(Debug)]
pub struct PacketChannels {
    channels: Vec<PacketTx>,
    /// The number of frames that may be out on each channel.
    length: usize,
    /// The local share: messages of the distributor's own worker, in percent of another worker's share.
    own: usize,
    /// Cost of passing a frame to the kernel. The distributor passes the frames of all workers.
    pass_cost: Arc<PassCost>,
}

/// The workers' ends.
pub type Ends = Vec<(PacketRx, ChannelQueue)>;

impl PacketChannels {
    /// Channels to `threads` workers with `hers` HERs each, from the distributor that sleeps on `wakeup`. No frame is longer than `max_frame`.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn new(max_frame: usize, wakeup: &Arc<Wakeup>, threads: usize, hers: u32) -> Result<(Self, Ends), NicError> {
        Self::with(REFILLS, max_frame, wakeup, threads, hers, PassCost::new(saturate(threads as u64)))
    }

    /// Channels from a distributor that runs handlers too, for `local_share` percent of another worker's share of the messages.
    ///
    /// # Errors
    /// As [`PacketChannels::new`].
    pub fn with_local_share(
        max_frame: usize,
        wakeup: &Arc<Wakeup>,
        others: usize,
        hers: u32,
        local_share: u32,
    ) -> Result<(Self, Ends), NicError> {
        let refills = REFILLS_LOCAL_SHARE.min(REFILLS_IN_ALL / others.max(1));
        let pass_cost = PassCost::new(saturate(others as u64 + 1));
        let (channels, ends) = Self::with(refills, max_frame, wakeup, others, hers, pass_cost)?;
        Ok((Self { own: local_share as usize, ..channels }, ends))
    }

    fn with(
        refills: usize,
        max_frame: usize,
        wakeup: &Arc<Wakeup>,
        threads: usize,
        hers: u32,
        pass_cost: PassCost,
    ) -> Result<(Self, Ends), NicError> {
        let (mut channels, mut ends, pass_cost) = (Vec::new(), Vec::new(), Arc::new(pass_cost));
        let length = Self::length(hers, refills);
        for _ in 0..threads {
            let (own, mut arrivals, queue) = packet_channel(length, refills, max_frame, wakeup.clone(), Wakeup::new()?);
            arrivals.pass_cost = pass_cost.clone();
            channels.push(own);
            ends.push((arrivals, queue));
        }
        Ok((Self { channels, length, own: 0, pass_cost }, ends))
    }

    /// Cost of a frame that is passed to the kernel.
    #[must_use]
    pub const fn pass_cost(&self) -> &Arc<PassCost> {
        &self.pass_cost
    }

    /// Maximum number of frames that channels to `threads` workers may have out.
    #[must_use]
    pub const fn most(threads: usize, hers: u32) -> usize {
        threads * Self::length(hers, REFILLS_LOCAL_SHARE)
    }

    const fn length(hers: u32, refills: usize) -> usize {
        hers as usize + ON_THE_WAY + WAITING + refills
    }

    /// The channel to the home worker of a packet's message, one of those that run its context. `None`: the local worker is its home, or no
    /// context matched. Uses other bits of the hash than the choice of the home cluster within a worker.
    #[inline]
    pub fn channel_of(&mut self, found: &Match, homes: &[Home]) -> Option<&mut PacketTx> {
        let WorkerRange { first, count } = homes.get(found.slot()?.0 as usize).unwrap_or(&Home::ANYWHERE).workers;
        // A local worker is the first one, and the channels lead to the others.
        let (local, first) = (usize::from(self.own > 0), usize::from(first));
        let own = if first < local { self.own } else { 0 };
        let first_channel = first.max(local) - local;
        let others = (usize::from(count) + first - first.max(local)).min(self.channels.len() - first_channel);
        let part = ((found.key.hash() >> 16) as usize * (SHARE * others + own)) >> 16;
        self.channels.get_mut(first_channel + part.checked_sub(own)? / SHARE)
    }

    /// The number of packets to receive so that about `own` of them are the local share.
    #[must_use]
    pub fn all_for(&self, own: usize) -> usize {
        own * self.shares() / self.own.max(1)
    }

    /// The sum of all workers' shares, in percent of one.
    const fn shares(&self) -> usize {
        SHARE * self.channels.len() + self.own
    }

    /// Begins a batch. Returns how many packets may be received. A full channel stops reception only while there is one context,
    /// or one with `--full wait`. Otherwise [`PacketTx::admits`] refuses packets beyond their context's quota.
    #[must_use]
    pub(crate) fn begin_batch(&mut self) -> usize {
        let room =
            self.channels.iter_mut().filter_map(PacketTx::begin_batch).map(|credit| credit.saturating_sub(WAITING));
        room.min().unwrap_or(usize::MAX)
    }

    /// Takes returned frames: to recycle, to send, to pass to the kernel. Returns how many.
    pub fn take_back(&mut self, [spent, outgoing, passing]: [&mut Vec<Frame>; 3]) -> usize {
        let mut each = |frame, back| match back {
            ReturnAction::Recycle => spent.push(frame),
            ReturnAction::Transmit => outgoing.push(frame),
            ReturnAction::PassToKernel => passing.push(frame),
        };
        self.channels.iter_mut().map(|channel| channel.take_back(&mut each)).sum()
    }

    /// Sends staged packets and refills.
    pub fn hand_over(&mut self, mut refill: impl FnMut() -> Option<Frame>) {
        self.channels.iter_mut().for_each(|channel| channel.hand_over(&mut refill));
    }

    /// Takes the staged frames back.
    pub fn unstage(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.channels.iter_mut().flat_map(PacketTx::unstage)
    }

    /// The number of frames that are out. Unused refills do not count.
    #[must_use]
    pub fn out(&self) -> usize {
        self.channels.iter().map(PacketTx::out).sum()
    }

    /// Whether there are returned frames.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.channels.iter().any(PacketTx::has_news)
    }

    /// The maximum number of frames that may be returned at once.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.length * self.channels.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use spin_nic::{TxQueue, Wakeup};

    use super::{PacketChannels, PacketTx};
    use crate::egress::pass_cost::PassCost;
    use crate::ingress::matched::Match;
    use crate::install::{Home, WorkerRange};
    use spin_matcher::{Headers, KeySpec};
    use spin_pspin::ids::Slot;

    #[test]
    fn a_packet_goes_to_a_worker_of_its_context() {
        let wakeup = Wakeup::new().expect("an event");
        let key = |number: u32| {
            let frame = [&number.to_le_bytes()[..], &[0; 60]].concat();
            KeySpec::default().extract(&frame, &Headers::parse(&frame))
        };
        for local_share in [0, 75] {
            let local = u16::from(local_share > 0);
            let (mut channels, _) = if local_share == 0 {
                PacketChannels::new(2048, &wakeup, 6, 64).expect("channels")
            } else {
                PacketChannels::with_local_share(2048, &wakeup, 5, 64, local_share).expect("channels")
            };
            let addresses: Vec<*const PacketTx> = channels.channels.iter().map(std::ptr::from_ref).collect();
            for (first, count) in [(0, u16::MAX), (0, 6), (0, 2), (1, 2), (4, 2), (5, 1), (0, 1)] {
                let homes = [Home { workers: WorkerRange { first, count }, by_key: false }];
                let mut got = [0; 6];
                for number in 0..6000 {
                    let found = Match { owner: Slot(0), end_of_message: true, key: key(number) };
                    let channel = channels.channel_of(&found, &homes).map(|channel| std::ptr::from_ref(channel));
                    let worker = channel.map_or(0, |channel| {
                        addresses.iter().position(|&other| other == channel).expect("one of them") as u16 + local
                    });
                    got[usize::from(worker)] += 1;
                }
                let count = count.min(6 - first);
                for worker in 0..6 {
                    let wanted = (first..first + count).contains(&worker);
                    assert_eq!(got[usize::from(worker)] > 0, wanted, "{first}, {count}: {got:?}");
                    // Equal shares, but for the local one.
                    assert!(
                        !wanted || count == 1 || got[usize::from(worker)] > 6000 / usize::from(count) / 2,
                        "{got:?}"
                    );
                }
            }
        }
    }

    /// All workers charge for the time of one distributor. None of them knows the charges of the others.
    #[test]
    fn each_thread_charges_for_all_whose_frames_are_handed_on_by_one() {
        let wakeup = Wakeup::new().expect("an event");
        let pipeline = PacketChannels::new(2048, &wakeup, 3, 64).expect("channels");
        let spread = PacketChannels::with_local_share(2048, &wakeup, 3, 64, 75).expect("channels");
        for ((channels, ends), sharing) in [(pipeline, 3), (spread, 4)] {
            assert_eq!(channels.pass_cost().estimate(), PassCost::new(1).estimate() * sharing);
            assert!(ends.iter().all(|(arrivals, _)| Arc::ptr_eq(&arrivals.pass_cost, channels.pass_cost())));
            // The charges follow the distributor's measurements.
            let now = std::cell::Cell::new(Duration::ZERO);
            let (mut nic, _far) = spin_nic::memory::pair(4).expect("a pair");
            let mut frames = Vec::from_iter(nic.allocate());
            channels.pass_cost().pass(&mut nic, &mut frames, || now.replace(now.get() + Duration::from_micros(90)));
            assert_eq!(
                ends[0].0.pass_cost.estimate(),
                (PassCost::new(1).estimate() * 7 / 8 + Duration::from_micros(90) / 8) * sharing
            );
        }
    }
}
