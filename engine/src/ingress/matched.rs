//! Classification results of frames, from their reception until they are queued.

use spin_matcher::MessageKey;
use spin_pspin::ids::Slot;
use spin_pspin::mpq::MpqId;

/// The classification result of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Match {
    /// The context that the frame belongs to; [`Slot::NOBODY`]: none.
    pub owner: Slot,
    /// Whether the frame is the last one of its message.
    pub end_of_message: bool,
    /// The key of the message, unique within its context.
    pub key: MessageKey,
}

impl Default for Match {
    /// A frame that no context matched.
    fn default() -> Self {
        Self { owner: Slot::NOBODY, end_of_message: false, key: MessageKey::default() }
    }
}

impl Match {
    /// The context, if there is one.
    #[must_use]
    #[inline]
    pub fn slot(&self) -> Option<Slot> {
        Some(self.owner).filter(|&owner| owner != Slot::NOBODY)
    }
}

/// A [`Match`] in compact form: half a cache line, since a batch has many. Holds only the [first](MessageKey::split) bytes of the
/// key, and adds the bucket of the message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchEntry {
    /// The first bytes of the key.
    head: [u64; 2],
    pub(crate) owner: Slot,
    /// The [bucket](crate::message::messages::Messages::bucket) of the message, in the message table of its home thread.
    pub(crate) bucket: u32,
    /// The first queue in the bucket when that was read.
    pub(crate) first: MpqId,
    /// The length of the key in bytes.
    length: u8,
    pub(crate) end_of_message: bool,
}

impl MatchEntry {
    pub(crate) const NOTHING: Self =
        Self { head: [0; 2], owner: Slot::NOBODY, bucket: 0, first: MpqId::NONE, length: 0, end_of_message: false };

    /// Stores the classification result of a frame. The bytes behind the key's first ones go to `rest`, if there are any.
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

    /// The first bytes and the length of the key.
    #[inline(always)]
    pub(crate) const fn head(&self) -> ([u64; 2], u8) {
        (self.head, self.length)
    }
}

/// The classification results of a batch, by index.
#[derive(Debug)]
pub(crate) struct MatchedBatch {
    entries: Vec<MatchEntry>,
    /// The key bytes behind the first ones, for keys that are that long.
    key_tails: Vec<[u64; 4]>,
}

impl MatchedBatch {
    /// A batch with `places` entries.
    pub(crate) fn new(places: usize) -> Self {
        const { assert!(size_of::<MatchEntry>() == 32, "two are in a cache line") };
        Self { entries: vec![MatchEntry::NOTHING; places], key_tails: vec![[0; 4]; places] }
    }

    /// Makes room for `places` entries.
    #[inline]
    pub(crate) fn reserve(&mut self, places: usize) {
        if self.entries.len() < places {
            self.entries.resize(places, MatchEntry::NOTHING);
            self.key_tails.resize(places, [0; 4]);
        }
    }

    /// The first `count` entries.
    #[inline(always)]
    pub(crate) fn first(&self, count: usize) -> &[MatchEntry] {
        &self.entries[..count]
    }

    /// The first `count` entries, and the key bytes behind their first ones.
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

    /// The key bytes behind the first ones, if the key is that long.
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
