//! Checks that a handler's memory lies in its maps. spind may be in an attacker's hands, so nothing about a layout is taken for granted:
//! the translator computes with what passes these checks only. The kernel's verifier checks each access of the program besides.

use hpu_vm::bpf::insn::MapIndex;
use hpu_vm::bpf::layout::{Maps, Range, SLOT};
use hpu_vm::bpf::{Layout, Options, queue};
use spin_abi::map::MachineError;

use super::maps::MapKind;

/// Maximum number of maps of a program (`MAX_USED_MAPS`, include/linux/bpf_verifier.h).
pub(super) const MAX_MAPS: usize = 64;
/// Maximum number of ranges. Each is compared with pointers of unknown kind.
const MAX_RANGES: usize = 64;
/// Maximum number of addresses of the host.
pub(crate) const MAX_ADDRESSES: usize = 64;
/// Alignment of atomics. A misaligned one may cross cache lines, which some processors refuse to the kernel (split lock detection).
const ATOMIC: u32 = 4;

/// Reason why a layout is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LayoutError {
    #[error("the machine is impossible: {0}")]
    Machine(#[from] MachineError),
    #[error("the machine has no HPU {1} in a cluster {0}")]
    Hpu(u32, u32),
    #[error("{0} maps: at most {MAX_MAPS}")]
    MapCount(usize),
    #[error("{0} ranges: at most {MAX_RANGES}")]
    RangeCount(usize),
    #[error("{0} addresses of the host: at most {MAX_ADDRESSES}")]
    AddressCount(usize),
    #[error("map {0} is not in the list of maps")]
    NoMap(MapIndex),
    #[error("map {0} has another kind or use")]
    Use(MapIndex),
    #[error("the configuration has {0} B: at least {size} B", size = Maps::CONFIGURATION_SIZE)]
    Configuration(u32),
    #[error("{processors} processors: 1 to {slots}, the slots of their map")]
    Processors { processors: u32, slots: u32 },
    #[error("{len} B at offset {offset:#x} of map {map}, which has {map_len} B")]
    Outside { map: MapIndex, offset: u32, len: u32, map_len: u32 },
    #[error("{len} B at address {base:#x} reach beyond the last address")]
    Addresses { base: u64, len: u32 },
    #[error("address {base:#010x} is at offset {offset:#x}: they differ modulo {ATOMIC}")]
    Misaligned { base: u32, offset: u32 },
}

/// Checks a layout and the maps that options name. `maps` are those of the program by their index.
pub(super) fn check(layout: &Layout, options: Options, maps: &[MapKind]) -> Result<(), LayoutError> {
    layout.machine.check()?;
    let (cluster, hpu) = layout.hpu;
    if cluster >= layout.machine.clusters || hpu >= layout.machine.hpus_per_cluster {
        return Err(LayoutError::Hpu(cluster, hpu));
    }
    if maps.len() > MAX_MAPS {
        return Err(LayoutError::MapCount(maps.len()));
    }
    if layout.ranges.len() > MAX_RANGES {
        return Err(LayoutError::RangeCount(layout.ranges.len()));
    }
    if let Some(count) =
        layout.replies.as_ref().map(|source| source.addresses.len()).filter(|count| *count > MAX_ADDRESSES)
    {
        return Err(LayoutError::AddressCount(count));
    }
    let maps = KnownMaps(maps);
    maps.check_own(layout.processors)?;
    layout.ranges.iter().try_for_each(|range| maps.check_range(range))?;
    layout.host_queue.map_or(Ok(()), |map| maps.check_queue(map, layout.processors))?;
    match options.sockets {
        Some(index) if maps.kind(index)? != MapKind::Sockets => Err(LayoutError::Use(index)),
        _ => Ok(()),
    }
}

/// Maps by their index.
struct KnownMaps<'m>(&'m [MapKind]);

impl KnownMaps<'_> {
    fn kind(&self, index: MapIndex) -> Result<MapKind, LayoutError> {
        let kind = usize::try_from(index).ok().and_then(|index| self.0.get(index));
        kind.copied().ok_or(LayoutError::NoMap(index))
    }

    /// Size of a map of bytes.
    fn len(&self, index: MapIndex) -> Result<u32, LayoutError> {
        match self.kind(index)? {
            MapKind::Memory(len) => Ok(len),
            MapKind::Sockets => Err(LayoutError::Use(index)),
        }
    }

    /// Checks the maps that each program has.
    fn check_own(&self, processors: u32) -> Result<(), LayoutError> {
        let configuration = self.len(Maps::CONFIGURATION)?;
        if configuration < Maps::CONFIGURATION_SIZE {
            return Err(LayoutError::Configuration(configuration));
        }
        let slots = self.len(Maps::SLOTS)? / SLOT;
        if processors == 0 || processors > slots {
            return Err(LayoutError::Processors { processors, slots });
        }
        Ok(())
    }

    fn check_range(&self, range: &Range) -> Result<(), LayoutError> {
        let Range { base, len, writable: _, map, offset } = *range;
        self.check_inside(map, offset, len)?;
        if len > 0 && base.checked_add(len - 1).is_none() {
            return Err(LayoutError::Addresses { base: base.into(), len });
        }
        // The program checks alignment of the guest's address.
        if base % ATOMIC != offset % ATOMIC {
            return Err(LayoutError::Misaligned { base, offset });
        }
        Ok(())
    }

    /// Checks the queue for commands, of which each processor has a part.
    fn check_queue(&self, map: MapIndex, processors: u32) -> Result<(), LayoutError> {
        let len = processors.saturating_mul(queue::PART);
        self.check_inside(map, 0, len)
    }

    /// Checks that `len` bytes at an offset are in a map that handlers may access.
    fn check_inside(&self, map: MapIndex, offset: u32, len: u32) -> Result<(), LayoutError> {
        let map_len = self.len(map)?;
        if map < Maps::MEMORY {
            return Err(LayoutError::Use(map));
        }
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= map_len);
        if is_inside { Ok(()) } else { Err(LayoutError::Outside { map, offset, len, map_len }) }
    }
}

#[cfg(test)]
mod tests {
    use hpu_vm::bpf::layout::{Range, SLOT};
    use hpu_vm::bpf::{Layout, Options, queue};
    use spin_abi::map::Machine;

    use super::{LayoutError, MAX_MAPS, MAX_RANGES, check};
    use crate::control::hook_process::maps::MapKind;

    const RANGE: Range = Range { base: 0x1c30_0000, len: 4096, writable: true, map: 2, offset: 0 };
    /// Configuration, two slots, handler memory, the queue of two processors, sockets.
    const MAPS: [MapKind; 5] = [
        MapKind::Memory(16),
        MapKind::Memory(3 * SLOT - 1),
        MapKind::Memory(4096),
        MapKind::Memory(2 * queue::PART),
        MapKind::Sockets,
    ];

    fn layout() -> Layout {
        Layout {
            machine: Machine::PSPIN,
            hpu: (0, 0),
            first_hpu: 0,
            first_flow: 0,
            processors: 2,
            ranges: vec![RANGE],
            host_queue: Some(3),
            own_task: false,
            replies: None,
        }
    }

    fn sockets(sockets: u32) -> Options {
        Options { sockets: Some(sockets), ..Options::default() }
    }

    fn checked(layout: &Layout) -> Result<(), LayoutError> {
        check(layout, sockets(4), &MAPS)
    }

    fn with_range(range: Range) -> Result<(), LayoutError> {
        checked(&Layout { ranges: vec![RANGE, range], ..layout() })
    }

    fn with_queue(map: u32) -> Result<(), LayoutError> {
        checked(&Layout { host_queue: Some(map), ..layout() })
    }

    #[test]
    fn a_layout_that_fits_its_maps_to_the_byte_is_accepted() {
        assert_eq!(checked(&layout()), Ok(()));
        assert_eq!(check(&Layout { host_queue: None, ..layout() }, Options::default(), &MAPS[..3]), Ok(()));
        assert_eq!(with_range(Range { base: u32::MAX - 15, len: 16, offset: 4080, ..RANGE }), Ok(()));
        assert_eq!(with_range(Range { len: 0, offset: 4096, ..RANGE }), Ok(()));
    }

    #[test]
    fn impossible_machines_and_hpus_are_refused() {
        let with = |machine| checked(&Layout { machine, ..layout() });
        for clusters in [0, Machine::MAX_CLUSTERS + 1, u32::MAX] {
            let refused = with(Machine { clusters, ..Machine::PSPIN });
            assert!(matches!(refused, Err(LayoutError::Machine(_))), "{clusters}: {refused:?}");
        }
        for size in [0, 4095, u32::MAX - 4095] {
            for machine in [
                Machine { l1_size: size, ..Machine::PSPIN },
                Machine { handler_mem_size: size, ..Machine::PSPIN },
                Machine { handler_mem_base: size, ..Machine::PSPIN },
                Machine { l2_packet_base: size, ..Machine::PSPIN },
                Machine { program_size: size, ..Machine::PSPIN },
            ] {
                assert!(matches!(with(machine), Err(LayoutError::Machine(_))), "{machine:?}");
            }
        }
        for hpu in [(4, 0), (0, 8), (u32::MAX, 0), (0, u32::MAX)] {
            assert_eq!(checked(&Layout { hpu, ..layout() }), Err(LayoutError::Hpu(hpu.0, hpu.1)));
        }
    }

    #[test]
    fn processors_have_slots() {
        for processors in [0, 3, u32::MAX / SLOT + 1, u32::MAX] {
            let refused = checked(&Layout { processors, ..layout() });
            assert_eq!(refused, Err(LayoutError::Processors { processors, slots: 2 }));
        }
    }

    #[test]
    fn ranges_lie_in_their_maps() {
        let outside = |offset, len| LayoutError::Outside { map: 2, offset, len, map_len: 4096 };
        for (offset, len) in
            [(0, 4097), (4, 4096), (4096, 1), (4100, 0), (u32::MAX - 3, 4), (4, u32::MAX - 3), (8, u32::MAX)]
        {
            assert_eq!(with_range(Range { offset, len, ..RANGE }), Err(outside(offset, len)), "{offset} {len}");
            assert_eq!(with_range(Range { offset, len, writable: false, ..RANGE }), Err(outside(offset, len)));
        }
        for (base, len) in [(u32::MAX - 3, 5), (u32::MAX - 3, 4096), (u32::MAX - 4091, 4096)] {
            assert_eq!(
                with_range(Range { base, len, ..RANGE }),
                Err(LayoutError::Addresses { base: base.into(), len })
            );
        }
    }

    #[test]
    fn addresses_and_offsets_are_equally_aligned() {
        let (base, len) = (RANGE.base + 4, 64);
        for offset in [1, 2, 3, 5] {
            let refused = with_range(Range { base, len, offset, ..RANGE });
            assert_eq!(refused, Err(LayoutError::Misaligned { base, offset }));
        }
        assert_eq!(with_range(Range { base: base + 3, len, offset: 3, ..RANGE }), Ok(()));
    }

    #[test]
    fn each_processor_has_a_part_of_the_queue() {
        let (len, mut maps) = (2 * queue::PART, MAPS);
        maps[3] = MapKind::Memory(len - 1);
        let refused = check(&layout(), sockets(4), &maps);
        assert_eq!(refused, Err(LayoutError::Outside { map: 3, offset: 0, len, map_len: len - 1 }));
    }

    #[test]
    fn each_map_has_one_use() {
        for map in [0, 1, 4] {
            assert_eq!(with_range(Range { map, len: 16, ..RANGE }), Err(LayoutError::Use(map)));
            assert_eq!(with_queue(map), Err(LayoutError::Use(map)));
        }
        for map in [5, u32::MAX] {
            assert_eq!(with_range(Range { map, ..RANGE }), Err(LayoutError::NoMap(map)));
            assert_eq!(with_queue(map), Err(LayoutError::NoMap(map)));
            assert_eq!(check(&layout(), sockets(map), &MAPS), Err(LayoutError::NoMap(map)));
        }
        for map in 0..4 {
            assert_eq!(check(&layout(), sockets(map), &MAPS), Err(LayoutError::Use(map)));
        }
        for own in [0, 1] {
            let mut maps = MAPS;
            maps[own as usize] = MapKind::Sockets;
            assert_eq!(check(&layout(), sockets(4), &maps), Err(LayoutError::Use(own)));
        }
    }

    #[test]
    fn programs_have_a_configuration_and_slots() {
        let mut maps = MAPS;
        maps[0] = MapKind::Memory(15);
        assert_eq!(check(&layout(), sockets(4), &maps), Err(LayoutError::Configuration(15)));
        assert_eq!(check(&layout(), sockets(4), &[]), Err(LayoutError::NoMap(0)));
        assert_eq!(check(&layout(), sockets(4), &MAPS[..1]), Err(LayoutError::NoMap(1)));
    }

    #[test]
    fn counts_are_bounded() {
        let maps = [MapKind::Memory(4096); MAX_MAPS + 1];
        assert_eq!(check(&layout(), Options::default(), &maps), Err(LayoutError::MapCount(65)));
        let ranges = vec![RANGE; MAX_RANGES + 1];
        assert_eq!(checked(&Layout { ranges, ..layout() }), Err(LayoutError::RangeCount(65)));
    }
}
