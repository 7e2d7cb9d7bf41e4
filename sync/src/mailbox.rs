//! What a thread is asked to do between two turns.

use std::sync::Arc;

#[cfg(loom)]
use modelled::{Receiver, Sender, channel};
#[cfg(not(loom))]
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::bell::Bell;
use crate::event::Waiter;

/// Where requests are put.
#[derive(Debug)]
pub struct Mailbox<R> {
    requests: Sender<R>,
    bell: Arc<Bell>,
}

/// The end of the thread that does them, and sleeps on the bell.
#[derive(Debug)]
pub struct Inbox<R> {
    requests: Receiver<R>,
    bell: Arc<Bell>,
}

/// A mailbox of a thread that sleeps on `bell`.
#[must_use]
pub fn mailbox<R>(bell: Arc<Bell>) -> (Mailbox<R>, Inbox<R>) {
    let (sender, receiver) = channel();
    (Mailbox { requests: sender, bell: bell.clone() }, Inbox { requests: receiver, bell })
}

impl<R> Mailbox<R> {
    /// Puts a request in, and wakes the thread, also when it only begins to sleep: it looks here before each turn, not between its
    /// last look and its sleep. A thread that has ended drops the request.
    pub fn put(&self, request: R) {
        let _ = self.requests.send(request);
        self.bell.wake();
    }
}

impl<R> Inbox<R> {
    /// The next request, if one waits.
    pub fn next(&self) -> Option<R> {
        self.requests.try_recv().ok()
    }

    /// As [`Bell::sleep`]. A request ends the sleep, or is there already: look at [`Inbox::next`] afterwards.
    pub fn sleep<T>(&self, sleep: impl FnOnce(Waiter<'_>) -> T) -> T {
        self.bell.sleep(sleep)
    }

    /// The next request, waiting for it for at most so long.
    #[cfg(not(loom))]
    pub fn wait(&self, longest: std::time::Duration) -> Option<R> {
        use std::sync::mpsc::RecvTimeoutError;
        self.requests
            .recv_timeout(longest)
            // Nobody is left to ask: the time passes all the same.
            .inspect_err(|error| {
                if *error == RecvTimeoutError::Disconnected {
                    std::thread::park_timeout(longest);
                }
            })
            .ok()
    }
}

/// The standard library's channel as far as mailboxes use it: loom's own is not preempted where that matters.
#[cfg(loom)]
mod modelled {
    use std::collections::VecDeque;

    use loom::sync::{Arc, Mutex};

    #[derive(Debug)]
    pub struct Sender<R>(Arc<Mutex<VecDeque<R>>>);
    #[derive(Debug)]
    pub struct Receiver<R>(Arc<Mutex<VecDeque<R>>>);

    pub fn channel<R>() -> (Sender<R>, Receiver<R>) {
        let queue = Arc::new(Mutex::new(VecDeque::new()));
        (Sender(queue.clone()), Receiver(queue))
    }

    impl<R> Sender<R> {
        pub fn send(&self, request: R) -> Result<(), R> {
            self.0.lock().unwrap().push_back(request);
            Ok(())
        }
    }

    impl<R> Receiver<R> {
        pub fn try_recv(&self) -> Result<R, ()> {
            self.0.lock().unwrap().pop_front().ok_or(())
        }
    }
}
