//! NIC memory of a context for its application: what the image brings, handler memory, scratchpads, by the addresses that handlers
//! know.
//!
//! Handlers run meanwhile, on other threads: aligned words of up to eight bytes are read and written as a whole, and nothing more
//! is promised.

use std::sync::Arc;

use crate::context::LoadedImage;
use crate::memory::{ContextMemory, Piece, saturate};

/// Why bytes were not read or written; none of them were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NicMemoryError {
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

/// The memory of an image and of a context.
#[derive(Debug)]
pub struct NicMemory {
    image: Arc<LoadedImage>,
    context: ContextMemory,
}

impl NicMemory {
    /// Of these two.
    #[must_use]
    pub const fn new(image: Arc<LoadedImage>, context: ContextMemory) -> Self {
        Self { image, context }
    }

    /// The `len` bytes at `address`.
    ///
    /// # Errors
    /// [`NicMemoryError::Outside`].
    pub fn read(&self, address: u32, len: u32) -> Result<Vec<u8>, NicMemoryError> {
        let pieces = self.pieces(address, len)?;
        let mut bytes = vec![0; len as usize];
        let mut rest = &mut bytes[..];
        for piece in pieces {
            let (these, others) = rest.split_at_mut(piece.len as usize);
            piece.region.read(piece.offset, these).ok_or(NicMemoryError::Outside { address, len })?;
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
        let pieces = self.pieces(address, len)?;
        if pieces.iter().any(|piece| !piece.writable) {
            return Err(NicMemoryError::ReadOnly { address, len });
        }
        let mut rest = bytes;
        for piece in pieces {
            let (these, others) = rest.split_at(piece.len as usize);
            piece.region.write(piece.offset, these).ok_or(NicMemoryError::Outside { address, len })?;
            rest = others;
        }
        Ok(())
    }

    /// Where these bytes are, in order and no more than these.
    fn pieces(&self, address: u32, len: u32) -> Result<Vec<Piece<'_>>, NicMemoryError> {
        let outside = NicMemoryError::Outside { address, len };
        let (mut at, mut left, mut pieces) = (address, len, Vec::new());
        while left > 0 {
            let piece = self.image.memory.piece(at).or_else(|| self.context.piece(at)).ok_or(outside)?;
            let piece = Piece { len: piece.len.min(left), ..piece };
            left -= piece.len;
            // Nothing is at the end of all addresses.
            at = at.checked_add(piece.len).ok_or(outside)?;
            pieces.push(piece);
        }
        Ok(pieces)
    }
}
