//! Memory of an HPU slot: mapped for translated code, and as a view for all other accesses.

use std::sync::Arc;

use spin_abi::map::{PACKET_WINDOW, PAGE};

use super::budget::SpacePermit;
use super::error::SpaceError;
use super::layout::{Layout, Mapping};
use super::packet::{Level, PacketLender, PacketWindow, PacketWindows, TaskStart};
use super::region::Region;
use super::window::Window;
use crate::address::{Access, RegionKind};
use crate::view::{Memory, Range, View};

/// Guest memory: regions mapped at guest addresses, and the [`View`] of their exact bytes.
///
/// Made once, off the packet path; a task only changes the packets' lengths.
#[derive(Debug)]
pub struct Space {
    view: View<'static>,
    /// In a box, since running code refers to it.
    layout: Box<Layout>,
    packet: Option<Arc<PacketWindows>>,
    /// Bytes of the L2 window that the view has.
    l2_len: u32,
    _permit: SpacePermit,
}

impl Space {
    /// Reserves the addresses without mapping anything.
    ///
    /// # Errors
    /// [`SpaceError::Full`], [`SpaceError::System`].
    pub fn new() -> Result<Self, SpaceError> {
        let permit = SpacePermit::take()?;
        Ok(Self { view: View::new(), layout: Box::new(Layout::new()?), packet: None, l2_len: 0, _permit: permit })
    }

    /// Maps `len` bytes at `offset` of `region` at `guest_base`. The view contains exactly these bytes; translated code
    /// can also access the rest of their pages. Two ranges may share a page if both map it to the same memory; it is
    /// then writable if one of them is. Zero bytes have no effect.
    ///
    /// # Errors
    /// See [`SpaceError`]. After a [`SpaceError::System`] nothing may run in the space; after other errors it is
    /// unchanged.
    pub fn map(
        &mut self,
        kind: RegionKind,
        guest_base: u32,
        region: &Arc<Region>,
        offset: u32,
        len: u32,
        access: Access,
    ) -> Result<(), SpaceError> {
        if len == 0 {
            return Ok(());
        }
        let outside = SpaceError::Outside { offset, len, region: region.len() };
        let window = Window::new(region, offset, len, access).ok_or(outside)?;
        let mapping = Mapping::new(kind, guest_base, region, offset, len, access)?;
        self.view.check(kind, guest_base, len as usize)?;
        let window = self.layout.add(mapping, window).inspect_err(|error| {
            if matches!(error, SpaceError::System { .. }) {
                // The memory of other ranges may be gone.
                (self.view, self.packet) = (View::new(), None);
            }
        })?;
        self.push(Range { kind, base: guest_base, memory: Memory::Shared(window) })
    }

    /// Maps the packet window of L2 at `guest_base`, the start of a page: [`PACKET_WINDOW`] bytes with the packet of
    /// [`Space::with_packet`].
    ///
    /// # Errors
    /// As [`Space::map`]; a space has one such window. After a [`SpaceError::Full`] a part of the window may be
    /// mapped.
    pub fn map_l2_packet(&mut self, guest_base: u32) -> Result<(), SpaceError> {
        self.map_l2_packet_in(guest_base, &Region::new(PACKET_WINDOW as usize)?, 0)
    }

    /// Maps the packet window of L2 at `offset` of `region`, to zeroed bytes without another user.
    ///
    /// # Errors
    /// As [`Space::map_l2_packet`].
    pub fn map_l2_packet_in(&mut self, guest_base: u32, region: &Arc<Region>, offset: u32) -> Result<(), SpaceError> {
        let window = self.window(RegionKind::L2Packet, guest_base, region, offset)?;
        self.map_windows(None, (guest_base, window))
    }

    /// Maps the packet windows of both levels: `l1` and `l2` are the guest address of each and its offset in `region`.
    /// In L1 tasks have a copy of their own, whose length [`Space::set_len`] sets for [`RegionKind::Packet`].
    ///
    /// # Errors
    /// As [`Space::map_l2_packet`].
    pub fn map_packet_in(&mut self, region: &Arc<Region>, l1: (u32, u32), l2: (u32, u32)) -> Result<(), SpaceError> {
        let window = |kind, (base, offset)| Ok::<_, SpaceError>((base, self.window(kind, base, region, offset)?));
        let (l1, l2) = (window(RegionKind::Packet, l1)?, window(RegionKind::L2Packet, l2)?);
        self.map_windows(Some(l1), l2)
    }

    fn window(
        &self,
        kind: RegionKind,
        base: u32,
        region: &Arc<Region>,
        offset: u32,
    ) -> Result<PacketWindow, SpaceError> {
        if !(base | offset).is_multiple_of(PAGE) {
            return Err(SpaceError::Misaligned { kind, base, offset });
        }
        let outside = SpaceError::Outside { offset, len: PACKET_WINDOW, region: region.len() };
        self.layout.packet_window(base, region, offset).ok_or(outside)
    }

    fn map_windows(
        &mut self,
        l1: Option<(u32, PacketWindow)>,
        (l2_base, l2): (u32, PacketWindow),
    ) -> Result<(), SpaceError> {
        let l1_base = l1.as_ref().map(|(base, _)| *base);
        let bases = [
            l1_base.map(|base| (RegionKind::Packet, Level::L1, base)),
            Some((RegionKind::L2Packet, Level::L2, l2_base)),
        ];
        let bases = bases.into_iter().flatten();
        bases.clone().try_for_each(|(kind, _, base)| self.view.check(kind, base, PACKET_WINDOW as usize))?;
        let windows = Arc::new(PacketWindows::new(l1, l2));
        self.layout.add_packet(&windows, l1_base.unwrap_or(0), l2_base)?;
        self.packet = Some(windows.clone());
        // The window that is searched most often comes first.
        for (kind, level, base) in bases.rev() {
            self.push(Range { kind, base, memory: Memory::packet(windows.clone(), level) })?;
        }
        self.set_len(RegionKind::L2Packet, 0)
    }

    fn push(&mut self, range: Range<'static>) -> Result<(), SpaceError> {
        self.view.push(range)?;
        self.layout.set_addresses(self.view.addresses());
        Ok(())
    }

    /// Maps `size` bytes of the cluster's L1 at `cluster_l1_base` in the alias window too, including regions mapped
    /// there later. Both are multiples of a page.
    ///
    /// # Errors
    /// As [`Space::map`]; a space has one alias.
    pub fn set_l1_alias(&mut self, cluster_l1_base: u32, size: u32) -> Result<(), SpaceError> {
        self.layout.add_alias(cluster_l1_base, size)?;
        self.view.set_l1_alias(cluster_l1_base, size);
        Ok(())
    }

    /// Makes the task registers at `task_guest_base` visible to the view at their addresses in the driver page too.
    /// Translated code handles this alias itself.
    pub fn set_task_alias(&mut self, task_guest_base: u32) {
        self.view.set_task_alias(task_guest_base);
        self.layout.set_addresses(self.view.addresses());
    }

    /// Sets the length of the (first) range of a kind, at most the mapped length.
    ///
    /// # Errors
    /// [`SpaceError::NoRoom`].
    #[inline]
    pub fn set_len(&mut self, kind: RegionKind, len: u32) -> Result<(), SpaceError> {
        self.view.set_len(kind, len).ok_or(SpaceError::NoRoom { kind, len })?;
        match (kind, &self.packet) {
            (RegionKind::L2Packet, _) => self.l2_len = len,
            (RegionKind::Packet, Some(windows)) => windows.set_l1_len(len),
            _ => {}
        }
        Ok(())
    }

    /// Runs a task with up to [`PACKET_WINDOW`] bytes of `packet` in the windows. The packet is copied to a window on
    /// the task's first access there, or at once if earlier tasks accessed that window. After the task the L2 content
    /// is copied back to `packet` if it may have been changed. Bytes left behind the packet by a longer one are
    /// cleared. A parked task is [resumed](TaskStart::Resumed) with its own content in L1.
    ///
    /// The task gets the space's parts, as from [`Space::parts`].
    #[inline]
    pub fn with_packet<R>(
        &mut self,
        packet: &mut [u8],
        start: TaskStart,
        task: impl FnOnce(&Layout, &mut View<'static>) -> R,
    ) -> R {
        #[allow(clippy::cast_possible_truncation, reason = "it is at most the window's length")]
        let len = packet.len().min(PACKET_WINDOW as usize) as u32;
        if self.l2_len != len {
            self.fit_l2(len);
        }
        let (layout, view) = (&*self.layout, &mut self.view);
        let lender = self.packet.as_deref().map(PacketLender::new);
        let lease = lender.as_ref().map(|lender| lender.lend(packet, start, true));
        let result = task(layout, view);
        drop(lease);
        result
    }

    /// Sets the length of the L2 window, at most [`PACKET_WINDOW`]. The rest of the former packet needs no clearing: no
    /// access finds a packet while none is lent.
    pub(crate) fn fit_l2(&mut self, len: u32) {
        if self.packet.is_some() {
            self.l2_len = len;
            // The window was added with this maximum length.
            let _ = self.view.set_len(RegionKind::L2Packet, len);
        }
    }

    /// The packet's windows.
    pub(crate) fn packet(&self) -> Option<&PacketWindows> {
        self.packet.as_deref()
    }

    #[cfg(test)]
    pub(crate) fn l2_read(&self) -> bool {
        self.packet().is_some_and(|windows| windows.has_use(super::packet::L2_READ))
    }

    #[cfg(test)]
    pub(crate) fn l2_written(&self) -> bool {
        self.packet().is_some_and(|windows| windows.has_use(super::packet::L2_WRITTEN))
    }

    /// Returns the view of the exact bytes.
    #[inline]
    pub const fn view(&mut self) -> &mut View<'static> {
        &mut self.view
    }

    /// Returns the layout that translated code uses, and the view of the same memory.
    pub const fn parts(&mut self) -> (&Layout, &mut View<'static>) {
        (&self.layout, &mut self.view)
    }

    /// Returns the host address of guest address 0. Accesses within the 4 GiB, [`GUARD_BELOW`](super::GUARD_BELOW)
    /// bytes before and [`GUARD_ABOVE`](super::GUARD_ABOVE) bytes after reach mapped memory or end as SIGSEGV, as long
    /// as the space lives.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.layout.base()
    }

    /// Copies `from` to `address`; `None` and no effect when a task could not write all of it.
    pub fn copy_in(&mut self, address: u32, from: &[u8]) -> Option<()> {
        self.view.copy_in(address, from)
    }

    /// Fills `to` from `address`; `None` and no effect when a task could not read all of it.
    pub fn copy_out(&self, address: u32, to: &mut [u8]) -> Option<()> {
        self.view.copy_out(address, to)
    }

    /// Zeroes `len` bytes at `address`; `None` and no effect when a task could not write all of them.
    pub fn clear(&mut self, address: u32, len: u32) -> Option<()> {
        self.view.clear(address, len)
    }
}
