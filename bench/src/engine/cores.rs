//! Threads on cores of their own, as `spind --cores` has them. Without that the thread that looks for handlers that take too long may come
//! to the same core, though others are free: it has priority there, and what it takes depends on what the handlers do.

use std::thread::{self, Scope, ScopedJoinHandle};

use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity};
use spin_nic::affinity::pin;

use super::lab::Failure;

/// Starts `work` on the core with this number among those that the process may use; from the first one again when they are fewer. Where its parent
/// may run if that core is not to be had, which is said: others may wait for what it does.
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

/// Has this thread run on that core alone.
fn take(number: usize) -> Result<(), Failure> {
    // The first thread stays where it may be anywhere.
    let cores = sched_getaffinity(Some(getpid()))?;
    let all = (0..CpuSet::MAX_CPU).filter(|&core| cores.is_set(core));
    Ok(pin(all.cycle().nth(number).ok_or("no core may be used")?)?)
}

/// What came of it.
///
/// # Errors
/// Its own; when it panicked, that.
pub(super) fn end<T>(thread: ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
}

/// What comes of `work` on the first core.
///
/// # Errors
/// See [`end`].
pub(super) fn on_first<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    thread::scope(|scope| end(start(scope, 0, work)))
}
