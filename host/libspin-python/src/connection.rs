//! A connection to spind whose requests Ctrl-C can interrupt, and that several threads can use.
//!
//! A thread of the connection owns the client and makes the requests one after the other. The caller waits for the reply
//! without the GIL and runs Python's signal handlers in between. A caller that gives up during its request shuts the
//! socket down, since the reply would answer the next request.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use libspin::{Client, Error};
use pyo3::prelude::*;
use spin_shm::without_signals;

use crate::errors::{InternalError, closed, exception};

/// Longest time until a waiting thread runs Python's signal handlers.
pub const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Makes one request.
type Job = Box<dyn FnOnce(&mut Client) + Send>;

/// The thread that owns the client.
struct Worker {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

/// A connection to spind.
pub struct Connection {
    /// `None`: closed.
    worker: Mutex<Option<Worker>>,
    /// The client's socket.
    socket: UnixStream,
    /// A forked process has the socket, but not the thread.
    process: u32,
}

impl Connection {
    /// Connects to the daemon that listens at `path`.
    pub fn open(path: &Path) -> PyResult<Self> {
        let mut client = Client::connect(path).map_err(|error| exception(&error))?;
        let socket = client.as_fd().try_clone_to_owned().map(UnixStream::from)?;
        let (jobs, queue) = channel::<Job>();
        let thread = std::thread::Builder::new().name("libspin".into());
        let run = move || queue.into_iter().for_each(|job| job(&mut client));
        // A program may block a signal in its threads, to wait for it.
        let thread = without_signals(|| thread.spawn(run))?;
        Ok(Self { worker: Mutex::new(Some(Worker { jobs, thread })), socket, process: std::process::id() })
    }

    /// Makes a request in the connection's thread, after those of other callers.
    pub fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        request: impl FnOnce(&mut Client) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        // Whoever sets it first decides: the thread that begins, or the caller that gives up.
        let begun = Arc::new(AtomicBool::new(false));
        let (reply, mut answer) = channel();
        let is_begun = Arc::clone(&begun);
        self.send(Box::new(move |client| {
            if !is_begun.swap(true, Ordering::Relaxed) {
                // The caller may have given up.
                let _ = reply.send(request(client));
            }
        }))?;
        match wait(py, &mut answer) {
            Ok(answer) => answer.map_err(|error| exception(&error)),
            Err(error) => {
                if begun.swap(true, Ordering::Relaxed) {
                    drop(self.shut_down());
                }
                Err(error)
            }
        }
    }

    fn send(&self, job: Job) -> PyResult<()> {
        if self.process != std::process::id() {
            return Err(InternalError::new_err("a client is not usable in a forked process: connect again"));
        }
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = worker.as_ref().ok_or_else(closed)?;
        // Fails if an earlier request panicked.
        worker.jobs.send(job).map_err(|_| closed())
    }

    /// Closes the connection, and waits for its thread. Requests under way fail.
    pub fn close(&self, py: Python<'_>) {
        if let Some(worker) = self.shut_down() {
            drop(worker.jobs);
            // A request that panicked has failed already.
            let _ = py.detach(|| worker.thread.join());
        }
    }

    /// Closes the connection, and returns its thread, which ends.
    fn shut_down(&self) -> Option<Worker> {
        if self.process != std::process::id() {
            // The connection is the parent's.
            return None;
        }
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        // An error means that spind has closed it.
        let _ = self.socket.shutdown(Shutdown::Both);
        Some(worker)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        drop(self.shut_down());
    }
}

/// Waits for an answer. Fails when a signal handler raises an exception.
fn wait<T: Send>(py: Python<'_>, answer: &mut Receiver<T>) -> PyResult<T> {
    loop {
        let answer = &mut *answer;
        match py.detach(move || answer.recv_timeout(SIGNAL_INTERVAL)) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Err(InternalError::new_err("internal error: panic")),
        }
    }
}
