//! Threads on cores of their own, as with `spind --cores`. Otherwise the watchdog's monitor thread may run on the same
//! core although others are free. It has priority there, and its cost depends on the handlers.

use std::thread::{self, Scope, ScopedJoinHandle};

use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity};
use spin_nic::affinity::pin;

use super::lab::Failure;

/// Starts `work` on the core with this number among those that the process may use; the number wraps around when there
/// are fewer. If the core is unavailable, prints a note and runs `work` on the parent's cores, since other threads may
/// wait for its result.
pub(super) fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    number: usize,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'scope,
) -> ScopedJoinHandle<'scope, Result<T, Failure>> {
    scope.spawn(move || {
        if let Err(error) = take(number) {
            eprintln!("a thread has no core of its own: {error}");
        }
        work()
    })
}

/// Pins this thread to one core.
fn take(number: usize) -> Result<(), Failure> {
    // The main thread is never pinned, so its affinity contains all usable cores.
    let cores = sched_getaffinity(Some(getpid()))?;
    let all = (0..CpuSet::MAX_CPU).filter(|&core| cores.is_set(core));
    Ok(pin(all.cycle().nth(number).ok_or("no core may be used")?)?)
}

/// Joins a thread and returns its result.
///
/// # Errors
/// The thread's own error, or its panic.
pub(super) fn end<T>(thread: ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
}

/// Runs `work` on the first core.
///
/// # Errors
/// See [`end`].
pub(super) fn on_first<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    thread::scope(|scope| end(start(scope, 0, work)))
}
