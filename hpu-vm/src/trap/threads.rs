//! The threads whose tasks are checked, by the [monitor](super::monitor) or by each other.
//!
//! A check records the current task of each thread. A thread that is at the same task at the next check is signalled,
//! and its [watch](Watch) continues with a timer of its own. If the monitor has a core for itself, it checks a thread
//! more often after a task that was too long. The next task may be similar, and if it is not, its thread must not be
//! interrupted for that.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::process::getpid;
use rustix::thread::{CpuSet, Pid, sched_getaffinity};

use super::signals::watchdog_signal;
use super::watch::{AFTER_KILL, CHECK_PERIOD, Watch, clock};

/// Number of checks of a thread, [`AFTER_KILL`] apart, after one that found a task too long. A task that uses hardly
/// any time between two that are ended thus leaves others some milliseconds.
const BURST_CHECKS: u32 = 32;
/// Nanoseconds after a timeout in which threads are not left to check each other: the next tasks may be similar, on all
/// of them.
const COOLDOWN: u64 = 1_000_000_000;

/// All checked threads.
#[derive(Default)]
pub(super) struct Threads {
    all: Vec<CheckedThread>,
    /// Time in nanoseconds of the last check that found a thread with a new task.
    pub(super) last_busy: u64,
    /// Time in nanoseconds of the last check that found a task past its limit.
    timed_out: Option<u64>,
    /// The monitor relies on the threads' own checks.
    pub(super) relaxed: bool,
}

/// A checked thread.
struct CheckedThread {
    watch: Arc<Watch>,
    thread: Pid,
    /// Clock of the thread's CPU time.
    clock: libc::clockid_t,
    /// The only core on which the thread may run, if there is only one.
    core: Option<usize>,
    /// Time of the next check in nanoseconds.
    due: u64,
    /// Time at which its task was recorded, if that task is to be checked again.
    recorded: Option<u64>,
    /// Sequence number of the task at the last check.
    last_seen: u64,
    /// Remaining checks of a burst.
    burst: u32,
    /// Time in nanoseconds at which the thread, between two tasks, checked others.
    polled: u64,
}

impl Threads {
    /// Adds this thread.
    pub(super) fn add(&mut self, watch: &Arc<Watch>) {
        let cores = sched_getaffinity(None).ok();
        let core = cores
            .filter(|cores| cores.count() == 1)
            .and_then(|cores| (0..CpuSet::MAX_CPU).find(|&core| cores.is_set(core)));
        let mut clock = libc::CLOCK_MONOTONIC;
        // SAFETY: this thread's id, and memory for the id of its clock.
        unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        let (watch, thread) = (Arc::clone(watch), rustix::thread::gettid());
        let (due, recorded, last_seen, burst, polled) = (0, None, 0, 0, 0);
        self.all.push(CheckedThread { watch, thread, clock, core, due, recorded, last_seen, burst, polled });
    }

    pub(super) fn remove(&mut self, watch: &Arc<Watch>) {
        self.all.retain(|other| !Arc::ptr_eq(&other.watch, watch));
    }

    /// The cores to which threads are bound.
    pub(super) fn cores(&self) -> impl Iterator<Item = usize> {
        self.all.iter().filter_map(|thread| thread.core)
    }

    /// Number of threads that are not bound to one core.
    pub(super) fn without_core(&self) -> usize {
        self.all.iter().filter(|thread| thread.core.is_none()).count()
    }

    /// Tells all threads whether they are checked.
    pub(super) fn set_checked(&self, is_checked: bool) {
        self.all.iter().for_each(|thread| thread.watch.is_checked.store(is_checked, Relaxed));
    }

    /// Checks the threads that are due. Returns the time of the next check. `own_core`: the check runs on a core
    /// without a checked thread.
    pub(super) fn check(&mut self, now: u64, own_core: bool) -> u64 {
        let mut next = now + CHECK_PERIOD.unsigned_abs();
        for thread in &mut self.all {
            let busy = if thread.due <= now { thread.check(now, own_core) } else { thread.recorded.is_some() };
            if busy {
                self.last_busy = now;
            }
            let timed_out = &thread.watch.timed_out;
            if timed_out.load(Relaxed) && timed_out.swap(false, Relaxed) {
                self.timed_out = Some(now);
            }
            next = next.min(thread.due);
        }
        next
    }

    /// Sets the time at which a thread, between two tasks, checked others.
    pub(super) fn set_polled(&mut self, watch: &Watch, now: u64) {
        let own = self.all.iter_mut().find(|thread| std::ptr::eq(Arc::as_ptr(&thread.watch), watch));
        if let Some(own) = own {
            own.polled = now;
        }
    }

    /// Whether threads on two cores or more check each other, so that a task past its limit is found, and none was
    /// found for a while.
    pub(super) fn check_each_other(&self, now: u64) -> bool {
        let recently = |thread: &&CheckedThread| now.saturating_sub(thread.polled) <= 2 * CHECK_PERIOD.unsigned_abs();
        let mut cores = self.all.iter().filter(recently).filter_map(|thread| thread.core);
        let first = cores.next();
        let is_calm = self.timed_out.is_none_or(|then| now.saturating_sub(then) > COOLDOWN);
        is_calm && cores.any(|core| Some(core) != first)
    }
}

impl CheckedThread {
    /// Returns whether the thread has had a task since the last check. Checks from an own core interrupt nobody, so
    /// bursts are limited to them.
    fn check(&mut self, now: u64, own_core: bool) -> bool {
        let watch = &self.watch;
        let (sequence, check_after) = (watch.sequence.load(Relaxed), watch.check_after.load(Relaxed));
        let has_task = !watch.running.load(Relaxed).is_null();
        let same_task = has_task && sequence == watch.record.sequence.load(Relaxed);
        let check_period = CHECK_PERIOD.unsigned_abs();
        self.burst = if own_core { self.burst.saturating_sub(1) } else { 0 };
        let period = if self.burst > 0 { AFTER_KILL.unsigned_abs() } else { check_period };
        self.due = now + period;
        match self.recorded.take() {
            // One signal for a task: the thread's own timer checks it from then on.
            Some(recorded) if same_task => {
                self.recorded = (!signal_thread(self.thread)).then_some(recorded);
                if own_core {
                    (self.burst, self.due) = (BURST_CHECKS, now + AFTER_KILL.unsigned_abs());
                }
            }
            // The current task began after the record, a moment ago.
            Some(recorded) if check_after < period => self.due = (recorded + period).max(now + 1),
            _ if has_task && !same_task => {
                watch.record.set(sequence, clock(self.clock));
                self.recorded = Some(now);
                self.due = now + check_after.min(check_period);
            }
            _ => {}
        }
        has_task || sequence != std::mem::replace(&mut self.last_seen, sequence)
    }
}

/// Signals a thread of this process; `false` when too many signals are pending.
fn signal_thread(thread: Pid) -> bool {
    // SAFETY: a system call that takes no pointers.
    unsafe { libc::syscall(libc::SYS_tgkill, getpid().as_raw_pid(), thread.as_raw_pid(), watchdog_signal()) == 0 }
}
