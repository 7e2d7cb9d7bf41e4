//! An image in the engine, translated or interpreted.

use std::error::Error;
use std::rc::Rc;

use hpu_vm::jit::{Atomics, Executor, Limits, Options, Slot, Source, Task, TaskDescriptor, Translation};
use hpu_vm::memory::{Access, Region, Space};
use hpu_vm::{Checks, Exit, Image, Kind, NoDevice, RegionKind};
use spin_abi::map::{HANDLER_ARGS, Machine, STACK_WINDOW, TASK_BLOCK};
use spin_abi::regs;

use super::variant::Variant;
use super::work::{MEMORY, STRIDE, Step, Work};

/// Machine with program memory for a large image.
pub const MACHINE: Machine = Machine { program_size: 0x4_0000, ..Machine::PSPIN };
/// Machine for the same image with unrolled loops.
pub const LARGER: Machine = Machine { program_size: 0x8_0000, ..Machine::PSPIN };
/// Time limit of a handler in microseconds, also in the interpreter of a debug build.
const TIME_LIMIT: u64 = 5_000_000;
/// End of the stack window, where the task is described.
const STACK_END: u32 = MACHINE.stack_base(0, 0) + STACK_WINDOW;

/// The handlers of an image.
#[derive(Debug)]
pub struct Guest {
    executor: Rc<Executor>,
    image: Rc<Image>,
    translation: Option<Rc<Translation>>,
    slot: Slot,
    block: TaskDescriptor,
}

/// Translates the three handlers of an image.
///
/// # Errors
/// The image lacks a handler, or cannot be translated.
pub fn translate(image: &Image, checks: Checks) -> Result<Translation, Box<dyn Error>> {
    let entries: Vec<u32> = Kind::ALL.into_iter().filter_map(|kind| image.handler(kind)).collect();
    if entries.len() != Kind::ALL.len() {
        return Err("the image lacks a handler".into());
    }
    let taken = image.addresses_taken();
    let options = Options { checks, atomics: Atomics::Home, described: true, ..Options::default() };
    Ok(Translation::new(Source { code: image.code(), entries: &entries, taken: &taken }, options)?)
}

impl Guest {
    /// Prepares an image for the work's packets. Without a translation it is interpreted, with exact checks.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn new(
        executor: Rc<Executor>,
        image: Rc<Image>,
        translation: Option<Rc<Translation>>,
        work: &Work,
    ) -> Result<Self, Box<dyn Error>> {
        let mut slot = Slot::new(0, space(&image, work)?);
        let checks = translation.as_ref().map_or(Checks::Exact, |translation| translation.options().checks);
        slot.view().set_checks(checks);
        slot.view().copy_in(MACHINE.l2_packet_base, &work.packets).ok_or("no room for the packets")?;
        let mut block = TaskDescriptor::new(STACK_END, 0, 0, 0);
        block.set(regs::HANDLER_MEM_ADDR, image.handler_mem_end());
        block.set(regs::HANDLER_MEM_SIZE, len(MEMORY));
        block.set(regs::PACKET_SIZE, len(work.size));
        Ok(Self { executor, image, translation, slot, block })
    }
}

fn len(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("less than 4 GiB")
}

/// Makes the memory that the tasks may access.
fn space(image: &Image, work: &Work) -> Result<Space, Box<dyn Error>> {
    let mut space = Space::new()?;
    let parts = [
        (RegionKind::Stack, MACHINE.stack_base(0, 0), STACK_WINDOW),
        (RegionKind::Packet, MACHINE.l2_packet_base, len(work.packets.len())),
        (RegionKind::HandlerMemory, image.handler_mem_end(), len(MEMORY)),
    ];
    for (kind, base, len) in parts {
        space.map(kind, base, &Region::new(len as usize)?, 0, len, Access::Write)?;
    }
    for segment in image.code().segments() {
        let region = Region::around(segment.base, &segment.bytes)?;
        space.map(RegionKind::Code, segment.base, &region, 0, len(segment.bytes.len()), Access::Read)?;
    }
    space.set_l1_alias(MACHINE.l1_base(0), MACHINE.l1_size)?;
    space.set_task_alias(STACK_END - TASK_BLOCK);
    Ok(space)
}

impl Variant for Guest {
    fn reset(&mut self) {
        self.slot.view().copy_in(self.image.handler_mem_end(), &vec![0; MEMORY]).expect("handler memory");
    }

    fn run(&mut self, step: Step) -> Result<(), String> {
        let task = Task {
            code: self.image.code(),
            translation: self.translation.as_deref(),
            entry: self.image.handler(step.kind).ok_or("no such handler")?,
            sp: STACK_END - TASK_BLOCK,
            argument: STACK_END - HANDLER_ARGS,
            tp: 0,
            limits: Limits { time: Some(TIME_LIMIT), instructions: None },
            may_park: false,
            host: None,
        };
        let packet_at = MACHINE.l2_packet_base + len(step.packet * STRIDE);
        let changed = [(regs::PACKET_ADDR, packet_at), (regs::L2_PACKET_ADDR, packet_at)];
        let block = &self.block;
        self.executor.bind(&mut self.slot, &task, &mut NoDevice, |bound| {
            let returned = bound.run_task(block, changed, None);
            if returned { Ok(()) } else { failed(step, bound.exit()) }
        })
    }

    fn state(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; MEMORY];
        self.slot.view().copy_out(self.image.handler_mem_end(), &mut bytes).expect("handler memory");
        bytes
    }
}

#[cold]
fn failed(step: Step, exit: Exit) -> Result<(), String> {
    Err(format!("{step:?}: {exit:?}"))
}
