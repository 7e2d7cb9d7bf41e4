//! Regions mapped into 4 GiB of reserved addresses, and the meaning of a refused access.
#![allow(unsafe_code, reason = "maps memory")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use arrayvec::ArrayVec;
use rustix::mm::{MprotectFlags, ProtFlags};
use spin_abi::fault::Cause;
use spin_abi::map::{L1_ALIAS, PACKET_WINDOW, PAGE};

use super::error::{SpaceError, failed};
use super::packet::{Level, PacketWindow, PacketWindows};
use super::region::Region;
use super::reservation::{Pages, Reservation};
use super::window::Window;
use crate::address::{Access, AddressMap, RegionKind, is_device};

/// Pages of a region at a guest address.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    kind: RegionKind,
    base: u32,
    pages: Pages,
    access: Access,
    /// A window of the packet, which is inaccessible until the packet is in it.
    closed: bool,
}

impl Mapping {
    /// The pages around `len` (not 0) bytes at `offset` of `region`, for guest address `base`.
    pub(super) fn new(
        kind: RegionKind,
        base: u32,
        region: &Arc<Region>,
        offset: u32,
        len: u32,
        access: Access,
    ) -> Result<Self, SpaceError> {
        let lead = base % PAGE;
        if offset % PAGE != lead {
            return Err(SpaceError::Misaligned { kind, base, offset });
        }
        let end = base.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE));
        let end = end.filter(|&end| base >= PAGE && end <= u32::MAX - (PAGE - 1));
        let end = end.ok_or(SpaceError::Reserved { kind, base, len })?;
        let base = base - lead;
        let pages = Pages { region: region.clone(), offset: offset - lead, len: end - base };
        Ok(Self { kind, base, pages, access, closed: false })
    }

    const fn end(&self) -> u32 {
        self.base + self.pages.len
    }

    /// The part at guest addresses `from` to `to`; `None` if it is empty.
    fn part(&self, from: u32, to: u32) -> Option<Self> {
        let (from, to) = (from.max(self.base), to.min(self.end()));
        let offset = self.pages.offset + from.checked_sub(self.base)?;
        let len = to.checked_sub(from).filter(|&len| len > 0)?;
        Some(Self { base: from, pages: Pages { region: self.pages.region.clone(), offset, len }, ..*self })
    }

    /// Whether each address that both map has one byte in both.
    fn maps_same_bytes(&self, other: &Self) -> bool {
        let shift = |mapping: &Self| mapping.base.wrapping_sub(mapping.pages.offset);
        Arc::ptr_eq(&self.pages.region, &other.pages.region) && shift(self) == shift(other)
    }
}

/// Pages of a window of the packet, and which accesses they allow.
#[derive(Debug)]
struct PacketPages {
    level: Level,
    base: u32,
    readable: AtomicBool,
    writable: AtomicBool,
}

impl PacketPages {
    const fn new(level: Level, base: u32) -> Self {
        Self { level, base, readable: AtomicBool::new(false), writable: AtomicBool::new(false) }
    }

    /// Allows an access of translated code. Returns whether the access may be repeated. Async-signal-safe.
    fn open(&self, access: Access, layout: &Layout) -> bool {
        let (is_open, protection) = match (self.level, access) {
            (Level::L2, Access::Read) => (&self.readable, MprotectFlags::READ),
            // Writable at once for later accesses: L1 is never copied back, so nobody asks whether it was written.
            (Level::L1, _) | (Level::L2, Access::Write) => (&self.writable, MprotectFlags::READ | MprotectFlags::WRITE),
        };
        let Some(windows) = &layout.packet else { return false };
        // A fault of open pages has another reason, and would be repeated without end.
        if is_open.load(Relaxed) || windows.touch(self.level, access).is_none() {
            return false;
        }
        let addresses = [Some(self.base), layout.addresses.in_l1_alias(self.base)];
        let protect = |base| layout.reservation.protect(base, PACKET_WINDOW, protection);
        if addresses.into_iter().flatten().try_for_each(protect).is_err() {
            return false;
        }
        if let Some(window) = windows.window(self.level).filter(|_| protection.contains(MprotectFlags::WRITE)) {
            window.use_guest_addresses();
        }
        self.readable.store(true, Relaxed);
        is_open.store(true, Relaxed);
        true
    }
}

/// Meaning of a refused access of translated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultOutcome {
    /// The access may be repeated.
    Retry,
    /// The access is one to a device.
    Device,
    /// The access ends the task.
    Fault(Cause),
}

/// Guest memory as accessed by translated code, made by a [`Space`](super::Space).
#[derive(Debug)]
pub struct Layout {
    reservation: Arc<Reservation>,
    mappings: Vec<Mapping>,
    addresses: AddressMap,
    packet: Option<Arc<PacketWindows>>,
    /// Pages of the packet's windows.
    packet_pages: ArrayVec<PacketPages, 2>,
}

impl Layout {
    pub(super) fn new() -> Result<Self, SpaceError> {
        Ok(Self {
            reservation: Arc::new(Reservation::new()?),
            mappings: Vec::new(),
            addresses: AddressMap::default(),
            packet: None,
            packet_pages: ArrayVec::new(),
        })
    }

    /// Returns the host address of guest address 0.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.reservation.at(0).cast()
    }

    /// Aliases and the stack.
    pub(crate) const fn addresses(&self) -> &AddressMap {
        &self.addresses
    }

    /// Sets stack and task registers as in `addresses`. The alias of L1 stays as it is mapped.
    pub(super) const fn set_addresses(&mut self, mut addresses: AddressMap) {
        addresses.set_l1(self.addresses.l1_base(), self.addresses.l1_size());
        self.addresses = addresses;
    }

    /// Whether `len` bytes at `base` are permanently mapped for stores.
    pub(crate) fn writable(&self, base: u32, len: u32) -> bool {
        let permanent = |mapping: &&Mapping| mapping.access == Access::Write && !mapping.closed;
        let contains =
            |mapping: &Mapping| mapping.base <= base && base.checked_add(len).is_some_and(|end| end <= mapping.end());
        self.mappings.iter().filter(permanent).any(contains)
    }

    /// The guest address that translated code computed for host address `host`; `None` outside of the reservation.
    pub(crate) fn guest_address(&self, host: usize) -> Option<u32> {
        self.reservation.guest_address(host)
    }

    /// Handles a fault of an access at `address`. Opens a window of the packet if the access may be repeated then.
    /// Async-signal-safe.
    pub(crate) fn resolve_fault(&self, address: u32, access: Access) -> FaultOutcome {
        if is_device(address) {
            return FaultOutcome::Device;
        }
        let canonical = self.addresses.canonical(address, 1);
        let window = self.packet_pages.iter().find(|window| canonical.wrapping_sub(window.base) < PACKET_WINDOW);
        if window.is_some_and(|window| window.open(access, self)) {
            return FaultOutcome::Retry;
        }
        FaultOutcome::Fault(match access {
            _ if self.addresses.below_stack(address) => Cause::StackOverflow,
            Access::Read => Cause::LoadAccess,
            Access::Write => Cause::StoreAccess,
        })
    }

    /// Adds a mapping, also to the alias window if it lies in the L1 of that. `window` has the mapping's bytes and
    /// access; the result accesses them at the guest's host addresses. After a [`SpaceError::System`] the results of
    /// earlier calls must not be accessed any more.
    pub(super) fn add(&mut self, mapping: Mapping, window: Window) -> Result<Window, SpaceError> {
        self.check(&mapping)?;
        self.map(&mapping)?;
        self.map_alias(&mapping)?;
        // SAFETY: the mapping was just made there. By `check` and `map`, later mappings in its pages have the same
        // memory, and take no access away.
        let window = unsafe { window.at_guest(mapping.base, &self.reservation) };
        self.mappings.push(mapping);
        Ok(window)
    }

    /// Makes a window of the packet for [`Layout::add_packet`] from the bytes at `offset` of `region`. `None` when the
    /// region ends before.
    pub(super) fn packet_window(&self, base: u32, region: &Arc<Region>, offset: u32) -> Option<PacketWindow> {
        let in_region = Window::new(region, offset, PACKET_WINDOW, Access::Write)?;
        // SAFETY: the packet window accesses these bytes only after `PacketPages::open` made them permanently writable.
        let in_guest = unsafe { in_region.clone().at_guest(base, &self.reservation) };
        Some(PacketWindow::new(region, offset, in_region, in_guest))
    }

    /// Makes the alias window: maps the L1 at `l1_base` at [`L1_ALIAS`] too.
    pub(super) fn add_alias(&mut self, l1_base: u32, size: u32) -> Result<(), SpaceError> {
        if self.addresses.l1_size() != 0 {
            return Err(SpaceError::AlreadyMapped("L1 alias"));
        }
        let end = L1_ALIAS.checked_add(size).filter(|_| (l1_base | size).is_multiple_of(PAGE));
        let kind = RegionKind::Scratchpad;
        let end = end.ok_or(SpaceError::Reserved { kind, base: l1_base, len: size })?;
        if let Some(other) = self.mappings.iter().find(|other| other.part(L1_ALIAS, end).is_some()) {
            return Err(SpaceError::Shared { kind, base: L1_ALIAS, other: other.kind });
        }
        self.addresses.set_l1(l1_base, size);
        let mappings = self.mappings.clone();
        mappings.iter().try_for_each(|mapping| self.map_alias(mapping))
    }

    /// Adds the packet's windows at these addresses. They are closed until the first access.
    pub(super) fn add_packet(
        &mut self,
        windows: &Arc<PacketWindows>,
        l1_base: u32,
        l2_base: u32,
    ) -> Result<(), SpaceError> {
        if self.packet.is_some() {
            return Err(SpaceError::AlreadyMapped("packet window"));
        }
        let levels = [(Level::L1, RegionKind::Packet, l1_base), (Level::L2, RegionKind::L2Packet, l2_base)];
        let mut closed = ArrayVec::<_, 2>::new();
        for (level, kind, base) in levels {
            let Some(window) = windows.window(level) else { continue };
            let mapping = Mapping::new(kind, base, window.region(), window.offset(), PACKET_WINDOW, Access::Write)?;
            let mapping = Mapping { closed: true, ..mapping };
            self.check(&mapping)?;
            closed.push((level, mapping));
        }
        if let [(_, l1), (_, l2)] = &*closed
            && l1.part(l2.base, l2.end()).is_some()
        {
            return Err(SpaceError::Shared { kind: l2.kind, base: l2.base, other: l1.kind });
        }
        for (level, mapping) in closed {
            self.map(&mapping)?;
            self.map_alias(&mapping)?;
            self.packet_pages.push(PacketPages::new(level, mapping.base));
            self.mappings.push(mapping);
        }
        self.packet = Some(windows.clone());
        Ok(())
    }

    fn check(&self, mapping: &Mapping) -> Result<(), SpaceError> {
        let shared = |other| SpaceError::Shared { kind: mapping.kind, base: mapping.base, other };
        if mapping.part(L1_ALIAS, L1_ALIAS + self.addresses.l1_size()).is_some() {
            return Err(shared(RegionKind::Scratchpad));
        }
        let conflicts = |other: &Mapping| other.closed || mapping.closed || !other.maps_same_bytes(mapping);
        let mut others = self.mappings.iter();
        let other = others.find(|other| other.part(mapping.base, mapping.end()).is_some() && conflicts(other));
        other.map_or(Ok(()), |other| Err(shared(other.kind)))
    }

    /// Maps pages at their guest address. A page of two mappings is writable if one of them is.
    fn map(&mut self, mapping: &Mapping) -> Result<(), SpaceError> {
        let written = |from, to| {
            let mut written = self.mappings.iter().filter(|other| other.access == Access::Write);
            written.any(|other| other.part(from, to).is_some())
        };
        let mixed = mapping.access == Access::Read && written(mapping.base, mapping.end());
        let protection = match mapping.access {
            _ if mapping.closed => ProtFlags::empty(),
            Access::Read if !mixed => ProtFlags::READ,
            _ => ProtFlags::READ | ProtFlags::WRITE,
        };
        self.reservation.map(mapping.base, &mapping.pages, protection)?;
        // Write access is removed from pages without it, rather than added to the others: tasks may write these
        // meanwhile.
        let pages = (mapping.base..mapping.end()).step_by(PAGE as usize);
        for page in pages.filter(|&page| mixed && !written(page, page + PAGE)) {
            let protected = self.reservation.protect(page, PAGE, MprotectFlags::READ);
            protected.map_err(failed("protect guest memory"))?;
        }
        Ok(())
    }

    fn map_alias(&mut self, mapping: &Mapping) -> Result<(), SpaceError> {
        let (l1, size) = (self.addresses.l1_base(), self.addresses.l1_size());
        let Some(part) = mapping.part(l1, l1.saturating_add(size)) else { return Ok(()) };
        let base = L1_ALIAS + (part.base - l1);
        self.map(&Mapping { base, ..part })
    }
}
