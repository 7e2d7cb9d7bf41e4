//! Installation of signal handlers.

use std::ptr;

use libc::{c_int, c_void, siginfo_t};

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

pub(super) type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// The watchdogs' real-time signal.
pub(super) fn watchdog_signal() -> c_int {
    libc::SIGRTMIN() + 4
}

/// Installs one handler. Rust's threads have an alternate stack, to report stack overflows, and the handler runs there.
/// Threads without one run it on their own stack.
pub(super) fn handle(signal: c_int, name: &'static str, handler: Handler) -> Result<(), TrapError> {
    // SAFETY: all zeroes is a `sigaction` with no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the mask is this action's; the handlers given here are async-signal-safe.
    let result = unsafe {
        // A tick during the handling of a fault could not determine which of the two ends the task.
        libc::sigaddset(&raw mut action.sa_mask, watchdog_signal());
        libc::sigaction(signal, &raw const action, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(TrapError::Handler { signal: name, errno: errno() }) }
}

pub(super) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Runs a handler's work without changing the `errno` of the interrupted code.
pub(super) fn keeping_errno(work: impl FnOnce()) {
    // SAFETY: the thread's own `errno`.
    unsafe {
        let saved = *libc::__errno_location();
        work();
        *libc::__errno_location() = saved;
    }
}
