//! A handler processing unit of one context: gives each task its packet and its description, and runs it.
//!
//! Tasks run to completion on the engine's thread, on the lowest-numbered idle HPU of their cluster: that is HPU 0 unless a
//! task waits there, which is left then and holds its HPU. Contexts have stacks and windows of their own, so none
//! sees what another left; [`Isolation::Message`] says the same of messages.

pub mod command;
pub mod dma;
pub mod driver;
pub mod entries;
pub mod image;
pub mod ip_view;
pub mod memory;
pub mod shadow;

use std::sync::Arc;

use hpu_vm::jit::{Bound, Executor, Limits, Slot, Task, TaskBlock, Translation};
use hpu_vm::memory::{PacketWindows, Region, SpaceError};
use hpu_vm::{Checks, Device, Exit, HostBytes, Image, RegionKind};
use spin_abi::command::Status;
use spin_abi::control::{Isolation, Placement};
use spin_abi::map::{HANDLER_ARGS, Machine, PACKET_WINDOW, PAGE, STACK_WINDOW, TASK_BLOCK};
use spin_abi::regs;

use crate::host_memory::HostMemory;
use crate::hpu::command::CommandUnit;
use crate::hpu::driver::{Driver, DriverState};
use crate::hpu::memory::{ContextMemory, HpuId, ImageMemory, InstalledMemory, TaskMemory, WINDOWS, saturate};
use crate::hpu::shadow::{Difference, ShadowInterpreter};
use crate::ids::Handler;

/// The message of a task.
#[derive(Clone, Copy, Debug)]
pub struct TaskIdentity {
    /// Index of its queue.
    pub flow: u32,
    /// Which one it is, of all there have been.
    pub message: u64,
}

/// What a task is about.
#[derive(Clone, Copy)]
pub struct TaskSpec<'j> {
    /// The handler.
    pub handler: Handler,
    /// Whose packet it has.
    pub identity: TaskIdentity,
    /// Bytes of the packet to copy to L1.
    pub l1_bytes: usize,
    /// The code.
    pub image: &'j Image,
    /// The same, translated; `None`: it is interpreted.
    pub translation: Option<&'j Translation>,
    /// How long it may run.
    pub limits: Limits,
    /// Where the application's memory is, for copies that the command unit is not asked for.
    pub host: Option<HostBytes<'j>>,
    /// Who may see what it leaves behind.
    pub isolation: Isolation,
}

impl<'j> TaskSpec<'j> {
    /// The task on an HPU.
    #[inline]
    fn task(&self, windows: &Windows, may_park: bool) -> Task<'j> {
        Task {
            code: self.image.code(),
            translation: self.translation,
            entry: self.handler.address,
            sp: windows.stack_end - TASK_BLOCK,
            argument: windows.stack_end - HANDLER_ARGS,
            tp: windows.tp,
            limits: self.limits,
            may_park,
            host: self.host,
        }
    }
}

/// How a task ended, or that it waits.
pub struct RunOutcome {
    /// What ended it; [`Exit::Parked`]: the next [`Hpu::run`] goes on with it.
    pub exit: Exit,
    /// Interpreter and translation were compared, and differ.
    pub difference: Option<Difference>,
}

/// An HPU of a cluster, as the tasks of one context know it.
#[derive(Debug)]
pub struct Hpu {
    hpu_memory: HpuMemory,
    driver: DriverState,
    /// A task waits on it.
    parked: bool,
    /// For comparing interpreter and translation.
    shadow: Option<Box<ShadowInterpreter>>,
}

impl Hpu {
    /// The HPU `own` with the given memory.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn new(
        machine: &Machine,
        own: HpuId,
        image: &ImageMemory,
        memory: &ContextMemory,
        placement: Placement,
        checks: Checks,
    ) -> Result<Self, SpaceError> {
        Self::with_memory(machine, own, &InstalledMemory { image, memory, placement }, checks)
    }

    /// The HPU `own` of whatever has the memory of its tasks.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn with_memory(
        machine: &Machine,
        own: HpuId,
        memory: &impl TaskMemory,
        checks: Checks,
    ) -> Result<Self, SpaceError> {
        let hpu_memory = HpuMemory::with_memory(machine, own, memory, checks)?;
        Ok(Self { hpu_memory, driver: DriverState::new(own), parked: false, shadow: None })
    }

    /// Has each task that is translated interpreted too, by `twin`.
    pub fn set_shadow(&mut self, shadow: ShadowInterpreter) {
        self.shadow = Some(Box::new(shadow));
    }

    /// Tells later tasks where host memory is.
    pub fn set_host(&mut self, host: &HostMemory) {
        self.set_host_at(host.address, host.region.len());
    }

    /// The same, of host memory that is no region: `len` bytes at `address`.
    pub fn set_host_at(&mut self, address: u64, len: u64) {
        let block = &mut self.hpu_memory.windows.block;
        block.set(regs::HOST_MEM_HIGH, saturate(address >> 32));
        block.set(regs::HOST_MEM_LOW, saturate(address & 0xffff_ffff));
        block.set(regs::HOST_MEM_SIZE, saturate(len));
    }

    /// Tells later tasks which cluster is their message's home, if it is not the HPU's own.
    pub const fn set_home(&mut self, cluster: u32) {
        self.hpu_memory.windows.block.set(regs::HOME_CLUSTER, cluster);
    }

    /// Instructions that its tasks completed: see [`hpu_vm::Hart::retired`].
    #[must_use]
    pub const fn retired(&self) -> u64 {
        self.hpu_memory.slot.hart().retired()
    }

    /// Where the task waits that waits here.
    #[must_use]
    pub const fn pc(&self) -> u32 {
        self.hpu_memory.slot.hart().pc
    }

    /// Whether a task touched a device where its translation expected memory.
    #[must_use]
    pub fn device_touched(&self) -> bool {
        self.hpu_memory.slot.device_touched()
    }

    /// What the handler returned that has returned last, for contexts whose handlers return something.
    #[must_use]
    pub fn result(&self) -> u32 {
        self.hpu_memory.slot.result()
    }

    /// Whether tasks are run one at a time only, see [`Hpu::run`].
    #[must_use]
    #[inline]
    pub const fn is_shadowed(&self) -> bool {
        self.shadow.is_some()
    }

    /// Has `run` run tasks of one handler in a row, of which none is [compared](Hpu::is_shadowed). No task waits here.
    #[inline]
    pub fn with_run<C: CommandUnit, R>(
        &mut self,
        executor: &Executor,
        spec: &TaskSpec<'_>,
        commands: &mut C,
        print: &mut dyn FnMut(&[u8]),
        run: impl FnOnce(&mut HpuRun<'_, '_, '_, C>) -> R,
    ) -> R {
        let mut driver = Driver::new(&mut self.driver, commands, [spec.handler.address, spec.handler.size], print);
        let HpuMemory { slot, windows } = &mut self.hpu_memory;
        let task = spec.task(windows, true);
        executor
            .bind(slot, &task, &mut driver, |bound| run(&mut HpuRun { bound, windows, spec, parked: &mut self.parked }))
    }

    /// Runs one handler to its end, or to where it waits; or goes on with the one that waits here, with the job and the packet
    /// that it was run with. `packet` is the one in L2, the frame itself.
    pub fn run<C: CommandUnit>(
        &mut self,
        executor: &Executor,
        spec: TaskSpec<'_>,
        packet: &mut [u8],
        commands: &mut C,
        print: &mut dyn FnMut(&[u8]),
    ) -> RunOutcome {
        let mut driver = Driver::new(&mut self.driver, commands, [spec.handler.address, spec.handler.size], print);
        let HpuMemory { slot, windows } = &mut self.hpu_memory;
        let task = spec.task(windows, true);
        let mut begin = |bound: &mut Bound<'_, Driver<'_, C>>, packet: &[u8]| {
            windows.begin_driven(bound, &spec, spec.identity, packet);
        };
        let (exit, difference) = match &mut self.shadow {
            // It does not park.
            Some(shadow) if spec.translation.is_some() => {
                executor.bind(slot, &task, &mut driver, |bound| begin(bound, packet));
                shadow.run_both(&mut self.hpu_memory, executor, spec, packet, &mut driver)
            }
            _ if self.parked => (executor.resume(slot, packet, &task, &mut driver), None),
            _ => executor.bind(slot, &task, &mut driver, |bound| {
                begin(bound, packet);
                (bound.run(packet), None)
            }),
        };
        self.parked = exit == Exit::Parked;
        if !self.parked {
            driver.finish();
        }
        RunOutcome { exit, difference }
    }

    /// A command of the task that waits has come to its end.
    pub fn set_status(&mut self, handle: u32, status: Status) {
        self.driver.set_status(handle, status);
    }

    /// Whether no task waits here.
    #[must_use]
    #[inline]
    pub const fn is_idle(&self) -> bool {
        !self.parked
    }

    /// Gives the task up that waits.
    pub fn abandon(&mut self) {
        self.parked = false;
        self.driver.clear();
    }
}

/// A context's HPUs on neighbouring clusters.
#[derive(Debug)]
pub struct Hpus {
    /// The cluster of the first one.
    first: u32,
    /// How many each cluster has.
    each: u32,
    hpus: Vec<Hpu>,
}

impl Hpus {
    /// HPUs on clusters from 0 on, `each` on each.
    #[must_use]
    pub const fn new(each: u32, hpus: Vec<Hpu>) -> Self {
        Self { first: 0, each, hpus }
    }

    /// One of the HPUs.
    ///
    /// # Panics
    /// When it is none of them.
    #[inline]
    pub fn get(&mut self, hpu: HpuId) -> &mut Hpu {
        let index = self.index(hpu);
        &mut self.hpus[index]
    }

    #[inline]
    const fn index(&self, hpu: HpuId) -> usize {
        ((hpu.cluster - self.first) * self.each + hpu.hpu) as usize
    }

    /// The lowest-numbered HPU of a cluster on which no task waits.
    #[must_use]
    #[inline]
    pub fn idle(&self, cluster: u32) -> Option<HpuId> {
        (0..self.each).map(|hpu| HpuId { cluster, hpu }).find(|&hpu| self.hpus[self.index(hpu)].is_idle())
    }

    /// An HPU on which no task waits, of the cluster that has most such.
    #[must_use]
    pub fn idle_on_least_loaded(&self) -> Option<HpuId> {
        let clusters = self.hpus.len() as u32 / self.each;
        let idle = |&cluster: &u32| self.on(cluster).iter().filter(|hpu| hpu.is_idle()).count();
        let least_taken = (self.first..self.first + clusters).rev().max_by_key(idle)?;
        self.idle(least_taken)
    }

    /// A cluster's.
    fn on(&self, cluster: u32) -> &[Hpu] {
        let first = self.index(HpuId { cluster, hpu: 0 });
        &self.hpus[first..first + self.each as usize]
    }

    /// Those on clusters from `cluster` on; the others stay.
    #[must_use]
    pub fn split_off(&mut self, cluster: u32) -> Self {
        let rest = self.hpus.split_off(self.index(HpuId { cluster, hpu: 0 }));
        Self { first: cluster, each: self.each, hpus: rest }
    }

    /// Tells later tasks where host memory is.
    pub fn set_host(&mut self, host: &HostMemory) {
        self.hpus.iter_mut().for_each(|hpu| hpu.set_host(host));
    }
}

/// Tasks of one handler in a row: what they have in common is seen to once.
pub struct HpuRun<'r, 'b, 'd, C> {
    bound: &'r mut Bound<'b, Driver<'d, C>>,
    windows: &'r mut Windows,
    spec: &'r TaskSpec<'r>,
    parked: &'r mut bool,
}

impl<C: CommandUnit> HpuRun<'_, '_, '_, C> {
    /// Runs the next one to its end, or to where it waits: then it is the last one of the row. Says whether its handler returned; if
    /// not, [`Row::exit`] says how it ended.
    #[inline(always)]
    pub fn run_and_finish(&mut self, identity: TaskIdentity, packet: &mut [u8]) -> bool {
        let returned = self.run_task(identity, packet);
        self.finish(returned);
        returned
    }

    /// The same, with something left to do if it did not [end quietly](Row::is_quiet).
    #[inline(always)]
    pub fn run_task(&mut self, identity: TaskIdentity, packet: &mut [u8]) -> bool {
        self.windows.isolate(self.bound, self.spec, identity);
        let changed = self.windows.fit(self.bound, self.spec, identity, packet);
        self.bound.returns(&self.windows.block, changed, Some(packet))
    }

    /// Whether nothing is left to do after a handler that returned, which has issued no command either.
    #[inline(always)]
    pub fn had_no_effects(&mut self) -> bool {
        self.bound.device().had_no_effects()
    }

    /// What is left to do after a task.
    #[inline]
    pub fn finish(&mut self, returned: bool) {
        if returned {
            self.bound.device().finish();
        } else {
            self.leave();
        }
    }

    /// The last task's handler did not return.
    #[cold]
    fn leave(&mut self) {
        if self.bound.exit() == Exit::Parked {
            *self.parked = true;
        } else {
            self.bound.device().finish();
        }
    }

    /// How the last task ended whose handler did not [return](Row::returns).
    #[must_use]
    #[inline]
    pub const fn exit(&self) -> Exit {
        self.bound.exit()
    }

    /// How many bytes of a packet are likely to be looked at: see [`Bound::looked_at`].
    #[must_use]
    pub fn looked_at(&self) -> usize {
        self.bound.looked_at(self.spec.l1_bytes)
    }

    /// The command unit, between two tasks.
    #[inline]
    pub const fn commands(&mut self) -> &mut C {
        self.bound.device().commands()
    }

    /// What the last task's handler returned: see [`Hpu::result`].
    #[must_use]
    #[inline]
    pub const fn result(&self) -> u32 {
        self.bound.result()
    }
}

/// Memory and registers of an HPU, and what describes its tasks.
#[derive(Debug)]
pub struct HpuMemory {
    pub(crate) slot: Slot,
    pub(crate) windows: Windows,
}

/// An HPU's windows, and what they hold.
#[derive(Debug)]
pub(crate) struct Windows {
    block: TaskBlock,
    /// The context's memory, where this HPU's windows begin at `offset`.
    memory: Arc<Region>,
    offset: usize,
    /// Bytes of packets that tasks are shown in L1.
    shown: usize,
    /// The message of the last task.
    message: u64,
    stack_end: u32,
    tp: u32,
}

impl HpuMemory {
    /// See [`Hpu::new`].
    pub(crate) fn new(
        machine: &Machine,
        own: HpuId,
        image: &ImageMemory,
        memory: &ContextMemory,
        placement: Placement,
        checks: Checks,
    ) -> Result<Self, SpaceError> {
        Self::with_memory(machine, own, &InstalledMemory { image, memory, placement }, checks)
    }

    fn with_memory(
        machine: &Machine,
        own: HpuId,
        memory: &impl TaskMemory,
        checks: Checks,
    ) -> Result<Self, SpaceError> {
        let HpuId { cluster, hpu } = own;
        // FPsPIN: core in bits 4:0, cluster in bits 10:5.
        let id = cluster << 5 | hpu;
        let mut slot = Slot::new(id, memory.space(own)?);
        slot.view().set_checks(checks);
        slot.set_packet_len(0)?;
        if !slot.packet_windows().is_some_and(PacketWindows::has_l1) {
            return Err(SpaceError::NoRoom { kind: RegionKind::Packet, len: PACKET_WINDOW });
        }
        let stack_end = machine.stack_base(cluster, hpu) + STACK_WINDOW;
        let mut block = TaskBlock::new(stack_end, cluster * machine.hpus_per_cluster + hpu, cluster, hpu);
        let (handler_base, handler_len) = memory.handler();
        block.set(regs::HANDLER_MEM_ADDR, handler_base);
        block.set(regs::HANDLER_MEM_SIZE, handler_len);
        block.set(regs::PACKET_ADDR, machine.l1_packet_base(cluster, hpu));
        for other in 0..machine.clusters {
            let (base, len) = memory.scratchpad(other, own);
            block.set(regs::SCRATCHPAD_ADDR + 4 * other, base);
            block.set(regs::SCRATCHPAD_SIZE + 4 * other, len);
        }
        block.set(regs::L2_PACKET_ADDR, machine.l2_packet_window(cluster, hpu));
        block.set(regs::HOME_CLUSTER, cluster);
        let (memory, offset) = memory.windows(own);
        let offset = offset as usize;
        Ok(Self { slot, windows: Windows { block, memory, offset, shown: 0, message: 0, stack_end, tp: id } })
    }

    /// Prepares a task.
    #[cfg(test)]
    pub(crate) fn begin(&mut self, executor: &Executor, spec: &TaskSpec<'_>, packet: &[u8]) {
        let task = spec.task(&self.windows, false);
        let mut device = hpu_vm::NoDevice;
        executor
            .bind(&mut self.slot, &task, &mut device, |bound| self.windows.begin(bound, spec, spec.identity, packet));
    }

    /// Runs a task to its end.
    pub(crate) fn run<D: Device>(
        &mut self,
        executor: &Executor,
        spec: TaskSpec<'_>,
        packet: &mut [u8],
        device: &mut D,
    ) -> Exit {
        // What one does is compared with what another one does: the device hears of all of it.
        let task = Task { host: None, ..spec.task(&self.windows, false) };
        executor.run(&mut self.slot, packet, &task, device)
    }

    /// Prepares the task that `other`, whose memory was copied, is prepared for.
    pub(crate) fn begin_as(&mut self, other: &Self) {
        *self.slot.hart_mut() = other.slot.hart().clone();
        let sized = self.slot.set_packet_len(saturate(other.windows.shown as u64));
        debug_assert!(sized.is_ok(), "the windows are equal");
    }
}

impl Windows {
    /// Prepares them for a task of the driver's HPU.
    #[inline(always)]
    fn begin_driven<C: CommandUnit>(
        &mut self,
        bound: &mut Bound<'_, Driver<'_, C>>,
        spec: &TaskSpec<'_>,
        identity: TaskIdentity,
        packet: &[u8],
    ) {
        self.isolate(bound, spec, identity);
        self.begin(bound, spec, identity, packet);
    }

    /// Prepares them for a task that may see what earlier ones left.
    #[inline(always)]
    pub(crate) fn begin<D: Device>(
        &mut self,
        bound: &mut Bound<'_, D>,
        spec: &TaskSpec<'_>,
        identity: TaskIdentity,
        packet: &[u8],
    ) {
        let changed = self.fit(bound, spec, identity, packet);
        bound.describe(&self.block, changed);
    }

    /// Has them hold as much of a packet as its task is shown. Returns what else of the block is not as in [`Self::block`].
    #[inline(always)]
    fn fit<D: Device>(
        &mut self,
        bound: &mut Bound<'_, D>,
        spec: &TaskSpec<'_>,
        identity: TaskIdentity,
        packet: &[u8],
    ) -> [(u32, u32); 1] {
        let len = spec.l1_bytes.min(packet.len()).min(PACKET_WINDOW as usize);
        if len != self.shown {
            self.resize(bound, len);
        }
        [(regs::FLOW_ID, identity.flow)]
    }

    /// Has a task see nothing of other messages', if that is asked for.
    #[inline(always)]
    fn isolate<C: CommandUnit>(
        &mut self,
        bound: &mut Bound<'_, Driver<'_, C>>,
        spec: &TaskSpec<'_>,
        identity: TaskIdentity,
    ) {
        if spec.isolation == Isolation::Message && self.message != identity.message {
            self.clean(bound, identity.message);
        }
    }

    /// Clears all that tasks of other messages may have left.
    #[inline(never)]
    fn clean<C: CommandUnit>(&mut self, bound: &mut Bound<'_, Driver<'_, C>>, message: u64) {
        self.message = message;
        let cleared = self.memory.clear(self.offset, (WINDOWS * PAGE) as usize);
        debug_assert!(cleared.is_some(), "the windows are in the context's memory");
        bound.tell_of_copies();
        bound.device().clear();
    }

    /// The packet to come has another length than the one before it.
    #[inline(never)]
    fn resize<D: Device>(&mut self, bound: &mut Bound<'_, D>, len: usize) {
        let size = saturate(len as u64);
        let sized = bound.set_packet_len(size);
        debug_assert!(sized.is_ok(), "the packet was cut to its window");
        self.block.set(regs::PACKET_SIZE, size);
        self.shown = len;
    }
}
