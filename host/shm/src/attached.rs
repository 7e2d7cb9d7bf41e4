//! Memory of an application that spind has mapped.

use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::SealFlags;

use crate::lost_pages::{LostPages, LostPagesError};
use crate::mapping::{Mapping, RegionError};
use crate::region::Held;

/// Bytes of a page: the least of all machines.
const PAGE: u64 = 4096;
/// Bytes of the blocks of stat(2).
const BLOCK: u64 = 512;

/// Memory of an application, mapped. The application may punch holes into its file. The kernel then allocates pages at the
/// next access. Where it cannot, the whole mapping is replaced by zeroes, and the memory is [lost](Self::is_lost).
#[derive(Debug)]
pub struct Attached {
    // Dropped before the mapping, whose addresses may then be another's.
    guard: LostPages,
    memory: Mapping,
    /// Dropped when the memory is unmapped.
    _held: Box<dyn Held>,
}

/// Reason why memory is not attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The file's seals allow changes of its length.
    #[error(
        "the memory's length can change: add the seals F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL (fcntl(2)) to a memfd made with \
         MFD_ALLOW_SEALING"
    )]
    Seals,
    /// The file's seals forbid to write.
    #[error("the memory is sealed against writing (F_SEAL_WRITE, F_SEAL_FUTURE_WRITE): handlers write to it")]
    ReadOnly,
    /// Pages are missing.
    #[error("only {found} of {len} bytes are allocated: allocate the others with fallocate(2) before attaching")]
    Holes {
        /// Bytes that have pages.
        found: u64,
        /// Length in bytes.
        len: u64,
    },
    /// No mapping.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// Lost pages cannot be replaced.
    #[error(transparent)]
    LostPages(#[from] LostPagesError),
}

impl Attached {
    /// Maps a memory file of `len` bytes, and holds something until it is unmapped. The descriptor is closed: it must be one whose close
    /// cannot block, that is, one of a memory file.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn new(fd: &OwnedFd, len: u64, held: Box<dyn Held>) -> Result<Self, AttachError> {
        if !len.is_multiple_of(PAGE) {
            return Err(RegionError::Pages { len, page: PAGE }.into());
        }
        if seals(fd)?.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(AttachError::ReadOnly);
        }
        let memory = Mapping::new(fd.as_fd(), len).map_err(|error| match error {
            RegionError::Seals { .. } => AttachError::Seals,
            other => other.into(),
        })?;
        let blocks = rustix::fs::fstat(fd).map_err(crate::mapping::failed("measure the memory"))?.st_blocks;
        let found = blocks.cast_unsigned() * BLOCK;
        if found < len {
            return Err(AttachError::Holes { found, len });
        }
        Ok(Self { guard: LostPages::watch(&memory)?, memory, _held: held })
    }

    /// Whether pages were lost. What is written then reaches nobody.
    #[must_use]
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }
}

fn seals(fd: &OwnedFd) -> Result<SealFlags, RegionError> {
    rustix::fs::fcntl_get_seals(fd).map_err(crate::mapping::failed("read the seals of the memory"))
}

impl Deref for Attached {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::{AttachError, Attached};
    use crate::mapping::{RegionError, SEALS};
    use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
    use std::os::fd::OwnedFd;

    fn file(len: u64, allocated: u64, seals: SealFlags) -> OwnedFd {
        let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
        rustix::fs::ftruncate(&fd, len).expect("a length");
        if allocated > 0 {
            rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, allocated).expect("memory");
        }
        rustix::fs::fcntl_add_seals(&fd, seals).expect("seals");
        fd
    }

    fn attach(fd: OwnedFd, len: u64) -> Result<Attached, AttachError> {
        Attached::new(&fd, len, Box::new(()))
    }

    #[test]
    fn a_sealed_file_with_all_its_pages_is_attached() {
        let fd = file(3 * 4096, 3 * 4096, SEALS);
        let attached = attach(fd.try_clone().expect("a descriptor"), 3 * 4096).expect("attached");
        attached.write(4096, b"handlers").expect("within it");
        let mut seen = [0; 8];
        rustix::io::pread(&fd, &mut seen, 4096).expect("read");
        assert_eq!((&seen, attached.len(), attached.is_lost()), (b"handlers", 3 * 4096, false));
        // A hole is filled by the next access.
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&fd, hole, 0, 3 * 4096).expect("a hole");
        attached.read(4096, &mut seen).expect("within it");
        assert_eq!((seen, attached.is_lost()), ([0; 8], false));
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            assert!(matches!(attach(file(4096, 4096, SEALS - missing), 4096), Err(AttachError::Seals)));
        }
        for sealed in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
            assert!(matches!(attach(file(4096, 4096, SEALS | sealed), 4096), Err(AttachError::ReadOnly)));
        }
        assert!(matches!(
            attach(file(5000, 5000, SEALS), 5000),
            Err(AttachError::Region(RegionError::Pages { len: 5000, page: 4096 }))
        ));
        let holes = attach(file(8192, 4096, SEALS), 8192).expect_err("a page is missing");
        assert!(matches!(holes, AttachError::Holes { found: 4096, len: 8192 }), "{holes}");
        assert!(matches!(attach(file(8192, 8192, SEALS), 4096), Err(AttachError::Region(_))), "another length");
        let folder = tempfile::tempfile().expect("a file");
        assert!(matches!(attach(folder.into(), 4096), Err(AttachError::Region(_) | AttachError::Seals)));
    }
}
