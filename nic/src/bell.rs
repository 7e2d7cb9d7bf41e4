//! Waking a thread that sleeps because its ring is empty.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};

use crate::error::NicError;

/// What the reader of a ring sleeps on, and its writer rings.
///
/// The reader stores `sleeping`, then looks at the ring; the writer writes to the ring, then looks at `sleeping`, each with a
/// sequentially consistent fence between. So at least one of both sees the other's write, and nothing is slept through.
#[derive(Debug)]
pub struct Bell {
    sleeping: AtomicBool,
    event: OwnedFd,
}

impl Bell {
    /// A bell that nobody listens to.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn new() -> Result<Arc<Self>, NicError> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| NicError::system("make an eventfd", errno))?;
        Ok(Arc::new(Self { sleeping: AtomicBool::new(false), event }))
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
        // A full counter wakes as well as one more, so a refused write changes nothing.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Has `sleep` look at the ring once more and, if there is nothing, wait for the descriptor, which is readable when the
    /// bell has rung.
    ///
    /// # Errors
    /// Those of `sleep`.
    pub fn sleep(&self, sleep: impl FnOnce(BorrowedFd<'_>) -> Result<(), NicError>) -> Result<(), NicError> {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let result = sleep(self.event.as_fd());
        self.sleeping.store(false, Ordering::Relaxed);
        // Empties the counter; nothing to empty is fine.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        result
    }
}
