//! Memory and registers of an HPU: its windows, their current contents, and the description of its tasks.

use std::sync::Arc;

use hpu_vm::jit::{BoundSlot, Executor, Slot, Task, TaskDescriptor};
use hpu_vm::memory::{PacketWindows, Region, SpaceError};
use hpu_vm::{Checks, Device, Exit, RegionKind};
use spin_abi::control::{Isolation, Placement};
use spin_abi::map::{Machine, PACKET_WINDOW, PAGE, STACK_WINDOW};
use spin_abi::regs;

use super::command::CommandUnit;
use super::driver::Driver;
use super::memory::{ContextMemory, HpuId, ImageMemory, InstalledMemory, TaskMemory, WINDOWS, saturate};
use super::task::{TaskIdentity, TaskSpec};

/// Memory and registers of an HPU.
#[derive(Debug)]
pub struct HpuMemory {
    pub(super) slot: Slot,
    pub(super) windows: Windows,
}

/// Windows of an HPU, and their contents.
#[derive(Debug)]
pub(super) struct Windows {
    /// Description of the next task.
    pub(super) block: TaskDescriptor,
    /// Memory of the context. The windows of this HPU begin at `offset`.
    memory: Arc<Region>,
    offset: usize,
    /// Number of bytes of the packet window in L1 that tasks currently see.
    packet_len: usize,
    /// Message of the last task.
    message: u64,
    /// The first flow id of the unit.
    first_flow: u32,
    stack_end: u32,
    tp: u32,
}

impl HpuMemory {
    /// See [`Hpu::new`](super::Hpu::new).
    pub(super) fn new(
        machine: &Machine,
        own: HpuId,
        image: &ImageMemory,
        memory: &ContextMemory,
        placement: Placement,
        checks: Checks,
    ) -> Result<Self, SpaceError> {
        Self::with_memory(machine, own, &InstalledMemory { image, memory, placement }, checks)
    }

    pub(super) fn with_memory(
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
        let block = task_block(machine, own, memory, stack_end);
        let first_flow = memory.unit(machine).first_flow();
        let (memory, offset) = memory.windows(own);
        let offset = offset as usize;
        Ok(Self {
            slot,
            windows: Windows { block, memory, offset, packet_len: 0, message: 0, first_flow, stack_end, tp: id },
        })
    }

    /// Prepares a task.
    #[cfg(test)]
    pub(super) fn begin(&mut self, executor: &Executor, spec: &TaskSpec<'_>, packet: &[u8]) {
        let task = self.windows.task(spec, false);
        let mut device = hpu_vm::NoDevice;
        executor.bind(&mut self.slot, &task, &mut device, |bound| {
            self.windows.begin(bound, spec, spec.identity, packet);
        });
    }

    /// Runs a task to its end, or until it parks if it may.
    pub(super) fn run<D: Device>(
        &mut self,
        executor: &Executor,
        spec: TaskSpec<'_>,
        may_park: bool,
        packet: &mut [u8],
        device: &mut D,
    ) -> Exit {
        // The shadow interpreter compares all device accesses: host copies have to go through the device as well.
        let task = Task { host: None, ..self.windows.task(&spec, may_park) };
        executor.run(&mut self.slot, packet, &task, device)
    }

    /// Prepares the task that `other` is prepared for. The memory of `other` was copied to this HPU's.
    pub(super) fn begin_as(&mut self, other: &Self) {
        *self.slot.hart_mut() = other.slot.hart().clone();
        let sized = self.slot.set_packet_len(saturate(other.windows.packet_len as u64));
        debug_assert!(sized.is_ok(), "the windows are equal");
    }
}

/// Description of an HPU's tasks, with the parts that are equal for all of them.
fn task_block(machine: &Machine, own: HpuId, memory: &impl TaskMemory, stack_end: u32) -> TaskDescriptor {
    let HpuId { cluster, hpu } = own;
    let unit = memory.unit(machine);
    let hpu_gid = unit.first_hpu() + cluster * machine.hpus_per_cluster + hpu;
    let mut block = TaskDescriptor::new(stack_end, hpu_gid, cluster, hpu);
    block.set_unit(unit);
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
    block
}

impl Windows {
    /// The task on this HPU.
    #[inline]
    pub(super) fn task<'s>(&self, spec: &TaskSpec<'s>, may_park: bool) -> Task<'s> {
        spec.task(self.stack_end, self.tp, may_park)
    }

    /// Prepares a task of an HPU with a driver.
    #[inline(always)]
    pub(super) fn begin_driven<C: CommandUnit>(
        &mut self,
        bound: &mut BoundSlot<'_, Driver<'_, C>>,
        spec: &TaskSpec<'_>,
        identity: TaskIdentity,
        packet: &[u8],
    ) {
        self.isolate(bound, spec, identity);
        self.begin(bound, spec, identity, packet);
    }

    /// Prepares a task, without isolation from earlier ones.
    #[inline(always)]
    fn begin<D: Device>(
        &mut self,
        bound: &mut BoundSlot<'_, D>,
        spec: &TaskSpec<'_>,
        identity: TaskIdentity,
        packet: &[u8],
    ) {
        let changed = self.fit(bound, spec, identity, packet);
        bound.describe(&self.block, changed);
    }

    /// Sizes the packet window for a task's packet. Returns the registers in which the task differs from `block`.
    #[inline(always)]
    pub(super) fn fit<D: Device>(
        &mut self,
        bound: &mut BoundSlot<'_, D>,
        spec: &TaskSpec<'_>,
        identity: TaskIdentity,
        packet: &[u8],
    ) -> [(u32, u32); 1] {
        let len = spec.l1_bytes.min(packet.len()).min(PACKET_WINDOW as usize);
        if len != self.packet_len {
            self.resize(bound, len);
        }
        [(regs::FLOW_ID, self.first_flow + identity.flow)]
    }

    /// Clears what tasks of other messages left, if the context asks for isolation between messages.
    #[inline(always)]
    pub(super) fn isolate<C: CommandUnit>(
        &mut self,
        bound: &mut BoundSlot<'_, Driver<'_, C>>,
        spec: &TaskSpec<'_>,
        identity: TaskIdentity,
    ) {
        if spec.isolation == Isolation::Message && self.message != identity.message {
            self.clean(bound, identity.message);
        }
    }

    /// Clears everything that tasks of other messages may have left.
    #[inline(never)]
    fn clean<C: CommandUnit>(&mut self, bound: &mut BoundSlot<'_, Driver<'_, C>>, message: u64) {
        self.message = message;
        let cleared = self.memory.clear(self.offset, (WINDOWS * PAGE) as usize);
        debug_assert!(cleared.is_some(), "the windows are in the context's memory");
        bound.report_copies();
        bound.device().clear();
    }

    /// Changes the length of the packet window.
    #[inline(never)]
    fn resize<D: Device>(&mut self, bound: &mut BoundSlot<'_, D>, len: usize) {
        let size = saturate(len as u64);
        let sized = bound.set_packet_len(size);
        debug_assert!(sized.is_ok(), "the packet was cut to its window");
        self.block.set(regs::PACKET_SIZE, size);
        self.packet_len = len;
    }
}
