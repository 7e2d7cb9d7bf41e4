//! Metadata of the items on a [credit channel](crate::CreditTx), in a separate ring. A batch of metadata is copied at once, where items
//! are moved one by one.

use std::mem::MaybeUninit;

use crate::ring::{Consumer, Producer, RingBuffer, next_slots, peek, read, write};

/// Writes metadata, before the items that it belongs to are sent.
#[derive(Debug)]
pub struct SidebandTx<N> {
    ring: Producer<N>,
    /// Metadata to write, in the order of the items.
    pub staged: Vec<N>,
}

/// Reads metadata, after the items that it belongs to were taken.
#[derive(Debug)]
pub struct SidebandRx<N>(Consumer<N>);

/// A sideband for at most `size` items in transit.
#[must_use]
pub fn sideband<N: Copy>(size: usize) -> (SidebandTx<N>, SidebandRx<N>) {
    let (ring, reader) = RingBuffer::new(size);
    (SidebandTx { ring, staged: Vec::with_capacity(size) }, SidebandRx(reader))
}

impl<N: Copy> SidebandTx<N> {
    /// Shows the next slots to be written, at most `max`.
    pub fn next_slots(&mut self, max: usize, look: impl FnMut(&[MaybeUninit<N>])) {
        next_slots(&mut self.ring, max, look);
    }

    /// Writes the first `count` staged entries.
    ///
    /// # Panics
    /// When the ring has no room for them, or fewer are staged.
    pub fn write(&mut self, count: usize) {
        let is_written = count == 0 || write(&mut self.ring, &self.staged[..count]);
        assert!(is_written, "the sideband is as large as its channel");
        self.staged.drain(..count);
    }
}

impl<N: Copy> SidebandRx<N> {
    /// Number of waiting entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.slots()
    }

    /// Whether no entry waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows the waiting entries, at most `max`, without taking them.
    pub fn peek(&mut self, max: usize, look: impl FnMut(&[N])) {
        peek(&mut self.0, max, look);
    }

    /// Reads the metadata of the next `count` items, which the caller has taken.
    ///
    /// # Panics
    /// When their metadata was not written.
    pub fn read(&mut self, count: usize, each: impl FnMut(&N)) {
        assert!(read(&mut self.0, count, each), "metadata is written before its items are sent");
    }
}
