//! Running tasks on translated code, and what that code calls.
#![allow(unsafe_code, reason = "enters translated code, which calls back with pointers")]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
use std::task::Poll;
use std::time::Duration;

use spin_abi::command::{Command, Direction, Source, Status};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::{DRIVER_BASE, PACKET_WINDOW};
use spin_abi::regs::{COMMAND_ISSUE, INFO_DMA, INFO_SEND, TASK_END, TASK_FIRST};

use super::enter::{Ended, Entry, LastSend};
use super::slot::{Slot, TaskBlock, copy_at_once};
use super::state::{Calls, Left, State};
use super::translation::Translation;
use crate::code::Code;
use crate::device::{self, Device, Trap};
use crate::hart::Hart;
use crate::host::HostBytes;
use crate::inst::Reg;
use crate::interp::{self, Exit};
use crate::memory::{PacketLender, PacketWindows, SpaceError, TaskStart, keep_in_l1};
use crate::trap::{self, TrapError, TrapGuard, Watch, Watchdog};
use crate::view::View;

/// What a device call returns when the task is ended: the complement of the state's address, which is negative, since no address of a
/// process is.
pub(crate) fn ended(state: *mut State) -> i64 {
    !(state.addr() as i64)
}

/// What a store to a device returns when the task is to be parked, and makes it anew when it goes on.
pub(crate) const PENDING: i64 = -2;

/// Instructions that the interpreter does between two looks at the watchdog.
const SLICE: u64 = 1 << 12;
/// As how many a vector instruction counts for that.
const VECTOR_WEIGHT: u64 = 32;

/// Limits of a task; neither is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time limit in microseconds; the task ends soon after.
    pub time: Option<u64>,
    /// Exact instruction limit; requires a counting translation ([`super::Options::counting`]).
    pub instructions: Option<u64>,
}

impl Limits {
    fn nanoseconds(self) -> u64 {
        self.time.map_or(u64::MAX, |micros| micros.saturating_mul(1000))
    }
}

/// A task's code and initial registers.
#[derive(Clone, Copy, Debug)]
pub struct Task<'t> {
    /// Code for the interpreter.
    pub code: &'t Code,
    /// Translated code; `None`: the interpreter runs the task.
    pub translation: Option<&'t Translation>,
    /// Address of the first instruction.
    pub entry: u32,
    /// Initial value of sp.
    pub sp: u32,
    /// Initial value of a0.
    pub argument: u32,
    /// Initial value of tp.
    pub tp: u32,
    /// Time and instruction limits.
    pub limits: Limits,
    /// Whether the task may be parked where it waits for memory to change, so that others run: [`Exit::Parked`]. The
    /// watchdog decides when. A task with an instruction limit alone has no watchdog and is parked as soon as it may be
    /// waiting.
    pub may_park: bool,
    /// Host memory to which the task may copy its packet without a call of the [device](Device::copied).
    pub host: Option<HostBytes<'t>>,
}

/// A thread that runs tasks.
#[derive(Debug)]
pub struct Executor {
    watchdog: Watchdog,
}

impl Executor {
    /// Prepares this thread.
    ///
    /// # Errors
    /// See [`TrapError`]: a thread has at most one executor at a time.
    pub fn new() -> Result<Self, TrapError> {
        Ok(Self { watchdog: Watchdog::new()? })
    }

    /// Starts the monitor thread, which watches the tasks of all threads; returns whether it runs. The first executor
    /// of the process starts it too, so only a process that drops `CAP_SYS_NICE` earlier needs this call. Without the
    /// monitor, each thread uses a timer.
    #[must_use]
    pub fn start_monitor() -> bool {
        trap::has_monitor()
    }

    /// Checks other threads' tasks against their time limits, for machines without a spare core for the monitor. A
    /// thread calls this between two tasks, and again after the returned time or some microseconds later. Without these
    /// calls the limits are enforced too, but at a cost of 3 % of one thread's time.
    #[must_use]
    pub fn look_at_others(&self) -> Duration {
        Duration::from_nanos(self.watchdog.poll_peers())
    }

    /// Marks this thread as sleeping: other threads must not rely on its [checks](Executor::look_at_others).
    pub fn rest(&self) {
        self.watchdog.stop_polling();
    }

    /// Lets `run` execute tasks like `task` in `slot`, with `device`: a single one, or many consecutively.
    #[inline]
    pub fn bind<D: Device, R>(
        &self,
        slot: &mut Slot,
        task: &Task<'_>,
        device: &mut D,
        run: impl FnOnce(&mut Bound<'_, D>) -> R,
    ) -> R {
        let block = slot.block();
        let windows = slot.packet_windows().map_or(ptr::null::<PacketWindows>(), ptr::from_ref);
        let device = ptr::from_mut(device);
        let state = slot.state();
        state.direct.aim(task.host);
        let copies = task.translation.is_some_and(Translation::copies);
        let calls = if copies { &Bridge::<D, true>::CALLS } else { &Bridge::<D, false>::CALLS };
        (state.device, state.calls) = (device.cast(), MaybeUninit::new(*calls));
        (state.sp, state.tp) = (task.sp, task.tp);
        state.may_park = u32::from(task.may_park);
        let limit = task.limits.nanoseconds();
        state.time_limit = limit;
        if task.limits.instructions.is_none() {
            state.limit = u64::MAX;
        }
        let entry = task.translation.and_then(|translation| translation.entry(task.entry));
        state.aside = entry.map_or(ptr::null(), Entry::aside);
        let whole = task.translation.is_none_or(Translation::needs_registers) || entry.is_none();
        let clocked = task.limits.time.is_some() || !task.may_park;
        let simple = entry.filter(|_| !whole && clocked && task.limits.instructions.is_none() && !block.is_null());
        let (state, slot) = (ptr::from_mut(state), ptr::from_mut(slot));
        // SAFETY: both are of the slot, which is borrowed until the end of this function.
        unsafe { (*state).view = ptr::from_mut((*slot).view()).cast() };
        let watch = self.watchdog.watch();
        watch.set_limit(limit, task.may_park && task.translation.is_some_and(Translation::waits));
        // SAFETY: the state is the slot's, which is borrowed until the end of this function. Its code is what `State::lookup` knows;
        // its layout is the slot's too.
        let _attending = unsafe { TrapGuard::new(watch, state) };
        // SAFETY: the windows live as long as the slot, which is borrowed until the end of this function.
        let offering = unsafe { windows.as_ref() }.map(PacketLender::new);
        let offering = offering.as_ref();
        let reads = entry.is_some_and(|entry| entry.in_place > 0);
        let parts = BoundParts { watch, slot, state, block, task, entry, simple, offering, reads, whole };
        let result = run(&mut Bound { parts, device, lent: PhantomData });
        // SAFETY: of the slot and the device, which are borrowed; no task runs.
        unsafe { (*state).tell_of_copies(&mut *device) };
        result
    }

    /// Runs one task: see [`Bound::run`].
    #[inline]
    pub fn run<D: Device>(&self, slot: &mut Slot, packet: &mut [u8], task: &Task<'_>, device: &mut D) -> Exit {
        self.bind(slot, task, device, |bound| bound.run(packet))
    }

    /// Resumes a parked task: see [`Bound::resume`].
    pub fn resume<D: Device>(&self, slot: &mut Slot, packet: &mut [u8], task: &Task<'_>, device: &mut D) -> Exit {
        self.bind(slot, task, device, |bound| bound.resume(packet))
    }
}

/// A slot that is prepared for tasks of one handler and watched. It is only lent to a closure, so that its end cannot
/// be skipped.
pub struct Bound<'b, D> {
    /// Its pointers are of the slot, which is borrowed as long.
    parts: BoundParts<'b>,
    /// Where the slot's state has it too.
    device: *mut D,
    lent: PhantomData<&'b mut D>,
}

/// Taken out of a [`Bound`] before use: then loops over tasks have it in registers.
#[derive(Clone, Copy)]
struct BoundParts<'b> {
    watch: &'b Watch,
    slot: *mut Slot,
    /// The slot's, attached to its space and attended to.
    state: *mut State,
    /// The slot's; null where there is more to see to when it is written.
    block: *mut TaskBlock,
    task: &'b Task<'b>,
    entry: Option<&'b Entry>,
    /// The same, when there is a `block`, and nothing to see to between tasks but that and the packet.
    simple: Option<&'b Entry>,
    /// The slot's windows for packets, if there are some.
    offering: Option<&'b PacketLender<'b>>,
    /// The packet in L1 may be read where it arrived.
    reads: bool,
    /// The hart has to hold all registers when a task begins.
    whole: bool,
}

impl<D: Device> Bound<'_, D> {
    /// Writes the next task's description: see [`Slot::describe`].
    #[inline]
    pub fn describe<const N: usize>(&mut self, block: &TaskBlock, other: [(u32, u32); N]) {
        // SAFETY: the place is the slot's own, which is borrowed, and one that is copied to at once; no task runs.
        unsafe {
            if self.parts.block.is_null() {
                describe_otherwise(self.parts.slot, block, other);
            } else {
                block.write(self.parts.block, copy_at_once, other);
            }
        }
    }

    /// Returns the number of packet bytes that are likely to be accessed: see [`PacketWindows::copied`].
    #[must_use]
    pub fn looked_at(&self, in_l1: usize) -> usize {
        let in_place = self.parts.entry.map_or(0, |entry| entry.in_place as usize).min(in_l1);
        // SAFETY: the slot is borrowed; no task runs.
        unsafe { &*self.parts.slot }
            .packet_windows()
            .map_or(0, |windows| windows.expected_copy_len(in_l1).max(in_place))
    }

    /// Sets the number of bytes of the packet window that the next tasks may access: see [`Slot::set_packet_len`].
    ///
    /// # Errors
    /// [`SpaceError::NoRoom`].
    #[inline]
    pub fn set_packet_len(&mut self, len: u32) -> Result<(), SpaceError> {
        // SAFETY: the slot is borrowed; no task runs.
        unsafe {
            let slot = &mut *self.parts.slot;
            let set = slot.set_packet_len(len);
            (*self.parts.state).view = ptr::from_mut(slot.view()).cast();
            set
        }
    }

    /// Reports [copies](Device::copied) of earlier tasks to the device, before it resets its state of them.
    pub fn tell_of_copies(&mut self) {
        // SAFETY: as in `device`.
        unsafe { (*self.parts.state).tell_of_copies(&mut *self.device) };
    }

    /// Borrows the tasks' device between two tasks.
    #[inline]
    pub const fn device(&mut self) -> &mut D {
        // SAFETY: `bind` was lent it for as long as this lives, and tasks, which follow the same pointer, run while `self` is
        // borrowed alone.
        unsafe { &mut *self.device }
    }

    /// Returns the return value of the last task's handler: see [`Slot::result`].
    #[must_use]
    #[inline]
    pub const fn result(&self) -> u32 {
        // SAFETY: the state is the slot's own, which is borrowed; no task runs.
        unsafe { (*self.parts.state).hart.get(Reg::A0) }
    }

    /// Runs a task until it ends or is parked. A parked task must be resumed by [`Bound::resume`] before any other task
    /// runs in the slot. `packet` is the content of the windows, see [`crate::memory::Space::with_packet`].
    #[inline]
    pub fn run(&mut self, packet: &mut [u8]) -> Exit {
        if self.does_return(Some(packet), |_, _| {}) { Exit::Returned } else { self.exit() }
    }

    /// Describes and runs a task, and returns whether its handler returned; this call is optimised for handlers that
    /// do. Otherwise [`Bound::exit`] returns the outcome. Without a packet the windows are unchanged.
    #[inline(always)]
    pub fn returns<const N: usize>(
        &mut self,
        block: &TaskBlock,
        other: [(u32, u32); N],
        packet: Option<&mut [u8]>,
    ) -> bool {
        self.does_return(packet, |parts, is_simple| {
            // SAFETY: as in `describe`. What is simple has a place.
            unsafe {
                if is_simple {
                    block.write(parts.block, copy_at_once, other);
                } else {
                    describe_otherwise(parts.slot, block, other);
                }
            }
        })
    }

    #[inline(always)]
    fn does_return(&mut self, packet: Option<&mut [u8]>, describe: impl FnOnce(&BoundParts<'_>, bool)) -> bool {
        let parts = self.parts;
        // SAFETY: the state is the slot's own, which is borrowed, attached to its space, with device and calls of type `D`
        // and a view that only this uses. The translated code is what `State::lookup` knows.
        unsafe {
            // A flag that a tick raises from here on is for this task.
            parts.watch.begin_task(parts.state);
            match parts.simple {
                Some(entry) if (*parts.state).is_fresh() => {
                    describe(&parts, true);
                    if parts.run_simple::<D>(packet, entry) {
                        return true;
                    }
                }
                _ => {
                    describe(&parts, false);
                    // Not of what was taken out: that would have to be in memory then, whatever happens.
                    self.parts.run_any::<D>(packet.unwrap_or_default());
                }
            }
        }
        // The interpreter may have gone on to where it did.
        self.exit() == Exit::Returned
    }

    /// Returns the outcome of the last task whose handler did not [return](Bound::returns).
    #[must_use]
    #[inline]
    pub const fn exit(&self) -> Exit {
        // SAFETY: the state is the slot's own, which is borrowed; no task runs.
        unsafe { (*self.parts.state).ended }
    }

    /// Resumes the parked task with its remaining limits; the time while it was parked does not count. The task is
    /// parked again as soon as it is found waiting.
    pub fn resume(&mut self, packet: &mut [u8]) -> Exit {
        // SAFETY: as in `run`.
        unsafe { self.parts.resume::<D>(packet) }
    }
}

impl BoundParts<'_> {
    /// # Safety
    /// The pointers are of a borrowed slot, whose state is attached to its space, with device and calls of type `D`.
    #[inline(never)]
    unsafe fn run_any<D: Device>(&self, packet: &mut [u8]) {
        // SAFETY: as the caller says; no task runs.
        let state = unsafe { &mut *self.state };
        state.resume = 0;
        if self.whole {
            state.hart.begin(self.task.entry, self.task.sp, self.task.argument);
            state.hart.set(Reg::TP, self.task.tp);
            state.hart.set(Reg::GP, self.task.code.global_pointer());
        } else {
            state.hart.begin_translated();
        }
        if let Some(limit) = self.task.limits.instructions {
            state.limit = state.hart.retired().saturating_add(limit);
        }
        // SAFETY: as the caller says.
        unsafe {
            let ended = self.go_on::<D>(packet, self.entry, TaskStart::New);
            (*self.state).ended = ended;
        }
    }

    /// Runs a task for which there is nothing to see to but the packet. Says whether translated code did all of it; if not,
    /// [`State::ended`] is how it ended.
    ///
    /// # Safety
    /// As [`Self::run_any`]; `entry` is what `simple` says, the task is announced, and the state fresh.
    #[inline(always)]
    unsafe fn run_simple<D: Device>(&self, packet: Option<&mut [u8]>, entry: &Entry) -> bool {
        // SAFETY: as the caller says.
        unsafe {
            let (Some(offering), Some(packet)) = (self.offering, packet) else {
                self.offering.inspect(|offering| offering.lend_nothing());
                return self.run_translated::<D>(entry);
            };
            let len = packet.len().min(PACKET_WINDOW as usize) as u32;
            if (*self.slot).l2_len != len {
                fit_l2(self.slot, self.state, len);
            }
            let offered = offering.lend(packet, TaskStart::New, self.reads);
            let ended = entry.execute(self.state, self.task.argument);
            // What most do, with nothing more to be told apart behind it.
            if matches!(ended, Ended::Returned) {
                drop(offered);
                return true;
            }
            let returned = self.returned::<D>(ended, entry);
            drop(offered);
            returned
        }
    }

    /// # Safety
    /// As [`Self::run_simple`], and the state's view is that of its space.
    #[inline(always)]
    unsafe fn run_translated<D: Device>(&self, entry: &Entry) -> bool {
        // SAFETY: as the caller says.
        unsafe { self.returned::<D>(entry.execute(self.state, self.task.argument), entry) }
    }

    /// Whether the handler returned whose code has just been executed, once what it sent last is issued.
    ///
    /// # Safety
    /// As [`Self::run_translated`].
    #[inline(always)]
    unsafe fn returned<D: Device>(&self, ended: Ended, entry: &Entry) -> bool {
        let Self { state, task, .. } = *self;
        // SAFETY: as the caller says.
        unsafe {
            let returned = returned::<D>(state, ended);
            if !returned {
                (*state).ended = left_early::<D>(state, task, entry);
            }
            returned
        }
    }

    /// # Safety
    /// As [`Self::run_any`].
    unsafe fn resume<D: Device>(self, packet: &mut [u8]) -> Exit {
        // SAFETY: as the caller says; no task runs.
        let state = unsafe { &mut *self.state };
        if state.time_left == 0 {
            return Exit::Fault(Fault { cause: Cause::Watchdog, pc: state.hart.pc, address: 0 });
        }
        // Another hart may have run since the word was reserved.
        state.hart.clear_reservation();
        state.time_limit = state.time_left;
        // Without a resume point it was the interpreter that parked.
        let entry = self.entry.filter(|_| state.resume != 0);
        // SAFETY: as the caller says.
        unsafe {
            let exit = self.go_on::<D>(packet, entry, TaskStart::Resumed);
            // For the next task.
            (*self.state).time_limit = self.task.limits.nanoseconds();
            exit
        }
    }

    /// # Safety
    /// As [`Self::run_any`].
    unsafe fn go_on<D: Device>(self, packet: &mut [u8], entry: Option<&Entry>, begun: TaskStart) -> Exit {
        let Self { slot, state, task, watch, .. } = self;
        // SAFETY: as the caller says.
        unsafe { &mut *slot }.with_packet(packet, begun, |view| {
            // SAFETY: the state is the slot's own; it and the view are borrowed for the call.
            unsafe {
                (*state).view = ptr::from_mut(view).cast();
                watch.start_task(state);
                if begun == TaskStart::Resumed && (*state).time_limit != u64::MAX {
                    watch.resume_task((*state).time_limit);
                }
                let at_once = begun == TaskStart::Resumed || task.limits.time.is_none();
                if at_once && (*state).may_park != 0 {
                    (*state).wanted.leave();
                }
                execute::<D>(state, task, entry)
            }
        })
    }
}

/// Describes a task where that is not done at once.
///
/// # Safety
/// The slot is borrowed. No task runs.
#[cold]
unsafe fn describe_otherwise<const N: usize>(slot: *mut Slot, block: &TaskBlock, other: [(u32, u32); N]) {
    // SAFETY: as the caller says.
    unsafe { &mut *slot }.describe(block, other);
}

/// The packets to come have another length. Has what it needs as it is: a row's parts are in registers.
///
/// # Safety
/// The state is that of the slot, which is borrowed. No task runs.
#[cold]
unsafe fn fit_l2(slot: *mut Slot, state: *mut State, len: u32) {
    // SAFETY: as the caller says.
    unsafe {
        let slot = &mut *slot;
        slot.fit_l2(len);
        (*state).view = ptr::from_mut(slot.view()).cast();
    }
}

/// Runs translated code, or the interpreter.
///
/// # Safety
/// `state` is attended to and attached to a live space, with device and calls of type `D`; `entry`'s translation lives.
unsafe fn execute<D: Device>(state: *mut State, task: &Task<'_>, entry: Option<&Entry>) -> Exit {
    // SAFETY: as the caller says.
    unsafe {
        match entry {
            Some(entry) if returned::<D>(state, entry.execute(state, task.argument)) => Exit::Returned,
            Some(entry) => left_early::<D>(state, task, entry),
            None => go_on_interpreting::<D>(state, task),
        }
    }
}

/// Whether the handler returned whose code has just been executed; issues what it sent last.
///
/// # Safety
/// As [`execute`].
#[inline(always)]
unsafe fn returned<D: Device>(state: *mut State, ended: Ended) -> bool {
    match ended {
        Ended::Returned => true,
        // SAFETY: as the caller says.
        Ended::Sends(send) => unsafe { sends_last::<D>(state, send) },
        Ended::Early => false,
    }
}

/// Issues the send with which a handler ends, as translated code would have done. Says whether that was how it ended.
///
/// # Safety
/// As [`execute`], after translated code has returned.
#[inline]
unsafe fn sends_last<D: Device>(state: *mut State, LastSend { pc, address, length }: LastSend) -> bool {
    // SAFETY: as the caller says.
    let parts = unsafe { if (*state).direct.copies > 0 { with_copies_told(state) } else { Parts::<D>::told(state) } };
    let issued = parts.issue(Ok(plain_send(address, length)));
    if issued < 0 {
        // SAFETY: as the caller says; nothing has the state any more.
        unsafe { (*state).fault_pc = pc };
    }
    issued >= 0
}

/// # Safety
/// As [`Parts::of`].
#[cold]
unsafe fn with_copies_told<'t, D: Device>(state: *mut State) -> Parts<'t, D> {
    // SAFETY: as the caller says.
    unsafe { Parts::of(state) }
}

/// A raw send of NIC memory.
const fn plain_send(address: u32, length: u32) -> Command {
    Command::Send { destination: 0, fid: 0, source: Source::Nic(address), length }
}

/// What it means that translated code did not return from the handler.
///
/// # Safety
/// As [`execute`], after `entry`'s code has returned.
#[cold]
unsafe fn left_early<D: Device>(state: *mut State, task: &Task<'_>, entry: &Entry) -> Exit {
    // SAFETY: translated code has returned, so nobody else has the state.
    let parts = unsafe { &mut *state };
    if parts.exit == Left::Faulted as u32 {
        // The clock may have ended it between what it writes where it is left, and the next task begins anew.
        parts.resume = 0;
        return Exit::Fault(parts.fault());
    }
    if parts.exit == Left::Finished as u32 {
        return Exit::Finished;
    }
    if parts.exit == Left::Parked as u32 {
        return parked(parts);
    }
    entry.prepare_interpreter(&mut parts.hart, parts.resume);
    if parts.exit == Left::Waiting as u32 {
        parts.resume = 0;
        return parked(parts);
    }
    // SAFETY: as the caller says.
    unsafe { go_on_interpreting::<D>(state, task) }
}

/// # Safety
/// As [`execute`], while no translated code runs.
#[cold]
unsafe fn go_on_interpreting<D: Device>(state: *mut State, task: &Task<'_>) -> Exit {
    // SAFETY: no translated code runs below; the interpreter's device calls do not come back here.
    let Parts { state, view, device } = unsafe { Parts::<D>::of(state) };
    state.resume = 0;
    match interpret(state, task.code, view, device) {
        Exit::Parked => parked(state),
        exit => exit,
    }
}

/// The task is attended to, and leaves to be gone on with.
fn parked(state: &mut State) -> Exit {
    keep_in_l1();
    // Should another task begin instead, it has to forget this one.
    state.hart.dirty = true;
    state.time_left = trap::time_left(state.time_limit);
    Exit::Parked
}

fn interpret<D: Device>(state: &mut State, code: &Code, view: &mut View<'_>, device: &mut D) -> Exit {
    loop {
        let left = state.limit.saturating_sub(state.hart.retired());
        let slice = left.min(SLICE);
        let mut charged = Charged { device: &mut *device, charge: 0, ended: false };
        let exit = interp::run_slice(&mut state.hart, code, view, &mut charged, slice, VECTOR_WEIGHT);
        let Charged { charge, ended, .. } = charged;
        state.limit = state.limit.saturating_sub(charge);
        match exit {
            Exit::Fault(Fault { cause: Cause::InstructionLimit, pc, .. }) if !ended => {
                if state.limit <= state.hart.retired() {
                    return Exit::Fault(Fault { cause: Cause::InstructionLimit, pc, address: 0 });
                }
                if state.wanted.ends() {
                    return Exit::Fault(Fault { cause: Cause::Watchdog, pc, address: 0 });
                }
                if state.wanted.leaves() {
                    return Exit::Parked;
                }
            }
            exit => return exit,
        }
    }
}

/// The device, with what it charges added up.
struct Charged<'d, D> {
    device: &'d mut D,
    charge: u64,
    /// It ended the task itself.
    ended: bool,
}

impl<D> Charged<'_, D> {
    fn note<T>(&mut self, result: Result<T, Trap>) -> Result<T, Trap> {
        self.ended |= matches!(result, Err(Trap::Fault(_)));
        result
    }
}

impl<D: Device> Device for Charged<'_, D> {
    fn load(&mut self, view: &mut View<'_>, address: u32, width: u8) -> Result<u32, Trap> {
        let result = self.device.load(view, address, width);
        self.note(result)
    }

    fn store(&mut self, view: &mut View<'_>, address: u32, width: u8, value: u32) -> Result<(), Trap> {
        let result = self.device.store(view, address, width, value);
        self.note(result)
    }

    fn wait(&mut self, view: &mut View<'_>, handle: u32) -> Poll<Result<(), Trap>> {
        self.device.wait(view, handle).map(|result| self.note(result))
    }

    fn issue(&mut self, view: &mut View<'_>, command: Result<Command, Status>) -> Result<u32, Cause> {
        let result = self.device.issue(view, command);
        self.ended |= result.is_err();
        result
    }

    fn take_charge(&mut self) -> u64 {
        let charge = self.device.take_charge();
        self.charge = self.charge.saturating_add(charge);
        charge
    }

    fn ecall(&mut self, hart: &mut Hart, view: &mut View<'_>) -> Result<(), Trap> {
        let result = self.device.ecall(hart, view);
        self.note(result)
    }
}

/// The functions that translated code calls, for a device of type `D`: of a translation that makes copies which the device has to be told
/// of, or not.
struct Bridge<D, const COPIES: bool>(PhantomData<D>);

impl<D: Device, const COPIES: bool> Bridge<D, COPIES> {
    const CALLS: Calls = Calls {
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

    /// # Safety
    /// As [`Parts::of`].
    #[inline(always)]
    unsafe fn parts<'t>(state: *mut State) -> Parts<'t, D> {
        // SAFETY: as the caller says.
        unsafe { if COPIES { Parts::of(state) } else { Parts::told(state) } }
    }

    /// # Safety
    /// Translated code calls it with the state that it was called with.
    unsafe extern "C" fn load(state: *mut State, address: u32, width: u32) -> i64 {
        // SAFETY: as the caller says.
        let Parts { state, view, device } = unsafe { Self::parts(state) };
        let loaded = if is_task_register(address) { load_task_register(view, address, width) } else { None };
        // A width is 1, 2 or 4.
        let width = width.to_le_bytes()[0];
        let result = loaded.map_or_else(|| device::load(device, &mut state.hart, view, address, width), Ok);
        state.outcome(result.map(|value| value & interp::lower_bytes(width)), device, address)
    }

    /// # Safety
    /// As [`Bridge::load`].
    unsafe extern "C" fn store(state: *mut State, address: u32, width: u32, value: u32) -> i64 {
        // SAFETY: as the caller says.
        let Parts { state, view, device } = unsafe { Self::parts(state) };
        let bytes = value.to_le_bytes();
        let stored = if is_task_register(address) { view.copy_in(address, &bytes[..width as usize]) } else { None };
        let width = width.to_le_bytes()[0];
        let value = value & interp::lower_bytes(width);
        let stored = stored.map(|()| Poll::Ready(Ok(())));
        match stored.unwrap_or_else(|| device::store(device, &mut state.hart, view, address, width, value)) {
            Poll::Ready(result) => state.outcome(result.map(|()| 0), device, address),
            Poll::Pending => PENDING,
        }
    }

    /// # Safety
    /// As [`Bridge::load`].
    unsafe extern "C" fn issue(state: *mut State) -> i64 {
        // SAFETY: as the caller says.
        let parts = unsafe { Self::parts(state) };
        let command = parts.state.hart.command.decode();
        parts.issue(command)
    }

    /// # Safety
    /// As [`Bridge::load`].
    unsafe extern "C" fn issue_known<const INFO: u32>(
        state: *mut State,
        word0: u32,
        word1: u32,
        word2: u32,
        word3: u32,
        word4: u32,
    ) -> i64 {
        // SAFETY: as the caller says.
        let parts = unsafe { Self::parts(state) };
        let words = [word0, word1, word2, word3, word4];
        parts.issue(Command::decode(INFO, |index| words[index]))
    }

    /// # Safety
    /// As [`Bridge::load`].
    unsafe extern "C" fn send_plain(state: *mut State, address: u32, length: u32) -> i64 {
        // SAFETY: as the caller says.
        let parts = unsafe { Self::parts(state) };
        parts.issue(Ok(plain_send(address, length)))
    }

    /// # Safety
    /// As [`Bridge::load`].
    unsafe extern "C" fn dma_to_host(state: *mut State, low: u32, high: u32, nic: u32, length: u32) -> i64 {
        // SAFETY: as the caller says.
        let parts = unsafe { Self::parts(state) };
        let host = u64::from(high) << 32 | u64::from(low);
        parts.issue(Ok(Command::Dma { host, nic, length, direction: Direction::ToHost, event: false }))
    }

    /// # Safety
    /// As [`Bridge::load`].
    unsafe extern "C" fn copy_to_host(state: *mut State, low: u32, high: u32, nic: u32, length: u32) -> *mut c_void {
        let host = u64::from(high) << 32 | u64::from(low);
        // SAFETY: as the caller says. `bind` aimed it at memory that its task has borrowed, and the window is there as long as the slot.
        unsafe {
            let parts = &mut *state;
            if !parts.wanted.ends()
                && let Some(from) = parts.in_packet(nic, length)
                && let Some(copied) = parts.direct.copy(from, host, length)
            {
                return copied;
            }
            Self::copy_frame_to_host(state, low, high, nic, length)
        }
    }

    /// The same where the packet may be in no window. By itself: it would take registers from the other.
    ///
    /// # Safety
    /// As [`Bridge::load`].
    #[inline(never)]
    unsafe extern "C" fn copy_frame_to_host(
        state: *mut State,
        low: u32,
        high: u32,
        nic: u32,
        length: u32,
    ) -> *mut c_void {
        let host = u64::from(high) << 32 | u64::from(low);
        // SAFETY: as in `copy_to_host`; the frame is lent for as long as it is looked at.
        unsafe {
            let parts = &mut *state;
            let view = &*parts.view.cast::<View<'static>>();
            let copy = |frame: &[u8]| parts.direct.copy(frame.as_ptr(), host, length).is_some();
            if !parts.wanted.ends() && view.with_frame_bytes(nic, length, copy) == Some(true) {
                return ptr::null_mut();
            }
            ptr::without_provenance_mut(Self::dma_to_host(state, low, high, nic, length).cast_unsigned() as usize)
        }
    }

    /// # Safety
    /// As [`Bridge::load`].
    unsafe extern "C" fn ecall(state: *mut State) -> i64 {
        // SAFETY: as the caller says.
        let Parts { state, view, device } = unsafe { Self::parts(state) };
        let result = device.ecall(&mut state.hart, view);
        state.outcome(result.map(|()| 0), device, 0)
    }

    /// # Safety
    /// As [`Bridge::load`].
    unsafe extern "C" fn vector(state: *mut State, bits: u32) -> i64 {
        // SAFETY: as the caller says.
        let Parts { state, view, device } = unsafe { Self::parts(state) };
        let (result, address) = match interp::vector(&mut state.hart, view, bits) {
            Ok(()) => (Ok(0), 0),
            Err((cause, address)) => (Err(Trap::Fault(cause)), address),
        };
        state.outcome(result, device, address)
    }
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

/// What a state refers to while its task runs.
struct Parts<'t, D> {
    state: &'t mut State,
    view: &'t mut View<'static>,
    device: &'t mut D,
}

impl<D: Device> Parts<'_, D> {
    /// # Safety
    /// `state` is that of a running task whose device is a `D`, and translated code waits for the result meanwhile.
    unsafe fn of(state: *mut State) -> Self {
        // SAFETY: as the caller says.
        unsafe {
            let parts = Self::told(state);
            parts.state.tell_of_copies(parts.device);
            parts
        }
    }

    /// The same where there are no copies that the device has not been told of.
    ///
    /// # Safety
    /// As [`Parts::of`].
    #[inline(always)]
    unsafe fn told(state: *mut State) -> Self {
        // SAFETY: the executor has all three borrowed for the time of the task and uses none of them; they are
        // different objects.
        unsafe {
            let state = &mut *state;
            let (view, device) = (&mut *state.view.cast(), &mut *state.device.cast());
            Self { state, view, device }
        }
    }
}

impl<D: Device> Parts<'_, D> {
    /// What comes of issuing a command.
    #[inline(always)]
    fn issue(self, command: Result<Command, Status>) -> i64 {
        let result = self.device.issue(self.view, command);
        self.state.outcome(result.map_err(Trap::Fault), self.device, DRIVER_BASE + COMMAND_ISSUE)
    }
}

impl State {
    /// Tells the device of copies that it was not asked for.
    #[inline]
    fn tell_of_copies(&mut self, device: &mut impl Device) {
        if self.direct.copies > 0 {
            device.copied(self.direct.copies, self.direct.bytes);
            (self.direct.copies, self.direct.bytes) = (0, 0);
        }
    }

    /// What a device call comes to.
    #[inline]
    fn outcome(&mut self, result: Result<u32, Trap>, device: &mut impl Device, address: u32) -> i64 {
        self.limit = self.limit.saturating_sub(device.take_charge());
        match result {
            Ok(_) if self.wanted.ends() => self.set_fault(Cause::Watchdog, self.hart.pc, 0),
            Ok(value) => return i64::from(value),
            Err(Trap::Finish) => self.exit = Left::Finished as u32,
            Err(Trap::Fault(cause)) => self.set_fault(cause, self.hart.pc, address),
            Err(Trap::Report(value)) => self.set_fault(Cause::Reported, self.hart.pc, value),
        }
        ended(self)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use spin_abi::fault::Cause;

    use super::{Executor, Limits, Task};
    use crate::code::Code;
    use crate::device::NoDevice;
    use crate::interp::Exit;
    use crate::jit::{Options, Slot, Source, Translation};
    use crate::memory::Space;

    const ENTRY: u32 = 0x1d00_0000;

    /// As when the clock ends a task between the two words that it writes where it leaves for the interpreter.
    #[test]
    fn a_task_that_was_ended_where_it_left_has_the_next_one_begin_anew() {
        // ebreak
        let code = Code::at(ENTRY, &[0x73, 0x00, 0x10, 0x00]);
        let taken = BTreeSet::new();
        let source = Source { code: &code, entries: &[ENTRY], taken: &taken };
        let translation = Translation::new(source, Options::default()).expect("it is one instruction");
        let (executor, mut slot) = (Executor::new().expect("a timer"), Slot::new(0, Space::new().expect("addresses")));
        let task = Task {
            code: &code,
            translation: Some(&translation),
            entry: ENTRY,
            sp: 0,
            argument: 0,
            tp: 0,
            limits: Limits { time: None, instructions: None },
            may_park: false,
            host: None,
        };
        slot.state().resume = 1;
        let exit = executor.bind(&mut slot, &task, &mut NoDevice, |bound| {
            // SAFETY: the hart is as clean as at first, and the state is the slot's, for a device of this type.
            unsafe { super::execute::<NoDevice>(bound.parts.state, &task, bound.parts.entry) }
        });
        assert!(matches!(exit, Exit::Fault(fault) if fault.cause == Cause::Breakpoint), "{exit:?}");
        assert_eq!(slot.state().resume, 0);
    }
}
