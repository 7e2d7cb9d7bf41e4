//! What translated code and the code around it share: one [`State`] per HPU slot.

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
use crate::memory::{Layout, Shown};

/// How translated code ended, in [`State::exit`] unless the handler returned: that is what the code itself says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Left {
    /// None yet did anything but return.
    Returned = 0,
    /// It read the doorbell.
    Finished = 1,
    /// It was ended: see the fault fields.
    Faulted = 2,
    /// The interpreter goes on at `hart.pc` with `hart.x`, and what is known at the [exit](super::enter::Exits) [`State::resume`].
    Interpret = 3,
    /// It waits: it is to be called again, and goes on at resume point [`State::resume`].
    Parked = 4,
    /// It waits, and the interpreter is to go on, as after [`Left::Interpret`].
    Waiting = 5,
}

/// What the watchdog wants of a task: one word, of which a task that begins looks at all. Written by its thread and that one's signal
/// handlers.
#[derive(Debug)]
#[repr(transparent)]
pub struct Wanted(AtomicU64);

impl Wanted {
    const END: u64 = 1;
    const YIELD: u64 = 1 << 32;
    /// Offset of 32 bits that are not zero when the task is to leave where it waits.
    pub const YIELD_AT: usize = if cfg!(target_endian = "little") { 4 } else { 0 };

    const fn nothing() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Nothing is wanted of the task that begins.
    pub fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// The task is to end at the next chance.
    pub fn end(&self) {
        self.0.fetch_or(Self::END, Relaxed);
    }

    /// Whether it is to end.
    #[inline]
    pub fn ends(&self) -> bool {
        self.0.load(Relaxed) & Self::END != 0
    }

    /// Others wait for this thread: a task that waits for something is to leave.
    pub fn leave(&self) {
        self.0.fetch_or(Self::YIELD, Relaxed);
    }

    /// Whether it is to leave when it waits.
    pub fn leaves(&self) -> bool {
        self.0.load(Relaxed) & Self::YIELD != 0
    }
}

/// Registers, device and outcome of the task that runs. Translated code addresses its fields by their offsets, signal
/// handlers write its fault.
#[derive(Debug)]
#[repr(C)]
pub struct State {
    /// The registers; in translated code they live in host registers and are written here when it is left for the
    /// interpreter, but for those whose values are known at its [exit](super::enter::Exits).
    pub hart: Hart,
    /// Host address of guest address 0.
    pub base: *mut u8,
    /// What sp holds when a task begins.
    pub sp: u32,
    /// What tp holds then.
    pub tp: u32,
    /// A [`Left`], of the last task whose handler did not return.
    pub exit: u32,
    /// [`Cause::code`] of the fault.
    pub cause: u32,
    /// Its instruction.
    pub fault_pc: u32,
    /// Its address.
    pub fault_address: u32,
    /// Value of [`Hart::retired`] at which the task is over its limit, for translations that count.
    pub limit: u64,
    /// What the watchdog wants of the task.
    pub wanted: Wanted,
    /// Nanoseconds that a task may take; of the largest number, for ever.
    pub time_limit: u64,
    /// Where to go on, 0 at the handler's first instruction; of code that was left for the interpreter, its
    /// [exit](super::enter::Exits).
    pub resume: u32,
    /// Not zero: the task has touched a device where its translation expected memory.
    pub device_touched: AtomicU32,
    /// Guest address of the task registers.
    pub task_base: u32,
    /// Guest address of the own cluster's L1, whose alias is at `L1_ALIAS`.
    pub l1_base: u32,
    /// Bytes of it.
    pub l1_size: u32,
    /// Guest address of the packet in L1, less than zero,
    pub packet: i64,
    /// and where it is read.
    pub shown: Shown,
    /// Exact bounds by page, for exact checks: see [`super::bounds`].
    pub bounds: *const u32,
    /// The view of the memory behind `base`.
    pub view: *mut c_void,
    /// That memory, for signal handlers.
    pub layout: *const Layout,
    /// What translated code lies at a host address, for signal handlers.
    pub lookup: fn(usize) -> Option<Site>,
    /// The device.
    pub device: *mut c_void,
    /// What translated code calls: there once a task was bound to run.
    pub calls: MaybeUninit<Calls>,
    /// The function for what the handler seldom does, if it has one.
    pub aside: *const c_void,
    /// Copies to host memory.
    pub direct: Direct,
    /// Not zero: the watchdog may set `yield_wanted`.
    pub may_park: u32,
    /// What was left of `time_limit` when the task was parked.
    pub time_left: u64,
    /// How the last task ended that did not return from translated code. Here, so that who runs tasks in a row carries nothing along for it.
    pub ended: Exit,
}

/// Functions of the host. Results are negative when the task is to be left: see [`super::run`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Calls {
    /// A load from a device: state, address, width to the value.
    pub load: unsafe extern "C" fn(*mut State, u32, u32) -> i64,
    /// A store to a device: state, address, width, value to 0.
    pub store: unsafe extern "C" fn(*mut State, u32, u32, u32) -> i64,
    /// Issues the command in the hart's registers: state to its handle.
    pub issue: unsafe extern "C" fn(*mut State) -> i64,
    /// Issues a send: state, the command words that it has to its handle.
    pub send: unsafe extern "C" fn(*mut State, u32, u32, u32, u32, u32) -> i64,
    /// The same when all of its words but these are zero: state, address in NIC memory, length to its handle.
    pub send_plain: unsafe extern "C" fn(*mut State, u32, u32) -> i64,
    /// Issues a copy of which the host is not told: as `send`.
    pub dma: unsafe extern "C" fn(*mut State, u32, u32, u32, u32, u32) -> i64,
    /// The same to host memory: without the word that says so.
    pub dma_to_host: unsafe extern "C" fn(*mut State, u32, u32, u32, u32) -> i64,
    /// The same when nobody asks for the handle: it is an address where the device was not asked, or null, which are not negative either.
    pub copy_to_host: unsafe extern "C" fn(*mut State, u32, u32, u32, u32) -> *mut c_void,
    /// An `ecall`, with a0 to a7 in the hart: 0.
    pub ecall: unsafe extern "C" fn(*mut State) -> i64,
    /// A vector instruction, with what it reads in the hart: its encoding to 0.
    pub vector: unsafe extern "C" fn(*mut State, u32) -> i64,
}

impl State {
    /// State of HPU `id`, not yet attached to memory.
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
            shown: Shown::nothing(),
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
