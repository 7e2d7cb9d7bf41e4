//! Handlers of an image.
//!
//! The application names an image's handlers, or the image does. An image of the SDK has a symbol for each handler. An image for PsPIN or FPsPIN has a function
//! `init_handlers(hh, ph, th, handler_mem)`, which stores the addresses of its handlers and of its handler memory where its arguments
//! point. The interpreter runs it once when the image is loaded, with the rights of a handler without a packet. It
//! runs on the memory that the image's contexts will share.

use hpu_vm::memory::{Space, SpaceError};
use hpu_vm::{Device, Exit, Hart, Image, Kind, Reg, Trap, View, run};
use spin_abi::control::Placement;
use spin_abi::fault::{Cause, Fault};
use spin_abi::handler_names::HandlerNames;
use spin_abi::map::{Machine, STACK_WINDOW, STDOUT_BASE, STDOUT_SIZE};
use spin_abi::printable::printable;

use crate::hpu::memory::{ContextMemory, ContextSizes, HpuId, ImageMemory};
use crate::ids::Handler;

/// Reason why an image has no usable handlers.
#[derive(Debug, thiserror::Error)]
pub enum EntriesError {
    /// The image declares no handler, and the application named none.
    #[error(
        "handler image: it defines none of header_handler, payload_handler, completion_handler and init_handlers, or the last names \
         none; name its handlers: --handlers hh=NAME,ph=NAME,th=NAME (its functions: {functions})"
    )]
    NoHandler {
        /// Some functions of the image.
        functions: String,
    },
    /// A named handler is no function of the image.
    #[error(
        "handler image: {what} {name:?} is neither a symbol of the image nor an address (its functions: {functions})"
    )]
    UnknownName {
        /// The part that was named.
        what: &'static str,
        /// The name.
        name: String,
        /// Some functions of the image.
        functions: String,
    },
    /// Handler memory was named, and the image has none of its own there.
    #[error("handler image: handler memory at {address:#010x} is not in the image's .l2_handler_data")]
    BadHandlerMemory {
        /// The address.
        address: u32,
    },
    /// `init_handlers` was ended.
    #[error("handler image: init_handlers was ended: {0}")]
    Init(Fault),
    /// `init_handlers` or the application gave an address that is no function.
    #[error("handler image: {kind} is said to be at {address:#010x}, where there is no code")]
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
    /// The handlers that an image with its memory declares; there may be none.
    ///
    /// # Errors
    /// [`EntriesError::Init`], [`EntriesError::BadHandler`], [`EntriesError::Memory`].
    pub fn of(image: &Image, memory: &ImageMemory, machine: &Machine) -> Result<Self, EntriesError> {
        let own = HpuId { cluster: 0, hpu: 0 };
        let sizes = ContextSizes { hpus: 1, handler: 0, scratchpad: 0 };
        Self::in_space(image, machine, own, || {
            ContextMemory::new(machine, image.handler_mem_end(), sizes)?.space(memory, own, Placement::Any)
        })
    }

    /// The handlers that an image declares; there may be none. `space` makes the address space of `init_handlers` on `own`. It is called only if the image has that
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
        match image.init_handlers() {
            None => Ok(Self::by_name(image)),
            Some(init) => Self::by_init(image, run_init(init, image, &mut space()?, machine, own)?),
        }
    }

    /// The handlers that an application named; if it named none, these.
    ///
    /// # Errors
    /// [`EntriesError::UnknownName`], [`EntriesError::BadHandler`], [`EntriesError::BadHandlerMemory`].
    pub fn named(self, image: &Image, names: &HandlerNames) -> Result<Self, EntriesError> {
        let is_named = names.handlers.iter().any(Option::is_some);
        let mut handlers = if is_named { [None; 3] } else { self.handlers };
        for ((handler, kind), name) in handlers.iter_mut().zip(Kind::ALL).zip(&names.handlers) {
            let Some(name) = name else { continue };
            *handler = Some(at(image, kind, resolve(image, kind.symbol(), name)?)?);
        }
        let handler_mem = match &names.handler_mem {
            None => None,
            Some(name) => {
                let address = resolve(image, "handler memory", name)?;
                // The end of the image's own is the start of what the context requests.
                let own = [address, address.wrapping_sub(1)].map(|address| image.handler_mem_from(address));
                own.iter().any(Option::is_some).then_some(()).ok_or(EntriesError::BadHandlerMemory { address })?;
                Some(address)
            }
        };
        Ok(Self { handlers, handler_mem })
    }

    /// Checks that there is a handler.
    ///
    /// # Errors
    /// [`EntriesError::NoHandler`].
    pub fn check(&self, image: &Image) -> Result<(), EntriesError> {
        if self.handlers.iter().all(Option::is_none) {
            return Err(EntriesError::NoHandler { functions: functions(image) });
        }
        Ok(())
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
            *handler = Some(at(image, kind, address)?);
        }
        // Upstream images may store any other value there: such an address is no handler memory.
        let handler_mem = Some(stored[3]).filter(|&address| image.handler_mem_from(address).is_some());
        Ok(Self { handlers, handler_mem })
    }
}

/// Number of functions that an error lists.
const FUNCTIONS_SHOWN: usize = 12;

/// Maximum number of characters of their names together.
const MOST_SHOWN: usize = 1000;

/// Some functions of an image, for errors.
fn functions(image: &Image) -> String {
    let shown: Vec<_> = image.functions().take(FUNCTIONS_SHOWN).collect();
    if shown.is_empty() {
        "it has no symbols; give addresses".to_owned()
    } else {
        printable(&shown.join(", "), MOST_SHOWN)
    }
}

/// The address of a symbol, or a number.
fn resolve(image: &Image, what: &'static str, name: &str) -> Result<u32, EntriesError> {
    let number = || match name.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => name.parse().ok(),
    };
    let unknown = || EntriesError::UnknownName { what, name: name.to_owned(), functions: functions(image) };
    image.symbol(name).or_else(number).ok_or_else(unknown)
}

/// The handler at an address.
fn at(image: &Image, kind: Kind, address: u32) -> Result<Handler, EntriesError> {
    if !address.is_multiple_of(2) || image.code().fetch(address).is_none() {
        return Err(EntriesError::BadHandler { kind: kind.symbol(), address });
    }
    Ok(Handler { address, size: image.function_size(address) })
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
