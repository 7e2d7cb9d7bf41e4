use super::{MAX_RANGES, Memory, Range, RegionKind, View, ViewError};
use proptest::prelude::*;
use spin_abi::map::L1_ALIAS;

fn read_only(base: u32, bytes: &[u8]) -> Range<'_> {
    Range { kind: RegionKind::Code, base, memory: Memory::ReadOnly(bytes) }
}

fn writable(kind: RegionKind, base: u32, bytes: &mut [u8]) -> Range<'_> {
    Range { kind, base, memory: Memory::ReadWrite(bytes) }
}

/// Result of a copy of `len` bytes.
fn read(view: &View<'_>, address: u32, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0xee; len];
    view.copy_out(address, &mut bytes).map(|()| bytes)
}

#[test]
fn ranges_are_exact() {
    let mut memory = [1, 2, 3, 4, 5];
    let mut view = View::new();
    view.push(writable(RegionKind::Packet, 0x1000, &mut memory)).unwrap();
    assert_eq!(view.load::<4>(0x1001), Some([2, 3, 4, 5]));
    assert_eq!(view.load::<4>(0x1002), None);
    assert_eq!(view.load::<1>(0x0fff), None);
    assert_eq!(view.load::<2>(0x0fff), None);
    assert_eq!(view.store(0x1004, [9, 9]), None);
    assert_eq!(view.store(0x1003, [8, 9]), Some(()));
    assert_eq!(read(&view, 0x1000, 5), Some(vec![1, 2, 3, 8, 9]));
    assert_eq!(read(&view, 0x1000, 6), None);
    assert_eq!(view.kind_of(0x1002, 3), Some((RegionKind::Packet, 2)));
    assert_eq!(view.kind_of(0x1002, u32::MAX), None);
}

#[test]
fn an_empty_access_needs_a_byte_there() {
    let mut view = View::new();
    view.push(read_only(0x1000, &[1])).unwrap();
    assert_eq!(read(&view, 0x1000, 0), Some(vec![]));
    assert_eq!(read(&view, 0x1001, 0), None);
    assert_eq!(view.copy_in(0x1000, &[]), None);
}

#[test]
fn read_only_memory_is_never_written() {
    let mut view = View::new();
    view.push(read_only(0x1000, &[1, 2, 3, 4])).unwrap();
    assert_eq!(view.load::<2>(0x1000), Some([1, 2]));
    assert_eq!(view.store(0x1000, [0]), None);
    assert_eq!(view.copy_in(0x1000, &[7]), None);
}

#[test]
fn an_access_over_two_ranges_is_refused() {
    let (mut low, mut high) = ([1; 4], [2; 4]);
    let mut view = View::new();
    view.push(writable(RegionKind::Packet, 0x1000, &mut low)).unwrap();
    view.push(writable(RegionKind::Scratchpad, 0x1004, &mut high)).unwrap();
    assert_eq!(view.load::<2>(0x1003), None);
    assert_eq!(view.store(0x1003, [0, 0]), None);
    assert_eq!(view.load::<4>(0x1004), Some([2; 4]));
}

#[test]
fn addresses_do_not_wrap() {
    let (low, high) = ([1; 8], [2; 8]);
    let mut view = View::new();
    view.push(read_only(0, &low)).unwrap();
    view.push(read_only(0xffff_fff8, &high)).unwrap();
    assert_eq!(view.load::<4>(0xffff_fffc), Some([2; 4]));
    assert_eq!(view.load::<4>(0xffff_fffe), None);
    assert_eq!(read(&view, 0xffff_fffe, 4), None);
    assert_eq!(view.kind_of(4, u32::MAX), None);
    let refused = view.push(read_only(0xffff_fff9, &high));
    assert_eq!(refused, Err(ViewError::Wraps { kind: RegionKind::Code, base: 0xffff_fff9, len: 8 }));
}

#[test]
fn overlap_and_overflow_are_refused() {
    let bytes = [0; 4];
    let mut view = View::new();
    view.push(read_only(0x1004, &bytes)).unwrap();
    for base in [0x1001, 0x1004, 0x1007] {
        let expected = ViewError::Overlap { kind: RegionKind::Code, base, other: RegionKind::Code, other_base: 0x1004 };
        assert_eq!(view.push(read_only(base, &bytes)), Err(expected));
    }
    assert_eq!(view.push(read_only(0x1005, &[])), Ok(()));
    for i in 1..u32::try_from(MAX_RANGES).unwrap() {
        view.push(read_only(0x2000 + 4 * i, &bytes)).unwrap();
    }
    let refused = view.push(read_only(0x9000, &bytes));
    assert_eq!(refused, Err(ViewError::Full { kind: RegionKind::Code, base: 0x9000 }));
}

#[test]
fn the_alias_shows_the_own_clusters_l1() {
    let mut memory = [0; 16];
    let mut view = View::new();
    view.push(writable(RegionKind::Scratchpad, 0x1040_0008, &mut memory)).unwrap();
    assert_eq!(view.load::<1>(L1_ALIAS + 8), None);
    view.set_l1_alias(0x1040_0000, 0x10);
    assert_eq!(view.store(L1_ALIAS + 9, [7]), Some(()));
    assert_eq!(view.load::<1>(0x1040_0009), Some([7]));
    assert_eq!(view.kind_of(L1_ALIAS + 9, 2), Some((RegionKind::Scratchpad, 1)));
    assert_eq!(read(&view, L1_ALIAS + 0xf, 1), Some(vec![0]));
    // One byte past the window, although L1 continues.
    assert_eq!(read(&view, L1_ALIAS + 0x10, 1), None);
    assert_eq!(view.normalise(L1_ALIAS - 1), L1_ALIAS - 1);
}

#[test]
fn the_page_below_the_stack_is_known() {
    let mut stack = [0; 0x1000];
    let mut view = View::new();
    assert!(!view.below_stack(0x0fff));
    view.push(writable(RegionKind::Stack, 0x1000, &mut stack)).unwrap();
    assert!(view.below_stack(0x0fff) && view.below_stack(0));
    assert!(!view.below_stack(0x1000) && !view.below_stack(0xffff_ffff));
}

/// Small addresses, so that ranges touch, overlap and are straddled often.
fn layout() -> impl Strategy<Value = Vec<(u32, Vec<u8>, bool)>> {
    prop::collection::vec((0_u32..64, prop::collection::vec(any::<u8>(), 0..24), any::<bool>()), 0..6)
}

proptest! {
    /// Compares with a model of one entry per address: its range, whether it is writable, and its value.
    #[test]
    fn accesses_agree_with_a_naive_model(
        layout in layout(),
        accesses in prop::collection::vec((0_u32..100, 0_usize..3, any::<Option<u32>>()), 0..60),
    ) {
        let mut backing: Vec<Vec<u8>> = layout.iter().map(|(_, bytes, _)| bytes.clone()).collect();
        let mut model: Vec<Option<(usize, bool, u8)>> = vec![None; 128];
        let mut view = View::new();
        for (index, ((base, bytes, write), memory)) in layout.iter().zip(&mut backing).enumerate() {
            let places = *base as usize..*base as usize + bytes.len();
            let free = model[places.clone()].iter().all(Option::is_none);
            let memory = if *write { Memory::ReadWrite(memory) } else { Memory::ReadOnly(memory) };
            let pushed = view.push(Range { kind: RegionKind::Data, base: *base, memory });
            prop_assert_eq!(pushed.is_ok(), free);
            if free {
                for (place, byte) in places.zip(bytes) {
                    model[place] = Some((index, *write, *byte));
                }
            }
        }
        for (address, width, store) in accesses {
            let width = 1 << width;
            let cells = &mut model[address as usize..address as usize + width];
            let owner = cells[0].map(|(owner, ..)| owner);
            let inside = cells.iter().all(|cell| cell.is_some_and(|(o, ..)| Some(o) == owner));
            if let Some(value) = store {
                let allowed = inside && cells[0].is_some_and(|(_, write, _)| write);
                let bytes = value.to_le_bytes();
                let stored = match width {
                    1 => view.store(address, [bytes[0]]),
                    2 => view.store(address, [bytes[0], bytes[1]]),
                    _ => view.store(address, bytes),
                };
                prop_assert_eq!(stored.is_some(), allowed);
                if allowed {
                    for (cell, byte) in cells.iter_mut().zip(bytes) {
                        *cell = cell.map(|(o, w, _)| (o, w, byte));
                    }
                }
            } else {
                let expected = inside.then(|| cells.iter().flatten().map(|(.., byte)| *byte).collect::<Vec<u8>>());
                let loaded = match width {
                    1 => view.load::<1>(address).map(|b| b.to_vec()),
                    2 => view.load::<2>(address).map(|b| b.to_vec()),
                    _ => view.load::<4>(address).map(|b| b.to_vec()),
                };
                prop_assert_eq!(&loaded, &expected);
                prop_assert_eq!(read(&view, address, width), expected);
            }
        }
    }
}
