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
    /// Host address of the first byte; undefined while `len` is 0.
    bytes: Cell<*mut u8>,
    /// Keeps the `len` bytes mapped; `None` while `len` is 0.
    window: Cell<Option<Window>>,
    /// Guest address of the window of the last copy that did not use the cache.
    last_miss: Cell<u32>,
}

// SAFETY: the pointer leads to bytes of the cached window, which is Send and accessed as a window's are.
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
            last_miss: Cell::new(0),
        }
    }
}

impl LastWindow {
    /// Notes a copy from the window at guest address `base` that did not use the cache. The second consecutive one
    /// caches the window. Copies from several windows by turns thus cache none: to cache a window costs more than to
    /// search it.
    pub(crate) fn note_miss(&self, base: u32, window: &Window) {
        if self.last_miss.replace(base) == base && !self.has(base) {
            self.clear();
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

    /// Drops the window at `base` from the cache, before it changes.
    #[inline]
    pub(crate) fn forget(&self, base: u32) {
        if self.has(base) {
            self.clear();
        }
    }

    fn clear(&self) {
        self.len.set(0);
        self.window.set(None);
    }

    /// Fills `to` if it is not empty and all of it is in the cached window. Returns whether it did.
    #[inline(always)]
    pub(crate) fn copy_out(&self, address: u32, to: &mut [u8]) -> bool {
        let offset = address.wrapping_sub(self.base.get()) as usize;
        // No slice is so long that the sum wraps.
        let is_cached = !to.is_empty() && offset + to.len() <= self.len.get() as usize;
        if is_cached {
            // SAFETY: bytes of the cached window, which stays mapped.
            unsafe { load(self.bytes.get().add(offset), to) };
        }
        is_cached
    }
}
