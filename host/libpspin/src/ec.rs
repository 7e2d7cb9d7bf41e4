//! Execution contexts: handlers and the memory they share, as a program describes them with each packet.

use std::mem::{offset_of, size_of};
use std::sync::Arc;

use hpu_vm::memory::SpaceError;
use spin_pspin::ids::Handler;
use spin_pspin::mpq::Stage;

use crate::MACHINE;
use crate::context_memory::ContextMemory;
use crate::image::{IMAGE_VARIABLE, Loaded};

/// `spin_ec_t`. Addresses of scratchpads are offsets in the clusters' scratchpad areas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, packed)]
pub struct Ec {
    /// Handler memory: address in NIC memory.
    pub handler_mem_addr: u32,
    /// Its bytes.
    pub handler_mem_size: u32,
    /// Host memory: any address.
    pub host_mem_addr: u64,
    /// Its bytes.
    pub host_mem_size: u32,
    /// Header handler; 0 for none.
    pub hh_addr: u32,
    /// Its bytes.
    pub hh_size: u32,
    /// Payload handler; 0 for none.
    pub ph_addr: u32,
    /// Its bytes.
    pub ph_size: u32,
    /// Completion handler; 0 for none.
    pub th_addr: u32,
    /// Its bytes.
    pub th_size: u32,
    /// Offset of the scratchpad in each cluster.
    pub scratchpad_addr: [u32; 4],
    /// Its bytes.
    pub scratchpad_size: [u32; 4],
}

const _: () = {
    assert!(size_of::<Ec>() == 76 && MACHINE.clusters == 4);
    assert!(offset_of!(Ec, host_mem_addr) == 8 && offset_of!(Ec, hh_addr) == 20);
    assert!(offset_of!(Ec, ph_addr) == 28 && offset_of!(Ec, th_addr) == 36);
    assert!(offset_of!(Ec, scratchpad_addr) == 44 && offset_of!(Ec, scratchpad_size) == 60);
};

/// Why there is no such context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EcError {
    /// Handlers are at addresses of an image, and there is none.
    #[error(
        "no image is loaded: spin_find_handler_by_name loads the one that it is called with, or name one in {}",
        IMAGE_VARIABLE
    )]
    NoImage,
    /// Where no instruction is.
    #[error("{name} is {address:#010x}, where the image has no code")]
    Handler {
        /// Which field.
        name: &'static str,
        /// Its value.
        address: u32,
    },
    /// Handler memory that is not there.
    #[error(
        "{size} bytes of handler memory at {address:#010x}: there are {} from {:#010x} on",
        MACHINE.handler_mem_size, MACHINE.handler_mem_base
    )]
    HandlerMemory {
        /// First address.
        address: u32,
        /// Bytes.
        size: u32,
    },
    /// A scratchpad that is not there.
    #[error("{size} bytes of scratchpad at offset {offset} of cluster {cluster}: there are {}", MACHINE.scratchpad_size())]
    Scratchpad {
        /// Which cluster.
        cluster: usize,
        /// First byte.
        offset: u32,
        /// Bytes.
        size: u32,
    },
    /// There is no memory for it.
    #[error("memory of handlers: {0}")]
    Memory(#[from] SpaceError),
}

/// A context that can run.
#[derive(Debug)]
pub struct Context {
    /// Counts contexts.
    pub id: u32,
    /// Header, payload and completion handler.
    pub handlers: [Option<Handler>; 3],
    /// Address and bytes of host memory, as handlers are told.
    pub host: (u64, u32),
    /// The code.
    pub image: Arc<Loaded>,
    /// What its tasks see.
    pub memory: ContextMemory,
}

impl Context {
    /// Checks what a program describes.
    ///
    /// # Errors
    /// See [`EcError`].
    pub fn new(id: u32, ec: &Ec, image: &Arc<Loaded>) -> Result<Self, EcError> {
        let handler = |name, address, size| match address {
            0 => Ok(None),
            _ if image.is_code(address) => Ok(Some(Handler { address, size })),
            _ => Err(EcError::Handler { name, address }),
        };
        let handlers = [
            handler("hh_addr", ec.hh_addr, ec.hh_size)?,
            handler("ph_addr", ec.ph_addr, ec.ph_size)?,
            handler("th_addr", ec.th_addr, ec.th_size)?,
        ];
        let (address, size) = (ec.handler_mem_addr, ec.handler_mem_size);
        if size > 0 && !within(MACHINE.handler_mem_base, MACHINE.handler_mem_size, address, size) {
            return Err(EcError::HandlerMemory { address, size });
        }
        let (offsets, sizes) = (ec.scratchpad_addr, ec.scratchpad_size);
        for (cluster, (offset, size)) in offsets.into_iter().zip(sizes).enumerate() {
            if size > 0 && !within(0, MACHINE.scratchpad_size(), offset, size) {
                return Err(EcError::Scratchpad { cluster, offset, size });
            }
        }
        let memory = ContextMemory::new(image.clone(), (address, size), offsets, sizes)?;
        Ok(Self { id, handlers, host: (ec.host_mem_addr, ec.host_mem_size), image: image.clone(), memory })
    }

    /// The handler for a stage.
    #[must_use]
    pub const fn handler(&self, stage: Stage) -> Option<Handler> {
        self.handlers[stage as usize]
    }
}

/// Whether `len` bytes at `address` are among the `size` bytes at `base`.
const fn within(base: u32, size: u32, address: u32, len: u32) -> bool {
    address >= base && len <= size && address - base <= size - len
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn ranges_do_not_wrap() {
        assert!(within(0x100, 16, 0x100, 16) && within(0x100, 16, 0x10f, 1));
        assert!(!within(0x100, 16, 0x0ff, 1) && !within(0x100, 16, 0x110, 1));
        assert!(!within(0x100, 16, 0x108, 9) && !within(0x100, 16, u32::MAX, u32::MAX));
        assert!(!within(0, 16, 8, u32::MAX - 4));
    }
}
