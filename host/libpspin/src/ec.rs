//! Execution contexts: handlers and their shared memory. A program passes one with each packet.

use std::mem::{offset_of, size_of};
use std::sync::Arc;

use hpu_vm::memory::SpaceError;
use spin_pspin::ids::Handler;
use spin_pspin::mpq::Stage;

use crate::context_memory::ContextMemory;
use crate::image::{IMAGE_VARIABLE, Loaded};
use crate::{CLUSTERS, MACHINE};

/// `spin_ec_t`. Addresses of scratchpads are offsets in the clusters' scratchpad areas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, packed)]
pub struct Ec {
    /// Address of handler memory in NIC memory.
    pub handler_mem_addr: u32,
    /// Size of handler memory in bytes.
    pub handler_mem_size: u32,
    /// Address of host memory; any value.
    pub host_mem_addr: u64,
    /// Size of host memory in bytes.
    pub host_mem_size: u32,
    /// Address of the header handler; 0 for none.
    pub hh_addr: u32,
    /// Size of the header handler in bytes.
    pub hh_size: u32,
    /// Address of the payload handler; 0 for none.
    pub ph_addr: u32,
    /// Size of the payload handler in bytes.
    pub ph_size: u32,
    /// Address of the completion handler; 0 for none.
    pub th_addr: u32,
    /// Size of the completion handler in bytes.
    pub th_size: u32,
    /// Offset of the scratchpad in each cluster.
    pub scratchpad_addr: [u32; CLUSTERS],
    /// Size of the scratchpad in each cluster, in bytes.
    pub scratchpad_size: [u32; CLUSTERS],
}

const _: () = {
    assert!(size_of::<Ec>() == 44 + 8 * CLUSTERS);
    assert!(offset_of!(Ec, host_mem_addr) == 8 && offset_of!(Ec, hh_addr) == 20);
    assert!(offset_of!(Ec, ph_addr) == 28 && offset_of!(Ec, th_addr) == 36);
    assert!(offset_of!(Ec, scratchpad_addr) == 44 && offset_of!(Ec, scratchpad_size) == 44 + 4 * CLUSTERS);
};

/// Reason why a context is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EcError {
    /// No image is loaded, so there are no handler addresses.
    #[error(
        "no image is loaded: spin_find_handler_by_name loads the one that it is called with, or name one in {}",
        IMAGE_VARIABLE
    )]
    NoImage,
    /// A handler address without an instruction.
    #[error("{name} is {address:#010x}, where the image has no code")]
    Handler {
        /// Name of the field.
        name: &'static str,
        /// Address given.
        address: u32,
    },
    /// Handler memory outside the NIC's.
    #[error(
        "{size} bytes of handler memory at {address:#010x}: there are {} from {:#010x} on",
        MACHINE.handler_mem_size, MACHINE.handler_mem_base
    )]
    HandlerMemory {
        /// Address of the first byte.
        address: u32,
        /// Size in bytes.
        size: u32,
    },
    /// A scratchpad outside the cluster's area.
    #[error("{size} bytes of scratchpad at offset {offset} of cluster {cluster}: there are {}", MACHINE.scratchpad_size())]
    Scratchpad {
        /// Cluster number.
        cluster: usize,
        /// Offset of the first byte.
        offset: u32,
        /// Size in bytes.
        size: u32,
    },
    /// Memory for the context cannot be allocated.
    #[error("memory of handlers: {0}")]
    Memory(#[from] SpaceError),
}

/// A checked context.
#[derive(Debug)]
pub struct Context {
    /// Sequence number of the context.
    pub id: u32,
    /// Header, payload and completion handler.
    pub handlers: [Option<Handler>; 3],
    /// Address and size of host memory, passed to handlers.
    pub host: (u64, u32),
    /// Image with the code.
    pub image: Arc<Loaded>,
    /// Memory of its tasks.
    pub memory: ContextMemory,
}

impl Context {
    /// Checks a program's description of a context.
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

/// Whether `len` bytes at `address` lie within the `size` bytes at `base`.
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
