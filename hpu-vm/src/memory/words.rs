//! Zeroed words whose pages take memory only when written, and which return to the kernel when dropped.
//!
//! An allocator would reuse freed memory and then have to clear all of it.
#![allow(unsafe_code, reason = "maps memory")]

use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::slice;

use rustix::mm::{MapFlags, ProtFlags};

/// A slice of words, all of them 0 at first.
#[derive(Debug)]
pub(crate) enum Words {
    Mapped(Mapped),
    /// No mapping was left.
    Allocated(Box<[u32]>),
}

/// Words in a mapping of their own.
#[derive(Debug)]
pub(crate) struct Mapped {
    start: NonNull<u32>,
    len: usize,
}

// SAFETY: the mapping has one owner, and is bound to no thread.
unsafe impl Send for Mapped {}

impl Words {
    /// Makes `len` words, at least one.
    pub(crate) fn new(len: usize) -> Self {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let mapped = unsafe { rustix::mm::mmap_anonymous(null_mut(), len * size_of::<u32>(), protection, flags) };
        match mapped.ok().and_then(|start| NonNull::new(start.cast())) {
            Some(start) => Self::Mapped(Mapped { start, len }),
            None => Self::Allocated(vec![0; len].into()),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this owner's, and users of its address know how long it lives.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len * size_of::<u32>()) };
    }
}

impl Deref for Words {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        match self {
            // SAFETY: `len` words are mapped, zeroed by the kernel, page-aligned, and written through `deref_mut`
            // alone.
            Self::Mapped(Mapped { start, len }) => unsafe { slice::from_raw_parts(start.as_ptr(), *len) },
            Self::Allocated(words) => words,
        }
    }
}

impl DerefMut for Words {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u32] {
        match self {
            // SAFETY: as in `deref`; `self` is borrowed exclusively.
            Self::Mapped(Mapped { start, len }) => unsafe { slice::from_raw_parts_mut(start.as_ptr(), *len) },
            Self::Allocated(words) => words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Words;

    #[test]
    fn words_are_zero_until_they_are_written() {
        let mut words = Words::new(1 << 20);
        assert!(words.iter().all(|&word| word == 0));
        (words[0], words[(1 << 20) - 1]) = (1, 2);
        assert_eq!(words.iter().sum::<u32>(), 3);
        drop(words);
        assert!(Words::new(1 << 20).iter().all(|&word| word == 0));
    }
}
