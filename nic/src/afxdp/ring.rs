//! The four rings of an AF_XDP socket: single producer, single consumer, one side in the kernel.
//!
//! Indices run freely through all 32 bits; the low bits are the position (Documentation/networking/af_xdp.rst, and
//! net/xdp/xsk_queue.h for the memory orderings). Each side caches the index of the other, and reads it again only when
//! the cached value does not suffice.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::{self, Errno};
use rustix::net::xdp::XdpRingOffset;

use crate::map::Mapping;

/// `XDP_RING_NEED_WAKEUP`, linux/if_xdp.h.
const NEED_WAKEUP: u32 = 1;

/// An entry of a ring: integers only, so that any bytes are a valid value.
pub(super) trait Entry: Copy {}

/// Entry of the fill and completion rings: an offset into the UMEM.
impl Entry for u64 {}

/// `struct xdp_desc`, linux/if_xdp.h: entry of the receive and transmit rings.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) options: u32,
}

impl Entry for Descriptor {}

/// A mapped ring.
struct Ring<T> {
    /// Keeps the target of the pointers below mapped.
    _mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<T>,
    /// Number of entries, a power of two.
    size: u32,
    _entries: PhantomData<T>,
}

// SAFETY: the pointers lead into the mapping it owns. The index words are atomics, and only `&mut self` of the one
// `Producer` or `Consumer` that wraps it reaches the entries.
unsafe impl<T: Entry> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    /// Maps a ring of `size` entries of the socket `fd` at `page_offset`, with the layout that the kernel reports.
    fn map(fd: BorrowedFd<'_>, page_offset: u64, layout: &XdpRingOffset, size: u32) -> io::Result<Self> {
        let entries_len = size as usize * size_of::<T>();
        let at = |offset: u64| usize::try_from(offset).map_err(|_| Errno::OVERFLOW);
        let len = at(layout.desc)?.checked_add(entries_len).ok_or(Errno::OVERFLOW)?;
        let mapping = Mapping::ring(fd, page_offset, len)?;
        Ok(Self {
            producer: locate(&mapping, at(layout.producer)?, 1)?,
            consumer: locate(&mapping, at(layout.consumer)?, 1)?,
            flags: layout.flags.map(|flags| locate(&mapping, at(flags)?, 1)).transpose()?,
            entries: locate(&mapping, at(layout.desc)?, size as usize)?,
            size,
            _mapping: mapping,
            _entries: PhantomData,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: `locate` found an aligned word within the mapping, which lives as long as `self`.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    /// Whether the kernel needs a system call to continue.
    fn needs_wakeup(&self) -> bool {
        let Some(flags) = self.flags else { return true };
        // SAFETY: as for `producer`.
        unsafe { flags.as_ref() }.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    fn entry(&self, index: u32) -> *mut T {
        // SAFETY: the masked index is below `size`, and `locate` found room for `size` entries.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }.as_ptr()
    }
}

/// A pointer to `count` values of `T` at `offset`, checked to lie in the mapping and to be aligned.
fn locate<T>(mapping: &Mapping, offset: usize, count: usize) -> io::Result<NonNull<T>> {
    let end = count.checked_mul(size_of::<T>()).and_then(|len| offset.checked_add(len)).ok_or(Errno::OVERFLOW)?;
    if end > mapping.len() {
        return Err(Errno::OVERFLOW);
    }
    // SAFETY: `offset` is at most `end`, which lies within the mapping.
    let pointer = unsafe { mapping.base().add(offset) }.cast::<T>();
    if pointer.is_aligned() { Ok(pointer) } else { Err(Errno::INVAL) }
}

/// The user side of a ring that user space fills: fill and transmit.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Next entry to write. The kernel sees the entries before `published`.
    head: u32,
    published: u32,
    /// The kernel's index when last read.
    tail: u32,
}

impl<T: Entry> Producer<T> {
    pub(super) fn map(fd: BorrowedFd<'_>, page_offset: u64, layout: &XdpRingOffset, size: u32) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(fd, page_offset, layout, size)?, head: 0, published: 0, tail: 0 })
    }

    /// Free entries: exact when below `wanted`, otherwise a lower bound. At most the size of the ring, whatever the kernel
    /// writes to its index.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let room = |ring: &Self| ring.ring.size.saturating_sub(ring.head.wrapping_sub(ring.tail));
        if room(self) < wanted {
            // Acquire: the kernel has read the entries before this index, so they may be overwritten.
            self.tail = self.ring.consumer().load(Ordering::Acquire);
        }
        room(self)
    }

    /// Writes an entry. The kernel sees it after `publish`. `false` when the ring is full.
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: `entry` points at an aligned entry of the ring. The kernel has consumed it (`room`), and does not read it
        // before `publish`.
        unsafe { self.ring.entry(self.head).write(entry) };
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Makes the pushed entries visible to the kernel.
    pub(super) fn publish(&mut self) {
        if self.published != self.head {
            // Release: the entries are written before the index.
            self.ring.producer().store(self.head, Ordering::Release);
            self.published = self.head;
        }
    }

    /// Number of pushed entries that the kernel has not consumed, published or not.
    pub(super) fn pending(&self) -> u32 {
        self.head.wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }

    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// The user side of a ring that the kernel fills: receive and completion.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Next entry to read. The kernel may overwrite the entries before `released`.
    tail: u32,
    released: u32,
    /// The kernel's index when last read.
    head: u32,
}

impl<T: Entry> Consumer<T> {
    pub(super) fn map(fd: BorrowedFd<'_>, page_offset: u64, layout: &XdpRingOffset, size: u32) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(fd, page_offset, layout, size)?, tail: 0, released: 0, head: 0 })
    }

    /// Takes an entry. `None` when the ring is empty.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.head == self.tail {
            // Acquire: the entries before this index are written.
            self.head = self.ring.producer().load(Ordering::Acquire);
            if self.head == self.tail {
                return None;
            }
        }
        // SAFETY: `entry` points at an aligned entry of the ring. The kernel has written it, and does not overwrite it
        // before `release`. Any bytes are a valid value of `T`.
        let entry = unsafe { self.ring.entry(self.tail).read() };
        self.tail = self.tail.wrapping_add(1);
        Some(entry)
    }

    /// Returns the taken entries to the kernel.
    pub(super) fn release(&mut self) {
        if self.released != self.tail {
            // Release: the entries are read before the index changes.
            self.ring.consumer().store(self.tail, Ordering::Release);
            self.released = self.tail;
        }
    }

    /// Whether the ring is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.tail == self.ring.producer().load(Ordering::Acquire)
    }
}
