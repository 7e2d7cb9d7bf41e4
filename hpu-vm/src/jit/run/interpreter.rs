//! Exits of translated code other than a return, and tasks that the interpreter runs.

use std::task::Poll;

use spin_abi::command::{Command, Status};
use spin_abi::fault::{Cause, Fault};

use super::host_calls::TaskRefs;
use crate::code::Code;
use crate::device::{Device, Trap};
use crate::hart::Hart;
use crate::interp::{self, Exit};
use crate::jit::entry::Entry;
use crate::jit::state::{ExitReason, State};
use crate::memory::keep_in_l1;
use crate::trap;
use crate::view::View;

/// Instructions that the interpreter executes between two checks of the watchdog's requests.
const SLICE: u64 = 1 << 12;
/// Instructions that a vector instruction counts as in a slice.
const VECTOR_WEIGHT: u64 = 32;

/// Handles [`State::exit`] after the code of `entry` was left: returns the task's outcome, or continues the task in the
/// interpreter.
pub(super) fn handle_exit<D: Device>(task: TaskRefs<'_, D>, code: &Code, entry: &Entry) -> Exit {
    let state = &mut *task.state;
    if state.exit == ExitReason::Faulted as u32 {
        // The watchdog may have ended the task while it wrote the words for the interpreter; the next task must start at
        // its first instruction.
        state.resume = 0;
        return Exit::Fault(state.fault());
    }
    if state.exit == ExitReason::Finished as u32 {
        return Exit::Finished;
    }
    if state.exit == ExitReason::Parked as u32 {
        return park(state);
    }
    entry.prepare_interpreter(&mut state.hart, state.resume);
    if state.exit == ExitReason::Waiting as u32 {
        state.resume = 0;
        return park(state);
    }
    interpret(task, code)
}

/// Runs a task in the interpreter, from where its hart is.
#[cold]
pub(super) fn interpret<D: Device>(mut task: TaskRefs<'_, D>, code: &Code) -> Exit {
    task.report_copies();
    let TaskRefs { state, view, device } = task;
    state.resume = 0;
    match run_slices(state, code, view, device) {
        Exit::Parked => park(state),
        exit => exit,
    }
}

/// Prepares the state of a task that waits for [resumption](super::BoundSlot::resume).
fn park(state: &mut State) -> Exit {
    keep_in_l1();
    // If another task starts instead, it must not inherit the registers.
    state.hart.dirty = true;
    state.limits.time_left = trap::time_left(state.limits.time);
    Exit::Parked
}

fn run_slices<D: Device>(state: &mut State, code: &Code, view: &mut View<'_>, device: &mut D) -> Exit {
    loop {
        let left = state.limits.retired.saturating_sub(state.hart.retired());
        let slice = left.min(SLICE);
        let mut charged = ChargedDevice { device: &mut *device, charge: 0, ended: false };
        let exit = interp::run_slice(&mut state.hart, code, view, &mut charged, slice, VECTOR_WEIGHT);
        let ChargedDevice { charge, ended, .. } = charged;
        state.limits.retired = state.limits.retired.saturating_sub(charge);
        match exit {
            Exit::Fault(Fault { cause: Cause::InstructionLimit, pc, .. }) if !ended => {
                if state.limits.retired <= state.hart.retired() {
                    return Exit::Fault(Fault { cause: Cause::InstructionLimit, pc, address: 0 });
                }
                if state.request.ends() {
                    return Exit::Fault(Fault { cause: Cause::Watchdog, pc, address: 0 });
                }
                if state.request.parks() {
                    return Exit::Parked;
                }
            }
            exit => return exit,
        }
    }
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
