//! Memory mappings.

use std::ptr::NonNull;

use rustix::io::{self, Errno};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::os::fd::BorrowedFd;

/// Readable and writable pages that are unmapped on drop.
///
/// The type gives only its address. References into the pages must end before it is dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its pages. The address is valid in any thread, and the type itself never touches the bytes.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Zeroed private pages, populated at once so that the data path takes no page fault.
    pub(crate) fn anonymous(len: usize, huge: bool) -> io::Result<Self> {
        let (read_write, huge_pages) =
            (ProtFlags::READ | ProtFlags::WRITE, if huge { MapFlags::HUGETLB } else { MapFlags::empty() });
        // SAFETY: without a fixed address the kernel chooses free space, so no existing memory changes.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, read_write, MapFlags::PRIVATE | huge_pages) }?;
        let mapping = Self::owning(base, len)?;
        // SAFETY: both concern the pages of the new mapping, which nothing uses yet.
        unsafe {
            // Without reserved huge pages the kernel may still use transparent ones. A refusal is no failure.
            let _ = madvise(base, len, Advice::LinuxHugepage);
            madvise(base, len, Advice::LinuxPopulateWrite)?;
        }
        Ok(mapping)
    }

    /// A ring of an AF_XDP socket, shared with the kernel.
    pub(crate) fn ring(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `anonymous`. The descriptor is open during the call, and the mapping does not need it afterwards.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) }?;
        Self::owning(base, len)
    }

    fn owning(base: *mut std::ffi::c_void, len: usize) -> io::Result<Self> {
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, len })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the constructor mapped these pages, and only this unmaps them. The owner has ended all references into
        // them, as the type requires. A failure leaves them mapped, which is harmless.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
