//! A handler processing unit: gives one task its view of memory, runs it, and is clean for the next.
//!
//! Tasks run to completion on the engine's thread, so the lowest-numbered idle HPU of a cluster is always HPU 0: one
//! [`Hpu`] per cluster serves all its tasks.

use hpu_vm::{Exit, Hart, Image, ImageMemory, Memory, Range, Reg, RegionKind, View, ViewError};
use spin_abi::map::{DRIVER_BASE, Machine, PACKET_WINDOW, STACK_WINDOW};
use spin_abi::regs;

use crate::commands::{Commands, Deferred};
use crate::context::{ContextMemory, Handler, HostMemory};
use crate::driver::{Driver, DriverState};

/// Bytes of `handler_args_t` at the top of the stack: task, HPU's global id, cluster, HPU.
const ARGS: u32 = 16;
const TASK_BYTES: usize = (regs::TASK_END - regs::TASK_FIRST) as usize;

/// What a task is about.
pub struct Job<'j> {
    /// Whose memory was used last must not be read by another context.
    pub context: u32,
    /// The handler.
    pub handler: Handler,
    /// Index of the message's queue.
    pub flow: u32,
    /// The packet in L2: the frame itself.
    pub packet: &'j mut [u8],
    /// Bytes of it to copy to L1.
    pub l1_bytes: usize,
    /// Code and symbols.
    pub image: &'j Image,
    /// The image's data.
    pub image_memory: &'j mut ImageMemory,
    /// The context's memory.
    pub memory: &'j mut ContextMemory,
    /// Instructions it may run.
    pub instruction_limit: u64,
}

/// How a task ended.
pub struct Ended {
    /// Returned, finished or faulted.
    pub exit: Exit,
    /// A send of the packet itself that is still to be done.
    pub deferred: Option<Deferred>,
}

/// The HPU of one cluster.
pub struct Hpu {
    machine: Machine,
    cluster: u32,
    hart: Hart,
    stack: Box<[u8]>,
    window: Box<[u8]>,
    driver: DriverState,
    last_context: Option<u32>,
}

impl Hpu {
    /// HPU 0 of `cluster`.
    #[must_use]
    pub fn new(machine: Machine, cluster: u32) -> Self {
        Self {
            machine,
            cluster,
            hart: Hart::new(cluster << 5),
            stack: vec![0; STACK_WINDOW as usize].into_boxed_slice(),
            window: vec![0; PACKET_WINDOW as usize].into_boxed_slice(),
            driver: DriverState::default(),
            last_context: None,
        }
    }

    /// Runs one handler to its end.
    pub fn run(&mut self, job: Job<'_>, mut commands: Commands<'_>, print: &mut dyn FnMut(&[u8])) -> Ended {
        self.clean_for(job.context);
        let l1_len = job.l1_bytes.min(job.packet.len()).min(self.window.len());
        self.window[..l1_len].copy_from_slice(&job.packet[..l1_len]);

        let mut task = self.task_registers(&job, commands.host, l1_len);
        self.reset_hart(job.handler.address);
        let stack_base = self.machine.stack_base(self.cluster, 0);
        let view = build_view(
            &self.machine,
            self.cluster,
            Windows { stack: &mut self.stack, stack_base, l1: &mut self.window[..l1_len], task: &mut task },
            job.packet,
            job.image,
            job.image_memory,
            job.memory,
        );
        let mut view = match view {
            Ok(view) => view,
            Err(error) => unreachable!("windows are disjoint by the address map and checked at install: {error}"),
        };
        let mut driver = Driver::new(&mut self.driver, &mut commands, [job.handler.address, job.handler.size], print);
        let exit = hpu_vm::run(&mut self.hart, job.image.code(), &mut view, &mut driver, job.instruction_limit);
        driver.finish();
        Ended { exit, deferred: commands.deferred }
    }

    /// What another context's handler left in stack and window is not this one's to read.
    fn clean_for(&mut self, context: u32) {
        if self.last_context.replace(context) != Some(context) {
            self.stack.fill(0);
            self.window.fill(0);
            self.driver.clear();
        }
    }

    /// `a0` and `sp` point at the arguments at the top of the stack.
    fn reset_hart(&mut self, handler: u32) {
        let top = self.machine.stack_base(self.cluster, 0) + STACK_WINDOW;
        let args = top - ARGS;
        let words = [DRIVER_BASE + regs::TASK_FIRST, self.cluster * self.machine.hpus_per_cluster, self.cluster, 0];
        let at = (STACK_WINDOW - ARGS) as usize;
        for (bytes, word) in self.stack[at..].chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        self.hart.begin(handler, args, args);
        // FPsPIN: core in bits 4:0, cluster in bits 10:5.
        self.hart.set(Reg::TP, self.cluster << 5);
    }

    fn task_registers(&self, job: &Job<'_>, host: Option<&HostMemory>, l1_len: usize) -> [u8; TASK_BYTES] {
        let mut bytes = [0; TASK_BYTES];
        let mut set = |register: u32, value: u32| {
            let at = (register - regs::TASK_FIRST) as usize;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        };
        let (machine, memory) = (&self.machine, &*job.memory);
        set(regs::HANDLER_MEM_ADDR, memory.handler_base);
        set(regs::HANDLER_MEM_SIZE, saturate(memory.handler.len() as u64));
        set(regs::PACKET_ADDR, machine.l1_packet_base(self.cluster, 0));
        set(regs::PACKET_SIZE, saturate(l1_len as u64));
        for (cluster, pad) in (0u32..).zip(&memory.scratchpads) {
            set(regs::SCRATCHPAD_ADDR + 4 * cluster, machine.scratchpad_base(cluster));
            set(regs::SCRATCHPAD_SIZE + 4 * cluster, saturate(pad.len() as u64));
        }
        if let Some(host) = host {
            set(regs::HOST_MEM_HIGH, saturate(host.address >> 32));
            set(regs::HOST_MEM_LOW, saturate(host.address & 0xffff_ffff));
            set(regs::HOST_MEM_SIZE, saturate(host.region.len()));
        }
        set(regs::L2_PACKET_ADDR, machine.l2_packet_window(self.cluster, 0));
        set(regs::HOME_CLUSTER, self.cluster);
        set(regs::FLOW_ID, job.flow);
        bytes
    }
}

fn saturate(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Windows of the HPU slot.
struct Windows<'w> {
    stack: &'w mut [u8],
    stack_base: u32,
    l1: &'w mut [u8],
    task: &'w mut [u8],
}

/// All that a task may touch (PsPIN paper §III-B2): its code, this packet in L1 and L2, scratchpads, handler memory,
/// stack and its task's description.
fn build_view<'w>(
    machine: &Machine,
    cluster: u32,
    windows: Windows<'w>,
    packet: &'w mut [u8],
    image: &'w Image,
    image_memory: &'w mut ImageMemory,
    memory: &'w mut ContextMemory,
) -> Result<View<'w>, ViewError> {
    let mut view = View::new();
    view.set_l1_alias(machine.l1_base(cluster), machine.l1_size);
    let mut push = |kind, base, bytes: &'w mut [u8]| view.push(Range { kind, base, memory: Memory::ReadWrite(bytes) });
    push(RegionKind::Packet, machine.l1_packet_base(cluster, 0), windows.l1)?;
    push(RegionKind::Stack, windows.stack_base, windows.stack)?;
    push(RegionKind::Task, DRIVER_BASE + regs::TASK_FIRST, windows.task)?;
    push(RegionKind::L2Packet, machine.l2_packet_window(cluster, 0), packet)?;
    push(RegionKind::HandlerMemory, memory.handler_base, &mut memory.handler)?;
    for (cluster, pad) in (0u32..).zip(&mut memory.scratchpads) {
        push(RegionKind::Scratchpad, machine.scratchpad_base(cluster), pad)?;
    }
    image.map_into(&mut view)?;
    image_memory.map_into(&mut view)?;
    Ok(view)
}
