//! Asking for memory before it is needed.
#![allow(unsafe_code, reason = "the instruction for it is given an address")]

/// Asks for the line in which `place` begins to be brought near: a hint, for what is looked at a little later.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    prefetch_at(std::ptr::from_ref(place).cast());
}

/// The same of the one at a place. One that is none does no harm: nothing is read.
#[inline(always)]
pub fn prefetch_in<T>(places: &[T], place: usize) {
    prefetch_at(places.as_ptr().wrapping_add(place).cast());
}

/// The same of all lines of some.
#[inline]
pub fn prefetch_all<T>(places: &[T]) {
    places.iter().step_by(per_line::<T>()).for_each(prefetch);
}

/// Asks for the lines to be this core's own in which these are: they are written a little later.
#[inline]
pub fn prefetch_to_write<T>(places: &[T]) {
    places.iter().step_by(per_line::<T>()).for_each(|place| own_at(std::ptr::from_ref(place).cast()));
}

/// How many there are in a cache line.
const fn per_line<T>() -> usize {
    match 64_usize.checked_div(size_of::<T>()) {
        None | Some(0) => 1,
        Some(count) => count,
    }
}

#[inline(always)]
fn own_at(at: *const u8) {
    // Not `_mm_prefetch`: rustc knows the instruction for some processors only, and has a line shared elsewhere.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint that any address is good for, which every processor of this architecture takes, some without effect (AMD64 manual,
    // volume 3, "PREFETCH"); it changes neither memory nor registers.
    unsafe {
        core::arch::asm!("prefetchw [{at}]", at = in(reg) at, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint, which changes neither memory nor registers.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{at}]", at = in(reg) at, options(nostack, readonly, preserves_flags));
    }
}

/// As [`prefetch`], of any address.
#[inline(always)]
pub(crate) fn prefetch_at(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that any address is good for; SSE is part of the architecture.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; changes neither memory nor registers.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nostack, readonly, preserves_flags));
    }
}
