//! Shared memory: bytes in a memory file or an array map, so that several address spaces can map them.
#![allow(unsafe_code, reason = "maps memory")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use spin_abi::map::PAGE;

use super::budget::Mappings;
use super::copy::{load, store};
use super::error::{SpaceError, failed};

const PAGE_BYTES: usize = PAGE as usize;

/// Memory of complete pages, which [`Space`](super::Space)s map and [`Window`](super::Window)s access. A page of a new
/// region is allocated on its first write.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    file: OwnedFd,
    _mapping: Mappings,
}

// SAFETY: the mapping belongs to the region until it is dropped, on whatever thread.
unsafe impl Send for Region {}
// SAFETY: only the atomic accesses of `window` and `copy` read or write through `&Region`.
unsafe impl Sync for Region {}

impl Region {
    /// Makes `len` bytes of zeroes, rounded up to complete pages.
    ///
    /// # Errors
    /// [`SpaceError::Length`], [`SpaceError::Full`], [`SpaceError::System`].
    pub fn new(len: usize) -> Result<Arc<Self>, SpaceError> {
        let bytes = whole_pages(len)?;
        let mapping = Mappings::take(1)?;
        let file = rustix::fs::memfd_create("hpu-memory", MemfdFlags::CLOEXEC);
        let file = file.map_err(failed("create a memory file"))?;
        rustix::fs::ftruncate(&file, bytes as u64).map_err(failed("set a memory file's length"))?;
        Self::map(file, bytes, mapping)
    }

    /// Makes a region of `len` bytes, rounded up to complete pages, that are the start of `file`, for instance of an
    /// array map of BPF. They keep their content. The file must keep its length: an access to a page that is gone would
    /// end the process.
    ///
    /// # Errors
    /// As [`Region::new`]. [`SpaceError::System`] when the file cannot be mapped for reading and writing, for instance
    /// because an array map is shorter.
    pub fn adopt(file: OwnedFd, len: usize) -> Result<Arc<Self>, SpaceError> {
        let bytes = whole_pages(len)?;
        Self::map(file, bytes, Mappings::take(1)?)
    }

    fn map(file: OwnedFd, bytes: usize, mapping: Mappings) -> Result<Arc<Self>, SpaceError> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing. The file keeps its length, so no
        // access within `bytes` is outside of it.
        let start = unsafe {
            rustix::mm::mmap(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        };
        let start = start.map_err(failed("map shared memory"))?;
        let start = NonNull::new(start.cast()).ok_or_else(|| failed("map shared memory")(Errno::NOMEM))?;
        Ok(Arc::new(Self { start, len: bytes, file, _mapping: mapping }))
    }

    /// Makes the pages around `bytes` as they lie at guest address `base`. The first byte is at offset `base` modulo
    /// [`PAGE`]; the bytes before and after are zero.
    ///
    /// # Errors
    /// As [`Region::new`].
    pub fn around(base: u32, bytes: &[u8]) -> Result<Arc<Self>, SpaceError> {
        let lead = (base % PAGE) as usize;
        let region = Self::new(lead.saturating_add(bytes.len()))?;
        // SAFETY: the region has at least `lead + bytes.len()` bytes, mapped writable, accessed by atomics only.
        unsafe { store(region.start.as_ptr().add(lead), bytes) };
        Ok(region)
    }

    /// Returns the size in bytes, a multiple of [`PAGE`].
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Host address of `len` bytes at `offset`; `None` when they are not in the region.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let inside = offset <= self.len && len <= self.len - offset;
        inside.then(|| self.start.as_ptr().wrapping_add(offset))
    }

    /// Copies `from` to `offset`; `None` and no effect when it does not fit.
    #[must_use = "bytes that do not fit are not written"]
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) -> Option<()> {
        let at = self.at(offset, from.len())?;
        // SAFETY: `at` checked that the bytes are within the region, which is mapped writable, accessed by atomics
        // only.
        unsafe { store(at, from) };
        Some(())
    }

    /// Fills `to` from `offset`; `None` and no effect when the range is not in the region.
    #[must_use = "bytes outside of the region are not read"]
    #[inline]
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Option<()> {
        let at = self.at(offset, to.len())?;
        // SAFETY: as in `write`.
        unsafe { load(at, to) };
        Some(())
    }

    /// Zeroes `len` bytes at `offset`, as [`Region::write`] does.
    #[must_use = "bytes that do not fit are not cleared"]
    #[inline]
    pub fn clear(&self, offset: usize, len: usize) -> Option<()> {
        static ZEROES: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        self.at(offset, len)?;
        (0..len)
            .step_by(PAGE_BYTES)
            .try_for_each(|done| self.write(offset + done, &ZEROES[..PAGE_BYTES.min(len - done)]))
    }

    pub(super) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The number of bytes of the pages that `len` bytes take.
fn whole_pages(len: usize) -> Result<usize, SpaceError> {
    let bytes = len.checked_next_multiple_of(PAGE_BYTES).filter(|bytes| (1..=1 << 32).contains(bytes));
    bytes.ok_or(SpaceError::Length(len))
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this is the mapping of `map`, unmapped once; windows keep their region alive. An error is impossible
        // for a whole mapping, and nothing could be done about it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
