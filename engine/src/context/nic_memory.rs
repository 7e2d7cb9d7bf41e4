//! NIC memory of a context for its application: what the image brings, handler memory, scratchpads, by the addresses that handlers
//! know.
//!
//! Handlers run meanwhile, on other threads: aligned words of up to eight bytes are read and written as a whole, and nothing more
//! is promised.

use std::sync::{Arc, Weak};

use hpu_vm::memory::Region;
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::hpu::memory::{ContextMemory, MappedBytes, SharedMappings, saturate};

/// Why bytes were not read or written; none of them were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NicMemoryError {
    /// The context is not there any more.
    #[error("NIC memory: the context is gone")]
    Gone,
    /// Some are not the context's.
    #[error("NIC memory: {len} bytes at {address:#010x} are not all the context's")]
    Outside {
        /// First one asked for.
        address: u32,
        /// How many.
        len: u32,
    },
    /// They are code or constants.
    #[error("NIC memory: {len} bytes at {address:#010x} are not for writing")]
    ReadOnly {
        /// First one asked for.
        address: u32,
        /// How many.
        len: u32,
    },
}

/// The memory of an image and of a context, as long as the context is there: an application that knows of it does not keep it.
#[derive(Debug)]
pub struct NicMemory {
    image: Weak<LoadedImage>,
    region: Weak<Region>,
    shared: SharedMappings,
}

/// The same while bytes are read or written.
struct Held {
    image: Arc<LoadedImage>,
    region: Arc<Region>,
}

impl Held {
    /// The bytes from `address` on, and where they are.
    fn piece(&self, shared: &SharedMappings, address: u32) -> Option<(&Region, MappedBytes)> {
        let of_image = self.image.memory.bytes_at(address).map(|bytes| (&**self.image.memory.region(), bytes));
        of_image.or_else(|| shared.bytes_at(address).map(|bytes| (&*self.region, bytes)))
    }
}

impl NicMemory {
    /// Of these two.
    #[must_use]
    pub fn new(image: &Arc<LoadedImage>, context: &ContextMemory) -> Self {
        let region = Arc::downgrade(context.region());
        Self { image: Arc::downgrade(image), region, shared: context.shared() }
    }

    /// Whether the context is there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.region.strong_count() > 0
    }

    /// The `len` bytes at `address`.
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

    /// Stores `bytes` at `address`.
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
        let (image, region) = self.image.upgrade().zip(self.region.upgrade()).ok_or(NicMemoryError::Gone)?;
        Ok(Held { image, region })
    }

    /// Where these bytes are, in order and no more than these.
    fn pieces<'h>(
        &self,
        held: &'h Held,
        address: u32,
        len: u32,
    ) -> Result<Vec<(&'h Region, MappedBytes)>, NicMemoryError> {
        let outside = NicMemoryError::Outside { address, len };
        let (mut at, mut left, mut pieces) = (address, len, Vec::new());
        while left > 0 {
            let (region, piece) = held.piece(&self.shared, at).ok_or(outside)?;
            let piece = MappedBytes { len: piece.len.min(left), ..piece };
            left -= piece.len;
            // Nothing is at the end of all addresses.
            at = at.checked_add(piece.len).ok_or(outside)?;
            pieces.push((region, piece));
        }
        Ok(pieces)
    }
}
