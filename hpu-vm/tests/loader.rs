//! The loader against files that are right, wrong in one way, cut short, and mutated at random.

mod support;

use std::sync::LazyLock;

use hpu_vm::inst::Format;
use hpu_vm::{Image, Kind, Line, LoadError, Memory, Range, RegionKind, View};
use object::{Object as _, ObjectSection as _};
use proptest::prelude::*;
use spin_abi::map::{L1_ALIAS, L1_BASE, L1_DATA, L1_STRIDE, L2_BASE, Machine, PROGRAM_BASE, PROGRAM_MOST};
use support::{Elf, R, RET, Segment, W, X, assemble, sample};

const MACHINE: Machine = Machine::PSPIN;
const CODE: u32 = PROGRAM_BASE;

fn load(elf: &Elf) -> Result<Image, LoadError> {
    Image::load(&elf.build(), &MACHINE)
}

/// Changes bytes of the sample's file before it is loaded.
fn patched(offset: usize, bytes: &[u8]) -> LoadError {
    let mut file = sample().build();
    file[offset..offset + bytes.len()].copy_from_slice(bytes);
    refused(Image::load(&file, &MACHINE))
}

fn refused(result: Result<Image, LoadError>) -> LoadError {
    result.expect_err("the image should have been refused")
}

#[test]
fn a_valid_image_is_laid_out() {
    let image = load(&sample()).unwrap();
    assert_eq!(Kind::ALL.map(|kind| image.handler(kind)), [Some(CODE), Some(CODE + 4), Some(CODE + 8)]);
    assert_eq!((image.entry(), image.init_handlers()), (Some(CODE + 4), None));
    assert_eq!((image.symbol("counter"), image.symbol_size("counter")), (Some(L2_BASE), Some(8)));
    assert_eq!((image.symbol("nothing"), image.symbol_size("nothing")), (None, None));
    assert_eq!(image.symbolize(CODE + 6), Some(("payload_handler", 2)));
    assert_eq!(image.symbolize(CODE + 12), None);
    assert_eq!(image.handler_mem_end(), 0x1c30_2000);

    let mut memory = image.instantiate();
    let mut view = View::new();
    image.map_into(&mut view).unwrap();
    memory.map_into(&mut view).unwrap();
    assert_eq!(view.kind_of(CODE, 12), Some((RegionKind::Code, 0)));
    assert_eq!(view.kind_of(CODE, 13), None);
    let mut bytes = [0; 24];
    view.copy_out(0x1d00_1000, &mut bytes[..8]).unwrap();
    assert_eq!(&bytes[..8], b"constant");
    assert!(!view.writable(0x1d00_1000, 1));
    view.copy_out(L2_BASE, &mut bytes).unwrap();
    assert_eq!(&bytes, b"variable\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(view.kind_of(0x1c30_0000, 0x1800), Some((RegionKind::HandlerMemory, 0)));
    view.copy_in(L2_BASE, b"V").unwrap();
    drop(view);
    assert_eq!(memory.segments().next().unwrap().2[0], b'V');
    assert_eq!(image.instantiate().segments().next().unwrap().2[0], b'v');
}

#[test]
fn an_image_without_handler_memory_leaves_all_of_it() {
    let elf = Elf::default().segment(Segment::load(CODE, &assemble(&[RET]), X)).symbol("init_handlers", CODE, 4);
    let image = load(&elf).unwrap();
    assert_eq!((image.handler_mem_end(), image.init_handlers()), (MACHINE.handler_mem_base, Some(CODE)));
    assert_eq!((image.entry(), image.handler(Kind::Payload)), (None, None));
}

#[test]
fn segments_may_fill_their_memory_to_the_last_byte() {
    let end = MACHINE.handler_mem_base + MACHINE.handler_mem_size;
    let elf = sample()
        .segment(Segment::load(CODE + MACHINE.program_size - 4, &assemble(&[RET]), X))
        .segment(Segment::load(MACHINE.handler_mem_base - 4, &[1; 4], R | W))
        .segment(Segment::load(end - 1, &[1], R | W));
    assert_eq!(load(&elf).unwrap().handler_mem_end(), end);
}

#[test]
fn data_in_l1_is_in_each_clusters() {
    for base in [L1_BASE + 4, L1_ALIAS + 4] {
        let image = load(&sample().segment(Segment::load(base, b"tiny", R | W))).unwrap();
        let mut memory = image.instantiate();
        let mut view = View::new();
        image.map_into(&mut view).unwrap();
        memory.map_into(&mut view).unwrap();
        for cluster in 0..MACHINE.clusters {
            let mut bytes = [0; 4];
            view.copy_out(MACHINE.l1_base(cluster) + 4, &mut bytes).unwrap();
            assert_eq!(&bytes, b"tiny");
        }
        assert_eq!(view.kind_of(L1_BASE + 4, 5), None);
    }
    let both = sample().segment(Segment::load(L1_BASE, &[1; 8], W)).segment(Segment::load(L1_ALIAS + 7, &[1], W));
    let other = LoadError::Overlap { address: L1_BASE + 7, other: L1_BASE, size: 8 };
    assert_eq!(refused(load(&both)), other, "by whichever address");
    let many = (0..4).fold(sample(), |elf, n| elf.segment(Segment::load(L1_BASE + 16 * n, &[1], R | W)));
    assert_eq!(refused(load(&many)), LoadError::TooManySegments { max: 16 }, "copies count");
}

#[test]
fn what_the_linkers_relaxation_expects_in_gp() {
    assert_eq!(load(&sample()).unwrap().code().global_pointer(), 0);
    let image = load(&sample().symbol("__global_pointer$", L2_BASE + 0x800, 0)).unwrap();
    assert_eq!(image.code().global_pointer(), L2_BASE + 0x800);
}

#[test]
fn headers_of_other_machines() {
    assert!(matches!(patched(0, b"\x7fELG"), LoadError::NotElf(_)));
    assert_eq!(patched(4, &[2]), LoadError::Class(2));
    assert_eq!(patched(5, &[2]), LoadError::Encoding(2));
    assert_eq!(patched(6, &[0]), LoadError::Version(0));
    assert_eq!(patched(16, &[1]), LoadError::Type(1));
    assert_eq!(patched(16, &[3]), LoadError::Type(3));
    assert_eq!(patched(18, &[62]), LoadError::Machine(62));
    assert_eq!(patched(20, &[2]), LoadError::Version(2));
    assert_eq!(patched(36, &[5]), LoadError::FloatAbi(5));
    assert_eq!(patched(36, &[3]), LoadError::FloatAbi(3));
    assert_eq!(patched(36, &[9]), LoadError::Embedded(9));
    assert_eq!(patched(36, &[0x20]), LoadError::Flags(0x20));
    let mut tso = sample();
    tso.flags = 0x11;
    load(&tso).unwrap();
}

#[test]
fn tables_outside_the_file() {
    let damaged = |error, part| matches!(error, LoadError::Damaged { what, .. } if what == part);
    assert!(damaged(patched(28, &u32::MAX.to_le_bytes()), "program headers"));
    assert!(damaged(patched(42, &[31]), "program headers"));
    assert!(damaged(patched(44, &[0xff, 0xfe]), "program headers"));
    assert!(damaged(patched(32, &u32::MAX.to_le_bytes()), "section headers"));
    assert!(damaged(patched(46, &[1]), "section headers"));
    assert!(damaged(patched(48, &[0xff, 0xfe]), "section headers"));
}

#[test]
fn segment_counts() {
    let mut empty = sample();
    empty.segments.clear();
    assert_eq!(refused(load(&empty)), LoadError::NoSegments);
    assert_eq!(refused(load(&empty.clone().segment(Segment::load(CODE, &[], R | X)))), LoadError::NoSegments);
    let data =
        |count: u32| (0..count).fold(sample(), |elf, i| elf.segment(Segment::load(L2_BASE + 0x1000 + i, &[1], R | W)));
    load(&data(12)).unwrap();
    assert_eq!(refused(load(&data(13))), LoadError::TooManySegments { max: 16 });
    for kind in [2, 3, 7] {
        let other = Segment { kind, ..Segment::load(0, &[], R) };
        assert_eq!(refused(load(&sample().segment(other))), LoadError::SegmentType(kind));
    }
    load(&sample().segment(Segment { kind: 0x6474_e551, ..Segment::load(0, &[], R | W) })).unwrap();
}

#[test]
fn segments_in_wrong_places() {
    let outside = |segment: Segment| {
        let error = refused(load(&sample().segment(segment)));
        assert!(matches!(error, LoadError::Outside { .. }), "{error}");
    };
    outside(Segment::load(L2_BASE + 0x1000, &[1, 0], R | X));
    outside(Segment::load(CODE + 0x2000, &[1], R | W));
    outside(Segment::load(0, &[1], R));
    outside(Segment::load(L1_BASE + L1_DATA - 1, &[1; 2], R | W));
    outside(Segment::load(L1_BASE + L1_STRIDE, &[1], R | W));
    outside(Segment::load(L1_ALIAS, &[1, 0], R | X));
    outside(Segment::load(0x1b20_5000, &[1], R | W));
    outside(Segment::load(MACHINE.l2_packet_base, &[1], R | W));
    outside(Segment::load(L2_BASE - 1, &[1; 2], R | W));
    outside(Segment::load(MACHINE.handler_mem_base - 1, &[1; 2], R | W));
    // A gibibyte of zeroes is refused by its address range, before any memory is asked for.
    outside(Segment::load(L2_BASE + 0x1000, &[], R | W).memory(1 << 30));
}

#[test]
fn too_much_code_tells_the_program_memory_that_it_needs() {
    let too_much = |segment: Segment| refused(load(&sample().segment(segment)));
    let expected = |bytes, needed| LoadError::TooMuchCode { bytes, has: MACHINE.program_size, needed };
    let size = MACHINE.program_size;
    assert_eq!(too_much(Segment::load(CODE + size - 1, &[1; 2], R)), expected(size + 1, size + 0x1000));
    assert_eq!(too_much(Segment::load(CODE + size, &assemble(&[RET]), X)), expected(size + 4, size + 0x1000));
    let most = |bytes: u32| Segment::load(CODE + 0x2000, &[], R | X).memory(bytes - 0x2000);
    assert_eq!(too_much(most(PROGRAM_MOST)), expected(PROGRAM_MOST, PROGRAM_MOST));
    assert!(matches!(too_much(most(PROGRAM_MOST + 1)), LoadError::Outside { .. }));
    // The size is that of all segments, and it suffices.
    let two = sample().segment(Segment::load(CODE + 0x2000, &assemble(&[RET; 0x2000]), X)).segment(Segment::load(
        CODE + 0x1_a000,
        b"constant",
        R,
    ));
    let error = refused(load(&two));
    assert_eq!(
        error.to_string(),
        "the image has 106504 bytes of code and constants; program memory has 32768: \
         add \"program_size = 0x1b000\" to [machine] in spind's configuration"
    );
    let LoadError::TooMuchCode { needed, .. } = error else { panic!("{error}") };
    Image::load(&two.build(), &Machine { program_size: needed, ..MACHINE }).unwrap();
    assert!(Image::load(&two.build(), &Machine { program_size: needed - 0x1000, ..MACHINE }).is_err());
}

#[test]
fn segments_that_cannot_be() {
    let error = |segment| refused(load(&sample().segment(segment)));
    let at = L2_BASE + 0x1000;
    assert_eq!(
        error(Segment::load(at, &[1; 5], R | W).memory(4)),
        LoadError::FileAboveMemory { address: at, file: 5, memory: 4 }
    );
    assert_eq!(
        error(Segment::load(0xffff_fff0, &[], R | W).memory(17)),
        LoadError::Wraps { address: 0xffff_fff0, size: 17 }
    );
    assert_eq!(
        error(Segment::load(CODE + 0x2000, &[1], R | W | X)),
        LoadError::WritableCode { address: CODE + 0x2000 }
    );
    assert_eq!(error(Segment::load(at, &[1], 0)), LoadError::NoPermission { address: at });
    assert_eq!(error(Segment::load(CODE + 0x2001, &[1], X)), LoadError::OddCode { address: CODE + 0x2001 });
    assert_eq!(
        error(Segment::load(L2_BASE + 23, &[1], R | W)),
        LoadError::Overlap { address: L2_BASE + 23, other: L2_BASE, size: 24 }
    );
    assert_eq!(error(Segment::load(CODE, &[1], R)), LoadError::Overlap { address: CODE, other: CODE, size: 12 });
    // The third program header's offset and file size.
    for (field, value) in [(4, u32::MAX), (4, 0x7fff_ffff)] {
        let error = patched(52 + 2 * 32 + field, &value.to_le_bytes());
        assert!(matches!(error, LoadError::BeyondFile { address: L2_BASE, size: 8, .. }), "{error}");
    }
}

#[test]
fn code_entry_and_handlers_belong_together() {
    let data_only = Elf::default().segment(Segment::load(L2_BASE, &[1], R | W));
    assert_eq!(refused(load(&data_only)), LoadError::NoCode);
    for entry in [CODE + 1, CODE + 12, CODE - 2, 0x1d00_1000, L2_BASE, u32::MAX] {
        let elf = Elf { entry, ..sample() };
        assert_eq!(refused(load(&elf)), LoadError::Entry { entry });
    }
    for (index, kind) in Kind::ALL.into_iter().enumerate() {
        for address in [0, CODE + 1, CODE + 12, L2_BASE] {
            let mut elf = sample();
            elf.symbols[index].value = address;
            assert_eq!(refused(load(&elf)), LoadError::Handler { name: kind.symbol(), address });
        }
    }
    // Who installs an image may name its handlers.
    let mut nameless = sample();
    nameless.symbols.drain(..3);
    assert!(Kind::ALL.iter().all(|&kind| load(&nameless).unwrap().handler(kind).is_none()));
    nameless.symbols.clear();
    assert_eq!(load(&nameless).unwrap().functions().count(), 0);
    let odd = nameless.symbol("init_handlers", CODE + 3, 0);
    assert_eq!(refused(load(&odd)), LoadError::Handler { name: "init_handlers", address: CODE + 3 });
}

#[test]
fn symbols_that_mislead() {
    let many = (0..1 << 13).fold(sample(), |elf, i| elf.symbol("", i, 0));
    assert_eq!(refused(load(&many)), LoadError::TooManySymbols { count: (1 << 13) + 5, max: 1 << 13 });
    // Names that would garble a report, or are longer than any report, name nothing.
    let long = "n".repeat(2000);
    let odd = sample().symbol("esc\x1b[2J", CODE, 4).symbol("$x", CODE, 4).symbol(&long, CODE, 4);
    let image = load(&odd).unwrap();
    assert_eq!([image.symbol("esc\x1b[2J"), image.symbol("$x"), image.symbol(&long)], [None; 3]);

    // A name outside the string table: the first symbol's, found from the section header.
    let file = sample().build();
    let at = |offset: usize| u32::from_le_bytes(file[offset..offset + 4].try_into().unwrap()) as usize;
    let symbols = at(at(32) + 40 + 16);
    let error = patched(symbols + 16, &u32::MAX.to_le_bytes());
    assert!(matches!(error, LoadError::SymbolName { index: 1, offset: u32::MAX, .. }), "{error}");
    // A string table that does not end in zero, for the name that reaches its end.
    let strings = at(at(32) + 80 + 16);
    let last = strings + at(at(32) + 80 + 20) - 1;
    let error = patched(last, b"!");
    assert!(matches!(error, LoadError::SymbolName { index: 4, .. }), "{error}");
}

/// Every message is whole: a value of a variant prints without braces left over, and names what it is about.
#[test]
fn messages_say_what_and_where() {
    let error = refused(load(&sample().segment(Segment::load(0x1000, &[1], R | W))));
    assert_eq!(
        error.to_string(),
        "writable segment at 0x00001000, 1 bytes long, is not within L2 data (0x1c000000, 3145728 bytes) or handler \
         memory (0x1c300000, 1048576 bytes) or L1 data (0x10000000, 20480 bytes) or L1 data by its alias (0x1b000000, \
         20480 bytes)"
    );
    assert_eq!(
        refused(Image::load(b"#!/bin/sh", &MACHINE)).to_string(),
        "not an ELF file: it begins with [23, 21, 2f, 62, 69, 6e, 2f]; compile handlers with spin-cc"
    );
}

#[test]
fn a_file_cut_at_any_byte_is_refused() {
    let file = sample().build();
    for len in 0..file.len() {
        let error = refused(Image::load(&file[..len], &MACHINE));
        assert!(!error.to_string().is_empty());
    }
}

/// What holds for every image that is accepted, whatever file it came from.
fn check_invariants(image: &Image) {
    let mut memory = image.instantiate();
    let size: usize = memory.segments().map(|(.., bytes)| bytes.len()).sum();
    assert!(size <= (MACHINE.l2_data_size + MACHINE.handler_mem_size + MACHINE.clusters * L1_DATA) as usize);
    let mut stack = [0; 64];
    let mut view = View::new();
    // No overlap, no wrap, not too many: the view refuses all of these.
    image.map_into(&mut view).unwrap();
    memory.map_into(&mut view).unwrap();
    let handlers = Kind::ALL.map(|kind| image.handler(kind));
    let starts = handlers.into_iter().chain([image.entry(), image.init_handlers()]).flatten();
    for start in starts {
        assert!(start.is_multiple_of(2) && image.code().contains(start));
        assert_eq!(view.kind_of(start, 1).unwrap().0, RegionKind::Code);
        assert!(!view.writable(start, 1));
    }
    let handler_memory = MACHINE.handler_mem_base..=MACHINE.handler_mem_base + MACHINE.handler_mem_size;
    assert!(handler_memory.contains(&image.handler_mem_end()) && image.handler_mem_end().is_multiple_of(4096));
    check_lines(image);
    // What is left of the machine can still be mapped beside it.
    let base = MACHINE.stack_base(0, 0);
    view.push(Range { kind: RegionKind::Stack, base, memory: Memory::ReadWrite(&mut stack) }).unwrap();
}

/// A line is told for code only, and can be printed.
fn check_lines(image: &Image) {
    let ends = image.code().segments().iter().map(|segment| (segment.base, segment.base + segment.bytes.len() as u32));
    for pc in ends.flat_map(|(start, end)| start - 1..end + 1).chain([0, u32::MAX]) {
        for Line { file, line } in image.line(pc).into_iter().chain(image.inlined_at(pc)) {
            assert!(image.code().contains(pc) && line > 0);
            assert!((1..=128).contains(&file.len()) && file.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        }
        assert!(image.inlined_at(pc).is_none() || image.line(pc).is_some());
    }
}

/// An image with line tables, as `spin-cc -g` makes it, and where they are.
static WITH_LINES: LazyLock<(Vec<u8>, Vec<usize>)> = LazyLock::new(|| {
    let file = with_lines("-g");
    let places = places_of_lines(&file);
    (file, places)
});

fn with_lines(option: &str) -> Vec<u8> {
    spin_handlers::try_build(&[&spin_handlers::source("store_outside")], &[option]).unwrap()
}

/// Number of the first line of a handler's source that contains `text`.
fn line_with(handler: &str, text: &str) -> u32 {
    let source = std::fs::read_to_string(spin_handlers::source(handler)).unwrap();
    1 + u32::try_from(source.lines().position(|line| line.contains(text)).unwrap()).unwrap()
}

/// Instructions of the payload handler.
fn payload_handler(image: &Image) -> impl Iterator<Item = u32> {
    let start = image.handler(Kind::Payload).unwrap();
    (start..start + image.symbol_size("payload_handler").unwrap()).step_by(2)
}

#[test]
fn an_image_built_with_g_tells_lines_whatever_the_version() {
    let load = |option| Image::load(&with_lines(option), &MACHINE).unwrap();
    let [plain, three, four, five] = ["-O3", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5"].map(load);
    let pcs = || payload_handler(&five);
    assert!(pcs().all(|pc| plain.line(pc).is_none()));
    assert!(pcs().all(|pc| five.line(pc) == four.line(pc) && five.line(pc) == three.line(pc)));

    let store = line_with("store_outside", "= 0xa5");
    assert!(pcs().any(|pc| five.line(pc) == Some(Line { file: "store_outside.c", line: store })));
    let inlined = |line: Line<'_>| line.file.starts_with("spin_") && line.file.ends_with(".h");
    assert!(pcs().any(|pc| five.line(pc).is_some_and(inlined)), "a helper of the SDK");
}

#[test]
fn code_that_was_inlined_from_the_sdk_has_the_handlers_own_line_too() {
    let (load, report) = (line_with("inlined_load", "the own line"), line_with("inlined_load", "the report"));
    let has_gcc = spin_handlers::try_build(&[&spin_handlers::source("empty")], &["--compiler", "gcc"]).is_ok();
    assert!(has_gcc || std::env::var_os("SPIN_REQUIRE_ALL").is_none(), "no gcc");
    for (compiler, version) in ["clang", "gcc"][..1 + usize::from(has_gcc)]
        .iter()
        .flat_map(|compiler| ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"].map(|version| (*compiler, version)))
    {
        let arguments = ["--compiler", compiler, version];
        let image = spin_handlers::try_build(&[&spin_handlers::source("inlined_load")], &arguments).unwrap();
        let image = Image::load(&image, &MACHINE).unwrap();
        // The own lines of the instructions of a format that are in a header.
        let own_lines = |file: &str, format| {
            let in_header = payload_handler(&image).filter(|&pc| image.line(pc).is_some_and(|line| line.file == file));
            let of_format =
                in_header.filter(|&pc| image.code().fetch(pc).is_some_and(|it| it.inst.op.format() == format));
            of_format.map(|pc| image.inlined_at(pc)).collect::<Vec<_>>()
        };
        let own = |line| vec![Some(Line { file: "inlined_load.c", line })];
        assert_eq!(own_lines("spin_task.h", Format::Store), own(report), "{arguments:?}");
        // For gcc the load is in the line of the call already.
        let expected = if compiler == "clang" { own(load) } else { Vec::new() };
        assert_eq!(own_lines("spin_bytes.h", Format::Load), expected, "{arguments:?}");
        assert!(own_lines("inlined_load.c", Format::Store).iter().all(Option::is_none), "{arguments:?}");
    }
}

/// Offsets of what lines are read from: the tables, their strings, and the section headers and names.
fn places_of_lines(file: &[u8]) -> Vec<usize> {
    let parsed = object::File::parse(file).unwrap();
    let range = |name| parsed.section_by_name(name).unwrap().file_range().unwrap();
    let info = [".debug_info", ".debug_abbrev", ".debug_addr", ".debug_rnglists"].map(range);
    let bytes = [".debug_line", ".debug_line_str", ".shstrtab"].map(range).into_iter().chain(info);
    let headers = u32::from_le_bytes(file[32..36].try_into().unwrap()) as usize;
    let sections = bytes.flat_map(|(offset, size)| offset as usize..(offset + size) as usize);
    sections.chain(32..52).chain(headers..file.len()).collect()
}

/// Offsets where a change matters: headers, program headers, symbols, section headers; not the padding between.
fn mutable_places(file: &[u8]) -> Vec<usize> {
    let sections = u32::from_le_bytes(file[32..36].try_into().unwrap()) as usize;
    (0..52 + 4 * 32).chain(sections - 200..file.len()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn mutated_files_are_refused_or_sound(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let mut file = sample().build();
        let places = mutable_places(&file);
        for (place, value) in changes {
            file[*place.get(&places)] = value;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        if let Ok(image) = Image::load(&file, &MACHINE) {
            check_invariants(&image);
        }
    }

    #[test]
    fn mutated_line_tables_are_left_out_or_sound(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let (mut file, places) = WITH_LINES.clone();
        for (place, value) in changes {
            file[*place.get(&places)] = value;
        }
        if let Ok(image) = Image::load(&file, &MACHINE) {
            check_lines(&image);
        }
    }

    #[test]
    fn random_segments_are_refused_or_sound(
        segments in prop::collection::vec((0_usize..6, 0_u32..0x40, 0_u32..0x20, 0_u32..0x40, 0_u32..8), 1..8),
    ) {
        let bases = [CODE, CODE + 0x7fe0, L2_BASE, 0x1c2f_ffe0, 0x1c3f_ffe0, 0xffff_ffe0];
        let elf = Elf::default().segment(Segment::load(CODE + 0x4000, &assemble(&[RET]), X));
        let elf = elf.symbol("payload_handler", CODE + 0x4000, 4);
        let elf = segments.into_iter().fold(elf, |elf, (base, offset, len, memory, flags)| {
            let bytes = vec![1; len as usize];
            elf.segment(Segment::load(bases[base].saturating_add(offset), &bytes, flags).memory(memory))
        });
        if let Ok(image) = load(&elf) {
            check_invariants(&image);
        }
    }
}
