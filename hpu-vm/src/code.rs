//! Executable memory of an image, decoded once into the table from which the interpreter fetches.

use std::collections::BTreeSet;
use std::ops::Range;

use spin_abi::fault::Cause;

use crate::decode::{Decoded, decode, size};
use crate::inst::{Inst, Op};

/// Table entry where no instruction can be executed. No instruction has a size of 0.
const NOTHING: Decoded = Decoded { inst: Inst::new(Op::Ebreak), size: 0 };

/// A contiguous range of executable bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeSegment {
    /// Guest address of the first byte; even.
    pub base: u32,
    /// Bytes of the segment.
    pub bytes: Box<[u8]>,
}

/// All code of an image.
///
/// An instruction is decoded at *every* even offset, since a jump may lead anywhere. It must lie in one segment. An
/// instruction that extends beyond a segment's end is not fetched, even if another segment follows directly.
#[derive(Clone, Debug)]
pub struct Code {
    base: u32,
    table: Box<[Decoded]>,
    segments: Box<[CodeSegment]>,
    global_pointer: u32,
    functions: BTreeSet<u32>,
    cold: Box<[Range<u32>]>,
}

impl Code {
    /// Decodes `segments`, which must be in ascending order, non-empty and disjoint, have even bases and end below
    /// 2^32. The table spans all of them with 6 bytes per byte, so the caller must bound the span first.
    ///
    /// # Panics
    /// When `segments` violate these conditions.
    #[must_use]
    pub fn new(segments: Vec<CodeSegment>) -> Self {
        let base = segments.first().map_or(0, |first| first.base);
        let mut table = Vec::new();
        let mut end = u64::from(base);
        for segment in &segments {
            assert!(segment.base.is_multiple_of(2) && !segment.bytes.is_empty() && u64::from(segment.base) >= end);
            end = u64::from(segment.base) + segment.bytes.len() as u64;
            assert!(end <= 1 << 32);
            table.resize((segment.base - base) as usize / 2, NOTHING);
            table.extend(decode_segment(&segment.bytes));
        }
        let (table, segments) = (table.into_boxed_slice(), segments.into_boxed_slice());
        Self { base, table, segments, global_pointer: 0, functions: BTreeSet::new(), cold: Box::default() }
    }

    /// Sets the value of `gp` at the start of a handler; relaxed code addresses data relative to it.
    #[must_use]
    pub fn with_global_pointer(self, global_pointer: u32) -> Self {
        Self { global_pointer, ..self }
    }

    /// Adds the known start addresses of functions.
    #[must_use]
    pub fn with_functions(self, functions: impl Iterator<Item = u32>) -> Self {
        Self { functions: functions.collect(), ..self }
    }

    /// Known start addresses of functions.
    pub(crate) const fn functions(&self) -> &BTreeSet<u32> {
        &self.functions
    }

    /// Adds ranges of code that is rarely executed. Execution continues there outside of the handler's own code.
    #[must_use]
    pub fn with_cold(self, cold: impl Iterator<Item = Range<u32>>) -> Self {
        Self { cold: cold.collect(), ..self }
    }

    /// Returns the ranges of code that is rarely executed.
    #[must_use]
    pub fn cold(&self) -> &[Range<u32>] {
        &self.cold
    }

    /// Whether the code at `pc` is rarely executed.
    pub(crate) fn is_cold(&self, pc: u32) -> bool {
        self.cold.iter().any(|range| range.contains(&pc))
    }

    /// Returns the value of `gp` at the start of a handler.
    #[must_use]
    pub const fn global_pointer(&self) -> u32 {
        self.global_pointer
    }

    /// Decodes code of one segment at `base`.
    ///
    /// # Panics
    /// As [`Code::new`].
    #[must_use]
    pub fn at(base: u32, bytes: &[u8]) -> Self {
        Self::new(vec![CodeSegment { base, bytes: bytes.into() }])
    }

    /// Makes code of uncompressed instructions from `base` on.
    #[cfg(test)]
    pub(crate) fn of<'i>(base: u32, program: impl IntoIterator<Item = &'i Inst>) -> Self {
        let bytes: Vec<u8> = program.into_iter().flat_map(|inst| inst.encode().to_le_bytes()).collect();
        Self::at(base, &bytes)
    }

    /// Returns the instruction at `pc`, which must be even; `None` where there is no instruction, see
    /// [`Code::fetch_fault`].
    #[must_use]
    #[inline]
    pub fn fetch(&self, pc: u32) -> Option<&Decoded> {
        let index = pc.wrapping_sub(self.base) >> 1;
        self.table.get(index as usize).filter(|decoded| decoded.size != 0)
    }

    /// Returns cause and address of the fault of executing at `pc`, where [`Code::fetch`] found nothing.
    #[must_use]
    pub fn fetch_fault(&self, pc: u32) -> (Cause, u32) {
        if pc & 1 != 0 {
            return (Cause::InstructionMisaligned, pc);
        }
        let Some(rest) = self.bytes_from(pc) else { return (Cause::InstructionAccess, pc) };
        match *rest {
            [] | [_] => (Cause::InstructionAccess, pc),
            [a, b, ref more @ ..] => match (size(u16::from_le_bytes([a, b])), more) {
                (2, _) => (Cause::IllegalInstruction, u32::from_le_bytes([a, b, 0, 0])),
                (_, &[c, d, ..]) => (Cause::IllegalInstruction, u32::from_le_bytes([a, b, c, d])),
                // The upper half lies outside.
                _ => (Cause::InstructionAccess, pc.wrapping_add(2)),
            },
        }
    }

    /// Whether a byte of code lies at `address`.
    #[must_use]
    pub fn contains(&self, address: u32) -> bool {
        self.bytes_from(address).is_some()
    }

    /// Returns the segments in ascending order.
    #[must_use]
    pub fn segments(&self) -> &[CodeSegment] {
        &self.segments
    }

    /// The bytes from `address` to the end of its segment, at least one.
    fn bytes_from(&self, address: u32) -> Option<&[u8]> {
        self.segments.iter().find_map(|segment| {
            let rest = segment.bytes.get(address.checked_sub(segment.base)? as usize..)?;
            (!rest.is_empty()).then_some(rest)
        })
    }
}

/// One entry per even offset of `bytes`. The entry of an odd last byte executes nothing.
fn decode_segment(bytes: &[u8]) -> impl Iterator<Item = Decoded> + '_ {
    (0..bytes.len()).step_by(2).map(|at| match bytes[at..] {
        [a, b, c, d, ..] => decode(u32::from_le_bytes([a, b, c, d])).unwrap_or(NOTHING),
        [a, b, ..] if size(u16::from_le_bytes([a, b])) == 2 => {
            decode(u32::from_le_bytes([a, b, 0, 0])).unwrap_or(NOTHING)
        }
        _ => NOTHING,
    })
}

#[cfg(test)]
mod tests {
    use super::{Code, CodeSegment};
    use spin_abi::fault::Cause;

    const BASE: u32 = 0x1d00_0000;

    #[test]
    fn an_instruction_is_found_at_every_even_offset() {
        // lui a5, 0x1b205 (its upper half reads as `c.addi4spn`), then ret
        let code = Code::at(BASE, &[0xb7, 0x57, 0x20, 0x1b, 0x82, 0x80]);
        let text = |pc| code.fetch(pc).map(|d| (d.inst.to_string(), d.size));
        assert_eq!(text(BASE), Some(("lui a5, 0x1b205".to_owned(), 4)));
        assert_eq!(text(BASE + 2), Some(("addi s0, sp, 440".to_owned(), 2)));
        assert_eq!(text(BASE + 4), Some(("jalr zero, 0(ra)".to_owned(), 2)));
        assert_eq!(text(BASE + 6), None);
        assert_eq!(text(BASE - 2), None);
        assert_eq!(text(0xffff_fffc), None);
    }

    #[test]
    fn why_nothing_can_be_executed() {
        // c.nop, 0x0000, an illegal word, a word cut in half
        let code = Code::at(BASE, &[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xb7, 0x57]);
        assert!(code.fetch(BASE).is_some());
        let cases = [
            (BASE + 1, Cause::InstructionMisaligned, BASE + 1),
            (BASE + 2, Cause::IllegalInstruction, 0),
            (BASE + 4, Cause::IllegalInstruction, 0xffff_ffff),
            (BASE + 8, Cause::InstructionAccess, BASE + 10),
            (BASE + 10, Cause::InstructionAccess, BASE + 10),
            (0, Cause::InstructionAccess, 0),
        ];
        for (pc, cause, address) in cases {
            if pc & 1 == 0 {
                assert!(code.fetch(pc).is_none(), "{pc:#x}");
            }
            assert_eq!(code.fetch_fault(pc), (cause, address), "{pc:#x}");
        }
    }

    #[test]
    fn nothing_executes_between_segments() {
        let segment = |base, bytes: &[u8]| CodeSegment { base, bytes: bytes.into() };
        let code = Code::new(vec![segment(BASE, &[1, 0, 1]), segment(BASE + 8, &[1, 0])]);
        let found: Vec<u32> = (0..12).step_by(2).filter(|&at| code.fetch(BASE + at).is_some()).collect();
        assert_eq!(found, [0, 8]);
        assert_eq!(code.fetch_fault(BASE + 2), (Cause::InstructionAccess, BASE + 2));
        assert!(code.contains(BASE + 2) && !code.contains(BASE + 3) && !code.contains(BASE + 10));
    }

    #[test]
    fn no_code_at_all() {
        assert!(Code::new(Vec::new()).fetch(0).is_none());
    }
}
