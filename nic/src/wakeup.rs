//! Wakes a thread that sleeps because its ring is empty.

pub use spin_sync::Wakeup;

use crate::error::NicError;

impl From<spin_sync::NoEvent> for NicError {
    fn from(error: spin_sync::NoEvent) -> Self {
        Self::system("make an eventfd", error.0)
    }
}
