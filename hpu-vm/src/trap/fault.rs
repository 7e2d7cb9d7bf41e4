//! SIGSEGV and SIGBUS: an access of translated code that guest memory refuses.

use std::mem;
use std::ptr;
use std::sync::OnceLock;

use libc::{c_int, c_void, siginfo_t};
use spin_abi::fault::Cause;

use super::context::Context;
use super::running::Running;
use super::signals::{Handler, TrapError, errno, handle, keeping_errno};
use crate::address::Access;
use crate::memory::layout::FaultOutcome;

/// The former handlers of the signals of a refused access.
struct Previous {
    segv: libc::sigaction,
    bus: libc::sigaction,
}

static PREVIOUS: OnceLock<Previous> = OnceLock::new();

pub(super) fn install() -> Result<(), TrapError> {
    // Set before the handlers are installed, so that they always find it.
    let previous = Previous { segv: installed(libc::SIGSEGV, "SIGSEGV")?, bus: installed(libc::SIGBUS, "SIGBUS")? };
    let _ = PREVIOUS.set(previous);
    handle(libc::SIGSEGV, "SIGSEGV", on_fault)?;
    handle(libc::SIGBUS, "SIGBUS", on_fault)
}

fn installed(signal: c_int, name: &'static str) -> Result<libc::sigaction, TrapError> {
    // SAFETY: all zeroes is a `sigaction`; the kernel fills it.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: as above; nothing is changed.
    let result = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    if result == 0 { Ok(action) } else { Err(TrapError::Handler { signal: name, errno: errno() }) }
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    keeping_errno(|| {
        // SAFETY: the kernel calls this with a valid context and information about the fault.
        let (ours, address, code) = unsafe { (Context::new(context), (*info).si_addr().addr(), (*info).si_code) };
        // A signal that a process sent has no address, and repeats no instruction.
        let sent = code <= 0;
        if sent || take(ours, address).is_none() {
            chain(signal, info, context, sent);
        }
    });
}

/// Handles a fault of translated code at host address `host`; `None` for any other fault.
fn take(mut context: Context, host: usize) -> Option<()> {
    let running = Running::here()?;
    // Prologues and epilogues do not access guest memory, so a fault there is in a body.
    let (location, layout) = (running.location(context.pc())?, running.layout()?);
    let address = layout.guest_address(host)?;
    let access = if location.atomic || context.is_write() { Access::Write } else { Access::Read };
    let cause = match layout.resolve_fault(address, access) {
        FaultOutcome::Retry => return Some(()),
        FaultOutcome::Fault(cause) => cause,
        FaultOutcome::Device => {
            running.note_device_access();
            Cause::DeviceAccess
        }
    };
    running.set_fault(cause, location, address);
    context.set_pc(location.fault_return);
    Some(())
}

/// Passes on a signal that translated code did not cause: to the former handler, or to the default action. The default
/// action follows when the instruction is repeated, or when a signal that was sent is raised again.
fn chain(signal: c_int, info: *mut siginfo_t, context: *mut c_void, sent: bool) {
    let previous = PREVIOUS.get().map(|previous| if signal == libc::SIGBUS { &previous.bus } else { &previous.segv });
    let action = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    // Faults cannot be ignored.
    if sent && action == libc::SIG_IGN {
        return;
    }
    // SAFETY: an installed handler is a function of the signature that its flags say. Without one the default action is
    // restored, which no memory depends on.
    unsafe {
        if action == libc::SIG_DFL || action == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_DFL);
        } else if previous.is_some_and(|previous| previous.sa_flags & libc::SA_SIGINFO != 0) {
            mem::transmute::<usize, Handler>(action)(signal, info, context);
        } else {
            mem::transmute::<usize, extern "C" fn(c_int)>(action)(signal);
        }
    }
    // A handler that restored the default action, as Rust's does, expects the instruction to be repeated too.
    if sent && installed(signal, "").is_ok_and(|action| action.sa_sigaction == libc::SIG_DFL) {
        // SAFETY: touches no memory; the signal arrives when the handler returns.
        unsafe { libc::raise(signal) };
    }
}
