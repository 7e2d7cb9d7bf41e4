//! Copies from and to memory that other processes write at the same time.
//!
//! A short copy accesses every shared byte by a relaxed atomic of one, four or eight bytes. A concurrent write
//! therefore yields old or new bytes, never undefined behaviour. The memory is outside of any Rust allocation, and
//! other processes' accesses are not part of this program. LLVM defines what these accesses compile to; it lets atomics
//! of different sizes overlap and picks a written value for each byte (LangRef, "Memory Model for Concurrent
//! Operations"). Each naturally aligned part of eight, else four bytes is accessed atomically.
//!
//! The C library copies all of a long copy except its ends, and tolerates concurrent writes. Its part begins and ends
//! at multiples of eight. Its accesses have eight bytes or more, so none of them splits an aligned part of eight bytes.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// Maximum length in bytes of a copy made part by part. Part by part, 64 bytes take three times as long and 1500 bytes
/// fifteen times.
const SHORT: usize = 32;

/// Returns the size of the next part: the largest that is aligned at `address` and fits.
fn piece(address: usize, left: usize) -> usize {
    match () {
        () if left >= 8 && address.is_multiple_of(8) => 8,
        () if left >= 4 && address.is_multiple_of(4) => 4,
        () => 1,
    }
}

/// Splits a copy whose shared side is at `address` in three. The first part ends at the first multiple of eight. The
/// second consists of whole aligned parts of eight bytes. The third is the rest and has at least one byte, so it takes
/// the last aligned part if nothing follows it.
fn cut(address: usize, len: usize) -> (usize, usize) {
    let first = address.wrapping_neg() % 8;
    (first, (len - first - 1) / 8 * 8)
}

/// Fills `to` from `from`. If this reads the last part of a [`store`], everything published by that store's release is
/// visible to every later access.
///
/// # Safety
/// `to.len()` bytes from `from` are mapped readable during the call, and this program accesses them only by this
/// module's functions.
pub(crate) unsafe fn load(mut from: *mut u8, mut to: &mut [u8]) {
    if to.len() > SHORT {
        let (first, middle) = cut(from.addr(), to.len());
        let (head, rest) = to.split_at_mut(first);
        let (body, tail) = rest.split_at_mut(middle);
        // SAFETY: both are parts of the caller's range; `to` is exclusive, so they do not overlap.
        unsafe {
            load_parts(from, head);
            libc::memcpy(body.as_mut_ptr().cast(), from.wrapping_add(first).cast_const().cast(), middle);
        }
        (from, to) = (from.wrapping_add(first + middle), tail);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { load_parts(from, to) };
    // Pairs with the release store: a reader that saw the flag sees all writes before it.
    fence(Ordering::Acquire);
}

/// # Safety
/// As [`load`].
unsafe fn load_parts(mut from: *mut u8, mut to: &mut [u8]) {
    while !to.is_empty() {
        let size = piece(from.addr(), to.len());
        let (part, rest) = to.split_at_mut(size);
        // SAFETY: `size <= to.len()`, so the part is within the caller's range. `piece` checked the alignment. All
        // accesses are atomic.
        unsafe {
            match size {
                8 => part.copy_from_slice(&AtomicU64::from_ptr(from.cast()).load(Ordering::Relaxed).to_ne_bytes()),
                4 => part.copy_from_slice(&AtomicU32::from_ptr(from.cast()).load(Ordering::Relaxed).to_ne_bytes()),
                _ => part.copy_from_slice(&[AtomicU8::from_ptr(from).load(Ordering::Relaxed)]),
            }
        }
        to = rest;
        from = from.wrapping_add(size);
    }
}

/// Copies `from` to `to`. The last part is stored with release ordering: a reader that sees it sees all earlier stores.
///
/// # Safety
/// `from.len()` bytes from `to` are mapped writable during the call, and this program accesses them only by this
/// module's functions.
pub(crate) unsafe fn store(mut to: *mut u8, mut from: &[u8]) {
    if from.len() > SHORT {
        let (first, middle) = cut(to.addr(), from.len());
        let (head, rest) = from.split_at(first);
        let (body, tail) = rest.split_at(middle);
        // SAFETY: both are parts of the caller's range. Shared memory is never borrowed as a slice, so they do not
        // overlap.
        unsafe {
            store_parts(to, head);
            libc::memcpy(to.wrapping_add(first).cast(), body.as_ptr().cast(), middle);
        }
        (to, from) = (to.wrapping_add(first + middle), tail);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { store_parts(to, from) };
}

/// # Safety
/// As [`store`].
unsafe fn store_parts(mut to: *mut u8, mut from: &[u8]) {
    while !from.is_empty() {
        let size = piece(to.addr(), from.len());
        let (part, rest) = from.split_at(size);
        let order = if rest.is_empty() { Ordering::Release } else { Ordering::Relaxed };
        // SAFETY: `size <= from.len()`, so the part is within the caller's range. `piece` checked the alignment. All
        // accesses are atomic.
        unsafe {
            match *part {
                [a, b, c, d, e, f, g, h] => {
                    AtomicU64::from_ptr(to.cast()).store(u64::from_ne_bytes([a, b, c, d, e, f, g, h]), order);
                }
                [a, b, c, d] => AtomicU32::from_ptr(to.cast()).store(u32::from_ne_bytes([a, b, c, d]), order),
                _ => AtomicU8::from_ptr(to).store(part[0], order),
            }
        }
        from = rest;
        to = to.wrapping_add(size);
    }
}

#[cfg(test)]
mod tests {
    use super::{SHORT, cut, load, piece, store};

    #[test]
    fn pieces_are_aligned_and_fit() {
        for (address, left, size) in [(16, 8, 8), (16, 7, 4), (20, 100, 4), (22, 100, 1), (24, 3, 1), (16, 100, 8)] {
            assert_eq!(piece(address, left), size, "{left} bytes at {address}");
        }
    }

    #[test]
    fn the_middle_of_a_copy_is_aligned_and_something_follows() {
        for address in 64..72 {
            for length in SHORT + 1..SHORT + 20 {
                let (first, middle) = cut(address, length);
                assert!((address + first).is_multiple_of(8) && middle.is_multiple_of(8));
                assert!((1..=8).contains(&(length - first - middle)), "{length} bytes at {address}");
            }
        }
    }

    #[test]
    fn every_alignment_and_length_copies_exactly_its_bytes() {
        for start in 0..9_usize {
            for length in 0..3 * SHORT {
                let mut memory = [0_u64; 16];
                let bytes: Vec<u8> = (1..).take(length).collect();
                let mut read = vec![0; length];
                // SAFETY: `start + length` is at most 104 of 128 bytes, and nothing else accesses them.
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
