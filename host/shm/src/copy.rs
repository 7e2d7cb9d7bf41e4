//! Copies from and to memory that others write at the same time.
//!
//! Every shared byte is accessed by a relaxed atomic of one, four or eight bytes, so a concurrent write gives old or
//! new bytes, never undefined behaviour: the memory is outside of any Rust allocation, other processes' accesses are
//! not part of this program, and LLVM, which defines what these accesses compile to, lets atomics of different sizes
//! overlap and picks a written value for each byte (LangRef, "Memory Model for Concurrent Operations"). What is atomic
//! as a whole is each naturally aligned part of eight, else four bytes.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// Size of the next piece of a copy: the largest that is aligned at `address` and fits.
fn piece(address: usize, left: usize) -> usize {
    match () {
        () if left >= 8 && address.is_multiple_of(8) => 8,
        () if left >= 4 && address.is_multiple_of(4) => 4,
        () => 1,
    }
}

/// Fills `to` from `from`. What was published by the release at the end of a [`store`] whose last part this reads is
/// visible to every later access.
///
/// # Safety
/// `to.len()` bytes from `from` are mapped readable while this runs, and this program accesses them only by this
/// module's functions.
pub(crate) unsafe fn load(mut from: *mut u8, mut to: &mut [u8]) {
    while !to.is_empty() {
        let size = piece(from.addr(), to.len());
        let (part, rest) = to.split_at_mut(size);
        // SAFETY: `size <= to.len()`, so the piece is within the caller's range; `piece` checked that it is aligned;
        // only atomics access it.
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
    // Pairs with the release store: who saw the flag sees what was written before it.
    fence(Ordering::Acquire);
}

/// Copies `from` to `to`. The last part is stored with release ordering: who sees it sees all earlier stores.
///
/// # Safety
/// `from.len()` bytes from `to` are mapped writable while this runs, and this program accesses them only by this
/// module's functions.
pub(crate) unsafe fn store(mut to: *mut u8, mut from: &[u8]) {
    while !from.is_empty() {
        let size = piece(to.addr(), from.len());
        let (part, rest) = from.split_at(size);
        let order = if rest.is_empty() { Ordering::Release } else { Ordering::Relaxed };
        // SAFETY: `size <= from.len()`, so the piece is within the caller's range; `piece` checked that it is aligned;
        // only atomics access it.
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
    use super::{load, piece, store};

    #[test]
    fn pieces_are_aligned_and_fit() {
        for (address, left, size) in [(16, 8, 8), (16, 7, 4), (20, 100, 4), (22, 100, 1), (24, 3, 1), (16, 100, 8)] {
            assert_eq!(piece(address, left), size, "{left} bytes at {address}");
        }
    }

    #[test]
    fn every_alignment_and_length_copies_exactly_its_bytes() {
        for start in 0..9_usize {
            for length in 0..40_usize {
                let mut memory = [0_u64; 8];
                let bytes: Vec<u8> = (1..).take(length).collect();
                let mut read = vec![0; length];
                // SAFETY: `start + length` is at most 48 of 64 bytes, and nothing else accesses them.
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
