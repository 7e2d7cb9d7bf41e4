//! Handler processing units (HPUs) of one context: they give each task its packet and its description, and run it.
//!
//! Tasks run to completion on the engine's thread, on the lowest-numbered idle HPU of their cluster. That is HPU 0, unless a
//! parked task holds it. Each context has stacks and windows of its own, so no context sees what another left.
//! [`Isolation::Message`](spin_abi::control::Isolation::Message) extends that to messages.
//!
//! * `task`: specification of a task; `batch`: tasks of one handler in a batch.
//! * `windows`: memory and registers of an HPU.
//! * [`memory`]: layout of image and context memory, and the address spaces of tasks; [`image`]: a loaded image.
//! * [`driver`]: the device page through which handlers issue commands; [`dma`]: the cluster's DMA engine.
//! * [`command`]: the command unit.
//! * [`send_rights`]: what handlers may send.
//! * [`entries`]: which functions of an image are handlers; [`ip_view`]: PsPIN's view of a packet's headers.
//! * [`shadow`]: compares translation and interpreter, task by task.

mod batch;
pub mod command;
pub mod dma;
pub mod driver;
pub mod entries;
pub mod image;
pub mod ip_view;
pub mod memory;
pub mod send_rights;
pub mod shadow;
mod task;
mod windows;

use hpu_vm::jit::{BoundSlot, Executor};
use hpu_vm::memory::SpaceError;
use hpu_vm::{Checks, Exit};
use spin_abi::command::Status;
use spin_abi::control::Placement;
use spin_abi::map::Machine;
use spin_abi::regs;

use crate::host_memory::HostMemory;

pub use batch::HpuRun;
pub use task::{TaskIdentity, TaskSpec};

use command::CommandUnit;
use driver::{Driver, DriverState};
use memory::{ContextMemory, HpuId, ImageMemory, InstalledMemory, TaskMemory, saturate};
use shadow::{Difference, ShadowInterpreter};
use windows::HpuMemory;

/// Result of [`Hpu::run`].
pub struct RunOutcome {
    /// Exit of the task. After [`Exit::Parked`], the next [`Hpu::run`] resumes it.
    pub exit: Exit,
    /// Difference between translation and interpreter, if both ran the task.
    pub difference: Option<Difference>,
}

/// An HPU of a cluster, for the tasks of one context.
#[derive(Debug)]
pub struct Hpu {
    memory: HpuMemory,
    driver: DriverState,
    /// Whether a parked task holds this HPU.
    parked: bool,
    /// Compares translation and interpreter.
    shadow: Option<Box<ShadowInterpreter>>,
}

impl Hpu {
    /// The HPU `own` with the memory of an installed context.
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

    /// The HPU `own` with any task memory.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn with_memory(
        machine: &Machine,
        own: HpuId,
        memory: &impl TaskMemory,
        checks: Checks,
    ) -> Result<Self, SpaceError> {
        let memory = HpuMemory::with_memory(machine, own, memory, checks)?;
        Ok(Self { memory, driver: DriverState::new(own, machine.clusters), parked: false, shadow: None })
    }

    /// Compares each later translated task with `shadow`.
    pub fn set_shadow(&mut self, shadow: ShadowInterpreter) {
        self.shadow = Some(Box::new(shadow));
    }

    /// Describes host memory to later tasks: `len` bytes at `address`.
    pub fn set_host_at(&mut self, address: u64, len: u64) {
        let block = &mut self.memory.windows.block;
        block.set(regs::HOST_MEM_HIGH, saturate(address >> 32));
        block.set(regs::HOST_MEM_LOW, saturate(address & 0xffff_ffff));
        block.set(regs::HOST_MEM_SIZE, saturate(len));
    }

    /// Sets the home cluster of later tasks' messages. The default is the HPU's own cluster.
    #[inline]
    pub const fn set_home(&mut self, cluster: u32) {
        self.memory.windows.block.set(regs::HOME_CLUSTER, cluster);
    }

    /// Instructions that tasks have completed on this HPU: see [`hpu_vm::Hart::retired`].
    #[must_use]
    #[inline]
    pub const fn retired(&self) -> u64 {
        self.memory.slot.hart().retired()
    }

    /// Address at which the parked task continues.
    #[must_use]
    pub const fn pc(&self) -> u32 {
        self.memory.slot.hart().pc
    }

    /// Whether a task accessed a device where its translation expected memory.
    #[must_use]
    #[inline]
    pub fn device_touched(&self) -> bool {
        self.memory.slot.device_touched()
    }

    /// Return value of the last handler, for contexts whose handlers return one.
    #[must_use]
    #[inline]
    pub fn result(&self) -> u32 {
        self.memory.slot.result()
    }

    /// Whether each task is compared with the interpreter. Such tasks need [`Hpu::run`].
    #[must_use]
    #[inline]
    pub const fn is_shadowed(&self) -> bool {
        self.shadow.is_some()
    }

    /// Binds the HPU to a handler; `run` runs tasks of it. No task is parked here, and the HPU is not
    /// [shadowed](Hpu::is_shadowed).
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
        let HpuMemory { slot, windows } = &mut self.memory;
        let task = windows.task(spec, true);
        executor
            .bind(slot, &task, &mut driver, |bound| run(&mut HpuRun { bound, windows, spec, parked: &mut self.parked }))
    }

    /// Runs a task to its end, or until it parks. Resumes the task that is parked here, if there is one: then `spec` and
    /// `packet` are those of its first run. `packet` is the packet in L2, the frame itself.
    pub fn run<C: CommandUnit>(
        &mut self,
        executor: &Executor,
        spec: TaskSpec<'_>,
        packet: &mut [u8],
        commands: &mut C,
        print: &mut dyn FnMut(&[u8]),
    ) -> RunOutcome {
        let mut driver = Driver::new(&mut self.driver, commands, [spec.handler.address, spec.handler.size], print);
        let HpuMemory { slot, windows } = &mut self.memory;
        let task = windows.task(&spec, true);
        let mut begin = |bound: &mut BoundSlot<'_, Driver<'_, C>>, packet: &[u8]| {
            windows.begin_driven(bound, &spec, spec.identity, packet);
        };
        let (exit, difference) = match &mut self.shadow {
            // The rest of a parked task is not compared.
            Some(shadow) if spec.translation.is_some() && !self.parked => {
                executor.bind(slot, &task, &mut driver, |bound| begin(bound, packet));
                shadow.run_both(&mut self.memory, executor, spec, packet, &mut driver)
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

    /// Records that a command of the parked task has ended.
    pub fn set_status(&mut self, handle: u32, status: Status) {
        self.driver.set_status(handle, status);
    }

    /// Whether no task is parked here.
    #[must_use]
    #[inline]
    pub const fn is_idle(&self) -> bool {
        !self.parked
    }

    /// Discards the parked task.
    pub fn abandon(&mut self) {
        self.parked = false;
        self.driver.clear();
    }
}

/// HPUs of a context on neighbouring clusters.
#[derive(Debug)]
pub struct Hpus {
    /// The first cluster.
    first: u32,
    /// HPUs of each cluster.
    per_cluster: u32,
    hpus: Vec<Hpu>,
}

impl Hpus {
    /// HPUs on clusters from 0 on, `per_cluster` on each.
    #[must_use]
    pub const fn new(per_cluster: u32, hpus: Vec<Hpu>) -> Self {
        Self { first: 0, per_cluster, hpus }
    }

    /// One of the HPUs.
    ///
    /// # Panics
    /// When there is no such HPU.
    #[inline]
    pub fn get(&mut self, hpu: HpuId) -> &mut Hpu {
        let index = self.index(hpu);
        &mut self.hpus[index]
    }

    #[inline]
    const fn index(&self, hpu: HpuId) -> usize {
        ((hpu.cluster - self.first) * self.per_cluster + hpu.hpu) as usize
    }

    /// Lowest-numbered idle HPU of a cluster.
    #[must_use]
    #[inline]
    pub fn idle(&self, cluster: u32) -> Option<HpuId> {
        (0..self.per_cluster).map(|hpu| HpuId { cluster, hpu }).find(|&hpu| self.hpus[self.index(hpu)].is_idle())
    }

    /// An idle HPU of the cluster that has most of them.
    #[must_use]
    pub fn idle_on_least_loaded(&self) -> Option<HpuId> {
        let clusters = self.hpus.len() as u32 / self.per_cluster;
        let idle = |&cluster: &u32| self.on(cluster).iter().filter(|hpu| hpu.is_idle()).count();
        let least_loaded = (self.first..self.first + clusters).rev().max_by_key(idle)?;
        self.idle(least_loaded)
    }

    /// HPUs of one cluster.
    fn on(&self, cluster: u32) -> &[Hpu] {
        let first = self.index(HpuId { cluster, hpu: 0 });
        &self.hpus[first..first + self.per_cluster as usize]
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.hpus.is_empty()
    }

    /// No HPUs, of a context that has as many on each cluster.
    #[must_use]
    pub const fn none(&self) -> Self {
        Self { first: 0, per_cluster: self.per_cluster, hpus: Vec::new() }
    }

    /// Splits off the HPUs on clusters from `cluster` on.
    #[must_use]
    pub fn split_off(&mut self, cluster: u32) -> Self {
        let rest = self.hpus.split_off(self.index(HpuId { cluster, hpu: 0 }));
        Self { first: cluster, per_cluster: self.per_cluster, hpus: rest }
    }

    /// Describes the region of spind to later tasks, if there is one.
    pub fn set_host(&mut self, host: &HostMemory) {
        if let Some((region, address)) = host.own() {
            self.hpus.iter_mut().for_each(|hpu| hpu.set_host_at(address, region.len()));
        }
    }
}
