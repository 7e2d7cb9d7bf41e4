//! What is to be known of the things that a [`Lane`](crate::Lane) hands over, on its own: so it is copied many at a time, and not moved with
//! them, one by one.

use std::mem::MaybeUninit;

use crate::ring::{Consumer, Producer, RingBuffer, ahead, copy, places, read, write};

/// Where notes are written: before the things that they are of are handed over.
#[derive(Debug)]
pub struct Notes<N> {
    ring: Producer<N>,
    /// To be written, in the order of the things.
    pub staged: Vec<N>,
}

/// Where they are read: when the things were taken.
#[derive(Debug)]
pub struct Noted<N>(Consumer<N>);

/// For so many things under way.
#[must_use]
pub fn notes<N: Copy>(size: usize) -> (Notes<N>, Noted<N>) {
    let (ring, noted) = RingBuffer::new(size);
    (Notes { ring, staged: Vec::with_capacity(size) }, Noted(noted))
}

impl<N: Copy> Notes<N> {
    /// Shows the places of the next `most`.
    pub fn places(&mut self, most: usize, look: impl FnMut(&[MaybeUninit<N>])) {
        places(&mut self.ring, most, look);
    }

    /// Writes the first `count` of those that are staged.
    ///
    /// # Panics
    /// When more things are under way than was said, or not so many are staged.
    pub fn write(&mut self, count: usize) {
        assert!(self.write_if_room(count), "no more things are under way than there is room for");
    }

    /// The same if there is room for so many. Returns whether there was.
    ///
    /// # Panics
    /// When not so many are staged.
    pub fn write_if_room(&mut self, count: usize) -> bool {
        let is_written = count == 0 || write(&mut self.ring, &self.staged[..count]);
        if is_written {
            self.staged.drain(..count);
        }
        is_written
    }
}

impl<N: Copy> Noted<N> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.slots()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows those that there are, `most` at the most, and leaves them there.
    pub fn ahead(&mut self, most: usize, look: impl FnMut(&[N])) {
        ahead(&mut self.0, most, look);
    }

    /// Reads the notes on the next `count` things, which were taken.
    ///
    /// # Panics
    /// When they were not written.
    pub fn read(&mut self, count: usize, each: impl FnMut(&N)) {
        assert!(read(&mut self.0, count, each), "notes are written first");
    }

    /// Appends the notes on the next `count` things, which were taken.
    ///
    /// # Panics
    /// As [`Noted::read`].
    pub fn copy(&mut self, count: usize, to: &mut Vec<N>) {
        assert!(copy(&mut self.0, count, to), "notes are written first");
    }
}
