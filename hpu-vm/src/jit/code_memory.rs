//! Executable memory: one reservation for the process, so that a signal handler knows translated code by its address.
//!
//! Pages are written while they are not executable, then made executable and not writable; given back, they are
//! unmapped. Who allocates takes a lock; who looks a program counter up does not.
#![allow(unsafe_code, reason = "maps memory and makes it executable")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

use super::sites::{Site, Sites};

/// Bytes reserved: what all translations of a process may take. Only address space until it is used.
const ARENA: usize = 256 << 20;
/// Granularity of allocations; a multiple of the page sizes of x86-64 and of most aarch64 kernels.
const GRAIN: usize = 16 << 10;
const GRAINS: usize = ARENA / GRAIN;

/// Reason why executable memory cannot be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeMemoryError {
    /// The reservation is used up.
    #[error("{asked} bytes of code: the {ARENA} bytes for translated code are used up")]
    Full {
        /// Number of bytes requested.
        asked: usize,
    },
    /// A system call failed.
    #[error("memory for translated code: {0}")]
    System(Errno),
}

struct Arena {
    base: NonNull<u8>,
    /// Which grains are taken.
    taken: Mutex<Box<[bool]>>,
    /// For each grain, what lies in it.
    owners: Box<[AtomicPtr<Sites>]>,
}

// SAFETY: the base address is never written through here but under the lock, and only where a grain was just taken.
unsafe impl Send for Arena {}
// SAFETY: as above; owners are atomic.
unsafe impl Sync for Arena {}

static ARENA_ONCE: OnceLock<Result<Arena, Errno>> = OnceLock::new();

fn arena() -> Result<&'static Arena, CodeMemoryError> {
    ARENA_ONCE.get_or_init(Arena::reserve).as_ref().map_err(|&errno| CodeMemoryError::System(errno))
}

impl Arena {
    fn reserve() -> Result<Self, Errno> {
        // SAFETY: a new mapping at an address the kernel chooses touches no existing one.
        let base = unsafe {
            mmap_anonymous(ptr::null_mut(), ARENA, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)?
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let owners = (0..GRAINS).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Ok(Self { base, taken: Mutex::new(vec![false; GRAINS].into_boxed_slice()), owners })
    }

    /// Takes `count` grains in a row; the index of the first.
    fn take(&self, count: usize) -> Option<usize> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let first = taken.windows(count).position(|grains| !grains.contains(&true))?;
        taken[first..first + count].fill(true);
        Some(first)
    }

    fn give_back(&self, first: usize, count: usize) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)[first..first + count].fill(false);
    }

    fn address(&self, grain: usize) -> *mut u8 {
        // SAFETY: grains are indices into the reservation.
        unsafe { self.base.as_ptr().add(grain * GRAIN) }
    }
}

/// Machine code in executable memory.
#[derive(Debug)]
pub(crate) struct CodeMemory {
    first: usize,
    grains: usize,
    /// Owned: what `owners` point to.
    sites: Box<Sites>,
}

impl CodeMemory {
    /// Makes `code` executable; `sites` tell what is where in it.
    pub(crate) fn new(code: &[u8], mut sites: Sites) -> Result<Self, CodeMemoryError> {
        let arena = arena()?;
        let grains = code.len().div_ceil(GRAIN).max(1);
        let first = arena.take(grains).ok_or(CodeMemoryError::Full { asked: code.len() })?;
        sites.place(arena.address(first).addr());
        // From here on dropping gives the grains back.
        let memory = Self { first, grains, sites: Box::new(sites) };
        let (at, len) = (arena.address(first), grains * GRAIN);
        // SAFETY: the grains were just taken, so nobody else uses them, and nothing executes there.
        unsafe {
            mprotect(at.cast(), len, MprotectFlags::READ | MprotectFlags::WRITE).map_err(CodeMemoryError::System)?;
            ptr::copy_nonoverlapping(code.as_ptr(), at, code.len());
            mprotect(at.cast(), len, MprotectFlags::READ | MprotectFlags::EXEC).map_err(CodeMemoryError::System)?;
        }
        synchronise(at, code.len());
        let owner = ptr::from_ref(&*memory.sites).cast_mut();
        for grain in &arena.owners[first..first + grains] {
            grain.store(owner, Ordering::Release);
        }
        Ok(memory)
    }

    /// Address of the byte at `offset`.
    pub(crate) fn address(&self, offset: usize) -> *const c_void {
        // A memory exists only when the arena does; it was checked then that the code fits.
        arena().map_or(ptr::null(), |arena| arena.address(self.first).wrapping_add(offset).cast_const().cast())
    }
}

impl Drop for CodeMemory {
    fn drop(&mut self) {
        let Ok(arena) = arena() else { return };
        for grain in &arena.owners[self.first..self.first + self.grains] {
            grain.store(ptr::null_mut(), Ordering::Release);
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the grains are this one's alone, and who drops it no longer executes it. A fresh mapping in their place
        // gives the pages back and keeps the address space reserved.
        let unmapped =
            unsafe { mmap_anonymous(arena.address(self.first).cast(), self.grains * GRAIN, ProtFlags::empty(), flags) };
        // Grains that could not be unmapped are not used again: they would be executable while they are written.
        if unmapped.is_ok() {
            arena.give_back(self.first, self.grains);
        }
    }
}

/// What translated code does at host address `pc`: `None` when no translation is there, or not its body. Safe to call in a
/// signal handler on the thread that is at `pc`.
pub(crate) fn lookup(pc: usize) -> Option<Site> {
    let arena = ARENA_ONCE.get()?.as_ref().ok()?;
    let at = pc.checked_sub(arena.base.addr().get()).filter(|&at| at < ARENA)?;
    let grain = at / GRAIN;
    let sites = arena.owners[grain].load(Ordering::Acquire);
    // SAFETY: a thread whose program counter is in these grains runs their translation, which it keeps alive meanwhile;
    // owners are set before the code can be entered and the sites never change.
    let sites = unsafe { sites.as_ref()? };
    sites.at(pc)
}

/// Makes written code visible to instruction fetch. x86 does so by itself.
#[cfg(not(target_arch = "aarch64"))]
const fn synchronise(_: *const u8, _: usize) {}

/// Makes written code visible to instruction fetch (Arm ARM, B2.4.4: clean the data cache to the point of unification,
/// invalidate the instruction cache, synchronise).
#[cfg(target_arch = "aarch64")]
fn synchronise(at: *const u8, len: usize) {
    use std::arch::asm;
    /// The smallest cache line the architecture allows to be reported: 16 bytes; smaller steps than the line do no harm.
    const LINE: usize = 16;
    let lines = || (0..len).step_by(LINE).map(|offset| at.wrapping_add(offset));
    // SAFETY: cache maintenance by address of mapped memory has no effect on its contents; user space may do it
    // (SCTLR_EL1.UCI is set by Linux).
    unsafe {
        lines().for_each(|line| asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)));
        asm!("dsb ish", options(nostack, preserves_flags));
        lines().for_each(|line| asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)));
        asm!("dsb ish", "isb", options(nostack, preserves_flags));
    }
}
