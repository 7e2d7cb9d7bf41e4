//! A frame: bytes with one owner.
//!
//! A [`Frame`] cannot be copied or made from outside this crate, so whoever holds one is the only one who can touch its
//! bytes, and giving it back is a move. It knows the pool it comes from; a pool refuses frames of others.
//!
//! A frame's bytes are either its own heap allocation or one chunk of a mapping shared with the kernel. Dropping the
//! first frees it. Dropping the second only loses the chunk until its pool is closed, and the pool then leaves its
//! mapping in place for good: nobody can tell a dropped frame from one still held. So drop is never unsound, merely
//! wasteful, and no per-frame reference count is kept.

use std::fmt;
use std::hint;
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use spin_abi::map::PACKET_WINDOW;
use thiserror::Error;

use crate::prefetch::prefetch_at;

/// Bytes of a chunk, which a frame's are among: the most that a frame has where no kernel keeps space before it.
pub const CHUNK: usize = PACKET_WINDOW as usize;
/// Bytes before a frame in its chunk: `XDP_PACKET_HEADROOM` (linux/bpf.h), which every driver reserves.
pub const HEADROOM: usize = 256;
/// Most bytes of a frame behind that space.
pub const CAPACITY: usize = CHUNK - HEADROOM;
/// Bytes of a cache line, at the least.
const LINE: usize = 64;
/// Fewest bytes of a frame that can be sent: an Ethernet header.
pub const MIN_SEND: usize = 14;

/// A change of bounds that does not fit the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("bytes {start}..{end} do not lie within the {available} of the frame")]
pub struct FrameRangeError {
    /// First byte asked for, relative to the frame's start.
    pub start: usize,
    /// One past the last.
    pub end: usize,
    /// Bytes there are.
    pub available: usize,
}

/// The identity of a pool of frames, different for each pool of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolId(NonZeroU32);

impl PoolId {
    /// A fresh identity.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        // Unique is all that is asked of it, so Relaxed. The mapping of a pool is safe only while ids are unique:
        // after four thousand million pools, stop rather than begin again.
        let id = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1));
        Self(id.ok().and_then(NonZeroU32::new).expect("a process opens fewer than 2^32 frame pools"))
    }
}

/// [`CHUNK`] bytes of a mapping, owned like a `Box` whose memory is given back to a pool instead of freed.
///
/// Invariant: until it comes back to its pool, the bytes at `base..base + CHUNK` are mapped, initialised, and reached
/// through this value, or the frame it was put in, alone.
pub(crate) struct Chunk {
    base: NonNull<u8>,
}

impl Chunk {
    /// Takes over a chunk.
    ///
    /// # Safety
    /// `base` points at [`CHUNK`] initialised bytes that stay mapped, and that nothing else reads or writes, until
    /// [`Frame::into_chunk`] has taken the chunk back from the frame it was put in (forever, if it is dropped).
    pub(crate) unsafe fn from_raw(base: NonNull<u8>) -> Self {
        Self { base }
    }
}

/// What there is to know of a frame's bytes, in one word: frames move all the time, and a load that takes in several
/// narrower stores waits until these have left the processor's store buffer.
#[derive(Clone, Copy)]
struct Meta(u64);

impl Meta {
    /// The bytes are a heap allocation of the frame's own.
    const HEAP: u64 = 1 << 31;
    const BOUNDS: u64 = 0xffff | 0x7fff << 16;

    const fn new(pool: PoolId, heap: bool) -> Self {
        Self((pool.0.get() as u64) << 32 | if heap { Self::HEAP } else { 0 })
    }

    /// With other bounds in the chunk: both at most [`CHUNK`], which takes 13 bits.
    const fn with(self, start: usize, len: usize) -> Self {
        Self(self.0 & !Self::BOUNDS | (start as u64) << 16 | len as u64)
    }

    const fn len(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    const fn start(self) -> usize {
        (self.0 >> 16 & 0x7fff) as usize
    }

    const fn is_heap(self) -> bool {
        self.0 & Self::HEAP != 0
    }
}

/// One frame: its bytes, from the Ethernet header on, without FCS.
///
/// Dereferences to the bytes. See the module's description for what dropping one means.
pub struct Frame {
    /// First of the [`CHUNK`] bytes that the frame's are among: a heap allocation that `Frame::heap` made, or a [`Chunk`]'s.
    base: NonNull<u8>,
    /// `start + len <= CHUNK`.
    meta: Meta,
}

// SAFETY: a frame is the only way to its chunk, like a `Box<[u8]>`, and bytes are `Send`.
unsafe impl Send for Frame {}
// SAFETY: a shared frame gives shared access to plain bytes only.
unsafe impl Sync for Frame {}

impl Frame {
    /// An empty frame in memory of its own.
    pub(crate) fn heap(pool: PoolId) -> Self {
        let bytes: Box<[u8]> = vec![0; CHUNK].into_boxed_slice();
        let base = NonNull::from(Box::leak(bytes)).cast();
        Self { base, meta: Meta::new(pool, true) }
    }

    /// A frame of the bytes `range` of a mapped chunk; `None` when they do not lie within it.
    #[inline]
    pub(crate) fn mapped(chunk: Chunk, pool: PoolId, range: Range<usize>) -> Option<Self> {
        let len = range.end.checked_sub(range.start)?;
        if range.end > CHUNK {
            return None;
        }
        Some(Self { base: chunk.base, meta: Meta::new(pool, false).with(range.start, len) })
    }

    /// The address of its chunk, or of memory of its own.
    pub(crate) const fn chunk(&self) -> NonNull<u8> {
        self.base
    }

    /// The address of its chunk and where in it the bytes are. `None` for a heap frame, which is dropped.
    #[inline]
    pub(crate) fn into_chunk(self) -> Option<(NonNull<u8>, Range<usize>)> {
        // A mapped frame that is dropped, as this one is now, does nothing.
        (!self.meta.is_heap()).then(|| (self.base, self.range()))
    }

    /// Asks for the frame's first bytes to be brought near: a hint, for frames that are looked at a little later.
    #[inline]
    pub fn prefetch(&self) {
        self.prefetch_at(0);
    }

    /// The same of those at `offset`.
    #[inline]
    fn prefetch_at(&self, offset: usize) {
        prefetch_at(self.as_ptr().wrapping_add(offset));
    }

    /// The same of its first `most` bytes, which are copied a little later.
    #[inline(always)]
    pub fn prefetch_first(&self, most: usize) {
        let end = self.len().min(most);
        if end > 0 {
            self.prefetch_at(0);
        }
        if end > LINE {
            self.prefetch_lines(end);
        }
    }

    /// All lines up to `end`, but for the first: four at a time, for there may be many, and then those that are left.
    #[inline(never)]
    fn prefetch_lines(&self, end: usize) {
        let mut offset = LINE;
        while offset + 3 * LINE < end {
            (0..4).for_each(|line| self.prefetch_at(offset + line * LINE));
            offset += 4 * LINE;
        }
        while offset < end {
            self.prefetch_at(offset);
            offset += LINE;
        }
    }

    /// Empties it, with all of its chunk to fill.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.meta = self.meta.with(0, 0);
    }

    /// Makes it `len` bytes behind [`HEADROOM`], which are what its chunk held before; none if there is no room for so many.
    #[inline(always)]
    pub(crate) fn reset_to(&mut self, len: usize) {
        self.meta = self.meta.with(HEADROOM, if len <= CAPACITY { len } else { 0 });
    }

    /// If all of some belong to a pool: whether they are as [`Frame::reset_to`] makes them.
    #[inline]
    pub(crate) fn are_of(frames: &[Self], pool: PoolId, len: usize) -> Option<bool> {
        let alike = Meta::new(pool, false).with(HEADROOM, len);
        // All are looked at: that takes fewer instructions than to leave off early.
        let others = frames.iter().fold(0, |others, frame| others | frame.meta.0 ^ alike.0);
        (others >> 32 == 0).then_some(others == 0)
    }

    /// Whether it belongs to a pool.
    #[inline]
    pub(crate) fn is_of(&self, pool: PoolId) -> bool {
        self.meta.0 >> 32 == u64::from(pool.0.get())
    }

    #[inline]
    fn range(&self) -> Range<usize> {
        self.meta.start()..self.meta.start() + self.meta.len()
    }

    /// Bytes the frame can grow to from its present start: [`CHUNK`] or [`CAPACITY`] when newly allocated.
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> usize {
        CHUNK - self.meta.start()
    }

    /// Makes the frame its sub-range `start..start + len`, without moving bytes. What is before it is lost.
    ///
    /// # Errors
    /// When the range does not lie within the frame; the frame is as it was.
    #[inline]
    pub fn trim(&mut self, start: usize, len: usize) -> Result<(), FrameRangeError> {
        let end = start.saturating_add(len);
        if end > self.len() {
            return Err(FrameRangeError { start, end, available: self.len() });
        }
        self.meta = self.meta.with(self.meta.start() + start, len);
        Ok(())
    }

    /// Sets the length. Bytes that come in by growing are what the chunk held before: overwrite them.
    ///
    /// # Errors
    /// When `len` is above [`Frame::capacity`]; the frame is as it was.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> Result<(), FrameRangeError> {
        if len > self.capacity() {
            return Err(FrameRangeError { start: 0, end: len, available: self.capacity() });
        }
        self.meta = self.meta.with(self.meta.start(), len);
        Ok(())
    }

    /// Makes `bytes` the frame's whole content.
    ///
    /// # Errors
    /// When there are more than [`Frame::capacity`]; the frame is as it was.
    pub fn fill(&mut self, bytes: &[u8]) -> Result<(), FrameRangeError> {
        self.set_len(bytes.len())?;
        self.copy_from_slice(bytes);
        Ok(())
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        if self.meta.is_heap() {
            let bytes = NonNull::slice_from_raw_parts(self.base, CHUNK);
            // SAFETY: `heap` leaked a box of these bytes, which nobody else knows of.
            drop(unsafe { Box::from_raw(bytes.as_ptr()) });
        }
    }
}

impl Deref for Frame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let (start, len) = (self.meta.start(), self.meta.len());
        // SAFETY: `start + len` is at most CHUNK, and the frame is the only way to its initialised bytes; the lifetime is
        // that of the borrow of `self`.
        unsafe {
            hint::assert_unchecked(len <= CHUNK);
            slice::from_raw_parts(self.base.as_ptr().add(start), len)
        }
    }
}

impl DerefMut for Frame {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.meta.start(), self.meta.len());
        // SAFETY: as in `deref`; `self` is borrowed mutably, so nothing else reads these bytes meanwhile.
        unsafe {
            hint::assert_unchecked(len <= CHUNK);
            slice::from_raw_parts_mut(self.base.as_ptr().add(start), len)
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes of pool {})", self.len(), self.meta.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, Chunk, Frame, FrameRangeError, HEADROOM, PoolId};
    use std::ptr::NonNull;

    fn assert_send<T: Send>() {}

    #[test]
    fn fill_and_trim() {
        assert_send::<Frame>();
        let mut frame = Frame::heap(PoolId::new());
        assert_eq!((frame.len(), frame.capacity()), (0, CHUNK));
        frame.fill(b"0123456789").expect("fits");
        frame.trim(2, 5).expect("within");
        assert_eq!(&*frame, b"23456");
        assert_eq!(frame.capacity(), CHUNK - 2);
        assert_eq!(frame.trim(1, 5), Err(FrameRangeError { start: 1, end: 6, available: 5 }));
        assert_eq!(frame.trim(usize::MAX, 2).map_err(|error| error.end), Err(usize::MAX));
        frame.trim(5, 0).expect("an empty range at the end");
        assert!(frame.is_empty());
        frame.set_len(CHUNK - 7).expect("all that is left");
        assert!(frame.set_len(CHUNK - 6).is_err());
    }

    #[test]
    fn fill_refuses_more_than_the_capacity() {
        let mut frame = Frame::heap(PoolId::new());
        frame.fill(&[7; CHUNK]).expect("exactly full");
        assert!(frame.fill(&[8; CHUNK + 1]).is_err());
        assert!(frame.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn a_mapped_frame_reads_and_writes_its_chunk_alone() {
        let mut memory = vec![0xaa_u8; CHUNK];
        let base = NonNull::new(memory.as_mut_ptr()).expect("not null");
        let pool = PoolId::new();
        // SAFETY: `memory` is CHUNK bytes, and is not touched until the chunk is back.
        let chunk = unsafe { Chunk::from_raw(base) };
        let mut frame = Frame::mapped(chunk, pool, HEADROOM..HEADROOM + 4).expect("within the chunk");
        frame.copy_from_slice(b"abcd");
        frame.trim(1, 2).expect("within");
        let (back, range) = frame.into_chunk().expect("a mapped frame");
        assert_eq!((back, range), (base, HEADROOM + 1..HEADROOM + 3));
        assert_eq!(&memory[HEADROOM..HEADROOM + 4], b"abcd");
        assert!(memory[..HEADROOM].iter().chain(&memory[HEADROOM + 4..]).all(|&byte| byte == 0xaa));
    }

    #[test]
    fn a_mapped_frame_stays_within_its_chunk() {
        for (start, end) in [(0, CHUNK + 1), (CHUNK, CHUNK + 1), (5, 4)] {
            // SAFETY: dangling, but no byte of it is read: the frame is never made.
            let chunk = unsafe { Chunk::from_raw(NonNull::dangling()) };
            assert!(Frame::mapped(chunk, PoolId::new(), start..end).is_none());
        }
    }

    #[test]
    fn pools_differ() {
        assert_ne!(PoolId::new(), PoolId::new());
    }
}
