//! The frames of one socket: a mapping cut into chunks, each with one owner at any time.
//!
//! A chunk is free, posted to the kernel, or outstanding as a [`Frame`]. Descriptors from the kernel are checked against
//! the owner, so a wrong descriptor never makes two owners of one chunk.

use std::mem::ManuallyDrop;
use std::ops::Range;

use rustix::io;
use spin_frame::{CHUNK, Chunk, Frame, HEADROOM, PoolId};

use super::config::HugePages;
use crate::error::NicError;
use crate::map::Mapping;

/// The default size of a huge page on x86-64, and on aarch64 with 4 KiB pages.
const HUGE_PAGE: usize = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// In `Umem::free`.
    Free,
    /// In the fill ring, the receive ring or the driver.
    KernelReceive,
    /// In the transmit ring, the driver or the completion ring.
    KernelTransmit,
    /// Outstanding as a `Frame`.
    User,
}

/// The chunks of a socket.
pub(super) struct Umem {
    /// Unmapped only when no frame is outstanding; see `drop`.
    mapping: ManuallyDrop<Mapping>,
    pool: PoolId,
    owners: Vec<Owner>,
    free: Vec<u32>,
    /// Chunks owned by `User`.
    outstanding: u32,
    /// Chunks owned by `KernelReceive`.
    rx_posted: u32,
    huge: bool,
}

impl Umem {
    /// A UMEM of `frames` chunks, all free.
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
            // `pop` takes the low addresses first.
            free: (0..frames).rev().collect(),
            outstanding: 0,
            rx_posted: 0,
            huge,
        })
    }

    pub(super) fn pool(&self) -> PoolId {
        self.pool
    }

    /// The address of the first chunk, for the kernel.
    pub(super) fn address(&self) -> u64 {
        self.mapping.base().as_ptr() as u64
    }

    /// Bytes of all chunks. With huge pages the mapping may be longer.
    pub(super) fn len(&self) -> usize {
        self.owners.len() * CHUNK
    }

    /// Number of chunks posted for receiving that no descriptor has returned.
    pub(super) fn rx_posted(&self) -> u32 {
        self.rx_posted
    }

    pub(super) fn huge(&self) -> bool {
        self.huge
    }

    /// Number of free chunks.
    pub(super) const fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free chunk as an empty frame.
    pub(super) fn allocate(&mut self) -> Option<Frame> {
        let index = self.free.pop()?;
        Some(self.make_frame(index, HEADROOM..HEADROOM))
    }

    /// Posts a free chunk for receiving. Returns its address for the fill ring.
    pub(super) fn post_rx(&mut self) -> Option<u64> {
        let index = self.free.pop()?;
        self.owners[index as usize] = Owner::KernelReceive;
        self.rx_posted += 1;
        Some(index as u64 * CHUNK as u64)
    }

    /// The frame of a receive descriptor. `None` when the descriptor names bytes that are not posted for receiving.
    pub(super) fn received(&mut self, address: u64, len: u32) -> Option<Frame> {
        let (index, start) = self.locate(address)?;
        let end = start + len as usize;
        if self.owners[index as usize] != Owner::KernelReceive || end > CHUNK {
            return None;
        }
        self.rx_posted -= 1;
        Some(self.make_frame(index, start..end))
    }

    /// Posts a frame of this pool for transmission. Returns address and length for the transmit ring.
    pub(super) fn post_tx(&mut self, frame: Frame) -> Option<(u64, u32)> {
        let (index, range) = self.reclaim(frame)?;
        self.owners[index as usize] = Owner::KernelTransmit;
        Some((index as u64 * CHUNK as u64 + range.start as u64, range.len() as u32))
    }

    /// Frees the chunk of a completion descriptor. `false` when the chunk was not posted for transmission.
    pub(super) fn complete_tx(&mut self, address: u64) -> bool {
        match self.locate(address) {
            Some((index, _)) if self.owners[index as usize] == Owner::KernelTransmit => {
                self.release(index);
                true
            }
            _ => false,
        }
    }

    /// Frees the chunk of an unsent frame. Drops a frame of another pool, and returns `false`.
    pub(super) fn recycle(&mut self, frame: Frame) -> bool {
        let index = self.reclaim(frame).map(|(index, _)| index);
        index.inspect(|&index| self.release(index)).is_some()
    }

    fn release(&mut self, index: u32) {
        self.owners[index as usize] = Owner::Free;
        // Does not allocate: `free` began with all chunks, and holds each at most once.
        self.free.push(index);
    }

    /// The chunk of an address from the kernel, and the offset in it.
    fn locate(&self, address: u64) -> Option<(u32, usize)> {
        let index = usize::try_from(address / CHUNK as u64).ok().filter(|&index| index < self.owners.len())?;
        Some((index as u32, (address % CHUNK as u64) as usize))
    }

    /// Makes a frame of the chunk `index`, which is free or was returned by the kernel. The range lies within a chunk.
    fn make_frame(&mut self, index: u32, range: Range<usize>) -> Frame {
        debug_assert_ne!(self.owners[index as usize], Owner::User);
        self.owners[index as usize] = Owner::User;
        self.outstanding += 1;
        // SAFETY: `index` is below the number of chunks, all of which lie within the mapping.
        let base = unsafe { self.mapping.base().add(index as usize * CHUNK) };
        // SAFETY: the bytes at `base` are mapped and initialised (anonymous pages begin as zeros), and belong to this pool. The
        // chunk was free or returned by the kernel, and is now `User`: until `reclaim` gets the frame, the chunk is neither
        // made a frame nor posted again, and `drop` does not unmap because `outstanding` counts it.
        let chunk = unsafe { Chunk::from_raw(base, self.pool) };
        Frame::mapped(chunk, range).expect("the range was checked by the caller")
    }

    /// Takes the chunk out of a frame of this pool: its index, and the range of the bytes in it.
    fn reclaim(&mut self, frame: Frame) -> Option<(u32, Range<usize>)> {
        if !frame.belongs_to(self.pool) {
            return None;
        }
        let (base, range) = frame.into_chunk()?;
        let offset = (base.as_ptr() as usize) - (self.mapping.base().as_ptr() as usize);
        self.outstanding -= 1;
        Some(((offset / CHUNK) as u32, range))
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        if self.outstanding > 0 {
            // These frames may be dropped or still held, so their bytes must stay.
            tracing::debug!(frames = self.outstanding, "frames did not come back; their memory stays mapped");
            return;
        }
        // SAFETY: dropped once, here. No frame is outstanding, so nothing refers into the mapping. The kernel holds its own
        // reference to the pages until the socket is closed.
        unsafe { ManuallyDrop::drop(&mut self.mapping) };
    }
}

/// Maps `len` bytes. The flag says whether the pages are huge.
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
    use spin_frame::{CAPACITY, CHUNK, HEADROOM, HeapPool};

    const CHUNK_ADDRESS: u64 = CHUNK as u64;

    fn umem() -> Umem {
        Umem::new(4, HugePages::Off).expect("maps")
    }

    #[test]
    fn a_chunk_is_received_sent_and_reused() {
        let mut umem = umem();
        let address = umem.post_rx().expect("free");
        let mut frame = umem.received(address + HEADROOM as u64, 60).expect("posted");
        frame.copy_from_slice(&[7; 60]);
        frame.trim(4, 50).expect("within");
        assert_eq!(umem.post_tx(frame), Some((address + HEADROOM as u64 + 4, 50)));
        assert!(umem.complete_tx(address));
        assert_eq!((umem.free.len(), umem.outstanding, umem.rx_posted()), (4, 0, 0));
        let frame = umem.allocate().expect("free");
        assert_eq!((frame.len(), frame.capacity()), (0, CAPACITY));
        assert!(umem.recycle(frame));
    }

    #[test]
    fn false_descriptors_are_refused() {
        let mut umem = umem();
        assert!(umem.received(0, 60).is_none(), "a free chunk");
        let address = umem.post_rx().expect("free");
        assert!(umem.received(4 * CHUNK_ADDRESS, 60).is_none(), "behind the last chunk");
        assert!(umem.received(u64::MAX, 60).is_none(), "far behind it");
        assert!(umem.received(address + CHUNK_ADDRESS - 10, 11).is_none(), "into the next chunk");
        assert!(umem.received(address, u32::MAX).is_none(), "longer than memory");
        assert!(!umem.complete_tx(address), "not posted for transmission");
        let frame = umem.received(address, 60).expect("good");
        assert!(umem.received(address, 60).is_none(), "the same chunk twice");
        assert!(umem.recycle(frame));
    }

    #[test]
    fn foreign_frames_are_refused() {
        let (mut ours, mut theirs) = (umem(), umem());
        let frame = theirs.allocate().expect("free");
        assert!(!ours.recycle(frame));
        assert!(ours.post_tx(HeapPool::new(1).allocate().expect("free")).is_none());
        assert_eq!((ours.outstanding, theirs.outstanding), (0, 1));
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
