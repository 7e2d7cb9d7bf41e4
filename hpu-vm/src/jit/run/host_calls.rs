//! Functions that translated code calls.
#![allow(unsafe_code, reason = "follows the state's pointers to the view, the device and host memory")]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::slice;
use std::sync::atomic::AtomicU8;
use std::task::Poll;

use spin_abi::command::{Command, Direction, Source, Status};
use spin_abi::fault::Cause;
use spin_abi::map::DRIVER_BASE;
use spin_abi::regs::{COMMAND_ISSUE, INFO_DMA, INFO_SEND, TASK_END, TASK_FIRST};

use crate::device::{self, Device, Trap};
use crate::host::{self, HostBytes};
use crate::interp;
use crate::jit::convention::{PENDING, task_ended};
use crate::jit::entry::LastSend;
use crate::jit::host_copy::HostCopy;
use crate::jit::state::{CallingTask, ExitReason, HostCalls, State};
use crate::view::View;

/// Table of the functions for a device of type `D`. `copies` says whether the translation makes copies that must be
/// reported to the device.
#[inline]
pub(super) const fn table<D: Device>(copies: bool) -> &'static HostCalls {
    if copies { &Trampolines::<D, true>::TABLE } else { &Trampolines::<D, false>::TABLE }
}

/// References to a task's state and to its view and device, while its translated code does not run.
pub(super) struct TaskRefs<'t, D> {
    pub(super) state: &'t mut State,
    pub(super) view: &'t mut View<'static>,
    pub(super) device: &'t mut D,
}

impl<D: Device> TaskRefs<'_, D> {
    /// # Safety
    /// `state` belongs to a bound slot whose device is a `D`. No other code uses the state, its view and its device
    /// during the lifetime of the result.
    #[inline(always)]
    pub(super) unsafe fn new(state: *mut State) -> Self {
        // SAFETY: `bind` borrows all three, which are different objects, and set the pointers; the caller guarantees that
        // this is their only use.
        unsafe {
            let state = &mut *state;
            let (view, device) = (&mut *state.host.view.cast(), &mut *state.host.device.cast());
            Self { state, view, device }
        }
    }

    /// Reports copies that the device was not called for.
    #[inline]
    pub(super) fn report_copies(&mut self) {
        self.state.host_copy.report(self.device);
    }

    /// Issues a command and returns the result for translated code.
    #[inline(always)]
    fn issue(&mut self, command: Result<Command, Status>) -> i64 {
        let result = self.device.issue(self.view, command);
        self.call_result(result.map_err(Trap::Fault), DRIVER_BASE + COMMAND_ISSUE)
    }

    /// Issues the send that translated code left to its caller. Returns whether it succeeded, and the task thus returned.
    #[inline]
    pub(super) fn issue_last_send(mut self, LastSend { pc, address, length }: LastSend) -> bool {
        if self.state.host_copy.copies > 0 {
            report_before_send(&mut self.state.host_copy, self.device);
        }
        let issued = self.issue(Ok(plain_send(address, length)));
        if issued < 0 {
            self.state.fault.pc = pc;
        }
        issued >= 0
    }

    /// Result of a host call for translated code.
    #[inline(always)]
    fn call_result(&mut self, result: Result<u32, Trap>, address: u32) -> i64 {
        call_result(self.state, self.device, result, address)
    }
}

/// Not inlined: few handlers end with a send after copies.
#[cold]
fn report_before_send(copies: &mut HostCopy, device: &mut impl Device) {
    copies.report(device);
}

#[inline]
fn call_result(state: &mut State, device: &mut impl Device, result: Result<u32, Trap>, address: u32) -> i64 {
    state.limits.retired = state.limits.retired.saturating_sub(device.take_charge());
    match result {
        Ok(_) if state.request.ends() => state.set_fault(Cause::Watchdog, state.hart.pc, 0),
        Ok(value) => return i64::from(value),
        Err(Trap::Finish) => state.exit = ExitReason::Finished as u32,
        Err(Trap::Fault(cause)) => state.set_fault(cause, state.hart.pc, address),
        Err(Trap::Report(value)) => state.set_fault(Cause::Reported, state.hart.pc, value),
    }
    task_ended(state)
}

/// A raw send of NIC memory.
const fn plain_send(address: u32, length: u32) -> Command {
    Command::Send { destination: 0, fid: 0, source: Source::Nic(address), length }
}

/// Functions that translated code calls, for a device of type `D`. `COPIES` says whether the translation makes copies
/// that must be reported to the device before another call of it.
struct Trampolines<D, const COPIES: bool>(PhantomData<D>);

impl<D: Device, const COPIES: bool> Trampolines<D, COPIES> {
    const TABLE: HostCalls = HostCalls {
        load: Self::load,
        issue: Self::issue,
        send: Self::issue_known::<INFO_SEND>,
        send_plain: Self::send_plain,
        dma: Self::issue_known::<INFO_DMA>,
        dma_to_host: Self::dma_to_host,
        copy_to_host: Self::copy_to_host,
        store: Self::store,
        ecall: Self::ecall,
        vector: Self::vector,
    };

    /// References to the calling task; the device knows of all copies.
    #[inline(always)]
    fn refs(task: CallingTask<'_>) -> TaskRefs<'_, D> {
        let mut refs = Self::refs_unreported(task);
        if COPIES {
            refs.report_copies();
        }
        refs
    }

    /// References to the calling task; the device may not know of all copies.
    #[inline(always)]
    fn refs_unreported(task: CallingTask<'_>) -> TaskRefs<'_, D> {
        // SAFETY: translated code alone makes a `CallingTask`, from the state of the slot that it runs in. It found this
        // function in that state's table, which `bind` sets for the device's type. It does not touch the state until the
        // call returns, and neither does `BoundSlot`.
        unsafe { TaskRefs::new(task.state()) }
    }

    extern "C" fn load(task: CallingTask<'_>, address: u32, width: u32) -> i64 {
        let mut refs = Self::refs(task);
        let TaskRefs { state, view, device } = &mut refs;
        let loaded = if is_task_register(address) { load_task_register(view, address, width) } else { None };
        // The width is 1, 2 or 4.
        let width = width.to_le_bytes()[0];
        let result = loaded.map_or_else(|| device::load(*device, &mut state.hart, view, address, width), Ok);
        refs.call_result(result.map(|value| value & interp::lower_bytes(width)), address)
    }

    extern "C" fn store(task: CallingTask<'_>, address: u32, width: u32, value: u32) -> i64 {
        let mut refs = Self::refs(task);
        let TaskRefs { state, view, device } = &mut refs;
        let bytes = value.to_le_bytes();
        let stored = if is_task_register(address) { view.copy_in(address, &bytes[..width as usize]) } else { None };
        let width = width.to_le_bytes()[0];
        let value = value & interp::lower_bytes(width);
        let stored = stored.map(|()| Poll::Ready(Ok(())));
        match stored.unwrap_or_else(|| device::store(*device, &mut state.hart, view, address, width, value)) {
            Poll::Ready(result) => refs.call_result(result.map(|()| 0), address),
            Poll::Pending => PENDING,
        }
    }

    extern "C" fn issue(task: CallingTask<'_>) -> i64 {
        let mut refs = Self::refs(task);
        let command = refs.state.hart.command.decode();
        refs.issue(command)
    }

    extern "C" fn issue_known<const INFO: u32>(
        task: CallingTask<'_>,
        word0: u32,
        word1: u32,
        word2: u32,
        word3: u32,
        word4: u32,
    ) -> i64 {
        let words = [word0, word1, word2, word3, word4];
        Self::refs(task).issue(Command::decode(INFO, |index| words[index]))
    }

    extern "C" fn send_plain(task: CallingTask<'_>, address: u32, length: u32) -> i64 {
        Self::refs(task).issue(Ok(plain_send(address, length)))
    }

    extern "C" fn dma_to_host(task: CallingTask<'_>, low: u32, high: u32, nic: u32, length: u32) -> i64 {
        let host = u64::from(high) << 32 | u64::from(low);
        Self::refs(task).issue(Ok(Command::Dma { host, nic, length, direction: Direction::ToHost, event: false }))
    }

    extern "C" fn copy_to_host(task: CallingTask<'_>, low: u32, high: u32, nic: u32, length: u32) -> *mut c_void {
        let host = u64::from(high) << 32 | u64::from(low);
        // SAFETY: as in `refs_unreported`.
        let state = unsafe { &mut *task.state() };
        if !state.request.ends()
            && let Some(from) = state.packet.host_address(nic, length)
            // SAFETY: `bind` set host memory that the task borrows. The packet window stays mapped as long as the slot.
            && let Some(copied) = unsafe { copy(&mut state.host_copy, from, host, length) }
        {
            return copied;
        }
        Self::copy_frame_to_host(task, low, high, nic, length)
    }

    /// As [`copy_to_host`](Self::copy_to_host) for a packet that may be in no window yet. Not inlined: the fast path
    /// would have to save registers for it.
    #[inline(never)]
    extern "C" fn copy_frame_to_host(task: CallingTask<'_>, low: u32, high: u32, nic: u32, length: u32) -> *mut c_void {
        let host = u64::from(high) << 32 | u64::from(low);
        let mut refs = Self::refs_unreported(task);
        let TaskRefs { state, view, .. } = &mut refs;
        // SAFETY: `bind` set host memory that the task borrows. The frame is borrowed for the call of the closure.
        let mut copy = |frame: &[u8]| unsafe { copy(&mut state.host_copy, frame.as_ptr(), host, length) }.is_some();
        if !state.request.ends() && view.with_frame_bytes(nic, length, &mut copy) == Some(true) {
            return ptr::null_mut();
        }
        refs.report_copies();
        let command = Command::Dma { host, nic, length, direction: Direction::ToHost, event: false };
        ptr::without_provenance_mut(refs.issue(Ok(command)).cast_unsigned() as usize)
    }

    extern "C" fn ecall(task: CallingTask<'_>) -> i64 {
        let mut refs = Self::refs(task);
        let result = refs.device.ecall(&mut refs.state.hart, refs.view);
        refs.call_result(result.map(|()| 0), 0)
    }

    extern "C" fn vector(task: CallingTask<'_>, bits: u32) -> i64 {
        let mut refs = Self::refs(task);
        let (result, address) = match interp::vector(&mut refs.state.hart, refs.view, bits) {
            Ok(()) => (Ok(0), 0),
            Err((cause, address)) => (Err(Trap::Fault(cause)), address),
        };
        refs.call_result(result, address)
    }
}

/// Copies `len` bytes to host memory at `address`; `None` if not all of them exist there. Returns what [`host::copy`]
/// returns.
///
/// # Safety
/// The host memory of [`HostCopy::set_target`] is still borrowed. `from` is as [`host::copy`] requires.
#[inline(always)]
unsafe fn copy(target: &mut HostCopy, from: *const u8, address: u64, len: u32) -> Option<*mut c_void> {
    // SAFETY: `set_target` stored address and length of these bytes, which are still borrowed.
    let bytes = unsafe { slice::from_raw_parts(target.host.cast::<AtomicU8>().cast_const(), target.len) };
    let to = HostBytes::new(target.address, bytes).part(address, len)?;
    target.copies += 1;
    target.bytes += u64::from(len);
    // SAFETY: the caller guarantees what `host::copy` requires.
    Some(unsafe { host::copy(from, to, target.memcpy) })
}

/// Whether an access at `address` may be to the task registers, which are memory.
const fn is_task_register(address: u32) -> bool {
    address.wrapping_sub(DRIVER_BASE + TASK_FIRST) < TASK_END - TASK_FIRST
}

fn load_task_register(view: &View<'_>, address: u32, width: u32) -> Option<u32> {
    let mut bytes = [0; 4];
    view.copy_out(address, bytes.get_mut(..width as usize)?)?;
    Some(u32::from_le_bytes(bytes))
}
