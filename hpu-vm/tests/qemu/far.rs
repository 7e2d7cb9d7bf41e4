//! A program whose jumps and branches set every bit of their offsets.

use hpu_vm::compressed::expand;
use hpu_vm::{Inst, Op, Reg};

use crate::program::{Program, SCRATCH_SIZE};

/// Forward and backward by every power of two that the encodings allow, and by the greatest distance of each.
pub fn program() -> Program {
    let mut program = Program::new(vec![0; SCRATCH_SIZE as usize]);
    let jal = Inst::new(Op::Jal).rd(Reg::RA);
    let beq = Inst::new(Op::Beq);
    for power in 3..20 {
        there_and_back(&mut program, 1 << power, |program, distance| program.inst(jal.imm(distance)));
    }
    for power in 3..12 {
        there_and_back(&mut program, 1 << power, |program, distance| program.inst(beq.imm(distance)));
    }
    there_and_back(&mut program, (1 << 20) - 2, |program, distance| program.inst(jal.imm(distance)));
    there_and_back(&mut program, (1 << 12) - 2, |program, distance| program.inst(beq.imm(distance)));

    // a5 is zero, so the compressed branch jumps.
    program.set(Reg::new(15), 0);
    let halves: Vec<(u16, Inst)> =
        (0..=u16::MAX).filter_map(|half| expand(half).map(|(_, inst)| (half, inst))).collect();
    let find = |inst: Inst| halves.iter().find(|(_, other)| *other == inst).expect("a compressed form").0;
    for power in 3..11 {
        there_and_back(&mut program, 1 << power, |program, distance| program.half(find(jal.imm(distance))));
    }
    for power in 3..8 {
        let beqz = beq.rs1(Reg::new(15));
        there_and_back(&mut program, 1 << power, |program, distance| program.half(find(beqz.imm(distance))));
    }
    program.finish();
    program
}

/// Jumps `distance` forward, back by the same distance, and over both to what follows.
fn there_and_back(program: &mut Program, distance: u32, jump: impl Fn(&mut Program, i32)) {
    let start = program.pc();
    jump(program, distance.cast_signed());
    // Whatever size the jump has, the way out begins at the next multiple of four after it.
    program.gap(4 - (program.pc() - start));
    let out = program.pc();
    program.gap(4);
    program.gap(distance - 8);
    // The backward jump goes to `out`, which is 4 less than the forward distance: shift it by as much.
    program.inst(Inst::new(Op::Addi));
    jump(program, -distance.cast_signed());
    program.gap(4 - (program.pc() - start - distance - 4));
    let end = program.pc();
    program.place(out, Inst::new(Op::Jal).imm((end - out).cast_signed()));
}
