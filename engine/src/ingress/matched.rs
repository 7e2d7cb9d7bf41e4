//! What frames were found to be, from their arrival until they are queued.

use spin_matcher::MessageKey;
use spin_pspin::ids::Slot;
use spin_pspin::mpq::MpqId;

/// What a frame was found to be.
#[derive(Clone, Copy, Debug)]
pub struct Match {
    /// Its context; [`Slot::NOBODY`]: it has none.
    pub owner: Slot,
    /// It is its message's last.
    pub end_of_message: bool,
    /// Its message, among the context's.
    pub key: MessageKey,
}

impl Default for Match {
    /// Nothing yet.
    fn default() -> Self {
        Self { owner: Slot::NOBODY, end_of_message: false, key: MessageKey::default() }
    }
}

impl Match {
    /// Its context, if it has one.
    #[must_use]
    #[inline]
    pub fn slot(&self) -> Option<Slot> {
        Some(self.owner).filter(|&owner| owner != Slot::NOBODY)
    }
}

/// The same but for what is behind the [first](MessageKey::split) bytes of the key, and where its message is sought: half a cache line, of
/// which a batch has many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchEntry {
    /// The key's first bytes,
    head: [u64; 2],
    pub(crate) owner: Slot,
    /// The [chain](crate::message::messages::Messages::bucket) that its message is in, as the thread has it whose message it is,
    pub(crate) bucket: u32,
    /// and the first queue in it, when it was sought.
    pub(crate) first: MpqId,
    /// and how many it has.
    length: u8,
    pub(crate) end_of_message: bool,
}

impl MatchEntry {
    pub(crate) const NOTHING: Self =
        Self { head: [0; 2], owner: Slot::NOBODY, bucket: 0, first: MpqId::NONE, length: 0, end_of_message: false };

    /// Notes what a frame was found to be, and what there is behind the key's first bytes, if anything is.
    #[inline(always)]
    pub(crate) const fn note(
        &mut self,
        rest: &mut [u64; 4],
        owner: Slot,
        bucket: u32,
        key: MessageKey,
        end_of_message: bool,
    ) {
        let ((head, length), behind) = key.split();
        *self = Self { head, owner, bucket, first: MpqId::NONE, length, end_of_message };
        if let Some(behind) = behind {
            *rest = behind;
        }
    }

    /// The key's first bytes, and how many it has.
    #[inline(always)]
    pub(crate) const fn head(&self) -> ([u64; 2], u8) {
        (self.head, self.length)
    }
}

/// What many frames were found to be, by place.
#[derive(Debug)]
pub(crate) struct MatchedBatch {
    entries: Vec<MatchEntry>,
    /// What is behind the first bytes of their keys, of those that have some.
    key_tails: Vec<[u64; 4]>,
}

impl MatchedBatch {
    /// With so many places.
    pub(crate) fn new(places: usize) -> Self {
        const { assert!(size_of::<MatchEntry>() == 32, "two are in a cache line") };
        Self { entries: vec![MatchEntry::NOTHING; places], key_tails: vec![[0; 4]; places] }
    }

    /// Makes room for so many.
    #[inline]
    pub(crate) fn reserve(&mut self, places: usize) {
        if self.entries.len() < places {
            self.entries.resize(places, MatchEntry::NOTHING);
            self.key_tails.resize(places, [0; 4]);
        }
    }

    /// The first ones.
    #[inline(always)]
    pub(crate) fn first(&self, count: usize) -> &[MatchEntry] {
        &self.entries[..count]
    }

    /// The first ones, and what is behind the first bytes of their keys.
    #[inline(always)]
    pub(crate) fn first_mut(&mut self, count: usize) -> (&mut [MatchEntry], &mut [[u64; 4]]) {
        (&mut self.entries[..count], &mut self.key_tails[..count])
    }

    #[inline(always)]
    pub(crate) fn entry(&self, place: usize) -> &MatchEntry {
        &self.entries[place]
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, place: usize) -> &mut MatchEntry {
        &mut self.entries[place]
    }

    /// What is behind the first bytes of a key that is so long.
    #[inline]
    pub(crate) fn rest(&self, place: usize) -> [u64; 4] {
        self.key_tails[place]
    }

    #[inline]
    pub(crate) fn key(&self, place: usize) -> MessageKey {
        MessageKey::join(self.entry(place).head(), || self.rest(place))
    }

    #[inline]
    pub(crate) fn get(&self, place: usize) -> Match {
        let &MatchEntry { owner, end_of_message, .. } = self.entry(place);
        Match { owner, end_of_message, key: self.key(place) }
    }

    #[inline]
    pub(crate) fn set(&mut self, place: usize, Match { owner, end_of_message, key }: Match) {
        self.entries[place].note(&mut self.key_tails[place], owner, 0, key, end_of_message);
    }

    pub(crate) fn swap(&mut self, one: usize, other: usize) {
        if [one, other].iter().any(|&place| MessageKey::goes_on(self.entries[place].length)) {
            self.key_tails.swap(one, other);
        }
        self.entries.swap(one, other);
    }
}
