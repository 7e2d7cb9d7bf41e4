//! The clock of running tasks: a timer per thread that looks at its task from time to time.
//!
//! Starting a task is a plain store. The timer ticks every [`TICK`] while there are tasks, stops by itself after a tick at which
//! nobody's are attended to, and is set again by who attends next. A tick that sees a task for the first time notes the time; one
//! that sees it `limit` later ends it. So a task ends between its limit and a tick later. One that is seen twice in a loop that
//! waits is asked to let others go on; the second look comes [`SOON`]. One that may take no more than a tick is asked at the first look.
//!
//! That a thread is kept from running, by others or by the host of a virtual machine, is not its task's doing. Its ticks are late
//! then: each counts for no more than twice the time after which it was to come.

use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, compiler_fence};

use libc::{c_int, c_void, siginfo_t, timer_t};
use spin_abi::fault::Cause;

use super::context::Context;
use super::{Running, TrapError, errno, handle, keeping_errno};
use crate::jit::State;

/// Nanoseconds between two looks: as long as tasks still end within a millisecond after their limit. In a virtual machine that was
/// measured a tick takes 25 us, 3 of them for the signal.
const TICK: i64 = 900_000;
/// Nanoseconds to the next look at a task that waits, or is about to be ended, or could not be.
const SOON: i64 = 50_000;
/// Nanoseconds to the next look after one that ended a task, or asked one that waits to leave, at the most: the next may be alike.
const RESPITE: i64 = 200_000;

/// A thread's timer and what it knows of the thread's tasks. Written by the thread and by its signal handler.
pub(crate) struct Watch {
    /// The state of the thread's tasks, also between two of them; null when there are none.
    running: AtomicPtr<State>,
    timer: AtomicPtr<c_void>,
    /// `timer` is one (its id may be null).
    exists: AtomicBool,
    /// The timer will tick.
    set: AtomicBool,
    /// Counts tasks.
    sequence: AtomicU64,
    /// The sequence number that the last tick saw.
    seen: AtomicU64,
    /// What that task had taken then, in nanoseconds.
    taken: AtomicU64,
    /// When that was, in nanoseconds.
    looked: AtomicU64,
    /// Nanoseconds from a tick to the next one.
    wait: AtomicU64,
}

thread_local! {
    // Constant at first and never dropped: an access neither allocates nor registers anything.
    static WATCH: Watch = const {
        Watch {
            running: AtomicPtr::new(null_mut()),
            timer: AtomicPtr::new(null_mut()),
            exists: AtomicBool::new(false),
            set: AtomicBool::new(false),
            sequence: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            wait: AtomicU64::new(0),
        }
    };
}

/// The watchdog of the thread that made it.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// The thread's own, which this cannot leave: it lives as long as the thread.
    watch: *const Watch,
}

/// What is left of `limit` to the thread's task, in nanoseconds. What it took before its first look is not known, nor asked
/// for: it is less than a tick.
pub(crate) fn time_left(limit: u64) -> u64 {
    WATCH.with(|watch| {
        let seen = watch.seen.load(Relaxed) == watch.sequence.load(Relaxed);
        if limit == u64::MAX || !seen { limit } else { limit.saturating_sub(watch.taken()) }
    })
}

/// What the thread runs.
pub(super) fn running() -> *mut State {
    WATCH.with(|watch| watch.running.load(Relaxed))
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
        super::install()?;
        WATCH.with(|watch| {
            if watch.exists.load(Relaxed) {
                return Err(TrapError::Watched);
            }
            watch.timer.store(create_timer()?, Relaxed);
            watch.exists.store(true, Relaxed);
            Ok(Self { watch })
        })
    }

    /// The thread's.
    #[inline]
    pub(crate) const fn watch(&self) -> &Watch {
        // SAFETY: a thread-local that is never dropped, of the thread that this was made on and cannot leave.
        unsafe { &*self.watch }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let watch = self.watch();
        // A tick that comes from here on finds no timer to set.
        watch.exists.store(false, Relaxed);
        compiler_fence(SeqCst);
        watch.set.store(false, Relaxed);
        // SAFETY: the timer was created by `new` and is deleted once.
        unsafe { libc::timer_delete(watch.timer.load(Relaxed)) };
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
fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.unsigned_abs())
}

impl Watch {
    /// The tasks that begin are of `state`, or of nobody if that is null. Returns whose there were before.
    #[inline]
    pub(super) fn attend(&self, state: *mut State) -> *mut State {
        let before = self.running.load(Relaxed);
        self.running.store(state, Relaxed);
        before
    }

    /// Sets the timer if it is not, for tasks of `state` that do not have all time. Once they are attended to: a tick that comes
    /// then goes on by itself.
    #[inline]
    pub(super) fn wake_for(&self, state: &State) {
        if !self.set.load(Relaxed) && state.time_limit != u64::MAX {
            self.tick_in(TICK);
        }
    }

    /// A task of `state` begins. It may take its `time_limit`: then [`Cause::Watchdog`] ends it if it is in a body, else `state.wanted`
    /// asks whatever it called to do so.
    ///
    /// # Safety
    /// `state` is attended to by an [`Attending`](super::Attending) that lives, whether or not another was made since.
    pub(crate) unsafe fn start(&self, state: *mut State) {
        // SAFETY: the caller says that it is attended to: it is valid.
        unsafe {
            self.announce(state);
            (*state).wanted.clear();
        }
        compiler_fence(SeqCst);
    }

    /// The same, but for what may still be wanted of the task before: that is for the caller to see to.
    ///
    /// # Safety
    /// As [`Watch::start`].
    #[inline(always)]
    pub(crate) unsafe fn announce(&self, state: *mut State) {
        // Another may be attended to meanwhile: who is lent a row of tasks can begin one of another slot.
        self.running.store(state, Relaxed);
        self.sequence.store(self.sequence.load(Relaxed).wrapping_add(1), Relaxed);
        // A tick that raises a flag for the task before comes before this.
        compiler_fence(SeqCst);
    }

    /// Takes the time of the task from here on, rather than from the first look at it: for one that had some before.
    pub(crate) fn measure(&self) {
        self.begin();
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
        self.set.store(result == 0, Relaxed);
        self.wait.store(nanoseconds.unsigned_abs(), Relaxed);
    }

    fn tick(&self, context: Context) {
        let sequence = self.sequence.load(Relaxed);
        let running = Running::here();
        if sequence != self.seen.swap(sequence, Relaxed) {
            self.begin();
            let waits = running.as_ref().is_some_and(|running| running.waits_at(context.pc()));
            let left = running.as_ref().map_or(TICK, limit_of);
            if let Some(running) = running.filter(|_| left <= TICK) {
                // The next look ends it, so it is asked now, whether or not it waits here.
                running.want_yield();
            }
            return self.tick_in(if waits { SOON } else { left.clamp(SOON, TICK) });
        }
        let Some(running) = running else { return self.set.store(false, Relaxed) };
        let left = limit_of(&running).saturating_sub_unsigned(self.taken());
        let waits = running.waits_at(context.pc());
        running.want_yield();
        if left > 0 {
            return self.tick_in(left.clamp(SOON, if waits { RESPITE } else { TICK }));
        }
        let ended = end(&running, context);
        // Whatever runs next is not to pay at once, unless it may take no more than that itself.
        self.tick_in(if ended { limit_of(&running).clamp(SOON, RESPITE) } else { SOON });
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

extern "C" fn on_tick(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls this with a valid context.
    let context = unsafe { Context::new(context) };
    keeping_errno(|| WATCH.with(|watch| watch.tick(context)));
}
