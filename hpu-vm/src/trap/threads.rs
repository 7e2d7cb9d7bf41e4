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

use super::watchdog::{AFTER_KILL, CHECK_PERIOD, Watch, clock, signal};

/// Looks at a thread, from one at which its task was too long, that come [`AFTER_KILL`] after each other: with a task that takes no time for
/// each one that is ended, others have some milliseconds.
const BURST_CHECKS: u32 = 32;
/// Nanoseconds after a task that took all its time in which threads are not left to each other: the next ones may be alike, on all of them.
const COOLDOWN: u64 = 1_000_000_000;

/// All of them.
#[derive(Default)]
pub(super) struct Threads {
    all: Vec<Watched>,
    /// When one was last seen that had had a task since it was seen before, in nanoseconds.
    pub(super) busy: u64,
    /// When one's task was seen to have taken all its time.
    overran: Option<u64>,
    /// The monitor relies on their looks.
    pub(super) monitored_rarely: bool,
}

/// A thread that is looked at.
struct Watched {
    watch: Arc<Watch>,
    thread: Pid,
    /// The clock of the time that it runs.
    clock: libc::clockid_t,
    /// The only core that it runs on, if there is one.
    core: Option<usize>,
    /// When it is to be looked at, in nanoseconds.
    due: u64,
    /// When its task was noted, if that is to be looked at again.
    noted: Option<u64>,
    /// The task it was at when it was last looked at.
    seen: u64,
    /// How many more looks come soon.
    keen: u32,
    /// When it was between two tasks and looked at others.
    between: u64,
}

impl Threads {
    /// Adds this thread.
    pub(super) fn add(&mut self, watch: &Arc<Watch>) {
        let cores = sched_getaffinity(None).ok();
        let core = cores
            .filter(|cores| cores.count() == 1)
            .and_then(|cores| (0..CpuSet::MAX_CPU).find(|&core| cores.is_set(core)));
        let mut clock = libc::CLOCK_MONOTONIC;
        // SAFETY: this thread's id, and a place for its clock's.
        unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        let (watch, thread) = (Arc::clone(watch), rustix::thread::gettid());
        self.all.push(Watched { watch, thread, clock, core, due: 0, noted: None, seen: 0, keen: 0, between: 0 });
    }

    pub(super) fn remove(&mut self, watch: &Arc<Watch>) {
        self.all.retain(|other| !Arc::ptr_eq(&other.watch, watch));
    }

    /// The cores that belong to one each.
    pub(super) fn cores(&self) -> impl Iterator<Item = usize> {
        self.all.iter().filter_map(|watched| watched.core)
    }

    /// How many have none for themselves.
    pub(super) fn without_core(&self) -> usize {
        self.all.iter().filter(|watched| watched.core.is_none()).count()
    }

    /// Tells all that they are looked at, or are not.
    pub(super) fn set_looked_at(&self, looked_at: bool) {
        self.all.iter().for_each(|watched| watched.watch.looked_at.store(looked_at, Relaxed));
    }

    /// Looks at whom it is time to look at. Returns when to look next.
    pub(super) fn look(&mut self, now: u64, apart: bool) -> u64 {
        let mut next = now + CHECK_PERIOD.unsigned_abs();
        for watched in &mut self.all {
            let busy = if watched.due <= now { watched.look(now, apart) } else { watched.noted.is_some() };
            if busy {
                self.busy = now;
            }
            let overran = &watched.watch.overran;
            if overran.load(Relaxed) && overran.swap(false, Relaxed) {
                self.overran = Some(now);
            }
            next = next.min(watched.due);
        }
        next
    }

    /// A thread was between two tasks then, and looked at others.
    pub(super) fn is_between(&mut self, watch: &Watch, now: u64) {
        let own = self.all.iter_mut().find(|watched| std::ptr::eq(Arc::as_ptr(&watched.watch), watch));
        if let Some(own) = own {
            own.between = now;
        }
    }

    /// Whether threads on two cores or more look at each other, so that a task that is too long is seen, and none was for a while.
    pub(super) fn see_to_each_other(&self, now: u64) -> bool {
        let lately = |watched: &&Watched| now.saturating_sub(watched.between) <= 2 * CHECK_PERIOD.unsigned_abs();
        let mut cores = self.all.iter().filter(lately).filter_map(|watched| watched.core);
        let first = cores.next();
        let is_calm = self.overran.is_none_or(|then| now.saturating_sub(then) > COOLDOWN);
        is_calm && cores.any(|core| Some(core) != first)
    }
}

impl Watched {
    /// Whether the thread has had a task since the last time. Who is looked at from `apart` is not kept from anything.
    fn look(&mut self, now: u64, apart: bool) -> bool {
        let watch = &self.watch;
        let (sequence, again) = (watch.sequence.load(Relaxed), watch.again.load(Relaxed));
        let attends = !watch.running.load(Relaxed).is_null();
        let goes_on = attends && sequence == watch.noted.sequence.load(Relaxed);
        let tick = CHECK_PERIOD.unsigned_abs();
        self.keen = if apart { self.keen.saturating_sub(1) } else { 0 };
        let pace = if self.keen > 0 { AFTER_KILL.unsigned_abs() } else { tick };
        self.due = now + pace;
        match self.noted.take() {
            // Once for a task: its own timer looks at it from then on.
            Some(noted) if goes_on => {
                self.noted = (!signal_thread(self.thread)).then_some(noted);
                if apart {
                    (self.keen, self.due) = (BURST_CHECKS, now + AFTER_KILL.unsigned_abs());
                }
            }
            // What it is at now was not there a moment ago.
            Some(noted) if again < pace => self.due = (noted + pace).max(now + 1),
            _ if attends && !goes_on => {
                watch.noted.set(sequence, clock(self.clock));
                self.noted = Some(now);
                self.due = now + again.min(tick);
            }
            _ => {}
        }
        attends || sequence != std::mem::replace(&mut self.seen, sequence)
    }
}

/// Signals a thread of this process; `false` when too many signals wait.
fn signal_thread(thread: Pid) -> bool {
    // SAFETY: a system call that takes no pointers.
    unsafe { libc::syscall(libc::SYS_tgkill, getpid().as_raw_pid(), thread.as_raw_pid(), signal()) == 0 }
}
