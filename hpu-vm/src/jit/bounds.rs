//! Exact bounds by page: how far guest memory may be touched from each page on, for the checks of translated code.

use spin_abi::map::{L1_ALIAS, PAGE};

use crate::memory::{Layout, Words};

/// What most accesses are long: they are compared with what is in the table as it is.
pub(crate) const WORD: u32 = 4;
/// Pages of guest memory.
const PAGES: usize = 1 << 20;

/// For each page in whose first byte a range is, the first address from which on that range does not have [`WORD`] bytes; 0 for others, also
/// where a range begins within the page: the interpreter finds out then. So that many bytes lie in one range if they begin before what their
/// first byte's page says, and more or fewer if they would with that many fewer or more.
#[derive(Debug)]
pub(crate) struct Bounds {
    beyond: Words,
    alias: (u32, u32),
}

/// Memory that a view has in one piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// First byte.
    pub(crate) base: u32,
    /// Bytes.
    pub(crate) len: u32,
    /// They may be written.
    pub(crate) writable: bool,
}

impl Range {
    const fn last_page(&self) -> u32 {
        (self.base + (self.len - 1)) / PAGE
    }

    /// How many of its bytes are protected against stores, if any of them is not for writing: those on a page that has bytes of another range
    /// which are, are mapped like these. All are, of one that may be written.
    fn protected(&self, others: &[Self]) -> u32 {
        let page = self.last_page();
        let shares =
            |other: &Self| other.writable && other.len > 0 && (other.base / PAGE..=other.last_page()).contains(&page);
        if self.writable || !others.iter().any(shares) { self.len } else { (page * PAGE).saturating_sub(self.base) }
    }
}

impl Bounds {
    /// Bounds of `ranges`, those in the own L1 in the layout's alias window too.
    pub(crate) fn new(layout: &Layout, ranges: &[Range]) -> Self {
        let alias = (layout.addresses().l1_base(), layout.addresses().l1_size());
        let mut bounds = Self { beyond: Words::new(PAGES), alias };
        for range in ranges.iter().filter(|range| range.len > 0) {
            bounds.resize(range.base, range.len, range.protected(ranges));
        }
        bounds
    }

    /// Of the `room` bytes that were mapped at `base`, `len` are left.
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
        // A range that ends at the last address is said to end before it: nothing is mapped there.
        let (last, end) = (base.saturating_add(room), base.saturating_add(len));
        for page in (base.next_multiple_of(PAGE)..last).step_by(PAGE as usize) {
            self.set_page(page, end.saturating_sub(page));
        }
    }

    /// From the page at `page` on, `len` bytes lie in one range.
    #[inline]
    fn set_page(&mut self, page: u32, len: u32) {
        self.set_beyond(page, len);
        let (l1, size) = self.alias;
        let at = page.wrapping_sub(l1);
        if at < size {
            self.set_beyond(L1_ALIAS + at, len);
        }
    }

    #[inline]
    fn set_beyond(&mut self, page: u32, len: u32) {
        self.beyond[(page / PAGE) as usize] =
            if len > 0 { page.saturating_add(len).saturating_sub(WORD - 1) } else { 0 };
    }

    /// For translated code: an entry for each page.
    pub(crate) fn as_ptr(&self) -> *const u32 {
        self.beyond.as_ptr()
    }
}
