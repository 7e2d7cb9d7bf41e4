//! Mapped memory.

use std::ptr::NonNull;

use rustix::io::{self, Errno};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::os::fd::BorrowedFd;

/// Readable and writable pages that are unmapped on drop.
///
/// It hands out its address and nothing else: who makes references into it must end them before it is dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its pages; the address is as good in any thread, and the type itself never touches the bytes.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Zeroed private pages, present at once so that the data path meets no page fault.
    pub(crate) fn anonymous(len: usize, huge: bool) -> io::Result<Self> {
        let (read_write, huge_pages) =
            (ProtFlags::READ | ProtFlags::WRITE, if huge { MapFlags::HUGETLB } else { MapFlags::empty() });
        // SAFETY: without a fixed address the kernel picks free space, so no existing memory is touched.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, read_write, MapFlags::PRIVATE | huge_pages) }?;
        let mapping = Self::owning(base, len)?;
        // SAFETY: both are about the new mapping's pages, which nobody uses yet.
        unsafe {
            // Where the system reserves no huge pages it may still put some together; that it does not is no failure.
            let _ = madvise(base, len, Advice::LinuxHugepage);
            madvise(base, len, Advice::LinuxPopulateWrite)?;
        }
        Ok(mapping)
    }

    /// A ring of an AF_XDP socket, shared with the kernel.
    pub(crate) fn ring(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as above; the descriptor is open for the length of the borrow, and the mapping outlives it by itself.
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
        // SAFETY: these pages were mapped by the constructor and are unmapped only here; the owner has ended all
        // references into them, as the type asks. A failure leaves them mapped, which harms nobody.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
