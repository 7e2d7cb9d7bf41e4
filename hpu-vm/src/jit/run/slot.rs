//! Memory and registers of an HPU slot.
#![allow(unsafe_code, reason = "writes task descriptors to guest memory")]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;

use spin_abi::map::{HANDLER_ARGS, PACKET_WINDOW, TASK_BLOCK};
use spin_abi::regs::{TASK_END, TASK_FIRST};
use spin_abi::unit::{UNIT_WORDS, UnitIndex};

use crate::hart::Hart;
use crate::inst::Reg;
use crate::jit::bounds::{Bounds, Range};
use crate::jit::code_memory::lookup;
use crate::jit::state::{GuestMemory, SignalTables, State};
use crate::memory::{PacketWindows, Space, SpaceError, TaskStart};
use crate::view::{RegionKind, View};

/// Content of the top of a task's stack: the task registers, and `handler_args_t`, to which a0 points.
#[derive(Clone, Debug)]
#[repr(C, align(32))]
pub struct TaskDescriptor {
    words: [u32; TASK_BLOCK as usize / 4],
}

impl TaskDescriptor {
    /// Makes the descriptor of an HPU for a stack window that ends at guest address `stack_end`.
    #[must_use]
    pub const fn new(stack_end: u32, hpu_gid: u32, cluster: u32, hpu: u32) -> Self {
        let mut words = [0; TASK_BLOCK as usize / 4];
        let args = (TASK_BLOCK - HANDLER_ARGS) as usize / 4;
        words[args] = stack_end - TASK_BLOCK;
        (words[args + 1], words[args + 2], words[args + 3]) = (hpu_gid, cluster, hpu);
        Self { words }
    }

    /// Says which unit the HPU is in.
    pub const fn set_unit(&mut self, unit: UnitIndex) {
        let at = UNIT_WORDS as usize / 4;
        [self.words[at], self.words[at + 1]] = unit.words();
    }

    /// Sets a task register, given by its offset in the driver page; other offsets are ignored.
    pub const fn set(&mut self, register: u32, value: u32) {
        if let Some(index) = Self::index(register) {
            self.words[index] = value;
        }
    }

    /// Writes the descriptor to `to`, with changed values for some of its registers (offset, value).
    ///
    /// # Safety
    /// `to` is writable for a descriptor, and only this thread accesses it. The preconditions of `copy` hold.
    #[inline(always)]
    unsafe fn write<const N: usize>(&self, to: *mut Self, copy: unsafe fn(&Self, *mut Self), changed: [(u32, u32); N]) {
        // SAFETY: the caller guarantees what `copy` needs. Each index is one of a word of the descriptor, which is
        // writable.
        unsafe {
            copy(self, to);
            for (register, value) in changed {
                if let Some(index) = Self::index(register) {
                    (&raw mut (*to).words[index]).write_unaligned(value);
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

/// Whether the processor has the instructions of [`copy_wide`].
fn has_wide_copy() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return std::arch::is_x86_feature_detected!("avx");
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    true
}

/// Copies a descriptor with AVX where available: processors complete one or two stores per cycle, and a short task has
/// many. `handler_args_t`, which handlers read first, is stored in pieces of 16 bytes: some processors are slow to load
/// from the upper half of a 32-byte store that is still in the store buffer.
///
/// # Safety
/// [`has_wide_copy`] is true; `to` is writable for a descriptor.
#[inline(always)]
unsafe fn copy_wide(from: &TaskDescriptor, to: *mut TaskDescriptor) {
    const { assert!(size_of::<TaskDescriptor>() == 96, "two pieces of 32 bytes and two of 16") };
    // SAFETY: the caller guarantees AVX and that `to` is writable; the pieces are the whole descriptor. `vzeroupper`
    // leaves the upper register halves as code without AVX expects them.
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
            // `vzeroupper` clears the upper halves of all registers. They are in use if the program is compiled for AVX.
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
            out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: `to` is writable, as the caller guarantees.
    unsafe {
        copy(from, to);
    }
}

/// Copies a descriptor.
///
/// # Safety
/// `to` is writable for a descriptor.
unsafe fn copy(from: &TaskDescriptor, to: *mut TaskDescriptor) {
    // SAFETY: `to` is writable, as the caller guarantees.
    unsafe { to.write_unaligned(from.clone()) };
}

/// Address of the task descriptors in a slot that lives for `'s`. The processor has the instructions of [`copy_wide`].
#[derive(Clone, Copy)]
pub(super) struct DescriptorAddress<'s> {
    address: NonNull<TaskDescriptor>,
    slot: PhantomData<&'s Slot>,
}

impl DescriptorAddress<'_> {
    /// Writes a descriptor between two tasks: see [`Slot::describe`].
    #[inline(always)]
    pub(super) fn write<const N: usize>(self, descriptor: &TaskDescriptor, changed: [(u32, u32); N]) {
        // SAFETY: `Slot::new` checked that this is writable memory of the space for a descriptor. Only the slot's thread
        // and its tasks use the stack. `Slot::descriptor_address` checked the processor.
        unsafe { descriptor.write(self.address.as_ptr(), copy_wide, changed) };
    }
}

/// Memory and registers of an HPU slot for the tasks of one context.
#[derive(Debug)]
pub struct Slot {
    space: Space,
    state: Box<State>,
    bounds: Bounds,
    /// Host address of task descriptors; null if the layout has no place for them.
    descriptor: *mut TaskDescriptor,
    /// Guest address and mapped bytes of the packet window in L1, if there is one.
    packet: Option<(u32, u32)>,
    /// Guest address of the packet window in L2.
    l2_packet: Option<u32>,
    /// Bytes of the packet window in L2 that bounds and space allow.
    pub(super) l2_len: u32,
}

// SAFETY: its pointers lead to the slot's own reservation, mappings, state and bounds, which are bound to no thread. The
// state's pointers to device, view and host memory are followed only while the slot is bound, and set again by the next
// `bind`.
unsafe impl Send for Slot {}

impl Slot {
    /// Makes a slot of HPU `id`; `space` maps everything that its tasks may access.
    #[must_use]
    pub fn new(id: u32, mut space: Space) -> Self {
        let mut state = Box::new(State::new(id));
        let (layout, view) = space.parts();
        let places = layout.addresses();
        state.signals = SignalTables { layout, lookup };
        let range = |(kind, base, len)| {
            let of_packet = matches!(kind, RegionKind::Packet | RegionKind::L2Packet);
            Range { base, len, writable: of_packet || view.writable(base, len) }
        };
        let bounds = Bounds::new(layout, &view.ranges().map(range).collect::<Vec<_>>());
        state.memory = GuestMemory {
            base: layout.base(),
            bounds: bounds.as_ptr(),
            task_base: places.task_base(),
            l1_base: places.l1_base(),
            l1_size: places.l1_size(),
        };
        let window = |wanted| view.ranges().find(|(kind, ..)| *kind == wanted).map(|(_, base, len)| (base, len));
        let l2_packet = window(RegionKind::L2Packet).map(|(base, _)| base);
        let packet = window(RegionKind::Packet);
        let task = places.task_base();
        // The view may also hold borrowed bytes, which are not mapped at their guest address: the layout knows that.
        let has_descriptor = task != 0 && view.writable(task, TASK_BLOCK) && layout.writable(task, TASK_BLOCK);
        let descriptor =
            if has_descriptor { layout.base().wrapping_add(task as usize).cast() } else { ptr::null_mut() };
        state.packet.negated_address = -i64::from(packet.map_or(0, |(base, _)| base));
        match space.packet().filter(|windows| windows.has_l1()) {
            // SAFETY: the slot keeps the state as long as the space, and only the space lends frames to these windows.
            Some(windows) => unsafe { windows.set_source(&state.packet.source) },
            None => {
                state.packet.source.base.store(space.base(), Relaxed);
                state.packet.source.set_len(packet.map_or(0, |(_, len)| len as usize));
            }
        }
        Self { space, state, bounds, packet, descriptor, l2_packet, l2_len: 0 }
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
            self.state.packet.source.set_len(len as usize);
        }
        Ok(())
    }

    /// Writes a task's descriptor to the top of the stack, with changed values for some of its registers (offset in the
    /// driver page, value). Nothing is written if the layout has no place for it.
    ///
    /// Pass values that change from task to task in `changed` rather than setting them in the descriptor: copying bytes
    /// that were just written in smaller pieces is slow (store forwarding fails).
    #[inline]
    pub fn describe<const N: usize>(&mut self, descriptor: &TaskDescriptor, changed: [(u32, u32); N]) {
        if !self.descriptor.is_null() {
            // SAFETY: `Slot::new` checked that this is writable memory of the space for a descriptor. Only the slot's
            // thread and its tasks use the stack.
            unsafe { descriptor.write(self.descriptor, copy, changed) };
        }
    }

    /// Copies the part of a packet that tasks may access to the window in L1, before a task accesses it there.
    pub fn show_in_l1(&self, packet: &[u8]) {
        if let Some(windows) = self.packet_windows() {
            windows.write_l1(packet);
        }
    }

    /// Address of task descriptors, if there is one and [`copy_wide`] may write them.
    #[inline]
    pub(super) fn descriptor_address(&self) -> Option<DescriptorAddress<'_>> {
        let address = NonNull::new(self.descriptor).filter(|_| has_wide_copy())?;
        Some(DescriptorAddress { address, slot: PhantomData })
    }

    /// Returns the packet's windows, if the space has some.
    #[inline]
    pub fn packet_windows(&self) -> Option<&PacketWindows> {
        self.space.packet()
    }

    /// Sets the number of bytes of the packet window in L2 that tasks may access, at most [`PACKET_WINDOW`].
    #[cold]
    pub(super) fn set_l2_len(&mut self, len: u32) {
        self.space.fit_l2(len);
        if let Some(base) = self.l2_packet {
            self.bounds.resize(base, PACKET_WINDOW, len);
        }
        self.l2_len = len;
    }

    /// State shared with translated code.
    #[inline]
    pub(super) fn state(&mut self) -> &mut State {
        &mut self.state
    }

    /// Calls a function with the view while `packet` is in the slot's windows. Does not access the state.
    pub(super) fn with_packet<R>(
        &mut self,
        packet: &mut [u8],
        begun: TaskStart,
        run: impl FnOnce(&mut View<'static>) -> R,
    ) -> R {
        let len = packet.len().min(PACKET_WINDOW as usize) as u32;
        if self.l2_len != len {
            self.set_l2_len(len);
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
    /// the interpreter or in a translation that stores it ([`Options::result`](crate::jit::Options::result)).
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

    /// Whether a task was ended because its translation took a device for memory. It needs a translation with
    /// [`Options::any_device`](crate::jit::Options::any_device).
    #[must_use]
    pub fn device_touched(&self) -> bool {
        self.state.device_touched.load(Relaxed) != 0
    }
}
