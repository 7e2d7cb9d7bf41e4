//! Memory that handlers read and write: packet windows, handler memory, scratchpad, host memory.

use super::work::Work;
use std::ops::{Deref, DerefMut};

/// Cache line size. A buffer that starts at a line gives figures that do not depend on the allocator.
const LINE: usize = 64;

/// Zeroed bytes that start at a cache line.
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Makes a buffer of `len` zeroes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let bytes = vec![0; len + LINE].into_boxed_slice();
        let start = bytes.as_ptr().align_offset(LINE);
        Self { bytes, start, len }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// All memory of a variant, at the variant's addresses.
#[derive(Debug)]
pub struct Memory<'m> {
    /// Packets, [`Work::stride`] bytes apart.
    pub packets: &'m mut [u8],
    /// Handler memory.
    pub handler: &'m mut [u8],
    /// Scratchpad of the only cluster.
    pub scratchpad: &'m mut [u8],
    /// Host memory.
    pub host: &'m mut [u8],
}

impl Memory<'_> {
    /// Restores the state before the first packet.
    pub fn reset(&mut self, work: &Work) {
        self.handler.copy_from_slice(&work.handler_mem);
        self.scratchpad.fill(0);
        self.host.fill(0);
    }

    /// Copies packets into their windows in their original form.
    pub fn place(&mut self, work: &Work, packets: std::ops::Range<usize>) {
        let bytes = packets.start * work.stride..packets.end * work.stride;
        self.packets[bytes.clone()].copy_from_slice(&work.packets[bytes]);
    }

    /// Returns the name of the first part that differs from the other memory.
    #[must_use]
    pub fn difference(&self, other: &Memory<'_>) -> Option<&'static str> {
        let parts = [
            ("packets", &*self.packets, &*other.packets),
            ("handler memory", self.handler, other.handler),
            ("scratchpad", self.scratchpad, other.scratchpad),
            ("host memory", self.host, other.host),
        ];
        parts.into_iter().find(|(_, left, right)| left != right).map(|(name, ..)| name)
    }
}

/// Memory of this process, for variants without required addresses.
#[derive(Debug)]
pub struct OwnedMemory {
    packets: Buffer,
    handler: Buffer,
    scratchpad: Buffer,
    host: Buffer,
}

impl OwnedMemory {
    /// Allocates zeroed memory of the sizes that the work requires.
    #[must_use]
    pub fn new(work: &Work) -> Self {
        Self {
            packets: Buffer::new(work.packets.len()),
            handler: Buffer::new(work.handler_mem.len()),
            scratchpad: Buffer::new(work.scratchpad_size),
            host: Buffer::new(work.host_size),
        }
    }

    /// Borrows the parts.
    pub fn parts(&mut self) -> Memory<'_> {
        Memory {
            packets: &mut self.packets,
            handler: &mut self.handler,
            scratchpad: &mut self.scratchpad,
            host: &mut self.host,
        }
    }
}
