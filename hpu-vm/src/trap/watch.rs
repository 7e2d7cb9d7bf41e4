//! Time limit of a thread's tasks: what the thread, its timer and the monitor know of them.
//!
//! Starting a task is a plain store.

use std::cell::Cell;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, compiler_fence};
use std::thread::Thread;

use libc::{c_void, timer_t};

use crate::jit::State;

/// Nanoseconds between two checks. Tasks still end within a millisecond after their limit. In a virtual machine that
/// was measured a tick takes 25 us, 3 of them for the signal.
pub(super) const CHECK_PERIOD: i64 = 900_000;
/// Nanoseconds to the next check of a task that waits, is about to be ended, or could not be ended.
pub(super) const RECHECK: i64 = 50_000;
/// Upper bound in nanoseconds of the time to the next check after a task was ended or asked to park: the next task may
/// be similar. If the monitor has a core for itself, it makes the check after an ended task.
pub(super) const AFTER_KILL: i64 = 200_000;

/// A thread's timer, and state of the checks of its tasks. The thread and its signal handler write it; the monitor
/// writes what says so.
pub(crate) struct Watch {
    /// State of the thread's tasks, also between two of them; null when the thread runs none.
    pub(super) running: AtomicPtr<State>,
    /// Counts tasks.
    pub(super) sequence: AtomicU64,
    /// The monitor checks this thread, or the timer is set. The monitor may clear it.
    pub(super) is_checked: AtomicBool,
    /// Nanoseconds from the monitor's record of a task to the check of it.
    pub(super) check_after: AtomicU64,
    timer: AtomicPtr<c_void>,
    /// `timer` is valid (its id may be null).
    timer_exists: AtomicBool,
    /// Sequence number of the task at the last tick.
    last_seen: AtomicU64,
    /// Nanoseconds that this task had run by then.
    used: AtomicU64,
    /// Time of that tick in nanoseconds.
    last_tick: AtomicU64,
    /// Nanoseconds from a tick to the next one; 0 before the first timer is set.
    pub(super) period: AtomicU64,
    /// The last tick ended a task or asked it to end. The next task is probably similar, so the next tick comes soon in
    /// any case.
    pub(super) recheck_next: AtomicBool,
    /// A task used up its time since the last check.
    pub(super) timed_out: AtomicBool,
    pub(super) monitor: Option<&'static MonitorThread>,
    pub(super) record: MonitorRecord,
}

/// The task that the monitor has recorded, in a cache line of its own. Written by the monitor.
#[repr(align(64))]
pub(super) struct MonitorRecord {
    pub(super) sequence: AtomicU64,
    /// CPU time of the task's thread at the record, in nanoseconds.
    cpu_time: AtomicU64,
}

impl MonitorRecord {
    pub(super) fn set(&self, sequence: u64, cpu_time: u64) {
        self.cpu_time.store(cpu_time, Relaxed);
        self.sequence.store(sequence, Release);
    }
}

/// The monitor's thread.
pub(super) struct MonitorThread {
    pub(super) thread: Thread,
    /// There is a core on which no checked thread runs: the monitor's checks interrupt nobody.
    pub(super) own_core: AtomicBool,
}

impl MonitorThread {
    pub(super) fn has_own_core(&self) -> bool {
        self.own_core.load(Relaxed)
    }

    /// Wakes the monitor for a task that it may not be checking.
    pub(super) fn wake(&self) {
        self.thread.unpark();
    }
}

thread_local! {
    // Constant at first and never dropped: an access neither allocates nor registers anything. Not null while the
    // thread has a watchdog.
    static WATCH: Cell<*const Watch> = const { Cell::new(null()) };
}

/// Calls `read` with this thread's watch, if it has one.
pub(super) fn with_watch<R>(read: impl FnOnce(&Watch) -> R) -> Option<R> {
    // SAFETY: the watchdog keeps the watch, and clears the pointer on this thread before it drops the watch.
    unsafe { WATCH.get().as_ref() }.map(read)
}

/// Time that the thread's task may still run, in nanoseconds, if its limit is `limit`. The time before the first check
/// of the task is unknown and ignored: it is less than a [`CHECK_PERIOD`].
pub(crate) fn time_left(limit: u64) -> u64 {
    with_watch(|watch| {
        let is_seen = watch.last_seen.load(Relaxed) == watch.sequence.load(Relaxed);
        if limit == u64::MAX || !is_seen { limit } else { limit.saturating_sub(watch.used_time()) }
    })
    .unwrap_or(limit)
}

/// State of the thread's tasks, or null.
pub(super) fn running_state() -> *mut State {
    with_watch(|watch| watch.running.load(Relaxed)).unwrap_or_default()
}

/// Time on the clock of the timers, in nanoseconds.
pub(super) fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Time on a clock, in nanoseconds; 0 when there is no such clock.
pub(super) fn clock(id: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure, or leaves it alone.
    unsafe { libc::clock_gettime(id, &raw mut now) };
    now.tv_sec.unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.unsigned_abs())
}

impl Watch {
    pub(super) fn new(timer: timer_t, monitor: Option<&'static MonitorThread>) -> Self {
        Self {
            running: AtomicPtr::new(null_mut()),
            sequence: AtomicU64::new(0),
            is_checked: AtomicBool::new(false),
            check_after: AtomicU64::new(CHECK_PERIOD.unsigned_abs()),
            timer: AtomicPtr::new(timer),
            timer_exists: AtomicBool::new(true),
            last_seen: AtomicU64::new(0),
            used: AtomicU64::new(0),
            last_tick: AtomicU64::new(0),
            period: AtomicU64::new(0),
            recheck_next: AtomicBool::new(false),
            timed_out: AtomicBool::new(false),
            monitor,
            record: MonitorRecord { sequence: AtomicU64::new(u64::MAX), cpu_time: AtomicU64::new(0) },
        }
    }

    /// Whether this thread has a watch already.
    pub(super) fn is_installed() -> bool {
        !WATCH.get().is_null()
    }

    /// Makes `watch` this thread's.
    pub(super) fn install(watch: &Arc<Self>) {
        WATCH.set(Arc::as_ptr(watch));
    }

    /// Deletes the timer, and leaves the thread without a watch.
    pub(super) fn uninstall(&self) {
        // A tick from here on finds no timer to set.
        self.timer_exists.store(false, Relaxed);
        compiler_fence(SeqCst);
        // SAFETY: the timer is valid, and is deleted once.
        unsafe { libc::timer_delete(self.timer.load(Relaxed)) };
        WATCH.set(null());
        compiler_fence(SeqCst);
    }

    /// Sets the limit of the tasks that begin, in nanoseconds, and whether their code contains loops that wait.
    #[inline]
    pub(crate) fn set_limit(&self, limit: u64, may_wait: bool) {
        let recheck = RECHECK.unsigned_abs();
        self.check_after.store(if may_wait { recheck } else { limit.max(recheck) }, Relaxed);
    }

    /// Sets the state of the tasks that begin, null for none. Returns the former state.
    #[inline]
    pub(super) fn set_running(&self, state: *mut State) -> *mut State {
        let before = self.running.load(Relaxed);
        self.running.store(state, Relaxed);
        before
    }

    /// Starts the checks of the tasks of `state`, unless their time is not limited. Called after
    /// [`Watch::set_running`]: a tick in between continues the checks by itself.
    #[inline]
    pub(super) fn ensure_checked(&self, state: &State) {
        if !self.is_checked.load(Relaxed) && state.limits.time != u64::MAX {
            self.start_checks();
        }
    }

    #[cold]
    fn start_checks(&self) {
        match self.monitor {
            Some(monitor) => {
                self.is_checked.store(true, Relaxed);
                monitor.wake();
            }
            None => self.set_timer(CHECK_PERIOD),
        }
    }

    /// Begins a task of `state`, which may run for its `limits.time`. Then
    /// [`Cause::Watchdog`](spin_abi::fault::Cause::Watchdog) ends it in the body of translated code; a function that it
    /// called is asked by `state.request`.
    ///
    /// # Safety
    /// A live [`TrapGuard`](super::TrapGuard) refers to `state`, whether or not another guard was made since.
    pub(crate) unsafe fn start_task(&self, state: *mut State) {
        // SAFETY: the guard's state is valid.
        unsafe {
            self.begin_task(state);
            (*state).request.clear();
        }
        compiler_fence(SeqCst);
    }

    /// Begins a task as [`Watch::start_task`] does, but leaves the requests to the task before in `state.request`: the
    /// caller handles them.
    ///
    /// # Safety
    /// As [`Watch::start_task`].
    #[inline(always)]
    pub(crate) unsafe fn begin_task(&self, state: *mut State) {
        // Another state may have been set meanwhile: a task of another slot can begin between two tasks of a batch.
        self.running.store(state, Relaxed);
        self.sequence.store(self.sequence.load(Relaxed).wrapping_add(1), Relaxed);
        // A tick that raises a flag for the task before comes before this.
        compiler_fence(SeqCst);
    }

    /// Measures the time of a resumed task from here on, rather than from the first check of it. The task may run for
    /// `left` nanoseconds more.
    pub(crate) fn resume_task(&self, left: u64) {
        self.set_limit(left, self.check_after.load(Relaxed) <= RECHECK.unsigned_abs());
        self.reset_time();
        if self.monitor.is_some() {
            // The timer's period belongs to another task.
            self.period.store(CHECK_PERIOD.unsigned_abs(), Relaxed);
        }
        // A tick before this store does the same.
        self.last_seen.store(self.sequence.load(Relaxed), Relaxed);
    }

    /// Sets the task's run time to zero.
    fn reset_time(&self) {
        self.last_tick.store(now(), Relaxed);
        self.used.store(0, Relaxed);
    }

    /// Updates and returns the nanoseconds that the task has run since it was first seen.
    pub(super) fn used_time(&self) -> u64 {
        let now = now();
        let passed = now.saturating_sub(self.last_tick.swap(now, Relaxed));
        let used = self.used.load(Relaxed).saturating_add(passed.min(2 * self.period.load(Relaxed)));
        self.used.store(used, Relaxed);
        used
    }

    /// Sets the timer to tick once.
    #[cold]
    pub(super) fn set_timer(&self, nanoseconds: i64) {
        if !self.timer_exists.load(Relaxed) {
            return;
        }
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let once = libc::itimerspec { it_interval: zero, it_value: libc::timespec { tv_nsec: nanoseconds, ..zero } };
        // SAFETY: the timer exists, and is deleted on this thread only.
        let result = unsafe { libc::timer_settime(self.timer.load(Relaxed), 0, &raw const once, null_mut()) };
        if self.monitor.is_none() {
            self.is_checked.store(result == 0, Relaxed);
        }
        self.period.store(nanoseconds.unsigned_abs(), Relaxed);
    }

    /// Whether a tick must continue the checks of the current task, which no tick has seen before. `from_timer`: the
    /// timer caused the tick, not the monitor.
    pub(super) fn sees_new_task(&self, from_timer: bool) -> bool {
        let sequence = self.sequence.load(Relaxed);
        sequence != self.last_seen.load(Relaxed) && (from_timer || !self.adopt_record(sequence))
    }

    /// Begins the checks of the current task, unless the monitor makes them.
    pub(super) fn begin_checks(&self, from_timer: bool) -> bool {
        if self.monitor.is_some() && !(from_timer && self.recheck_next.swap(false, Relaxed)) {
            // The task to be checked is over; the monitor checks the next one.
            return false;
        }
        self.last_seen.store(self.sequence.load(Relaxed), Relaxed);
        self.reset_time();
        true
    }

    /// Ends the checks where the thread runs no task. The monitor continues to check its threads.
    pub(super) fn end_checks(&self) {
        if self.monitor.is_none() {
            self.is_checked.store(false, Relaxed);
        }
    }

    /// Notes that the task used up its time and was `ended`, or asked to end. Returns whether the monitor makes the
    /// next check.
    pub(super) fn note_timeout(&self, ended: bool) -> bool {
        self.timed_out.store(true, Relaxed);
        let monitor_checks = ended && self.monitor.is_some_and(MonitorThread::has_own_core);
        self.recheck_next.store(!monitor_checks, Relaxed);
        monitor_checks
    }

    /// Continues with the run time that the monitor has recorded of a task, if it has.
    fn adopt_record(&self, sequence: u64) -> bool {
        let is_recorded = self.record.sequence.load(Acquire) == sequence;
        if is_recorded {
            self.last_seen.store(sequence, Relaxed);
            self.reset_time();
            let ran = clock(libc::CLOCK_THREAD_CPUTIME_ID).saturating_sub(self.record.cpu_time.load(Relaxed));
            self.used.store(ran.min(2 * self.check_after.load(Relaxed).min(CHECK_PERIOD.unsigned_abs())), Relaxed);
        }
        is_recorded
    }
}

#[cfg(test)]
mod tests {
    use super::{MonitorRecord, Watch};

    #[test]
    fn the_monitor_writes_no_line_of_a_thread_for_each_task() {
        spin_testing::assert_lines!(MonitorRecord { sequence: "the monitor", cpu_time: "the monitor" });
        // The monitor clears `is_checked` when it ends its checks of a thread, which is not for each task.
        spin_testing::assert_lines!(Watch {
            running: "its thread",
            sequence: "its thread",
            is_checked: "its thread",
            check_after: "its thread",
            timer: "its thread",
            timer_exists: "its thread",
            last_seen: "its thread",
            used: "its thread",
            last_tick: "its thread",
            period: "its thread",
            recheck_next: "its thread",
            timed_out: "its thread",
            monitor: "",
            record: "the monitor",
        });
    }
}
