//! A check of the thread's task, in a signal handler: by the thread's timer, or by the monitor's signal.

use libc::{c_int, c_void, siginfo_t};
use spin_abi::fault::Cause;

use super::context::Context;
use super::running::Running;
use super::signals::{TrapError, handle, keeping_errno, watchdog_signal};
use super::watch::{AFTER_KILL, CHECK_PERIOD, RECHECK, Watch, with_watch};

pub(super) fn install() -> Result<(), TrapError> {
    handle(watchdog_signal(), "the watchdog's signal", on_tick)
}

extern "C" fn on_tick(_: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls this with a valid context and valid information about the signal.
    let (context, from_timer) = unsafe { (Context::new(context), (*info).si_code == libc::SI_TIMER) };
    keeping_errno(|| _ = with_watch(|watch| tick(watch, context, from_timer)));
}

fn tick(watch: &Watch, context: Context, from_timer: bool) {
    let running = Running::here();
    if watch.sees_new_task(from_timer) {
        if watch.begin_checks(from_timer) {
            watch.set_timer(first_check(running, &context));
        }
        return;
    }
    let Some(running) = running else { return watch.end_checks() };
    let left = running.time_limit().saturating_sub_unsigned(watch.used_time());
    let (waits, asked) = (running.waits_at(context.pc()), running.was_asked_to_yield());
    running.request_yield();
    if left > 0 || !asked {
        return watch.set_timer(left.clamp(RECHECK, if waits { AFTER_KILL } else { CHECK_PERIOD }));
    }
    let ended = end(&running, context);
    if !watch.note_timeout(ended) {
        // The next task must not be charged at once, unless its own limit is no longer than that.
        watch.set_timer(if ended { running.time_limit().clamp(RECHECK, AFTER_KILL) } else { RECHECK });
    }
}

/// Nanoseconds from the first check of a task to the next one.
fn first_check(running: Option<Running>, context: &Context) -> i64 {
    let waits = running.as_ref().is_some_and(|running| running.waits_at(context.pc()));
    let left = running.as_ref().map_or(CHECK_PERIOD, Running::time_limit);
    if let Some(running) = running.filter(|_| left <= CHECK_PERIOD) {
        // The next check ends the task, so the request to park comes now, whether or not the task waits here.
        running.request_yield();
    }
    if waits { RECHECK } else { left.clamp(RECHECK, CHECK_PERIOD) }
}

/// Ends the thread's task, or asks for it where it cannot be ended. Returns whether it ended.
fn end(running: &Running, mut context: Context) -> bool {
    // Outside of a body the stack frame may be incomplete.
    match running.location(context.pc()).filter(|location| location.body) {
        Some(location) => {
            running.set_fault(Cause::Watchdog, location, 0);
            context.set_pc(location.fault_return);
            true
        }
        None => {
            running.request_end();
            false
        }
    }
}
