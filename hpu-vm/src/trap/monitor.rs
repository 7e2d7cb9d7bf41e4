//! A thread that checks the tasks of all others, so that threads with short tasks are never interrupted.
//!
//! A timer interrupt takes 25 us in the virtual machine that was measured, so timer ticks took 3 % of all time. The
//! monitor must run even if all cores are busy, so it has real-time priority. Where that priority is not permitted
//! there is no monitor, and each thread uses its own timer. Without a core of its own, the monitor's checks cost
//! another thread as much as ticks. If at least two threads have a core each, a thread between two tasks therefore
//! [checks all](Monitor::check_for_peers). The monitor then runs only [rarely](RELAXED_PERIOD), as a backstop for the case that no
//! thread does so.

use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::process::getpid;
use rustix::thread::{CapabilitySet, CapabilitySets, Pid};
use rustix::thread::{sched_getaffinity, sched_setaffinity, set_capabilities};

use super::threads::Threads;
use super::watchdog::{CHECK_PERIOD, RECHECK, Watch, now};

/// Nanoseconds without a task after which the monitor sleeps until somebody has one.
const IDLE_TIMEOUT: u64 = 1_000_000_000;
/// Nanoseconds between two looks of the monitor while others look at each other. That late after its limit a task may be ended if all
/// threads came to such at the same time, none for a while before; from then on it is a [`CHECK_PERIOD`] again.
const RELAXED_PERIOD: u64 = 9 * CHECK_PERIOD.unsigned_abs();

/// The monitor, for threads whose tasks it looks at.
pub(super) struct Monitor {
    threads: Mutex<Threads>,
    /// There is a core on which none of them runs.
    apart: AtomicBool,
    id: Pid,
    thread: Thread,
}

impl Monitor {
    /// The process's; `None` where it may not have real-time priority, when it is asked for first. The thread keeps the priority, and none of
    /// the capabilities that the caller has.
    pub(super) fn get() -> Option<&'static Self> {
        static MONITOR: OnceLock<Option<Monitor>> = OnceLock::new();
        MONITOR
            .get_or_init(|| {
                let (tell, told) = mpsc::sync_channel(0);
                let start = move || {
                    let id = (take_priority() && drop_capabilities()).then(rustix::thread::gettid);
                    // Who asked waits.
                    let _ = tell.send(id);
                    if id.is_some()
                        && let Some(monitor) = MONITOR.wait()
                    {
                        monitor.run();
                    }
                };
                let thread = thread::Builder::new().name("spin-monitor".to_owned()).spawn(start).ok()?;
                let id = told.recv().ok()??;
                Some(Self {
                    threads: Mutex::default(),
                    apart: AtomicBool::new(false),
                    id,
                    thread: thread.thread().clone(),
                })
            })
            .as_ref()
    }

    /// One that never looks: who is looked at is so by others.
    #[cfg(test)]
    pub(super) fn of_nobody() -> &'static Self {
        Box::leak(Box::new(Self {
            threads: Mutex::default(),
            apart: AtomicBool::new(false),
            id: rustix::thread::gettid(),
            thread: thread::current(),
        }))
    }

    /// Whether it may look rarely now.
    #[cfg(test)]
    pub(super) fn may_look_rarely(&self) -> bool {
        self.threads().see_to_each_other(now())
    }

    /// Has this thread looked at from now on.
    pub(super) fn add(&self, watch: &Arc<Watch>) {
        self.threads().add(watch);
        self.keep_off();
    }

    /// Looks at this thread no more.
    pub(super) fn remove(&self, watch: &Arc<Watch>) {
        self.threads().remove(watch);
        self.keep_off();
    }

    /// Whether it looks soon at who had a task that was too long, and interrupts nobody with that.
    pub(super) fn looks_soon(&self) -> bool {
        self.apart.load(Relaxed)
    }

    /// Looks at all threads whom it is time to look at, unless the monitor has a core for that. For a thread between two of its tasks, and
    /// as often as that says: in so many nanoseconds.
    pub(super) fn check_for_peers(&self, watch: &Watch) -> u64 {
        if self.looks_soon() {
            return CHECK_PERIOD.unsigned_abs();
        }
        // Whoever has them looks.
        let Ok(mut threads) = self.threads.try_lock() else { return RECHECK.unsigned_abs() };
        let now = now();
        threads.is_between(watch, now);
        let due = threads.look(now, false);
        self.see_to(&mut threads, now);
        due.saturating_sub(now).max(1)
    }

    /// A thread looks at nobody for a while, and has no tasks.
    pub(super) fn stop_polling(&self, watch: &Watch) {
        if !self.looks_soon() {
            let mut threads = self.threads();
            threads.is_between(watch, 0);
            self.see_to(&mut threads, now());
        }
    }

    /// Comes as often as it has to, if it left that to threads which do not see to each other any more.
    fn see_to(&self, threads: &mut Threads, now: u64) {
        if threads.monitored_rarely && !threads.see_to_each_other(now) {
            threads.monitored_rarely = false;
            self.wake();
        }
    }

    /// Somebody has a task whom it may not be looking at.
    pub(super) fn wake(&self) {
        self.thread.unpark();
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs where the process may, but on no core that belongs to a thread that it looks at; on any if all do.
    fn keep_off(&self) {
        let Ok(all) = sched_getaffinity(Some(getpid())) else { return };
        // Until it is told: who comes later knows more.
        let threads = self.threads();
        let mut free = all;
        threads.cores().for_each(|core| free.unset(core));
        let anywhere = threads.without_core();
        self.apart.store(free.count() as usize > anywhere, Relaxed);
        // It does its work on any core.
        let _ = sched_setaffinity(Some(self.id), if free.count() == 0 { &all } else { &free });
        // It may be its own now, or not any more, to look.
        self.wake();
    }

    fn run(&self) {
        loop {
            let (wait, quiet) = self.look();
            if !quiet {
                thread::park_timeout(wait);
                continue;
            }
            self.threads().set_looked_at(false);
            // Who attended to a task just before, and did not see that, is seen by now: a store leaves its processor within microseconds.
            thread::sleep(Duration::from_nanos(CHECK_PERIOD.unsigned_abs()));
            if self.look().1 {
                thread::park();
            } else {
                self.threads().set_looked_at(true);
            }
        }
    }

    /// Looks at whom it is time to look at. In what time to look next, and whether nobody has had a task for so long that it is not needed.
    fn look(&self) -> (Duration, bool) {
        let mut threads = self.threads();
        let (now, apart) = (now(), self.looks_soon());
        let due = threads.look(now, apart);
        threads.monitored_rarely = !apart && threads.see_to_each_other(now);
        let wait = if threads.monitored_rarely { RELAXED_PERIOD } else { due.saturating_sub(now).max(1) };
        (Duration::from_nanos(wait), now.saturating_sub(threads.busy) >= IDLE_TIMEOUT)
    }
}

/// Takes all capabilities from this thread.
fn drop_capabilities() -> bool {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).is_ok()
}

/// Gives this thread the least real-time priority there is: before all that have none.
fn take_priority() -> bool {
    // SAFETY: all zeroes is a `sched_param`.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid for the time of the call.
    unsafe {
        parameters.sched_priority = libc::sched_get_priority_min(libc::SCHED_FIFO);
        libc::sched_setscheduler(0, libc::SCHED_FIFO, ptr::from_ref(&parameters)) == 0
    }
}
