//! State shared by translated code and the code around it: one [`State`] per HPU slot.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use spin_abi::fault::{Cause, Fault};

use super::direct::Direct;
use super::sites::Site;
use crate::hart::Hart;
use crate::interp::Exit;
use crate::memory::{Layout, PacketSource};

/// Reason why translated code was left, in [`State::exit`]. A return of the handler is reported by the code itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Left {
    /// The handler returned, as in every task so far.
    Returned = 0,
    /// The handler read the doorbell.
    Finished = 1,
    /// The handler was ended: see the fault fields.
    Faulted = 2,
    /// The interpreter continues at `hart.pc` with `hart.x` and the values known at the [exit](super::enter::Exits)
    /// [`State::resume`].
    Interpret = 3,
    /// The handler waits. Another call continues at resume point [`State::resume`].
    Parked = 4,
    /// The handler waits, and the interpreter continues, as after [`Left::Interpret`].
    Waiting = 5,
}

/// Requests of the watchdog to a task: one word, so that a starting task checks all of them at once. Written by the
/// task's thread and that thread's signal handlers.
#[derive(Debug)]
#[repr(transparent)]
pub struct Wanted(AtomicU64);

impl Wanted {
    const END: u64 = 1;
    const YIELD: u64 = 1 << 32;
    /// Offset of 32 bits that are not zero when the task must park where it waits.
    pub const YIELD_AT: usize = if cfg!(target_endian = "little") { 4 } else { 0 };

    const fn nothing() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Clears all requests for a starting task.
    pub fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// Requests the task to end at the next opportunity.
    pub fn end(&self) {
        self.0.fetch_or(Self::END, Relaxed);
    }

    /// Whether the task must end.
    #[inline]
    pub fn ends(&self) -> bool {
        self.0.load(Relaxed) & Self::END != 0
    }

    /// Requests a task that waits to park, since other tasks wait for this thread.
    pub fn leave(&self) {
        self.0.fetch_or(Self::YIELD, Relaxed);
    }

    /// Whether the task must park when it waits.
    pub fn leaves(&self) -> bool {
        self.0.load(Relaxed) & Self::YIELD != 0
    }
}

/// Registers, device and outcome of the running task. Translated code accesses the fields by their offsets; signal
/// handlers write the fault.
#[derive(Debug)]
#[repr(C)]
pub struct State {
    /// Registers of the hart. Translated code keeps them in host registers and writes them here when it exits to the
    /// interpreter. Those whose values are known at its [exit](super::enter::Exits) are not written.
    pub hart: Hart,
    /// Host address of guest address 0.
    pub base: *mut u8,
    /// Initial value of sp of a task.
    pub sp: u32,
    /// Initial value of tp of a task.
    pub tp: u32,
    /// [`Left`] value of the last task whose handler did not return.
    pub exit: u32,
    /// [`Cause::code`] of the fault.
    pub cause: u32,
    /// Address of the faulting instruction.
    pub fault_pc: u32,
    /// Address of the faulting access.
    pub fault_address: u32,
    /// Value of [`Hart::retired`] at which the task exceeds its limit, for translations that count.
    pub limit: u64,
    /// Requests of the watchdog to the task.
    pub wanted: Wanted,
    /// Time limit of a task in nanoseconds; the largest number means no limit.
    pub time_limit: u64,
    /// Resume point; 0 is the handler's first instruction. After an exit to the interpreter: its
    /// [exit](super::enter::Exits).
    pub resume: u32,
    /// Non-zero when the task has accessed a device where its translation expected memory.
    pub device_touched: AtomicU32,
    /// Guest address of the task registers.
    pub task_base: u32,
    /// Guest address of the own cluster's L1, whose alias is at `L1_ALIAS`.
    pub l1_base: u32,
    /// Size of the own cluster's L1 in bytes.
    pub l1_size: u32,
    /// Negated guest address of the packet in L1; 0 if there is none.
    pub packet: i64,
    /// Location where the packet in L1 is read.
    pub shown: PacketSource,
    /// Exact bounds by page, for exact checks: see [`super::bounds`].
    pub bounds: *const u32,
    /// The view of the memory behind `base`.
    pub view: *mut c_void,
    /// Layout of the memory, for signal handlers.
    pub layout: *const Layout,
    /// Returns the translated code at a host address, for signal handlers.
    pub lookup: fn(usize) -> Option<Site>,
    /// The device.
    pub device: *mut c_void,
    /// Functions that translated code calls; set once a task was bound to run.
    pub calls: MaybeUninit<Calls>,
    /// Function of the handler's rarely executed part, if it has one.
    pub aside: *const c_void,
    /// Copies to host memory.
    pub direct: Direct,
    /// Non-zero when the watchdog may request the task to park.
    pub may_park: u32,
    /// Remaining part of `time_limit` when the task was parked.
    pub time_left: u64,
    /// Outcome of the last task that did not return from translated code. Stored here, so that running many tasks in a
    /// batch carries no value for it.
    pub ended: Exit,
}

/// Host functions called by translated code. A negative result means that the task must be left: see [`super::run`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Calls {
    /// Loads from a device: (state, address, width) to the value.
    pub load: unsafe extern "C" fn(*mut State, u32, u32) -> i64,
    /// Stores to a device: (state, address, width, value) to 0.
    pub store: unsafe extern "C" fn(*mut State, u32, u32, u32) -> i64,
    /// Issues the command in the hart's registers: (state) to its handle.
    pub issue: unsafe extern "C" fn(*mut State) -> i64,
    /// Issues a send: (state, the five command words) to its handle.
    pub send: unsafe extern "C" fn(*mut State, u32, u32, u32, u32, u32) -> i64,
    /// Issues a send whose other words are zero: (state, address in NIC memory, length) to its handle.
    pub send_plain: unsafe extern "C" fn(*mut State, u32, u32) -> i64,
    /// Issues a copy that is from host memory, or whose direction is not known at translation: (state, the five command
    /// words) to its handle.
    pub dma: unsafe extern "C" fn(*mut State, u32, u32, u32, u32, u32) -> i64,
    /// Issues a copy to host memory: (state, the command words without the direction) to its handle.
    pub dma_to_host: unsafe extern "C" fn(*mut State, u32, u32, u32, u32) -> i64,
    /// Issues a copy to host memory whose handle is unused. If the device is not called, the result is an address or
    /// null, neither of which counts as negative.
    pub copy_to_host: unsafe extern "C" fn(*mut State, u32, u32, u32, u32) -> *mut c_void,
    /// Executes an `ecall`, with a0 to a7 in the hart: (state) to 0.
    pub ecall: unsafe extern "C" fn(*mut State) -> i64,
    /// Executes a vector instruction, with its inputs in the hart: (state, encoding) to 0.
    pub vector: unsafe extern "C" fn(*mut State, u32) -> i64,
}

impl State {
    /// Makes the state of HPU `id`, not yet attached to memory.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self {
            hart: Hart::new(id),
            base: ptr::null_mut(),
            sp: 0,
            tp: 0,
            exit: Left::Returned as u32,
            cause: 0,
            fault_pc: 0,
            fault_address: 0,
            limit: u64::MAX,
            wanted: Wanted::nothing(),
            time_limit: u64::MAX,
            resume: 0,
            device_touched: AtomicU32::new(0),
            task_base: 0,
            l1_base: 0,
            l1_size: 0,
            packet: 0,
            shown: PacketSource::nothing(),
            bounds: ptr::null(),
            view: ptr::null_mut(),
            layout: ptr::null(),
            lookup: |_| None,
            device: ptr::null_mut(),
            calls: MaybeUninit::uninit(),
            aside: ptr::null(),
            direct: Direct::nowhere(),
            may_park: 0,
            time_left: u64::MAX,
            ended: Exit::Returned,
        }
    }

    /// Whether a task of translated code can begin, of which nothing is wanted. One branch: it is asked for each task.
    #[inline(always)]
    pub(crate) fn is_fresh(&self) -> bool {
        u64::from(!self.hart.is_clean()) | self.wanted.0.load(Relaxed) == 0
    }

    /// Notes that the task is ended by a fault.
    pub(crate) const fn set_fault(&mut self, cause: Cause, pc: u32, address: u32) {
        self.exit = Left::Faulted as u32;
        (self.cause, self.fault_pc, self.fault_address) = (cause.code(), pc, address);
    }

    /// The fault that was noted.
    pub(crate) fn fault(&self) -> Fault {
        let cause =
            Cause::ALL.into_iter().find(|cause| cause.code() == self.cause).unwrap_or(Cause::IllegalInstruction);
        Fault { cause, pc: self.fault_pc, address: self.fault_address }
    }
}
