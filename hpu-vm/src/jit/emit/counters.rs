//! Counting instructions: the limit of a task, and the counters a handler reads.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};

use super::Emitter;
use crate::csr::{Csr, Half};
use crate::inst::{Inst, Op, Reg};
use crate::jit::plan::Block;
use crate::jit::state::State;
use crate::vector::VLEN_BYTES;

impl Emitter<'_> {
    /// At the start of a block: if it would run over the limit, the interpreter does what is left, one by one.
    pub(super) fn count_block(&mut self, block: &Block) {
        self.block_len = block.body.len();
        if self.block_len > 0 {
            self.check_limit(block.start);
        }
    }

    /// After a device access, which counts for more than itself: as at the start of a block, from the next instruction on.
    pub(super) fn recheck_limit(&mut self) {
        if let (Some(_), Some((pc, decoded))) = (self.retired, self.current) {
            self.index += 1;
            self.known.step(pc, &decoded.inst, decoded.size);
            self.check_limit(pc.wrapping_add(u32::from(decoded.size)));
            self.index -= 1;
        }
    }

    fn check_limit(&mut self, pc: u32) {
        let Some(retired) = self.retired else { return };
        let before = self.builder.use_var(retired);
        let after = self.builder.ins().iadd_imm_s(before, self.block_len.cast_signed() as i64);
        let limit = self.load_state(I64, offset_of!(State, limits.retired));
        let over = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, after, limit);
        let live = self.live[self.index];
        self.unlikely(over, |emitter| emitter.interpret(pc, live));
    }

    /// Instructions completed before the current one, written to the hart, which others are about to look at.
    pub(super) fn publish_count(&mut self) {
        if let Some(count) = self.count() {
            self.store_state(count, offset_of!(State, hart.retired));
        }
    }

    /// Takes the instructions completed before a block from the hart.
    pub(super) fn load_count(&mut self) {
        if let Some(retired) = self.retired {
            let count = self.load_state(I64, offset_of!(State, hart.retired));
            self.builder.def_var(retired, count);
        }
    }

    fn count(&mut self) -> Option<Value> {
        let before = self.builder.use_var(self.retired?);
        Some(self.builder.ins().iadd_imm_s(before, self.index.cast_signed() as i64))
    }

    /// At the end of a block: counts its instructions.
    pub(super) fn count_end(&mut self) {
        if let (Some(retired), Some(count)) = (self.retired, self.count()) {
            self.builder.def_var(retired, count);
            self.index = 0;
        }
    }

    /// A CSR instruction; `false` when it is left to the interpreter, with all that follows: one that writes.
    pub(super) fn csr(&mut self, inst: &Inst) -> bool {
        let reads_only = matches!(inst.op, Op::Csrrs | Op::Csrrc | Op::Csrrsi | Op::Csrrci) && inst.rs1 == Reg::ZERO;
        let csr = Csr::from_number(inst.imm.cast_unsigned()).filter(|_| reads_only);
        self.begins.vectors |= matches!(csr, Some(Csr::VectorLength | Csr::VectorType));
        let value = match csr {
            Some(Csr::HartId) => self.load_state(I32, offset_of!(State, hart.id)),
            Some(Csr::Cycle(half)) => self.counter(half, Some(offset_of!(State, hart.cycle_offset))),
            Some(Csr::Time(half)) => self.counter(half, None),
            Some(Csr::Instret(half)) => self.counter(half, Some(offset_of!(State, hart.instret_offset))),
            Some(Csr::VectorLength) => self.load_state(I32, offset_of!(State, hart.vector.vl)),
            Some(Csr::VectorType) => self.load_state(I32, offset_of!(State, hart.vector.vtype)),
            Some(Csr::VectorBytes) => self.constant(VLEN_BYTES),
            Some(Csr::VectorRounding) => self.load_state(I32, offset_of!(State, hart.vector.vxrm)),
            Some(Csr::VectorSaturated) => self.load_state(I32, offset_of!(State, hart.vector.vxsat)),
            _ => {
                self.interpret(self.pc, self.live[self.index]);
                return false;
            }
        };
        self.set(inst.rd, value);
        true
    }

    fn counter(&mut self, half: Half, shift: Option<usize>) -> Value {
        let Some(mut value) = self.count() else { unreachable!("plans that read a counter are counted") };
        if let Some(shift) = shift {
            let shift = self.load_state(I64, shift);
            value = self.builder.ins().iadd(value, shift);
        }
        if half == Half::High {
            value = self.builder.ins().ushr_imm_u(value, 32);
        }
        self.builder.ins().ireduce(I32, value)
    }
}
