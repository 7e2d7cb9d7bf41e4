//! Exact bounds of guest memory by page, for the checks of translated code.

use spin_abi::map::{L1_ALIAS, PAGE};

use crate::memory::{Layout, Words};

/// Length of most accesses in bytes. Accesses of this length are compared with table entries without an adjustment.
pub(crate) const WORD: u32 = 4;
/// Pages of guest memory.
const PAGES: usize = 1 << 20;

/// Table with one entry per page.
///
/// If the page's first byte is in a range, the entry is the first address at which this range has fewer than [`WORD`]
/// bytes left. It is 0 for other pages, also if a range begins within the page: the interpreter then decides. An access
/// of `WORD` bytes lies in one range if its address is below the entry of its page. For other lengths, the entry is
/// adjusted by the difference.
#[derive(Debug)]
pub(crate) struct Bounds {
    limits: Words,
    /// Guest address and size of the own L1.
    alias: (u32, u32),
}

/// Contiguous memory of a view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// Guest address of the first byte.
    pub(crate) base: u32,
    /// Length in bytes.
    pub(crate) len: u32,
    /// Whether tasks may write it.
    pub(crate) writable: bool,
}

impl Range {
    const fn last_page(&self) -> u32 {
        (self.base + (self.len - 1)) / PAGE
    }

    /// Number of its bytes that page protection guards as the range requires. For a writable range these are all bytes.
    /// The last page of a read-only range is mapped writable if it also has bytes of a writable range.
    fn protected_len(&self, others: &[Self]) -> u32 {
        let page = self.last_page();
        let shares =
            |other: &Self| other.writable && other.len > 0 && (other.base / PAGE..=other.last_page()).contains(&page);
        if self.writable || !others.iter().any(shares) { self.len } else { (page * PAGE).saturating_sub(self.base) }
    }
}

impl Bounds {
    /// Makes the bounds of `ranges`. Ranges in the own L1 also get bounds in the layout's alias window.
    pub(crate) fn new(layout: &Layout, ranges: &[Range]) -> Self {
        let alias = (layout.addresses().l1_base(), layout.addresses().l1_size());
        let mut bounds = Self { limits: Words::new(PAGES), alias };
        for range in ranges.iter().filter(|range| range.len > 0) {
            bounds.resize(range.base, range.len, range.protected_len(ranges));
        }
        bounds
    }

    /// Reduces the range of `room` mapped bytes at `base` to `len` bytes.
    #[inline]
    pub(crate) fn resize(&mut self, base: u32, room: u32, len: u32) {
        if base.is_multiple_of(PAGE) && room <= PAGE {
            self.set_page(base, len)
        } else {
            self.resize_many(base, room, len)
        }
    }

    #[cold]
    fn resize_many(&mut self, base: u32, room: u32, len: u32) {
        // A range up to the last address ends one byte early here. Nothing is mapped there.
        let (last, end) = (base.saturating_add(room), base.saturating_add(len));
        for page in (base.next_multiple_of(PAGE)..last).step_by(PAGE as usize) {
            self.set_page(page, end.saturating_sub(page));
        }
    }

    /// Records that `len` bytes from the page at address `page` lie in one range.
    #[inline]
    fn set_page(&mut self, page: u32, len: u32) {
        self.set_limit(page, len);
        let (l1, size) = self.alias;
        let at = page.wrapping_sub(l1);
        if at < size {
            self.set_limit(L1_ALIAS + at, len);
        }
    }

    #[inline]
    fn set_limit(&mut self, page: u32, len: u32) {
        self.limits[(page / PAGE) as usize] =
            if len > 0 { page.saturating_add(len).saturating_sub(WORD - 1) } else { 0 };
    }

    /// The table for translated code, indexed by page number.
    pub(crate) fn as_ptr(&self) -> *const u32 {
        self.limits.as_ptr()
    }
}
