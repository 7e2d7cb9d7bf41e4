//! An image in the translator, with the home cluster's atomics and the watchdog enabled, as the engine runs handlers.

use super::command::Log;
use super::device::{HOST_BASE, Page};
use super::interp::{MACHINE, PACKETS_BASE};
use super::memory::{Memory, OwnedMemory};
use super::runner::Runner;
use super::work::Work;
use hpu_vm::jit::{Atomics, Executor, Limits, Options, Slot, Source, Task, TaskDescriptor, Translation};
use hpu_vm::memory::{Access, Region, Space};
use hpu_vm::{Checks, Exit, HostBytes, Image, Kind, RegionKind};
use spin_abi::map::{HANDLER_ARGS, STACK_WINDOW, TASK_BLOCK};
use spin_abi::regs;
use std::error::Error;
use std::ops::Range;
use std::rc::Rc;

/// Time limit of a handler in microseconds.
const TIME_LIMIT: u64 = 10_000;

/// A translated image.
#[derive(Debug)]
pub struct Jit {
    executor: Rc<Executor>,
    image: Image,
    translation: Translation,
    entry: u32,
    slot: Slot,
    block: TaskDescriptor,
    memory: OwnedMemory,
    handler_base: u32,
    log: Box<Log>,
    stride: usize,
}

impl Jit {
    /// Loads and translates the image's payload handler for the work's packets.
    ///
    /// # Errors
    /// The bytes are not a valid image, or memory cannot be allocated.
    pub fn new(executor: Rc<Executor>, elf: &[u8], work: &Work, checks: Checks) -> Result<Self, Box<dyn Error>> {
        let image = Image::load(elf, &MACHINE)?;
        let entry = image.handler(Kind::Payload).ok_or("no handler on packets")?;
        let taken = image.addresses_taken();
        let source = Source { code: image.code(), entries: &[entry], taken: &taken };
        let translation = Translation::new(source, options(checks))?;
        let handler_base = image.handler_mem_end();
        let mut slot = Slot::new(0, space(&image, work)?);
        slot.view().set_checks(checks);
        let block = block(&image, work);
        let (memory, log) = (OwnedMemory::new(work), Log::new());
        Ok(Self { executor, image, translation, entry, slot, block, memory, handler_base, log, stride: work.stride })
    }
}

/// Returns the options with which the home cluster's handlers are translated.
pub(super) fn options(checks: Checks) -> Options {
    Options { checks, atomics: Atomics::Home, described: true, ..Options::default() }
}

/// Makes the memory that the tasks may access.
fn space(image: &Image, work: &Work) -> Result<Space, Box<dyn Error>> {
    let mut space = Space::new()?;
    let len = |bytes: usize| u32::try_from(bytes).expect("less than 4 GiB");
    let parts = [
        (RegionKind::Stack, MACHINE.stack_base(0, 0), STACK_WINDOW),
        (RegionKind::Packet, PACKETS_BASE, len(work.packets.len())),
        (RegionKind::Scratchpad, MACHINE.scratchpad_base(0), len(work.scratchpad_size)),
        (RegionKind::HandlerMemory, image.handler_mem_end(), len(work.handler_mem.len())),
    ];
    for (kind, base, len) in parts.into_iter().filter(|(.., len)| *len > 0) {
        space.map(kind, base, &Region::new(len as usize)?, 0, len, Access::Write)?;
    }
    for segment in image.code().segments() {
        let region = Region::around(segment.base, &segment.bytes)?;
        space.map(RegionKind::Code, segment.base, &region, 0, len(segment.bytes.len()), Access::Read)?;
    }
    for (base, kind, bytes) in image.instantiate().segments() {
        space.map(kind, base, &Region::around(base, bytes)?, 0, len(bytes.len()), Access::Write)?;
    }
    space.set_l1_alias(MACHINE.l1_base(0), MACHINE.l1_size)?;
    space.set_task_alias(MACHINE.stack_base(0, 0) + STACK_WINDOW - TASK_BLOCK);
    Ok(space)
}

/// Returns the part of the task description that is equal for all packets.
fn block(image: &Image, work: &Work) -> TaskDescriptor {
    let mut block = TaskDescriptor::new(MACHINE.stack_base(0, 0) + STACK_WINDOW, 0, 0, 0);
    super::interp::describe(image, work, |register, value| block.set(register, value));
    block
}

impl Runner for Jit {
    fn memory(&mut self) -> Memory<'_> {
        self.memory.parts()
    }

    fn publish_state(&mut self) {
        let parts = self.memory.parts();
        let view = self.slot.view();
        // Work without handler memory has no region for it either.
        let _ = view.copy_in(self.handler_base, parts.handler);
        let _ = view.copy_in(MACHINE.scratchpad_base(0), parts.scratchpad);
    }

    fn place(&mut self, work: &Work, packets: Range<usize>) {
        let bytes = packets.start * self.stride..packets.end * self.stride;
        let address = PACKETS_BASE + u32::try_from(bytes.start).expect("less than 4 GiB");
        self.slot.view().copy_in(address, &work.packets[bytes]).expect("the packets' place");
    }

    fn collect(&mut self) {
        let parts = self.memory.parts();
        let view = self.slot.view();
        let _ = view.copy_out(self.handler_base, parts.handler);
        let _ = view.copy_out(MACHINE.scratchpad_base(0), parts.scratchpad);
        view.copy_out(PACKETS_BASE, parts.packets).expect("the packets' place");
    }

    fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn packets_base(&mut self) -> u64 {
        PACKETS_BASE.into()
    }

    fn run(&mut self, packets: Range<usize>) -> Result<(), String> {
        let memory = self.memory.parts();
        // The page has no host memory, since copies use `host` below. A copy by the page is lost and fails the
        // comparison of host memory.
        let mut page = Page::new(&mut self.log, &mut []);
        let stack_end = MACHINE.stack_base(0, 0) + STACK_WINDOW;
        let task = Task {
            code: self.image.code(),
            translation: Some(&self.translation),
            entry: self.entry,
            sp: stack_end - TASK_BLOCK,
            argument: stack_end - HANDLER_ARGS,
            tp: 0,
            limits: Limits { time: Some(TIME_LIMIT), instructions: None },
            may_park: false,
            host: Some(HostBytes::exclusive(HOST_BASE, memory.host)),
        };
        let block = &self.block;
        let stride = u32::try_from(self.stride).expect("a short frame");
        self.executor.bind(&mut self.slot, &task, &mut page, |bound| {
            let at = |packet: usize| PACKETS_BASE + u32::try_from(packet).expect("few packets") * stride;
            let (mut packet_at, end) = (at(packets.start), at(packets.end));
            // The loop counts addresses only; a packet number would need another register.
            while packet_at != end {
                let changed = [(regs::PACKET_ADDR, packet_at), (regs::L2_PACKET_ADDR, packet_at)];
                if !bound.run_task(block, changed, None) && bound.exit() != Exit::Finished {
                    return Err(failed((packet_at - PACKETS_BASE) / stride, bound.exit()));
                }
                packet_at += stride;
            }
            Ok(())
        })
    }
}

#[cold]
fn failed(packet: u32, exit: Exit) -> String {
    format!("packet {packet}: {exit:?}")
}
