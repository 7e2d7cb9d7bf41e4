//! Numbers of 64 bits in two registers. Compilers for 32 bits add to one by adding to its lower half, and the carry to the upper one: it is
//! there if the sum is less than what it is of. Here that is one addition.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, InstructionData, Opcode, Value};

use super::Emitter;

/// A number whose halves are `low` and `high`, to which `more` is added.
struct Sum {
    low: Value,
    high: Value,
    more: Value,
}

impl Emitter<'_> {
    /// The number whose halves these are.
    pub(super) fn joined(&mut self, low: Value, high: Value) -> Value {
        let Some(Sum { low, high, more }) = self.sum(low, high) else { return self.join_halves(low, high) };
        let (number, more) = (self.join_halves(low, high), self.zero_extended(more));
        self.builder.ins().iadd(number, more)
    }

    fn join_halves(&mut self, low: Value, high: Value) -> Value {
        let [low, high] = [low, high].map(|half| self.zero_extended(half));
        let high = self.builder.ins().ishl_imm_u(high, 32);
        self.builder.ins().bor(low, high)
    }

    /// A value of 32 bits, extended with zeroes: what it was cut from, if that is it.
    pub(super) fn zero_extended(&mut self, value: Value) -> Value {
        let whole = self.unary(value, Opcode::Ireduce).filter(|&whole| {
            let opcode = self.made_by(whole).map(|made| made.opcode());
            matches!(opcode, Some(Opcode::Uextend | Opcode::Uload32 | Opcode::Uload16 | Opcode::Uload8))
        });
        whole.unwrap_or_else(|| self.builder.ins().uextend(I64, value))
    }

    /// What these are the halves of, if that is a sum.
    fn sum(&self, low: Value, high: Value) -> Option<Sum> {
        let ([one, other], [left, right]) = (self.addends(low)?, self.addends(high)?);
        let (high, of) = match self.carry_of(low, right) {
            Some(of) => (left, of),
            None => (right, self.carry_of(low, left)?),
        };
        match of {
            _ if self.is_same(of, one) => Some(Sum { low: one, high, more: other }),
            _ if self.is_same(of, other) => Some(Sum { low: other, high, more: one }),
            _ => None,
        }
    }

    /// What a sum has to be of if this is its carry.
    fn carry_of(&self, sum: Value, carry: Value) -> Option<Value> {
        match self.made_by(self.unary(carry, Opcode::Uextend)?)? {
            InstructionData::IntCompare { cond: IntCC::UnsignedLessThan, args: [less, than], .. } => {
                self.is_same(less, sum).then_some(than)
            }
            _ => None,
        }
    }

    /// What a value is the sum of, in 32 bits: what was added up in 64, as a pointer at a known distance is, has no carry like that.
    fn addends(&self, value: Value) -> Option<[Value; 2]> {
        let name = self.name(value);
        match self.made_by(name)? {
            InstructionData::Binary { opcode: Opcode::Iadd, args } => {
                (self.builder.func.dfg.value_type(name) == I32).then_some(args)
            }
            _ => None,
        }
    }

    /// Whether two values of 32 bits are the same one.
    fn is_same(&self, one: Value, other: Value) -> bool {
        self.name(one) == self.name(other)
    }

    /// What stands for a value of 32 bits, however often it was extended and cut since.
    fn name(&self, mut value: Value) -> Value {
        while let Some(same) = self.unary(value, Opcode::Ireduce).or_else(|| self.extended_from(value)) {
            value = same;
        }
        self.builder.func.dfg.resolve_aliases(value)
    }

    /// The value of 32 bits that this one of 64 was extended from.
    fn extended_from(&self, value: Value) -> Option<Value> {
        self.unary(value, Opcode::Uextend).filter(|&narrow| self.builder.func.dfg.value_type(narrow) == I32)
    }

    /// What the instruction that made a value was given, if it is such a one.
    fn unary(&self, value: Value, opcode: Opcode) -> Option<Value> {
        match self.made_by(value)? {
            InstructionData::Unary { opcode: made, arg } if made == opcode => Some(arg),
            _ => None,
        }
    }

    fn made_by(&self, value: Value) -> Option<InstructionData> {
        let dfg = &self.builder.func.dfg;
        dfg.value_def(value).inst().map(|inst| dfg.insts[inst])
    }
}
