//! A thread that looks at the tasks of all others, so that none of these is interrupted while its tasks are short.
//!
//! It notes which task each thread is at; only who is at the same one at the next look is signalled, and its [watch](Watch) goes on
//! from there with a timer of its own. An interrupt of such a timer takes a thread 25 us in a virtual machine that was measured, so that
//! ticks took 3 % of all time. The monitor has to come though all cores are busy: it has real-time priority. Where that
//! is not allowed there is none, and each thread is looked at by its own timer. Where it has a core for itself it looks more often at who
//! had a task that was too long: the next may be alike, and if not, whoever has it is not to be interrupted for that.

use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::process::getpid;
use rustix::thread::{CapabilitySet, CapabilitySets, CpuSet, Pid};
use rustix::thread::{sched_getaffinity, sched_setaffinity, set_capabilities};

use super::watchdog::{RESPITE, TICK, Watch, clock, now, signal};

/// Looks in a row at which nobody has a task, after which the monitor sleeps until somebody has: a second.
const QUIET: u32 = 1_000_000_000 / TICK.unsigned_abs() as u32;
/// Looks at a thread, from one at which its task was too long, that come [`RESPITE`] after each other: with a task that takes no time for
/// each one that is ended, others have some milliseconds.
const KEEN: u32 = 32;

/// The monitor, for threads whose tasks it looks at.
pub(super) struct Monitor {
    watched: Mutex<Vec<Watched>>,
    /// There is a core on which none of them runs.
    apart: AtomicBool,
    id: Pid,
    thread: Thread,
}

/// A thread that the monitor looks at.
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
                    watched: Mutex::default(),
                    apart: AtomicBool::new(false),
                    id,
                    thread: thread.thread().clone(),
                })
            })
            .as_ref()
    }

    /// Has this thread looked at from now on.
    pub(super) fn add(&self, watch: &Arc<Watch>) {
        let cores = sched_getaffinity(None).ok();
        let core = cores
            .filter(|cores| cores.count() == 1)
            .and_then(|cores| (0..CpuSet::MAX_CPU).find(|&core| cores.is_set(core)));
        let mut clock = libc::CLOCK_MONOTONIC;
        // SAFETY: this thread's id, and a place for its clock's.
        unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        let thread = rustix::thread::gettid();
        let watch = Arc::clone(watch);
        self.watched().push(Watched { watch, thread, clock, core, due: 0, noted: None, seen: 0, keen: 0 });
        self.keep_off();
    }

    /// Looks at this thread no more.
    pub(super) fn remove(&self, watch: &Arc<Watch>) {
        self.watched().retain(|other| !Arc::ptr_eq(&other.watch, watch));
        self.keep_off();
    }

    /// Whether it looks soon at who had a task that was too long, and interrupts nobody with that.
    pub(super) fn looks_soon(&self) -> bool {
        self.apart.load(Relaxed)
    }

    /// Somebody has a task whom it may not be looking at.
    pub(super) fn wake(&self) {
        self.thread.unpark();
    }

    fn watched(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs where the process may, but on no core that belongs to a thread that it looks at; on any if all do.
    fn keep_off(&self) {
        let Ok(all) = sched_getaffinity(Some(getpid())) else { return };
        // Until it is told: who comes later knows more.
        let watched = self.watched();
        let mut free = all;
        watched.iter().filter_map(|watched| watched.core).for_each(|core| free.unset(core));
        let anywhere = watched.iter().filter(|watched| watched.core.is_none()).count();
        self.apart.store(free.count() as usize > anywhere, Relaxed);
        // It does its work on any core.
        let _ = sched_setaffinity(Some(self.id), if free.count() == 0 { &all } else { &free });
    }

    fn run(&self) {
        let mut quiet = 0;
        loop {
            let (busy, due) = self.look();
            quiet = if busy { 0 } else { quiet + 1 };
            if quiet < QUIET {
                thread::park_timeout(Duration::from_nanos(due.saturating_sub(now()).max(1)));
                continue;
            }
            self.watched().iter().for_each(|watched| watched.watch.looked_at.store(false, Relaxed));
            // Who attended to a task just before, and did not see that, is seen by now: a store leaves its processor within microseconds.
            thread::sleep(Duration::from_nanos(TICK.unsigned_abs()));
            if self.look().0 {
                self.watched().iter().for_each(|watched| watched.watch.looked_at.store(true, Relaxed));
            } else {
                thread::park();
            }
            quiet = 0;
        }
    }

    /// Looks at whom it is time to look at. Whether anybody has had a task since the last time, and when to look next.
    fn look(&self) -> (bool, u64) {
        let (now, apart) = (now(), self.looks_soon());
        let mut busy = false;
        let mut next = now + TICK.unsigned_abs();
        for watched in self.watched().iter_mut() {
            busy |= if watched.due <= now { watched.look(now, apart) } else { watched.noted.is_some() };
            next = next.min(watched.due);
        }
        (busy, next)
    }
}

impl Watched {
    /// Whether the thread has had a task since the last time. Who is looked at from `apart` is not kept from anything.
    fn look(&mut self, now: u64, apart: bool) -> bool {
        let watch = &self.watch;
        let (sequence, again) = (watch.sequence.load(Relaxed), watch.again.load(Relaxed));
        let attends = !watch.running.load(Relaxed).is_null();
        let goes_on = attends && sequence == watch.noted.sequence.load(Relaxed);
        let tick = TICK.unsigned_abs();
        self.keen = if apart { self.keen.saturating_sub(1) } else { 0 };
        let pace = if self.keen > 0 { RESPITE.unsigned_abs() } else { tick };
        self.due = now + pace;
        match self.noted.take() {
            // Once for a task: its own timer looks at it from then on.
            Some(noted) if goes_on => {
                self.noted = (!signal_thread(self.thread)).then_some(noted);
                if apart {
                    (self.keen, self.due) = (KEEN, now + RESPITE.unsigned_abs());
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
