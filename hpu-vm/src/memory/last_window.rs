//! The window of the last copy: the next copy mostly uses the same one and need not search for it.
#![allow(unsafe_code, reason = "follows the pointer to a window's bytes, which it keeps mapped")]

use std::cell::Cell;
use std::fmt;
use std::ptr;

use super::copy::load;
use super::window::Window;

/// A cached window with the guest address of its first byte; initially none.
pub struct LastWindow {
    base: Cell<u32>,
    len: Cell<u32>,
    /// Its first byte. Means nothing while `len` is 0.
    bytes: Cell<*mut u8>,
    /// Keeps `len` bytes from there mapped: the window as it was, or nothing while `len` is 0.
    window: Cell<Option<Window>>,
    /// The one that was copied from last without being at hand, in the same terms.
    asked: Cell<u32>,
}

// SAFETY: its pointer leads to bytes of its own window, which is Send and accessed as a window's are.
unsafe impl Send for LastWindow {}

impl fmt::Debug for LastWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastWindow").field("base", &self.base).field("len", &self.len).finish_non_exhaustive()
    }
}

impl Default for LastWindow {
    fn default() -> Self {
        Self {
            base: Cell::new(0),
            len: Cell::new(0),
            bytes: Cell::new(ptr::null_mut()),
            window: Cell::new(None),
            asked: Cell::new(0),
        }
    }
}

impl LastWindow {
    /// Notes that a window whose first byte is at `base` was copied from without being at hand. It is from the second time in a row on: who
    /// copies from several by turns has none at hand, since to take one costs more than to look for it.
    pub(crate) fn note(&self, base: u32, window: &Window) {
        if self.asked.replace(base) == base && !self.has(base) {
            self.drop_it();
            if let Some(bytes) = window.first() {
                self.window.set(Some(window.clone()));
                self.bytes.set(bytes);
                self.base.set(base);
                self.len.set(window.len());
            }
        }
    }

    fn has(&self, base: u32) -> bool {
        self.len.get() > 0 && self.base.get() == base
    }

    /// The window at `base` is not what it was.
    #[inline]
    pub(crate) fn forget(&self, base: u32) {
        if self.has(base) {
            self.drop_it();
        }
    }

    fn drop_it(&self) {
        self.len.set(0);
        self.window.set(None);
    }

    /// Fills `to`, if all of it is in the window at hand, and not empty; else says that it did not.
    #[inline(always)]
    pub(crate) fn copy_out(&self, address: u32, to: &mut [u8]) -> bool {
        let offset = address.wrapping_sub(self.base.get()) as usize;
        // No slice is so long that the sum wraps.
        let is_there = !to.is_empty() && offset + to.len() <= self.len.get() as usize;
        if is_there {
            // SAFETY: these are bytes of the window that is kept, from its first one on.
            unsafe { load(self.bytes.get().add(offset), to) };
        }
        is_there
    }
}
