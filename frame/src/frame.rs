//! A frame: the bytes of one packet, with one owner.
//!
//! A [`Frame`] cannot be copied, and only a pool makes frames. So only the holder of a frame can access its bytes, and returning it is a
//! move. A frame knows its pool, and a pool refuses the frames of others.
//!
//! The bytes of a frame are either a heap allocation or one chunk of a mapping that the pool shares with the kernel. Dropping a heap
//! frame frees it. Dropping a mapped frame loses its chunk until the pool is closed. The pool cannot tell a dropped frame from one that
//! is still held, so it then leaves its mapping in place forever. Dropping is therefore never unsound, only wasteful, and frames need no
//! reference count.
#![allow(unsafe_code, reason = "owns the bytes of frames by address")]

use std::fmt;
use std::hint;
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use spin_abi::map::PACKET_WINDOW;
use thiserror::Error;

use crate::prefetch::{CACHE_LINE, prefetch_at};

/// Size of a chunk, which holds the bytes of a frame. Without headroom this is the longest frame.
pub const CHUNK: usize = PACKET_WINDOW as usize;
/// Bytes before a frame in its chunk: `XDP_PACKET_HEADROOM` (linux/bpf.h), which every driver reserves.
pub const HEADROOM: usize = 256;
/// The longest frame behind that headroom.
pub const CAPACITY: usize = CHUNK - HEADROOM;
/// Bytes of a chunk that the owner of a frame may use beside the frame: a cache line. See [`Frame::spare`].
pub const SPARE: usize = 64;
/// The shortest frame that can be sent: an Ethernet header.
pub const MIN_SEND: usize = 14;

/// The new bounds do not fit the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("bytes {start}..{end} do not lie within the {available} of the frame")]
pub struct FrameRangeError {
    /// First byte, relative to the start of the frame.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// Bytes available.
    pub available: usize,
}

/// The identity of a pool of frames, unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolId(NonZeroU32);

impl PoolId {
    /// A new identity.
    ///
    /// # Panics
    /// When the process has made 2^32 - 1 identities: a mapping is safe only while identities are unique.
    #[allow(clippy::new_without_default, reason = "each call makes a different value")]
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        // Relaxed: uniqueness is the only requirement.
        let id = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1));
        Self(id.ok().and_then(NonZeroU32::new).expect("a process opens fewer than 2^32 frame pools"))
    }
}

/// [`CHUNK`] bytes of a mapping, owned like a `Box` whose memory returns to a pool instead of being freed.
///
/// Invariant: until the chunk is back in its pool, the bytes at `base..base + CHUNK` are mapped and initialised. Only
/// this value, or the frame made of it, reaches them.
pub struct Chunk {
    base: NonNull<u8>,
    pool: PoolId,
}

impl Chunk {
    /// Takes ownership of a chunk of a pool.
    ///
    /// # Safety
    /// * `base` points at [`CHUNK`] initialised bytes. They stay mapped, and nothing else reads or writes them, until
    ///   [`Frame::into_chunk`] has taken the chunk out of its frame. If the chunk or its frame is dropped, this holds
    ///   forever.
    /// * The chunk belongs to the pool `pool`: that pool expects to get its frame back.
    #[inline]
    #[must_use]
    pub const unsafe fn from_raw(base: NonNull<u8>, pool: PoolId) -> Self {
        Self { base, pool }
    }
}

/// Pool, kind and bounds of a frame in one word. Frames move all the time: a load that spans several narrower stores
/// waits until these have left the store buffer (store forwarding fails).
#[derive(Clone, Copy)]
struct Meta(u64);

impl Meta {
    /// The bytes are a heap allocation of this frame.
    const HEAP: u64 = 1 << 31;
    const BOUNDS: u64 = 0xffff | 0x7fff << 16;

    const fn new(pool: PoolId, heap: bool) -> Self {
        Self((pool.0.get() as u64) << 32 | if heap { Self::HEAP } else { 0 })
    }

    /// Replaces the bounds in the chunk. Both are at most [`CHUNK`], which takes 13 bits.
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

/// The bytes of one packet, from the Ethernet header on, without FCS.
///
/// Dereferences to the bytes. The module documentation says what dropping a frame means.
pub struct Frame {
    /// First of the [`CHUNK`] bytes that hold the frame: a heap allocation of `Frame::heap`, or a [`Chunk`].
    base: NonNull<u8>,
    /// `start + len <= CHUNK`.
    meta: Meta,
}

// SAFETY: only the frame reaches its chunk, like a `Box<[u8]>`, and bytes are `Send`.
unsafe impl Send for Frame {}
// SAFETY: a shared frame gives shared access to plain bytes only.
unsafe impl Sync for Frame {}

impl Frame {
    /// An empty frame on the heap.
    pub(crate) fn heap(pool: PoolId) -> Self {
        let bytes: Box<[u8]> = vec![0; CHUNK].into_boxed_slice();
        let base = NonNull::from(Box::leak(bytes)).cast();
        Self { base, meta: Meta::new(pool, true) }
    }

    /// A frame of the bytes `range` of a mapped chunk. `None` when the range does not lie within the chunk.
    #[inline]
    #[must_use]
    pub fn mapped(chunk: Chunk, range: Range<usize>) -> Option<Self> {
        let len = range.end.checked_sub(range.start)?;
        if range.end > CHUNK {
            return None;
        }
        Some(Self { base: chunk.base, meta: Meta::new(chunk.pool, false).with(range.start, len) })
    }

    /// The address of the chunk.
    #[inline]
    #[must_use]
    pub const fn chunk_address(&self) -> NonNull<u8> {
        self.base
    }

    /// The address of the chunk, and the bounds of the frame in it. `None` for a heap frame, which is dropped.
    #[inline]
    #[must_use]
    pub fn into_chunk(self) -> Option<(NonNull<u8>, Range<usize>)> {
        // This drops the frame. Dropping a mapped frame does nothing.
        (!self.meta.is_heap()).then(|| (self.base, self.range()))
    }

    /// Prefetches the first cache line of the frame.
    #[inline]
    pub fn prefetch(&self) {
        self.prefetch_line(0);
    }

    /// Prefetches the cache line at `offset`.
    #[inline]
    fn prefetch_line(&self, offset: usize) {
        prefetch_at(self.as_ptr().wrapping_add(offset));
    }

    /// Prefetches the first `max` bytes of the frame.
    #[inline(always)]
    pub fn prefetch_first(&self, max: usize) {
        let end = self.len().min(max);
        if end > 0 {
            self.prefetch_line(0);
        }
        if end > CACHE_LINE {
            self.prefetch_lines(end);
        }
    }

    /// Prefetches all lines up to `end`, except the first: in groups of four because there may be many, then the rest.
    #[inline(never)]
    fn prefetch_lines(&self, end: usize) {
        let mut offset = CACHE_LINE;
        while offset + 3 * CACHE_LINE < end {
            (0..4).for_each(|line| self.prefetch_line(offset + line * CACHE_LINE));
            offset += 4 * CACHE_LINE;
        }
        while offset < end {
            self.prefetch_line(offset);
            offset += CACHE_LINE;
        }
    }

    /// Empties the frame. It can then grow to the whole chunk.
    #[inline]
    pub fn reset(&mut self) {
        self.meta = self.meta.with(0, 0);
    }

    /// Sets the bounds to `len` bytes behind [`HEADROOM`], or to none when `len` is above [`CAPACITY`]. The bytes are what
    /// the chunk held before.
    #[inline(always)]
    pub fn reset_to(&mut self, len: usize) {
        self.meta = self.meta.with(HEADROOM, if len <= CAPACITY { len } else { 0 });
    }

    /// Whether all `frames` have the bounds that [`Frame::reset_to`] sets. `None` when a frame belongs to another pool.
    #[inline]
    #[must_use]
    pub fn all_reset(frames: &[Self], pool: PoolId, len: usize) -> Option<bool> {
        let expected = Meta::new(pool, false).with(HEADROOM, len);
        // Comparing all frames takes fewer instructions than leaving the loop early.
        let differences = frames.iter().fold(0, |differences, frame| differences | frame.meta.0 ^ expected.0);
        (differences >> 32 == 0).then_some(differences == 0)
    }

    /// Whether the frame belongs to a pool.
    #[inline]
    #[must_use]
    pub fn belongs_to(&self, pool: PoolId) -> bool {
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

    /// Shrinks the frame to its sub-range `start..start + len`, without moving bytes. The bytes before it are lost.
    ///
    /// # Errors
    /// When the range does not lie within the frame. The frame is unchanged.
    #[inline]
    pub fn trim(&mut self, start: usize, len: usize) -> Result<(), FrameRangeError> {
        let end = start.saturating_add(len);
        if end > self.len() {
            return Err(FrameRangeError { start, end, available: self.len() });
        }
        self.meta = self.meta.with(self.meta.start() + start, len);
        Ok(())
    }

    /// Bytes of the chunk outside the frame: before it, else behind it. `None` when neither side has room. They are the same bytes
    /// until the bounds of the frame change. Holders of the frame's bytes do not reach them.
    #[must_use]
    #[inline]
    pub fn spare(&self) -> Option<&[u8; SPARE]> {
        let at = self.spare_at()?;
        // SAFETY: the chunk's bytes `at..at + SPARE` are initialised, and only this frame reaches them. The lifetime is that of
        // the borrow of `self`.
        Some(unsafe { self.base.add(at).cast().as_ref() })
    }

    /// [`spare`](Frame::spare), to write.
    #[must_use]
    #[inline]
    pub fn spare_mut(&mut self) -> Option<&mut [u8; SPARE]> {
        let at = self.spare_at()?;
        // SAFETY: as in `spare`. `self` is borrowed mutably, so nothing else reads these bytes meanwhile.
        Some(unsafe { self.base.add(at).cast().as_mut() })
    }

    /// Where the spare bytes begin. `at + SPARE <= CHUNK`, and they do not overlap the frame.
    #[inline]
    fn spare_at(&self) -> Option<usize> {
        let Range { start, end } = self.range();
        if start >= SPARE { Some(start - SPARE) } else { (end + SPARE <= CHUNK).then_some(end) }
    }

    /// Sets the length. Bytes added by growing are what the chunk held before: overwrite them.
    ///
    /// # Errors
    /// When `len` is above [`Frame::capacity`]. The frame is unchanged.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> Result<(), FrameRangeError> {
        if len > self.capacity() {
            return Err(FrameRangeError { start: 0, end: len, available: self.capacity() });
        }
        self.meta = self.meta.with(self.meta.start(), len);
        Ok(())
    }

    /// Replaces the content of the frame by `bytes`.
    ///
    /// # Errors
    /// When `bytes` is longer than [`Frame::capacity`]. The frame is unchanged.
    #[inline]
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
            // SAFETY: `heap` leaked a box of these bytes, and only this frame has their address.
            drop(unsafe { Box::from_raw(bytes.as_ptr()) });
        }
    }
}

impl Deref for Frame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let (start, len) = (self.meta.start(), self.meta.len());
        // SAFETY: `start + len` is at most CHUNK, and only the frame reaches its initialised bytes. The lifetime is that of
        // the borrow of `self`.
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
        // SAFETY: as in `deref`. `self` is borrowed mutably, so nothing else reads these bytes meanwhile.
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
    use super::{CHUNK, Chunk, Frame, FrameRangeError, HEADROOM, PoolId, SPARE};
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
        frame.set_len(CHUNK - 7).expect("the rest of the chunk");
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
        // SAFETY: `memory` is CHUNK bytes, and is not touched until the chunk is back. The pool is this test.
        let chunk = unsafe { Chunk::from_raw(base, pool) };
        let mut frame = Frame::mapped(chunk, HEADROOM..HEADROOM + 4).expect("within the chunk");
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
            // SAFETY: dangling, but no byte is read: the frame is never made.
            let chunk = unsafe { Chunk::from_raw(NonNull::dangling(), PoolId::new()) };
            assert!(Frame::mapped(chunk, start..end).is_none());
        }
    }

    #[test]
    fn a_batch_is_checked_for_pool_and_bounds() {
        let mut memory = vec![0_u8; 2 * CHUNK];
        let base = NonNull::new(memory.as_mut_ptr()).expect("not null");
        let (pool, other) = (PoolId::new(), PoolId::new());
        let mut frames: Vec<_> = [0, CHUNK]
            .iter()
            .filter_map(|&offset| {
                // SAFETY: CHUNK bytes of `memory`, which is not touched before the frames are dropped.
                let chunk = unsafe { Chunk::from_raw(base.add(offset), pool) };
                Frame::mapped(chunk, HEADROOM..HEADROOM + 60)
            })
            .collect();
        assert_eq!(Frame::all_reset(&frames, pool, 60), Some(true));
        assert_eq!(Frame::all_reset(&frames, other, 60), None);
        frames[1].trim(1, 20).expect("within");
        assert_eq!(Frame::all_reset(&frames, pool, 60), Some(false));
        frames[1].reset_to(60);
        assert_eq!(Frame::all_reset(&frames, pool, 60), Some(true));
        frames[1].reset_to(CHUNK);
        assert_eq!((frames[1].len(), frames[1].capacity()), (0, CHUNK - HEADROOM));
    }

    #[test]
    fn spare_bytes_are_of_the_chunk_and_not_of_the_frame() {
        for (start, end) in [(HEADROOM, CHUNK), (SPARE, SPARE + 60), (SPARE - 1, CHUNK - SPARE), (0, 60), (0, 0)] {
            let mut memory = vec![0xaa_u8; CHUNK];
            let base = NonNull::new(memory.as_mut_ptr()).expect("not null");
            // SAFETY: `memory` is CHUNK bytes, and is not touched until the chunk is back. The pool is this test.
            let chunk = unsafe { Chunk::from_raw(base, PoolId::new()) };
            let mut frame = Frame::mapped(chunk, start..end).expect("within the chunk");
            frame.iter_mut().for_each(|byte| *byte = 0x55);
            frame.spare_mut().expect("room").fill(0x77);
            assert!(frame.iter().all(|&byte| byte == 0x55), "{start}..{end}");
            assert_eq!(frame.spare(), Some(&[0x77; SPARE]));
            assert!(frame.into_chunk().is_some());
            assert_eq!(memory.iter().filter(|&&byte| byte == 0x77).count(), SPARE, "{start}..{end}");
        }
        for (start, end) in [(SPARE - 1, CHUNK - SPARE + 1), (0, CHUNK)] {
            // SAFETY: dangling, but no byte is read: there is no room.
            let chunk = unsafe { Chunk::from_raw(NonNull::dangling(), PoolId::new()) };
            let mut frame = Frame::mapped(chunk, start..end).expect("within the chunk");
            assert!(frame.spare().is_none() && frame.spare_mut().is_none());
        }
    }

    #[test]
    fn pools_differ() {
        assert_ne!(PoolId::new(), PoolId::new());
    }
}
