//! Copies from and to memory that other threads access meanwhile.
#![allow(unsafe_code, reason = "accesses shared memory by pointer")]

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Whether a copy is one aligned access. The C library makes all other copies, whatever others write meanwhile, as the
/// handlers' own code and a DMA engine would. The crate vm-memory copies guest memory in this way too.
#[inline(always)]
const fn is_whole(address: usize, len: usize) -> bool {
    // Most copies are longer, so the length is tested first.
    len <= 8 && len.is_power_of_two() && address & (len - 1) == 0
}

/// Lengths of copies that may be little more than a packet's headers, which are read next. These copies are made of
/// pieces of 16 bytes. The C library uses the widest stores, and some processors are slow to load from the upper part
/// of such a store just after it.
const HEADERS: std::ops::RangeInclusive<usize> = 46..=64;

/// Copies headers. A load that spans several stores just made is slow too. The pieces therefore begin and end where the
/// address fields of IPv4 do behind an Ethernet header.
///
/// # Safety
/// `len` bytes, a length in [`HEADERS`], are mapped readable and writable, and do not overlap.
#[inline(always)]
unsafe fn copy_headers(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the caller's contract; 16 bytes from each of these offsets are within the shortest length, or this
    // one.
    unsafe {
        copy_16::<0>(from.wrapping_add(len - 16), to.wrapping_add(len - 16));
        if len > 62 {
            copy_16::<46>(from, to);
        }
        copy_16::<30>(from, to);
        copy_16::<14>(from, to);
        copy_16::<0>(from, to);
    }
}

/// Copies 16 bytes from `AT` on.
///
/// # Safety
/// The bytes are mapped readable and writable, and do not overlap.
#[inline(always)]
unsafe fn copy_16<const AT: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: by the caller's contract. Not Rust's own accesses: others may write meanwhile.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::asm!(
            "movups {bytes}, [{from} + {at}]",
            "movups [{to} + {at}], {bytes}",
            from = in(reg) from,
            to = in(reg) to,
            at = const AT,
            bytes = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    // SAFETY: by the caller's contract.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    unsafe {
        libc::memcpy(to.wrapping_add(AT).cast(), from.wrapping_add(AT).cast(), 16);
    }
}

/// Fills `to` from `from`.
///
/// # Safety
/// `to.len()` bytes from `from` are mapped readable, and accessed by atomics, translated code and this only.
#[inline(always)]
pub(super) unsafe fn load(from: *mut u8, to: &mut [u8]) {
    // SAFETY: by the caller's contract; `to` is exclusive, so they do not overlap.
    unsafe {
        if is_whole(from.addr(), to.len()) {
            load_whole(from, to);
        } else if !to.is_empty() {
            libc::memcpy(to.as_mut_ptr().cast(), from.cast_const().cast(), to.len());
        }
    }
}

/// Fills `to` by one access. Not inlined: most copies are longer, and their code is short without it.
///
/// # Safety
/// As [`load`], and [`is_whole`].
#[inline(never)]
unsafe fn load_whole(from: *mut u8, to: &mut [u8]) {
    // SAFETY: by the caller's contract.
    unsafe {
        match to {
            [_] => to.copy_from_slice(&[AtomicU8::from_ptr(from).load(Relaxed)]),
            [_, _] => to.copy_from_slice(&AtomicU16::from_ptr(from.cast()).load(Relaxed).to_ne_bytes()),
            [_, _, _, _] => to.copy_from_slice(&AtomicU32::from_ptr(from.cast()).load(Relaxed).to_ne_bytes()),
            _ => to.copy_from_slice(&AtomicU64::from_ptr(from.cast()).load(Relaxed).to_ne_bytes()),
        }
    }
}

/// Copies `from` to `to`.
///
/// # Safety
/// `from.len()` bytes from `to` are mapped writable, and accessed by atomics, translated code and this only.
#[inline(always)]
pub(super) unsafe fn store(to: *mut u8, from: &[u8]) {
    if HEADERS.contains(&from.len()) {
        // SAFETY: by the caller's contract; the window's bytes are in no slice, so they do not overlap.
        return unsafe { copy_headers(from.as_ptr(), to, from.len()) };
    }
    if !is_whole(to.addr(), from.len()) {
        if !from.is_empty() {
            // SAFETY: as before.
            unsafe { libc::memcpy(to.cast(), from.as_ptr().cast(), from.len()) };
        }
        return;
    }
    // SAFETY: by the caller's contract; `is_whole` checked that it is aligned.
    unsafe {
        match *from {
            [a] => AtomicU8::from_ptr(to).store(a, Relaxed),
            [a, b] => AtomicU16::from_ptr(to.cast()).store(u16::from_ne_bytes([a, b]), Relaxed),
            [a, b, c, d] => AtomicU32::from_ptr(to.cast()).store(u32::from_ne_bytes([a, b, c, d]), Relaxed),
            [a, b, c, d, e, f, g, h] => {
                AtomicU64::from_ptr(to.cast()).store(u64::from_ne_bytes([a, b, c, d, e, f, g, h]), Relaxed);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{load, store};

    #[test]
    fn every_alignment_and_length_copies_exactly_its_bytes() {
        for start in 0..9_usize {
            for length in 0..110_usize {
                let mut memory = [0_u64; 16];
                let bytes: Vec<u8> = (1..).take(length).collect();
                let mut read = vec![0; length];
                // SAFETY: `start + length` is at most 117 of 128 bytes, and nothing else accesses them.
                unsafe {
                    let at = memory.as_mut_ptr().cast::<u8>().add(start);
                    store(at, &bytes);
                    load(at, &mut read);
                }
                assert_eq!(read, bytes, "{length} bytes at {start}");
                let all: Vec<u8> = memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
                assert_eq!(all[start..start + length], bytes);
                assert!(all[..start].iter().chain(&all[start + length..]).all(|byte| *byte == 0));
            }
        }
    }
}
