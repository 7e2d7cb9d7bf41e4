//! Handles of contexts, and the users that change them.

use std::fmt;

use spin_pspin::ids::Slot;

/// A generational handle: a context's id, which users see, and its slot. Slots are reused, ids are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextHandle {
    /// The id of the context.
    pub id: u32,
    /// The slot of the context.
    pub slot: Slot,
}

/// A user who changes contexts, by user id. Root may change all contexts, others their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User(pub u32);

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}", self.0)
    }
}

impl User {
    /// Whether this user may change a context of `owner`.
    pub(crate) const fn may_change(self, owner: u32) -> bool {
        self.0 == 0 || self.0 == owner
    }
}
