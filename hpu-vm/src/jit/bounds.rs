//! Exact bounds by page: how much of each guest page may be touched, for the checks of translated code.

use spin_abi::map::{L1_ALIAS, PAGE};

use crate::memory::Layout;

/// Pages of guest memory, and one more: checks of the last look at the next.
const PAGES: usize = (1 << 20) + 1;

/// For each page, twice the bytes from its start that lie in one range, plus 1 where that range goes on in the next page. 0
/// where there are none, and where it is not that simple (a range that begins within the page, two ranges in one
/// page): the interpreter finds out then.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// Only the pages of this table that are written take memory.
    pages: Box<[u16]>,
    alias: (u32, u32),
}

impl Bounds {
    /// Bounds of `ranges` (base and length), those in the own L1 in the layout's alias window too.
    pub(crate) fn new(layout: &Layout, ranges: impl Iterator<Item = (u32, u32)>) -> Self {
        let alias = (layout.places().l1_base(), layout.places().l1_size());
        let mut bounds = Self { pages: vec![0; PAGES].into_boxed_slice(), alias };
        let mut ranges: Vec<(u32, u32)> = ranges.filter(|(_, len)| *len > 0).collect();
        ranges.sort_unstable();
        for (index, &(base, len)) in ranges.iter().enumerate() {
            let first = base.next_multiple_of(PAGE);
            let before = index.checked_sub(1).map(|index| ranges[index]);
            let shared = |page: u32| {
                let after = ranges.get(index + 1).is_some_and(|&(next, _)| next / PAGE == page / PAGE);
                after || before.is_some_and(|(base, len)| (base + (len - 1)) / PAGE == page / PAGE)
            };
            let last = base + (len - 1);
            for page in (first..=last).step_by(PAGE as usize) {
                let room = (last - page).saturating_add(1);
                bounds.set_page(page, if shared(page) { 0 } else { room });
            }
        }
        bounds
    }

    /// Of the page at `base` and those behind it, `len` bytes lie in one range: sets the bound of that page.
    #[inline]
    pub(crate) fn set_page(&mut self, base: u32, len: u32) {
        let bound = u16::try_from(2 * len.min(PAGE) + u32::from(len > PAGE)).unwrap_or(0);
        self.pages[(base / PAGE) as usize] = bound;
        let (l1, size) = self.alias;
        let at = base.wrapping_sub(l1);
        if at < size {
            self.pages[((L1_ALIAS + at) / PAGE) as usize] = bound;
        }
    }

    /// Of the `room` bytes that were mapped at `base`, `len` are left: sets their bound if they are one page's, else that of all
    /// their pages to 0.
    #[inline]
    pub(crate) fn resize(&mut self, base: u32, room: u32, len: u32) {
        if base.is_multiple_of(PAGE) && room <= PAGE { self.set_page(base, len) } else { self.forget(base, room) }
    }

    #[cold]
    fn forget(&mut self, base: u32, room: u32) {
        for page in (base - base % PAGE..=base + room.saturating_sub(1)).step_by(PAGE as usize) {
            self.set_page(page, 0);
        }
    }

    /// For translated code: an entry for each page.
    pub(crate) fn as_ptr(&self) -> *const u16 {
        self.pages.as_ptr()
    }
}
