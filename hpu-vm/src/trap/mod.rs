//! Signals that end tasks: memory faults of translated code, and the time limit.
//!
//! Translated code checks no address: it faults, and [`fault`] turns the signal into the task's fault. [`watchdog`]
//! checks a thread's task from time to time. Both find the task by a thread-local pointer that is set while translated
//! code may run. They leave the task through the epilogue that the program counter's [`Site`] names. The watchdog does
//! nothing at a program counter outside of translated bodies; only bodies access memory that may fault.
//!
//! Signal handlers neither allocate, lock, nor use buffered I/O. They use only atomics, the mapping's own tables and
//! system calls.
#![allow(unsafe_code, reason = "installs signal handlers, which follow the running thread's pointer to its task")]

mod context;
mod fault;
mod monitor;
mod threads;
mod watchdog;

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;

use spin_abi::fault::Cause;

pub(crate) use watchdog::{Watch, Watchdog, time_left};

use crate::jit::{Left, Site, State};
use crate::memory::Layout;

/// Whether there is a monitor, which is started if there was none.
pub(crate) fn has_monitor() -> bool {
    monitor::Monitor::get().is_some()
}

/// The task that a thread executes.
struct Running {
    state: *mut State,
}

impl Running {
    /// The task of this thread, if it executes one.
    fn here() -> Option<Self> {
        let state = watchdog::running();
        (!state.is_null()).then_some(Self { state })
    }

    /// What the task's translated code is at host address `pc`.
    fn site(&self, pc: usize) -> Option<Site> {
        // SAFETY: the state is valid while it is attended to, and this field is not written meanwhile.
        let lookup = unsafe { (*self.state).lookup };
        lookup(pc)
    }

    fn layout(&self) -> Option<&Layout> {
        // SAFETY: as in `site`; who attends to it keeps the layout.
        unsafe { (*self.state).layout.as_ref() }
    }

    /// The state, of which signal handlers write atomics through this.
    fn state(&self) -> &State {
        // SAFETY: the state is valid while it is attended to; the code that writes it is interrupted meanwhile.
        unsafe { &*self.state }
    }

    /// Asks the task to leave where it waits, if it may.
    fn want_yield(&self) {
        let state = self.state();
        if state.may_park != 0 {
            state.wanted.leave();
        }
    }

    /// Whether that was asked already, or is not to be.
    fn was_asked(&self) -> bool {
        let state = self.state();
        state.may_park == 0 || state.wanted.leaves()
    }

    /// Whether the task is in a loop that waits, at host address `pc`, where it may be left and was not asked to.
    fn waits_at(&self, pc: usize) -> bool {
        !self.was_asked() && self.site(pc).is_some_and(|site| site.waits)
    }

    /// Nanoseconds that the task may take.
    fn time_limit(&self) -> u64 {
        // SAFETY: the state is valid while it is attended to, and this field is not written meanwhile.
        unsafe { (*self.state).time_limit }
    }

    /// Notes that the task is ended at `site`.
    fn set_fault(&self, cause: Cause, site: Site, address: u32) {
        // SAFETY: the state is valid while it is attended to; fields are written one by one, since the interrupted code
        // has pointers to it.
        unsafe {
            (&raw mut (*self.state).exit).write_volatile(Left::Faulted as u32);
            (&raw mut (*self.state).cause).write_volatile(cause.code());
            (&raw mut (*self.state).fault_pc).write_volatile(site.pc);
            (&raw mut (*self.state).fault_address).write_volatile(address);
        }
    }
}

/// Until it is dropped, faults of this thread's translated code come back in a state, and its tasks have a time limit.
pub(crate) struct TrapGuard<'w> {
    watch: &'w Watch,
    /// Whose tasks there were before: a device may run tasks itself.
    outer: *mut State,
}

impl<'w> TrapGuard<'w> {
    /// Tasks of `state` begin, each with [`Watch::start_task`].
    ///
    /// # Safety
    /// This is dropped, not forgotten. `state` is valid for writes until then, and only this thread and the translated code that it
    /// calls use it. That code follows `state.lookup` (jumping to a site's `fault_return` from anywhere it was found at leaves the
    /// function in good order) and touches memory only through `state.layout`, which lives as long.
    #[inline]
    pub(crate) unsafe fn new(watch: &'w Watch, state: *mut State) -> Self {
        let outer = watch.set_running(state);
        // Handlers run on this thread: what they see is in order when the compiler keeps it so.
        compiler_fence(SeqCst);
        // SAFETY: the caller says that the state is valid.
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

/// Reason why signals cannot be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrapError {
    /// The kernel refused a signal handler.
    #[error("cannot handle {signal}: error {errno}")]
    Handler {
        /// The signal's name.
        signal: &'static str,
        /// The kernel's error number.
        errno: i32,
    },
    /// The kernel refused a timer.
    #[error("cannot create the watchdog's timer: error {errno}{}", if *.errno == libc::EAGAIN { " (too many timers or pending signals: ulimit -i)" } else { "" })]
    Timer {
        /// The kernel's error number.
        errno: i32,
    },
    /// The thread has a watchdog already.
    #[error("this thread has a watchdog already")]
    Watched,
}

/// Installs the handlers, once for the process; faults that are not translated code's go to the handlers there were.
///
/// # Errors
/// [`TrapError::Handler`]; the same on every later call.
pub(crate) fn install() -> Result<(), TrapError> {
    static INSTALLED: OnceLock<Result<(), TrapError>> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        fault::install()?;
        watchdog::install()
    })
}

/// Installs one handler. It runs on the thread's alternate stack if there is one (Rust's threads have one, to report
/// stack overflows), else where the thread is.
fn handle(signal: libc::c_int, name: &'static str, handler: Handler) -> Result<(), TrapError> {
    // SAFETY: all zeroes is a `sigaction` with no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the mask is this action's; the handlers given here are async-signal-safe.
    let result = unsafe {
        // A tick that came while a fault is handled could not tell which of the two ends the task.
        libc::sigaddset(&raw mut action.sa_mask, watchdog::signal());
        libc::sigaction(signal, &raw const action, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(TrapError::Handler { signal: name, errno: errno() }) }
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Runs a handler's work without changing the `errno` of the interrupted code.
fn keeping_errno(work: impl FnOnce()) {
    // SAFETY: the thread's own `errno`.
    unsafe {
        let saved = *libc::__errno_location();
        work();
        *libc::__errno_location() = saved;
    }
}

#[cfg(test)]
mod tests;
