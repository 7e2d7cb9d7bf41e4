//! The primitive that a thread sleeps on: an eventfd, or loom's stand-in for one.

/// The kernel provides no eventfd.
#[derive(Debug)]
pub struct NoEvent(
    /// Error of the kernel.
    pub std::io::Error,
);

#[cfg(not(loom))]
mod kernel {
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};

    use super::NoEvent;

    /// Descriptor that a sleeping thread waits for, among others. Readable after a signal.
    pub type Waiter<'e> = BorrowedFd<'e>;

    #[derive(Debug)]
    pub struct Event(OwnedFd);

    impl Event {
        pub fn new() -> Result<Self, NoEvent> {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            Ok(Self(event.map_err(|errno| NoEvent(errno.into()))?))
        }

        pub fn signal(&self) {
            // A refused write changes nothing: a full counter wakes the thread as well.
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }

        pub fn clear(&self) {
            // Clears the counter. An error means that it was zero already.
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }

        pub fn waiter(&self) -> Waiter<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(loom)]
mod modelled {
    use loom::sync::{Condvar, Mutex};

    use super::NoEvent;

    /// Event that a sleeping thread waits for.
    pub type Waiter<'e> = &'e Event;

    /// Model of an eventfd: a signal stays until it is cleared, and each system call is atomic.
    #[derive(Debug)]
    pub struct Event {
        signalled: Mutex<bool>,
        changed: Condvar,
    }

    impl Event {
        pub fn new() -> Result<Self, NoEvent> {
            Ok(Self { signalled: Mutex::new(false), changed: Condvar::new() })
        }

        pub fn signal(&self) {
            *self.signalled.lock().unwrap() = true;
            self.changed.notify_one();
        }

        pub fn clear(&self) {
            *self.signalled.lock().unwrap() = false;
        }

        pub fn waiter(&self) -> Waiter<'_> {
            self
        }

        /// poll(2), without a timeout.
        pub fn wait(&self) {
            let mut signalled = self.signalled.lock().unwrap();
            while !*signalled {
                signalled = self.changed.wait(signalled).unwrap();
            }
        }
    }
}

#[cfg(not(loom))]
pub use kernel::{Event, Waiter};
#[cfg(loom)]
pub use modelled::{Event, Waiter};
