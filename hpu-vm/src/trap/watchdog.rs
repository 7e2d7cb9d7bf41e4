//! The time limit of running tasks: checks from time to time, on the tasks' thread.
//!
//! Starting a task is a plain store. The [`monitor`](super::monitor) signals a thread that is at the same task as at
//! [`Watch::again`] before. From then on a timer ticks until it finds another task. Without a monitor the timer ticks
//! every [`CHECK_PERIOD`] while there are tasks. It stops by itself after a tick without a watched task, and is restarted when
//! tasks are watched again. The first check that sees a task records the time; a check `limit` later ends it. A task
//! therefore ends between its limit and one tick later. A task seen twice in a waiting loop is asked to park; the
//! second check follows after [`RECHECK`]. A task with a limit of at most a tick is asked at the first check that
//! interrupts it. A task that may park is asked to do so before it is ended.
//!
//! Time during which a thread is preempted, by other threads or by the host of a virtual machine, is not its task's
//! fault. Its ticks are late then, and each counts for at most twice its period. Checks by the monitor count the
//! thread's own processor time.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, compiler_fence};

use libc::{c_int, c_void, siginfo_t, timer_t};
use spin_abi::fault::Cause;

use super::context::Context;
use super::monitor::Monitor;
use super::{Running, TrapError, errno, handle, keeping_errno};
use crate::jit::State;

/// Nanoseconds between two looks: as long as tasks still end within a millisecond after their limit. In a virtual machine that was
/// measured a tick takes 25 us, 3 of them for the signal.
pub(super) const CHECK_PERIOD: i64 = 900_000;
/// Nanoseconds to the next look at a task that waits, or is about to be ended, or could not be.
pub(super) const RECHECK: i64 = 50_000;
/// Nanoseconds to the next look after one that ended a task, or asked one that waits to leave, at the most: the next may be alike. After
/// one that ended a task it is the monitor's, if it has a core for itself.
pub(super) const AFTER_KILL: i64 = 200_000;

/// A thread's timer and what it knows of the thread's tasks. Written by the thread and by its signal handler, but for what is said to be the
/// monitor's.
pub(crate) struct Watch {
    /// The state of the thread's tasks, also between two of them; null when there are none.
    pub(super) running: AtomicPtr<State>,
    /// Counts tasks.
    pub(super) sequence: AtomicU64,
    /// The monitor looks at this thread, or the timer will tick. The monitor may say that it does not.
    pub(super) looked_at: AtomicBool,
    /// Nanoseconds after which a task is to be looked at that was noted.
    pub(super) again: AtomicU64,
    timer: AtomicPtr<c_void>,
    /// `timer` is one (its id may be null).
    exists: AtomicBool,
    /// The sequence number that the last tick saw.
    seen: AtomicU64,
    /// What that task had taken then, in nanoseconds.
    taken: AtomicU64,
    /// When that was, in nanoseconds.
    looked: AtomicU64,
    /// Nanoseconds from a tick to the next one.
    wait: AtomicU64,
    /// The last tick ended a task, or asked for that, and the next task is alike, most likely: so the next tick comes soon, whatever it sees.
    ended: AtomicBool,
    /// A task took all the time that it had, since somebody asked.
    pub(super) overran: AtomicBool,
    monitor: Option<&'static Monitor>,
    pub(super) noted: Noted,
}

/// The task that the monitor has noted, in a cache line of its own. The monitor's.
#[repr(align(64))]
pub(super) struct Noted {
    pub(super) sequence: AtomicU64,
    /// How long its thread had run then, in nanoseconds.
    ran: AtomicU64,
}

impl Noted {
    pub(super) fn set(&self, sequence: u64, ran: u64) {
        self.ran.store(ran, Relaxed);
        self.sequence.store(sequence, Release);
    }
}

thread_local! {
    // Constant at first and never dropped: an access neither allocates nor registers anything. The watchdog's, as long as there is one.
    static WATCH: Cell<*const Watch> = const { Cell::new(null()) };
}

/// The thread's, if it has a watchdog.
fn here<R>(look: impl FnOnce(&Watch) -> R) -> Option<R> {
    // SAFETY: the watchdog keeps it, and takes the pointer back before it is dropped; that is on this thread, which is here.
    unsafe { WATCH.get().as_ref() }.map(look)
}

/// The watchdog of the thread that made it.
pub(crate) struct Watchdog {
    watch: Arc<Watch>,
    /// It is the thread's own, which this cannot leave.
    _stays: PhantomData<*const ()>,
}

/// What is left of `limit` to the thread's task, in nanoseconds. What it took before its first look is not known, nor asked
/// for: it is less than a tick.
pub(crate) fn time_left(limit: u64) -> u64 {
    here(|watch| {
        let seen = watch.seen.load(Relaxed) == watch.sequence.load(Relaxed);
        if limit == u64::MAX || !seen { limit } else { limit.saturating_sub(watch.taken()) }
    })
    .unwrap_or(limit)
}

/// What the thread runs.
pub(super) fn running() -> *mut State {
    here(|watch| watch.running.load(Relaxed)).unwrap_or_default()
}

/// The watchdogs' real-time signal.
pub(super) fn signal() -> c_int {
    libc::SIGRTMIN() + 4
}

pub(super) fn install() -> Result<(), TrapError> {
    handle(signal(), "the watchdog's signal", on_tick)
}

impl Watchdog {
    /// A watchdog for the tasks of this thread.
    ///
    /// # Errors
    /// See [`TrapError`]: a thread has one at a time.
    pub(crate) fn new() -> Result<Self, TrapError> {
        Self::with(Monitor::get())
    }

    /// The same, with or without the monitor.
    pub(super) fn with(monitor: Option<&'static Monitor>) -> Result<Self, TrapError> {
        super::install()?;
        if !WATCH.get().is_null() {
            return Err(TrapError::Watched);
        }
        let watch = Arc::new(Watch::new(create_timer()?, monitor));
        WATCH.set(Arc::as_ptr(&watch));
        if let Some(monitor) = monitor {
            monitor.add(&watch);
        }
        Ok(Self { watch, _stays: PhantomData })
    }

    /// Looks at what tasks other threads are at, if that is not the monitor's alone. In how many nanoseconds to do so again.
    pub(crate) fn poll_peers(&self) -> u64 {
        self.watch.monitor.map_or(u64::MAX, |monitor| monitor.check_for_peers(&self.watch))
    }

    /// This thread does not do that for a while.
    pub(crate) fn stop_polling(&self) {
        if let Some(monitor) = self.watch.monitor {
            monitor.stop_polling(&self.watch);
        }
    }

    /// The thread's.
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
        if let Some(monitor) = self.watch.monitor {
            monitor.remove(&self.watch);
        }
        // A tick that comes from here on finds no timer to set.
        self.watch.exists.store(false, Relaxed);
        compiler_fence(SeqCst);
        // SAFETY: the timer was created by `with` and is deleted once.
        unsafe { libc::timer_delete(self.watch.timer.load(Relaxed)) };
        WATCH.set(null());
        compiler_fence(SeqCst);
    }
}

/// A timer that signals this thread.
fn create_timer() -> Result<timer_t, TrapError> {
    // SAFETY: all zeroes is a `sigevent`.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = signal();
    let mut timer: timer_t = null_mut();
    // SAFETY: both structures are valid for the time of the call.
    let result = unsafe {
        event.sigev_notify_thread_id = libc::gettid();
        libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer)
    };
    if result == 0 { Ok(timer) } else { Err(TrapError::Timer { errno: errno() }) }
}

/// Time on the clock that the timers use, in nanoseconds.
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
    fn new(timer: timer_t, monitor: Option<&'static Monitor>) -> Self {
        Self {
            running: AtomicPtr::new(null_mut()),
            sequence: AtomicU64::new(0),
            looked_at: AtomicBool::new(false),
            again: AtomicU64::new(CHECK_PERIOD.unsigned_abs()),
            timer: AtomicPtr::new(timer),
            exists: AtomicBool::new(true),
            seen: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            wait: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            overran: AtomicBool::new(false),
            monitor,
            noted: Noted { sequence: AtomicU64::new(u64::MAX), ran: AtomicU64::new(0) },
        }
    }

    /// Tasks that begin may take `limit` nanoseconds, and [may wait](Running::waits_at).
    #[inline]
    pub(crate) fn set_limit(&self, limit: u64, may_wait: bool) {
        let soon = RECHECK.unsigned_abs();
        self.again.store(if may_wait { soon } else { limit.max(soon) }, Relaxed);
    }

    /// The tasks that begin are of `state`, or of nobody if that is null. Returns whose there were before.
    #[inline]
    pub(super) fn set_running(&self, state: *mut State) -> *mut State {
        let before = self.running.load(Relaxed);
        self.running.store(state, Relaxed);
        before
    }

    /// Has somebody look at the tasks of `state`, if they do not have all time. Once they are attended to: a tick that comes then goes on by
    /// itself.
    #[inline]
    pub(super) fn ensure_checked(&self, state: &State) {
        if !self.looked_at.load(Relaxed) && state.time_limit != u64::MAX {
            self.start_checks();
        }
    }

    #[cold]
    fn start_checks(&self) {
        match self.monitor {
            Some(monitor) => {
                self.looked_at.store(true, Relaxed);
                monitor.wake();
            }
            None => self.tick_in(CHECK_PERIOD),
        }
    }

    /// A task of `state` begins. It may take its `time_limit`: then [`Cause::Watchdog`] ends it if it is in a body, else `state.wanted`
    /// asks whatever it called to do so.
    ///
    /// # Safety
    /// `state` is attended to by an [`TrapGuard`](super::TrapGuard) that lives, whether or not another was made since.
    pub(crate) unsafe fn start_task(&self, state: *mut State) {
        // SAFETY: the caller says that it is attended to: it is valid.
        unsafe {
            self.begin_task(state);
            (*state).wanted.clear();
        }
        compiler_fence(SeqCst);
    }

    /// The same, but for what may still be wanted of the task before: that is for the caller to see to.
    ///
    /// # Safety
    /// As [`Watch::start_task`].
    #[inline(always)]
    pub(crate) unsafe fn begin_task(&self, state: *mut State) {
        // Another may be attended to meanwhile: who is lent a row of tasks can begin one of another slot.
        self.running.store(state, Relaxed);
        self.sequence.store(self.sequence.load(Relaxed).wrapping_add(1), Relaxed);
        // A tick that raises a flag for the task before comes before this.
        compiler_fence(SeqCst);
    }

    /// Takes the time of the task from here on, rather than from the first look at it: for one that had some before, and may take `left`
    /// nanoseconds more.
    pub(crate) fn resume_task(&self, left: u64) {
        self.set_limit(left, self.again.load(Relaxed) <= RECHECK.unsigned_abs());
        self.begin();
        if self.monitor.is_some() {
            // That of the timer is of some other task.
            self.wait.store(CHECK_PERIOD.unsigned_abs(), Relaxed);
        }
        // A tick that comes before this does the same.
        self.seen.store(self.sequence.load(Relaxed), Relaxed);
    }

    /// The task has taken nothing until now.
    fn begin(&self) {
        self.looked.store(now(), Relaxed);
        self.taken.store(0, Relaxed);
    }

    /// Nanoseconds that the task has taken since it was first seen.
    fn taken(&self) -> u64 {
        let now = now();
        let passed = now.saturating_sub(self.looked.swap(now, Relaxed));
        let taken = self.taken.load(Relaxed).saturating_add(passed.min(2 * self.wait.load(Relaxed)));
        self.taken.store(taken, Relaxed);
        taken
    }

    /// Whether a timer was ever set for this thread.
    #[cfg(test)]
    pub(super) fn was_interrupted(&self) -> bool {
        self.wait.load(Relaxed) != 0
    }

    /// Whether there is a monitor.
    #[cfg(test)]
    pub(super) const fn is_monitored(&self) -> bool {
        self.monitor.is_some()
    }

    /// Whether the tick that ended the last task set the timer for the next one.
    #[cfg(test)]
    pub(super) fn left_next_to_timer(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Whether the monitor looks at this thread, or the timer will tick.
    #[cfg(test)]
    pub(super) fn is_looked_at(&self) -> bool {
        self.looked_at.load(Relaxed)
    }

    /// Sets the timer to tick once.
    #[cold]
    fn tick_in(&self, nanoseconds: i64) {
        if !self.exists.load(Relaxed) {
            return;
        }
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let once = libc::itimerspec { it_interval: zero, it_value: libc::timespec { tv_nsec: nanoseconds, ..zero } };
        // SAFETY: the timer exists, and is deleted on this thread only.
        let result = unsafe { libc::timer_settime(self.timer.load(Relaxed), 0, &raw const once, null_mut()) };
        if self.monitor.is_none() {
            self.looked_at.store(result == 0, Relaxed);
        }
        self.wait.store(nanoseconds.unsigned_abs(), Relaxed);
    }

    fn tick(&self, context: Context, timer: bool) {
        let sequence = self.sequence.load(Relaxed);
        let running = Running::here();
        if sequence != self.seen.load(Relaxed) && (timer || !self.take_noted(sequence)) {
            if self.monitor.is_some() && !(timer && self.ended.swap(false, Relaxed)) {
                // What was to be looked at is over; the monitor sees to the rest.
                return;
            }
            self.seen.store(sequence, Relaxed);
            self.begin();
            let waits = running.as_ref().is_some_and(|running| running.waits_at(context.pc()));
            let left = running.as_ref().map_or(CHECK_PERIOD, limit_of);
            if let Some(running) = running.filter(|_| left <= CHECK_PERIOD) {
                // The next look ends it, so it is asked now, whether or not it waits here.
                running.want_yield();
            }
            return self.tick_in(if waits { RECHECK } else { left.clamp(RECHECK, CHECK_PERIOD) });
        }
        let Some(running) = running else {
            if self.monitor.is_none() {
                self.looked_at.store(false, Relaxed);
            }
            return;
        };
        let left = limit_of(&running).saturating_sub_unsigned(self.taken());
        let (waits, asked) = (running.waits_at(context.pc()), running.was_asked());
        running.want_yield();
        if left > 0 || !asked {
            return self.tick_in(left.clamp(RECHECK, if waits { AFTER_KILL } else { CHECK_PERIOD }));
        }
        self.overran.store(true, Relaxed);
        let ended = end(&running, context);
        let is_seen_to = ended && self.monitor.is_some_and(Monitor::looks_soon);
        self.ended.store(!is_seen_to, Relaxed);
        if is_seen_to {
            return;
        }
        // Whatever runs next is not to pay at once, unless it may take no more than that itself.
        self.tick_in(if ended { limit_of(&running).clamp(RECHECK, AFTER_KILL) } else { RECHECK });
    }

    /// Goes on with what the monitor has noted of a task, if it has.
    fn take_noted(&self, sequence: u64) -> bool {
        let noted = self.noted.sequence.load(Acquire) == sequence;
        if noted {
            self.seen.store(sequence, Relaxed);
            self.begin();
            let ran = clock(libc::CLOCK_THREAD_CPUTIME_ID).saturating_sub(self.noted.ran.load(Relaxed));
            self.taken.store(ran.min(2 * self.again.load(Relaxed).min(CHECK_PERIOD.unsigned_abs())), Relaxed);
        }
        noted
    }
}

/// Nanoseconds that the task may take.
fn limit_of(running: &Running) -> i64 {
    i64::try_from(running.time_limit()).unwrap_or(i64::MAX)
}

/// Ends the thread's task, or asks for it where it cannot be ended. Returns whether it ended.
fn end(running: &Running, mut context: Context) -> bool {
    // Anywhere else the frame may be half made.
    match running.site(context.pc()).filter(|site| site.body) {
        Some(site) => {
            running.set_fault(Cause::Watchdog, site, 0);
            context.set_pc(site.fault_return);
            true
        }
        None => {
            running.state().wanted.end();
            false
        }
    }
}

extern "C" fn on_tick(_: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls this with a valid context and what it knows of the signal.
    let (context, timer) = unsafe { (Context::new(context), (*info).si_code == libc::SI_TIMER) };
    keeping_errno(|| _ = here(|watch| watch.tick(context, timer)));
}
