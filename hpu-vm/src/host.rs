//! Host memory that handlers copy packets to.
#![allow(unsafe_code, reason = "copies between memories that others use at the same time")]

use std::ffi::c_void;
use std::slice;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};

/// Bytes of an aligned word.
const WORD: usize = 8;
/// Length from which on the C library makes a copy, except its ends.
const SHORT: usize = 2 * WORD;

/// The C library's `memcpy`, by its address. A function that returns the result of such a call ends with a jump to it.
/// A call and a return take as long as a good part of a copy. With the name instead, the compiler knows the result and
/// makes a call.
pub(crate) type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

/// Host memory and its address in commands.
#[derive(Clone, Copy, Debug)]
pub struct HostBytes<'h> {
    address: u64,
    bytes: &'h [AtomicU8],
}

impl<'h> HostBytes<'h> {
    /// Makes host memory from bytes that others may access at the same time; commands use `address` for the first one.
    #[must_use]
    pub const fn new(address: u64, bytes: &'h [AtomicU8]) -> Self {
        Self { address, bytes }
    }

    /// Makes host memory from exclusively borrowed bytes; commands use `address` for the first one.
    #[must_use]
    pub const fn exclusive(address: u64, bytes: &'h mut [u8]) -> Self {
        let (start, len) = (bytes.as_mut_ptr().cast::<AtomicU8>(), bytes.len());
        // SAFETY: the bytes are borrowed exclusively, and an AtomicU8 is like a u8 in memory.
        Self { address, bytes: unsafe { slice::from_raw_parts(start, len) } }
    }

    /// Returns the address of the first byte.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns all bytes.
    #[must_use]
    pub const fn bytes(&self) -> &'h [AtomicU8] {
        self.bytes
    }

    /// Returns `len` bytes from `address` on, if all of them exist.
    #[must_use]
    #[inline(always)]
    pub fn part(&self, address: u64, len: u32) -> Option<&'h [AtomicU8]> {
        // An address before the first byte wraps to an offset far behind the last one.
        let offset = usize::try_from(address.wrapping_sub(self.address)).ok()?;
        self.bytes.get(offset..)?.get(..len as usize)
    }
}

/// Copies all of `to` from `from`. Aligned words of eight bytes, else of four, are written as a whole. A reader of one
/// of these bytes also sees all earlier copies. Returns an address in `to`.
///
/// # Safety
/// `to.len()` bytes from `from` are mapped readable and do not overlap `to`. Only atomics, translated code and copies
/// access them.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: &[AtomicU8], memcpy: Memcpy) -> *mut c_void {
    fence(Release);
    let (start, len) = (to.as_ptr().cast_mut().cast::<u8>(), to.len());
    if len < SHORT {
        // SAFETY: by the caller's contract.
        return unsafe { copy_short(from, start, len) };
    }
    let (mut first, mut words) = (0, len);
    if !(start.addr() | len).is_multiple_of(WORD) {
        // First the bytes before and behind the aligned words.
        first = start.addr().wrapping_neg() % WORD;
        words = (len - first) / WORD * WORD;
        // SAFETY: by the caller's contract.
        unsafe { copy_ends(from, to, first, first + words) };
    }
    // SAFETY: by the caller's contract, and within the copy.
    unsafe { copy_words(from.wrapping_add(first), start.wrapping_add(first), words, memcpy) }
}

/// Copies aligned words.
///
/// # Safety
/// As [`copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn copy_words(from: *const u8, to: *mut u8, len: usize, memcpy: Memcpy) -> *mut c_void {
    // SAFETY: by the caller's contract. The C library copies whatever others write meanwhile, and by no less than whole
    // words.
    unsafe { memcpy(to.cast(), from.cast(), len) }
}

/// Copies aligned words, one by one: the C library may store bytes where it has SVE.
///
/// # Safety
/// As [`copy`].
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn copy_words(from: *const u8, to: *mut u8, len: usize, _: Memcpy) -> *mut c_void {
    for at in (0..len).step_by(WORD) {
        // SAFETY: by the caller's contract; see `copy_parts`.
        unsafe {
            let word = u64::from_ne_bytes(load(from.wrapping_add(at)));
            AtomicU64::from_ptr(to.wrapping_add(at).cast()).store(word, Relaxed);
        }
    }
    to.cast()
}

/// Copies the bytes before `first` and from `behind` on, which surround the aligned words. The copy has at least
/// [`SHORT`] bytes.
///
/// # Safety
/// As [`copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn copy_ends(from: *const u8, to: &[AtomicU8], first: usize, behind: usize) {
    let start = to.as_ptr().cast_mut().cast::<u8>();
    let (last_word, last) = (behind - WORD, to.len() - WORD);
    // SAFETY: by the caller's contract; all are within the copy. These processors write the part of a store in one
    // cache line at once, and in the order of the stores. The first and the last word are therefore complete before the
    // stores of their neighbours write parts of them again.
    unsafe {
        std::arch::asm!(
            "mov {one}, [{from} + {first}]",
            "mov {other}, [{from} + {last_word}]",
            "mov [{to} + {first}], {one}",
            "mov [{to} + {last_word}], {other}",
            "mov {one}, [{from}]",
            "mov {other}, [{from} + {last}]",
            "mov [{to}], {one}",
            "mov [{to} + {last}], {other}",
            from = in(reg) from,
            to = in(reg) start,
            first = in(reg) first,
            last_word = in(reg) last_word,
            last = in(reg) last,
            one = out(reg) _,
            other = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies the bytes before `first` and from `behind` on, which surround the aligned words.
///
/// # Safety
/// As [`copy`].
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn copy_ends(from: *const u8, to: &[AtomicU8], first: usize, behind: usize) {
    // SAFETY: by the caller's contract; both are within the copy.
    unsafe {
        copy_parts(from, &to[..first]);
        copy_parts(from.wrapping_add(behind), &to[behind..]);
    }
}

/// Makes a short copy, as [`Memcpy`] would.
///
/// # Safety
/// As [`copy`]; `to` are [`AtomicU8`].
#[inline(never)]
unsafe extern "C" fn copy_short(from: *const u8, to: *mut u8, len: usize) -> *mut c_void {
    // SAFETY: by the caller's contract.
    unsafe { copy_parts(from, slice::from_raw_parts(to.cast::<AtomicU8>().cast_const(), len)) };
    to.cast()
}

/// Makes a short copy part by part.
///
/// # Safety
/// As [`copy`].
unsafe fn copy_parts(mut from: *const u8, mut to: &[AtomicU8]) {
    while !to.is_empty() {
        // The pointer of the whole rest, not of its first byte: the store has more bytes.
        let at = to.as_ptr().cast_mut().cast::<u8>();
        let size = match to.len() {
            8.. if at.addr().is_multiple_of(8) => 8,
            4.. if at.addr().is_multiple_of(4) => 4,
            _ => 1,
        };
        // SAFETY: by the caller's contract; the part is within the copy, and aligned. Atomics of different sizes may
        // overlap: LLVM defines their result (LangRef, "Memory Model for Concurrent Operations").
        unsafe {
            match size {
                8 => AtomicU64::from_ptr(at.cast()).store(u64::from_ne_bytes(load(from)), Relaxed),
                4 => AtomicU32::from_ptr(at.cast()).store(u32::from_ne_bytes(load(from)), Relaxed),
                _ => AtomicU8::from_ptr(at).store(u8::from_ne_bytes(load(from)), Relaxed),
            }
        }
        (from, to) = (from.wrapping_add(size), &to[size..]);
    }
}

/// Loads bytes that others may write meanwhile.
///
/// # Safety
/// The bytes are mapped readable.
#[inline]
unsafe fn load<const N: usize>(from: *const u8) -> [u8; N] {
    let mut bytes = [0; N];
    // SAFETY: by the caller's contract; the bytes loaded to are exclusive.
    unsafe { libc::memcpy((&raw mut bytes).cast(), from.cast(), N) };
    bytes
}

#[cfg(test)]
mod tests {
    use super::{HostBytes, SHORT, WORD, copy};
    use std::slice;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::thread;

    #[test]
    fn every_alignment_and_length_copies_exactly_its_bytes() {
        let bytes: Vec<u8> = (1..=200).collect();
        for start in 0..9 {
            for len in 0..3 * SHORT {
                let mut memory = [0_u64; 24].map(u64::to_ne_bytes).concat();
                let host = HostBytes::exclusive(0x1000, &mut memory);
                let part = host.part(0x1000 + start as u64, u32::try_from(len).expect("few")).expect("it is there");
                // SAFETY: two different memories of this thread.
                unsafe { copy(bytes.as_ptr(), part, libc::memcpy) };
                let found: Vec<u8> = host.bytes().iter().map(|byte| byte.load(Relaxed)).collect();
                assert_eq!(found[start..start + len], bytes[..len]);
                assert!(found[..start].iter().chain(&found[start + len..]).all(|byte| *byte == 0));
            }
        }
    }

    /// Copies equal bytes repeatedly while another thread reads the words. All bits of a word must be equal.
    #[test]
    #[cfg(not(miri))]
    fn words_are_written_as_a_whole() {
        let words = [const { AtomicU64::new(0) }; 16];
        // SAFETY: these bytes are as AtomicU8 are; accesses of several sizes are what is tested.
        let bytes = unsafe { slice::from_raw_parts(words.as_ptr().cast(), words.len() * WORD) };
        let host = HostBytes::new(0, bytes);
        for (start, len) in (0..WORD).flat_map(|start| [16, 23, 31, 64, 101].map(|len| (start, len))) {
            words.iter().for_each(|word| word.store(0, Relaxed));
            let part = host.part(start as u64, len).expect("it is there");
            let whole = start.div_ceil(WORD)..(start + len as usize) / WORD;
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    for round in 0..5000_u32 {
                        let same = [if round % 2 == 0 { !0 } else { 0_u8 }; 101];
                        // SAFETY: two different memories; the other thread reads by atomics.
                        unsafe { copy(same.as_ptr(), part, libc::memcpy) };
                    }
                    done.store(true, Relaxed);
                });
                while !done.load(Relaxed) {
                    for word in &words[whole.clone()] {
                        let word = word.load(Relaxed);
                        assert!([0, !0].contains(&word), "{start}, {len}: {word:x}");
                    }
                }
            });
        }
    }

    #[test]
    fn parts_are_there_as_a_whole_or_not_at_all() {
        let mut memory = [0; 100];
        let host = HostBytes::exclusive(1 << 40, &mut memory);
        let len = |address, len| host.part(address, len).map(<[_]>::len);
        for (address, bytes) in [(0, 100), (99, 1), (100, 0), (36, 64)] {
            assert_eq!(len((1 << 40) + address, bytes), Some(bytes as usize), "{address}");
        }
        for (address, bytes) in [(0, 101), (99, 2), (101, 0), (u64::MAX, 1), (u64::MAX, 2), (1 << 41, 4), (37, 64)] {
            assert_eq!(len((1_u64 << 40).wrapping_add(address), bytes), None, "{address}");
        }
        assert_eq!(host.part(0, 1).map(<[_]>::len), None);
    }
}
