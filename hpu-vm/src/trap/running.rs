//! The task that a thread executes, as signal handlers and the code around translated code see it.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::compiler_fence;

use spin_abi::fault::Cause;

use super::watch::{Watch, running_state};
use crate::jit::{ExitReason, Location, State};
use crate::memory::Layout;

/// The task that a thread executes.
pub(super) struct Running {
    state: *mut State,
}

impl Running {
    /// The task of this thread, if it executes one.
    pub(super) fn here() -> Option<Self> {
        let state = running_state();
        (!state.is_null()).then_some(Self { state })
    }

    /// The instruction of the task's translated code at host address `pc`.
    pub(super) fn location(&self, pc: usize) -> Option<Location> {
        // SAFETY: the state is valid while a `TrapGuard` refers to it, and this field is not written meanwhile.
        let lookup = unsafe { (*self.state).signals.lookup };
        lookup(pc)
    }

    pub(super) fn layout(&self) -> Option<&Layout> {
        // SAFETY: as in `location`; the layout lives as long as the guard.
        unsafe { (*self.state).signals.layout.as_ref() }
    }

    /// The state. Signal handlers write only its atomics through this reference.
    fn state(&self) -> &State {
        // SAFETY: the state is valid while a `TrapGuard` refers to it; the code that writes it is interrupted
        // meanwhile.
        unsafe { &*self.state }
    }

    /// Asks the task to park at its waiting loop, if it may park.
    pub(super) fn request_yield(&self) {
        let state = self.state();
        if state.limits.may_park != 0 {
            state.request.request_park();
        }
    }

    /// Asks the task to end at its next opportunity.
    pub(super) fn request_end(&self) {
        self.state().request.request_end();
    }

    /// Notes that the task accessed a device where its translation expected memory.
    pub(super) fn note_device_access(&self) {
        self.state().device_touched.store(1, Relaxed);
    }

    /// Whether the task was asked to park already, or may not park.
    pub(super) fn was_asked_to_yield(&self) -> bool {
        let state = self.state();
        state.limits.may_park == 0 || state.request.parks()
    }

    /// Whether host address `pc` is in a waiting loop of a task that may park and was not asked to.
    pub(super) fn waits_at(&self, pc: usize) -> bool {
        !self.was_asked_to_yield() && self.location(pc).is_some_and(|location| location.waits)
    }

    /// Time limit of the task in nanoseconds.
    pub(super) fn time_limit(&self) -> i64 {
        // SAFETY: the state is valid while a `TrapGuard` refers to it, and this field is not written meanwhile.
        let limit = unsafe { (*self.state).limits.time };
        i64::try_from(limit).unwrap_or(i64::MAX)
    }

    /// Notes that the task is ended at `location`.
    pub(super) fn set_fault(&self, cause: Cause, location: Location, address: u32) {
        // SAFETY: the state is valid while a `TrapGuard` refers to it. Fields are written one by one, since the
        // interrupted code has pointers to it.
        unsafe {
            (&raw mut (*self.state).exit).write_volatile(ExitReason::Faulted as u32);
            (&raw mut (*self.state).fault.cause).write_volatile(cause.code());
            (&raw mut (*self.state).fault.pc).write_volatile(location.pc);
            (&raw mut (*self.state).fault.address).write_volatile(address);
        }
    }
}

/// Until this guard is dropped, faults of this thread's translated code are reported in a state, and its tasks have a
/// time limit.
pub(crate) struct TrapGuard<'w> {
    watch: &'w Watch,
    /// State of the enclosing guard, or null: a device may run tasks itself.
    outer: *mut State,
}

impl<'w> TrapGuard<'w> {
    /// Begins tasks of `state`, each with [`Watch::start_task`].
    ///
    /// # Safety
    /// The guard is dropped, not forgotten. Until then:
    /// * `state` is valid for writes, and only this thread and the translated code that it calls use it.
    /// * Translated code follows `state.signals.lookup`: a jump from any address that it finds to the location's
    ///   `fault_return` leaves the function in good order.
    /// * Translated code accesses memory only through `state.signals.layout`, which stays valid.
    #[inline]
    pub(crate) unsafe fn new(watch: &'w Watch, state: *mut State) -> Self {
        let outer = watch.set_running(state);
        // Handlers run on this thread, so they see the compiler's order.
        compiler_fence(SeqCst);
        // SAFETY: the caller guarantees that the state is valid.
        watch.ensure_checked(unsafe { &*state });
        Self { watch, outer }
    }
}

impl Drop for TrapGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        self.watch.set_running(self.outer);
    }
}
