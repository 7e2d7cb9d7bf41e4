//! 4 GiB of reserved addresses, regions mapped into them, and what an access that is refused there means.
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
    /// A window of the packet, which nobody may access until the packet is in it.
    closed: bool,
}

impl Mapping {
    /// The pages around `len` (not 0) bytes at `offset` of `region`, to be shown at `base`.
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

    /// The part at guest addresses `from` to `to`, if there is one.
    fn part(&self, from: u32, to: u32) -> Option<Self> {
        let (from, to) = (from.max(self.base), to.min(self.end()));
        let offset = self.pages.offset + from.checked_sub(self.base)?;
        let len = to.checked_sub(from).filter(|&len| len > 0)?;
        Some(Self { base: from, pages: Pages { region: self.pages.region.clone(), offset, len }, ..*self })
    }

    /// Whether both show the same byte wherever both are.
    fn maps_same_bytes(&self, other: &Self) -> bool {
        let shift = |mapping: &Self| mapping.base.wrapping_sub(mapping.pages.offset);
        Arc::ptr_eq(&self.pages.region, &other.pages.region) && shift(self) == shift(other)
    }
}

/// A window of the packet, and for whom it is open.
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

    /// Lets translated code in. Async-signal-safe.
    fn open(&self, access: Access, layout: &Layout) -> bool {
        let (open, protection) = match (self.level, access) {
            (Level::L2, Access::Read) => (&self.readable, MprotectFlags::READ),
            // For whatever comes later: nobody asks whether it was written.
            (Level::L1, _) | (Level::L2, Access::Write) => (&self.writable, MprotectFlags::READ | MprotectFlags::WRITE),
        };
        let Some(windows) = &layout.packet else { return false };
        // It faulted although it is open: that is for another reason, and would not end.
        if open.load(Relaxed) || windows.touch(self.level, access).is_none() {
            return false;
        }
        let places = [Some(self.base), layout.addresses.in_l1_alias(self.base)];
        let protect = |base| layout.reservation.protect(base, PACKET_WINDOW, protection);
        if places.into_iter().flatten().try_for_each(protect).is_err() {
            return false;
        }
        if let Some(window) = windows.window(self.level).filter(|_| protection.contains(MprotectFlags::WRITE)) {
            window.follow_tasks();
        }
        self.readable.store(true, Relaxed);
        open.store(true, Relaxed);
        true
    }
}

/// What a refused access of translated code comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultOutcome {
    /// It may be repeated.
    Retry,
    /// It is meant for a device.
    Device,
    /// It ends the task.
    Fault(Cause),
}

/// Guest memory as accessed by translated code, made by a [`Space`](super::Space).
#[derive(Debug)]
pub struct Layout {
    reservation: Arc<Reservation>,
    mappings: Vec<Mapping>,
    addresses: AddressMap,
    packet: Option<Arc<PacketWindows>>,
    /// Of its windows.
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

    /// Aliases, and where the stack is.
    pub(crate) const fn addresses(&self) -> &AddressMap {
        &self.addresses
    }

    /// Takes over where stack and task registers are. The alias stays: it is what is mapped, whatever a view shows.
    pub(super) const fn set_addresses(&mut self, mut addresses: AddressMap) {
        addresses.set_l1(self.addresses.l1_base(), self.addresses.l1_size());
        self.addresses = addresses;
    }

    /// Whether `len` bytes at `base` are mapped for stores, for good.
    pub(crate) fn writable(&self, base: u32, len: u32) -> bool {
        let lasting = |it: &&Mapping| it.access == Access::Write && !it.closed;
        let holds = |it: &Mapping| it.base <= base && base.checked_add(len).is_some_and(|end| end <= it.end());
        self.mappings.iter().filter(lasting).any(holds)
    }

    /// The guest address that translated code computed when it faulted at `host`, if it can have been that.
    pub(crate) fn guest_address(&self, host: usize) -> Option<u32> {
        self.reservation.guest_address(host)
    }

    /// What it means that an access at `address` faulted. Async-signal-safe.
    pub(crate) fn resolve_fault(&self, address: u32, access: Access) -> FaultOutcome {
        if is_device(address) {
            return FaultOutcome::Device;
        }
        let place = self.addresses.canonical(address, 1);
        let window = self.packet_pages.iter().find(|window| place.wrapping_sub(window.base) < PACKET_WINDOW);
        if window.is_some_and(|window| window.open(access, self)) {
            return FaultOutcome::Retry;
        }
        FaultOutcome::Fault(match access {
            _ if self.addresses.below_stack(address) => Cause::StackOverflow,
            Access::Read => Cause::LoadAccess,
            Access::Write => Cause::StoreAccess,
        })
    }

    /// Adds a mapping, and shows it in the alias window if it lies in what that shows. Returns `window`, whose bytes and access these
    /// are, as it is seen there. After a [`SpaceError::System`] those that were returned before are not to be accessed any more.
    pub(super) fn add(&mut self, mapping: Mapping, window: Window) -> Result<Window, SpaceError> {
        self.check(&mapping)?;
        self.show(&mapping)?;
        self.show_alias(&mapping)?;
        // SAFETY: it was just mapped there; what is mapped later in the same pages shows the same memory in them, and takes no access
        // away: `check` and `show` see to that.
        let window = unsafe { window.at_guest(mapping.base, &self.reservation) };
        self.mappings.push(mapping);
        Ok(window)
    }

    /// A window of the packet for [`Layout::add_packet`]: the bytes at `offset` of `region`, if it has as many.
    pub(super) fn packet_window(&self, base: u32, region: &Arc<Region>, offset: u32) -> Option<PacketWindow> {
        let own = Window::new(region, offset, PACKET_WINDOW, Access::Write)?;
        // SAFETY: the window accesses it only after `PacketPages::open` had it mapped writable, which it stays.
        let seen = unsafe { own.clone().at_guest(base, &self.reservation) };
        Some(PacketWindow::new(region, offset, own, seen))
    }

    /// Opens the alias window: the L1 at `l1_base` is shown at [`L1_ALIAS`] too.
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
        mappings.iter().try_for_each(|mapping| self.show_alias(mapping))
    }

    /// Adds the packet's windows at these addresses, closed.
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
            self.show(&mapping)?;
            self.show_alias(&mapping)?;
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
        let apart = |other: &Mapping| other.closed || mapping.closed || !other.maps_same_bytes(mapping);
        let mut others = self.mappings.iter();
        let other = others.find(|o| o.part(mapping.base, mapping.end()).is_some() && apart(o));
        other.map_or(Ok(()), |other| Err(shared(other.kind)))
    }

    /// Shows a mapping where it belongs. A page of two mappings may be written when one of them may.
    fn show(&mut self, mapping: &Mapping) -> Result<(), SpaceError> {
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
        // Taken away where nobody has it, so that it is never missing where somebody has: others may access that meanwhile.
        let pages = (mapping.base..mapping.end()).step_by(PAGE as usize);
        for page in pages.filter(|&page| mixed && !written(page, page + PAGE)) {
            let protected = self.reservation.protect(page, PAGE, MprotectFlags::READ);
            protected.map_err(failed("protect guest memory"))?;
        }
        Ok(())
    }

    fn show_alias(&mut self, mapping: &Mapping) -> Result<(), SpaceError> {
        let (l1, size) = (self.addresses.l1_base(), self.addresses.l1_size());
        let Some(part) = mapping.part(l1, l1.saturating_add(size)) else { return Ok(()) };
        let base = L1_ALIAS + (part.base - l1);
        self.show(&Mapping { base, ..part })
    }
}
