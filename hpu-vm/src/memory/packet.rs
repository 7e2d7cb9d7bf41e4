//! The packet's window in L2: most handlers never look at it, so the packet is copied there by the first access.
//!
//! A frame is [offered](Offered) to a window for the time of one task. An access copies it in, and the window remembers
//! for good that its handlers read, or write, the packet in L2: later frames are copied at once. A window that was
//! written is copied back when the task ends, so that whoever has the frame next sees it changed.
//!
//! That a frame is offered is known to the offering thread alone, so that no view kept elsewhere can follow a pointer to
//! a frame that is gone.
#![allow(unsafe_code, reason = "follows the pointer to a frame that is lent for the time of one call")]

use std::cell::Cell;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize};

use spin_abi::map::PACKET_WINDOW;

use super::{Access, Region, Window};

thread_local! {
    /// The window that this thread offers frames to now, or null.
    // Read by signal handlers too: constant at first and never dropped, so an access never allocates.
    static OFFERED_TO: Cell<*const L2Window> = const { Cell::new(ptr::null()) };
}

/// The window and what is known of its use.
#[derive(Debug)]
pub struct L2Window {
    /// All of it, writable.
    own: Window,
    /// The same where tasks see it, once they [may write it there](L2Window::follow_tasks).
    seen: Window,
    followed: AtomicBool,
    region: Arc<Region>,
    /// Where in the region it begins.
    offset: u32,
    /// Bytes of the frame that was copied in last.
    shown: AtomicU32,
    /// The frame offered now is in it.
    filled: AtomicBool,
    /// [`READ`] and [`WRITTEN`].
    used: AtomicU8,
    /// The frame that is offered now, or null: for the thread that offers it, see [`OFFERED_TO`].
    frame: AtomicPtr<u8>,
    /// Bytes of the one that was offered last.
    frame_len: AtomicUsize,
}

/// Some task read the packet in L2.
const READ: u8 = 1;
/// Some task wrote it.
const WRITTEN: u8 = 2;

impl L2Window {
    /// The [`PACKET_WINDOW`] bytes at `offset` of `region`, which are zero: those of `own`, and of `seen` at the addresses where tasks
    /// see them.
    pub(super) fn new(region: &Arc<Region>, offset: u32, own: Window, seen: Window) -> Self {
        let followed = AtomicBool::new(false);
        let (region, shown) = (region.clone(), AtomicU32::new(0));
        let (filled, used) = (AtomicBool::new(false), AtomicU8::new(0));
        let (frame, frame_len) = (AtomicPtr::new(ptr::null_mut()), AtomicUsize::new(0));
        Self { own, seen, followed, region, offset, shown, filled, used, frame, frame_len }
    }

    pub(super) const fn region(&self) -> &Arc<Region> {
        &self.region
    }

    pub(super) const fn offset(&self) -> u32 {
        self.offset
    }

    /// The window is mapped writable where tasks see it, for as long as its space lives. Async-signal-safe.
    pub(super) fn follow_tasks(&self) {
        self.followed.store(true, Relaxed);
    }

    /// The bytes, where they are best accessed.
    #[inline(always)]
    fn bytes(&self) -> &Window {
        if self.followed.load(Relaxed) { &self.seen } else { &self.own }
    }

    /// Whether any task read the packet in L2 so far.
    #[must_use]
    #[inline]
    pub fn read(&self) -> bool {
        self.used.load(Relaxed) & READ != 0
    }

    /// Whether any task wrote the packet in L2 so far.
    #[must_use]
    #[inline]
    pub fn written(&self) -> bool {
        self.used.load(Relaxed) & WRITTEN != 0
    }

    /// The window's bytes for an access: the frame is in them from now on. `None` when no frame is offered.
    /// Async-signal-safe.
    pub(crate) fn touch(&self, access: Access) -> Option<&Window> {
        if !self.filled.load(Relaxed) {
            self.fill()?;
        }
        let use_of_it = match access {
            Access::Read => READ,
            Access::Write => WRITTEN,
        };
        if self.used.load(Relaxed) & use_of_it == 0 {
            self.used.fetch_or(use_of_it, Relaxed);
        }
        Some(self.bytes())
    }

    /// Fills `to` from the packet as tasks see it, without counting as an access.
    pub(crate) fn copy_out(&self, offset: u32, to: &mut [u8]) -> Option<()> {
        if self.filled.load(Relaxed) {
            return self.bytes().copy_out(offset, to);
        }
        let from = self.frame(|frame| {
            let from = frame.get(offset as usize..)?.get(..to.len())?;
            to.copy_from_slice(from);
            Some(())
        });
        from?
    }

    /// Copies the offered frame in and clears what a longer one left behind it, which others may not read.
    fn fill(&self) -> Option<()> {
        self.frame(|frame| self.fill_from(frame))?
    }

    /// The same, of the frame that is offered, or is about to be.
    #[inline]
    fn fill_from(&self, frame: &[u8]) -> Option<()> {
        self.bytes().copy_in(0, frame)?;
        // A frame is as long as the window at the most.
        let len = u32::try_from(frame.len()).ok()?;
        // This thread alone fills it.
        let before = self.shown.load(Relaxed);
        if before != len {
            self.shown.store(len, Relaxed);
            self.region.clear((self.offset + len) as usize, before.saturating_sub(len) as usize)?;
        }
        self.filled.store(true, Relaxed);
        Some(())
    }

    /// The offered frame is taken away, with what tasks wrote.
    fn take_out(&self) {
        if self.written() && self.filled.load(Relaxed) {
            let _ = self.frame(|frame| self.bytes().copy_out(0, frame));
        }
        self.filled.store(false, Relaxed);
    }

    /// Lends the offered frame.
    fn frame<R>(&self, look: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let frame = self.frame.load(Relaxed);
        if frame.is_null() || !ptr::eq(OFFERED_TO.get(), self) {
            return None;
        }
        // SAFETY: this thread offers to this window, hence nobody else does: who offers has the slot borrowed alone. `Offering::during`
        // has the only reference to these bytes, and takes them away before that ends; `look` is one of the closures of this
        // module, which do not come back here.
        Some(look(unsafe { slice::from_raw_parts_mut(frame, self.frame_len.load(Relaxed)) }))
    }
}

/// This thread offers frames to a window until it is dropped.
pub(crate) struct Offering<'w> {
    window: &'w L2Window,
    /// What it offers them to otherwise: a task may run others.
    before: *const L2Window,
}

impl<'w> Offering<'w> {
    /// Frames are going to be offered to `window`, by this thread alone as long as this is there.
    #[inline]
    pub(crate) fn to(window: &'w L2Window) -> Self {
        Self { window, before: OFFERED_TO.replace(window) }
    }

    /// Runs `task` while `frame`, of which the window shows at most [`PACKET_WINDOW`] bytes, is offered.
    #[inline(always)]
    pub(crate) fn during<R>(&self, frame: &mut [u8], task: impl FnOnce() -> R) -> R {
        let window = self.window;
        // Another offering may have been made since, and not be over.
        OFFERED_TO.set(window);
        let len = frame.len().min(PACKET_WINDOW as usize);
        debug_assert!(!window.filled.load(Relaxed), "the one before has been taken out");
        if window.used.load(Relaxed) != 0 {
            let _ = window.fill_from(&frame[..len]);
        }
        window.frame_len.store(len, Relaxed);
        window.frame.store(frame.as_mut_ptr(), Relaxed);
        let offered = Offered(window);
        let result = task();
        drop(offered);
        result
    }
}

impl Drop for Offering<'_> {
    #[inline]
    fn drop(&mut self) {
        OFFERED_TO.set(self.before);
    }
}

/// A frame is offered to a window until this is dropped. It is [`Offering::during`]'s own, so it is dropped.
struct Offered<'w>(&'w L2Window);

impl Drop for Offered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // What was never used was never filled.
        if self.0.used.load(Relaxed) != 0 {
            self.0.take_out();
        }
        self.0.frame.store(ptr::null_mut(), Relaxed);
    }
}
