//! Code addresses that an image contains: possible targets of computed jumps.

use std::collections::BTreeSet;

use crate::code::Code;
use crate::inst::Op;

/// Maximum number of addresses.
const MAX_TAKEN: usize = 4096;

/// Returns code addresses that `data` words hold or that pairs of instructions in `code` compute. They are guesses: a
/// translation does not depend on them being complete.
pub(crate) fn addresses_taken<'d>(code: &'d Code, data: impl Iterator<Item = &'d [u8]>) -> BTreeSet<u32> {
    let segments = code.segments();
    let words = data.chain(segments.iter().map(|segment| &*segment.bytes)).flat_map(|bytes| bytes.as_chunks().0);
    let held = words.map(|word| u32::from_le_bytes(*word));
    let computed = segments.iter().flat_map(|segment| {
        let len = u32::try_from(segment.bytes.len()).unwrap_or(u32::MAX);
        (0..len).step_by(2).filter_map(|at| pair(code, segment.base + at))
    });
    held.chain(computed).filter(|&address| address & 1 == 0 && code.fetch(address).is_some()).take(MAX_TAKEN).collect()
}

/// The value that `lui` or `auipc` at `pc` and the `addi` after it compute.
fn pair(code: &Code, pc: u32) -> Option<u32> {
    let high = code.fetch(pc)?;
    let base = match high.inst.op {
        Op::Lui => 0,
        Op::Auipc => pc,
        _ => return None,
    };
    let low = code.fetch(high.next(pc)).map(|decoded| decoded.inst)?;
    let same = low.op == Op::Addi && low.rs1 == high.inst.rd;
    same.then(|| base.wrapping_add(high.inst.imm.wrapping_add(low.imm).cast_unsigned()))
}
