//! State shared by translated code and the host: one [`State`] per HPU slot.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use spin_abi::fault::{Cause, Fault};

use super::host_copy::HostCopy;
use super::pc_map::Location;
use crate::hart::Hart;
use crate::interp::Exit;
use crate::memory::{Layout, PacketSource};

/// Reason why translated code was left, in [`State::exit`]. A return of the handler is reported by the code itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ExitReason {
    /// All tasks so far returned.
    Returned = 0,
    /// The handler read the doorbell.
    Finished = 1,
    /// The handler was ended: see [`State::fault`].
    Faulted = 2,
    /// The interpreter continues with the hart, after [side exit](super::side_exits::SideExits) [`State::resume`].
    Interpret = 3,
    /// The handler waits. Another call continues at resume point [`State::resume`].
    Parked = 4,
    /// The handler waits, and the interpreter continues as after [`ExitReason::Interpret`].
    Waiting = 5,
    /// Execution continues with the hart in another region, or in the interpreter, after side exit [`State::resume`].
    Jumped = 6,
}

/// Requests of the watchdog to a task: one word, so that a starting task checks all of them at once. Written by the
/// task's thread and that thread's signal handlers.
#[derive(Debug)]
#[repr(transparent)]
pub struct Request(AtomicU64);

impl Request {
    const END: u64 = 1;
    const PARK: u64 = 1 << 32;
    /// Offset of 32 bits that are not zero while parking is requested.
    pub const PARK_OFFSET: usize = if cfg!(target_endian = "little") { 4 } else { 0 };

    const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Clears all requests for a starting task.
    pub fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// Requests the task to end at the next opportunity.
    pub fn request_end(&self) {
        self.0.fetch_or(Self::END, Relaxed);
    }

    /// Whether the task must end.
    #[inline]
    pub fn ends(&self) -> bool {
        self.0.load(Relaxed) & Self::END != 0
    }

    /// Requests the task to park where it waits, since other tasks wait for this thread.
    pub fn request_park(&self) {
        self.0.fetch_or(Self::PARK, Relaxed);
    }

    /// Whether the task must park where it waits.
    pub fn parks(&self) -> bool {
        self.0.load(Relaxed) & Self::PARK != 0
    }
}

/// Registers, device and outcome of the running task. Translated code accesses the fields by their offsets; signal
/// handlers write the fault. Fields that each task uses come first.
#[derive(Debug)]
#[repr(C)]
pub struct State {
    /// Registers of the hart. Translated code keeps them in host registers. It writes them here when it exits to the
    /// interpreter, except those that the [side exit](super::side_exits::SideExits) knows.
    pub hart: Hart,
    /// Guest memory.
    pub memory: GuestMemory,
    /// Registers at the start of a task.
    pub initial: InitialRegisters,
    /// Requests of the watchdog to the task.
    pub request: Request,
    /// Instruction and time limits.
    pub limits: TaskLimits,
    /// Location of the packet in L1.
    pub packet: PacketLocation,
    /// Device and memory of host calls.
    pub host: Host,
    /// Copies to host memory.
    pub host_copy: HostCopy,
    /// [`ExitReason`] of the last task whose handler did not return.
    pub exit: u32,
    /// Resume point; 0 is the handler's first instruction. After an exit: number of the
    /// [side exit](super::side_exits::SideExits).
    pub resume: u32,
    /// One more than the index of the [shared region](super::translation::SharedCode) that a task is parked in; 0 for its
    /// handler.
    pub region: u32,
    /// Fault of the last task that was ended by one.
    pub fault: FaultRecord,
    /// Non-zero when the task has accessed a device where its translation expected memory.
    pub device_touched: AtomicU32,
    /// Tables for signal handlers.
    pub signals: SignalTables,
    /// Outcome of the last task that did not return from translated code. It is stored here, so that a loop over tasks
    /// needs no register for it.
    pub outcome: Exit,
}

/// Guest memory as translated code accesses it.
#[derive(Debug)]
#[repr(C)]
pub struct GuestMemory {
    /// Host address of guest address 0.
    pub base: *mut u8,
    /// Exact bounds by page, for exact checks: see [`super::bounds`].
    pub bounds: *const u32,
    /// Guest address of the task registers.
    pub task_base: u32,
    /// Guest address of the own cluster's L1, whose alias is at `L1_ALIAS`.
    pub l1_base: u32,
    /// Size of the own cluster's L1 in bytes.
    pub l1_size: u32,
}

/// Registers at the start of a task, besides a0 and registers with a constant value.
#[derive(Debug)]
#[repr(C)]
pub struct InitialRegisters {
    /// Stack pointer.
    pub sp: u32,
    /// Thread pointer.
    pub tp: u32,
}

/// Limits of a task.
#[derive(Debug)]
#[repr(C)]
pub struct TaskLimits {
    /// Value of [`Hart::retired`] at which the task exceeds its limit, for translations that count.
    pub retired: u64,
    /// Time limit in nanoseconds; the largest number means no limit.
    pub time: u64,
    /// Remaining part of `time` when the task was parked.
    pub time_left: u64,
    /// Non-zero when the watchdog may request the task to park.
    pub may_park: u32,
}

/// Location of the packet in L1.
#[derive(Debug)]
#[repr(C)]
pub struct PacketLocation {
    /// Negated guest address; 0 if there is no packet.
    pub negated_address: i64,
    /// Host memory where the packet is read.
    pub source: PacketSource,
}

/// Objects that host calls use, and the table of these calls.
#[derive(Debug)]
#[repr(C)]
pub struct Host {
    /// The view of the memory behind [`GuestMemory::base`].
    pub view: *mut c_void,
    /// The device, of the type that `calls` expects.
    pub device: *mut c_void,
    /// Functions that translated code calls; set once a task was bound to run.
    pub calls: MaybeUninit<HostCalls>,
}

/// Fault of a task.
#[derive(Debug)]
#[repr(C)]
pub struct FaultRecord {
    /// [`Cause::code`] of the fault.
    pub cause: u32,
    /// Address of the faulting instruction.
    pub pc: u32,
    /// Address of the faulting access.
    pub address: u32,
}

/// Tables for signal handlers.
#[derive(Debug)]
#[repr(C)]
pub struct SignalTables {
    /// Layout of guest memory.
    pub layout: *const Layout,
    /// Returns the translated code at a host address.
    pub lookup: fn(usize) -> Option<Location>,
}

/// The state of the task that calls a host function. Translated code alone creates it: it passes the pointer that it
/// was entered with, and touches nothing behind it until the call returns.
#[derive(Debug)]
#[repr(transparent)]
pub struct CallingTask<'t> {
    state: NonNull<State>,
    borrowed: PhantomData<&'t mut State>,
}

impl CallingTask<'_> {
    /// Address of the state, which is valid while the host function runs.
    #[inline(always)]
    pub(super) const fn state(&self) -> *mut State {
        self.state.as_ptr()
    }
}

/// Host functions that translated code calls. A negative result means that the task must be left: see
/// [`super::convention`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HostCalls {
    /// Loads from a device: (state, address, width) to the value.
    pub load: extern "C" fn(CallingTask<'_>, u32, u32) -> i64,
    /// Stores to a device: (state, address, width, value) to 0.
    pub store: extern "C" fn(CallingTask<'_>, u32, u32, u32) -> i64,
    /// Issues the command in the hart's registers: (state) to its handle.
    pub issue: extern "C" fn(CallingTask<'_>) -> i64,
    /// Issues a send: (state, the five command words) to its handle.
    pub send: extern "C" fn(CallingTask<'_>, u32, u32, u32, u32, u32) -> i64,
    /// Issues a send whose other words are zero: (state, address in NIC memory, length) to its handle.
    pub send_plain: extern "C" fn(CallingTask<'_>, u32, u32) -> i64,
    /// Issues a copy that is from host memory, or whose direction is not known at translation: (state, the five command
    /// words) to its handle.
    pub dma: extern "C" fn(CallingTask<'_>, u32, u32, u32, u32, u32) -> i64,
    /// Issues a copy to host memory: (state, the command words without the direction) to its handle.
    pub dma_to_host: extern "C" fn(CallingTask<'_>, u32, u32, u32, u32) -> i64,
    /// Issues a copy to host memory whose handle is unused. If the device is not called, the result is an address or
    /// null, neither of which counts as negative.
    pub copy_to_host: extern "C" fn(CallingTask<'_>, u32, u32, u32, u32) -> *mut c_void,
    /// Executes an `ecall`, with a0 to a7 in the hart: (state) to 0.
    pub ecall: extern "C" fn(CallingTask<'_>) -> i64,
    /// Executes a vector instruction, with its inputs in the hart: (state, encoding) to 0.
    pub vector: extern "C" fn(CallingTask<'_>, u32) -> i64,
}

impl State {
    /// Makes the state of HPU `id`, not yet attached to memory.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self {
            hart: Hart::new(id),
            memory: GuestMemory { base: ptr::null_mut(), bounds: ptr::null(), task_base: 0, l1_base: 0, l1_size: 0 },
            initial: InitialRegisters { sp: 0, tp: 0 },
            request: Request::none(),
            limits: TaskLimits { retired: u64::MAX, time: u64::MAX, time_left: u64::MAX, may_park: 0 },
            packet: PacketLocation { negated_address: 0, source: PacketSource::nothing() },
            host: Host { view: ptr::null_mut(), device: ptr::null_mut(), calls: MaybeUninit::uninit() },
            host_copy: HostCopy::none(),
            exit: ExitReason::Returned as u32,
            resume: 0,
            region: 0,
            fault: FaultRecord { cause: 0, pc: 0, address: 0 },
            device_touched: AtomicU32::new(0),
            signals: SignalTables { layout: ptr::null(), lookup: |_| None },
            outcome: Exit::Returned,
        }
    }

    /// Whether a task can start in translated code: the hart is clean, and there is no request. Both are checked with one
    /// branch, since each task checks them.
    #[inline(always)]
    pub(crate) fn can_start(&self) -> bool {
        u64::from(!self.hart.is_clean()) | self.request.0.load(Relaxed) == 0
    }

    /// Records that the task is ended by a fault.
    pub(crate) const fn set_fault(&mut self, cause: Cause, pc: u32, address: u32) {
        self.exit = ExitReason::Faulted as u32;
        self.fault = FaultRecord { cause: cause.code(), pc, address };
    }

    /// The recorded fault.
    pub(crate) fn fault(&self) -> Fault {
        let FaultRecord { cause: code, pc, address } = self.fault;
        let cause = Cause::ALL.into_iter().find(|cause| cause.code() == code).unwrap_or(Cause::IllegalInstruction);
        Fault { cause, pc, address }
    }
}

impl PacketLocation {
    /// Host address of `len` bytes at guest address `address`; `None` unless all of them are in the packet and `len` is
    /// not 0.
    #[inline(always)]
    pub(super) fn host_address(&self, address: u32, len: u32) -> Option<*const u8> {
        let offset = (i64::from(address) + self.negated_address) as u32;
        let is_inside = len > 0 && u64::from(offset) + u64::from(len) <= self.source.len.load(Relaxed) as u64;
        is_inside.then(|| self.source.base.load(Relaxed).wrapping_add(address as usize).cast_const())
    }
}
