//! The time limit of running tasks: checks from time to time, on the tasks' thread.
//!
//! The [`monitor`](super::monitor) signals a thread that is at the same task as at [`Watch::check_after`] before. From
//! then on a timer ticks until it finds another task. Without a monitor the timer ticks every [`CHECK_PERIOD`] while
//! there are tasks. It stops by itself after a tick without a watched task, and is restarted when tasks are watched
//! again. The first check that sees a task records the time; a check `limit` later ends it. A task therefore ends
//! between its limit and one tick later. A task seen twice in a waiting loop is asked to park; the second check follows
//! after [`RECHECK`]. A task with a limit of at most a tick is asked at the first check that interrupts it. A task that
//! may park is asked to do so before it is ended.
//!
//! Time during which a thread is preempted, by other threads or by the host of a virtual machine, is not its task's
//! fault. Its ticks are late then, and each counts for at most twice its period. Checks by the monitor count the
//! thread's own processor time.
//!
//! [`CHECK_PERIOD`]: super::watch::CHECK_PERIOD
//! [`RECHECK`]: super::watch::RECHECK

use std::fmt;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use libc::timer_t;

use super::monitor::Monitor;
use super::signals::{TrapError, errno, watchdog_signal};
use super::watch::Watch;
use super::{fault, tick};

/// The watchdog of the thread that made it.
pub(crate) struct Watchdog {
    watch: Arc<Watch>,
    monitor: Option<&'static Monitor>,
    /// Keeps the watchdog on its thread.
    _not_send: PhantomData<*const ()>,
}

/// Installs the signal handlers, once for the process. Faults outside of translated code go to the former handlers.
///
/// # Errors
/// [`TrapError::Handler`], again on every later call.
pub(super) fn install() -> Result<(), TrapError> {
    static INSTALLED: OnceLock<Result<(), TrapError>> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        fault::install()?;
        tick::install()
    })
}

impl Watchdog {
    /// Makes a watchdog for the tasks of this thread, with the monitor if there is one.
    ///
    /// # Errors
    /// See [`TrapError`]: a thread has one at a time.
    pub(crate) fn new() -> Result<Self, TrapError> {
        Self::with(Monitor::get())
    }

    /// Makes a watchdog with this monitor, or without one.
    pub(super) fn with(monitor: Option<&'static Monitor>) -> Result<Self, TrapError> {
        install()?;
        if Watch::is_installed() {
            return Err(TrapError::Watched);
        }
        let watch = Arc::new(Watch::new(create_timer()?, monitor.map(Monitor::thread)));
        Watch::install(&watch);
        if let Some(monitor) = monitor {
            monitor.add(&watch);
        }
        Ok(Self { watch, monitor, _not_send: PhantomData })
    }

    /// Checks the tasks of other threads, unless only the monitor does. Returns the nanoseconds to the next call.
    pub(crate) fn poll_peers(&self) -> u64 {
        self.monitor.map_or(u64::MAX, |monitor| monitor.check_for_peers(&self.watch))
    }

    /// Notes that this thread checks no others for a while.
    pub(crate) fn stop_polling(&self) {
        if let Some(monitor) = self.monitor {
            monitor.stop_polling(&self.watch);
        }
    }

    /// The thread's watch.
    #[inline]
    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").finish_non_exhaustive()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(monitor) = self.monitor {
            monitor.remove(&self.watch);
        }
        self.watch.uninstall();
    }
}

/// Creates a timer that signals this thread.
fn create_timer() -> Result<timer_t, TrapError> {
    // SAFETY: all zeroes is a `sigevent`.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = watchdog_signal();
    let mut timer: timer_t = null_mut();
    // SAFETY: both structures are valid for the time of the call.
    let result = unsafe {
        event.sigev_notify_thread_id = libc::gettid();
        libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer)
    };
    if result == 0 { Ok(timer) } else { Err(TrapError::Timer { errno: errno() }) }
}
