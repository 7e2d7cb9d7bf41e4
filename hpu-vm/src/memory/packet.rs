//! The packet's windows in L1 and L2. Few handlers access both and many access neither, so the packet is copied by the
//! first access.
//!
//! A frame is [lent](PacketLender) to the windows of an HPU for the duration of one task. An access to a window copies
//! the frame into it, and the window permanently remembers that its handlers use it: later frames are copied at once.
//! The two copies are independent. Changes in L2 are copied back when the task ends, so that they are visible to the
//! frame's next user. Changes in L1 are private to the task. Until the first change the frame and a copy of it in L1
//! are equal, and translated code reads the frame [in place](PacketSource).
//!
//! Only the lending thread knows that a frame is lent, so no view kept elsewhere can follow a pointer to a released
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
    /// The windows to which this thread lends frames, or null.
    // Signal handlers read it too: constant at first and never dropped, so an access never allocates.
    static LENT_TO: Cell<*const PacketWindows> = const { Cell::new(ptr::null()) };
}

/// Which copy of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// The task's own copy: as many bytes as its context asked for.
    L1,
    /// The copy that becomes the frame when the task has ended.
    L2,
}

/// One of the windows: [`PACKET_WINDOW`] bytes of a region.
#[derive(Debug)]
pub(super) struct PacketWindow {
    /// All bytes at the region's own host addresses, writable.
    in_region: Window,
    /// All bytes at the host addresses where tasks see them. Used once these are
    /// [writable](PacketWindow::use_guest_addresses).
    in_guest: Window,
    /// Accesses go to `in_guest`.
    at_guest: AtomicBool,
    region: Arc<Region>,
    /// Offset in the region.
    offset: u32,
    /// Length of the frame that was copied in last.
    filled_len: AtomicU32,
    /// The frame lent now is in the window.
    filled: AtomicBool,
}

impl PacketWindow {
    /// Makes a window of the bytes at `offset` of `region`, which are zero. `in_region` and `in_guest` are these bytes
    /// at the region's host addresses, and at those where tasks see them.
    pub(super) fn new(region: &Arc<Region>, offset: u32, in_region: Window, in_guest: Window) -> Self {
        let (region, filled_len) = (region.clone(), AtomicU32::new(0));
        let (at_guest, filled) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { in_region, in_guest, at_guest, region, offset, filled_len, filled }
    }

    pub(super) const fn region(&self) -> &Arc<Region> {
        &self.region
    }

    pub(super) const fn offset(&self) -> u32 {
        self.offset
    }

    /// Notes that the window is mapped writable where tasks see it, as long as its space lives. Async-signal-safe.
    pub(super) fn use_guest_addresses(&self) {
        self.at_guest.store(true, Relaxed);
    }

    /// The bytes at the host addresses where tasks access them, if these are writable: see [`Window::at_guest`].
    #[inline(always)]
    fn bytes(&self) -> &Window {
        if self.at_guest.load(Relaxed) { &self.in_guest } else { &self.in_region }
    }

    /// Copies in the visible part of a frame, and clears the rest of a longer former one, which others must not read.
    #[inline(always)]
    fn fill_from(&self, frame: &[u8]) -> Option<()> {
        self.bytes().copy_in(0, frame)?;
        // At most the window's length.
        let len = frame.len() as u32;
        if self.filled_len.load(Relaxed) != len {
            self.clear_behind(len)?;
        }
        self.filled.store(true, Relaxed);
        Some(())
    }

    /// Clears the rest of a former frame longer than `len`.
    #[cold]
    fn clear_behind(&self, len: u32) -> Option<()> {
        // Only this thread fills the window.
        let before = self.filled_len.load(Relaxed);
        self.filled_len.store(len, Relaxed);
        self.region.clear((self.offset + len) as usize, before.saturating_sub(len) as usize)
    }
}

/// Location where translated code reads the packet in L1: the frame, or the window once the packet is in it.
#[derive(Debug)]
#[repr(C)]
pub struct PacketSource {
    /// Host address of the packet less its guest address in L1.
    pub base: AtomicPtr<u8>,
    /// Number of readable bytes; 0 when no frame is lent.
    pub len: AtomicUsize,
    /// Number of offsets at which a complete word can be read.
    pub words: AtomicUsize,
}

/// Location of windows that no translated code reads.
static UNUSED_SOURCE: PacketSource = PacketSource::nothing();

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

/// The windows of an HPU, and how its tasks have used them.
// The fields that each task reads share a cache line with nothing else.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct PacketWindows {
    /// See [`PacketWindows::set_source`].
    source: AtomicPtr<PacketSource>,
    /// The frame that is lent now, or null; for the lending thread only, see [`LENT_TO`].
    frame: AtomicPtr<u8>,
    /// Length of the frame that was lent last.
    frame_len: AtomicUsize,
    /// Guest address of the window in L1.
    l1_base: u32,
    /// Maximum number of bytes of a frame that are visible in L1.
    l1_len: AtomicU32,
    /// [`L1_USED`], [`L2_READ`], [`L2_WRITTEN`], [`FORWARDED`].
    used: AtomicU8,
    /// `None` in a space with the packet in L2 only.
    pub(super) l1: Option<PacketWindow>,
    pub(super) l2: PacketWindow,
}

/// A task read the packet in L2.
pub(super) const L2_READ: u8 = 1;
/// A task wrote the packet in L2.
pub(super) const L2_WRITTEN: u8 = 2;
/// A task used the packet in L1.
const L1_USED: u8 = 4;
/// Uses for which later frames are copied to a window before their task begins.
const COPIED: u8 = L2_READ | L2_WRITTEN | L1_USED;
/// A command copied from a frame that is in no window.
const FORWARDED: u8 = 8;

impl PacketWindows {
    /// Makes the windows; the one in L1 has its guest address.
    pub(super) fn new(l1: Option<(u32, PacketWindow)>, l2: PacketWindow) -> Self {
        let (l1_base, l1) = l1.map_or((0, None), |(base, window)| (base, Some(window)));
        let (l1_len, used) = (AtomicU32::new(PACKET_WINDOW), AtomicU8::new(0));
        let (frame, frame_len) = (AtomicPtr::new(ptr::null_mut()), AtomicUsize::new(0));
        let source = AtomicPtr::new((&raw const UNUSED_SOURCE).cast_mut());
        Self { l1, l2, l1_base, source, l1_len, used, frame, frame_len }
    }

    /// Sets the location that is updated from now on for readers of the packet in L1.
    ///
    /// # Safety
    /// `source` stays valid as long as frames are lent.
    pub(crate) unsafe fn set_source(&self, source: &PacketSource) {
        self.source.store(ptr::from_ref(source).cast_mut(), Relaxed);
    }

    #[inline(always)]
    fn source(&self) -> &PacketSource {
        // SAFETY: valid by the contract of `set_source`, or static. All fields are atomics.
        unsafe { &*self.source.load(Relaxed) }
    }

    /// Sets the host address of the packet in L1.
    #[inline(always)]
    fn set_source_start(&self, at: *mut u8) {
        self.source().base.store(at.wrapping_sub(self.l1_base as usize), Relaxed);
    }

    /// Has the packet in L1 read from its window.
    fn set_source_window(&self, window: &PacketWindow) {
        if let Some(first) = window.bytes().first() {
            self.set_source_start(first);
        }
    }

    /// Whether tasks have used the packet in one of these ways.
    #[inline(always)]
    pub(super) fn has_use(&self, uses: u8) -> bool {
        self.used.load(Relaxed) & uses != 0
    }

    #[inline]
    fn note_use(&self, uses: u8) {
        if !self.has_use(uses) {
            self.used.fetch_or(uses, Relaxed);
        }
    }

    /// Returns the number of bytes of a frame that are likely to be copied, based on earlier frames, when at most
    /// `in_l1` are visible in L1.
    #[must_use]
    #[inline]
    pub fn expected_copy_len(&self, in_l1: usize) -> usize {
        match self.used.load(Relaxed) {
            0 => 0,
            L1_USED => in_l1,
            _ => PACKET_WINDOW as usize,
        }
    }

    /// Whether there is a window in L1.
    #[must_use]
    pub const fn has_l1(&self) -> bool {
        self.l1.is_some()
    }

    /// Sets how many bytes of later frames are visible in L1, up to [`PACKET_WINDOW`].
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

    /// Returns a window's bytes for an access, with the frame in them. `None` when no frame is lent. Async-signal-safe.
    pub(crate) fn touch(&self, level: Level, access: Access) -> Option<&Window> {
        let window = self.window(level)?;
        if !window.filled.load(Relaxed) {
            self.with_frame(|frame| window.fill_from(self.visible(level, frame)))??;
            if level == Level::L1 {
                self.set_source_window(window);
            }
        }
        let use_of_window = match (level, access) {
            (Level::L1, _) => L1_USED,
            (Level::L2, Access::Read) => L2_READ,
            (Level::L2, Access::Write) => L2_WRITTEN,
        };
        self.note_use(use_of_window);
        Some(window.bytes())
    }

    /// Fills `to` from the packet as tasks see it, without counting as an access.
    pub(crate) fn copy_out(&self, level: Level, offset: u32, to: &mut [u8]) -> Option<()> {
        let window = self.window(level)?;
        if window.filled.load(Relaxed) {
            return window.bytes().copy_out(offset, to);
        }
        self.with_frame_bytes(level, offset, to.len(), |from| to.copy_from_slice(from))
    }

    /// Calls `read` with `len` bytes of the packet where they arrived, if they are not copied to the window.
    pub(crate) fn with_frame_bytes<R>(
        &self,
        level: Level,
        offset: u32,
        len: usize,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        if self.window(level)?.filled.load(Relaxed) {
            return None;
        }
        self.note_use(FORWARDED);
        self.with_frame(|frame| Some(read(self.visible(level, frame).get(offset as usize..)?.get(..len)?)))?
    }

    /// The part of a frame that is visible in a window.
    #[inline]
    fn visible<'f>(&self, level: Level, frame: &'f [u8]) -> &'f [u8] {
        match level {
            Level::L1 => &frame[..frame.len().min(self.l1_len.load(Relaxed) as usize)],
            Level::L2 => frame,
        }
    }

    /// Copies a frame to L1 without a task, for readers of the memory.
    pub(crate) fn write_l1(&self, frame: &[u8]) {
        if let Some(window) = &self.l1 {
            let filled = window.fill_from(self.visible(Level::L1, frame));
            debug_assert!(filled.is_some(), "the visible part fits the window");
            // No lent frame is in the window.
            window.filled.store(false, Relaxed);
        }
    }

    /// Copies a frame that is about to be lent to the windows that earlier tasks used. A
    /// [resumed](TaskStart::Resumed) task keeps its own content in L1. Not inlined: loops over tasks that use no window
    /// need the registers.
    #[inline(never)]
    fn fill_used(&self, used: u8, frame: &[u8], start: TaskStart) {
        if let Some(window) = &self.l1
            && used & L1_USED != 0
        {
            if start == TaskStart::New {
                let _ = window.fill_from(self.visible(Level::L1, frame));
            }
            self.set_source_window(window);
        }
        if used & (L2_READ | L2_WRITTEN) != 0 {
            debug_assert!(!self.l2.filled.load(Relaxed), "the former frame was written back");
            let _ = self.l2.fill_from(frame);
        }
    }

    /// Copies changes in L2 back to the lent frame after its task.
    fn write_back(&self) {
        if self.has_use(L2_WRITTEN) && self.l2.filled.load(Relaxed) {
            let (frame, len) = (self.frame.load(Relaxed), self.frame_len.load(Relaxed));
            // SAFETY: `PacketLender::lend` borrowed these bytes exclusively, and the task that read them has ended.
            let _ = self.l2.bytes().copy_out(0, unsafe { slice::from_raw_parts_mut(frame, len) });
        }
        self.l2.filled.store(false, Relaxed);
    }

    /// Calls `read` with the lent frame.
    fn with_frame<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let frame = self.frame.load(Relaxed);
        if frame.is_null() || !ptr::eq(LENT_TO.get(), self) {
            return None;
        }
        // SAFETY: this thread lends to these windows, and a lender borrows its slot exclusively, so no other does.
        // `PacketLender::lend` has the only reference to these bytes, and writes them only after the task, which this
        // call is part of.
        Some(read(unsafe { slice::from_raw_parts(frame, self.frame_len.load(Relaxed)) }))
    }
}

/// Prepares the task to which this thread lends a frame to be parked: the task keeps its packet in L1. Its changes in
/// L2 go to the frame.
pub(crate) fn keep_in_l1() {
    // SAFETY: a `PacketLender` borrows the windows as long as the pointer is not null.
    if let Some(windows) = unsafe { LENT_TO.get().as_ref() } {
        let _ = windows.touch(Level::L1, Access::Write);
    }
}

/// Start of a task to which a frame is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStart {
    /// The task is about to begin.
    New,
    /// The task was parked and is resumed.
    Resumed,
}

/// Lends frames of this thread to windows, until it is dropped.
pub(crate) struct PacketLender<'w> {
    windows: &'w PacketWindows,
    /// The windows of the enclosing lender, or null: a task may run others.
    outer: *const PacketWindows,
}

impl<'w> PacketLender<'w> {
    /// Begins to lend frames to `windows`, to which no other thread lends meanwhile.
    #[inline]
    pub(crate) fn new(windows: &'w PacketWindows) -> Self {
        Self { windows, outer: LENT_TO.replace(windows) }
    }

    /// Leaves the next tasks without a frame.
    pub(crate) fn lend_nothing(&self) {
        self.windows.source().set_len(0);
    }

    /// Lends `frame` to a task that runs until the lease is dropped. At most [`PACKET_WINDOW`] bytes are visible in the
    /// windows. If the task `reads` the packet in place, the location is updated for it.
    #[inline(always)]
    pub(crate) fn lend<'o>(&'o self, frame: &'o mut [u8], start: TaskStart, reads: bool) -> PacketLease<'o> {
        let windows = self.windows;
        // Another lender may have been made since, and still exist.
        LENT_TO.set(windows);
        let len = frame.len().min(PACKET_WINDOW as usize);
        if reads {
            windows.set_source_start(frame.as_mut_ptr());
            windows.source().set_len(len.min(windows.l1_len.load(Relaxed) as usize));
        }
        let used = windows.used.load(Relaxed) & COPIED;
        if used != 0 {
            windows.fill_used(used, &frame[..len], start);
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
        LENT_TO.set(self.outer);
    }
}

/// A frame that is lent to windows until the lease is dropped. The lease must not be forgotten.
#[must_use]
pub(crate) struct PacketLease<'o> {
    windows: &'o PacketWindows,
    frame: PhantomData<&'o mut [u8]>,
}

impl Drop for PacketLease<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // A window that was never used was never filled.
        if self.windows.has_use(L2_READ | L2_WRITTEN) {
            self.windows.write_back();
        }
        self.windows.frame.store(ptr::null_mut(), Relaxed);
    }
}
