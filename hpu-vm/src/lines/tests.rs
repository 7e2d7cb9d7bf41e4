use proptest::prelude::*;

use super::{Line, Lines, MAX_FILES, MAX_TABLES, Sections};
use crate::code::Code;

const CODE: u32 = 0x1d00_0000;
const SIZE: usize = 256;
/// Ends a sequence: an extended opcode of one byte.
const END: [u8; 3] = [0, 1, 1];
/// Appends a row.
const ROW: u8 = 1;

fn resolve(line: &[u8], line_strings: &[u8]) -> Lines {
    Lines::resolve(&Sections { line, line_strings, strings: b"" }, &Code::at(CODE, &[1; SIZE]))
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
