//! Requests that a thread carries out between two polls.

use std::sync::Arc;

#[cfg(loom)]
use modelled::{Receiver, Sender, channel};
#[cfg(not(loom))]
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::event::Waiter;
use crate::wakeup::Wakeup;

/// Sends requests.
#[derive(Debug)]
pub struct RequestTx<R> {
    requests: Sender<R>,
    wakeup: Arc<Wakeup>,
}

/// Receives requests, in the thread that sleeps on the wake-up.
#[derive(Debug)]
pub struct RequestRx<R> {
    requests: Receiver<R>,
    wakeup: Arc<Wakeup>,
}

/// A request queue for a thread that sleeps on `wakeup`.
#[must_use]
pub fn request_queue<R>(wakeup: Arc<Wakeup>) -> (RequestTx<R>, RequestRx<R>) {
    let (sender, receiver) = channel();
    (RequestTx { requests: sender, wakeup: wakeup.clone() }, RequestRx { requests: receiver, wakeup })
}

impl<R> RequestTx<R> {
    /// Sends a request, and wakes the thread even if it has not begun to sleep: it checks the queue before each poll, not between its
    /// last check and its sleep. A thread that has ended drops the request.
    pub fn send(&self, request: R) {
        let _ = self.requests.send(request);
        self.wakeup.wake();
    }
}

impl<R> RequestRx<R> {
    /// The next request, if there is one.
    pub fn next(&self) -> Option<R> {
        self.requests.try_recv().ok()
    }

    /// As [`Wakeup::sleep`]. A request ends the sleep or prevents it: call [`RequestRx::next`] afterwards.
    pub fn sleep<T>(&self, sleep: impl FnOnce(Waiter<'_>) -> T) -> T {
        self.wakeup.sleep(sleep)
    }

    /// The next request. Waits at most `longest`.
    #[cfg(not(loom))]
    pub fn wait(&self, longest: std::time::Duration) -> Option<R> {
        use std::sync::mpsc::RecvTimeoutError;
        self.requests
            .recv_timeout(longest)
            // All senders are gone. Wait for the full time nevertheless.
            .inspect_err(|error| {
                if *error == RecvTimeoutError::Disconnected {
                    std::thread::park_timeout(longest);
                }
            })
            .ok()
    }
}

/// The part of the standard library's channel that request queues use. loom's own channel is not preempted where that matters.
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
