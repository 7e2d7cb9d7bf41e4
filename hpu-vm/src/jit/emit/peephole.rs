//! Patterns of Cranelift's instructions: byte reversal, which compilers for RV32IMAC express with shifts, masks and ors,
//! and zero-extension.

use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{DataFlowGraph, InstBuilder, InstructionData, Opcode, Value};

use super::emitter::Emitter;

/// Maximum depth of a pattern. The usual sequences are three deep.
const DEPTH: u32 = 4;

/// A value as bytes of another, lowest first; `None` is zero.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Bytes {
    of: Value,
    places: [Option<u8>; 4],
}

impl Bytes {
    const fn whole(of: Value) -> Self {
        Self { of, places: [Some(0), Some(1), Some(2), Some(3)] }
    }

    fn of(dfg: &DataFlowGraph, value: Value, depth: u32) -> Self {
        Self::made(dfg, value, depth).unwrap_or(Self::whole(value))
    }

    fn made(dfg: &DataFlowGraph, value: Value, depth: u32) -> Option<Self> {
        let (depth, inst) = (depth.checked_sub(1)?, dfg.value_def(value).inst()?);
        let InstructionData::Binary { opcode, args: [a, b] } = dfg.insts[inst] else { return None };
        if opcode == Opcode::Bor {
            return Self::of(dfg, a, depth).with(Self::of(dfg, b, depth));
        }
        // Either operand may be the constant.
        let (a, by) = match (constant(dfg, a), constant(dfg, b)) {
            (_, Some(by)) => (a, by),
            (Some(by), None) if opcode == Opcode::Band => (b, by),
            _ => return None,
        };
        let Self { of, places } = Self::of(dfg, a, depth);
        let whole = |by: u32| by.is_multiple_of(8).then_some((by / 8 % 4) as usize);
        let mut moved = [None; 4];
        match opcode {
            Opcode::Ishl => whole(by).map(|by| moved[by..].copy_from_slice(&places[..4 - by]))?,
            Opcode::Ushr => whole(by).map(|by| moved[..4 - by].copy_from_slice(&places[by..]))?,
            Opcode::Band => {
                for (index, mask) in by.to_le_bytes().into_iter().enumerate() {
                    match mask {
                        0 => {}
                        0xff => moved[index] = places[index],
                        _ => return None,
                    }
                }
            }
            _ => return None,
        }
        Some(Self { of, places: moved })
    }

    /// Bytes of both, if at most one of them is not zero in each place.
    fn with(self, other: Self) -> Option<Self> {
        let mut places = self.places;
        for (mine, its) in places.iter_mut().zip(other.places) {
            if mine.is_some() && its.is_some() {
                return None;
            }
            *mine = mine.or(its);
        }
        (self.of == other.of).then_some(Self { of: self.of, places })
    }
}

fn constant(dfg: &DataFlowGraph, value: Value) -> Option<u32> {
    match dfg.insts[dfg.value_def(value).inst()?] {
        InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits() as u32),
        _ => None,
    }
}

/// `a | b`.
pub(super) fn or(emitter: &mut Emitter<'_>, a: Value, b: Value) -> Value {
    let dfg = &emitter.builder.func.dfg;
    let both = Bytes::of(dfg, a, DEPTH).with(Bytes::of(dfg, b, DEPTH));
    match both.filter(|both| both.places == [Some(3), Some(2), Some(1), Some(0)]) {
        Some(Bytes { of, .. }) => emitter.builder.ins().bswap(of),
        None => emitter.builder.ins().bor(a, b),
    }
}

/// A 32-bit value, zero-extended: the value that it was reduced from, if that is zero-extended.
pub(super) fn zero_extended(emitter: &mut Emitter<'_>, value: Value) -> Value {
    let dfg = &emitter.builder.func.dfg;
    let made_by = |value| dfg.value_def(value).inst().map(|inst| dfg.insts[inst]);
    let whole = made_by(value).and_then(|made| match made {
        InstructionData::Unary { opcode: Opcode::Ireduce, arg } => Some(arg),
        _ => None,
    });
    let is_extended = |&whole: &Value| {
        let opcode = made_by(whole).map(|made| made.opcode());
        matches!(opcode, Some(Opcode::Uextend | Opcode::Uload32 | Opcode::Uload16 | Opcode::Uload8))
    };
    whole.filter(is_extended).unwrap_or_else(|| emitter.builder.ins().uextend(I64, value))
}

/// The 64-bit number with these halves.
pub(super) fn join_halves(emitter: &mut Emitter<'_>, low: Value, high: Value) -> Value {
    let [low, high] = [low, high].map(|half| zero_extended(emitter, half));
    let high = emitter.builder.ins().ishl_imm_u(high, 32);
    emitter.builder.ins().bor(low, high)
}
