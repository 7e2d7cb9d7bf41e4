//! Executable memory: one reservation for the process, so that signal handlers recognise translated code by its address.
//!
//! Pages are written while they are not executable, then made executable and read-only. Freed pages are unmapped.
//! Allocation takes a lock; lookups by program counter do not.
#![allow(unsafe_code, reason = "maps memory and makes code in it executable")]

use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

use super::convention::EntryFunction;
use super::pc_map::{Location, PcMap};

/// Bytes reserved for all translations of a process. The reservation takes address space only; pages are mapped on use.
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
    /// Whether each grain is allocated.
    taken: Mutex<Box<[bool]>>,
    /// Map of the code in each grain; null in free grains.
    maps: Box<[AtomicPtr<PcMap>]>,
}

// SAFETY: memory behind the base address is written only by `CodeMemory::new`, in grains that it has just allocated
// under the lock.
unsafe impl Send for Arena {}
// SAFETY: as for Send; the lock and the atomics synchronise the other fields.
unsafe impl Sync for Arena {}

static ARENA_ONCE: OnceLock<Result<Arena, Errno>> = OnceLock::new();

fn arena() -> Result<&'static Arena, CodeMemoryError> {
    ARENA_ONCE.get_or_init(Arena::reserve).as_ref().map_err(|&errno| CodeMemoryError::System(errno))
}

impl Arena {
    fn reserve() -> Result<Self, Errno> {
        // SAFETY: a new mapping at an address that the kernel chooses replaces no existing one.
        let base = unsafe {
            mmap_anonymous(ptr::null_mut(), ARENA, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)?
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let maps = (0..GRAINS).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Ok(Self { base, taken: Mutex::new(vec![false; GRAINS].into_boxed_slice()), maps })
    }

    /// Allocates `count` adjacent grains and returns the index of the first.
    fn allocate(&self, count: usize) -> Option<usize> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let first = taken.windows(count).position(|grains| !grains.contains(&true))?;
        taken[first..first + count].fill(true);
        Some(first)
    }

    fn free(&self, first: usize, count: usize) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)[first..first + count].fill(false);
    }

    fn address(&self, grain: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(grain * GRAIN)
    }
}

/// Machine code in executable memory.
#[derive(Debug)]
pub(crate) struct CodeMemory {
    first: usize,
    grains: usize,
    /// Owner of the map that [`Arena::maps`] points to.
    map: Box<PcMap>,
}

impl CodeMemory {
    /// Makes `code` executable; `map` is the map of it.
    pub(crate) fn new(code: &[u8], mut map: PcMap) -> Result<Self, CodeMemoryError> {
        let arena = arena()?;
        let grains = code.len().div_ceil(GRAIN).max(1);
        let first = arena.allocate(grains).ok_or(CodeMemoryError::Full { asked: code.len() })?;
        map.set_base(arena.address(first).addr());
        // Dropping this frees the grains, also after an error below.
        let memory = Self { first, grains, map: Box::new(map) };
        let (at, len) = (arena.address(first), grains * GRAIN);
        // SAFETY: the grains were just allocated: no other code uses them, and no thread executes there.
        unsafe {
            mprotect(at.cast(), len, MprotectFlags::READ | MprotectFlags::WRITE).map_err(CodeMemoryError::System)?;
            ptr::copy_nonoverlapping(code.as_ptr(), at, code.len());
            mprotect(at.cast(), len, MprotectFlags::READ | MprotectFlags::EXEC).map_err(CodeMemoryError::System)?;
        }
        synchronise(at, code.len());
        let map = ptr::from_ref(&*memory.map).cast_mut();
        for grain in &arena.maps[first..first + grains] {
            grain.store(map, Ordering::Release);
        }
        Ok(memory)
    }

    /// Map of the code.
    pub(crate) const fn map(&self) -> &PcMap {
        &self.map
    }

    /// Function at `offset`. Callers must keep this memory.
    pub(crate) fn function(&self, offset: usize) -> EntryFunction {
        let Ok(arena) = arena() else { unreachable!("the memory was allocated in the arena") };
        let address = arena.address(self.first).wrapping_add(offset);
        // SAFETY: the pointer becomes a function pointer that is unsafe to call. The translator compiles functions of
        // this signature and calling convention. Some set the first result register only; the other then holds an
        // arbitrary value, which is valid for its integer type and is not used.
        unsafe { mem::transmute::<*mut u8, EntryFunction>(address) }
    }
}

impl Drop for CodeMemory {
    fn drop(&mut self) {
        let Ok(arena) = arena() else { return };
        for grain in &arena.maps[self.first..self.first + self.grains] {
            grain.store(ptr::null_mut(), Ordering::Release);
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the grains belong to this memory alone, and its owner drops it when no thread executes it any more. The
        // new mapping in their place frees the pages and keeps the address space reserved.
        let unmapped =
            unsafe { mmap_anonymous(arena.address(self.first).cast(), self.grains * GRAIN, ProtFlags::empty(), flags) };
        // Grains that could not be unmapped stay allocated: they would be executable while they are written.
        if unmapped.is_ok() {
            arena.free(self.first, self.grains);
        }
    }
}

/// Location of the translated code at host address `pc`; `None` outside of translations. A signal handler may call it on
/// the thread that executes the code at `pc`.
pub(crate) fn lookup(pc: usize) -> Option<Location> {
    let arena = ARENA_ONCE.get()?.as_ref().ok()?;
    let at = pc.checked_sub(arena.base.addr().get()).filter(|&at| at < ARENA)?;
    let grain = at / GRAIN;
    let map = arena.maps[grain].load(Ordering::Acquire);
    // SAFETY: a thread whose program counter is in these grains runs their translation, which it keeps alive meanwhile.
    // The map is published before the code can be entered, and never changes.
    let map = unsafe { map.as_ref()? };
    map.find(pc)
}

/// Makes written code visible to instruction fetch: x86 needs no action.
#[cfg(not(target_arch = "aarch64"))]
const fn synchronise(_: *const u8, _: usize) {}

/// Makes written code visible to instruction fetch (Arm ARM, B2.4.4: clean the data cache to the point of unification,
/// invalidate the instruction cache, synchronise).
#[cfg(target_arch = "aarch64")]
fn synchronise(at: *const u8, len: usize) {
    use std::arch::asm;
    /// Bytes per step: the smallest cache line that the architecture allows. Steps below the line size are harmless.
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
