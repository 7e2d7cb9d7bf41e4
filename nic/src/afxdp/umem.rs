//! The frames of one socket: a mapping cut into chunks, each with one owner at any time.
//!
//! A chunk is free, with the kernel, or out as a [`Frame`]. What the kernel says in its rings is checked against this
//! before it is believed, so no descriptor, however wrong, makes two owners of one chunk.

use std::mem::ManuallyDrop;
use std::ops::Range;

use rustix::io;

use super::config::HugePages;
use crate::error::NicError;
use crate::frame::{CHUNK, Chunk, Frame, HEADROOM, PoolId};
use crate::map::Mapping;

/// Size of a huge page by default on x86-64 and aarch64 with 4 KiB pages.
const HUGE_PAGE: usize = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// In `Umem::free`.
    Free,
    /// In the fill ring, the receive ring or the driver.
    KernelReceive,
    /// In the transmit ring, the driver or the completion ring.
    KernelTransmit,
    /// Out as a `Frame`.
    User,
}

/// The chunks of a socket.
pub(super) struct Umem {
    /// Unmapped only when no frame is out; see `drop`.
    mapping: ManuallyDrop<Mapping>,
    pool: PoolId,
    owners: Vec<Owner>,
    free: Vec<u32>,
    /// Chunks owned by `User`.
    out: u32,
    /// Chunks owned by `KernelReceive`.
    lent: u32,
    huge: bool,
}

impl Umem {
    /// `frames` chunks, all free.
    pub(super) fn new(frames: u32, huge_pages: HugePages) -> Result<Self, NicError> {
        let len = frames as usize * CHUNK;
        let action = match huge_pages {
            HugePages::On => "map packet buffers in huge pages (sysctl vm.nr_hugepages)",
            HugePages::Auto | HugePages::Off => "map packet buffers",
        };
        let (mapping, huge) = map(len, huge_pages).map_err(|errno| NicError::system(action, errno))?;
        Ok(Self {
            mapping: ManuallyDrop::new(mapping),
            pool: PoolId::new(),
            owners: vec![Owner::Free; frames as usize],
            // Taken from the end: low addresses first.
            free: (0..frames).rev().collect(),
            out: 0,
            lent: 0,
            huge,
        })
    }

    pub(super) fn pool(&self) -> PoolId {
        self.pool
    }

    /// Address of the first chunk, for the kernel.
    pub(super) fn address(&self) -> u64 {
        self.mapping.base().as_ptr() as u64
    }

    /// Bytes of all chunks; the mapping may be longer for the sake of huge pages.
    pub(super) fn len(&self) -> usize {
        self.owners.len() * CHUNK
    }

    /// Chunks lent for receiving that have not come back.
    pub(super) fn lent_for_receive(&self) -> u32 {
        self.lent
    }

    pub(super) fn huge(&self) -> bool {
        self.huge
    }

    /// How many chunks are free.
    pub(super) const fn free(&self) -> usize {
        self.free.len()
    }

    /// A free chunk as an empty frame.
    pub(super) fn allocate(&mut self) -> Option<Frame> {
        let index = self.free.pop()?;
        Some(self.hand_out(index, HEADROOM..HEADROOM))
    }

    /// A free chunk's address for the fill ring.
    pub(super) fn lend_for_receive(&mut self) -> Option<u64> {
        let index = self.free.pop()?;
        self.owners[index as usize] = Owner::KernelReceive;
        self.lent += 1;
        Some(index as u64 * CHUNK as u64)
    }

    /// The frame that a receive descriptor names. `None` when it names no bytes that were lent for receiving.
    pub(super) fn received(&mut self, address: u64, len: u32) -> Option<Frame> {
        let (index, start) = self.locate(address)?;
        let end = start + len as usize;
        if self.owners[index as usize] != Owner::KernelReceive || end > CHUNK {
            return None;
        }
        self.lent -= 1;
        Some(self.hand_out(index, start..end))
    }

    /// Takes a frame of this pool for the transmit ring: address and length.
    pub(super) fn lend_for_transmit(&mut self, frame: Frame) -> Option<(u64, u32)> {
        let (index, range) = self.take_back(frame)?;
        self.owners[index as usize] = Owner::KernelTransmit;
        Some((index as u64 * CHUNK as u64 + range.start as u64, range.len() as u32))
    }

    /// The chunk of a completion descriptor is free again. `false` when it was not being sent.
    pub(super) fn transmitted(&mut self, address: u64) -> bool {
        match self.locate(address) {
            Some((index, _)) if self.owners[index as usize] == Owner::KernelTransmit => {
                self.release(index);
                true
            }
            _ => false,
        }
    }

    /// A frame comes home unsent. `false` when it is of another pool; then it is dropped.
    pub(super) fn recycle(&mut self, frame: Frame) -> bool {
        let index = self.take_back(frame).map(|(index, _)| index);
        index.inspect(|&index| self.release(index)).is_some()
    }

    fn release(&mut self, index: u32) {
        self.owners[index as usize] = Owner::Free;
        // Within capacity: `free` began with all chunks in it, and each is in it once.
        self.free.push(index);
    }

    /// The chunk an address of the kernel lies in, and the offset in it.
    fn locate(&self, address: u64) -> Option<(u32, usize)> {
        let index = usize::try_from(address / CHUNK as u64).ok().filter(|&index| index < self.owners.len())?;
        Some((index as u32, (address % CHUNK as u64) as usize))
    }

    /// Makes a frame of the chunk `index`, which is free or comes from the kernel; the range lies within a chunk.
    fn hand_out(&mut self, index: u32, range: Range<usize>) -> Frame {
        debug_assert_ne!(self.owners[index as usize], Owner::User);
        self.owners[index as usize] = Owner::User;
        self.out += 1;
        // SAFETY: `index` is below the number of chunks, all of which lie within the mapping.
        let base = unsafe { self.mapping.base().add(index as usize * CHUNK) };
        // SAFETY: the bytes at `base` are mapped and initialised (anonymous pages begin as zeros). The chunk was free or
        // given back by the kernel, and is now `User`: it is neither handed out nor lent again before `take_back` got the
        // frame, and `drop` does not unmap while `out` counts it.
        let chunk = unsafe { Chunk::from_raw(base) };
        Frame::mapped(chunk, self.pool, range).expect("the range was checked by the caller")
    }

    /// Ends a frame of this pool: index of its chunk, range of its bytes.
    fn take_back(&mut self, frame: Frame) -> Option<(u32, Range<usize>)> {
        if !frame.is_of(self.pool) {
            return None;
        }
        let (base, range) = frame.into_chunk()?;
        let offset = (base.as_ptr() as usize) - (self.mapping.base().as_ptr() as usize);
        self.out -= 1;
        Some(((offset / CHUNK) as u32, range))
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        if self.out > 0 {
            // Whether these frames were dropped or are still held cannot be known, so their bytes stay.
            tracing::debug!(frames = self.out, "frames did not come back; their memory stays mapped");
            return;
        }
        // SAFETY: dropped once, here. No frame is out, so nothing refers into the mapping. The kernel has its own hold
        // on the pages until its socket is closed.
        unsafe { ManuallyDrop::drop(&mut self.mapping) };
    }
}

/// Pages for `len` bytes, and whether they are huge ones.
fn map(len: usize, huge_pages: HugePages) -> io::Result<(Mapping, bool)> {
    if huge_pages != HugePages::Off {
        match Mapping::anonymous(len.next_multiple_of(HUGE_PAGE), true) {
            Ok(mapping) => return Ok((mapping, true)),
            Err(errno) if huge_pages == HugePages::On => return Err(errno),
            Err(_) => {}
        }
    }
    Ok((Mapping::anonymous(len, false)?, false))
}

#[cfg(test)]
mod tests {
    use super::{HugePages, Umem};
    use crate::frame::{CAPACITY, CHUNK, Frame, HEADROOM, PoolId};

    const CHUNK_ADDRESS: u64 = CHUNK as u64;

    fn umem() -> Umem {
        Umem::new(4, HugePages::Off).expect("maps")
    }

    #[test]
    fn a_chunk_goes_round() {
        let mut umem = umem();
        let address = umem.lend_for_receive().expect("free");
        let mut frame = umem.received(address + HEADROOM as u64, 60).expect("lent");
        frame.copy_from_slice(&[7; 60]);
        frame.trim(4, 50).expect("within");
        assert_eq!(umem.lend_for_transmit(frame), Some((address + HEADROOM as u64 + 4, 50)));
        assert!(umem.transmitted(address));
        assert_eq!((umem.free.len(), umem.out, umem.lent_for_receive()), (4, 0, 0));
        let frame = umem.allocate().expect("free");
        assert_eq!((frame.len(), frame.capacity()), (0, CAPACITY));
        assert!(umem.recycle(frame));
    }

    #[test]
    fn false_descriptors_are_refused() {
        let mut umem = umem();
        assert!(umem.received(0, 60).is_none(), "a free chunk");
        let address = umem.lend_for_receive().expect("free");
        assert!(umem.received(4 * CHUNK_ADDRESS, 60).is_none(), "behind the last chunk");
        assert!(umem.received(u64::MAX, 60).is_none(), "far behind it");
        assert!(umem.received(address + CHUNK_ADDRESS - 10, 11).is_none(), "into the next chunk");
        assert!(umem.received(address, u32::MAX).is_none(), "longer than memory");
        assert!(!umem.transmitted(address), "not being sent");
        let frame = umem.received(address, 60).expect("good");
        assert!(umem.received(address, 60).is_none(), "the same chunk twice");
        assert!(umem.recycle(frame));
    }

    #[test]
    fn foreign_frames_are_refused() {
        let (mut ours, mut theirs) = (umem(), umem());
        let frame = theirs.allocate().expect("free");
        assert!(!ours.recycle(frame));
        assert!(ours.lend_for_transmit(Frame::heap(PoolId::new())).is_none());
        assert_eq!((ours.out, theirs.out), (0, 1));
    }

    #[test]
    fn a_frame_outlives_its_pool() {
        let mut umem = umem();
        let mut frame = umem.allocate().expect("free");
        drop(umem);
        frame.fill(&[5; CAPACITY]).expect("fits");
        assert!(frame.iter().all(|&byte| byte == 5));
    }
}
