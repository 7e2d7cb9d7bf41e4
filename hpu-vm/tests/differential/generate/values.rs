//! Computation: all that only touches registers.

use std::sync::OnceLock;

use hpu_vm::compressed::{Form, expand};
use hpu_vm::inst::Format;
use hpu_vm::{Inst, Op, Reg};
use spin_abi::map::{DRIVER_BASE, L1_ALIAS, L1_BASE, L2_BASE, PROGRAM_BASE, STDOUT_BASE};

use super::Generator;

/// Whether a statement may write `reg`.
pub(super) const fn is_anybodys(reg: Reg) -> bool {
    matches!(reg.number(), 0 | 5..24 | 28..32)
}

/// Halves whose instruction only computes, with a result that may be written, by form.
fn computations() -> &'static [Vec<u16>] {
    static HALVES: OnceLock<Vec<Vec<u16>>> = OnceLock::new();
    HALVES.get_or_init(|| {
        let mut halves = vec![Vec::new(); Form::ALL.len()];
        for half in 0..=u16::MAX {
            if let Some((form, inst)) = expand(half)
                && inst.op.format().computes()
                && is_anybodys(inst.rd)
            {
                halves[form as usize].push(half);
            }
        }
        halves.retain(|halves| !halves.is_empty());
        halves
    })
}

impl Generator {
    /// A few instructions on registers.
    pub(super) fn arithmetic(&mut self) {
        let ops: Vec<Op> = Op::ALL.iter().copied().filter(|op| op.format().computes()).collect();
        for _ in 0..=self.random.below(3) {
            let inst = Inst::new(self.random.choose(&ops)).rd(self.scratch()).rs1(self.source());
            let inst = match inst.op.format() {
                Format::R => inst.rs2(self.source()),
                Format::Unary => inst,
                Format::I => inst.imm(self.random.signed(12)),
                Format::Shift => inst.imm(self.random.below(32).cast_signed()),
                _ => Inst::new(inst.op).rd(inst.rd).imm(self.random.signed(20) << 12),
            };
            self.inst(inst);
        }
        if self.random.one_in(20) {
            self.reverse_bytes();
        }
        if self.random.one_in(40) {
            let fence = self.random.choose(&[Op::Fence, Op::FenceI]);
            let sets = if fence == Op::Fence { self.random.choose(&[0xff, 0x33, 0x31, 0x12, 0x833]) } else { 0 };
            self.inst(Inst::new(fence).imm(sets));
        }
    }

    /// Puts a register's bytes in reverse as compilers do, in any order; now and then something else comes of it.
    fn reverse_bytes(&mut self) {
        let (from, to) = (self.source(), self.scratch());
        let (mask, part) = (self.scratch_but(to), self.scratch_but(to));
        let value = if self.random.one_in(8) { self.value() } else { 0xff00 };
        self.set(mask, value);
        let by = |op: Op, by: i32| Inst::new(op).imm(by);
        let masked = Inst::new(Op::And).rs2(mask);
        let mut parts = vec![
            vec![by(Op::Slli, 24)],
            vec![masked, by(Op::Slli, 8)],
            vec![by(Op::Srli, 8), masked],
            vec![by(Op::Srli, 24)],
        ];
        if self.random.one_in(8) {
            parts.pop();
        }
        let mut into = to;
        while !parts.is_empty() {
            let next = self.random.below(u32::try_from(parts.len()).unwrap()) as usize;
            let mut source = from;
            for inst in parts.swap_remove(next) {
                self.inst(inst.rd(into).rs1(source));
                source = into;
            }
            if into == part {
                self.inst(Inst::new(Op::Or).rd(to).rs1(to).rs2(part));
            }
            into = part;
        }
    }

    /// A compressed instruction of any form that only computes.
    pub(super) fn any_form(&mut self) {
        let half = self.computation();
        self.asm.half(half);
    }

    pub(super) fn computation(&mut self) -> u16 {
        let form = &computations()[self.random.below(u32::try_from(computations().len()).unwrap()) as usize];
        self.random.choose(form)
    }

    /// Sets a register to a value that matters.
    pub(super) fn set_some(&mut self) {
        let (rd, value) = (self.scratch(), self.value());
        self.set(rd, value);
    }

    /// A value: an edge of arithmetic, or an address.
    pub(super) fn value(&mut self) -> u32 {
        const BASES: [u32; 7] =
            [DRIVER_BASE, STDOUT_BASE, L1_ALIAS, L1_BASE, L2_BASE, PROGRAM_BASE, spin_abi::map::RETURN_ADDRESS];
        if self.random.one_in(4) {
            self.random.choose(&BASES).wrapping_add(self.random.signed(7).cast_unsigned())
        } else {
            self.random.value()
        }
    }
}
