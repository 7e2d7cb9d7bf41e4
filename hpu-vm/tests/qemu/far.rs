//! A program whose jumps and branches set every bit of their offsets.

use hpu_vm::compressed::expand;
use hpu_vm::{Inst, Op, Reg};

use crate::program::{Program, SCRATCH_SIZE};

/// Forward and backward by every power of two that the encodings allow, and by the greatest distance of each.
pub fn program() -> Program {
    let mut program = Program::new(vec![0; SCRATCH_SIZE as usize]);
    let jal = Inst::new(Op::Jal).rd(Reg::RA);
    let beq = Inst::new(Op::Beq);
    for power in 4..20 {
        there_and_back(&mut program, 1 << power, 1 << power, |program, offset| program.inst(jal.imm(offset)));
    }
    for power in 4..12 {
        there_and_back(&mut program, 1 << power, 1 << power, |program, offset| program.inst(beq.imm(offset)));
    }
    there_and_back(&mut program, (1 << 20) - 2, 1 << 20, |program, offset| program.inst(jal.imm(offset)));
    there_and_back(&mut program, (1 << 12) - 2, 1 << 12, |program, offset| program.inst(beq.imm(offset)));

    // a5 is zero, so the compressed branch jumps.
    program.set(Reg::new(15), 0);
    let halves: Vec<(u16, Inst)> =
        (0..=u16::MAX).filter_map(|half| expand(half).map(|(_, inst)| (half, inst))).collect();
    let find = |inst: Inst| halves.iter().find(|(_, other)| *other == inst).expect("a compressed form").0;
    let compressed_jal = |program: &mut Program, offset| program.half(find(jal.imm(offset)));
    let compressed_beqz = |program: &mut Program, offset| program.half(find(beq.rs1(Reg::new(15)).imm(offset)));
    for power in 4..11 {
        there_and_back(&mut program, 1 << power, 1 << power, compressed_jal);
    }
    for power in 4..8 {
        there_and_back(&mut program, 1 << power, 1 << power, compressed_beqz);
    }
    there_and_back(&mut program, (1 << 11) - 2, 1 << 11, compressed_jal);
    there_and_back(&mut program, (1 << 8) - 2, 1 << 8, compressed_beqz);
    program.finish();
    program
}

/// Jumps `forward`, which is at least 16, then `backward`, which is at most 2 more, then over both to what follows.
///
/// ```text
/// start      jump to start + forward
/// start + 4  way out: a jump to the end (8 bytes)
///            gap
/// start + forward       no-ops
/// start + 4 + backward  jump to start + 4
/// end
/// ```
fn there_and_back(program: &mut Program, forward: u32, backward: u32, jump: impl Fn(&mut Program, i32)) {
    let start = program.pc();
    let end = start + 4 + backward + 4;
    jump(program, forward.cast_signed());
    program.gap(start + 4 - program.pc());
    program.jump_far(end);
    program.gap(start + forward - program.pc());
    while program.pc() < start + 4 + backward {
        program.half(1);
    }
    jump(program, -backward.cast_signed());
    program.gap(end - program.pc());
}
