//! The clock of running tasks: a timer per thread that looks at its task from time to time.
//!
//! Starting and ending a task are plain stores. The timer ticks every [`TICK`] while there are tasks, stops by itself
//! after a tick that saw none, and is set again by the next task. A tick that sees a task for the first time notes the
//! time; one that sees it `limit` later ends it. So a task ends between its limit and a tick later.

use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, compiler_fence};

use libc::{c_int, c_void, siginfo_t, timer_t};
use spin_abi::fault::Cause;

use super::context::Context;
use super::{Running, TrapError, errno, handle, keeping_errno};

/// Nanoseconds between two looks.
const TICK: i64 = 500_000;
/// Nanoseconds to the next look at a task that is about to be, or could not be, ended.
const SOON: i64 = 50_000;

/// A thread's timer and what it knows of the thread's tasks. Written by the thread and by its signal handler.
struct Watch {
    timer: AtomicPtr<c_void>,
    /// `timer` is one (its id may be null).
    exists: AtomicBool,
    /// The timer will tick.
    set: AtomicBool,
    /// Counts starts and ends: odd while a task runs.
    sequence: AtomicU64,
    /// Of the task that runs, in nanoseconds.
    limit: AtomicU64,
    /// The sequence number that the last tick saw.
    seen: AtomicU64,
    /// When it was first seen, in nanoseconds.
    since: AtomicU64,
}

thread_local! {
    // Constant at first and never dropped: an access neither allocates nor registers anything.
    static WATCH: Watch = const {
        Watch {
            timer: AtomicPtr::new(null_mut()),
            exists: AtomicBool::new(false),
            set: AtomicBool::new(false),
            sequence: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            since: AtomicU64::new(0),
        }
    };
}

/// The watchdog of the thread that made it.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// It cannot leave its thread.
    here: PhantomData<*const ()>,
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
            Ok(Self { here: PhantomData })
        })
    }

    /// A task begins, which may take `limit` microseconds.
    pub(super) fn start(&self, limit: u64) {
        WATCH.with(|watch| {
            watch.limit.store(limit.saturating_mul(1000), Relaxed);
            watch.sequence.store(watch.sequence.load(Relaxed) | 1, Relaxed);
            // A tick that comes here sees the task and sets the timer, or came before and `set` tells.
            compiler_fence(SeqCst);
            if !watch.set.load(Relaxed) {
                watch.tick_in(TICK);
            }
        });
    }
}

/// The thread's task, if one was started, has ended.
pub(super) fn stop() {
    WATCH.with(|watch| watch.sequence.store(watch.sequence.load(Relaxed).next_multiple_of(2), Relaxed));
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        WATCH.with(|watch| {
            // A tick that comes from here on finds no timer to set.
            watch.exists.store(false, Relaxed);
            compiler_fence(SeqCst);
            watch.set.store(false, Relaxed);
            // SAFETY: the timer was created by `new` and is deleted once.
            unsafe { libc::timer_delete(watch.timer.load(Relaxed)) };
        });
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
    /// Sets the timer to tick once.
    fn tick_in(&self, nanoseconds: i64) {
        if !self.exists.load(Relaxed) {
            return;
        }
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let once = libc::itimerspec { it_interval: zero, it_value: libc::timespec { tv_nsec: nanoseconds, ..zero } };
        // SAFETY: the timer exists, and is deleted on this thread only.
        let result = unsafe { libc::timer_settime(self.timer.load(Relaxed), 0, &raw const once, null_mut()) };
        self.set.store(result == 0, Relaxed);
    }

    fn tick(&self, context: Context) {
        let sequence = self.sequence.load(Relaxed);
        if sequence != self.seen.swap(sequence, Relaxed) {
            self.since.store(now(), Relaxed);
        } else if sequence.is_multiple_of(2) {
            return self.set.store(false, Relaxed);
        }
        let taken = now().saturating_sub(self.since.load(Relaxed));
        let left = i64::try_from(self.limit.load(Relaxed).saturating_sub(taken)).unwrap_or(i64::MAX);
        if left > 0 || sequence.is_multiple_of(2) {
            return self.tick_in(left.clamp(SOON, TICK));
        }
        end(context);
        self.tick_in(SOON);
    }
}

/// Ends the thread's task, or asks for it where it cannot be ended.
fn end(mut context: Context) {
    Running::here(|running| match running.site(context.pc()) {
        Some(site) => {
            running.set_fault(Cause::Watchdog, site, 0);
            context.set_pc(site.fault_return);
        }
        None => running.raise(|state| &state.kill),
    });
}

extern "C" fn on_tick(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls this with a valid context.
    let context = unsafe { Context::new(context) };
    keeping_errno(|| WATCH.with(|watch| watch.tick(context)));
}
