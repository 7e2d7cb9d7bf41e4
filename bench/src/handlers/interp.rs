//! An image in the interpreter. Each packet gets a view of exactly the bytes that its task may access.

use super::command::Log;
use super::device::{HOST_BASE, Page};
use super::memory::{Memory, OwnedMemory};
use super::runner::Runner;
use super::work::Work;
use hpu_vm::{Exit, Hart, Image, Kind, LoadError, Memory as Bytes, Range as Part, RegionKind, View, ViewError};
use spin_abi::map::{DRIVER_BASE, Machine, STACK_WINDOW};
use spin_abi::regs;
use std::ops::Range;

/// Machine whose addresses are used.
pub const MACHINE: Machine = Machine::PSPIN;
/// Guest address of the first packet window. All windows fit between it and program memory.
pub const PACKETS_BASE: u32 = MACHINE.l2_packet_base;

const TASK_BYTES: usize = (regs::TASK_END - regs::TASK_FIRST) as usize;
/// Size of `handler_args_t` at the top of the stack, in bytes.
const ARGS: u32 = 16;
/// Instruction limit, more than any handler here needs for a packet.
const INSTRUCTIONS: u64 = 1_000_000;

/// An interpreted image.
#[derive(Debug)]
pub struct Interp {
    image: Image,
    entry: u32,
    hart: Hart,
    stack: Box<[u8]>,
    task: [u8; TASK_BYTES],
    memory: OwnedMemory,
    log: Box<Log>,
    stride: usize,
    size: usize,
}

impl Interp {
    /// Loads the image's payload handler for the work's packets.
    ///
    /// # Errors
    /// The bytes are not a valid image.
    ///
    /// # Panics
    /// The image has no payload handler.
    pub fn new(elf: &[u8], work: &Work) -> Result<Self, LoadError> {
        let image = Image::load(elf, &MACHINE)?;
        let entry = image.handler(Kind::Payload).expect("a handler on packets");
        Ok(Self {
            task: task_registers(&image, work),
            image,
            entry,
            hart: Hart::new(0),
            stack: vec![0; STACK_WINDOW as usize].into_boxed_slice(),
            memory: OwnedMemory::new(work),
            log: Log::new(),
            stride: work.stride,
            size: work.case.size,
        })
    }
}

/// Returns the part of the task description that is equal for all packets.
fn task_registers(image: &Image, work: &Work) -> [u8; TASK_BYTES] {
    let mut task = [0; TASK_BYTES];
    describe(image, work, |register, value| set(&mut task, register, value));
    task
}

/// Sets the task registers that are equal for all packets.
pub(super) fn describe(image: &Image, work: &Work, mut set: impl FnMut(u32, u32)) {
    let size = |bytes: usize| u32::try_from(bytes).expect("less than 4 GiB");
    set(regs::HANDLER_MEM_ADDR, image.handler_mem_end());
    set(regs::HANDLER_MEM_SIZE, size(work.handler_mem.len()));
    set(regs::PACKET_SIZE, size(work.case.size));
    set(regs::SCRATCHPAD_ADDR, MACHINE.scratchpad_base(0));
    set(regs::SCRATCHPAD_SIZE, size(work.scratchpad_size));
    set(regs::HOST_MEM_HIGH, (HOST_BASE >> 32) as u32);
    set(regs::HOST_MEM_LOW, (HOST_BASE & 0xffff_ffff) as u32);
    set(regs::HOST_MEM_SIZE, size(work.host_size));
}

fn set(task: &mut [u8; TASK_BYTES], register: u32, value: u32) {
    let at = (register - regs::TASK_FIRST) as usize;
    task[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Sets `a0` and `sp` to the arguments at the top of the stack.
fn begin(hart: &mut Hart, stack: &mut [u8], entry: u32) {
    let args = MACHINE.stack_base(0, 0) + STACK_WINDOW - ARGS;
    let words = [DRIVER_BASE + regs::TASK_FIRST, 0, 0, 0];
    for (bytes, word) in stack[(STACK_WINDOW - ARGS) as usize..].chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    hart.begin(entry, args, args);
}

/// Memory of one task: its packet at `packet_at`, and the memory common to all tasks.
struct Windows<'w> {
    packet_at: u32,
    packet: &'w mut [u8],
    stack: &'w mut [u8],
    task: &'w mut [u8],
    scratchpad: &'w mut [u8],
    handler: &'w mut [u8],
}

fn view<'w>(image: &'w Image, windows: Windows<'w>) -> Result<View<'w>, ViewError> {
    let mut view = View::new();
    let parts = [
        (RegionKind::Packet, windows.packet_at, windows.packet),
        (RegionKind::Stack, MACHINE.stack_base(0, 0), windows.stack),
        (RegionKind::Task, DRIVER_BASE + regs::TASK_FIRST, windows.task),
        (RegionKind::Scratchpad, MACHINE.scratchpad_base(0), windows.scratchpad),
        (RegionKind::HandlerMemory, image.handler_mem_end(), windows.handler),
    ];
    for (kind, base, bytes) in parts {
        view.push(Part { kind, base, memory: Bytes::ReadWrite(bytes) })?;
    }
    image.map_into(&mut view)?;
    Ok(view)
}

impl Runner for Interp {
    fn memory(&mut self) -> Memory<'_> {
        self.memory.parts()
    }

    fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn packets_base(&mut self) -> u64 {
        PACKETS_BASE.into()
    }

    fn run(&mut self, packets: Range<usize>) -> Result<(), String> {
        let memory = self.memory.parts();
        let mut page = Page::new(&mut self.log, memory.host);
        for packet in packets {
            let offset = packet * self.stride;
            let packet_at = PACKETS_BASE + u32::try_from(offset).map_err(|error| error.to_string())?;
            set(&mut self.task, regs::PACKET_ADDR, packet_at);
            set(&mut self.task, regs::L2_PACKET_ADDR, packet_at);
            begin(&mut self.hart, &mut self.stack, self.entry);
            let windows = Windows {
                packet_at,
                packet: &mut memory.packets[offset..offset + self.size],
                stack: &mut self.stack,
                task: &mut self.task,
                scratchpad: memory.scratchpad,
                handler: memory.handler,
            };
            let mut view = view(&self.image, windows).map_err(|error| error.to_string())?;
            match hpu_vm::run(&mut self.hart, self.image.code(), &mut view, &mut page, INSTRUCTIONS) {
                Exit::Returned | Exit::Finished => {}
                other => return Err(format!("packet {packet}: {other:?}")),
            }
        }
        Ok(())
    }
}
