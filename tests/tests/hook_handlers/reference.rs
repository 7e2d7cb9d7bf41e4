//! The interpreter on a handler's memory, with the device that programs of the hook have.

use std::task::Poll;

use hpu_vm::bpf::layout::{Counter, Reason, THREAD_POINTER};
use hpu_vm::{Device, Exit, Hart, Memory, Range, Reg, RegionKind, Trap, View, run};
use spin_abi::command::{Command, Source, Status};
use spin_abi::fault::Cause;
use spin_abi::map::{DRIVER_BASE, HANDLER_ARGS, STACK_WINDOW, TASK_BLOCK};
use spin_abi::regs;

use crate::loaded::{Handler, MACHINE, Shared};

/// Instructions that a handler may take.
const LIMIT: u64 = 10_000_000;
/// Shortest frame that is sent.
const MIN_FRAME: u32 = 14;

/// Sends the packet once. User space does everything else.
struct HookDevice {
    frame: u32,
    commands: u32,
    sent: Option<u32>,
    left: Option<Reason>,
}

impl HookDevice {
    fn leave(&mut self, reason: Reason) -> Cause {
        self.left = Some(reason);
        Cause::DeviceAccess
    }
}

impl Device for HookDevice {
    fn load(&mut self, _: &mut View<'_>, address: u32, width: u8) -> Result<u32, Trap> {
        match (address.wrapping_sub(DRIVER_BASE), width) {
            (regs::DOORBELL, 4) => Err(Trap::Finish),
            _ => Err(Trap::Fault(self.leave(Reason::Device))),
        }
    }

    fn store(&mut self, _: &mut View<'_>, address: u32, width: u8, value: u32) -> Result<(), Trap> {
        match (address.wrapping_sub(DRIVER_BASE), width) {
            (regs::ERROR, 4) => Err(Trap::Report(value)),
            _ => Err(Trap::Fault(self.leave(Reason::Device))),
        }
    }

    fn issue(&mut self, _: &mut View<'_>, command: Result<Command, Status>) -> Result<u32, Cause> {
        match command {
            Ok(Command::Send { fid: 0, source: Source::Nic(source), length, .. })
                if source == MACHINE.l2_packet_window(0, 0)
                    && self.sent.is_none()
                    && (MIN_FRAME..=self.frame).contains(&length) =>
            {
                self.sent = Some(length);
                self.commands += 1;
                Ok(self.commands)
            }
            _ => Err(self.leave(Reason::Command)),
        }
    }

    fn wait(&mut self, _: &mut View<'_>, _: u32) -> Poll<Result<(), Trap>> {
        let waits = self.sent.is_some();
        Poll::Ready(if waits { Err(Trap::Fault(self.leave(Reason::Command))) } else { Ok(()) })
    }
}

/// How a handler ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Exit(Exit),
    /// At what only user space does.
    Left(Reason),
}

/// What the interpreter came to.
pub struct Expected {
    pub end: End,
    /// a0.
    pub result: u32,
    pub sent: Option<u32>,
    pub commands: u32,
    /// The packet in L1, and in L2.
    pub packets: [Vec<u8>; 2],
}

/// A handler in the interpreter. Its memory stays from packet to packet.
pub struct Reference<'h> {
    handler: &'h Handler,
    /// The processor's slot, of which the interpreter has the stack window.
    pub slot: Vec<u8>,
    pub shared: Vec<Shared>,
    /// By counter, its value.
    pub counters: [u64; Counter::COUNT as usize],
}

impl<'h> Reference<'h> {
    pub fn new(handler: &'h Handler) -> Self {
        let (slot, shared) = (handler.slot().to_vec(), handler.shared.clone());
        Self { handler, slot, shared, counters: [0; Counter::COUNT as usize] }
    }

    /// Adds to a counter.
    pub fn count(&mut self, counter: Counter, amount: u64) {
        self.counters[counter as usize] += amount;
    }

    /// Runs the handler on a frame.
    pub fn run(&mut self, frame: &[u8]) -> Expected {
        let len = u32::try_from(frame.len()).expect("short");
        let word = |slot: &[u8], at: u32| u32::from_le_bytes(*slot[at as usize..].first_chunk().expect("a word"));
        let thread_pointer = word(&self.slot, THREAD_POINTER);
        let size = (STACK_WINDOW - TASK_BLOCK + regs::PACKET_SIZE - regs::TASK_FIRST) as usize;
        self.slot[size..size + 4].copy_from_slice(&len.to_le_bytes());
        let mut packets = [frame.to_vec(), frame.to_vec()];
        let [l1, l2] = &mut packets;
        let stack = MACHINE.stack_base(0, 0);
        let mut view = View::new();
        view.set_l1_alias(MACHINE.l1_base(0), MACHINE.l1_size);
        view.set_task_alias(stack + STACK_WINDOW - TASK_BLOCK);
        let mut push = |kind, base, memory| view.push(Range { kind, base, memory }).expect("ranges are disjoint");
        push(RegionKind::Stack, stack, Memory::ReadWrite(&mut self.slot[..STACK_WINDOW as usize]));
        push(RegionKind::Packet, MACHINE.l1_packet_base(0, 0), Memory::ReadWrite(l1));
        push(RegionKind::L2Packet, MACHINE.l2_packet_window(0, 0), Memory::ReadWrite(l2));
        for Shared { base, kind, writable, bytes } in &mut self.shared {
            let memory = if *writable { Memory::ReadWrite(bytes) } else { Memory::ReadOnly(bytes) };
            push(*kind, *base, memory);
        }
        let mut hart = Hart::new(0);
        hart.begin(self.handler.entry, stack + STACK_WINDOW - TASK_BLOCK, stack + STACK_WINDOW - HANDLER_ARGS);
        hart.set(Reg::TP, thread_pointer);
        hart.set(Reg::GP, self.handler.image.code().global_pointer());
        let mut device = HookDevice { frame: len, commands: 0, sent: None, left: None };
        let exit = run(&mut hart, self.handler.image.code(), &mut view, &mut device, LIMIT);
        drop(view);
        let end = device.left.map_or(End::Exit(exit), End::Left);
        let HookDevice { sent, commands, .. } = device;
        Expected { end, result: hart.get(Reg::A0), sent, commands, packets }
    }
}
