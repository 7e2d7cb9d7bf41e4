//! A sealed memory file, mapped.

use core::ffi::c_int;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::mapping::{Mapping, RegionError, SEALS, check_len, failed};

/// Shared memory: a mapping, and the descriptor that shares it with others.
#[derive(Debug)]
pub struct Region {
    memory: Mapping,
    fd: OwnedFd,
    /// Dropped when the memory is freed.
    _held: Option<Box<dyn Held>>,
}

impl Deref for Region {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.memory
    }
}

/// Something that a region holds while its memory exists.
pub trait Held: Send + Sync + core::fmt::Debug {}

impl<T: Send + Sync + core::fmt::Debug> Held for T {}

impl Region {
    /// Creates `len` zeroed bytes. All memory is allocated at once, so a shortage fails here. An application that may
    /// write may also punch holes, which no seal forbids. The next access allocates the freed memory again. An access
    /// during the hole punching sleeps until it is done (`shmem_falloc_wait`, mm/shmem.c); the application can make
    /// that long.
    ///
    /// # Errors
    /// When `len` is out of range, or a system call fails.
    pub fn create(len: u64) -> Result<Self, RegionError> {
        check_len(len)?;
        Self::allocate(memory_file().map_err(failed("create a memory file"))?, len)
    }

    fn allocate(fd: OwnedFd, len: u64) -> Result<Self, RegionError> {
        rustix::fs::ftruncate(&fd, len).map_err(failed("set a memory file's length"))?;
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len).map_err(failed("allocate shared memory"))?;
        rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(failed("seal a memory file"))?;
        Self::from_fd(fd, len)
    }

    /// Creates `len` zeroed bytes in huge pages of `page` bytes each.
    ///
    /// # Errors
    /// When `len` is out of range or not whole pages, the machine has no pages of that size or not enough of them (see
    /// /sys/kernel/mm/hugepages), or a system call fails.
    pub fn create_huge(len: u64, page: u64) -> Result<Self, RegionError> {
        check_len(len)?;
        if !page.is_power_of_two() || !len.is_multiple_of(page) {
            return Err(RegionError::Pages { len, page });
        }
        // The size is encoded by its logarithm (memfd_create(2)).
        let size = MemfdFlags::from_bits_retain(page.trailing_zeros() << libc::MAP_HUGE_SHIFT);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | size;
        let fd = rustix::fs::memfd_create("spin-region", flags).map_err(failed("create a file in huge pages"))?;
        Self::allocate(fd, len)
    }

    /// Creates a region that holds something until its memory is freed.
    ///
    /// # Errors
    /// The errors of [`Region::create`].
    pub fn create_with(len: u64, held: Box<dyn Held>) -> Result<Self, RegionError> {
        let mut region = Self::create(len)?;
        region._held = Some(held);
        Ok(region)
    }

    /// Maps the region behind `fd`, which has `len` bytes.
    ///
    /// # Errors
    /// When the file is not sealed as by [`Region::create`], has another length, or cannot be mapped.
    pub fn from_fd(fd: OwnedFd, len: u64) -> Result<Self, RegionError> {
        let memory = Mapping::new(fd.as_fd(), len)?;
        Ok(Self { memory, fd, _held: None })
    }

    /// Returns the descriptor to pass to others.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns a descriptor to pass to others. It is a separate open file, not a duplicate, so that [`Region::reclaim`]
    /// can detect when all holders are gone.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn share(&self) -> Result<OwnedFd, RegionError> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(failed("open shared memory anew"))
    }

    /// Releases the memory if no holder of a [shared](Region::share) descriptor or mapping is left. The region then
    /// reads as zeroes, and writes allocate memory again. Returns whether the memory was released. Never waits for
    /// others: a holder could otherwise block the release for any time.
    ///
    /// # Errors
    /// When a system call fails.
    pub fn reclaim(&self) -> Result<bool, RegionError> {
        let lease = self.share()?;
        // An open of the file by a kept path (`O_PATH`) blocks while the lease is held, and signals this process.
        // SIGURG is ignored by default; SIGIO would end the process.
        fcntl(&lease, F_SETSIG, libc::SIGURG).map_err(failed("choose a signal for shared memory"))?;
        match fcntl(&lease, libc::F_SETLEASE, libc::F_WRLCK) {
            Ok(()) => {}
            Err(Errno::AGAIN) => return Ok(false),
            Err(errno) => return Err(failed("lease shared memory")(errno)),
        }
        let flags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
        rustix::fs::fallocate(&lease, flags, 0, self.len()).map_err(failed("give shared memory back"))?;
        Ok(true)
    }
}

/// Mode of a memory file. The descriptors that spind passes on give access to it, paths under /proc do not.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Creates an empty memory file that nobody may execute, and that other users may not open by a path.
fn memory_file() -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let create = |flags| rustix::fs::memfd_create("spin-region", flags);
    // Kernels before Linux 6.3 do not know the flag, and the file could be made executable by its owner.
    let fd = match create(flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => create(flags),
        created => created,
    }?;
    rustix::fs::fchmod(&fd, MODE)?;
    Ok(fd)
}

/// Command of fcntl(2) from asm-generic/fcntl.h.
const F_SETSIG: c_int = 10;

/// Calls fcntl(2) with commands that rustix lacks.
fn fcntl(fd: &OwnedFd, command: c_int, argument: c_int) -> rustix::io::Result<()> {
    // SAFETY: all commands used here take a number.
    match unsafe { libc::fcntl(fd.as_raw_fd(), command, argument) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Mapping, Region, RegionError, SEALS};
    use crate::mapping::{MAX_LEN, OutOfBounds};
    use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::thread;

    fn region(len: u64) -> Region {
        Region::create(len).expect("a region")
    }

    #[test]
    fn memory_is_given_back_when_nobody_has_it() {
        let shared = region(8192);
        let fill = || shared.write(0, &[1; 8192]).expect("within it");
        let is_there = || {
            let mut byte = [0];
            shared.read(8191, &mut byte).expect("within it");
            byte == [1]
        };
        fill();
        let fd = shared.share().expect("a descriptor");
        assert!(!shared.reclaim().expect("told") && is_there(), "somebody has the descriptor");
        let copy = fd.try_clone().expect("another");
        let theirs = Region::from_fd(fd, 8192).expect("a region");
        drop(copy);
        assert!(!shared.reclaim().expect("told") && is_there());
        let mapped = Mapping::new(theirs.fd(), 8192).expect("a mapping");
        drop(theirs);
        assert!(!shared.reclaim().expect("told") && is_there(), "somebody has it mapped");
        drop(mapped);
        let path = format!("/proc/self/fd/{}", shared.fd.as_raw_fd());
        let reads = std::fs::File::open(&path).expect("it may be read");
        assert!(!shared.reclaim().expect("told") && is_there(), "somebody reads it");
        drop(reads);
        // A path alone must not count as a holder of the memory.
        let known = rustix::fs::open(path, OFlags::PATH, Mode::empty()).expect("a path");
        assert!(shared.reclaim().expect("told") && !is_there());
        fill();
        let anew = std::fs::File::open(format!("/proc/self/fd/{}", known.as_raw_fd())).expect("it is there still");
        assert!(!shared.reclaim().expect("told") && is_there());
        drop((known, anew));
        assert!(shared.reclaim().expect("told") && !is_there());
    }

    #[test]
    fn words_are_little_endian_and_within_the_region() {
        let shared = region(16);
        shared.store_u64(0, 0x0807_0605_0403_0201).expect("within it");
        shared.store_u32(8, 0x0c0b_0a09).expect("within it");
        let mut bytes = [0; 12];
        shared.read(0, &mut bytes).expect("within it");
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!((shared.load_u32(4), shared.load_u64(4)), (Ok(0x0807_0605), Ok(0x0c0b_0a09_0807_0605)));
        assert!(shared.load_u64(9).is_err() && shared.store_u64(9, 0).is_err());
        assert!(shared.load_u32(13).is_err() && shared.store_u32(13, 0).is_err());
    }

    /// Makes another mapping of the same memory.
    fn peer(region: &Region) -> Region {
        let fd = region.fd().try_clone_to_owned().expect("a descriptor");
        Region::from_fd(fd, region.len()).expect("a region")
    }

    fn word(region: &Region, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        region.read(offset, &mut bytes).expect("within bounds");
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn two_mappings_show_the_same_bytes() {
        let ours = region(10_000);
        let theirs = peer(&ours);
        assert_ne!(ours.address(), theirs.address());
        let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
        ours.write(4999, &bytes).expect("within bounds");
        let mut read = vec![0; 5000];
        theirs.read(4999, &mut read).expect("within bounds");
        assert_eq!(read, bytes);
        theirs.write(9999, &[7]).expect("the last byte");
        ours.read(9999, &mut read[..1]).expect("the last byte");
        assert_eq!(read[0], 7);
        ours.read(0, &mut read).expect("within bounds");
        assert!(read[..4999].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn lengths_outside_the_limits_are_refused() {
        for len in [0, MAX_LEN + 1, u64::MAX] {
            assert!(matches!(Region::create(len), Err(RegionError::Length(refused)) if refused == len));
        }
    }

    #[test]
    fn accesses_outside_are_refused_whole() {
        let region = region(100);
        let page_end =
            [(0, 101), (100, 1), (99, 2), (101, 0), (u64::MAX, 1), (u64::MAX, 0), (u64::MAX - 7, 8), (1 << 63, 8)];
        for (offset, len) in page_end {
            let expected = Err(OutOfBounds { offset, len, region: 100 });
            assert_eq!(region.write(offset, &vec![0xff; len]), expected);
            assert_eq!(region.read(offset, &mut vec![0; len]), expected);
        }
        assert_eq!(region.read(100, &mut []), Ok(()));
        let mut all = [1; 100];
        region.read(0, &mut all).expect("within bounds");
        assert_eq!(all, [0; 100]);
    }

    #[test]
    fn nobody_may_execute_a_region_or_open_it_by_its_path() {
        let region = region(4096);
        let shared = region.share().expect("a descriptor");
        let mode = || rustix::fs::fstat(&shared).expect("a file").st_mode & 0o7777;
        assert_eq!(mode(), 0o600);
        let seals = rustix::fs::fcntl_get_seals(&shared).expect("a memory file");
        let executable = rustix::fs::fchmod(&shared, Mode::from_bits_retain(0o700));
        // Kernels before Linux 6.3 do not have this seal.
        if seals.contains(SealFlags::EXEC) {
            assert_eq!((executable, mode()), (Err(rustix::io::Errno::PERM), 0o600));
        }
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
        let knows = rustix::fs::memfd_create("test", flags).is_ok();
        assert_eq!(seals.contains(SealFlags::EXEC), knows, "sealed where the kernel can");
    }

    #[test]
    fn seals_hold() {
        let region = region(4096);
        for len in [0, 4095, 8192] {
            assert_eq!(rustix::fs::ftruncate(region.fd(), len), Err(rustix::io::Errno::PERM), "{len}");
        }
        assert_eq!(rustix::fs::fcntl_add_seals(region.fd(), SealFlags::WRITE), Err(rustix::io::Errno::PERM));
    }

    fn memory_file(len: u64, seals: SealFlags) -> OwnedFd {
        let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
        rustix::fs::ftruncate(&fd, len).expect("a length");
        rustix::fs::fcntl_add_seals(&fd, seals).expect("seals");
        fd
    }

    #[test]
    fn files_without_all_seals_or_of_another_length_are_refused() {
        for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            let refused = Region::from_fd(memory_file(4096, SEALS - missing), 4096);
            assert!(matches!(refused, Err(RegionError::Seals { .. })), "{missing:?}: {refused:?}");
        }
        for announced in [4095, 4097, 1 << 20] {
            let refused = Region::from_fd(memory_file(4096, SEALS), announced);
            assert!(matches!(refused, Err(RegionError::Size { found: 4096, expected }) if expected == announced));
        }
        assert_eq!(Region::from_fd(memory_file(4096, SEALS), 4096).expect("a region").len(), 4096);
        let socket = std::os::unix::net::UnixStream::pair().expect("a socket").0;
        assert!(matches!(Region::from_fd(socket.into(), 4096), Err(RegionError::System { .. })));
    }

    #[test]
    fn a_word_is_never_seen_in_halves() {
        let ours = region(4096);
        let theirs = peer(&ours);
        thread::scope(|scope| {
            let writer = scope.spawn(move || {
                for value in 0..200_000_u32 {
                    let half = value.to_ne_bytes();
                    theirs.write(8, &[half, half].concat()).expect("within bounds");
                }
            });
            while !writer.is_finished() {
                let seen = word(&ours, 8);
                assert_eq!(seen >> 32, seen & u64::from(u32::MAX), "{seen:#x}");
            }
        });
        assert_eq!(word(&ours, 8), 199_999 << 32 | 199_999);
    }

    #[test]
    fn who_sees_the_flag_sees_the_data() {
        let ours = region(8192);
        let theirs = peer(&ours);
        thread::scope(|scope| {
            let writer = scope.spawn(move || {
                for value in 1..=50_000_u64 {
                    theirs.write(4096, &value.to_ne_bytes()).expect("within bounds");
                    theirs.write(0, &value.to_ne_bytes()).expect("within bounds");
                }
            });
            while !writer.is_finished() {
                let flag = word(&ours, 0);
                let data = word(&ours, 4096);
                assert!(data >= flag, "flag {flag}, data {data}");
            }
        });
        assert_eq!(word(&ours, 0), 50_000);
    }
}
