//! A context's NIC memory for its application: the image's data, handler memory and scratchpads, at the addresses that handlers
//! use.
//!
//! Handlers run concurrently on other threads. Aligned words of up to eight bytes are read and written atomically. Nothing more
//! is guaranteed.

use std::sync::{Arc, Weak};

use hpu_vm::memory::Region;
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::hpu::memory::{ContextMemory, MappedBytes, SharedMappings, saturate};

/// The reason why an access failed. No bytes were read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NicMemoryError {
    /// The context no longer exists.
    #[error("NIC memory: the context is gone")]
    Gone,
    /// Some bytes do not belong to the context.
    #[error("NIC memory: {len} bytes at {address:#010x} are not all the context's")]
    Outside {
        /// The first address requested.
        address: u32,
        /// The number of bytes requested.
        len: u32,
    },
    /// The bytes are code or constants.
    #[error("NIC memory: {len} bytes at {address:#010x} are not for writing")]
    ReadOnly {
        /// The first address requested.
        address: u32,
        /// The number of bytes requested.
        len: u32,
    },
}

/// The memory of an image and of a context in one unit. The references are weak: an application's handle does not keep the context's memory
/// alive.
#[derive(Debug)]
pub struct NicMemory {
    image: Weak<LoadedImage>,
    region: Weak<Region>,
    handler_region: Weak<Region>,
    shared: SharedMappings,
    /// The start of the context's handler memory.
    handler: u32,
}

/// Strong references for the duration of an access.
struct Held {
    image: Arc<LoadedImage>,
    region: Arc<Region>,
    handler_region: Arc<Region>,
}

impl Held {
    /// The mapped bytes from `address` on, and their region.
    fn piece(&self, shared: &SharedMappings, handler: u32, address: u32) -> Option<(&Region, MappedBytes)> {
        let of_image =
            self.image.memory.bytes_for(handler, address).map(|bytes| (&**self.image.memory.region(), bytes));
        let of_scratchpads = || shared.scratchpad_at(address).map(|bytes| (&*self.region, bytes));
        let of_handlers = || shared.handler_at(address).map(|bytes| (&*self.handler_region, bytes));
        of_image.or_else(of_scratchpads).or_else(of_handlers)
    }
}

impl NicMemory {
    /// The memory of an image and a context.
    #[must_use]
    pub fn new(image: &Arc<LoadedImage>, context: &ContextMemory) -> Self {
        let [region, handler_region] = [context.region(), context.handler_region()].map(Arc::downgrade);
        let (handler, _) = context.handler();
        Self { image: Arc::downgrade(image), region, handler_region, shared: context.shared(), handler }
    }

    /// Whether the context still exists.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.region.strong_count() > 0
    }

    /// Reads the `len` bytes at `address`.
    ///
    /// # Errors
    /// [`NicMemoryError::Outside`], [`NicMemoryError::Gone`].
    pub fn read(&self, address: u32, len: u32) -> Result<Vec<u8>, NicMemoryError> {
        let held = self.hold()?;
        let pieces = self.pieces(&held, address, len)?;
        let mut bytes = vec![0; len as usize];
        let mut rest = &mut bytes[..];
        for (region, piece) in pieces {
            let (these, others) = rest.split_at_mut(piece.len as usize);
            region.read(piece.offset, these).ok_or(NicMemoryError::Outside { address, len })?;
            rest = others;
        }
        Ok(bytes)
    }

    /// Writes `bytes` at `address`.
    ///
    /// # Errors
    /// [`NicMemoryError`].
    pub fn write(&self, address: u32, bytes: &[u8]) -> Result<(), NicMemoryError> {
        let len = saturate(bytes.len() as u64);
        let held = self.hold()?;
        let pieces = self.pieces(&held, address, len)?;
        if pieces.iter().any(|(_, piece)| !piece.writable) {
            return Err(NicMemoryError::ReadOnly { address, len });
        }
        let mut rest = bytes;
        for (region, piece) in pieces {
            let (these, others) = rest.split_at(piece.len as usize);
            region.write(piece.offset, these).ok_or(NicMemoryError::Outside { address, len })?;
            rest = others;
        }
        Ok(())
    }

    fn hold(&self) -> Result<Held, NicMemoryError> {
        let regions = self.region.upgrade().zip(self.handler_region.upgrade());
        let (image, (region, handler_region)) = self.image.upgrade().zip(regions).ok_or(NicMemoryError::Gone)?;
        Ok(Held { image, region, handler_region })
    }

    /// The pieces of memory that these bytes consist of, in order.
    fn pieces<'h>(
        &self,
        held: &'h Held,
        address: u32,
        len: u32,
    ) -> Result<Vec<(&'h Region, MappedBytes)>, NicMemoryError> {
        let outside = NicMemoryError::Outside { address, len };
        let (mut at, mut left, mut pieces) = (address, len, Vec::new());
        while left > 0 {
            let (region, piece) = held.piece(&self.shared, self.handler, at).ok_or(outside)?;
            let piece = MappedBytes { len: piece.len.min(left), ..piece };
            left -= piece.len;
            // No memory reaches the end of the address space.
            at = at.checked_add(piece.len).ok_or(outside)?;
            pieces.push((region, piece));
        }
        Ok(pieces)
    }
}
