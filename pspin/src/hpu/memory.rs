//! Memory of images and contexts, and the address spaces in which handlers see it.
//!
//! An image has one region, each context another. A space maps the parts of both that the context's tasks on one HPU may
//! access (PsPIN paper §III-B2): code, data, this HPU's stack and packet windows, scratchpads, handler memory. Each part has
//! pages of its own, so a task cannot reach memory of others.

use std::sync::Arc;

use hpu_vm::memory::{Access, Region, Space, SpaceError};
use hpu_vm::{Image, RegionKind};
use spin_abi::control::Placement;
use spin_abi::map::{Machine, PACKET_WINDOW, PAGE, PSPIN_QUEUES, STACK_WINDOW, TASK_BLOCK};
use spin_abi::unit::UnitIndex;

/// Windows of an HPU, in this order: its stack, the packet in L1, the packet in L2.
pub const WINDOWS: u32 = 3;
const _: () = assert!(STACK_WINDOW == PAGE && PACKET_WINDOW == PAGE);

/// A range of a region, and its guest address.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    kind: RegionKind,
    base: u32,
    len: u32,
    access: Access,
    offset: u32,
}

/// Bytes of a region, up to the end of their mapping.
#[derive(Clone, Copy, Debug)]
pub struct MappedBytes {
    /// Offset of the first byte in the region.
    pub offset: usize,
    /// Number of bytes.
    pub len: u32,
    /// Whether handlers may write them.
    pub writable: bool,
}

impl Mapping {
    /// All bytes.
    fn bytes(&self) -> MappedBytes {
        MappedBytes { offset: self.offset as usize, len: self.len, writable: self.access == Access::Write }
    }

    /// Bytes from `address` on.
    fn bytes_at(&self, address: u32) -> Option<MappedBytes> {
        let skipped = address.checked_sub(self.base)?;
        let len = self.len.checked_sub(skipped).filter(|&len| len > 0)?;
        let offset = self.offset as usize + skipped as usize;
        Some(MappedBytes { offset, len, writable: self.access == Access::Write })
    }
}

/// Memory that a context shares with its application: scratchpads and handler memory.
#[derive(Clone, Debug)]
pub struct SharedMappings {
    scratchpads: Box<[Mapping]>,
    handler: Mapping,
}

impl SharedMappings {
    /// Bytes of scratchpads from `address` on, in the context's region.
    #[must_use]
    pub fn scratchpad_at(&self, address: u32) -> Option<MappedBytes> {
        self.scratchpads.iter().find_map(|part| part.bytes_at(address))
    }

    /// Bytes of handler memory from `address` on, in its region.
    #[must_use]
    pub fn handler_at(&self, address: u32) -> Option<MappedBytes> {
        self.handler.bytes_at(address)
    }
}

/// Initialised segments of an image: code, constants, and data that all contexts of the loaded image share.
#[derive(Debug)]
pub struct ImageMemory {
    region: Arc<Region>,
    parts: Box<[Mapping]>,
}

impl ImageMemory {
    /// New memory for an image.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn new(image: &Image) -> Result<Self, SpaceError> {
        Self::new_in(image, Region::new)
    }

    /// New memory for an image, in a region of a number of bytes that `make` makes, all zero.
    ///
    /// # Errors
    /// The errors of `make`.
    pub fn new_in<E>(image: &Image, make: impl FnOnce(usize) -> Result<Arc<Region>, E>) -> Result<Self, E> {
        let mut segments: Vec<_> = image.segments().collect();
        segments.sort_unstable_by_key(|(base, ..)| *base);
        let mut parts: Vec<Mapping> = Vec::new();
        let mut end = 0;
        for &(base, kind, writable, bytes) in &segments {
            let len = saturate(bytes.len() as u64);
            // Segments that share a page of guest memory share one here.
            let shared = parts.last().filter(|before| (before.base + (before.len - 1)) / PAGE == base / PAGE);
            let offset = shared.map_or(end + base % PAGE, |before| before.offset + (base - before.base));
            end = (offset + len).next_multiple_of(PAGE);
            let access = if writable { Access::Write } else { Access::Read };
            parts.push(Mapping { kind, base, len, access, offset });
        }
        let memory = Self { region: make(end as usize)?, parts: parts.into() };
        for ((.., bytes), part) in segments.iter().zip(&memory.parts) {
            // New regions are zero, and their pages take no memory until they are written.
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let written = memory.region.write(part.offset as usize, &bytes[..used]);
            debug_assert!(written.is_some(), "the region was made for the parts");
        }
        Ok(memory)
    }

    /// A copy of the layout on new memory, all zero.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn blank_copy(&self) -> Result<Self, SpaceError> {
        Ok(Self { region: Region::new(self.region.len())?, parts: self.parts.clone() })
    }

    /// The mappings of a context whose handler memory begins at `handler`. If that is the end of the image's own, the rest of the last
    /// page belongs to the context too.
    fn parts_for(&self, handler: u32) -> impl Iterator<Item = Mapping> + '_ {
        let is_own = self.parts.iter().any(|part| part.bytes_at(handler).is_some());
        self.parts.iter().map(move |&part| {
            let ends_there = part.kind == RegionKind::HandlerMemory && part.base + part.len == handler;
            let rest = if ends_there && !is_own { handler.next_multiple_of(PAGE) - handler } else { 0 };
            Mapping { len: part.len + rest, ..part }
        })
    }

    /// Guest addresses and bytes of the parts, for a context whose handler memory begins at `handler`.
    pub fn ranges_for(&self, handler: u32) -> impl Iterator<Item = (u32, MappedBytes)> + '_ {
        self.parts_for(handler).map(|part| (part.base, part.bytes()))
    }

    /// Bytes from `address` on, for a context whose handler memory begins at `handler`.
    #[must_use]
    pub fn bytes_for(&self, handler: u32, address: u32) -> Option<MappedBytes> {
        self.parts_for(handler).find_map(|part| part.bytes_at(address))
    }

    /// Region with the bytes.
    #[must_use]
    pub const fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Guest address of the byte at `offset` of the region.
    #[must_use]
    pub fn address(&self, offset: u32) -> Option<u32> {
        let part = self.parts.iter().rfind(|part| part.offset - part.offset % PAGE <= offset)?;
        Some(part.base.wrapping_add(offset.wrapping_sub(part.offset)))
    }
}

/// Memory of one context in one unit: the windows of its HPUs, scratchpads, handler memory.
#[derive(Clone, Debug)]
pub struct ContextMemory {
    region: Arc<Region>,
    /// Region of the handler memory, and its offset there: another unit's, if units share it.
    handler_region: (Arc<Region>, u32),
    unit: UnitIndex,
    machine: Machine,
    handler_base: u32,
    /// Address and bytes of handler memory in the task registers.
    handler: (u32, u32),
    sizes: ContextSizes,
}

/// Offset of handler memory in the region of a context.
fn handler_offset(machine: &Machine, sizes: ContextSizes) -> u32 {
    machine.clusters * (sizes.hpus * WINDOWS * PAGE + sizes.scratchpad.next_multiple_of(PAGE))
}

/// Sizes of a context's own memory.
#[derive(Clone, Copy, Debug)]
pub struct ContextSizes {
    /// Number of HPUs in each cluster.
    pub hpus: u32,
    /// Bytes of handler memory.
    pub handler: u32,
    /// Bytes of scratchpad in each cluster.
    pub scratchpad: u32,
}

/// An HPU of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HpuId {
    /// Cluster of the HPU.
    pub cluster: u32,
    /// Number of the HPU in its cluster.
    pub hpu: u32,
}

impl ContextMemory {
    /// New memory, all zero, with handler memory at `handler_base`.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn new(machine: &Machine, handler_base: u32, sizes: ContextSizes) -> Result<Self, SpaceError> {
        Self::new_in(machine, handler_base, sizes, Region::new)
    }

    /// New memory in a region of a number of bytes that `make` makes, all zero.
    ///
    /// # Errors
    /// The errors of `make`.
    pub fn new_in<E>(
        machine: &Machine,
        handler_base: u32,
        sizes: ContextSizes,
        make: impl FnOnce(usize) -> Result<Arc<Region>, E>,
    ) -> Result<Self, E> {
        let pages = |len: u32| u64::from(len).next_multiple_of(PAGE.into());
        let each = u64::from(sizes.hpus * WINDOWS * PAGE) + pages(sizes.scratchpad);
        let bytes = u64::from(machine.clusters) * each + pages(sizes.handler);
        // `Region::new` refuses a size beyond the address space.
        let region = make(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let handler_region = (region.clone(), handler_offset(machine, sizes));
        let (handler, unit) = ((handler_base, sizes.handler), only_unit(machine));
        Ok(Self { region, handler_region, unit, machine: *machine, handler_base, handler, sizes })
    }

    /// A copy of the layout on new memory, all zero.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn blank_copy(&self) -> Result<Self, SpaceError> {
        let region = Region::new(self.region.len())?;
        let offset = handler_offset(&self.machine, self.sizes);
        Ok(Self { handler_region: (region.clone(), offset), region, ..*self })
    }

    /// Region with the bytes.
    #[must_use]
    pub const fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Sets handler memory in the task registers to begin at `address`, with `len` bytes of the image. If the context has
    /// handler memory of its own, behind those bytes, the range extends to its end.
    #[must_use]
    pub fn with_handler_memory(self, address: u32, len: u32) -> Self {
        let len = if self.sizes.handler > 0 { self.handler_base + self.sizes.handler - address } else { len };
        Self { handler: (address, len), ..self }
    }

    /// Guest address and bytes of handler memory in the task registers.
    #[must_use]
    pub const fn handler(&self) -> (u32, u32) {
        self.handler
    }

    /// Bytes of a cluster's scratchpad that tasks on cluster `own` may access.
    #[must_use]
    pub fn scratchpad(&self, cluster: u32, own: u32, placement: Placement) -> u32 {
        if placement == Placement::Any || cluster == own { self.sizes.scratchpad } else { 0 }
    }

    /// Sets the unit that this memory is for.
    #[must_use]
    pub fn in_unit(self, unit: UnitIndex) -> Self {
        Self { unit, ..self }
    }

    /// The unit that this memory is for.
    #[must_use]
    pub const fn unit(&self) -> UnitIndex {
        self.unit
    }

    /// Uses the handler memory of the context in another unit.
    #[must_use]
    pub fn sharing_handler_memory(self, other: &Self) -> Self {
        Self { handler_region: other.handler_region.clone(), ..self }
    }

    /// HPUs of the context on all clusters.
    pub fn hpus(&self) -> impl Iterator<Item = HpuId> + use<> {
        let (clusters, hpus) = (self.machine.clusters, self.sizes.hpus);
        (0..clusters).flat_map(move |cluster| (0..hpus).map(move |hpu| HpuId { cluster, hpu }))
    }

    /// Offset of an HPU's windows in the region.
    #[must_use]
    pub const fn windows(&self, own: HpuId) -> u32 {
        (own.cluster * self.sizes.hpus + own.hpu) * WINDOWS * PAGE
    }

    /// End of all windows in the region.
    const fn windows_end(&self) -> u32 {
        self.windows(HpuId { cluster: self.machine.clusters, hpu: 0 })
    }

    /// Whether the page at `offset` is a packet window in L2.
    #[must_use]
    pub const fn is_l2_window(&self, offset: u32) -> bool {
        offset < self.windows_end() && offset / PAGE % WINDOWS == WINDOWS - 1
    }

    /// Mapping of handler memory, in its region.
    fn handler_part(&self) -> Mapping {
        let (base, len, offset) = (self.handler_base, self.sizes.handler, self.handler_region.1);
        Mapping { kind: RegionKind::HandlerMemory, base, len, access: Access::Write, offset }
    }

    /// Mappings of tasks on `own` in the context's region, without the packet and handler memory.
    fn parts(&self, own: HpuId, placement: Placement) -> impl Iterator<Item = Mapping> {
        let machine = self.machine;
        let HpuId { cluster: home, hpu } = own;
        let part = |kind, base, len, offset| Mapping { kind, base, len, access: Access::Write, offset };
        let stack = part(RegionKind::Stack, machine.stack_base(home, hpu), STACK_WINDOW, self.windows(own));
        let (first, step) = (self.windows_end(), self.sizes.scratchpad.next_multiple_of(PAGE));
        let scratchpads = (0..machine.clusters).map(move |cluster| {
            let (base, len) = (machine.scratchpad_base(cluster), self.scratchpad(cluster, home, placement));
            part(RegionKind::Scratchpad, base, len, first + cluster * step)
        });
        std::iter::once(stack).chain(scratchpads)
    }

    /// Memory that the application may access.
    #[must_use]
    pub fn shared(&self) -> SharedMappings {
        let parts = self.parts(HpuId { cluster: 0, hpu: 0 }, Placement::Any);
        let scratchpads = parts.filter(|part| part.kind != RegionKind::Stack).collect();
        SharedMappings { scratchpads, handler: self.handler_part() }
    }

    /// Region of handler memory.
    #[must_use]
    pub const fn handler_region(&self) -> &Arc<Region> {
        &self.handler_region.0
    }

    /// Scratchpads and handler memory, if that is in the context's own region.
    fn shared_parts(&self) -> impl Iterator<Item = Mapping> {
        let parts = self.parts(HpuId { cluster: 0, hpu: 0 }, Placement::Any);
        std::iter::once(self.handler_part()).chain(parts.filter(|part| part.kind != RegionKind::Stack))
    }

    /// Guest addresses and bytes of scratchpads and handler memory, those that have bytes.
    pub fn shared_ranges(&self) -> impl Iterator<Item = (u32, MappedBytes)> {
        self.shared_parts().filter(|part| part.len > 0).map(|part| (part.base, part.bytes()))
    }

    /// Guest addresses and sizes of the scratchpads for the task registers.
    #[must_use]
    pub fn scratchpads(&self) -> [(u32, u32); Machine::MAX_CLUSTERS as usize] {
        let mut all = [(0, 0); Machine::MAX_CLUSTERS as usize];
        for (cluster, place) in (0..self.machine.clusters).zip(&mut all) {
            *place = (self.machine.scratchpad_base(cluster), self.sizes.scratchpad);
        }
        all
    }

    /// Guest address of the byte at `offset` of the region, for tasks on `own`.
    #[must_use]
    pub fn address(&self, own: HpuId, offset: u32) -> Option<u32> {
        let [(packet, in_memory), _] = packet_windows(&self.machine, own, self.windows(own));
        if let Some(at) = offset.checked_sub(in_memory).filter(|&at| at < PACKET_WINDOW) {
            return Some(packet + at);
        }
        let mut parts = std::iter::once(self.handler_part()).chain(self.parts(own, Placement::Any));
        let part = parts.find(|part| offset.wrapping_sub(part.offset) < part.len.next_multiple_of(PAGE))?;
        Some(part.base + (offset - part.offset))
    }

    /// Whether tasks on `own` may access a part of the image. Tasks placed on their home cluster cannot access the L1 of others.
    fn reaches(&self, part: &Mapping, own: HpuId, placement: Placement) -> bool {
        placement == Placement::Any || cluster_of(&self.machine, part.base).is_none_or(|cluster| cluster == own.cluster)
    }

    /// Address space of the context's tasks on `own`.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn space(&self, image: &ImageMemory, own: HpuId, placement: Placement) -> Result<Space, SpaceError> {
        let mut space = Space::new()?;
        // The packet windows change with each task. Lookup goes in this order, so they come first.
        let (machine, HpuId { cluster, hpu }) = (&self.machine, own);
        let [l1, l2] = packet_windows(machine, own, self.windows(own));
        space.map_packet_in(&self.region, l1, l2)?;
        for part in self.parts(own, placement) {
            space.map(part.kind, part.base, &self.region, part.offset, part.len, part.access)?;
        }
        let handler = self.handler_part();
        space.map(handler.kind, handler.base, &self.handler_region.0, handler.offset, handler.len, handler.access)?;
        for part in image.parts_for(self.handler.0).filter(|part| self.reaches(part, own, placement)) {
            space.map(part.kind, part.base, &image.region, part.offset, part.len, part.access)?;
        }
        space.set_l1_alias(machine.l1_base(cluster), machine.l1_size)?;
        space.set_task_alias(machine.stack_base(cluster, hpu) + STACK_WINDOW - TASK_BLOCK);
        Ok(space)
    }
}

/// Memory of the tasks on an HPU.
pub trait TaskMemory {
    /// Address space of tasks on `own`, with the packet [windows](packet_windows) in L1 and L2 ([`Space::map_packet_in`]).
    ///
    /// # Errors
    /// See [`SpaceError`].
    fn space(&self, own: HpuId) -> Result<Space, SpaceError>;

    /// Guest address and bytes of handler memory for the task registers.
    fn handler(&self) -> (u32, u32);

    /// Guest address and bytes of a cluster's scratchpad for the task registers on `own`.
    fn scratchpad(&self, cluster: u32, own: HpuId) -> (u32, u32);

    /// Region of the [windows](WINDOWS) of `own`, and their offset there. The windows are contiguous.
    fn windows(&self, own: HpuId) -> (Arc<Region>, u32);

    /// The unit that runs the tasks, among those of the context.
    fn unit(&self, machine: &Machine) -> UnitIndex {
        only_unit(machine)
    }
}

/// Memory of an installed context.
#[derive(Clone, Copy, Debug)]
pub struct InstalledMemory<'m> {
    /// Memory of the context's image.
    pub image: &'m ImageMemory,
    /// Memory of the context itself.
    pub memory: &'m ContextMemory,
    /// Determines which clusters' scratchpads its tasks see.
    pub placement: Placement,
}

impl TaskMemory for InstalledMemory<'_> {
    fn space(&self, own: HpuId) -> Result<Space, SpaceError> {
        self.memory.space(self.image, own, self.placement)
    }

    fn handler(&self) -> (u32, u32) {
        self.memory.handler()
    }

    fn scratchpad(&self, cluster: u32, own: HpuId) -> (u32, u32) {
        let len = self.memory.scratchpad(cluster, own.cluster, self.placement);
        (self.memory.machine.scratchpad_base(cluster), len)
    }

    fn windows(&self, own: HpuId) -> (Arc<Region>, u32) {
        (self.memory.region.clone(), self.memory.windows(own))
    }

    fn unit(&self, _: &Machine) -> UnitIndex {
        self.memory.unit
    }
}

/// The only unit of a context, with PsPIN's number of message queues.
const fn only_unit(machine: &Machine) -> UnitIndex {
    UnitIndex { number: 0, units: 1, hpus: machine.hpus(), flows: PSPIN_QUEUES }
}

/// Packet windows in L1 and L2 of an HPU whose [windows](WINDOWS) begin at `offset` of their region: guest address and offset
/// of each.
#[must_use]
pub const fn packet_windows(machine: &Machine, HpuId { cluster, hpu }: HpuId, offset: u32) -> [(u32, u32); 2] {
    let (l1, l2) = (machine.l1_packet_base(cluster, hpu), machine.l2_packet_window(cluster, hpu));
    [(l1, offset + PAGE), (l2, offset + (WINDOWS - 1) * PAGE)]
}

/// Cluster whose L1 contains a guest address.
#[must_use]
#[inline]
pub fn cluster_of(machine: &Machine, address: u32) -> Option<u32> {
    (0..machine.clusters).find(|&cluster| address.wrapping_sub(machine.l1_base(cluster)) < machine.l1_size)
}

/// Converts a length to a 32-bit register, saturating.
#[must_use]
#[inline]
pub fn saturate(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
