//! The first half of PsPIN's NIC inbound engine: receives frames, and determines the context and message of each.

use std::sync::Arc;

use spin_abi::counters::Counter;
use spin_matcher::{MessageKey, Table};
use spin_nic::{Frame, Queue};
use spin_pspin::counts::Counts;
use spin_pspin::ids::Slot;
use spin_pspin::mpq::{MpqId, Mpqs, Owned};

use crate::cores::packet_channel::PacketRx;
use crate::ingress::matched::{Match, MatchEntry, MatchedBatch};
use crate::install::Home;
use crate::message::messages::Messages;

/// Frames per receive when one context has the thread to itself. The cache holds this many together with the data that is
/// prefetched for them.
pub const BATCH: usize = 128;
/// Distance in frames at which headers are prefetched: far enough for the latency of memory, near enough that they are not
/// evicted again.
const PREFETCH_AHEAD: usize = 8;
/// Distance in packets at which the data that tasks read is prefetched. The cache has little room for frames that lie a chunk
/// apart, and tasks on long packets take long.
pub(crate) const PREFETCH_SOON: usize = 1;

/// A matched frame that is not yet queued with its message.
#[derive(Debug)]
pub struct MatchedPacket {
    /// The frame.
    pub frame: Frame,
    /// The context that it belongs to.
    pub slot: Slot,
    /// The key of the message, unique within its context.
    pub key: MessageKey,
    /// Whether the frame is the last one of its message.
    pub end_of_message: bool,
}

/// The classifier: compiled rules, and the contexts that they lead to.
#[derive(Clone, Debug, Default)]
pub struct RoutingTable {
    /// The compiled rules, for the NIC's filter and for matching here. Threads share them, and none writes them.
    pub table: Arc<Table>,
    /// Contexts by index in the table, which is the order of priority.
    pub slots: Vec<Slot>,
    /// Where the contexts run, by slot. A context whose slot is not listed runs where its packets arrive.
    pub homes: Arc<[Home]>,
}

impl RoutingTable {
    /// Matches a frame. Calls `found` with its context, its message's key, and whether it is the last one of its message. `None`:
    /// no context matches.
    #[inline(always)]
    pub fn find<R>(&self, frame: &[u8], found: impl FnOnce(Slot, MessageKey, bool) -> R) -> Option<R> {
        self.table.find(frame, |index, key, end_of_message| found(self.slots[index], key, end_of_message))
    }
}

/// A receive batch: frames that were received and matched, and are yet to be queued.
#[derive(Debug)]
pub struct RxBatch {
    /// Frames in reverse order: the next one is the last element.
    frames: Vec<Frame>,
    /// Matches of the frames, at equal indexes. Entries beyond them belong to frames that were taken.
    found: MatchedBatch,
    /// The value of [`Messages::begun`] when the buckets were [read](RxBatch::prefetch_entries).
    begun: u64,
    /// Skipped frames that will be restored, and their indexes.
    aside: Vec<(Frame, usize)>,
    /// Scratch space of [grouping](RxBatch::group), by index: the group, and the index that the frame comes from.
    groups: Vec<u32>,
    order: Vec<usize>,
    /// Scratch space of grouping, by group: the index of its next frame.
    places: Vec<usize>,
}

impl Default for RxBatch {
    fn default() -> Self {
        let (frames, found, aside) = (Vec::with_capacity(BATCH), MatchedBatch::new(BATCH), Vec::with_capacity(BATCH));
        let groups = Vec::with_capacity(BATCH);
        let [order, places] = [(); 2].map(|()| Vec::with_capacity(BATCH));
        Self { frames, found, begun: 0, aside, groups, order, places }
    }
}

impl RxBatch {
    /// The number of frames in the batch.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether the batch is empty.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Receives at most `most` frames into an empty batch. Returns how many.
    #[inline]
    pub fn fetch(&mut self, nic: &mut dyn Queue, most: usize) -> usize {
        let arrived = nic.receive(&mut self.frames, most);
        self.frames.iter().take(PREFETCH_AHEAD).for_each(Frame::prefetch);
        self.frames.reverse();
        arrived
    }

    /// [Fetches](RxBatch::fetch) frames and [matches](RxBatch::find) them.
    // Not inlined: in a larger function its loop keeps less in registers, which costs 7 instructions per packet.
    #[inline(never)]
    pub fn receive(
        &mut self,
        nic: &mut dyn Queue,
        routes: &RoutingTable,
        most: usize,
        counts: &mut Counts,
        bucket: impl Fn(Slot, &MessageKey) -> u32,
    ) -> usize {
        let arrived = self.fetch(nic, most);
        if arrived == 0 {
            return 0;
        }
        let bytes = self.find(routes, bucket);
        counts.add(Counter::RxPackets, arrived as u64);
        counts.add(Counter::RxBytes, bytes);
        arrived
    }

    /// Matches all frames, and stores the `bucket` of each message. Returns the number of bytes.
    #[inline]
    pub fn find(&mut self, routes: &RoutingTable, bucket: impl Fn(Slot, &MessageKey) -> u32) -> u64 {
        let Self { frames, found, .. } = self;
        let mut bytes = 0;
        found.reserve(frames.len());
        let (entries, key_tails) = found.first_mut(frames.len());
        for (place, ((frame, entry), rest)) in frames.iter().zip(entries).zip(key_tails).enumerate().rev() {
            if let Some(later) = frames.get(place.wrapping_sub(PREFETCH_AHEAD)) {
                later.prefetch();
            }
            bytes += frame.len() as u64;
            let of_context = routes.find(frame, |owner, key, end_of_message| {
                entry.note(rest, owner, bucket(owner, &key), key, end_of_message);
            });
            if of_context.is_none() {
                *entry = MatchEntry::NOTHING;
            }
        }
        bytes
    }

    /// Computes and prefetches the buckets of all messages, if that was not done when the frames were matched.
    pub fn prefetch_buckets(&mut self, messages: &Messages) {
        for place in (0..self.frames.len()).rev() {
            let Match { owner, key, .. } = self.found.get(place);
            // Unmatched frames are included: leaving them out would slow down all others.
            self.found.entry_mut(place).bucket = messages.prefetch_bucket(owner, &key);
        }
    }

    /// Prefetches the first queue of each message's bucket. The buckets have to be prefetched before.
    pub fn prefetch_entries<C: Copy + Owned, P>(&mut self, messages: &Messages, mpqs: &Mpqs<C, P>) {
        self.begun = messages.begun();
        for entry in self.found.first_mut(self.frames.len()).0.iter_mut().rev() {
            entry.first = messages.bucket_head(entry.bucket as usize);
            if entry.first != MpqId::NONE {
                messages.prefetch(entry.first);
                mpqs.prefetch(entry.first);
            }
        }
    }

    /// Takes at most `most` frames that the distributor has received and matched into an empty batch. Returns how many.
    #[inline]
    pub fn take_over(&mut self, arrivals: &mut PacketRx, most: usize) -> usize {
        let Self { frames, found, .. } = self;
        let count = arrivals.len().min(most);
        found.reserve(count);
        let mut places = (0..count).rev();
        arrivals.take(
            count,
            |frame| frames.push(frame),
            |what| places.next().into_iter().for_each(|place| found.set(place, what)),
        );
        frames.reverse();
        count
    }

    /// Takes frames of another thread and their matches into an empty batch: `take` passes each of `count` frames to its first argument,
    /// then their matches in the same order to its second.
    #[inline]
    pub(crate) fn fill(&mut self, count: usize, take: impl FnOnce(&mut dyn FnMut(Frame), &mut dyn FnMut(Match))) {
        let Self { frames, found, .. } = self;
        found.reserve(count);
        let mut places = (0..count).rev();
        take(&mut |frame| frames.push(frame), &mut |what| {
            places.next().into_iter().for_each(|place| found.set(place, what));
        });
        frames.reverse();
    }

    /// Sorts the frames by group, in a stable counting sort. The group with the greatest number comes first. `group` returns a
    /// number below `groups` for the match at an index. All frames of a message need to have one group.
    pub(crate) fn group(&mut self, groups: u32, group: impl Fn(&MatchedBatch, usize) -> u32) {
        let count = self.frames.len();
        let Self { frames, found, groups: of, order, places, .. } = self;
        of.clear();
        of.extend((0..count).map(|place| group(found, place)));
        if of.is_sorted() {
            return;
        }
        places.clear();
        places.resize(groups as usize, 0);
        of.iter().for_each(|&group| places[group as usize] += 1);
        let mut sum = 0;
        for place in places.iter_mut() {
            sum += std::mem::replace(place, sum);
        }
        order.clear();
        order.resize(count, 0);
        for (from, &group) in of.iter().enumerate() {
            let place = &mut places[group as usize];
            order[*place] = from;
            *place += 1;
        }
        // Applies the permutation cycle by cycle: in a cycle, each frame is swapped into its place, and the first one gets to its
        // place last.
        for first in 0..count {
            let mut place = first;
            loop {
                let from = std::mem::replace(&mut order[place], place);
                if from == first || from == place {
                    break;
                }
                frames.swap(place, from);
                found.swap(place, from);
                place = from;
            }
        }
    }

    /// The match of the next frame.
    #[must_use]
    #[inline]
    pub fn next(&self) -> Option<Match> {
        self.frames.len().checked_sub(1).map(|place| self.found.get(place))
    }

    /// Replaces the owners of all frames.
    pub fn reroute(&mut self, owner: impl Fn(Slot) -> Slot) {
        self.found.first_mut(self.frames.len()).0.iter_mut().for_each(|entry| entry.owner = owner(entry.owner));
    }

    /// Whether the next frame belongs to a context or matched none.
    #[must_use]
    #[inline]
    pub fn is_next_of(&self, slot: Slot) -> bool {
        self.found.first(self.frames.len()).last().is_some_and(|next| next.owner == slot || next.owner == Slot::NOBODY)
    }

    /// Appends `more` frames, and removes the frames of contexts that are `gone`. Returns the removed ones.
    pub fn retain(&mut self, more: Vec<(Frame, Match)>, gone: impl Fn(Slot) -> bool) -> Vec<Frame> {
        let here = self.frames.drain(..).enumerate().map(|(place, frame)| (frame, self.found.get(place)));
        let here = here.rev().collect::<Vec<_>>();
        let all = here.into_iter().chain(more);
        let (taken, kept): (Vec<_>, Vec<_>) = all.partition(|(_, found)| found.slot().is_some_and(&gone));
        // Both lists keep their capacity, so that the next batch allocates nothing.
        self.found.reserve(kept.len());
        for (place, (frame, found)) in kept.into_iter().rev().enumerate() {
            self.frames.push(frame);
            self.found.set(place, found);
        }
        taken.into_iter().map(|(frame, _)| frame).collect()
    }

    /// Puts frames in front. All frames have to be [matched](RxBatch::find) then.
    pub(crate) fn put_back(&mut self, frames: impl DoubleEndedIterator<Item = Frame>) {
        self.frames.extend(frames.rev());
    }

    /// Takes the next frame.
    #[inline]
    pub fn take(&mut self) -> Option<(Frame, Match)> {
        let frame = self.frames.pop()?;
        Some((frame, self.taken()))
    }

    /// The frame at an index. The next frame has the highest index.
    #[inline(always)]
    pub fn frame(&mut self, place: usize) -> &mut Frame {
        &mut self.frames[place]
    }

    /// The frame at an index, and its match in compact form.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> (&Frame, &MatchEntry) {
        (&self.frames[place], self.found.entry(place))
    }

    /// The value of [`Messages::begun`] when the buckets were [read](Self::prefetch_entries).
    #[inline(always)]
    pub const fn begun(&self) -> u64 {
        self.begun
    }

    /// The matches of the frames.
    #[inline(always)]
    pub(crate) const fn found(&self) -> &MatchedBatch {
        &self.found
    }

    /// Moves the next frames, down to index `from`, to `spent`.
    #[inline]
    pub fn consume(&mut self, from: usize, spent: &mut Vec<Frame>) {
        if from == 0 {
            // Most often all frames are moved, which is done at once.
            self.frames.reverse();
            spent.append(&mut self.frames);
        } else {
            spent.extend(self.frames.drain(from..).rev());
        }
    }

    /// Keeps the frame that was taken last, for [`Self::restore_skipped`].
    #[inline]
    pub fn skip(&mut self, frame: Frame) {
        self.aside.push((frame, self.frames.len()));
    }

    /// Puts the skipped frames back in front, in their original order.
    #[inline]
    pub fn restore_skipped(&mut self) {
        while let Some((frame, place)) = self.aside.pop() {
            // The new index is not above the old one, and entries of taken frames lie between them.
            self.found.swap(self.frames.len(), place);
            self.frames.push(frame);
        }
    }

    /// The contexts of the frames, in order. Unmatched frames are left out.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.owners().filter(|&owner| owner != Slot::NOBODY)
    }

    /// The owner of each frame, in order; [`Slot::NOBODY`]: no context matched.
    pub(crate) fn owners(&self) -> impl Iterator<Item = Slot> + '_ {
        self.found.first(self.frames.len()).iter().rev().map(|entry| entry.owner)
    }

    /// The match of the frame that was taken last.
    ///
    /// # Panics
    /// When no frame of the batch was taken.
    #[must_use]
    #[inline]
    pub fn taken(&self) -> Match {
        self.found.get(self.frames.len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use spin_matcher::{Headers, KeySpec, Table, TableEntry};
    use spin_nic::{Queue, SyntheticSource};
    use spin_pspin::counts::Counts;
    use spin_pspin::ids::Slot;

    use super::{BATCH, RoutingTable, RxBatch};
    use crate::ingress::matched::Match;

    /// Routes frames to slot 7 if byte 14 is 1, and to slot 3 if it is 2.
    fn routes() -> RoutingTable {
        let entry = |rule: &str| TableEntry { rules: rule.parse().expect("a rule"), ..TableEntry::default() };
        let table = Table::new(&[entry("frame[14:1] = 1"), entry("frame[14:1] = 2")]).expect("few tests");
        RoutingTable { table: table.into(), slots: vec![Slot(7), Slot(3)], ..RoutingTable::default() }
    }

    #[test]
    fn frames_go_to_the_slot_at_their_rule_s_place() {
        let routes = routes();
        let frames: Vec<_> = (1..4).map(|number| [vec![0; 14], vec![number; 46]].concat()).collect();
        let mut received = Vec::new();
        SyntheticSource::new(&frames, 60, 0).expect("short frames").receive(&mut received, 3);
        let found: Vec<_> = received.iter().map(|frame| routes.find(frame, |slot, _, _| slot)).collect();
        assert_eq!(found, [Some(Slot(7)), Some(Slot(3)), None]);
    }

    #[test]
    fn those_put_aside_come_back_in_order_before_the_rest_as_what_they_were() {
        let routes = routes();
        let numbers = [2, 1, 2, 9, 1, 1, 2, 2, 1, 2];
        let frames: Vec<_> = numbers
            .iter()
            .enumerate()
            .map(|(at, &number)| [vec![0; 14], vec![number, u8::try_from(at).expect("few")], vec![0; 44]].concat())
            .collect();
        let mut nic = SyntheticSource::new(&frames, 60, 0).expect("short frames");
        let mut inbound = RxBatch::default();
        assert_eq!(inbound.receive(&mut nic, &routes, 10, &mut Counts::default(), |_, _| 0), 10);
        let mut taken = Vec::new();
        // Takes some frames of the first context twice. The second time begins further on.
        for most in [2, 1] {
            let mut left = most;
            while left > 0 {
                let (frame, found) = inbound.take().expect("there are more");
                if found.owner == Slot(7) {
                    taken.push(frame[15]);
                    left -= 1;
                } else {
                    inbound.skip(frame);
                }
            }
            inbound.restore_skipped();
        }
        assert_eq!(taken, [1, 4, 5]);
        assert_eq!(inbound.slots().take(3).collect::<Vec<_>>(), [Slot(3); 3]);
        let slot = |number| [None, Some(Slot(7)), Some(Slot(3))].get(usize::from(number)).copied().flatten();
        let left =
            std::iter::from_fn(|| inbound.take().map(|(frame, found)| (frame[15], found.slot() == slot(frame[14]))));
        assert_eq!(left.collect::<Vec<_>>(), [0, 2, 3, 6, 7, 8, 9].map(|at| (at, true)));
    }

    #[test]
    fn those_that_are_given_back_leave_in_order_and_the_others_stay() {
        let frames: Vec<_> = (0..7).map(|number| vec![number; 60]).collect();
        let mut nic = SyntheticSource::new(&frames, 60, 0).expect("short frames");
        let (mut inbound, mut spent) = (RxBatch::default(), Vec::new());
        assert_eq!(inbound.receive(&mut nic, &routes(), 7, &mut Counts::default(), |_, _| 0), 7);
        for (from, gone) in [(5, 2), (5, 2), (4, 3), (0, 7)] {
            inbound.consume(from, &mut spent);
            assert_eq!(inbound.len(), from);
            assert_eq!(spent.iter().map(|frame| frame[0]).collect::<Vec<_>>(), (0..gone).collect::<Vec<_>>());
        }
    }

    #[test]
    fn those_of_a_group_are_together_in_order() {
        group_by("frame[14:1]");
    }

    #[test]
    fn so_are_those_with_long_keys() {
        group_by("frame[14:40]");
    }

    /// Groups frames whose message keys are extracted as `spec` says.
    fn group_by(spec: &str) {
        let routes = routes();
        for numbers in [[1, 2, 1, 9, 1, 2, 9, 2, 1, 1], [9, 9, 1, 1, 1, 2, 2, 2, 2, 2], [2, 1, 9, 1, 9, 2, 2, 9, 1, 9]]
        {
            let numbered = |(at, &number): (usize, &u8)| {
                [vec![0; 14], vec![number, u8::try_from(at).expect("few")], vec![0; 44]].concat()
            };
            let frames: Vec<_> = numbers.iter().enumerate().map(numbered).collect();
            let mut nic = SyntheticSource::new(&frames, 60, 0).expect("short frames");
            let mut inbound = RxBatch::default();
            inbound.receive(&mut nic, &routes, 10, &mut Counts::default(), |_, _| 0);
            let (mut keys, spec) = (HashMap::new(), spec.parse::<KeySpec>().expect("a key"));
            for (place, frame) in inbound.frames.iter().enumerate() {
                let key = spec.extract(frame, &Headers::parse(frame));
                inbound.found.set(place, Match { key, ..inbound.found.get(place) });
                keys.insert(key, u32::from(frame[14]) % 3);
            }
            inbound.group(3, |found, place| keys[&found.key(place)]);
            let mut left = Vec::new();
            while let Some(next) = inbound.next().map(|found| found.key) {
                let (frame, found) = inbound.take().expect("there is a next one");
                assert_eq!((found.key, keys[&next]), (next, u32::from(frame[14]) % 3));
                left.push((frame[14], frame[15]));
            }
            let mut sorted: Vec<_> = (0..).zip(numbers).map(|(at, number)| (number, at)).collect();
            sorted.sort_by_key(|&(number, _)| std::cmp::Reverse(number % 3));
            assert_eq!(left, sorted);
        }
    }

    #[test]
    fn those_that_are_left_stay_in_order_and_are_what_they_were() {
        let routes = routes();
        let frames = |numbers: &[u8]| -> Vec<Vec<u8>> {
            numbers.iter().map(|&number| [vec![0; 14], vec![number; 46]].concat()).collect()
        };
        let mut nic = SyntheticSource::new(&frames(&[1, 2, 9, 1, 2]), 60, 0).expect("short frames");
        let mut inbound = RxBatch::default();
        assert_eq!(inbound.receive(&mut nic, &routes, 8, &mut Counts::default(), |_, _| 0), 5);
        assert_eq!(inbound.take().map(|(frame, found)| (frame[14], found.slot())), Some((1, Some(Slot(7)))));
        // New rules apply to frames that are already here.
        assert_eq!(inbound.find(&RoutingTable::default(), |_, _| 0), 4 * 60);
        assert!((0..4).all(|place| inbound.found.get(place).slot().is_none()));
        inbound.find(&routes, |_, _| 0);
        let mut more = Vec::new();
        SyntheticSource::new(&frames(&[2, 1]), 60, 0).expect("short frames").receive(&mut more, 2);
        let more = more.into_iter().zip([3, 7]);
        let more = more.map(|(frame, slot)| (frame, Match { owner: Slot(slot), ..Match::default() })).collect();
        let gone = inbound.retain(more, |slot| slot == Slot(7));
        assert_eq!(gone.iter().map(|frame| frame[14]).collect::<Vec<_>>(), [1, 1]);
        let left = std::iter::from_fn(|| inbound.take().map(|(frame, found)| (frame[14], found.slot())));
        assert_eq!(left.collect::<Vec<_>>(), [(2, Some(Slot(3))), (9, None), (2, Some(Slot(3))), (2, Some(Slot(3)))]);
        // The next batch needs no allocation.
        assert!(inbound.found.first(BATCH).len() == BATCH && inbound.frames.capacity() >= BATCH);
    }
}
