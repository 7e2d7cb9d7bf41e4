//! Waking a thread that sleeps because its ring is empty.

use std::sync::Arc;

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crate::event::{Event, NoEvent, Waiter};

/// What the reader of a ring sleeps on, and its writer rings.
///
/// The reader stores `sleeping`, then looks at the ring; the writer writes to the ring, then looks at `sleeping`, each with a
/// sequentially consistent fence between. So at least one of both sees the other's write, and nothing is slept through.
#[derive(Debug)]
pub struct Bell {
    sleeping: AtomicBool,
    event: Event,
}

impl Bell {
    /// A bell that nobody listens to.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn new() -> Result<Arc<Self>, NoEvent> {
        Ok(Arc::new(Self { sleeping: AtomicBool::new(false), event: Event::new()? }))
    }

    /// Wakes the reader if it sleeps. To be called after something was written to the ring.
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Wakes the reader, also when it only begins to sleep afterwards.
    pub fn wake(&self) {
        self.event.signal();
    }

    /// Has `sleep` look at the ring once more and, if there is nothing, wait for what it is given, which is ready when the bell
    /// has rung.
    pub fn sleep<R>(&self, sleep: impl FnOnce(Waiter<'_>) -> R) -> R {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let result = sleep(self.event.waiter());
        self.sleeping.store(false, Ordering::Relaxed);
        self.event.clear();
        result
    }
}
