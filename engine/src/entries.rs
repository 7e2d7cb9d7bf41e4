//! Which functions of an image are its handlers.
//!
//! An image of the SDK names them. One for PsPIN or FPsPIN says it itself: its function
//! `init_handlers(hh, ph, th, handler_mem)` stores their addresses where its arguments point, and that of its handler memory. It is
//! run once when the image is loaded, by the interpreter, on the memory that the image's contexts will share, and may do no more
//! than a handler without a packet.

use hpu_vm::memory::{Space, SpaceError};
use hpu_vm::{Device, Exit, Hart, Image, Kind, Reg, Trap, View, run};
use spin_abi::control::Placement;
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::{Machine, STACK_WINDOW, STDOUT_BASE, STDOUT_SIZE};

use crate::context::Handler;
use crate::image_error::EntriesError;
use crate::memory::{ContextMemory, ContextSizes, HpuId, ImageMemory};

/// Instructions that `init_handlers` may run.
const INSTRUCTIONS: u64 = 1 << 20;

/// Where an image's handlers are, and the memory it keeps for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries {
    /// Header, payload and completion handler.
    pub handlers: [Option<Handler>; 3],
    /// Address of the handler memory that the image itself has, if it says so.
    pub handler_mem: Option<u32>,
}

impl Entries {
    /// Those of an image, with its memory.
    ///
    /// # Errors
    /// [`EntriesError::NoHandler`], [`EntriesError::Init`], [`EntriesError::BadHandler`], [`EntriesError::Memory`].
    pub fn of(image: &Image, memory: &ImageMemory, machine: &Machine) -> Result<Self, EntriesError> {
        let own = HpuId { cluster: 0, hpu: 0 };
        let sizes = ContextSizes { hpus: 1, handler: 0, scratchpad: 0 };
        Self::in_space(image, machine, own, || {
            ContextMemory::new(machine, image.handler_mem_end(), sizes)?.space(memory, own, Placement::Any)
        })
    }

    /// Those of an image whose memory `space` shows to tasks on `own`; asked for if there is something to run.
    ///
    /// # Errors
    /// As [`Entries::of`].
    pub fn in_space(
        image: &Image,
        machine: &Machine,
        own: HpuId,
        space: impl FnOnce() -> Result<Space, SpaceError>,
    ) -> Result<Self, EntriesError> {
        let entries = match image.init_handlers() {
            None => Self::by_name(image),
            Some(init) => Self::by_init(image, told_by(init, image, &mut space()?, machine, own)?)?,
        };
        if entries.handlers.iter().all(Option::is_none) { Err(EntriesError::NoHandler) } else { Ok(entries) }
    }

    fn by_name(image: &Image) -> Self {
        let handler = |kind: Kind| {
            let size = image.symbol_size(kind.symbol()).unwrap_or(0);
            image.handler(kind).map(|address| Handler { address, size })
        };
        Self { handlers: Kind::ALL.map(handler), handler_mem: None }
    }

    /// `told`: the three handlers, then handler memory; 0 for none.
    fn by_init(image: &Image, told: [u32; 4]) -> Result<Self, EntriesError> {
        let mut handlers = [None; 3];
        for ((handler, kind), address) in handlers.iter_mut().zip(Kind::ALL).zip(told) {
            if address == 0 {
                continue;
            }
            if !address.is_multiple_of(2) || image.code().fetch(address).is_none() {
                return Err(EntriesError::BadHandler { kind: kind.symbol(), address });
            }
            *handler = Some(Handler { address, size: image.function_size(address) });
        }
        // Elsewhere it is none: upstream images may name whatever they like there.
        let handler_mem = Some(told[3]).filter(|&address| image.handler_mem_from(address).is_some());
        Ok(Self { handlers, handler_mem })
    }
}

/// Runs the function at `init` and returns what it stored.
fn told_by(
    init: u32,
    image: &Image,
    space: &mut Space,
    machine: &Machine,
    own: HpuId,
) -> Result<[u32; 4], EntriesError> {
    const TOLD: u32 = 16;
    // At the top of its stack.
    let told = machine.stack_base(own.cluster, own.hpu) + STACK_WINDOW - TOLD;
    let mut hart = Hart::new(0);
    hart.begin(init, told, told);
    hart.set(Reg::GP, image.code().global_pointer());
    for (register, place) in (10..).zip((told..told + TOLD).step_by(4)) {
        hart.set(Reg::new(register), place);
    }
    match run(&mut hart, image.code(), space.view(), &mut Mute, INSTRUCTIONS) {
        Exit::Returned | Exit::Finished => {}
        Exit::Parked => return Err(EntriesError::Init(Fault { cause: Cause::Watchdog, pc: hart.pc, address: 0 })),
        Exit::Fault(fault) => return Err(EntriesError::Init(fault)),
    }
    let mut bytes = [0; TOLD as usize];
    // A range of its own stack.
    space.copy_out(told, &mut bytes);
    let (words, _) = bytes.as_chunks();
    let mut told = [0; 4];
    told.iter_mut().zip(words).for_each(|(told, word)| *told = u32::from_le_bytes(*word));
    Ok(told)
}

/// The devices of a function that is nobody's task: what it prints is not shown, anything else it asks of them ends it.
struct Mute;

impl Device for Mute {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }

    fn store(&mut self, _: &mut View<'_>, address: u32, _: u8, _: u32) -> Result<(), Trap> {
        let printed = address.wrapping_sub(STDOUT_BASE) < STDOUT_SIZE;
        if printed { Ok(()) } else { Err(Trap::Fault(Cause::DeviceAccess)) }
    }
}
