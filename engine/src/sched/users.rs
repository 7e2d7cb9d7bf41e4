//! Accounts of users: the upper level of the [scheduler](crate::sched::scheduler).

use super::entity::SchedEntity;

/// The account of a user.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserEntity {
    uid: u32,
    /// The number of contexts. An account without contexts may be given to another user.
    pub(super) contexts: u32,
    pub(super) entity: SchedEntity,
    /// Virtual time up to which every context of the user with tasks has had its share.
    pub(super) now: u64,
    /// Maximum lead of a context of the user over the others, at weight 1.
    pub(super) max_lead: u64,
    /// The latest [note](Users::begin_note) in which the user had work.
    noted: u64,
    /// The minimum virtual time of the user's contexts in that note.
    min_vtime: u64,
}

/// The users that are furthest behind, in the latest note.
#[derive(Clone, Copy, Debug)]
struct FurthestBehind {
    user: u32,
    vtime: u64,
    /// The minimum virtual time of all other users.
    next: u64,
}

impl FurthestBehind {
    const NOBODY: Self = Self { user: u32::MAX, vtime: u64::MAX, next: u64::MAX };

    fn add(&mut self, user: u32, vtime: u64) {
        if vtime < self.vtime {
            *self = Self { user, vtime, next: self.vtime };
        } else {
            self.next = self.next.min(vtime);
        }
    }
}

/// The accounts of all users.
#[derive(Debug)]
pub(super) struct Users {
    list: Vec<UserEntity>,
    /// The number of users with contexts.
    pub(super) count: u32,
    /// Virtual time up to which every user with tasks has had their share.
    pub(super) now: u64,
    /// Maximum lead of a user over the others, at weight 1.
    pub(super) max_lead: u64,
    /// The number of the latest note.
    note: u64,
    behind: FurthestBehind,
}

impl Users {
    pub(super) const fn new() -> Self {
        // Users are in no note before the first one.
        Self { list: Vec::new(), count: 0, now: 0, max_lead: 0, note: 1, behind: FurthestBehind::NOBODY }
    }

    /// Adds a context of a user with this weight. Returns the number of the user's account.
    ///
    /// A user who had contexts before has the same account again, unless another user got it meanwhile.
    pub(super) fn add_context(&mut self, uid: u32, weight: u32) -> u32 {
        let known = self.list.iter().position(|user| user.uid == uid);
        let index = known.unwrap_or_else(|| self.add(uid, weight));
        let user = &mut self.list[index];
        user.entity.weight = weight;
        self.count += u32::from(user.contexts == 0);
        user.contexts += 1;
        // There are at most as many as contexts.
        u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// Adds a user. Returns the index of the account.
    fn add(&mut self, uid: u32, weight: u32) -> usize {
        let entity = SchedEntity::new(weight, self.now);
        let user = UserEntity { uid, contexts: 0, entity, now: 0, max_lead: 0, noted: 0, min_vtime: 0 };
        let free = self.list.iter().position(|user| user.contexts == 0);
        let index = free.unwrap_or(self.list.len());
        self.list.resize(self.list.len().max(index + 1), user);
        self.list[index] = user;
        index
    }

    /// Removes a context of a user.
    pub(super) fn remove_context(&mut self, user: u32) {
        let user = self.get_mut(user);
        user.contexts -= 1;
        self.count -= u32::from(user.contexts == 0);
    }

    #[inline]
    pub(super) fn get(&self, user: u32) -> &UserEntity {
        &self.list[user as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, user: u32) -> &mut UserEntity {
        &mut self.list[user as usize]
    }

    /// The start tag of a user, who may borrow `borrowed` from the past.
    #[inline]
    pub(super) fn start_tag(&self, user: &UserEntity, borrowed: u64) -> (u64, u64) {
        user.entity.start_tag(self.now.saturating_sub(borrowed))
    }

    /// Begins a note of the users and contexts that have work.
    pub(super) const fn begin_note(&mut self) {
        self.note += 1;
    }

    /// Notes that a context with this virtual time has work.
    #[inline]
    pub(super) fn note(&mut self, user: u32, vtime: u64) {
        let (note, user) = (self.note, self.get_mut(user));
        user.min_vtime = if user.noted == note { user.min_vtime.min(vtime) } else { vtime };
        user.noted = note;
    }

    /// Determines which of the noted users are furthest behind by now.
    pub(super) fn end_note(&mut self, borrowed: u64) {
        let mut behind = FurthestBehind::NOBODY;
        for (number, user) in (0..).zip(&self.list).filter(|(_, user)| user.noted == self.note) {
            behind.add(number, self.start_tag(user, borrowed).0);
        }
        self.behind = behind;
    }

    /// The minimum virtual time of all noted users except this one.
    #[inline]
    pub(super) const fn min_vtime_of_others(&self, user: u32) -> u64 {
        let FurthestBehind { user: first, vtime, next } = self.behind;
        if user == first { next } else { vtime }
    }

    /// The minimum virtual time of the noted contexts of a user.
    #[inline]
    pub(super) const fn min_vtime_in(&self, user: &UserEntity) -> u64 {
        if user.noted == self.note { user.min_vtime } else { u64::MAX }
    }
}
