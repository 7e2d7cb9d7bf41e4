//! What frames were found to be, from their arrival until they are queued.

use spin_matcher::MessageKey;
use spin_pspin::ids::Slot;
use spin_pspin::mpq::MpqId;

/// What a frame was found to be.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its context; [`Slot::NOBODY`]: it has none.
    pub owner: Slot,
    /// It is its message's last.
    pub end_of_message: bool,
    /// Its message, among the context's.
    pub key: MessageKey,
}

impl Default for Found {
    /// Nothing yet.
    fn default() -> Self {
        Self { owner: Slot::NOBODY, end_of_message: false, key: MessageKey::default() }
    }
}

impl Found {
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
pub(crate) struct Gist {
    /// The key's first bytes,
    head: [u64; 2],
    pub(crate) owner: Slot,
    /// The [chain](crate::message::messages::Messages::chain) that its message is in, as the thread has it whose message it is,
    pub(crate) chain: u32,
    /// and the first queue in it, when it was sought.
    pub(crate) first: MpqId,
    /// and how many it has.
    length: u8,
    pub(crate) end_of_message: bool,
}

impl Gist {
    pub(crate) const NOTHING: Self =
        Self { head: [0; 2], owner: Slot::NOBODY, chain: 0, first: MpqId::NONE, length: 0, end_of_message: false };

    /// Notes what a frame was found to be, and what there is behind the key's first bytes, if anything is.
    #[inline(always)]
    pub(crate) const fn note(
        &mut self,
        rest: &mut [u64; 4],
        owner: Slot,
        chain: u32,
        key: MessageKey,
        end_of_message: bool,
    ) {
        let ((head, length), behind) = key.split();
        *self = Self { head, owner, chain, first: MpqId::NONE, length, end_of_message };
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
pub(crate) struct Finds {
    gists: Vec<Gist>,
    /// What is behind the first bytes of their keys, of those that have some.
    rests: Vec<[u64; 4]>,
}

impl Finds {
    /// With so many places.
    pub(crate) fn new(places: usize) -> Self {
        const { assert!(size_of::<Gist>() == 32, "two are in a cache line") };
        Self { gists: vec![Gist::NOTHING; places], rests: vec![[0; 4]; places] }
    }

    /// Makes room for so many.
    #[inline]
    pub(crate) fn reserve(&mut self, places: usize) {
        if self.gists.len() < places {
            self.gists.resize(places, Gist::NOTHING);
            self.rests.resize(places, [0; 4]);
        }
    }

    /// The first ones.
    #[inline(always)]
    pub(crate) fn first(&self, count: usize) -> &[Gist] {
        &self.gists[..count]
    }

    /// The first ones, and what is behind the first bytes of their keys.
    #[inline(always)]
    pub(crate) fn first_mut(&mut self, count: usize) -> (&mut [Gist], &mut [[u64; 4]]) {
        (&mut self.gists[..count], &mut self.rests[..count])
    }

    #[inline(always)]
    pub(crate) fn gist(&self, place: usize) -> &Gist {
        &self.gists[place]
    }

    #[inline]
    pub(crate) fn gist_mut(&mut self, place: usize) -> &mut Gist {
        &mut self.gists[place]
    }

    /// What is behind the first bytes of a key that is so long.
    #[inline]
    pub(crate) fn rest(&self, place: usize) -> [u64; 4] {
        self.rests[place]
    }

    #[inline]
    pub(crate) fn key(&self, place: usize) -> MessageKey {
        MessageKey::join(self.gist(place).head(), || self.rest(place))
    }

    #[inline]
    pub(crate) fn get(&self, place: usize) -> Found {
        let &Gist { owner, end_of_message, .. } = self.gist(place);
        Found { owner, end_of_message, key: self.key(place) }
    }

    #[inline]
    pub(crate) fn set(&mut self, place: usize, Found { owner, end_of_message, key }: Found) {
        self.gists[place].note(&mut self.rests[place], owner, 0, key, end_of_message);
    }

    pub(crate) fn swap(&mut self, one: usize, other: usize) {
        if [one, other].iter().any(|&place| MessageKey::goes_on(self.gists[place].length)) {
            self.rests.swap(one, other);
        }
        self.gists.swap(one, other);
    }
}
