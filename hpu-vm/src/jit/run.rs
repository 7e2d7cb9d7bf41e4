//! Running tasks on translated code, and what that code calls.
#![allow(unsafe_code, reason = "enters translated code, which calls back with pointers")]

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use spin_abi::fault::{Cause, Fault};

use super::code_memory::lookup;
use super::slot::Slot;
use super::state::{Calls, Left, State};
use super::translation::Translation;
use crate::code::Code;
use crate::device::{Device, Trap};
use crate::hart::Hart;
use crate::inst::Reg;
use crate::interp::{self, Exit};
use crate::trap::{self, TrapError, Watchdog};
use crate::view::View;

/// What a device call returns when the task is ended.
const ENDED: i64 = -1;
/// What a device call returns when the task is to be parked.
pub(crate) const PARK: i64 = -2;

/// Instructions that the interpreter does between two looks at the watchdog.
const SLICE: u64 = 1 << 12;

/// Limits of a task; none of 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Microseconds: the task ends soon after.
    pub time: Option<u64>,
    /// Instructions, exactly; translations have to count them ([`super::Options::counting`]).
    pub instructions: Option<u64>,
}

/// A task's code, and where it begins.
#[derive(Clone, Copy, Debug)]
pub struct Task<'t> {
    /// For the interpreter.
    pub code: &'t Code,
    /// `None`: the interpreter runs all of it.
    pub translation: Option<&'t Translation>,
    /// First instruction.
    pub entry: u32,
    /// Stack pointer.
    pub sp: u32,
    /// What a0 holds.
    pub argument: u32,
    /// What tp holds.
    pub tp: u32,
    /// Limits.
    pub limits: Limits,
    /// It may be left where it waits for memory to change, for others to run: [`Exit::Parked`].
    pub may_park: bool,
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
    /// See [`TrapError`]: a thread has one executor at a time.
    pub fn new() -> Result<Self, TrapError> {
        Ok(Self { watchdog: Watchdog::new()? })
    }

    /// Runs a task in `slot` until it ends or is parked. In the latter case [`Executor::resume`] goes on with it, before
    /// any other task runs in the slot. `packet` is what the L2 window shows, see [`crate::memory::Space::offer_l2`].
    pub fn run<D: Device>(&self, slot: &mut Slot, packet: &mut [u8], task: &Task<'_>, device: &mut D) -> Exit {
        let state = slot.state_mut();
        let whole = task.translation.is_none_or(Translation::needs_registers);
        if whole {
            state.hart.begin(task.entry, task.sp, task.argument);
        } else {
            state.hart.begin_in_host_registers(task.sp, task.argument);
        }
        state.hart.x[Reg::TP.index()] = task.tp;
        state.resume = 0;
        state.limit = limit(state, task.limits.instructions);
        self.go_on(slot, packet, task, device, task.translation)
    }

    /// Goes on with the task that is parked in `slot`.
    pub fn resume<D: Device>(&self, slot: &mut Slot, packet: &mut [u8], task: &Task<'_>, device: &mut D) -> Exit {
        // Another hart may have run since the word was reserved.
        slot.state_mut().hart.clear_reservation();
        let translation = task.translation.filter(|_| slot.state_mut().resume != 0);
        self.go_on(slot, packet, task, device, translation)
    }

    fn go_on<D: Device>(
        &self,
        slot: &mut Slot,
        packet: &mut [u8],
        task: &Task<'_>,
        device: &mut D,
        translation: Option<&Translation>,
    ) -> Exit {
        let (space, state) = slot.for_packet(packet.len());
        let watch = task.limits.time.map(|limit| (&self.watchdog, limit));
        space.offer_l2(packet, |layout, view| {
            // SAFETY: the state is the slot's own, which is borrowed for the call, and nobody else has it yet.
            let parts = unsafe { &mut *state };
            (parts.space, parts.device) = (ptr::from_mut(view).cast(), ptr::from_mut(device).cast());
            (parts.calls, parts.may_park) = (Bridge::<D>::CALLS, u32::from(task.may_park));
            // SAFETY: the slot's state was attached to this layout; the closure's translated code is the lookup's.
            unsafe { trap::enter(state, layout, lookup, watch, || execute::<D>(state, task, translation)) }
        })
    }
}

/// Value of [`Hart::retired`] at which a limit is reached.
fn limit(state: &State, instructions: Option<u64>) -> u64 {
    instructions.map_or(u64::MAX, |limit| state.hart.retired().saturating_add(limit))
}

/// Runs translated code, and the interpreter where that leaves off.
///
/// # Safety
/// As [`trap::enter`]'s body: `state` is attached to a live space, with device and calls of type `D`.
unsafe fn execute<D: Device>(state: *mut State, task: &Task<'_>, translation: Option<&Translation>) -> Exit {
    let entry = translation.and_then(|translation| translation.entry(task.entry));
    if let Some(entry) = entry {
        // SAFETY: the translation is borrowed, so it lives; the state is as the caller says.
        let left = unsafe {
            entry.call(state);
            (*state).exit
        };
        if left == Left::Returned as u32 {
            return Exit::Returned;
        }
        // SAFETY: translated code has returned, so nobody else has the state.
        let state = unsafe { &mut *state };
        if left == Left::Faulted as u32 {
            return Exit::Fault(state.fault());
        }
        if left == Left::Finished as u32 {
            return Exit::Finished;
        }
        if left == Left::Parked as u32 {
            return Exit::Parked;
        }
        state.resume = 0;
    }
    // SAFETY: no translated code runs below; the interpreter's device calls do not come back here.
    let (state, view, device) = unsafe {
        let state = &mut *state;
        let (view, device) = (&mut *state.space.cast::<View<'static>>(), &mut *state.device.cast::<D>());
        (state, view, device)
    };
    interpret(state, task.code, view, device)
}

fn interpret<D: Device>(state: &mut State, code: &Code, view: &mut View<'_>, device: &mut D) -> Exit {
    loop {
        let left = state.limit.saturating_sub(state.hart.retired());
        let slice = left.min(SLICE);
        let mut charged = Charged { device: &mut *device, charge: 0 };
        let exit = interp::run(&mut state.hart, code, view, &mut charged, slice);
        state.limit = state.limit.saturating_sub(charged.charge);
        match exit {
            Exit::Fault(Fault { cause: Cause::Watchdog, pc, .. }) => {
                let over = state.limit <= state.hart.retired() || state.kill.load(Relaxed) != 0;
                if over {
                    return Exit::Fault(Fault { cause: Cause::Watchdog, pc, address: 0 });
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
}

impl<D: Device> Device for Charged<'_, D> {
    fn load(&mut self, view: &mut View<'_>, address: u32, width: u8) -> Result<u32, Trap> {
        self.device.load(view, address, width)
    }

    fn store(&mut self, view: &mut View<'_>, address: u32, width: u8, value: u32) -> Result<(), Trap> {
        self.device.store(view, address, width, value)
    }

    fn take_charge(&mut self) -> u64 {
        let charge = self.device.take_charge();
        self.charge = self.charge.saturating_add(charge);
        charge
    }

    fn ecall(&mut self, hart: &mut Hart, view: &mut View<'_>) -> Result<(), Trap> {
        self.device.ecall(hart, view)
    }
}

/// The functions that translated code calls, for a device of type `D`.
struct Bridge<D>(PhantomData<D>);

impl<D: Device> Bridge<D> {
    const CALLS: &'static Calls =
        &Calls { load: Self::load, store: Self::store, ecall: Self::ecall, within: Self::within };

    /// # Safety
    /// Translated code calls it with the state that it was called with.
    unsafe extern "C" fn load(state: *mut State, address: u32, width: u32) -> i64 {
        // SAFETY: as the caller says.
        let Parts { state, view, device } = unsafe { Parts::<D>::of(state) };
        let loaded = match width {
            1 => view.load::<1>(address).map(|[a]| u32::from(a)),
            2 => view.load::<2>(address).map(|bytes| u32::from(u16::from_le_bytes(bytes))),
            _ => view.load::<4>(address).map(u32::from_le_bytes),
        };
        // A width is 1, 2 or 4.
        let width = width.to_le_bytes()[0];
        let result = loaded.map_or_else(|| device.load(view, address, width), Ok);
        let mask = if width == 4 { u32::MAX } else { (1 << (8 * width)) - 1 };
        state.outcome(result.map(|value| value & mask), device, address)
    }

    /// # Safety
    /// As [`Bridge::load`].
    unsafe extern "C" fn store(state: *mut State, address: u32, width: u32, value: u32) -> i64 {
        // SAFETY: as the caller says.
        let Parts { state, view, device } = unsafe { Parts::<D>::of(state) };
        let [a, b, c, d] = value.to_le_bytes();
        let (stored, value) = match width {
            1 => (view.store(address, [a]), value & 0xff),
            2 => (view.store(address, [a, b]), value & 0xffff),
            _ => (view.store(address, [a, b, c, d]), value),
        };
        let width = width.to_le_bytes()[0];
        let result = stored.map_or_else(|| device.store(view, address, width, value), Ok);
        state.outcome(result.map(|()| 0), device, address)
    }

    /// # Safety
    /// As [`Bridge::load`].
    unsafe extern "C" fn ecall(state: *mut State) -> i64 {
        // SAFETY: as the caller says.
        let Parts { state, view, device } = unsafe { Parts::<D>::of(state) };
        let result = device.ecall(&mut state.hart, view);
        state.outcome(result.map(|()| 0), device, 0)
    }

    /// # Safety
    /// As [`Bridge::load`].
    unsafe extern "C" fn within(state: *mut State, address: u32, len: u32) -> i64 {
        // SAFETY: as the caller says.
        let Parts { view, .. } = unsafe { Parts::<D>::of(state) };
        i64::from(view.kind_of(address, len).is_some())
    }
}

/// What a state refers to while its task runs.
struct Parts<'t, D> {
    state: &'t mut State,
    view: &'t mut View<'static>,
    device: &'t mut D,
}

impl<D> Parts<'_, D> {
    /// # Safety
    /// `state` is that of a running task whose device is a `D`, and translated code waits for the result meanwhile.
    unsafe fn of(state: *mut State) -> Self {
        // SAFETY: the executor has all three borrowed for the time of the task and uses none of them; they are
        // different objects.
        unsafe {
            let state = &mut *state;
            let (view, device) = (&mut *state.space.cast(), &mut *state.device.cast());
            Self { state, view, device }
        }
    }
}

impl State {
    /// What a device call comes to.
    fn outcome(&mut self, result: Result<u32, Trap>, device: &mut impl Device, address: u32) -> i64 {
        self.limit = self.limit.saturating_sub(device.take_charge());
        match result {
            Ok(_) if self.kill.load(Relaxed) != 0 => self.set_fault(Cause::Watchdog, self.hart.pc, 0),
            Ok(value) => return i64::from(value),
            Err(Trap::Wait) => return PARK,
            Err(Trap::Finish) => self.exit = Left::Finished as u32,
            Err(Trap::Fault(cause)) => self.set_fault(cause, self.hart.pc, address),
            Err(Trap::Report(value)) => self.set_fault(Cause::Reported, self.hart.pc, value),
        }
        ENDED
    }
}
