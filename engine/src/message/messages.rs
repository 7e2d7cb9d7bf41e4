//! The NIC's mapping of message keys to MPQs (PsPIN paper §III-D, "message matching").
//!
//! A key holds its queue from its first frame until the queue is idle. The queue can then serve another key. Keys are found
//! through a hash table with chained buckets. Its hash has a random seed, so that senders cannot choose keys that collide. Times
//! are nanoseconds since some fixed moment.

use std::cmp::Reverse;
use std::hash::{BuildHasher, RandomState};

use spin_matcher::{HashSeed, MessageKey};
use spin_nic::prefetch_in;
use spin_pspin::ids::Slot;
use spin_pspin::mpq::MpqId;

/// Idle time in nanoseconds after which an open message may be evicted for a new one of its own context.
const OWN_IDLE: u64 = 10_000_000_000;

/// The end of a bucket's list.
const NONE: MpqId = MpqId::NONE;

/// The flow entry of a queue: the message that holds it, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct FlowEntry {
    /// First bytes and length of the key. Keys of different contexts are distinct, and no frame's key is empty.
    head: ([u64; 2], u8),
    /// The owner; [`Slot::NOBODY`]: the queue is free.
    context: Slot,
    /// The next queue in the bucket.
    next: MpqId,
    /// Arrival time of the last frame, in nanoseconds.
    used: u64,
}

impl FlowEntry {
    /// The time from the last frame to `now`.
    const fn idle(&self, now: u64) -> u64 {
        now.saturating_sub(self.used)
    }
}

/// Message keys and the queues they hold. Nothing is allocated per message.
pub struct Messages {
    seed: HashSeed,
    /// The first queue of each bucket. Their number is a power of two.
    buckets: Box<[MpqId]>,
    /// Flow entries by queue.
    entries: Box<[FlowEntry]>,
    /// Key bytes behind the first ones, by queue, for keys that are that long.
    key_tails: Box<[[u64; 4]]>,
    /// Free queues with PsPIN's numbers, which are the first `pspin_queues`.
    free: Vec<MpqId>,
    /// Free queues with higher numbers.
    free_further: Vec<MpqId>,
    pspin_queues: u32,
    /// Whether a context takes only queues with PsPIN's numbers.
    only_pspin: Vec<bool>,
    /// The number of messages that were put in buckets.
    begun: u64,
    /// The number of queues that messages hold, by context.
    held: Vec<u32>,
    /// The number of each context's user.
    users: Vec<u32>,
    /// The number of queues that messages hold, by user. Only [counted](Messages::count_by_user) for evictions: messages begin and
    /// end far more often.
    held_by_user: Vec<u32>,
    /// The queue that [`Messages::next_expired`] examines next.
    clock_hand: u32,
    /// The queue from which [`Messages::eviction_candidate`] searches next.
    victims: u32,
}

/// Queues examined per search for an eviction candidate. The bound keeps the cost of a failing search independent of the number
/// of queues.
const LOOKED_AT: u32 = 256;

impl Messages {
    /// A table for `queues` queues, all free. The first `pspin_queues` have numbers that PsPIN has.
    #[must_use]
    pub fn new(queues: u32, pspin_queues: u32) -> Self {
        let nobody = FlowEntry { head: ([0; 2], 0), context: Slot::NOBODY, next: NONE, used: 0 };
        Self {
            seed: HashSeed::new(RandomState::new().hash_one(queues)),
            buckets: vec![NONE; (queues as usize * 2).next_power_of_two()].into(),
            entries: vec![nobody; queues as usize].into(),
            key_tails: vec![[0; 4]; queues as usize].into(),
            free: (0..pspin_queues).rev().map(MpqId).collect(),
            free_further: (pspin_queues..queues).rev().map(MpqId).collect(),
            pspin_queues,
            only_pspin: Vec::new(),
            begun: 0,
            held: Vec::new(),
            users: Vec::new(),
            held_by_user: Vec::new(),
            clock_hand: 0,
            victims: 0,
        }
    }

    /// Makes room for the messages of a context, which belongs to the user with the number `user`. `pspin`: it takes only queues with
    /// PsPIN's numbers.
    pub fn add_context(&mut self, context: Slot, user: u32, pspin: bool) {
        let slots = self.held.len().max(context.0 as usize + 1);
        self.held.resize(slots, 0);
        self.users.resize(slots, user);
        self.users[context.0 as usize] = user;
        self.only_pspin.resize(slots, false);
        self.only_pspin[context.0 as usize] = pspin;
        self.held_by_user.resize(self.held_by_user.len().max(user as usize + 1), 0);
    }

    /// The queue of a message that a frame arrived for at `now`: a free one if the message is new, `None` if all are taken.
    #[inline(always)]
    pub fn queue(&mut self, context: Slot, key: &MessageKey, now: u64) -> Option<MpqId> {
        self.find(context, key, now).or_else(|| self.begin(context, key, now))
    }

    /// The queue of an open message that a frame arrived for at `now`.
    #[inline(always)]
    pub fn find(&mut self, context: Slot, key: &MessageKey, now: u64) -> Option<MpqId> {
        self.find_from(self.buckets[self.bucket(context, key)], context, key, now)
    }

    /// Finds a queue as [`Messages::find`] does, with the message's [bucket](Messages::bucket) and its
    /// [head](Messages::bucket_head) as read before. Most often the head is the queue, and the bucket itself may have been
    /// evicted from the cache.
    #[inline]
    pub fn find_in(
        &mut self,
        (bucket, first): (usize, MpqId),
        context: Slot,
        key: &MessageKey,
        now: u64,
    ) -> Option<MpqId> {
        let (head, rest) = key.split();
        if self.holds(first, context, head, || rest.unwrap_or_default(), now) {
            return Some(first);
        }
        // Other messages may have begun or ended since. Most often the bucket is unchanged.
        match self.buckets[bucket] {
            NONE => None,
            other => self.find_from(other, context, key, now),
        }
    }

    /// Whether a queue belongs to an open message with this key, which a frame arrived for at `now`. `rest` returns the key bytes
    /// [behind the first ones](MessageKey::split), for keys that are that long.
    #[inline(always)]
    pub fn holds(
        &mut self,
        mpq: MpqId,
        context: Slot,
        head: ([u64; 2], u8),
        rest: impl FnOnce() -> [u64; 4],
        now: u64,
    ) -> bool {
        let is = self.is(mpq, context, head, rest);
        if is {
            self.entries[mpq.0 as usize].used = now;
        }
        is
    }

    #[inline(always)]
    fn is(&self, mpq: MpqId, context: Slot, head: ([u64; 2], u8), rest: impl FnOnce() -> [u64; 4]) -> bool {
        let Some(entry) = self.entries.get(mpq.0 as usize) else { return false };
        let ([a, b], length) = head;
        let ([c, d], as_long) = entry.head;
        let begins_alike = entry.context == context && (a ^ c) | (b ^ d) == 0 && length == as_long;
        begins_alike && (!MessageKey::goes_on(length) || self.key_tails[mpq.0 as usize] == rest())
    }

    /// Finds the queue of a message in a bucket's list, from `at` on, and notes the arrival of a frame at `now`.
    #[inline]
    fn find_from(&mut self, at: MpqId, context: Slot, key: &MessageKey, now: u64) -> Option<MpqId> {
        let found = self.walk(at, context, key)?;
        self.entries[found.0 as usize].used = now;
        Some(found)
    }

    /// Finds the queue of a message in a bucket's list, from `at` on.
    #[inline]
    fn walk(&self, mut at: MpqId, context: Slot, key: &MessageKey) -> Option<MpqId> {
        let (head, rest) = key.split();
        while let Some(entry) = self.entries.get(at.0 as usize) {
            if self.is(at, context, head, || rest.unwrap_or_default()) {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    /// The queue that the next new message of a context will get; `None` when all that it may have are taken.
    #[must_use]
    #[inline]
    pub fn next_free(&self, context: Slot) -> Option<MpqId> {
        self.free.last().or_else(|| self.free_further.last().filter(|&&mpq| self.may_take(context, mpq))).copied()
    }

    /// Takes the [next free](Messages::next_free) queue.
    #[inline]
    fn take_free(&mut self, context: Slot) -> Option<MpqId> {
        self.free.pop().or_else(|| {
            let mpq = self.next_free(context)?;
            self.free_further.truncate(self.free_further.len() - 1);
            Some(mpq)
        })
    }

    /// Whether a message of a context may have a queue.
    pub fn may_take(&self, context: Slot, mpq: MpqId) -> bool {
        mpq.0 < self.pspin_queues || !self.only_pspin[context.0 as usize]
    }

    /// Gives the [next free](Messages::next_free) queue to a message that is not open and whose first frame arrived at `now`.
    pub fn begin(&mut self, context: Slot, key: &MessageKey, now: u64) -> Option<MpqId> {
        self.begin_in(self.bucket(context, key), context, key, now)
    }

    /// Begins a message as [`Messages::begin`] does, with its [bucket](Messages::bucket).
    #[inline]
    pub fn begin_in(&mut self, bucket: usize, context: Slot, key: &MessageKey, now: u64) -> Option<MpqId> {
        let (head, rest) = key.split();
        let mpq = self.take_free(context)?;
        self.entries[mpq.0 as usize] = FlowEntry { head, context, next: self.buckets[bucket], used: now };
        self.held[context.0 as usize] += 1;
        if let Some(rest) = rest {
            self.key_tails[mpq.0 as usize] = rest;
        }
        self.buckets[bucket] = mpq;
        self.begun += 1;
        Some(mpq)
    }

    /// The number of messages that were put in buckets. While it is unchanged, an empty bucket stays empty.
    #[must_use]
    #[inline]
    pub const fn begun(&self) -> u64 {
        self.begun
    }

    /// The queue of a message, if it is open.
    #[must_use]
    pub fn queue_of(&self, context: Slot, key: &MessageKey) -> Option<MpqId> {
        self.walk(self.buckets[self.bucket(context, key)], context, key)
    }

    /// The key of a queue's message.
    #[must_use]
    pub fn key(&self, mpq: MpqId) -> MessageKey {
        MessageKey::join(self.entries[mpq.0 as usize].head, || self.key_tails[mpq.0 as usize])
    }

    /// The number of queues, including free ones.
    #[must_use]
    pub const fn queues(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The number of queues that messages of a context hold.
    #[must_use]
    pub fn held(&self, context: Slot) -> u32 {
        self.held[context.0 as usize]
    }

    /// Frees an idle queue.
    pub fn release(&mut self, mpq: MpqId) {
        let context = self.entries[mpq.0 as usize].context;
        if context != Slot::NOBODY {
            self.release_from(self.bucket(context, &self.key(mpq)), mpq);
        }
    }

    /// Frees a queue that a message holds, with the message's [bucket](Messages::bucket).
    #[inline]
    pub fn release_from(&mut self, bucket: usize, mpq: MpqId) {
        let next = self.entries[mpq.0 as usize].next;
        let mut link = &mut self.buckets[bucket];
        while *link != mpq {
            link = &mut self.entries[link.0 as usize].next;
        }
        *link = next;
        let context = std::mem::replace(&mut self.entries[mpq.0 as usize].context, Slot::NOBODY);
        self.held[context.0 as usize] -= 1;
        let free = if mpq.0 < self.pspin_queues { &mut self.free } else { &mut self.free_further };
        free.push(mpq);
    }

    /// Prefetches a message's [bucket](Messages::bucket). Returns its number.
    #[inline(always)]
    pub fn prefetch_bucket(&self, context: Slot, key: &MessageKey) -> u32 {
        let bucket = self.bucket(context, key);
        prefetch_in(&self.buckets, bucket);
        bucket as u32
    }

    /// The first queue in a bucket, which is most often the one sought; [`MpqId::NONE`]: the bucket is empty.
    #[must_use]
    #[inline]
    pub fn bucket_head(&self, bucket: usize) -> MpqId {
        self.buckets[bucket]
    }

    /// Prefetches the flow entry of a queue.
    #[inline]
    pub fn prefetch(&self, mpq: MpqId) {
        prefetch_in(&self.entries, mpq.0 as usize);
    }

    /// The number of the bucket in which a message is, if it is open.
    #[must_use]
    #[inline]
    pub fn bucket(&self, context: Slot, key: &MessageKey) -> usize {
        #[allow(clippy::cast_possible_truncation, reason = "the lower bits are as good as all")]
        let hash = key.hash_with(self.seed.of(context.0)) as usize;
        hash & (self.buckets.len() - 1)
    }

    /// A queue that a new message of `context` may take over when all are taken. Examines a bounded number of queues that are
    /// `quiescent`. Prefers the longest unused queue of the [largest owner](Messages::rank), if that [holds
    /// more](Messages::holds_more) than `context`. Otherwise returns a queue of `context` itself that was idle for a long time. Open
    /// messages of one user, or of one of a user's contexts, therefore do not keep others from their share.
    pub fn eviction_candidate(&mut self, context: Slot, now: u64, quiescent: impl Fn(MpqId) -> bool) -> Option<MpqId> {
        self.count_by_user();
        let idle = |entry: &FlowEntry| entry.idle(now) >= OWN_IDLE;
        let (before, after) = self.entries.split_at(self.victims as usize);
        let from_here = (self.victims..).zip(after).chain((0..).zip(before)).take(LOOKED_AT as usize);
        let eviction_candidate = from_here
            .map(|(number, entry)| (MpqId(number), entry))
            .filter(|(mpq, entry)| entry.context != Slot::NOBODY && self.may_take(context, *mpq))
            .filter(|(_, entry)| self.holds_more(entry.context, context) || (entry.context == context && idle(entry)))
            .filter(|(mpq, _)| quiescent(*mpq))
            .min_by_key(|(_, entry)| (Reverse(self.rank(entry.context)), entry.used))
            .map(|(mpq, _)| mpq);
        let next = self.victims + LOOKED_AT;
        self.victims = if (next as usize) < self.entries.len() { next } else { 0 };
        eviction_candidate
    }

    /// The [largest owner](Messages::rank), if it [holds more](Messages::holds_more) than `context`.
    pub fn most_over_quota(&mut self, context: Slot) -> Option<Slot> {
        self.count_by_user();
        let owners = (0..).map(Slot).take(self.held.len());
        owners.max_by_key(|&owner| self.rank(owner)).filter(|&owner| self.holds_more(owner, context))
    }

    /// Counts the queues that each user holds.
    fn count_by_user(&mut self) {
        self.held_by_user.fill(0);
        for (&user, held) in self.users.iter().zip(&self.held) {
            self.held_by_user[user as usize] += held;
        }
    }

    /// The numbers of queues that a context's user holds, as last counted, and the context itself. The greatest rank is that of the
    /// largest owner: the largest context of the largest user.
    fn rank(&self, context: Slot) -> (u32, u32) {
        (self.held_by_user[self.users[context.0 as usize] as usize], self.held(context))
    }

    /// Whether the user of `owner` holds more queues than the user of `context` will with one more. Between contexts of one user, the
    /// contexts are compared.
    fn holds_more(&self, owner: Slot, context: Slot) -> bool {
        let ((by_owner, own), (by_other, other)) = (self.rank(owner), self.rank(context));
        let is_same_user = self.users[owner.0 as usize] == self.users[context.0 as usize];
        if is_same_user { own > other + 1 } else { own > 0 && by_owner > by_other + 1 }
    }

    /// The context with most queues, and their number.
    pub fn largest_owner(&self) -> Option<(Slot, u32)> {
        (0..).map(Slot).zip(self.held.iter().copied()).max_by_key(|&(_, held)| held)
    }

    /// Examines the next queue in turn: the paper's pseudo-LRU (§III-B1) as a clock hand. Returns the queue if its message has
    /// been idle for longer than its context's `timeout`.
    pub fn next_expired(&mut self, now: u64, timeout: impl Fn(Slot) -> Option<u64>) -> Option<MpqId> {
        let mpq = MpqId(self.clock_hand);
        self.clock_hand = if mpq.0 as usize + 1 < self.entries.len() { mpq.0 + 1 } else { 0 };
        let entry = self.entries.get(mpq.0 as usize).filter(|entry| entry.context != Slot::NOBODY)?;
        timeout(entry.context).filter(|&most| entry.idle(now) > most).map(|_| mpq)
    }

    /// The queues that messages of a context hold.
    pub fn of_context(&self, context: Slot) -> impl Iterator<Item = MpqId> {
        self.taken().filter(move |(_, entry)| entry.context == context).map(|(mpq, _)| mpq)
    }

    /// Checks the table's parts against each other, and against the free queues.
    ///
    /// # Panics
    /// When they disagree, which is a bug.
    #[doc(hidden)]
    pub fn check(&self, is_free: impl Fn(MpqId) -> bool) {
        let mut held = vec![0; self.held.len()];
        for (mpq, entry) in self.taken() {
            assert!(
                !is_free(mpq),
                "{mpq:?} is leaked: a message of {:?} holds it, and its queue is free",
                entry.context
            );
            assert_eq!(self.queue_of(entry.context, &self.key(mpq)), Some(mpq), "the bucket of a message");
            held[entry.context.0 as usize] += 1;
        }
        assert_eq!(held, self.held, "queues held by context");
        let mut free = [&self.free[..], &self.free_further].concat();
        let count = free.len();
        free.sort_unstable();
        free.dedup();
        let taken = held.iter().sum::<u32>() as usize;
        assert_eq!((free.len(), free.len() + taken), (count, self.entries.len()), "free queues");
        for mpq in free {
            assert_eq!(self.entries[mpq.0 as usize].context, Slot::NOBODY, "{mpq:?} is free and held");
            assert!(is_free(mpq), "{mpq:?} has a message, and nobody holds it");
        }
    }

    fn taken(&self) -> impl Iterator<Item = (MpqId, &FlowEntry)> {
        (0u32..).map(MpqId).zip(&self.entries).filter(|(_, entry)| entry.context != Slot::NOBODY)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use spin_matcher::{HashSeed, Headers, KeySpec, MessageKey};
    use spin_pspin::ids::Slot;
    use spin_pspin::mpq::MpqId;

    use super::Messages;

    /// A short key for even numbers. For odd ones, a long key that differs from others only behind its first bytes.
    fn key(number: u8) -> MessageKey {
        let (mut frame, mut spec) = ([number; 60], KeySpec::default());
        if number % 2 == 1 {
            frame = [0; 60];
            frame[20] = number;
            spec = "frame[0:30]".parse().expect("a key");
        }
        spec.extract(&frame, &Headers::parse(&frame))
    }

    #[test]
    fn one_that_may_be_taken_over_is_found_wherever_it_is() {
        let mut messages = Messages::new(600, 600);
        (0..2).for_each(|context| messages.add_context(Slot(context), 0, false));
        for number in 0..600_u16 {
            let frame = [number.to_le_bytes().as_slice(), &[0; 58]].concat();
            let key = KeySpec::default().extract(&frame, &Headers::parse(&frame));
            messages.begin(Slot(0), &key, 0).expect("a free one");
        }
        let mut victims = [0; 4].map(|_| messages.eviction_candidate(Slot(1), 0, |mpq| mpq == MpqId(500)));
        // Each call examines 256 queues.
        assert_eq!(victims, [None, Some(MpqId(500)), None, None]);
        victims = [0; 4].map(|_| messages.eviction_candidate(Slot(1), 0, |mpq| mpq == MpqId(599)));
        assert_eq!(victims, [None, Some(MpqId(599)), None, None]);
    }

    #[test]
    fn the_largest_context_of_the_largest_user_gives_way() {
        // The user 1 has context 0; the user 0 has the others.
        let held = [3, 1, 4, 4];
        let mut messages = Messages::new(12, 12);
        (0..).zip([1, 0, 0, 0]).for_each(|(context, user)| messages.add_context(Slot(context), user, false));
        let mut now = 0;
        for (context, count) in (0..).zip(held) {
            for number in 0..count {
                messages.queue(Slot(context), &key(number), now).expect("a free one");
                now += 1;
            }
        }
        let candidates = [0, 1, 2].map(|context| {
            let evicted = messages.eviction_candidate(Slot(context), 0, |_| true);
            (evicted.map(|mpq| messages.entries[mpq.0 as usize].context), messages.most_over_quota(Slot(context)))
        });
        let [two, three] = [2, 3].map(|slot| Some(Slot(slot)));
        assert_eq!(candidates, [(two, three), (two, three), (None, None)]);
        // The user 0 has one context with few messages, and takes no queue of a smaller user for it.
        assert!(messages.rank(Slot(1)) < messages.rank(Slot(2)) && !messages.holds_more(Slot(0), Slot(1)));
    }

    #[test]
    fn a_context_for_pspin_takes_no_higher_number() {
        let [pspin, wire] = [0, 1].map(Slot);
        let mut messages = Messages::new(6, 2);
        messages.add_context(pspin, 0, true);
        messages.add_context(wire, 1, false);
        let taken: Vec<_> = (0..6).map_while(|number| messages.queue(wire, &key(number), 0)).collect();
        assert_eq!(taken, [0, 1, 2, 3, 4, 5].map(MpqId));
        assert_eq!((messages.next_free(pspin), messages.queue(pspin, &key(0), 0)), (None, None));
        messages.release(MpqId(5));
        assert_eq!((messages.next_free(pspin), messages.next_free(wire)), (None, Some(MpqId(5))));
        let evicted = messages.eviction_candidate(pspin, 0, |_| true).expect("the other one holds more");
        assert!(evicted.0 < 2);
        messages.release(evicted);
        assert_eq!(messages.next_free(pspin), Some(evicted));
        assert_eq!((messages.queue(pspin, &key(0), 0), messages.next_free(pspin)), (Some(evicted), None));
        messages.check(|mpq| mpq == MpqId(5));
    }

    /// The key of a UDP flow from this address and port.
    fn flow(address: u32, port: u16) -> MessageKey {
        let mut frame = [0; 60];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        (frame[17], frame[23], frame[39]) = (46, 17, 26);
        frame[26..30].copy_from_slice(&address.to_be_bytes());
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        KeySpec::default().extract(&frame, &Headers::parse(&frame))
    }

    #[test]
    fn chains_of_regular_keys_are_short_whatever_the_seed() {
        let ports: Vec<_> = (0..256).map(|number| flow(0x0a00_0001, 1000 + number)).collect();
        let addresses: Vec<_> = (0..256).map(|number| flow(0x0a00_0000 | number, 1000)).collect();
        for (keys, seed) in [ports, addresses].iter().flat_map(|keys| (0..1000).map(move |seed| (keys, seed))) {
            let mut messages = Messages::new(256, 256);
            messages.seed = HashSeed::new(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
            let mut lengths = HashMap::new();
            // The number of entries examined when each key is looked up once.
            let looks: u32 = keys
                .iter()
                .map(|key| {
                    let length = lengths.entry(messages.bucket(Slot(0), key)).or_insert(0);
                    *length += 1;
                    *length
                })
                .sum();
            assert!(looks < 2 * 256, "seed {seed}: {looks}");
        }
    }

    proptest::proptest! {
        #[test]
        fn queues_are_found_as_a_map_finds_them(steps in proptest::collection::vec((0..3_u32, 0..6_u8, 0..12_u32), 1..300)) {
            let mut messages = Messages::new(8, 8);
            (0..3).for_each(|context| messages.add_context(Slot(context), 0, false));
            let mut map: HashMap<(Slot, u8), MpqId> = HashMap::new();
            // The heads of the buckets, read long before.
            let places = (0..3).flat_map(|context| (0..6).map(move |number| (Slot(context), number)));
            let sought: Vec<_> = places.map(|(context, number)| {
                messages.queue(context, &key(number), 0);
                let bucket = messages.bucket(context, &key(number));
                (context, number, bucket, messages.bucket_head(bucket))
            }).collect();
            (0..8).for_each(|mpq| messages.release(MpqId(mpq)));
            for (context, number, freed) in steps {
                for &(context, number, bucket, first) in &sought {
                    let found = messages.find_in((bucket, first), context, &key(number), 0);
                    assert_eq!(found, map.get(&(context, number)).copied());
                }
                let context = Slot(context);
                let found = messages.queue(context, &key(number), 0);
                match map.get(&(context, number)) {
                    known @ Some(_) => assert_eq!(found, known.copied()),
                    None if map.len() == 8 => assert_eq!(found, None, "all are taken"),
                    None => {
                        let mpq = found.expect("one is free");
                        assert!(!map.values().any(|&other| other == mpq), "taken by another");
                        map.insert((context, number), mpq);
                    }
                }
                assert_eq!(messages.of_context(context).count(), map.keys().filter(|(slot, _)| *slot == context).count());
                if freed < 8 {
                    messages.release(MpqId(freed));
                    map.retain(|_, mpq| mpq.0 != freed);
                }
            }
        }
    }
}
