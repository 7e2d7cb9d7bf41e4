//! Memory of a sealed file, mapped.

use core::ptr::{NonNull, null_mut};
use core::slice;
use core::sync::atomic::AtomicU8;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::copy;

/// Maximum length of a mapping in bytes: 1 GiB, the host memory of PsPIN's trace driver.
pub const MAX_LEN: u64 = 1 << 30;

/// Seals that make a mapping safe: the file's length and its seals cannot change.
pub(crate) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Bytes that other processes may write at any time. They are seen through copies and atomics only.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the value owns the mapping until it is dropped, on any thread, and the mapping is not thread-local.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` accesses the memory only by the functions of `copy`, which are atomic accesses.
unsafe impl Sync for Mapping {}

/// Reason why a region cannot be created or mapped.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The length is zero or above [`MAX_LEN`].
    #[error("a shared region has 1 to {MAX_LEN} bytes, not {0}")]
    Length(u64),
    /// The file could shrink, and accesses would then kill the process.
    #[error(
        "the shared memory's file is not sealed against changes of its size (has {found:#x}, needs {SEALS:#x}, fcntl(2))"
    )]
    Seals {
        /// Seals of the file, as `fcntl` returns them.
        found: u32,
    },
    /// The file's length differs from the expected one.
    #[error("the shared memory's file has {found} bytes, {expected} were announced")]
    Size {
        /// Length of the file.
        found: u64,
        /// Expected length.
        expected: u64,
    },
    /// The length is not whole pages.
    #[error("{len} bytes are not whole pages of {page} bytes")]
    Pages {
        /// Length in bytes.
        len: u64,
        /// Bytes of a page.
        page: u64,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// Operation attempted.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

/// An access outside the region; nothing was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset:#x} are not within a region of {region} bytes")]
pub struct OutOfBounds {
    /// First byte of the access.
    pub offset: u64,
    /// Bytes of the access.
    pub len: usize,
    /// Bytes of the region.
    pub region: u64,
}

impl Mapping {
    /// Maps a file of `len` bytes.
    ///
    /// # Errors
    /// When the file lacks one of [`SEALS`], has another length, or cannot be mapped.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: u64) -> Result<Self, RegionError> {
        let size = check_len(len)?;
        let found = rustix::fs::fcntl_get_seals(fd).map_err(failed("read the seals of shared memory"))?;
        if !found.contains(SEALS) {
            return Err(RegionError::Seals { found: found.bits() });
        }
        // The seals are checked first, then the length: a sealed length is final.
        let found = rustix::fs::fstat(fd).map_err(failed("measure shared memory"))?.st_size.cast_unsigned();
        if found != len {
            return Err(RegionError::Size { found, expected: len });
        }
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing. The file cannot become shorter
        // than the mapping, so no access within `size` bytes can fail for lack of a file.
        let start = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(null_mut(), size, protection, MapFlags::SHARED, fd, 0)
        };
        let start = start.map_err(failed("map shared memory"))?;
        let start = NonNull::new(start.cast()).ok_or_else(|| failed("map shared memory")(Errno::NOMEM))?;
        Ok(Self { start, len: size })
    }

    /// Returns the length in bytes, 1 to [`MAX_LEN`].
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Returns the address of the first byte in this process; it is page-aligned.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.start.addr().get() as u64
    }

    /// Returns a pointer to the first byte for C programs, which are responsible for their own accesses. It is valid
    /// until the mapping is dropped.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns all bytes, for copies by atomics or by the C library as in [`copy`]. Such copies must also write aligned
    /// words atomically.
    #[must_use]
    pub fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: the bytes are within the mapping, which lives as long as `self`, and are accessed only as `copy`
        // describes.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), self.len) }
    }

    /// Fills `to` from `offset` on. Naturally aligned parts of eight or four bytes are read atomically. Writes
    /// published before them are visible afterwards.
    ///
    /// # Errors
    /// When any byte is outside the mapping.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.at(offset, to.len())?;
        // SAFETY: `at` checked that the bytes are within the mapping, which lives as long as `self`. All other accesses
        // are as `copy` describes.
        unsafe { copy::load(at, to) };
        Ok(())
    }

    /// Copies `from` to `offset` on. Naturally aligned parts of eight or four bytes are written atomically, the last
    /// one last: a reader that sees it sees all earlier writes.
    ///
    /// # Errors
    /// When any byte is outside the mapping.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), OutOfBounds> {
        let at = self.at(offset, from.len())?;
        // SAFETY: as in `read`; the mapping is writable.
        unsafe { copy::store(at, from) };
        Ok(())
    }

    /// Reads a word at `offset`, little-endian as handlers write it. At a multiple of four the read is atomic. Writes
    /// published before the word are visible afterwards.
    ///
    /// # Errors
    /// When any byte is outside the mapping.
    pub fn load_u32(&self, offset: u64) -> Result<u32, OutOfBounds> {
        let mut word = [0; 4];
        self.read(offset, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    /// Reads eight bytes as [`Mapping::load_u32`] reads four: at a multiple of eight the read is atomic.
    ///
    /// # Errors
    /// When any byte is outside the mapping.
    pub fn load_u64(&self, offset: u64) -> Result<u64, OutOfBounds> {
        let mut word = [0; 8];
        self.read(offset, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Writes a word at `offset`, little-endian. At a multiple of four the write is atomic. A reader that sees it sees all
    /// earlier writes.
    ///
    /// # Errors
    /// When any byte is outside the mapping.
    pub fn store_u32(&self, offset: u64, word: u32) -> Result<(), OutOfBounds> {
        self.write(offset, &word.to_le_bytes())
    }

    /// Writes eight bytes as [`Mapping::store_u32`] writes four: at a multiple of eight the write is atomic.
    ///
    /// # Errors
    /// When any byte is outside the mapping.
    pub fn store_u64(&self, offset: u64, word: u64) -> Result<(), OutOfBounds> {
        self.write(offset, &word.to_le_bytes())
    }

    /// Returns the address of `len` bytes at `offset`.
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, OutOfBounds> {
        let end = offset.checked_add(len as u64);
        match usize::try_from(offset) {
            Ok(start) if end.is_some_and(|end| end <= self.len()) => Ok(self.start.as_ptr().wrapping_add(start)),
            _ => Err(OutOfBounds { offset, len, region: self.len() }),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping of `new`, unmapped once; nothing borrowed from `self` outlives it. An error
        // is impossible for a whole mapping, and could not be handled.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

pub(crate) fn check_len(len: u64) -> Result<usize, RegionError> {
    usize::try_from(len).ok().filter(|_| (1..=MAX_LEN).contains(&len)).ok_or(RegionError::Length(len))
}

pub(crate) fn failed(what: &'static str) -> impl Fn(Errno) -> RegionError {
    move |errno| RegionError::System { what, source: errno.into() }
}
