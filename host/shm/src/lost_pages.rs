//! Pages of attached memory that the kernel cannot provide any more.
//!
//! An access to such a page raises SIGBUS, which would end the process. One cause is a hole that an application punches into
//! huge pages while the machine has no others left. The handler replaces the whole mapping by zeroed private memory, and
//! the access is repeated there.
#![allow(unsafe_code, reason = "installs a signal handler, which replaces mappings")]

use core::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, OnceLock, PoisonError};

use libc::siginfo_t;

use crate::mapping::Mapping;

/// Maximum number of mappings that are watched at a time.
const MOST: usize = 4096;

/// Addresses of a watched mapping. An empty range watches nothing.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    lost: AtomicBool,
}

/// All slots. The signal handler reads them without a lock.
static SLOTS: [Slot; MOST] =
    [const { Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), lost: AtomicBool::new(false) } }; MOST];
/// Slots that are taken.
static TAKEN: Mutex<[bool; MOST]> = Mutex::new([false; MOST]);
/// What handled the signal before.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Reason why a mapping cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum LostPagesError {
    /// All slots are taken.
    #[error("{MOST} regions are attached to contexts: detach one first")]
    Full,
    /// The kernel refuses the signal handler.
    #[error("cannot handle SIGBUS: {0}")]
    Handler(io::Error),
}

/// Watches a mapping until it is dropped.
#[derive(Debug)]
pub struct LostPages {
    index: usize,
}

impl LostPages {
    /// Watches a mapping. Drop this before the mapping is unmapped.
    ///
    /// # Errors
    /// See [`LostPagesError`].
    pub fn watch(memory: &Mapping) -> Result<Self, LostPagesError> {
        install()?;
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let index = taken.iter().position(|&taken| !taken).ok_or(LostPagesError::Full)?;
        taken[index] = true;
        let slot = &SLOTS[index];
        let start = memory.as_ptr().addr();
        slot.lost.store(false, Relaxed);
        slot.start.store(start, Relaxed);
        slot.end.store(start + memory.bytes().len(), Release);
        Ok(Self { index })
    }

    /// Whether the mapping was replaced.
    #[inline]
    pub fn is_lost(&self) -> bool {
        SLOTS[self.index].lost.load(Relaxed)
    }
}

impl Drop for LostPages {
    fn drop(&mut self) {
        SLOTS[self.index].end.store(0, Relaxed);
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner)[self.index] = false;
    }
}

/// Installs the handler, once for the process.
fn install() -> Result<(), LostPagesError> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*installed {
        // Known before the handler is there, so that it always finds it.
        let _ = PREVIOUS.set(change(None).map_err(LostPagesError::Handler)?);
        // SAFETY: all zeroes is a `sigaction` with an empty mask.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = on_bus_error as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        change(Some(&action)).map_err(LostPagesError::Handler)?;
        *installed = true;
    }
    Ok(())
}

/// Returns the action of SIGBUS, and changes it.
fn change(action: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    // SAFETY: all zeroes is a `sigaction`; the kernel fills it. Only `install` and `pass_on` change the action: to the
    // handler below, which is async-signal-safe, or to what was there before.
    unsafe {
        let mut before: libc::sigaction = mem::zeroed();
        let action = action.map_or(ptr::null(), ptr::from_ref);
        match libc::sigaction(libc::SIGBUS, action, &raw mut before) {
            0 => Ok(before),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Neither allocates nor locks.
extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls this with information about the fault; `errno` is the thread's own.
    let (address, code, errno) = unsafe { ((*info).si_addr().addr(), (*info).si_code, *libc::__errno_location()) };
    // A signal that a process sent has no address, and no instruction that is repeated.
    let sent = code <= 0;
    if sent || !replace(address) {
        pass_on(signal, info, context, sent);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Replaces the mapping that has an address. Returns whether there is one.
fn replace(address: usize) -> bool {
    let range = |slot: &Slot| {
        let end = slot.end.load(Acquire);
        let start = slot.start.load(Relaxed);
        (start..end).contains(&address).then_some((start, end - start))
    };
    let Some((slot, (start, len))) = SLOTS.iter().find_map(|slot| Some((slot, range(slot)?))) else { return false };
    slot.lost.store(true, Relaxed);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the range is a mapping's that exists, since the access to it is under way and its slot is emptied before it is
    // unmapped. Its bytes may change at any time for all who use it, so zeroes are as good as others.
    let replaced = unsafe {
        libc::mmap(ptr::with_exposed_provenance_mut(start), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    replaced != libc::MAP_FAILED
}

/// Somebody else's signal: their handler, or the default action when the instruction is repeated, or the signal if it was sent.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void, sent: bool) {
    let action = PREVIOUS.get().map_or((libc::SIG_DFL, 0), |previous| (previous.sa_sigaction, previous.sa_flags));
    // SAFETY: what was installed as a handler is a function of the signature that its flags say. The default action depends
    // on no memory.
    unsafe {
        match action {
            (libc::SIG_IGN, _) if sent => {}
            (libc::SIG_DFL | libc::SIG_IGN, _) => {
                libc::signal(signal, libc::SIG_DFL);
                if sent {
                    libc::raise(signal);
                }
            }
            (handler, flags) if flags & libc::SA_SIGINFO != 0 => {
                mem::transmute::<usize, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(handler)(
                    signal, info, context,
                );
            }
            (handler, _) => mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LostPages;
    use crate::Region;
    use rustix::fs::MemfdFlags;
    use rustix::mm::{MapFlags, ProtFlags};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::thread;

    /// Has the pages of a mapping be those of an empty file: each access raises SIGBUS.
    fn lose(memory: &Region) {
        let empty = rustix::fs::memfd_create("empty", MemfdFlags::CLOEXEC).expect("a file");
        let (start, len) = (memory.as_ptr().cast(), memory.bytes().len());
        // SAFETY: replaces a mapping whose bytes may be anything.
        let mapped =
            unsafe { rustix::mm::mmap(start, len, ProtFlags::READ, MapFlags::SHARED | MapFlags::FIXED, &empty, 0) };
        assert_eq!(mapped, Ok(start));
    }

    #[test]
    fn lost_pages_read_as_zeroes_and_can_be_written() {
        let memory = Region::create(64 << 10).expect("memory");
        memory.write(0, &[7; 64 << 10]).expect("within it");
        let guard = LostPages::watch(&memory).expect("a slot");
        assert!(!guard.is_lost());
        lose(&memory);
        thread::scope(|scope| {
            for thread in 0..8 {
                let memory = &memory;
                scope.spawn(move || {
                    let mut bytes = [1; 100];
                    memory.read(thread * 8000, &mut bytes).expect("within it");
                    assert_eq!(bytes, [0; 100]);
                });
            }
        });
        assert!(guard.is_lost());
        memory.write(5000, &[9]).expect("within it");
        let mut byte = [0];
        memory.read(5000, &mut byte).expect("within it");
        assert_eq!(byte, [9]);
    }

    #[test]
    fn slots_are_used_again_and_watch_only_their_mapping() {
        for _ in 0..3 * super::MOST {
            let memory = Region::create(4096).expect("memory");
            assert!(!LostPages::watch(&memory).expect("a slot").is_lost());
        }
        let (one, other) = (Region::create(4096).expect("memory"), Region::create(4096).expect("memory"));
        let guards = [&one, &other].map(|memory| LostPages::watch(memory).expect("a slot"));
        lose(&one);
        one.read(0, &mut [0]).expect("within it");
        assert_eq!(guards.map(|guard| guard.is_lost()), [true, false]);
    }

    /// The name of the test below in the environment makes it the process that dies.
    const CHILD: &str = "SPIN_TEST_BUS_ERROR";

    #[test]
    fn other_bus_errors_end_the_process() {
        if std::env::var_os(CHILD).is_some() {
            let (watched, other) = (Region::create(4096).expect("memory"), Region::create(4096).expect("memory"));
            let _guard = LostPages::watch(&watched).expect("a slot");
            lose(&other);
            let _ = other.read(0, &mut [0]);
            return;
        }
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child.args(["--exact", "lost_pages::tests::other_bus_errors_end_the_process"]).env(CHILD, "1");
        let status = child.output().expect("it starts").status;
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
    }
}
