//! Handlers of an image.
//!
//! An image of the SDK has a symbol for each handler. An image for PsPIN or FPsPIN has a function
//! `init_handlers(hh, ph, th, handler_mem)`, which stores the addresses of its handlers and of its handler memory where its arguments
//! point. The interpreter runs it once when the image is loaded, with the rights of a handler without a packet. It
//! runs on the memory that the image's contexts will share.

use hpu_vm::memory::{Space, SpaceError};
use hpu_vm::{Device, Exit, Hart, Image, Kind, Reg, Trap, View, run};
use spin_abi::control::Placement;
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::{Machine, STACK_WINDOW, STDOUT_BASE, STDOUT_SIZE};

use crate::hpu::memory::{ContextMemory, ContextSizes, HpuId, ImageMemory};
use crate::ids::Handler;

/// Reason why an image has no usable handlers.
#[derive(Debug, thiserror::Error)]
pub enum EntriesError {
    /// The image defines no handler.
    #[error(
        "handler image: it defines none of header_handler, payload_handler, completion_handler, or its init_handlers names none"
    )]
    NoHandler,
    /// `init_handlers` was ended.
    #[error("handler image: init_handlers was ended: {0}")]
    Init(Fault),
    /// `init_handlers` stored an address that is no function.
    #[error("handler image: init_handlers says that {kind} is at {address:#010x}, where there is no code")]
    BadHandler {
        /// Symbol of the handler.
        kind: &'static str,
        /// The address.
        address: u32,
    },
    /// There is no memory for the image.
    #[error("memory of handlers: {0}")]
    Memory(#[from] SpaceError),
}

/// Instruction limit of `init_handlers`.
const INSTRUCTIONS: u64 = 1 << 20;

/// Handlers of an image, and its handler memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries {
    /// Header, payload and completion handler.
    pub handlers: [Option<Handler>; 3],
    /// Address of the image's own handler memory, if `init_handlers` stored one.
    pub handler_mem: Option<u32>,
}

impl Entries {
    /// Handlers of an image with its memory.
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

    /// Handlers of an image. `space` makes the address space of `init_handlers` on `own`. It is called only if the image has that
    /// function.
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
            Some(init) => Self::by_init(image, run_init(init, image, &mut space()?, machine, own)?)?,
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

    /// `stored`: the three handlers, then handler memory; 0 for none.
    fn by_init(image: &Image, stored: [u32; 4]) -> Result<Self, EntriesError> {
        let mut handlers = [None; 3];
        for ((handler, kind), address) in handlers.iter_mut().zip(Kind::ALL).zip(stored) {
            if address == 0 {
                continue;
            }
            if !address.is_multiple_of(2) || image.code().fetch(address).is_none() {
                return Err(EntriesError::BadHandler { kind: kind.symbol(), address });
            }
            *handler = Some(Handler { address, size: image.function_size(address) });
        }
        // Upstream images may store any other value there: such an address is no handler memory.
        let handler_mem = Some(stored[3]).filter(|&address| image.handler_mem_from(address).is_some());
        Ok(Self { handlers, handler_mem })
    }
}

/// Runs the function at `init` and returns the values that it stored.
fn run_init(
    init: u32,
    image: &Image,
    space: &mut Space,
    machine: &Machine,
    own: HpuId,
) -> Result<[u32; 4], EntriesError> {
    const STORED: u32 = 16;
    // The arguments point to the top of its stack.
    let stored = machine.stack_base(own.cluster, own.hpu) + STACK_WINDOW - STORED;
    let mut hart = Hart::new(0);
    hart.begin(init, stored, stored);
    hart.set(Reg::GP, image.code().global_pointer());
    for (register, place) in (10..).zip((stored..stored + STORED).step_by(4)) {
        hart.set(Reg::new(register), place);
    }
    match run(&mut hart, image.code(), space.view(), &mut InitDevices, INSTRUCTIONS) {
        Exit::Returned | Exit::Finished => {}
        Exit::Parked => return Err(EntriesError::Init(Fault { cause: Cause::Watchdog, pc: hart.pc, address: 0 })),
        Exit::Fault(fault) => return Err(EntriesError::Init(fault)),
    }
    let mut bytes = [0; STORED as usize];
    // The range is in the stack, so the copy succeeds.
    space.copy_out(stored, &mut bytes);
    let (words, _) = bytes.as_chunks();
    let mut stored = [0; 4];
    stored.iter_mut().zip(words).for_each(|(stored, word)| *stored = u32::from_le_bytes(*word));
    Ok(stored)
}

/// Devices of `init_handlers`, which is no task: output is discarded, any other access ends the function.
struct InitDevices;

impl Device for InitDevices {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }

    fn store(&mut self, _: &mut View<'_>, address: u32, _: u8, _: u32) -> Result<(), Trap> {
        let printed = address.wrapping_sub(STDOUT_BASE) < STDOUT_SIZE;
        if printed { Ok(()) } else { Err(Trap::Fault(Cause::DeviceAccess)) }
    }
}
