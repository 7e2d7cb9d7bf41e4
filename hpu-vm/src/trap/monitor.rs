//! A thread that checks the tasks of all others, so that threads with short tasks are never interrupted.
//!
//! A timer interrupt takes 25 us in the virtual machine that was measured, so timer ticks took 3 % of all time. The
//! monitor must run even if all cores are busy, so it has real-time priority. Where that priority is not permitted
//! there is no monitor, and each thread uses its own timer. Without a core of its own, the monitor's checks cost
//! another thread as much as ticks. If at least two threads have a core each, a thread between two tasks therefore
//! [checks all](Monitor::check_for_peers). The monitor then runs only every [`RELAXED_PERIOD`], as a backstop for the
//! case that no thread does so.

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
use super::watch::{CHECK_PERIOD, MonitorThread, RECHECK, Watch, now};

/// Nanoseconds without a task after which the monitor sleeps until a thread begins one.
const IDLE_TIMEOUT: u64 = 1_000_000_000;
/// Nanoseconds between two checks of the monitor while threads check each other. A task may be ended that late after
/// its limit if all threads began such tasks at the same time, and none was too long for a while before. From then on
/// the delay is one [`CHECK_PERIOD`] again.
const RELAXED_PERIOD: u64 = 9 * CHECK_PERIOD.unsigned_abs();

/// The monitor, and the threads that it checks.
pub(super) struct Monitor {
    threads: Mutex<Threads>,
    id: Pid,
    thread: MonitorThread,
}

impl Monitor {
    fn new(id: Pid, thread: Thread) -> Self {
        Self { threads: Mutex::default(), id, thread: MonitorThread { thread, own_core: AtomicBool::new(false) } }
    }

    /// The process's monitor; `None` if real-time priority was not permitted at the first call. The thread keeps the
    /// priority, and none of the caller's capabilities.
    pub(super) fn get() -> Option<&'static Self> {
        static MONITOR: OnceLock<Option<Monitor>> = OnceLock::new();
        MONITOR
            .get_or_init(|| {
                let (started, id) = mpsc::sync_channel(0);
                let start = move || {
                    let id = (take_priority() && drop_capabilities()).then(rustix::thread::gettid);
                    // The caller waits for it.
                    let _ = started.send(id);
                    if id.is_some()
                        && let Some(monitor) = MONITOR.wait()
                    {
                        monitor.run();
                    }
                };
                let thread = thread::Builder::new().name("spin-monitor".to_owned()).spawn(start).ok()?;
                Some(Self::new(id.recv().ok()??, thread.thread().clone()))
            })
            .as_ref()
    }

    /// A monitor that never checks: its threads check each other.
    #[cfg(test)]
    pub(super) fn inactive() -> &'static Self {
        Box::leak(Box::new(Self::new(rustix::thread::gettid(), thread::current())))
    }

    /// Whether the monitor may check at [`RELAXED_PERIOD`] now.
    #[cfg(test)]
    pub(super) fn may_relax(&self) -> bool {
        self.threads().check_each_other(now())
    }

    /// The monitor's thread.
    pub(super) const fn thread(&self) -> &MonitorThread {
        &self.thread
    }

    /// Checks this thread from now on.
    pub(super) fn add(&self, watch: &Arc<Watch>) {
        self.threads().add(watch);
        self.update_affinity();
    }

    /// Checks this thread no more.
    pub(super) fn remove(&self, watch: &Arc<Watch>) {
        self.threads().remove(watch);
        self.update_affinity();
    }

    /// Checks all threads that are due, unless the monitor has a core for that. A thread calls this between two of its
    /// tasks. Returns the nanoseconds to its next call.
    pub(super) fn check_for_peers(&self, watch: &Watch) -> u64 {
        if self.thread.has_own_core() {
            return CHECK_PERIOD.unsigned_abs();
        }
        // Whoever holds the lock makes the check.
        let Ok(mut threads) = self.threads.try_lock() else { return RECHECK.unsigned_abs() };
        let now = now();
        threads.set_polled(watch, now);
        let due = threads.check(now, false);
        self.resume_if_needed(&mut threads, now);
        due.saturating_sub(now).max(1)
    }

    /// A thread checks no others for a while, and has no tasks.
    pub(super) fn stop_polling(&self, watch: &Watch) {
        if !self.thread.has_own_core() {
            let mut threads = self.threads();
            threads.set_polled(watch, 0);
            self.resume_if_needed(&mut threads, now());
        }
    }

    /// Returns to the shorter period if the monitor relied on threads that check each other no more.
    fn resume_if_needed(&self, threads: &mut Threads, now: u64) {
        if threads.relaxed && !threads.check_each_other(now) {
            threads.relaxed = false;
            self.thread.wake();
        }
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the monitor to the process's cores to which no checked thread is bound; to all cores if there are none.
    fn update_affinity(&self) {
        let Ok(all) = sched_getaffinity(Some(getpid())) else { return };
        // The lock is held to the end: a later caller knows more threads.
        let threads = self.threads();
        let mut free = all;
        threads.cores().for_each(|core| free.unset(core));
        let anywhere = threads.without_core();
        self.thread.own_core.store(free.count() as usize > anywhere, Relaxed);
        // The monitor works on any core, so an error is ignored.
        let _ = sched_setaffinity(Some(self.id), if free.count() == 0 { &all } else { &free });
        // The checks may be the monitor's now, or not any more.
        self.thread.wake();
    }

    fn run(&self) {
        loop {
            let (wait, idle) = self.check();
            if !idle {
                thread::park_timeout(wait);
                continue;
            }
            self.threads().set_checked(false);
            // A thread that began a task just before, without seeing that, is seen after this time: a store leaves its
            // processor within microseconds.
            thread::sleep(Duration::from_nanos(CHECK_PERIOD.unsigned_abs()));
            if self.check().1 {
                thread::park();
            } else {
                self.threads().set_checked(true);
            }
        }
    }

    /// Checks the threads that are due. Returns the time to the next check, and whether no thread has had a task for
    /// [`IDLE_TIMEOUT`].
    fn check(&self) -> (Duration, bool) {
        let mut threads = self.threads();
        let (now, own_core) = (now(), self.thread.has_own_core());
        let due = threads.check(now, own_core);
        threads.relaxed = !own_core && threads.check_each_other(now);
        let wait = if threads.relaxed { RELAXED_PERIOD } else { due.saturating_sub(now).max(1) };
        (Duration::from_nanos(wait), now.saturating_sub(threads.last_busy) >= IDLE_TIMEOUT)
    }
}

/// Takes all capabilities from this thread.
fn drop_capabilities() -> bool {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).is_ok()
}

/// Gives this thread the lowest real-time priority: it runs before all threads without one.
fn take_priority() -> bool {
    // SAFETY: all zeroes is a `sched_param`.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid for the time of the call.
    unsafe {
        parameters.sched_priority = libc::sched_get_priority_min(libc::SCHED_FIFO);
        libc::sched_setscheduler(0, libc::SCHED_FIFO, ptr::from_ref(&parameters)) == 0
    }
}
