//! Prefetch instructions.
#![allow(unsafe_code, reason = "the instructions take an address")]

/// Size of a cache line on the supported processors, in bytes.
pub(crate) const CACHE_LINE: usize = 64;

/// Prefetches the cache line in which `value` begins, for reading.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_at(std::ptr::from_ref(value).cast());
}

/// Prefetches the cache line in which `values[index]` begins, for reading. An index out of range is harmless: a
/// prefetch reads nothing.
#[inline(always)]
pub fn prefetch_in<T>(values: &[T], index: usize) {
    prefetch_at(values.as_ptr().wrapping_add(index).cast());
}

/// Prefetches all cache lines of `values`, for reading.
#[inline]
pub fn prefetch_all<T>(values: &[T]) {
    values.iter().step_by(per_line::<T>()).for_each(prefetch);
}

/// Prefetches all cache lines of `values`, for writing: the core gets the lines in exclusive state.
#[inline]
pub fn prefetch_to_write<T>(values: &[T]) {
    values.iter().step_by(per_line::<T>()).for_each(|value| prefetch_to_write_at(std::ptr::from_ref(value).cast()));
}

/// Number of values of `T` in a cache line, at least 1.
const fn per_line<T>() -> usize {
    match CACHE_LINE.checked_div(size_of::<T>()) {
        None | Some(0) => 1,
        Some(count) => count,
    }
}

#[inline(always)]
fn prefetch_to_write_at(address: *const u8) {
    // Not `_mm_prefetch`: rustc emits prefetchw only for processors it knows to have it. For the others it emits a
    // prefetch for reading, which leaves a line of another core in shared state.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint that takes any address. Every processor of this architecture accepts it, some without effect
    // (AMD64 manual, volume 3, "PREFETCH"). It changes neither memory nor registers.
    unsafe {
        core::arch::asm!("prefetchw [{address}]", address = in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint, which changes neither memory nor registers.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{address}]", address = in(reg) address, options(nostack, readonly, preserves_flags));
    }
}

/// Prefetches the cache line at any address, for reading.
#[inline(always)]
pub(crate) fn prefetch_at(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that takes any address; SSE is part of the architecture.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint that takes any address; it changes neither memory nor registers.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{address}]", address = in(reg) address, options(nostack, readonly, preserves_flags));
    }
}
