//! The packet's windows in L1 and L2. Few handlers access both and many access neither, so the packet is copied by the
//! first access.
//!
//! A frame is [offered](PacketLender) to the windows of an HPU for the duration of one task. An access to a window copies
//! the frame into it, and the window permanently remembers that its handlers use it: later frames are copied at once.
//! The two copies are independent. Changes in L2 are copied back when the task ends, so that they are visible to the
//! frame's next user. Changes in L1 are private to the task. Until the first change the frame and a copy of it in L1
//! are equal, and translated code reads the frame [in place](PacketSource).
//!
//! Only the offering thread knows that a frame is offered, so no view kept elsewhere can follow a pointer to a released
//! frame.
#![allow(unsafe_code, reason = "follows the pointer to a frame that is lent for the time of one call")]

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize};

use spin_abi::map::PACKET_WINDOW;

use super::region::Region;
use super::window::Window;
use crate::address::Access;

/// Bytes of a word.
const WORD: usize = 4;

thread_local! {
    /// The windows that this thread offers frames to now, or null.
    // Read by signal handlers too: constant at first and never dropped, so an access never allocates.
    static LENT_TO: Cell<*const PacketWindows> = const { Cell::new(ptr::null()) };
}

/// Which copy of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// The task's own: as many bytes as its context wants.
    L1,
    /// All of the frame, which is what the window holds when the task has ended.
    L2,
}

/// One of the windows: [`PACKET_WINDOW`] bytes of a region.
#[derive(Debug)]
pub(super) struct PacketWindow {
    /// All of it, writable.
    own: Window,
    /// The same where tasks see it, once they [may write it there](PacketWindow::follow_tasks).
    seen: Window,
    followed: AtomicBool,
    region: Arc<Region>,
    /// Where in the region it begins.
    offset: u32,
    /// Bytes of the frame that was copied in last.
    shown: AtomicU32,
    /// The frame offered now is in it.
    filled: AtomicBool,
}

impl PacketWindow {
    /// The bytes at `offset` of `region`, which are zero: those of `own`, and of `seen` at the addresses where tasks see them.
    pub(super) fn new(region: &Arc<Region>, offset: u32, own: Window, seen: Window) -> Self {
        let (followed, filled) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { own, seen, followed, region: region.clone(), offset, shown: AtomicU32::new(0), filled }
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

    /// Copies a frame in, or the part of it that is shown, and clears what a longer one left behind it, which others may not read.
    #[inline(always)]
    fn fill_from(&self, frame: &[u8]) -> Option<()> {
        self.bytes().copy_in(0, frame)?;
        // A frame is as long as the window at the most.
        let len = frame.len() as u32;
        if self.shown.load(Relaxed) != len {
            self.clear_behind(len)?;
        }
        self.filled.store(true, Relaxed);
        Some(())
    }

    /// Clears what a frame left that was longer than `len`.
    #[cold]
    fn clear_behind(&self, len: u32) -> Option<()> {
        // This thread alone fills it.
        let before = self.shown.load(Relaxed);
        self.shown.store(len, Relaxed);
        self.region.clear((self.offset + len) as usize, before.saturating_sub(len) as usize)
    }
}

/// Location where translated code reads the packet in L1: the frame, or the window once the packet is in it.
#[derive(Debug)]
#[repr(C)]
pub struct PacketSource {
    /// Host address of the packet less its guest address in L1.
    pub base: AtomicPtr<u8>,
    /// Number of readable bytes; 0 when no frame is offered.
    pub len: AtomicUsize,
    /// Number of offsets at which a complete word can be read.
    pub words: AtomicUsize,
}

/// Of windows of which no translated code knows.
static TO_NOBODY: PacketSource = PacketSource::nothing();

impl PacketSource {
    /// Makes a location without bytes.
    pub const fn nothing() -> Self {
        Self { base: AtomicPtr::new(ptr::null_mut()), len: AtomicUsize::new(0), words: AtomicUsize::new(0) }
    }

    /// Sets the number of readable bytes.
    #[inline(always)]
    pub fn set_len(&self, len: usize) {
        self.len.store(len, Relaxed);
        self.words.store(len.saturating_sub(WORD - 1), Relaxed);
    }
}

/// The windows of an HPU and what is known of their use.
// What each task looks at is together, in a line of the cache that nothing else is in.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct PacketWindows {
    /// See [`PacketWindows::set_source`].
    shown: AtomicPtr<PacketSource>,
    /// The frame that is offered now, or null: for the thread that offers it, see [`LENT_TO`].
    frame: AtomicPtr<u8>,
    /// Bytes of the one that was offered last.
    frame_len: AtomicUsize,
    /// Guest address of the window in L1.
    l1_base: u32,
    /// Bytes of a frame that are shown in L1, if it has as many.
    l1_len: AtomicU32,
    /// [`USED`], [`READ`], [`WRITTEN`], [`FORWARDED`].
    used: AtomicU8,
    /// A space may have the packet in L2 alone.
    pub(super) l1: Option<PacketWindow>,
    pub(super) l2: PacketWindow,
}

/// Some task read the packet in L2.
const READ: u8 = 1;
/// Some task wrote it.
const WRITTEN: u8 = 2;
/// Some task used the packet in L1.
const USED: u8 = 4;
/// What is copied to a window before a task begins.
const COPIED: u8 = READ | WRITTEN | USED;
/// A copy was made from the frame, of one that is in no window.
const FORWARDED: u8 = 8;

impl PacketWindows {
    /// That in L1 with its guest address.
    pub(super) fn new(l1: Option<(u32, PacketWindow)>, l2: PacketWindow) -> Self {
        let (l1_base, l1) = l1.map_or((0, None), |(base, window)| (base, Some(window)));
        let (l1_len, used) = (AtomicU32::new(PACKET_WINDOW), AtomicU8::new(0));
        let (frame, frame_len) = (AtomicPtr::new(ptr::null_mut()), AtomicUsize::new(0));
        let shown = AtomicPtr::new((&raw const TO_NOBODY).cast_mut());
        Self { l1, l2, l1_base, shown, l1_len, used, frame, frame_len }
    }

    /// Tells `shown` from now on where the packet in L1 is read.
    ///
    /// # Safety
    /// It is there as long as frames are offered.
    pub(crate) unsafe fn set_source(&self, shown: &PacketSource) {
        self.shown.store(ptr::from_ref(shown).cast_mut(), Relaxed);
    }

    #[inline(always)]
    fn shown(&self) -> &PacketSource {
        // SAFETY: as `set_source` asks, or it is there for good. It has atomics alone.
        unsafe { &*self.shown.load(Relaxed) }
    }

    /// The packet in L1 is read from `at` on.
    #[inline(always)]
    fn show_at(&self, at: *mut u8) {
        self.shown().base.store(at.wrapping_sub(self.l1_base as usize), Relaxed);
    }

    /// The packet in L1 is in its window.
    fn show_window(&self, window: &PacketWindow) {
        if let Some(first) = window.bytes().first() {
            self.show_at(first);
        }
    }

    #[inline(always)]
    fn is_used(&self, how: u8) -> bool {
        self.used.load(Relaxed) & how != 0
    }

    /// Whether any task has read the packet in L2 so far.
    #[must_use]
    #[inline]
    pub fn read(&self) -> bool {
        self.is_used(READ)
    }

    /// Whether any task has written the packet in L2 so far.
    #[must_use]
    #[inline]
    pub fn written(&self) -> bool {
        self.is_used(WRITTEN)
    }

    #[inline]
    fn note(&self, how: u8) {
        if !self.is_used(how) {
            self.used.fetch_or(how, Relaxed);
        }
    }

    /// Returns the number of bytes of a frame that are likely to be copied, based on earlier frames, when at most
    /// `in_l1` are visible in L1.
    #[must_use]
    #[inline]
    pub fn expected_copy_len(&self, in_l1: usize) -> usize {
        match self.used.load(Relaxed) {
            0 => 0,
            USED => in_l1,
            _ => PACKET_WINDOW as usize,
        }
    }

    /// Whether there is a window in L1.
    #[must_use]
    pub const fn has_l1(&self) -> bool {
        self.l1.is_some()
    }

    /// Sets how many bytes of later frames are shown in L1, up to [`PACKET_WINDOW`].
    #[inline]
    pub(crate) fn set_l1_len(&self, len: u32) {
        self.l1_len.store(len, Relaxed);
    }

    pub(super) const fn window(&self, level: Level) -> Option<&PacketWindow> {
        match level {
            Level::L1 => self.l1.as_ref(),
            Level::L2 => Some(&self.l2),
        }
    }

    /// A window's bytes for an access: the frame is in them from now on. `None` when no frame is offered.
    /// Async-signal-safe.
    pub(crate) fn touch(&self, level: Level, access: Access) -> Option<&Window> {
        let window = self.window(level)?;
        if !window.filled.load(Relaxed) {
            self.frame(|frame| window.fill_from(self.part(level, frame)))??;
            if level == Level::L1 {
                self.show_window(window);
            }
        }
        let use_of_it = match (level, access) {
            (Level::L1, _) => USED,
            (Level::L2, Access::Read) => READ,
            (Level::L2, Access::Write) => WRITTEN,
        };
        self.note(use_of_it);
        Some(window.bytes())
    }

    /// Fills `to` from the packet as tasks see it, without counting as an access.
    pub(crate) fn copy_out(&self, level: Level, offset: u32, to: &mut [u8]) -> Option<()> {
        let window = self.window(level)?;
        if window.filled.load(Relaxed) {
            return window.bytes().copy_out(offset, to);
        }
        self.look(level, offset, to.len(), |from| to.copy_from_slice(from))
    }

    /// Has `look` see `len` bytes of the packet where they arrived, if its window does not have them.
    pub(crate) fn look<R>(&self, level: Level, offset: u32, len: usize, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        if self.window(level)?.filled.load(Relaxed) {
            return None;
        }
        self.note(FORWARDED);
        self.frame(|frame| Some(look(self.part(level, frame).get(offset as usize..)?.get(..len)?)))?
    }

    /// What of a frame a window shows.
    #[inline]
    fn part<'f>(&self, level: Level, frame: &'f [u8]) -> &'f [u8] {
        match level {
            Level::L1 => &frame[..frame.len().min(self.l1_len.load(Relaxed) as usize)],
            Level::L2 => frame,
        }
    }

    /// Has the packet in L1 without a task: whoever looks at the memory finds it as a task would.
    pub(crate) fn write_l1(&self, frame: &[u8]) {
        if let Some(window) = &self.l1 {
            let shown = window.fill_from(self.part(Level::L1, frame));
            debug_assert!(shown.is_some(), "it is no more than the window");
            // A frame that is offered is another one.
            window.filled.store(false, Relaxed);
        }
    }

    /// Copies a frame, which is about to be offered, to where earlier tasks looked for it. A task that [goes on](TaskStart::Resumed) has what
    /// it left in L1. By itself: it would take registers from loops over tasks that have no use for it.
    #[inline(never)]
    fn fill_used(&self, used: u8, frame: &[u8], begun: TaskStart) {
        if let Some(window) = &self.l1
            && used & USED != 0
        {
            if begun == TaskStart::New {
                let _ = window.fill_from(self.part(Level::L1, frame));
            }
            self.show_window(window);
        }
        if used & (READ | WRITTEN) != 0 {
            debug_assert!(!self.l2.filled.load(Relaxed), "the one before has been taken out");
            let _ = self.l2.fill_from(frame);
        }
    }

    /// The offered frame, which a task was run on, is taken away, with what tasks wrote in L2.
    fn take_out(&self) {
        if self.written() && self.l2.filled.load(Relaxed) {
            let (frame, len) = (self.frame.load(Relaxed), self.frame_len.load(Relaxed));
            // SAFETY: `PacketLender::lend` lends these bytes, and what they are lent to has just run, so that nobody else looks at them.
            let _ = self.l2.bytes().copy_out(0, unsafe { slice::from_raw_parts_mut(frame, len) });
        }
        self.l2.filled.store(false, Relaxed);
    }

    /// Lends the offered frame.
    fn frame<R>(&self, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let frame = self.frame.load(Relaxed);
        if frame.is_null() || !ptr::eq(LENT_TO.get(), self) {
            return None;
        }
        // SAFETY: this thread offers to these windows, hence nobody else does: who offers has the slot borrowed alone.
        // `PacketLender::lend` has the only reference to these bytes, and writes them when what is run is over: this is part of that.
        Some(look(unsafe { slice::from_raw_parts(frame, self.frame_len.load(Relaxed)) }))
    }
}

/// The task to which this thread offers a frame is going to wait: it keeps the packet in L1 as it is, while what it wrote in L2 goes to
/// the frame.
pub(crate) fn keep_in_l1() {
    // SAFETY: an `PacketLender`, which is there as long as this is not null, borrows them.
    if let Some(windows) = unsafe { LENT_TO.get().as_ref() } {
        let _ = windows.touch(Level::L1, Access::Write);
    }
}

/// Start of a task to which a frame is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStart {
    /// The task is about to begin.
    New,
    /// The task was parked and is resumed.
    Resumed,
}

/// This thread offers frames to windows until it is dropped.
pub(crate) struct PacketLender<'w> {
    windows: &'w PacketWindows,
    /// What it offers them to otherwise: a task may run others.
    before: *const PacketWindows,
}

impl<'w> PacketLender<'w> {
    /// Frames are going to be offered to `windows`, by this thread alone as long as this is there.
    #[inline]
    pub(crate) fn new(windows: &'w PacketWindows) -> Self {
        Self { windows, before: LENT_TO.replace(windows) }
    }

    /// No frame is offered to tasks from now on.
    pub(crate) fn lend_nothing(&self) {
        self.windows.shown().set_len(0);
    }

    /// Offers `frame`, of which the windows show at most [`PACKET_WINDOW`] bytes, to a task that is run until the result is dropped. If it
    /// `reads` the packet in place it is told where that is.
    #[inline(always)]
    pub(crate) fn lend<'o>(&'o self, frame: &'o mut [u8], begun: TaskStart, reads: bool) -> PacketLease<'o> {
        let windows = self.windows;
        // Another offering may have been made since, and not be over.
        LENT_TO.set(windows);
        let len = frame.len().min(PACKET_WINDOW as usize);
        if reads {
            windows.show_at(frame.as_mut_ptr());
            windows.shown().set_len(len.min(windows.l1_len.load(Relaxed) as usize));
        }
        let used = windows.used.load(Relaxed) & COPIED;
        if used != 0 {
            windows.fill_used(used, &frame[..len], begun);
        }
        windows.frame_len.store(len, Relaxed);
        windows.frame.store(frame.as_mut_ptr(), Relaxed);
        PacketLease { windows, frame: PhantomData }
    }
}

impl Drop for PacketLender<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lend_nothing();
        LENT_TO.set(self.before);
    }
}

/// A frame is offered to windows until this is dropped, which it is to be.
#[must_use]
pub(crate) struct PacketLease<'o> {
    windows: &'o PacketWindows,
    frame: PhantomData<&'o mut [u8]>,
}

impl Drop for PacketLease<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // What was never used was never filled.
        if self.windows.is_used(READ | WRITTEN) {
            self.windows.take_out();
        }
        self.windows.frame.store(ptr::null_mut(), Relaxed);
    }
}
