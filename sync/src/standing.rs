//! What a thread lets others know of itself, so that they lend to it, and so that none ends before the last has lent.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};

/// A thread's own writing on the wall: on a cache line of its own, since all others read it.
///
/// A lender hands over before it says that it [lends no more](Standing::stop_lending). Who asks [that](Standing::lends), and looks at what
/// was handed over afterwards, has seen the last of it.
#[derive(Debug)]
#[repr(align(64))]
pub struct Standing {
    idle: AtomicBool,
    lends: AtomicBool,
}

impl Default for Standing {
    fn default() -> Self {
        Self { idle: AtomicBool::new(false), lends: AtomicBool::new(true) }
    }
}

impl Standing {
    /// Whether it has nothing of its own to do, as far as others know. A hint: what is lent meanwhile is seen all the same.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Relaxed)
    }

    /// Says whether it has nothing of its own to do.
    pub fn set_idle(&self, idle: bool) {
        self.idle.store(idle, Ordering::Relaxed);
    }

    /// Whether it may still lend something.
    #[must_use]
    pub fn lends(&self) -> bool {
        self.lends.load(Ordering::Acquire)
    }

    /// Says that nothing is lent any more.
    pub fn stop_lending(&self) {
        self.lends.store(false, Ordering::Release);
    }
}
