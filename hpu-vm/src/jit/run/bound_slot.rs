//! A slot prepared for tasks of one handler.
#![allow(unsafe_code, reason = "calls translated code, and shares the slot's state with it")]

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use spin_abi::fault::{Cause, Fault};
use spin_abi::map::PACKET_WINDOW;

use super::host_calls::{self, TaskRefs};
use super::interpreter::{self, Running, Step};
use super::slot::{DescriptorAddress, Slot, TaskDescriptor};
use super::task::Task;
use crate::device::Device;
use crate::inst::Reg;
use crate::interp::Exit;
use crate::jit::entry::{CallResult, Entry, LastSend};
use crate::jit::state::State;
use crate::jit::translation::Translation;
use crate::memory::{PacketLender, SpaceError, TaskStart};
use crate::trap::{TrapGuard, Watch};
use crate::view::View;

/// Number of regions that a task enters before it is parked between two of them. A loop that waits may lead through
/// several regions, none of which contains it. Other tasks enter few.
const ENTERED: u64 = 64;

/// Binds a slot to a task and a device, has `watch` enforce the time limit of its tasks, and calls `run`.
#[inline]
pub(super) fn bind<D: Device, R>(
    watch: &Watch,
    slot: &mut Slot,
    task: &Task<'_>,
    device: &mut D,
    run: impl FnOnce(&mut BoundSlot<'_, D>) -> R,
) -> R {
    // SAFETY: the slot is borrowed until the end of this function. The results stay valid when it changes: it keeps its
    // windows, and the memory of descriptors.
    let (descriptor, windows) = unsafe {
        let slot = &*ptr::from_ref(slot);
        (slot.descriptor_address(), slot.packet_windows())
    };
    let device = ptr::from_mut(device);
    let entry = task.translated_handler();
    let time = task.limits.nanoseconds();
    let state = slot.state();
    prepare_state(state, task, time, device);
    let state = ptr::from_mut(state);
    watch.set_limit(time, task.may_park && task.translation.is_some_and(Translation::waits));
    // SAFETY: the slot, which has the state, is borrowed until the end of this function, and the result is dropped there.
    // `Slot::new` set the lookup of translated code and the layout of the slot's space.
    let _attending = unsafe { TrapGuard::new(watch, state) };
    let lender = windows.map(PacketLender::new);
    let needs_hart = entry.is_none() || task.translation.is_some_and(|translation| translation.options().observe);
    let has_clock = task.limits.time.is_some() || !task.may_park;
    let is_simple = !needs_hart && has_clock && task.limits.instructions.is_none();
    let parts = BoundParts {
        watch,
        slot: ptr::from_mut(slot),
        state: BoundState { state, device: PhantomData },
        device,
        descriptor,
        task,
        entry,
        simple: entry.zip(descriptor).filter(|_| is_simple),
        lender: lender.as_ref(),
        reads_in_place: entry.is_some_and(|entry| entry.zero_copy > 0),
        needs_hart,
    };
    let mut bound = BoundSlot { parts, borrowed: PhantomData };
    bound.parts.update_view();
    let result = run(&mut bound);
    bound.report_copies();
    result
}

/// Sets the fields of a state that are common to all tasks while a slot is bound, except for the view.
#[inline]
fn prepare_state<D: Device>(state: &mut State, task: &Task<'_>, time: u64, device: *mut D) {
    let copies = task.translation.is_some_and(Translation::copies);
    state.host_copy.set_target(task.host);
    state.host.device = device.cast();
    state.host.calls = MaybeUninit::new(*host_calls::table::<D>(copies));
    (state.initial.sp, state.initial.tp) = (task.sp, task.tp);
    state.limits.may_park = u32::from(task.may_park);
    state.limits.time = time;
    if task.limits.instructions.is_none() {
        state.limits.retired = u64::MAX;
    }
}

/// A slot that is prepared for tasks of one handler and watched. It is only lent to a closure, so that its cleanup cannot
/// be skipped.
pub struct BoundSlot<'b, D> {
    parts: BoundParts<'b, D>,
    borrowed: PhantomData<&'b mut (Slot, D)>,
}

/// Content of a [`BoundSlot`]. Its methods run tasks on a copy of it, so that loops over tasks keep it in registers.
///
/// `bind` alone makes it, from a slot and a device that are borrowed for `'b`. Both are accessed through these pointers
/// alone, and while no other copy is in use.
struct BoundParts<'b, D> {
    watch: &'b Watch,
    slot: *mut Slot,
    state: BoundState<'b, D>,
    device: *mut D,
    /// Address of task descriptors; `None` if [`Slot::describe`] must write them.
    descriptor: Option<DescriptorAddress<'b>>,
    task: &'b Task<'b>,
    entry: Option<&'b Entry>,
    /// Entry and `descriptor`, if a task needs only a descriptor and its packet.
    simple: Option<(&'b Entry, DescriptorAddress<'b>)>,
    /// The slot's packet windows, if it has some.
    lender: Option<&'b PacketLender<'b>>,
    /// Whether the packet in L1 may be read in place.
    reads_in_place: bool,
    /// Whether the hart must hold all registers when a task starts.
    needs_hart: bool,
}

impl<D> Clone for BoundParts<'_, D> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for BoundParts<'_, D> {}

/// State of a bound slot, for calls that must not force a whole [`BoundParts`] into memory.
///
/// `bind` alone makes it. The state is attached to the slot's space, watched, and has the device and the host calls for
/// `D`. It is accessed through this pointer alone, and while no other copy is in use.
struct BoundState<'b, D> {
    state: *mut State,
    device: PhantomData<&'b mut D>,
}

impl<D> Clone for BoundState<'_, D> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for BoundState<'_, D> {}

impl<D: Device> BoundSlot<'_, D> {
    /// Writes the next task's descriptor: see [`Slot::describe`].
    #[inline]
    pub fn describe<const N: usize>(&mut self, descriptor: &TaskDescriptor, changed: [(u32, u32); N]) {
        match self.parts.descriptor {
            Some(address) => address.write(descriptor, changed),
            None => describe_slowly(self.parts.slot(), descriptor, changed),
        }
    }

    /// Returns the number of packet bytes that a task is likely to access: see
    /// [`PacketWindows::copied`](crate::memory::PacketWindows::copied).
    #[must_use]
    pub fn likely_accessed(&self, in_l1: usize) -> usize {
        let in_place = self.parts.entry.map_or(0, |entry| entry.zero_copy as usize).min(in_l1);
        self.parts.slot_ref().packet_windows().map_or(0, |windows| windows.expected_copy_len(in_l1).max(in_place))
    }

    /// Sets the number of bytes of the packet window that the next tasks may access: see [`Slot::set_packet_len`].
    ///
    /// # Errors
    /// [`SpaceError::NoRoom`].
    #[inline]
    pub fn set_packet_len(&mut self, len: u32) -> Result<(), SpaceError> {
        let result = self.parts.slot().set_packet_len(len);
        self.parts.update_view();
        result
    }

    /// Reports [copies](Device::copied) of earlier tasks to the device, before it resets its record of them.
    #[inline]
    pub fn report_copies(&mut self) {
        self.parts.state.refs().report_copies();
    }

    /// Borrows the tasks' device between two tasks.
    #[inline]
    pub const fn device(&mut self) -> &mut D {
        // SAFETY: `bind` borrowed the device for as long as this lives. Tasks, which follow the same pointer, run only
        // in methods that borrow `self` exclusively.
        unsafe { &mut *self.parts.device }
    }

    /// Returns the return value of the last task's handler: see [`Slot::result`].
    #[must_use]
    #[inline]
    pub const fn result(&self) -> u32 {
        self.parts.state.get().hart.get(Reg::A0)
    }

    /// Runs a task until it ends or is parked. A parked task must be resumed by [`BoundSlot::resume`] before any other
    /// task runs in the slot. `packet` is the content of the windows, see [`crate::memory::Space::with_packet`].
    #[inline]
    pub fn run(&mut self, packet: &mut [u8]) -> Exit {
        if self.run_with(Some(packet), |_, _| {}) { Exit::Returned } else { self.exit() }
    }

    /// Describes and runs a task, and returns whether its handler returned; this call is optimised for handlers that
    /// do. Otherwise [`BoundSlot::exit`] returns the outcome. Without a packet the windows are unchanged.
    #[inline(always)]
    pub fn run_task<const N: usize>(
        &mut self,
        descriptor: &TaskDescriptor,
        changed: [(u32, u32); N],
        packet: Option<&mut [u8]>,
    ) -> bool {
        self.run_with(packet, |parts, address| match address {
            Some(address) => address.write(descriptor, changed),
            None => describe_slowly(parts.slot(), descriptor, changed),
        })
    }

    /// Runs a task after a call of `describe`. That gets the address of the descriptor on the fast path.
    #[inline(always)]
    fn run_with(
        &mut self,
        packet: Option<&mut [u8]>,
        describe: impl FnOnce(&mut BoundParts<'_, D>, Option<DescriptorAddress<'_>>),
    ) -> bool {
        let mut parts = self.parts;
        parts.state.announce(parts.watch);
        match parts.simple {
            Some((entry, descriptor)) if parts.state.get().can_start() => {
                describe(&mut parts, Some(descriptor));
                if parts.run_simple(packet, entry) {
                    return true;
                }
            }
            _ => {
                describe(&mut parts, None);
                // Not on the copy: a call that is not inlined would force the copy into memory on all paths.
                self.parts.run_any(packet.unwrap_or_default());
            }
        }
        // The handler may have returned in the interpreter.
        self.exit() == Exit::Returned
    }

    /// Returns the outcome of the last task that did not [return](BoundSlot::run_task) from translated code.
    #[must_use]
    #[inline]
    pub const fn exit(&self) -> Exit {
        self.parts.state.get().outcome
    }

    /// Resumes the parked task with its remaining limits; the time while it was parked does not count. The task is
    /// parked again as soon as it is found waiting.
    pub fn resume(&mut self, packet: &mut [u8]) -> Exit {
        self.parts.resume(packet)
    }
}

impl<D: Device> BoundParts<'_, D> {
    /// The slot between two tasks. Its methods do not access the state, except for atomics.
    #[inline(always)]
    const fn slot(&mut self) -> &mut Slot {
        // SAFETY: `bind` borrowed the slot, which is accessed through this pointer alone; see `BoundParts`.
        unsafe { &mut *self.slot }
    }

    /// The slot between two tasks.
    #[inline(always)]
    const fn slot_ref(&self) -> &Slot {
        // SAFETY: as in `slot`.
        unsafe { &*self.slot }
    }

    /// Stores the address of the slot's view, which a change of the slot may have moved, in the state.
    #[inline(always)]
    fn update_view(&mut self) {
        let view = ptr::from_mut(self.slot().view());
        self.state.get_mut().host.view = view.cast();
    }

    /// Calls the handler's code. The state's view must be the current one.
    #[inline(always)]
    fn call(&self, entry: &Entry) -> CallResult {
        let function = entry.function();
        // SAFETY: the task's translation lives for 'b and thus keeps the code. The state is attached to the slot's space,
        // watched, and has the initial registers and the cold code of this entry; see `BoundState`. No references to it
        // exist.
        unsafe { function(self.state.state, self.task.argument.into()) }.into()
    }

    /// Runs a task that may need any preparation, and stores its outcome.
    #[inline(never)]
    fn run_any(&mut self, packet: &mut [u8]) {
        let (task, needs_hart) = (self.task, self.needs_hart);
        let state = self.state.get_mut();
        state.resume = 0;
        if needs_hart {
            state.hart.begin(task.entry, task.sp, task.argument);
            state.hart.set(Reg::TP, task.tp);
            state.hart.set(Reg::GP, task.code.global_pointer());
        } else {
            state.hart.begin_translated();
        }
        if let Some(limit) = task.limits.instructions {
            state.limits.retired = state.hart.retired().saturating_add(limit);
        }
        let outcome = self.execute_with(packet, self.entry.map(Running::handler), TaskStart::New);
        self.state.get_mut().outcome = outcome;
    }

    /// Runs a task that needs no preparation but for its packet. It must be announced, and [`State::can_start`] be true;
    /// `entry` is the one of `self.simple`. Returns whether the handler returned in translated code; otherwise [`State::outcome`]
    /// holds the outcome.
    #[inline(always)]
    fn run_simple(&mut self, packet: Option<&mut [u8]>, entry: &Entry) -> bool {
        let (Some(lender), Some(packet)) = (self.lender, packet) else {
            self.lender.inspect(|lender| lender.lend_nothing());
            let result = self.call(entry);
            return self.returned(result, entry);
        };
        let len = packet.len().min(PACKET_WINDOW as usize) as u32;
        if self.slot_ref().l2_len != len {
            self.state.get_mut().host.view = resize_l2(self.slot(), len).cast();
        }
        let lease = lender.lend(packet, TaskStart::New, self.reads_in_place);
        let result = self.call(entry);
        // The common case, without a second check behind it.
        if matches!(result, CallResult::Returned) {
            drop(lease);
            return true;
        }
        let returned = self.returned(result, entry);
        drop(lease);
        returned
    }

    /// Whether the handler returned. Otherwise handles the exit and stores the outcome.
    #[inline(always)]
    fn returned(&mut self, result: CallResult, entry: &Entry) -> bool {
        let returned = self.state.has_returned(result);
        if !returned {
            self.state.get_mut().outcome = self.state.continue_after(self.task, entry);
        }
        returned
    }

    fn resume(&mut self, packet: &mut [u8]) -> Exit {
        let state = self.state.get_mut();
        if state.limits.time_left == 0 {
            return Exit::Fault(Fault { cause: Cause::Watchdog, pc: state.hart.pc, address: 0 });
        }
        // Another hart may have run since the word was reserved.
        state.hart.clear_reservation();
        state.limits.time = state.limits.time_left;
        // The interpreter parks tasks without a resume point.
        let has_resume_point = state.resume != 0;
        let running = Running::parked(self.task, state.region).filter(|_| has_resume_point);
        let exit = self.execute_with(packet, running, TaskStart::Resumed);
        // The next task has the whole limit.
        self.state.get_mut().limits.time = self.task.limits.nanoseconds();
        exit
    }

    /// Executes a task with `packet` in the slot's windows.
    fn execute_with(&mut self, packet: &mut [u8], running: Option<Running<'_>>, begun: TaskStart) -> Exit {
        // The slot does not access the state meanwhile, and the copy accesses of the slot only the view that it lends.
        let mut parts = *self;
        self.slot().with_packet(packet, begun, |view| parts.execute_in(view, running, begun))
    }

    fn execute_in(&mut self, view: &mut View<'static>, running: Option<Running<'_>>, begun: TaskStart) -> Exit {
        self.state.get_mut().host.view = ptr::from_mut(view).cast();
        // SAFETY: the state is watched; see `BoundState`.
        unsafe { self.watch.start_task(self.state.state) };
        let time = self.state.get().limits.time;
        if begun == TaskStart::Resumed && time != u64::MAX {
            self.watch.resume_task(time);
        }
        let parks_early = begun == TaskStart::Resumed || self.task.limits.time.is_none();
        if parks_early && self.state.get().limits.may_park != 0 {
            self.state.get().request.request_park();
        }
        self.state.execute(self.task, running)
    }
}

impl<D: Device> BoundState<'_, D> {
    /// The state while translated code does not run.
    #[inline(always)]
    const fn get(&self) -> &State {
        // SAFETY: `bind` borrowed the slot that has the state, which is accessed through this pointer alone.
        unsafe { &*self.state }
    }

    /// The state while translated code does not run.
    #[inline(always)]
    const fn get_mut(&mut self) -> &mut State {
        // SAFETY: as in `get`; no other copy is in use.
        unsafe { &mut *self.state }
    }

    /// References to state, view and device while translated code does not run.
    #[inline(always)]
    fn refs(&mut self) -> TaskRefs<'_, D> {
        // SAFETY: `bind` borrowed slot and device, a `D`, and stored them in the state. No other copy is in use.
        unsafe { TaskRefs::new(self.state) }
    }

    /// Starts a task for the watchdog, whose later requests are for this task. Keeps earlier requests.
    #[inline(always)]
    fn announce(&self, watch: &Watch) {
        // SAFETY: the state is watched; see `BoundState`.
        unsafe { watch.begin_task(self.state) };
    }

    /// See [`TaskRefs::issue_last_send`].
    #[inline]
    fn issue_last_send(mut self, send: LastSend) -> bool {
        self.refs().issue_last_send(send)
    }

    /// Whether the handler returned. Issues the send that it left to its caller.
    #[inline(always)]
    fn has_returned(self, result: CallResult) -> bool {
        match result {
            CallResult::Returned => true,
            CallResult::LastSend(send) => self.issue_last_send(send),
            CallResult::Exited => false,
        }
    }

    /// Continues a task after an exit of its handler's code.
    #[cold]
    fn continue_after(mut self, task: &Task<'_>, entry: &Entry) -> Exit {
        let step = interpreter::handle_exit(self.refs(), task, Running::handler(entry));
        self.run_steps(task, step)
    }

    /// Executes a task from where its hart or its resume point is.
    fn execute(mut self, task: &Task<'_>, running: Option<Running<'_>>) -> Exit {
        let step = match running {
            Some(running) => Step::Enter(running),
            None => interpreter::start(self.refs(), task),
        };
        self.run_steps(task, step)
    }

    /// Runs translated code and the interpreter until the task ends.
    fn run_steps<'t>(&mut self, task: &Task<'t>, mut step: Step<'t>) -> Exit {
        let mut entered = 0_u64;
        loop {
            let running = match step {
                Step::Ended(exit) => return exit,
                Step::Enter(running) => running,
            };
            if entered > ENTERED
                && let Some(exit) = interpreter::park_between_regions(self.get_mut())
            {
                return exit;
            }
            let function = running.entry.function();
            // SAFETY: as in `BoundParts::call`. The hart holds all registers of a shared region.
            let result = unsafe { function(self.state, task.argument.into()) }.into();
            if self.has_returned(result) {
                return Exit::Returned;
            }
            step = interpreter::handle_exit(self.refs(), task, running);
            entered += 1;
        }
    }
}

/// Describes a task where [`DescriptorAddress::write`] cannot.
#[cold]
#[inline(never)]
fn describe_slowly<const N: usize>(slot: &mut Slot, descriptor: &TaskDescriptor, changed: [(u32, u32); N]) {
    slot.describe(descriptor, changed);
}

/// Adapts the packet window in L2 to another packet length, and returns the address of the view. Takes the slot alone,
/// so that the caller can keep its [`BoundParts`] in registers.
#[cold]
fn resize_l2(slot: &mut Slot, len: u32) -> *mut View<'static> {
    slot.set_l2_len(len);
    ptr::from_mut(slot.view())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use spin_abi::fault::Cause;

    use crate::code::Code;

    use crate::device::NoDevice;
    use crate::interp::Exit;
    use crate::jit::{Executor, Limits, Options, Slot, Source, Task, Translation};
    use crate::memory::Space;

    const ENTRY: u32 = 0x1d00_0000;

    /// The watchdog may end a task between the two words that its code writes when it exits to the interpreter.
    #[test]
    fn task_after_an_ended_one_starts_at_its_first_instruction() {
        // ebreak
        let code = Code::at(ENTRY, &[0x73, 0x00, 0x10, 0x00]);
        let taken = BTreeSet::new();
        let source = Source { code: &code, entries: &[ENTRY], taken: &taken };
        let translation = Translation::new(source, Options::default()).expect("one instruction is translated");
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
            bound.parts.state.execute(&task, bound.parts.entry.map(super::Running::handler))
        });
        assert!(matches!(exit, Exit::Fault(fault) if fault.cause == Cause::Breakpoint), "{exit:?}");
        assert_eq!(slot.state().resume, 0);
    }
}
