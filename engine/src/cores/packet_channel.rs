//! The channel between the distributor, which receives and matches packets, and one worker, which runs their handlers.
//!
//! ```text
//! distributor --packets--> worker            frames, and what they matched
//!             --refills--> its ChannelQueue  empty frames, for copies
//!             <--returns-- its ChannelQueue  each frame again, and what to do with it
//! ```
//! Frames go through a [`spin_sync::CreditTx`], their metadata through [`packet_meta`](crate::cores::packet_meta).

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use spin_nic::frame::TxClosed;
use spin_nic::prefetch_to_write;
use spin_nic::steering::AcceptAll;
use spin_nic::{FlowSteering, Frame, NicError, Queue, TxQueue, Wakeup};
use spin_sync::{SidebandRx, SidebandTx, sideband};

use crate::cores::channel_quota::{DropReader, Drops, QuotaTable, TransitCount, UNCOUNTED};
use crate::cores::packet_meta::{MetaRx, MetaTx, packet_meta};
use crate::egress::pass_cost::PassCost;
use crate::ingress::matched::Match;
use crate::sched::weights::Part;
use spin_pspin::ids::Slot;

/// Minimum number of refills. One task may need this many. With fewer left, the next task waits for more.
const MIN_REFILLS: usize = 16;

/// The action of the distributor on a returned frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnAction {
    /// Receive into it again.
    Recycle,
    /// Send it.
    Transmit,
    /// Pass it to the kernel's network stack.
    PassToKernel,
}

/// The distributor's end.
#[derive(Debug)]
pub struct PacketTx {
    frames: spin_sync::CreditTx<Frame, Frame, Frame>,
    meta: MetaTx,
    back: SidebandRx<ReturnAction>,
    /// Scratch list of reclaimed frames.
    returned: Vec<Frame>,
    quota: TransitCount,
    drops: Arc<Drops>,
}

/// The worker's end for packets.
#[derive(Debug)]
pub struct PacketRx {
    frames: spin_sync::CreditRx<Frame>,
    meta: MetaRx,
    quotas: Arc<QuotaTable>,
    /// Counts of packets that the distributor dropped because their context was over its quota.
    drops: DropReader,
    /// Cost of a frame that is returned for the kernel.
    pub(crate) pass_cost: Arc<PassCost>,
}

/// The worker's view of the NIC: it allocates refills, and takes all frames back.
pub struct ChannelQueue {
    frames: spin_sync::ReturnTx<Frame, Frame>,
    back: SidebandTx<ReturnAction>,
    max_frame: usize,
}

/// A channel for `size` frames, at most `max_refills` of them empty. The two threads sleep on the wake-ups.
#[must_use]
pub fn packet_channel(
    size: usize,
    max_refills: usize,
    max_frame: usize,
    distributor: Arc<Wakeup>,
    worker: Arc<Wakeup>,
) -> (PacketTx, PacketRx, ChannelQueue) {
    let (items, packets, frames) = spin_sync::credit_channel(size, max_refills, distributor, worker);
    let ((meta, meta_rx), (back, back_rx)) = (packet_meta(size), sideband(size));
    let (quotas, drops) = (Arc::new(QuotaTable::default()), Arc::new(Drops::default()));
    let (quota, reader) = (TransitCount::new(quotas.clone(), size, UNCOUNTED), DropReader::new(drops.clone()));
    let tx = PacketTx { frames: items, meta, back: back_rx, returned: Vec::with_capacity(size), quota, drops };
    let rx = PacketRx { frames: packets, meta: meta_rx, quotas, drops: reader, pass_cost: Arc::new(PassCost::new(1)) };
    (tx, rx, ChannelQueue::new(frames, back, max_frame))
}

impl PacketTx {
    /// The number of frames that may still be staged.
    #[must_use]
    pub fn credit(&self) -> usize {
        self.frames.credit()
    }

    /// The number of frames that are staged, in transit, or held by the worker. Unused refills do not count.
    #[must_use]
    pub fn out(&self) -> usize {
        self.frames.out() + self.frames.staged.len()
    }

    /// Begins a batch. Returns how many packets may be staged. `None`: any number, after [`PacketTx::admits`] for each.
    pub(crate) fn begin_batch(&mut self) -> Option<usize> {
        let Self { frames, quota, .. } = self;
        let credit = frames.credit();
        let staged = frames.staged.len();
        quota.begin_batch(frames.capacity().saturating_sub(credit), credit, || frames.in_transit() + staged);
        (!quota.is_enforced()).then_some(credit)
    }

    /// Whether a packet of a context may be staged. If not, it is counted as dropped.
    #[inline]
    pub(crate) fn admits(&mut self, slot: Slot) -> bool {
        let is_admitted = self.quota.admit(slot);
        if !is_admitted {
            self.drops.count(slot);
        }
        is_admitted
    }

    /// Stages a packet for [`PacketTx::hand_over`].
    #[inline]
    pub fn stage(&mut self, frame: Frame, found: &Match) {
        self.frames.staged.push(frame);
        self.meta.stage(found);
    }

    /// Takes the staged frames back.
    pub fn unstage(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.meta.unstage();
        self.quota.reset();
        self.frames.staged.drain(..)
    }

    /// Sends staged packets as far as there is credit, and refills.
    pub fn hand_over(&mut self, refill: impl FnMut() -> Option<Frame>) {
        self.meta.write(self.frames.ready());
        self.frames.send(refill);
    }

    /// Takes returned frames. Returns how many.
    pub fn take_back(&mut self, mut each: impl FnMut(Frame, ReturnAction)) -> usize {
        let Self { frames, back, returned, .. } = self;
        let count = frames.reclaim(|frame| returned.push(frame));
        let mut returned = returned.drain(..);
        back.read(count, |&back| returned.next().into_iter().for_each(|frame| each(frame, back)));
        count
    }

    /// Whether there are returned frames.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.frames.has_returns()
    }
}

impl PacketRx {
    /// The number of packets that are there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether no packet is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Takes the next `count` packets, which have to be there: their frames, then their matches.
    #[inline]
    pub fn take(&mut self, count: usize, frame: impl FnMut(Frame), found: impl FnMut(Match)) {
        let count = self.frames.take(count, frame);
        self.meta.read(count, found);
    }

    /// Sets the contexts' shares of the channel, and whether the distributor enforces them.
    pub(crate) fn set_quotas(&self, enforced: bool, parts: impl Iterator<Item = (Slot, Part)>) {
        self.quotas.set(enforced, parts);
    }

    /// Calls `each` with each context whose packets the distributor dropped since the last call, and with their number.
    #[inline]
    pub(crate) fn read_drops(&mut self, each: impl FnMut(Slot, u64)) {
        self.drops.read(each);
    }

    /// Whether one of the next `max` packets belongs to a context that `is_wanted`.
    #[cold]
    pub(crate) fn has_any(&mut self, max: usize, is_wanted: impl Fn(Slot) -> bool) -> bool {
        self.meta.has_any(max, is_wanted)
    }

    /// Takes all packets.
    #[must_use]
    pub fn take_all(&mut self) -> Vec<(Frame, Match)> {
        let (mut frames, mut all) = (Vec::new(), Vec::new());
        self.take(self.len(), |frame| frames.push(frame), |found| all.push(found));
        frames.into_iter().zip(all).collect()
    }

    /// Whether no more packets will come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.frames.is_closed()
    }

    /// The wake-up that the distributor notifies.
    #[must_use]
    pub const fn wakeup(&self) -> &Arc<Wakeup> {
        self.frames.wakeup()
    }
}

impl ChannelQueue {
    /// The worker's end for refills and returns.
    pub(crate) const fn new(
        frames: spin_sync::ReturnTx<Frame, Frame>,
        back: SidebandTx<ReturnAction>,
        max_frame: usize,
    ) -> Self {
        Self { frames, back, max_frame }
    }

    /// Stages frames for their return with the action `back`.
    fn stage(&mut self, batch: &mut Vec<Frame>, back: ReturnAction) -> usize {
        let count = batch.len();
        self.back.staged.extend(std::iter::repeat_n(back, count));
        self.frames.staged.append(batch);
        count
    }
}

/// Packets come through [`PacketRx`]. The distributor has the rules and the counters.
impl TxQueue for ChannelQueue {
    fn allocate(&mut self) -> Option<Frame> {
        self.frames.refill()
    }

    fn low_on_buffers(&self) -> bool {
        self.frames.refills() < MIN_REFILLS
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.stage(batch, ReturnAction::Transmit)
    }

    fn max_frame(&self) -> usize {
        self.max_frame
    }

    fn recycle(&mut self, frame: Frame) {
        self.back.staged.push(ReturnAction::Recycle);
        self.frames.staged.push(frame);
    }

    fn recycle_all(&mut self, batch: &mut Vec<Frame>) {
        self.stage(batch, ReturnAction::Recycle);
    }

    fn flush_tx(&mut self) -> Result<(), TxClosed> {
        self.flush().map_err(|_| TxClosed)
    }
}

impl Queue for ChannelQueue {
    fn receive(&mut self, _: &mut Vec<Frame>, _: usize) -> usize {
        0
    }

    fn pending(&self) -> usize {
        0
    }

    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.stage(batch, ReturnAction::PassToKernel)
    }

    fn flush(&mut self) -> Result<(), NicError> {
        let count = self.frames.staged.len();
        self.back.write(count);
        self.frames.send();
        if count > 0 {
            // About as many frames are returned next. Their slots are in the cache of the other core, which has just read them.
            self.frames.next_slots(count, prefetch_to_write);
            self.back.next_slots(count, prefetch_to_write);
        }
        if self.low_on_buffers() {
            self.frames.notify();
        }
        if self.frames.refills() == 0 {
            // A caller that retries at once needs a poll of the distributor in between.
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Waits for `wake` alone, which is the wake-up of the [`PacketRx`].
    fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<(), NicError> {
        let mut fds: Vec<_> = wake.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(NicError::system("wait for packets", errno)),
        }
    }

    fn exhausted(&self) -> bool {
        self.frames.is_closed()
    }

    fn steering(&self) -> Arc<dyn FlowSteering> {
        Arc::new(AcceptAll)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn describe(&self) -> String {
        format!("a packet channel of {} frames", self.frames.size())
    }
}

#[cfg(test)]
mod tests {
    use spin_matcher::{Headers, KeySpec, MessageKey};
    use spin_nic::memory::pair;
    use spin_nic::{Queue, TxQueue, Wakeup};

    use super::{ReturnAction, packet_channel};
    use crate::ingress::matched::Match;
    use spin_pspin::ids::Slot;

    /// A random match of a message with a long key or a short one.
    fn any_found() -> Match {
        let length = if fastrand::bool() { fastrand::u8(1..=16) } else { fastrand::u8(17..=44) };
        let bytes: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(length.into()).collect();
        let spec = format!("frame[0:{length}]").parse::<KeySpec>().expect("a key");
        let (owner, end_of_message) = (Slot(fastrand::u32(..256)), fastrand::bool());
        Match { owner, end_of_message, key: spec.extract(&bytes, &Headers::parse(&bytes)) }
    }

    #[test]
    fn frames_arrive_as_what_they_were_found_to_be_and_come_back_for_what_they_are() {
        const FRESH: usize = 256;
        const SIZE: usize = FRESH + 16;
        let parts = |found: &Match| -> (Slot, bool, MessageKey) { (found.owner, found.end_of_message, found.key) };
        let wakeup = || Wakeup::new().expect("an event");
        let (mut nic, _far) = pair(SIZE).expect("frames");
        let (mut channel, mut arrivals, mut queue) = packet_channel(SIZE, FRESH, 2048, wakeup(), wakeup());
        let (mut sent, mut returned, mut all) = (Vec::new(), 0, 0);
        while all < 5000 {
            // The frames include those left from the round before, if there was no credit for them.
            for _ in 0..fastrand::usize(..=channel.credit()) {
                let (mut frame, found) = (nic.allocate().expect("there is credit"), any_found());
                frame.fill(&[fastrand::u8(..); 14]).expect("short");
                sent.push((frame[0], parts(&found)));
                channel.stage(frame, &found);
            }
            channel.hand_over(|| None);
            let count = fastrand::usize(..=arrivals.len());
            let (mut frames, mut found) = (Vec::new(), Vec::new());
            arrivals.take(count, |frame| frames.push(frame), |what| found.push(parts(&what)));
            let arrived: Vec<_> = frames.iter().map(|frame| frame[0]).zip(found).collect();
            assert_eq!(arrived, sent.drain(..count).collect::<Vec<_>>());
            all += count;
            // Each frame is returned in one of the ways. Its content tells which.
            let mut ways = [const { Vec::new() }; 3];
            frames.into_iter().for_each(|frame| ways[usize::from(frame[0]) % 3].push(frame));
            let [spent, outgoing, passing] = &mut ways;
            if let Some(frame) = spent.pop() {
                queue.recycle(frame);
            }
            queue.recycle_all(spent);
            queue.send(outgoing);
            queue.pass_to_kernel(passing);
            queue.flush().expect("a channel does not fail");
            returned += channel.take_back(|frame, back| {
                assert_eq!(
                    back,
                    [ReturnAction::Recycle, ReturnAction::Transmit, ReturnAction::PassToKernel]
                        [usize::from(frame[0]) % 3]
                );
                nic.recycle(frame);
            });
            assert_eq!(returned, all);
        }
    }
}
