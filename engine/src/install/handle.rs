//! By what contexts are known, and on whose behalf they are changed.

use std::fmt;

use crate::context::{Context, Slot};

/// By what a context is known to users, and among the engine's contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its id.
    pub id: u32,
    /// Its slot.
    pub slot: Slot,
}

/// On whose behalf a context is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User(pub u32);

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}", self.0)
    }
}

impl User {
    pub(super) fn may_change(self, context: &Context) -> bool {
        self.0 == 0 || self.0 == context.uid
    }
}
