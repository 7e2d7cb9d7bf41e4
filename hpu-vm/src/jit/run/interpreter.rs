//! Exits of translated code other than a return: to a shared region, to the interpreter, or out of the task.

use std::task::Poll;

use spin_abi::command::{Command, Status};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::RETURN_ADDRESS;

use super::host_calls::TaskRefs;
use super::task::Task;
use crate::code::Code;
use crate::device::{Device, Trap};
use crate::hart::Hart;
use crate::interp::{self, Exit};
use crate::jit::entry::Entry;
use crate::jit::state::{ExitReason, State};
use crate::jit::translation::Translation;
use crate::memory::keep_in_l1;
use crate::trap;
use crate::view::View;

/// Instructions that the interpreter executes between two checks of the watchdog's requests.
const SLICE: u64 = 1 << 12;
/// Instructions that a vector instruction counts as in a slice.
const VECTOR_WEIGHT: u64 = 32;

/// How a task continues after translated code was left, or after the interpreter.
pub(super) enum Step<'t> {
    /// The task ended or was parked.
    Ended(Exit),
    /// Execution continues in translated code, at the resume point that the state holds.
    Enter(Running<'t>),
}

/// Translated code that runs.
#[derive(Clone, Copy)]
pub(super) struct Running<'t> {
    pub(super) entry: &'t Entry,
    /// Value of [`State::region`] when it parks.
    region: u32,
}

impl<'t> Running<'t> {
    /// A handler's own code.
    pub(super) const fn handler(entry: &'t Entry) -> Self {
        Self { entry, region: 0 }
    }

    /// Code that was parked.
    pub(super) fn parked(task: &Task<'t>, region: u32) -> Option<Self> {
        match region.checked_sub(1) {
            None => task.translated_handler().map(Self::handler),
            Some(index) => Some(Self { entry: task.translation?.shared().region(index)?, region }),
        }
    }
}

/// Handles [`State::exit`] after the code of `running` was left.
pub(super) fn handle_exit<'t, D: Device>(refs: TaskRefs<'_, D>, task: &Task<'t>, running: Running<'t>) -> Step<'t> {
    let state = &mut *refs.state;
    if state.exit == ExitReason::Faulted as u32 {
        // The watchdog may have ended the task while it wrote the words for the interpreter; the next task must start at
        // its first instruction.
        state.resume = 0;
        return Step::Ended(Exit::Fault(state.fault()));
    }
    if state.exit == ExitReason::Finished as u32 {
        return Step::Ended(Exit::Finished);
    }
    if state.exit == ExitReason::Parked as u32 {
        state.region = running.region;
        return Step::Ended(park(state));
    }
    running.entry.complete_hart(&mut state.hart, state.resume);
    state.resume = 0;
    if state.exit == ExitReason::Waiting as u32 {
        return Step::Ended(park(state));
    }
    if state.exit == ExitReason::Jumped as u32 {
        if state.hart.pc == RETURN_ADDRESS {
            return Step::Ended(Exit::Returned);
        }
        if let Some(step) = enter(state, task) {
            return step;
        }
    }
    interpret(refs, task)
}

/// Enters the shared region where the hart is, if there is one.
fn enter<'t>(state: &mut State, task: &Task<'t>) -> Option<Step<'t>> {
    let shared = task.translation?.shared();
    let point = shared.find(state.hart.pc)?;
    let entry = shared.region(point.region)?;
    if state.request.ends() {
        let fault = Fault { cause: Cause::Watchdog, pc: state.hart.pc, address: 0 };
        return Some(Step::Ended(Exit::Fault(fault)));
    }
    state.resume = point.resume;
    Some(Step::Enter(Running { entry, region: point.region + 1 }))
}

/// Starts or resumes a task that has no code of its own, or was parked outside of it.
pub(super) fn start<'t, D: Device>(refs: TaskRefs<'_, D>, task: &Task<'t>) -> Step<'t> {
    match enter(refs.state, task) {
        Some(step) => step,
        None => interpret(refs, task),
    }
}

/// Runs a task in the interpreter from where its hart is, until it ends or calls or returns to translated code.
#[cold]
pub(super) fn interpret<'t, D: Device>(mut refs: TaskRefs<'_, D>, task: &Task<'t>) -> Step<'t> {
    refs.report_copies();
    let TaskRefs { state, view, device } = refs;
    state.resume = 0;
    let shared = task.translation.map(Translation::shared);
    let stops = |pc| shared.is_some_and(|shared| shared.find(pc).is_some());
    loop {
        match run_slice(state, task.code, view, device, &stops) {
            Some(Exit::Parked) => return Step::Ended(park(state)),
            Some(exit) => return Step::Ended(exit),
            None => {}
        }
        if let Some(step) = enter(state, task) {
            return step;
        }
    }
}

/// Parks a task that is asked to park, before it enters the shared region where its hart is.
pub(super) fn park_between_regions(state: &mut State) -> Option<Exit> {
    if !state.request.parks() {
        return None;
    }
    // The hart holds all registers.
    state.resume = 0;
    Some(park(state))
}

/// Prepares the state of a task that waits for [resumption](super::BoundSlot::resume).
fn park(state: &mut State) -> Exit {
    keep_in_l1();
    // If another task starts instead, it must not inherit the registers.
    state.hart.dirty = true;
    state.limits.time_left = trap::time_left(state.limits.time);
    Exit::Parked
}

/// Interprets instructions until a slice is over, or `stops` is true for the target of a call or a return. Returns the
/// task's outcome if it ended or is to be parked.
fn run_slice<D: Device>(
    state: &mut State,
    code: &Code,
    view: &mut View<'_>,
    device: &mut D,
    stops: &impl Fn(u32) -> bool,
) -> Option<Exit> {
    let left = state.limits.retired.saturating_sub(state.hart.retired());
    let mut charged = ChargedDevice { device, charge: 0, ended: false };
    let exit = interp::run_slice(&mut state.hart, code, view, &mut charged, left.min(SLICE), VECTOR_WEIGHT, stops);
    let ChargedDevice { charge, ended, .. } = charged;
    state.limits.retired = state.limits.retired.saturating_sub(charge);
    let Exit::Fault(Fault { cause: Cause::InstructionLimit, pc, .. }) = exit else { return Some(exit) };
    if ended {
        return Some(exit);
    }
    if state.limits.retired <= state.hart.retired() {
        return Some(Exit::Fault(Fault { cause: Cause::InstructionLimit, pc, address: 0 }));
    }
    if state.request.ends() {
        return Some(Exit::Fault(Fault { cause: Cause::Watchdog, pc, address: 0 }));
    }
    // Where translated code continues, its caller decides.
    (state.request.parks() && !stops(state.hart.pc)).then_some(Exit::Parked)
}

/// A device whose charges are added up.
struct ChargedDevice<'d, D> {
    device: &'d mut D,
    charge: u64,
    /// Whether the device itself ended the task.
    ended: bool,
}

impl<D> ChargedDevice<'_, D> {
    fn note<T>(&mut self, result: Result<T, Trap>) -> Result<T, Trap> {
        self.ended |= matches!(result, Err(Trap::Fault(_)));
        result
    }
}

impl<D: Device> Device for ChargedDevice<'_, D> {
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
