//! Compressed instructions (RV32C): every half-word is expanded into its base instruction.
//!
//! Code points follow the ISA manual's chapter "C". Reserved ones, those of floating point and those for custom use
//! (shift amounts above 31) are illegal. Hints expand to instructions without effect.

use crate::inst::{Inst, Op, Reg};

macro_rules! define_forms {
    ($($variant:ident $mnemonic:literal;)*) => {
        /// A compressed instruction, by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Form {
            $(#[doc = concat!("`", $mnemonic, "`")] $variant,)*
        }

        impl Form {
            /// Every form of RV32C without floating point.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the assembler mnemonic.
            #[must_use]
            pub const fn mnemonic(self) -> &'static str {
                match self { $(Self::$variant => $mnemonic,)* }
            }
        }
    };
}

define_forms! {
    Addi4spn "c.addi4spn";
    Lw "c.lw";
    Sw "c.sw";
    Nop "c.nop";
    Addi "c.addi";
    Jal "c.jal";
    Li "c.li";
    Addi16sp "c.addi16sp";
    Lui "c.lui";
    Srli "c.srli";
    Srai "c.srai";
    Andi "c.andi";
    Sub "c.sub";
    Xor "c.xor";
    Or "c.or";
    And "c.and";
    J "c.j";
    Beqz "c.beqz";
    Bnez "c.bnez";
    Slli "c.slli";
    Lwsp "c.lwsp";
    Jr "c.jr";
    Mv "c.mv";
    Ebreak "c.ebreak";
    Jalr "c.jalr";
    Add "c.add";
    Swsp "c.swsp";
}

/// Expands a compressed instruction; `None` when it is illegal or the half-word begins a 4-byte instruction.
#[must_use]
pub fn expand(half: u16) -> Option<(Form, Inst)> {
    let c = u32::from(half);
    match c & 3 {
        0 => quadrant_0(c),
        1 => quadrant_1(c),
        2 => quadrant_2(c),
        _ => None,
    }
}

const fn funct3(c: u32) -> u32 {
    c >> 13 & 7
}

/// The full register field at 11:7: rd and rs1.
const fn rd(c: u32) -> Reg {
    Reg::new(c >> 7)
}

/// The full register field at 6:2: rs2.
const fn rs2(c: u32) -> Reg {
    Reg::new(c >> 2)
}

/// The short register field at 9:7: x8 to x15.
const fn short_high(c: u32) -> Reg {
    Reg::new(8 + (c >> 7 & 7))
}

/// The short register field at 4:2: x8 to x15.
const fn short_low(c: u32) -> Reg {
    Reg::new(8 + (c >> 2 & 7))
}

/// Bits `from` up to `from + count` of `c`, moved to bit `to`.
const fn field(c: u32, from: u32, count: u32, to: u32) -> i32 {
    ((c >> from & ((1 << count) - 1)) << to).cast_signed()
}

/// Sign-extends from bit `sign`.
const fn extend(value: i32, sign: u32) -> i32 {
    value << (31 - sign) >> (31 - sign)
}

/// CI format: imm[5] at 12, imm[4:0] at 6:2, signed.
const fn imm6(c: u32) -> i32 {
    extend(field(c, 12, 1, 5) | field(c, 2, 5, 0), 5)
}

fn quadrant_0(c: u32) -> Option<(Form, Inst)> {
    let word = field(c, 10, 3, 3) | field(c, 6, 1, 2) | field(c, 5, 1, 6);
    match funct3(c) {
        0 => {
            let imm = field(c, 11, 2, 4) | field(c, 7, 4, 6) | field(c, 6, 1, 2) | field(c, 5, 1, 3);
            (imm != 0).then(|| (Form::Addi4spn, Inst::new(Op::Addi).rd(short_low(c)).rs1(Reg::SP).imm(imm)))
        }
        2 => Some((Form::Lw, Inst::new(Op::Lw).rd(short_low(c)).rs1(short_high(c)).imm(word))),
        6 => Some((Form::Sw, Inst::new(Op::Sw).rs2(short_low(c)).rs1(short_high(c)).imm(word))),
        _ => None,
    }
}

fn quadrant_1(c: u32) -> Option<(Form, Inst)> {
    let rd = rd(c);
    match funct3(c) {
        0 if rd == Reg::ZERO => Some((Form::Nop, Inst::new(Op::Addi).imm(imm6(c)))),
        0 => Some((Form::Addi, Inst::new(Op::Addi).rd(rd).rs1(rd).imm(imm6(c)))),
        1 => Some((Form::Jal, Inst::new(Op::Jal).rd(Reg::RA).imm(jump_offset(c)))),
        2 => Some((Form::Li, Inst::new(Op::Addi).rd(rd).imm(imm6(c)))),
        3 => lui_or_addi16sp(c),
        4 => arithmetic(c),
        5 => Some((Form::J, Inst::new(Op::Jal).imm(jump_offset(c)))),
        6 => Some((Form::Beqz, Inst::new(Op::Beq).rs1(short_high(c)).imm(branch_offset(c)))),
        _ => Some((Form::Bnez, Inst::new(Op::Bne).rs1(short_high(c)).imm(branch_offset(c)))),
    }
}

/// CJ format: offset[11|4|9:8|10|6|7|3:1|5] at 12:2.
const fn jump_offset(c: u32) -> i32 {
    let high = field(c, 12, 1, 11) | field(c, 11, 1, 4) | field(c, 9, 2, 8) | field(c, 8, 1, 10);
    let low = field(c, 7, 1, 6) | field(c, 6, 1, 7) | field(c, 3, 3, 1) | field(c, 2, 1, 5);
    extend(high | low, 11)
}

/// CB format: offset[8|4:3] at 12:10, [7:6|2:1|5] at 6:2.
const fn branch_offset(c: u32) -> i32 {
    let high = field(c, 12, 1, 8) | field(c, 10, 2, 3);
    let low = field(c, 5, 2, 6) | field(c, 3, 2, 1) | field(c, 2, 1, 5);
    extend(high | low, 8)
}

fn lui_or_addi16sp(c: u32) -> Option<(Form, Inst)> {
    if imm6(c) == 0 {
        return None;
    }
    if rd(c) != Reg::SP {
        return Some((Form::Lui, Inst::new(Op::Lui).rd(rd(c)).imm(imm6(c) << 12)));
    }
    let imm = field(c, 12, 1, 9) | field(c, 6, 1, 4) | field(c, 5, 1, 6) | field(c, 3, 2, 7) | field(c, 2, 1, 5);
    Some((Form::Addi16sp, Inst::new(Op::Addi).rd(Reg::SP).rs1(Reg::SP).imm(extend(imm, 9))))
}

fn arithmetic(c: u32) -> Option<(Form, Inst)> {
    let rd = short_high(c);
    let shift = |form, op| (c >> 12 & 1 == 0).then(|| (form, Inst::new(op).rd(rd).rs1(rd).imm(imm6(c))));
    let register = |form, op| Some((form, Inst::new(op).rd(rd).rs1(rd).rs2(short_low(c))));
    match (c >> 10 & 3, c >> 12 & 1, c >> 5 & 3) {
        (0, ..) => shift(Form::Srli, Op::Srli),
        (1, ..) => shift(Form::Srai, Op::Srai),
        (2, ..) => Some((Form::Andi, Inst::new(Op::Andi).rd(rd).rs1(rd).imm(imm6(c)))),
        (_, 0, 0) => register(Form::Sub, Op::Sub),
        (_, 0, 1) => register(Form::Xor, Op::Xor),
        (_, 0, 2) => register(Form::Or, Op::Or),
        (_, 0, _) => register(Form::And, Op::And),
        // RV64's subw and addw, and reserved.
        _ => None,
    }
}

fn quadrant_2(c: u32) -> Option<(Form, Inst)> {
    let rd = rd(c);
    match funct3(c) {
        0 => (c >> 12 & 1 == 0).then(|| (Form::Slli, Inst::new(Op::Slli).rd(rd).rs1(rd).imm(imm6(c)))),
        2 => {
            let imm = field(c, 12, 1, 5) | field(c, 4, 3, 2) | field(c, 2, 2, 6);
            (rd != Reg::ZERO).then(|| (Form::Lwsp, Inst::new(Op::Lw).rd(rd).rs1(Reg::SP).imm(imm)))
        }
        4 => jump_or_move(c),
        6 => {
            let imm = field(c, 9, 4, 2) | field(c, 7, 2, 6);
            Some((Form::Swsp, Inst::new(Op::Sw).rs2(rs2(c)).rs1(Reg::SP).imm(imm)))
        }
        _ => None,
    }
}

fn jump_or_move(c: u32) -> Option<(Form, Inst)> {
    let (rd, rs2) = (rd(c), rs2(c));
    match (c >> 12 & 1 == 1, rd == Reg::ZERO, rs2 == Reg::ZERO) {
        (false, true, true) => None,
        (false, false, true) => Some((Form::Jr, Inst::new(Op::Jalr).rs1(rd))),
        (false, _, false) => Some((Form::Mv, Inst::new(Op::Add).rd(rd).rs2(rs2))),
        (true, true, true) => Some((Form::Ebreak, Inst::new(Op::Ebreak))),
        (true, false, true) => Some((Form::Jalr, Inst::new(Op::Jalr).rd(Reg::RA).rs1(rd))),
        (true, _, false) => Some((Form::Add, Inst::new(Op::Add).rd(rd).rs1(rd).rs2(rs2))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Form, expand};
    use crate::decode::{Decoded, decode};
    use std::collections::BTreeSet;

    #[test]
    fn every_half_word_expands_to_an_instruction_that_decodes() {
        let mut seen = BTreeSet::new();
        for half in 0..=u16::MAX {
            let Some((form, inst)) = expand(half) else { continue };
            assert_eq!(decode(u32::from(half)), Some(Decoded { inst, size: 2 }), "{half:#06x}");
            assert_eq!(decode(inst.encode()), Some(Decoded { inst, size: 4 }), "{half:#06x}");
            seen.insert(form);
        }
        assert_eq!(seen.len(), Form::ALL.len());
    }

    /// Encodings as LLVM 19's assembler prints them.
    #[test]
    fn encodings_of_an_assembler() {
        let cases = [
            (0x0040, "addi s0, sp, 4"),
            (0x1ffc, "addi a5, sp, 1020"),
            (0x5ffc, "lw a5, 124(a5)"),
            (0xdffc, "sw a5, 124(a5)"),
            (0x1141, "addi sp, sp, -16"),
            (0x713d, "addi sp, sp, -32"),
            (0x7101, "addi sp, sp, -512"),
            (0x617d, "addi sp, sp, 496"),
            (0x77fd, "lui a5, 0xfffff"),
            (0xb001, "jal zero, .-2048"),
            (0x2ffd, "jal ra, .+2046"),
            (0xd381, "beq a5, zero, .-256"),
            (0xeffd, "bne a5, zero, .+254"),
            (0x50fe, "lw ra, 252(sp)"),
            (0xdf86, "sw ra, 252(sp)"),
            (0x8082, "jalr zero, 0(ra)"),
            (0x9782, "jalr ra, 0(a5)"),
            (0x9002, "ebreak"),
            (0x8f99, "sub a5, a5, a4"),
            (0x87fd, "srai a5, a5, 31"),
        ];
        for (half, expected) in cases {
            let text = expand(half).map_or_else(|| "illegal".to_owned(), |(_, inst)| inst.to_string());
            assert_eq!(text, expected, "{half:#06x}");
        }
    }

    #[test]
    fn reserved_code_points_are_illegal() {
        let cases = [
            (0x0000, "all zero"),
            (0x0004, "addi4spn 0"),
            (0x2000, "c.fld"),
            (0x6000, "c.flw"),
            (0x8000, "reserved"),
            (0x6101, "addi16sp 0"),
            (0x6081, "lui 0"),
            (0x9005, "srli with shamt[5]"),
            (0x9405, "srai with shamt[5]"),
            (0x9c01, "c.subw"),
            (0x1082, "slli with shamt[5]"),
            (0x4002, "lwsp to x0"),
            (0x8002, "jr x0"),
            (0x2002, "c.fldsp"),
            (0xe002, "c.fswsp"),
            (0xffff, "no compressed instruction"),
        ];
        for (half, name) in cases {
            assert_eq!(expand(half), None, "{name}");
        }
    }
}
