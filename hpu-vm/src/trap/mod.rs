//! Signals that end tasks: memory faults of translated code, and the clock of those that run too long.
//!
//! Translated code checks no address: it faults, and [`fault`] turns the signal into the task's fault. [`watchdog`]
//! looks at a thread's task from time to time. Both find the task by a thread-local pointer that is set while
//! translated code runs, and leave it through the epilogue that the program counter's [`Site`] names; a program counter
//! outside of translated bodies is left alone.
//!
//! What runs in a handler neither allocates, locks, nor uses buffered I/O: only atomics, the mapping's own tables and
//! system calls.
#![allow(unsafe_code, reason = "installs signal handlers, which follow the running thread's pointer to its task")]

mod context;
mod fault;
mod watchdog;

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU32, compiler_fence};

use spin_abi::fault::Cause;

pub(crate) use watchdog::Watchdog;

use crate::jit::{Left, Site, State};
use crate::memory::Layout;

/// Says what translated code lies at a host address. It is called in signal handlers.
pub(crate) type Lookup = fn(usize) -> Option<Site>;

/// The task whose translated code a thread executes.
struct Running {
    state: *mut State,
    layout: *const Layout,
    lookup: Lookup,
}

thread_local! {
    // Constant at first and never dropped: an access neither allocates nor registers anything.
    static RUNNING: AtomicPtr<Running> = const { AtomicPtr::new(ptr::null_mut()) };
}

impl Running {
    /// Calls `look` with the task of this thread, if it executes one.
    fn here<R>(look: impl FnOnce(&Self) -> R) -> Option<R> {
        let running = RUNNING.with(|running| running.load(Relaxed));
        // SAFETY: it is null or points into the frame of `enter` on this thread's stack, which changes it before it
        // returns; this thread is in `look` meanwhile.
        unsafe { running.as_ref() }.map(look)
    }

    /// What the task's translated code is at host address `pc`.
    fn site(&self, pc: usize) -> Option<Site> {
        (self.lookup)(pc)
    }

    fn layout(&self) -> &Layout {
        // SAFETY: `enter` borrows it longer than it has `self`.
        unsafe { &*self.layout }
    }

    /// Sets a flag of the state.
    fn raise(&self, flag: impl FnOnce(&State) -> &AtomicU32) {
        // SAFETY: the state is valid while `enter` has `self`; the code that writes it is interrupted meanwhile.
        flag(unsafe { &*self.state }).store(1, Relaxed);
    }

    /// Notes that the task is ended at `site`.
    fn set_fault(&self, cause: Cause, site: Site, address: u32) {
        // SAFETY: the state is valid while `enter` has `self`; fields are written one by one, since the interrupted code
        // has pointers to it.
        unsafe {
            (&raw mut (*self.state).exit).write_volatile(Left::Faulted as u32);
            (&raw mut (*self.state).cause).write_volatile(cause.code());
            (&raw mut (*self.state).fault_pc).write_volatile(site.pc);
            (&raw mut (*self.state).fault_address).write_volatile(address);
        }
    }
}

/// Calls `body`, which executes translated code on `state` and in `layout`; faults in it come back in `state`. With a
/// watchdog the task may take `limit` microseconds: then [`Cause::Watchdog`] ends it if it is in a body, else
/// `state.kill` asks whatever it called to do so.
///
/// # Safety
/// `state` is valid for writes until `body` returns, and only this thread and translated code that `body` calls use it.
/// That code follows `lookup` (jumping to a site's `fault_return` from anywhere it was found at leaves the function in
/// good order) and touches memory only through `layout`, [`install`]ed before.
pub(crate) unsafe fn enter<R>(
    state: *mut State,
    layout: &Layout,
    lookup: Lookup,
    watch: Option<(&Watchdog, u64)>,
    body: impl FnOnce() -> R,
) -> R {
    // SAFETY: the caller says that the state is valid.
    unsafe { (*state).kill.store(0, Relaxed) };
    let mut running = Running { state, layout, lookup };
    // Handlers run on this thread: what they see is in order when the compiler keeps it so.
    compiler_fence(SeqCst);
    let before = RUNNING.with(|place| place.load(Relaxed));
    RUNNING.with(|place| place.store(&raw mut running, Relaxed));
    let _leave = Leave { before };
    if let Some((watchdog, limit)) = watch {
        watchdog.start(limit);
    }
    compiler_fence(SeqCst);
    body()
}

/// Puts back what the thread ran before.
struct Leave {
    before: *mut Running,
}

impl Drop for Leave {
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        watchdog::stop();
        RUNNING.with(|place| place.store(self.before, Relaxed));
        compiler_fence(SeqCst);
    }
}

/// Why signals cannot be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrapError {
    /// The kernel refused a handler.
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
