//! Memory and registers of an HPU slot.
#![allow(unsafe_code, reason = "writes the task's description where it is mapped")]

use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use spin_abi::map::{HANDLER_ARGS, PACKET_WINDOW, TASK_BLOCK};
use spin_abi::regs::{TASK_END, TASK_FIRST};

use super::bounds::{Bounds, Range};
use super::code_memory::lookup;
use super::state::State;
use crate::hart::Hart;
use crate::inst::Reg;
use crate::memory::{PacketWindows, Space, SpaceError, TaskStart};
use crate::view::{RegionKind, View};

/// Content of the top of a task's stack: the task registers, and `handler_args_t`, to which a0 points.
#[derive(Clone, Debug)]
#[repr(C, align(32))]
pub struct TaskBlock {
    words: [u32; TASK_BLOCK as usize / 4],
}

impl TaskBlock {
    /// Makes the block of an HPU for a stack window that ends at guest address `stack_end`.
    #[must_use]
    pub const fn new(stack_end: u32, hpu_gid: u32, cluster: u32, hpu: u32) -> Self {
        let mut words = [0; TASK_BLOCK as usize / 4];
        let args = (TASK_BLOCK - HANDLER_ARGS) as usize / 4;
        words[args] = stack_end - TASK_BLOCK;
        (words[args + 1], words[args + 2], words[args + 3]) = (hpu_gid, cluster, hpu);
        Self { words }
    }

    /// Sets a task register, given by its offset in the driver page; other offsets are ignored.
    pub const fn set(&mut self, register: u32, value: u32) {
        if let Some(index) = Self::index(register) {
            self.words[index] = value;
        }
    }

    /// Writes the block to `place`, with other values for some of its registers (offset, value).
    ///
    /// # Safety
    /// The place is writable for a whole block, and nobody else uses it; [`at_once`] says what `copy` asks for.
    #[inline(always)]
    pub(super) unsafe fn write<const N: usize>(
        &self,
        place: *mut Self,
        copy: unsafe fn(&Self, *mut Self),
        other: [(u32, u32); N],
    ) {
        // SAFETY: as the caller says; registers are words of the block.
        unsafe {
            copy(self, place);
            for (register, value) in other {
                if let Some(index) = Self::index(register) {
                    (&raw mut (*place).words[index]).write_unaligned(value);
                }
            }
        }
    }

    #[inline(always)]
    const fn index(register: u32) -> Option<usize> {
        let at = register.wrapping_sub(TASK_FIRST);
        if at < TASK_END - TASK_FIRST { Some(at as usize / 4) } else { None }
    }
}

/// Whether the processor does what [`copy_at_once`] takes.
pub(super) fn at_once() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return std::arch::is_x86_feature_detected!("avx");
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    true
}

/// Copies a block, 32 bytes at a time where processors do: a short task has many stores, of which they do one or two in a cycle. What
/// handlers read first, `handler_args_t`, is stored by itself: some processors are slow to load from the upper half of 32 bytes that were
/// stored just before.
///
/// # Safety
/// [`at_once`] is true; `to` is writable for a block.
#[inline(always)]
pub(super) unsafe fn copy_at_once(from: &TaskBlock, to: *mut TaskBlock) {
    const { assert!(size_of::<TaskBlock>() == 96, "a block is two pieces of 32 bytes and two of 16") };
    // SAFETY: as the caller says. The upper halves are left as code without AVX expects them.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::asm!(
            "vmovups ymm0, [{from}]",
            "vmovups ymm1, [{from} + 32]",
            "vmovups xmm2, [{from} + 64]",
            "vmovups xmm3, [{from} + 80]",
            "vmovups [{to}], ymm0",
            "vmovups [{to} + 32], ymm1",
            "vmovups [{to} + 64], xmm2",
            "vmovups [{to} + 80], xmm3",
            "vzeroupper",
            from = in(reg) from,
            to = in(reg) to,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
            // `vzeroupper` takes the upper halves of all, which are in use where all of it is compiled for AVX.
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
            out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: as the caller says.
    unsafe {
        copy(from, to);
    }
}

/// Copies a block.
///
/// # Safety
/// `to` is writable for a block.
unsafe fn copy(from: &TaskBlock, to: *mut TaskBlock) {
    // SAFETY: as the caller says.
    unsafe { to.write_unaligned(from.clone()) };
}

/// Memory and registers of an HPU slot for the tasks of one context.
#[derive(Debug)]
pub struct Slot {
    space: Space,
    state: Box<State>,
    bounds: Bounds,
    /// Host address of the task's description; null when it has no place.
    block: *mut TaskBlock,
    /// Guest address and mapped bytes of the packet window in L1, if there is one.
    packet: Option<(u32, u32)>,
    /// Guest address of that in L2.
    l2_packet: Option<u32>,
    /// Bytes of it that bounds and space have.
    pub(super) l2_len: u32,
}

// SAFETY: all that its pointers lead to is its own (reservation, mappings, state, bounds) and bound to no thread. Those of
// the state to device and memory are followed during a run alone, which has the slot borrowed, and set anew by the next.
unsafe impl Send for Slot {}

impl Slot {
    /// Makes a slot of HPU `id`; `space` maps everything that its tasks may access.
    #[must_use]
    pub fn new(id: u32, mut space: Space) -> Self {
        let mut state = Box::new(State::new(id));
        let (layout, view) = space.parts();
        let places = layout.addresses();
        (state.base, state.layout, state.lookup) = (layout.base(), layout, lookup);
        (state.l1_base, state.l1_size) = (places.l1_base(), places.l1_size());
        state.task_base = places.task_base();
        let range = |(kind, base, len)| {
            let of_packet = matches!(kind, RegionKind::Packet | RegionKind::L2Packet);
            Range { base, len, writable: of_packet || view.writable(base, len) }
        };
        let bounds = Bounds::new(layout, &view.ranges().map(range).collect::<Vec<_>>());
        state.bounds = bounds.as_ptr();
        let window = |wanted| view.ranges().find(|(kind, ..)| *kind == wanted).map(|(_, base, len)| (base, len));
        let l2_packet = window(RegionKind::L2Packet).map(|(base, _)| base);
        let packet = window(RegionKind::Packet);
        let task = places.task_base();
        // The view may hold borrowed bytes too, which are not there.
        let place = |base: u32, len: u32| {
            let is_there = view.writable(base, len) && layout.writable(base, len);
            is_there.then(|| layout.base().wrapping_add(base as usize))
        };
        let block = Some(task).filter(|&task| task != 0).and_then(|task| place(task, TASK_BLOCK));
        let block = block.map_or(ptr::null_mut(), <*mut u8>::cast);
        state.packet = -i64::from(packet.map_or(0, |(base, _)| base));
        match space.packet().filter(|windows| windows.has_l1()) {
            // SAFETY: the slot has the state as long as the space, which alone offers frames.
            Some(windows) => unsafe { windows.set_source(&state.shown) },
            None => {
                state.shown.base.store(space.base(), Relaxed);
                state.shown.set_len(packet.map_or(0, |(_, len)| len as usize));
            }
        }
        Self { space, state, bounds, packet, block, l2_packet, l2_len: 0 }
    }

    /// Sets the number of bytes of the packet window in L1 that the next tasks may access.
    ///
    /// # Errors
    /// [`SpaceError::NoRoom`].
    #[inline]
    pub fn set_packet_len(&mut self, len: u32) -> Result<(), SpaceError> {
        self.space.set_len(RegionKind::Packet, len)?;
        if let Some((base, room)) = self.packet {
            self.bounds.resize(base, room, len);
        }
        if self.packet_windows().is_none_or(|windows| !windows.has_l1()) {
            self.state.shown.set_len(len as usize);
        }
        Ok(())
    }

    /// Writes a task's description to the top of the stack: `block`, with other values for some of its registers
    /// (offset in the driver page, value). Nothing is written if the layout has no place for it.
    ///
    /// Pass values that change from task to task in `other` rather than setting them in the block: copying bytes that
    /// were just written in smaller pieces is slow (store forwarding fails).
    #[inline]
    pub fn describe<const N: usize>(&mut self, block: &TaskBlock, other: [(u32, u32); N]) {
        if !self.block.is_null() {
            // SAFETY: the place was found to be writable memory of the space for a whole block; only the slot's own thread
            // and its tasks use the stack.
            unsafe { block.write(self.block, copy, other) };
        }
    }

    /// Copies a packet, or as much of it as tasks may see, to the window in L1 before a task accesses it there.
    pub fn show_in_l1(&self, packet: &[u8]) {
        if let Some(windows) = self.packet_windows() {
            windows.write_l1(packet);
        }
    }

    /// Host address of the task's description, if [`copy_at_once`] may write it; else null.
    #[inline]
    pub(super) fn block(&self) -> *mut TaskBlock {
        if at_once() { self.block } else { ptr::null_mut() }
    }

    /// Returns the packet's windows, if the space has some.
    #[inline]
    pub fn packet_windows(&self) -> Option<&PacketWindows> {
        self.space.packet()
    }

    /// Has it show `len`, at most [`PACKET_WINDOW`].
    #[cold]
    pub(super) fn fit_l2(&mut self, len: u32) {
        self.space.fit_l2(len);
        if let Some(base) = self.l2_packet {
            self.bounds.resize(base, PACKET_WINDOW, len);
        }
        self.l2_len = len;
    }

    /// What translated code knows.
    #[inline]
    pub(super) fn state(&mut self) -> &mut State {
        &mut self.state
    }

    /// Does something with the view while `packet` is in the windows, if the slot has some. Leaves the state alone.
    pub(super) fn with_packet<R>(
        &mut self,
        packet: &mut [u8],
        begun: TaskStart,
        run: impl FnOnce(&mut View<'static>) -> R,
    ) -> R {
        let len = packet.len().min(PACKET_WINDOW as usize) as u32;
        if self.l2_len != len {
            self.fit_l2(len);
        }
        self.space.with_packet(packet, begun, |_, view| run(view))
    }

    /// Returns the slot's memory.
    #[must_use]
    pub const fn space(&self) -> &Space {
        &self.space
    }

    /// Returns the view of the slot's exact bytes.
    pub const fn view(&mut self) -> &mut View<'static> {
        self.space.view()
    }

    /// Calls a function with the view while `packet` is in the windows: see [`Space::with_packet`].
    pub fn offer<R>(&mut self, packet: &mut [u8], task: impl FnOnce(&mut View<'static>) -> R) -> R {
        self.with_packet(packet, TaskStart::New, task)
    }

    /// Returns the handler's return value in a0. It is valid after a task that ended with [`crate::Exit::Returned`] in
    /// the interpreter or in a translation that stores it ([`super::Options::result`]).
    #[must_use]
    #[inline]
    pub const fn result(&self) -> u32 {
        self.state.hart.get(Reg::A0)
    }

    /// Returns the registers that the last task left. All of them are valid only after a task of the interpreter or of
    /// a translation that keeps them up to date.
    #[must_use]
    pub const fn hart(&self) -> &Hart {
        &self.state.hart
    }

    /// Borrows the registers for changes between tasks; the next task clears most of them, see [`Hart::begin`].
    pub const fn hart_mut(&mut self) -> &mut Hart {
        let hart = &mut self.state.hart;
        hart.use_vectors();
        hart
    }

    /// Whether a task was ended because its translation took a device for memory. It needs one with
    /// [`super::Options::any_device`].
    #[must_use]
    pub fn device_touched(&self) -> bool {
        self.state.device_touched.load(Relaxed) != 0
    }
}
