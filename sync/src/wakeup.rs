//! Waking a thread that sleeps because its ring is empty.

use std::sync::Arc;

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crate::event::{Event, NoEvent, Waiter};

/// An eventfd that the reader of a ring sleeps on. The writer signals it only while the reader sleeps.
///
/// The reader stores `sleeping`, then checks the ring. The writer writes to the ring, then checks `sleeping`. Each has a sequentially
/// consistent fence between the two. So at least one of them sees the other's write, and the reader never sleeps while an item waits.
///
/// A wake-up has a cache line of its own, since its neighbours in memory may be those of any thread.
#[derive(Debug)]
#[repr(align(64))]
pub struct Wakeup {
    sleeping: AtomicBool,
    event: Event,
}

impl Wakeup {
    /// A wake-up without a sleeper.
    ///
    /// # Errors
    /// When the kernel provides no eventfd.
    pub fn new() -> Result<Arc<Self>, NoEvent> {
        Ok(Arc::new(Self { sleeping: AtomicBool::new(false), event: Event::new()? }))
    }

    /// Wakes the reader if it sleeps. The writer calls this after it has written to the ring.
    pub fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Wakes the reader, even if it begins to sleep only afterwards.
    pub fn wake(&self) {
        self.event.signal();
    }

    /// Calls `sleep`, which checks the ring once more and waits on its argument if the ring is empty. The argument becomes ready with
    /// [`Wakeup::notify`].
    pub fn sleep<R>(&self, sleep: impl FnOnce(Waiter<'_>) -> R) -> R {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let result = sleep(self.event.waiter());
        self.sleeping.store(false, Ordering::Relaxed);
        self.event.clear();
        result
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Wakeup;

    #[test]
    fn the_sleeper_alone_writes_its_line() {
        spin_testing::assert_lines!(Wakeup { sleeping: "the sleeper", event: "" });
    }
}
