use proptest::prelude::*;

use super::files::MAX_FILES;
use super::inlined::MAX_RANGES;
use super::sections::{InfoSections, MAX_TABLES, Sections};
use super::{Line, Lines};
use crate::code::Code;

const CODE: u32 = 0x1d00_0000;
const SIZE: usize = 256;
/// Ends a sequence: an extended opcode of one byte.
const END: [u8; 3] = [0, 1, 1];
/// Appends a row.
const ROW: u8 = 1;

fn resolve(line: &[u8], line_strings: &[u8]) -> Lines {
    Lines::resolve(&Sections { line, line_strings, ..Sections::default() }, &Code::at(CODE, &[1; SIZE]))
}

/// A file and line, if any.
fn at(lines: &Lines, offset: u32) -> Option<(&str, u32)> {
    lines.find(CODE + offset).map(|Line { file, line }| (file, line))
}

/// A unit of `version`, with what stands before and after the length of the header.
fn unit(version: u16, sizes: &[u8], tables: &[u8], program: &[u8]) -> Vec<u8> {
    // One address unit per step, line_base -5, line_range 14, and the nine standard opcodes of DWARF 2.
    let mut header = vec![1, 1, 1, 0xfb, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1];
    header.extend_from_slice(tables);
    let mut unit = [&version.to_le_bytes(), sizes, &length(header.len()), &header, program].concat();
    unit.splice(..0, length(unit.len()));
    unit
}

fn length(len: usize) -> [u8; 4] {
    u32::try_from(len).unwrap().to_le_bytes()
}

/// DWARF 4: files are numbered from 1.
fn unit4(files: &[&str], program: &[u8]) -> Vec<u8> {
    let mut tables = vec![0];
    for file in files {
        tables.extend_from_slice(file.as_bytes());
        tables.extend_from_slice(&[0; 4]);
    }
    tables.push(0);
    unit(4, &[], &tables, program)
}

/// DWARF 5: files are numbered from 0 and named by offsets in `.debug_line_str`.
fn unit5(names: &[u32], program: &[u8]) -> Vec<u8> {
    // Directories have one field, a path in place; there is one, without a name.
    let mut tables = vec![1, 1, 8, 1, 0];
    tables.extend_from_slice(&[1, 1, 0x1f, u8::try_from(names.len()).unwrap()]);
    tables.extend(names.iter().flat_map(|name| name.to_le_bytes()));
    unit(5, &[4, 0], &tables, program)
}

fn address(offset: u32) -> Vec<u8> {
    [&[0, 5, 2], &CODE.wrapping_add(offset).to_le_bytes()[..]].concat()
}

fn file(number: u8) -> [u8; 2] {
    [4, number]
}

/// Lines to go forward; in one byte, so fewer than 64.
fn line(forward: u8) -> [u8; 2] {
    [3, forward]
}

fn advance(bytes: u8) -> [u8; 2] {
    [2, bytes]
}

#[test]
fn a_line_holds_up_to_the_next_row_of_its_sequence() {
    let program =
        [&address(8)[..], &line(9), &[ROW], &advance(4), &line(1), &file(2), &[ROW], &advance(6), &END].concat();
    let lines = resolve(&unit4(&["main.c", "sdk/include/spin.h"], &program), b"");
    let found: Vec<_> = [7, 8, 11, 12, 17, 18].map(|offset| at(&lines, offset)).into();
    let (main, header) = (Some(("main.c", 10)), Some(("spin.h", 11)));
    assert_eq!(found, [None, main, main, header, header, None]);
}

#[test]
fn names_lie_where_the_version_says() {
    let names = b"first.c\0/somewhere/second.c\0trailing/\0bell\x07.c\0endless";
    let offsets = [0, 8, 28, 38, 46, 1000];
    let program: Vec<u8> = (0..6).flat_map(|n| [&address(n * 2)[..], &file(n as u8), &[ROW]].concat()).collect();
    let lines = resolve(&unit5(&offsets, &program), names);
    assert_eq!((at(&lines, 0), at(&lines, 2)), (Some(("first.c", 1)), Some(("second.c", 1))));
    for offset in [4, 6, 8, 10, 12] {
        assert_eq!(at(&lines, offset), None, "{offset}");
    }
}

#[test]
fn a_start_at_another_sequences_end_prevails() {
    let low = [&address(0)[..], &line(1), &[ROW], &advance(4), &END].concat();
    let high = [&address(4)[..], &line(2), &[ROW], &advance(4), &END].concat();
    for program in [[&low[..], &high].concat(), [high, low].concat()] {
        let lines = resolve(&unit4(&["a.c"], &program), b"");
        let found: Vec<_> = [3, 4, 7, 8].map(|offset| at(&lines, offset)).into();
        assert_eq!(found, [Some(("a.c", 2)), Some(("a.c", 3)), Some(("a.c", 3)), None]);
    }
}

#[test]
fn of_two_rows_at_an_address_the_second_holds() {
    let empty_at_start = [&address(0)[..], &line(1), &[ROW], &line(1), &[ROW], &advance(4), &END].concat();
    let lines = resolve(&unit4(&["a.c"], &empty_at_start), b"");
    assert_eq!((at(&lines, 0), at(&lines, 3)), (Some(("a.c", 3)), Some(("a.c", 3))));
    let empty_at_end = [&address(0)[..], &[ROW], &advance(4), &line(1), &[ROW], &END].concat();
    let lines = resolve(&unit4(&["a.c"], &empty_at_end), b"");
    assert_eq!((at(&lines, 3), at(&lines, 4)), (Some(("a.c", 1)), None));
    let nothing_at_all = [&address(0)[..], &[ROW], &END].concat();
    assert_eq!(at(&resolve(&unit4(&["a.c"], &nothing_at_all), b""), 0), None);
}

#[test]
fn code_without_source_has_no_line() {
    // Line 0 stands for no source, and file 3 is not in the table.
    let program =
        [&address(0)[..], &[3, 0x7f, ROW], &advance(4), &line(5), &[ROW], &advance(4), &file(3), &[ROW]].concat();
    let lines = resolve(&unit4(&["a.c"], &program), b"");
    assert_eq!([0, 4, 8].map(|offset| at(&lines, offset)), [None, Some(("a.c", 5)), None]);
}

#[test]
fn functions_that_are_not_in_the_code_leave_nothing() {
    for base in [CODE.wrapping_neg(), SIZE as u32, u32::MAX - CODE - 1] {
        let program = [&address(base)[..], &[ROW], &advance(1), &END].concat();
        assert!(resolve(&unit4(&["a.c"], &program), b"").rows.is_empty(), "{base:#x}");
    }
}

#[test]
fn damage_costs_what_follows_it() {
    let row = |offset| [&address(offset)[..], &[ROW]].concat();
    let half = unit4(&["a.c"], &[&row(0)[..], &[0, 200]].concat());
    let whole = unit4(&["b.c"], &row(8));
    let lines = resolve(&[&half[..], &whole].concat(), b"");
    assert_eq!((at(&lines, 0), at(&lines, 8)), (Some(("a.c", 1)), Some(("b.c", 1))), "each unit by itself");
    let mut unknown = whole.clone();
    unknown[4] = 9;
    let lines = resolve(&[&whole[..], &unknown, &half].concat(), b"");
    assert_eq!((at(&lines, 0), at(&lines, 8)), (None, Some(("b.c", 1))), "a header that cannot be read ends it");
}

#[test]
fn files_and_names_are_bounded() {
    let name = |len| "n".repeat(len);
    let program = [&address(0)[..], &[ROW], &advance(4), &file(2), &[ROW]].concat();
    let lines = resolve(&unit4(&[&name(128), &name(129)], &program), b"");
    assert_eq!((at(&lines, 0), at(&lines, 4)), (Some((&*name(128), 1)), None));

    let unit = unit4(&["a.c"], &[&address(0)[..], &[ROW]].concat());
    let lines = resolve(&unit.repeat(MAX_FILES + 1), b"");
    assert_eq!(lines.files.len(), MAX_FILES);
    let tables = unit.repeat(MAX_TABLES / unit.len());
    let lines = resolve(&tables, b"");
    assert_eq!((lines.files.len(), lines.rows.len()), (MAX_FILES, 1));
}

/// Entries of `.debug_info`: a unit of DWARF 4 with the line table at 0.
fn info(entries: &[u8]) -> Vec<u8> {
    let unit = [&4_u16.to_le_bytes()[..], &[0, 0, 0, 0, 4], &[1, 0, 0, 0, 0], entries, &[0]].concat();
    [&length(unit.len())[..], &unit].concat()
}

/// 1: a unit with its line table. 2: an inlined function with low_pc, high_pc, call_file and call_line, and with
/// children.
const ABBREVIATIONS: &[u8] = &[1, 0x11, 1, 0x10, 0x17, 0, 0, 2, 0x1d, 1, 0x11, 1, 0x12, 6, 0x58, 0xb, 0x59, 0xb, 0, 0];

/// An inlined function; its children follow, up to a zero.
fn inlined(begin: u32, len: u32, file: u8, line: u8) -> Vec<u8> {
    [&[2], &(CODE + begin).to_le_bytes()[..], &len.to_le_bytes(), &[file, line]].concat()
}

/// Lines of 64 bytes in line 9 of `spin.h`, and of inlined functions. Files 1 to 3 are `spin.h`, `own.c` and
/// `spin_task.h`.
fn with_inlined(entries: &[u8], abbreviations: &[u8]) -> Lines {
    let files = ["/opt/sdk/include/spin.h", "own.c", "/opt/sdk/include/spin_task.h"];
    let line = unit4(&files, &[&address(0)[..], &line(8), &[ROW], &advance(64), &END].concat());
    let info = info(entries);
    let info = InfoSections { info: &info, abbreviations, ..InfoSections::default() };
    Lines::resolve(&Sections { line: &line, info, ..Sections::default() }, &Code::at(CODE, &[1; SIZE]))
}

fn inlined_at(lines: &Lines, offset: u32) -> Option<(&str, u32)> {
    lines.inlined_at(CODE + offset).map(|Line { file, line }| (file, line))
}

#[test]
fn the_own_line_is_the_first_outside_of_the_sdk() {
    // Three nested functions and one beside them. The outermost is called in own.c:1, the next one in own.c:2.
    let nested = [inlined(0, 32, 2, 1), inlined(4, 16, 2, 2), inlined(8, 4, 3, 5), vec![0, 0, 0]].concat();
    let beside = [inlined(32, 8, 3, 7), vec![0], inlined(100, 4, 2, 8), vec![0]].concat();
    let lines = with_inlined(&[nested, beside].concat(), ABBREVIATIONS);
    let found = [0, 4, 8, 11, 12, 20, 31].map(|offset| inlined_at(&lines, offset));
    let (outer, inner) = (Some(("own.c", 1)), Some(("own.c", 2)));
    assert_eq!(found, [outer, inner, inner, inner, inner, outer, outer]);
    assert_eq!(inlined_at(&lines, 32), Some(("spin_task.h", 7)), "no line is known to be the handler's own");
    assert_eq!(inlined_at(&lines, 40), None, "not inlined");
    assert_eq!((at(&lines, 100), inlined_at(&lines, 100)), (Some(("own.c", 8)), None), "code without a line");
    assert_eq!(at(&lines, 8), Some(("spin.h", 9)));
}

#[test]
fn lines_of_the_handlers_own_file_have_no_other() {
    let line = unit4(&["own.c"], &[&address(0)[..], &[ROW], &advance(8), &END].concat());
    let info = info(&[inlined(0, 8, 1, 30), vec![0]].concat());
    let info = InfoSections { info: &info, abbreviations: ABBREVIATIONS, ..InfoSections::default() };
    let lines = Lines::resolve(&Sections { line: &line, info, ..Sections::default() }, &Code::at(CODE, &[1; SIZE]));
    assert_eq!((at(&lines, 0), inlined_at(&lines, 0)), (Some(("own.c", 1)), None));
}

#[test]
fn files_are_own_by_their_folders() {
    // The folders of DWARF 5 are in place here; each file names one of them.
    let folders = ["/opt/lib/spin/sdk/include", "/x/spin-handler", "/home/user/include", "/x/compat/include/hal", ""];
    let own = |folder: &str, path: &str| {
        let tables =
            [&[1, 1, 8, 1][..], folder.as_bytes(), &[0, 2, 1, 8, 2, 0xb, 1], path.as_bytes(), &[0, 0]].concat();
        let line = unit(5, &[4, 0], &tables, &[&address(0)[..], &file(0), &[ROW], &advance(4), &END].concat());
        let sections = Sections { line: &line, ..Sections::default() };
        Lines::resolve(&sections, &Code::at(CODE, &[1; SIZE])).files[0].own
    };
    assert_eq!(folders.map(|folder| own(folder, "task.h")), [false, true, true, false, true]);
    assert_eq!(folders.map(|folder| own(folder, "src/task.rs")), [false, false, true, false, true]);
    assert!(folders.iter().all(|folder| own(folder, "/home/user/a.c") && !own(folder, "/x/sdk/include/spin.h")));
}

#[test]
fn nesting_and_ranges_of_inlined_functions_are_bounded() {
    let deep: Vec<u8> = (1..=200).flat_map(|depth| inlined(0, 64, 2, depth)).collect();
    assert_eq!(inlined_at(&with_inlined(&deep, ABBREVIATIONS), 0), Some(("own.c", 64)));
    let beyond: Vec<u8> =
        [(0, 0), (64, 200), (250, 10)].into_iter().flat_map(|(begin, len)| inlined(begin, len, 2, 1)).collect();
    let lines = with_inlined(&beyond, ABBREVIATIONS);
    assert!((0..SIZE as u32).all(|offset| inlined_at(&lines, offset).is_none()));
    // The last one is one too many.
    let one = [inlined(0, 4, 2, 1), vec![0]].concat();
    let many = [one.repeat(MAX_RANGES), inlined(8, 4, 2, 1)].concat();
    let lines = with_inlined(&many, ABBREVIATIONS);
    assert_eq!((inlined_at(&lines, 0), inlined_at(&lines, 8)), (Some(("own.c", 1)), None));
}

#[test]
fn attributes_that_take_no_bytes_are_counted() {
    // 3: an entry of 30,000 attributes, each of them present without a byte.
    let wide = [&[3, 0x34, 0][..], &[0x3f, 0x19].repeat(30_000), &[0, 0, 0]].concat();
    let abbreviations = [ABBREVIATIONS, &wide].concat();
    let found = |count| {
        let lines = with_inlined(&[vec![3; count], inlined(0, 4, 2, 1)].concat(), &abbreviations);
        inlined_at(&lines, 0).is_some()
    };
    assert_eq!((found(500), found(100_000)), (true, false));
}

/// Sequences, each with the bytes before it and the length and line of each of its rows.
type Sequences = Vec<(u8, Vec<(u8, u8)>)>;

/// Lines by offset, and the programs of the sequences.
fn lay_out(sequences: &Sequences) -> (Vec<Option<u32>>, Vec<Vec<u8>>) {
    let mut expected = Vec::new();
    let programs = sequences.iter().map(|(gap, rows)| {
        expected.resize(expected.len() + usize::from(*gap), None);
        let mut program = address(u32::try_from(expected.len()).unwrap());
        let mut number = 1;
        for &(len, forward) in rows {
            program.extend([&line(forward)[..], &[ROW], &advance(len)].concat());
            number += u32::from(forward);
            expected.resize(expected.len() + usize::from(len), Some(number));
        }
        program.extend(END);
        program
    });
    let programs = programs.collect();
    (expected, programs)
}

proptest! {
    #[test]
    fn lines_agree_with_the_layout(
        sequences in prop::collection::vec((0_u8..4, prop::collection::vec((0_u8..6, 0_u8..20), 1..6)), 1..8),
        backwards: bool,
    ) {
        let (expected, mut programs) = lay_out(&sequences);
        if backwards {
            programs.reverse();
        }
        let lines = resolve(&unit4(&["a.c"], &programs.concat()), b"");
        for offset in 0..SIZE as u32 {
            let expected = expected.get(offset as usize).copied().flatten();
            prop_assert_eq!(at(&lines, offset), expected.map(|line| ("a.c", line)), "{}", offset);
        }
    }

    #[test]
    fn any_bytes_give_a_sound_table(
        program in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..5], 0..300),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        five: bool,
    ) {
        let program = [address(0), program].concat();
        let mut tables = if five { unit5(&[0, 4, 8], &program) } else { unit4(&["a.c", "b.c"], &program) };
        for (place, value) in changes {
            let place = place.index(tables.len());
            tables[place] = value;
        }
        let lines = resolve(&tables, b"a.c\0b.c\0c.c");
        prop_assert!(lines.rows.len() <= SIZE + 1);
        prop_assert!(lines.rows.is_sorted_by(|low, high| low.address < high.address));
        for offset in 0..SIZE as u32 {
            if let Some((file, line)) = at(&lines, offset) {
                prop_assert!(!file.is_empty() && line > 0);
            }
        }
    }
}
