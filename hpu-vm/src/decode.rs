//! Instruction decoder. Total: any bits give an instruction or `None`, and every reserved encoding gives `None`.

use crate::compressed;
use crate::csr::{self, Csr};
use crate::inst::{Format, Inst, Op, Reg};
use crate::vector;

/// An instruction and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Instruction; a compressed one is expanded.
    pub inst: Inst,
    /// Size in bytes, 2 or 4.
    pub size: u8,
}

impl Decoded {
    /// Returns the address of the next instruction after this one at `pc`.
    #[must_use]
    pub const fn next(&self, pc: u32) -> u32 {
        pc.wrapping_add(self.size as u32)
    }
}

/// Returns the size in bytes of the instruction that begins with half-word `low`. Encodings longer than 4 bytes are
/// unsupported; they count as 4 and decode to `None`.
#[must_use]
pub const fn size(low: u16) -> u8 {
    if low & 3 == 3 { 4 } else { 2 }
}

/// Decodes the instruction in `bits`; only the lower half-word of a compressed one is used.
///
/// Returns `None` for anything outside RV32IMAC, Zba, Zbb and Zbs, fences, the [vector subset](mod@vector) and the
/// registers of [`Csr`].
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "only the lower half-word is used")]
pub fn decode(bits: u32) -> Option<Decoded> {
    let low = bits as u16;
    if size(low) == 2 {
        compressed::expand(low).map(|(_, inst)| Decoded { inst, size: 2 })
    } else {
        decode_word(bits).map(|inst| Decoded { inst, size: 4 })
    }
}

/// Decodes a 4-byte instruction. A linear search: this runs when an image is loaded, never per packet.
fn decode_word(bits: u32) -> Option<Inst> {
    let Some(&op) = Op::ALL.iter().find(|op| bits & op.format().mask() == op.pattern()) else {
        return vector::decode(bits).map(|_| Inst::from_vector_bits(bits));
    };
    let inst = operands(op, bits);
    match op.format() {
        Format::Csr | Format::CsrImmediate if !csr_allowed(inst) => None,
        _ => Some(inst),
    }
}

/// Whether a register access is legal. A read-only register allows only the set and clear forms, with a zero operand
/// (Zicsr).
fn csr_allowed(inst: Inst) -> bool {
    let number = inst.imm.cast_unsigned();
    let writes = matches!(inst.op, Op::Csrrw | Op::Csrrwi) || inst.rs1 != Reg::ZERO;
    Csr::from_number(number).is_some() && (csr::is_writable(number) || !writes)
}

/// Extracts the operands that `op`'s format names; figures of the unprivileged ISA, §2.3.
fn operands(op: Op, bits: u32) -> Inst {
    let (rd, rs1, rs2) = (Reg::new(bits >> 7), Reg::new(bits >> 15), Reg::new(bits >> 20));
    let inst = Inst::new(op);
    match op.format() {
        Format::R | Format::Amo => inst.rd(rd).rs1(rs1).rs2(rs2),
        Format::I | Format::Load | Format::JumpRegister => inst.rd(rd).rs1(rs1).imm(bits.cast_signed() >> 20),
        Format::Shift => inst.rd(rd).rs1(rs1).imm((bits >> 20 & 31).cast_signed()),
        Format::Store => inst.rs1(rs1).rs2(rs2).imm(store_immediate(bits)),
        Format::Branch => inst.rs1(rs1).rs2(rs2).imm(branch_immediate(bits)),
        Format::U => inst.rd(rd).imm((bits & 0xffff_f000).cast_signed()),
        Format::J => inst.rd(rd).imm(jump_immediate(bits)),
        Format::Unary | Format::LoadReserved => inst.rd(rd).rs1(rs1),
        Format::Csr | Format::CsrImmediate => inst.rd(rd).rs1(rs1).imm((bits >> 20).cast_signed()),
        Format::Fence => inst.imm((bits >> 20).cast_signed()),
        Format::System => inst,
        Format::Vector => inst.imm(bits.cast_signed()),
    }
}

/// S-type: imm[11:5] at 31:25, imm[4:0] at 11:7.
const fn store_immediate(bits: u32) -> i32 {
    (bits.cast_signed() >> 25) << 5 | (bits >> 7 & 0x1f).cast_signed()
}

/// B-type: imm[12] at 31, [10:5] at 30:25, [4:1] at 11:8, [11] at 7.
const fn branch_immediate(bits: u32) -> i32 {
    let rest = (bits >> 25 & 0x3f) << 5 | (bits >> 8 & 0xf) << 1 | (bits >> 7 & 1) << 11;
    (bits.cast_signed() >> 31) << 12 | rest.cast_signed()
}

/// J-type: imm[20] at 31, [10:1] at 30:21, [11] at 20, [19:12] at 19:12.
const fn jump_immediate(bits: u32) -> i32 {
    let rest = (bits >> 21 & 0x3ff) << 1 | (bits >> 20 & 1) << 11 | bits & 0x000f_f000;
    (bits.cast_signed() >> 31) << 20 | rest.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::{Decoded, decode};
    use crate::inst::Op;
    use proptest::prelude::*;

    fn text(bits: u32) -> String {
        decode(bits).map_or_else(|| "illegal".to_owned(), |d| d.inst.to_string())
    }

    /// Encodings as LLVM 19's assembler prints them.
    #[test]
    fn encodings_of_an_assembler() {
        let cases = [
            (0xffc1_2083, "lw ra, -4(sp)"),
            (0xfe11_2e23, "sw ra, -4(sp)"),
            (0xfe00_0ee3, "beq zero, zero, .-4"),
            (0x8000_0063, "beq zero, zero, .-4096"),
            (0x7e00_0fe3, "beq zero, zero, .+4094"),
            (0xffdf_f0ef, "jal ra, .-4"),
            (0x7fff_f06f, "jal zero, .+1048574"),
            (0x1b20_57b7, "lui a5, 0x1b205"),
            (0x4105_5513, "srai a0, a0, 16"),
            (0x0ff0_000f, "fence"),
            (0x8330_000f, "fence.tso"),
            (0x0310_000f, "fence rw, w"),
            (0x0120_000f, "fence 0x12"),
            (0x0000_100f, "fence.i"),
            (0xc000_2573, "csrrs a0, 0xc00, zero"),
            (0xf140_2573, "csrrs a0, 0xf14, zero"),
            (0x1005_262f, "lr.w a2, (a0)"),
            (0x18b5_262f, "sc.w a2, a1, (a0)"),
            (0x06b5_262f, "amoadd.w a2, a1, (a0)"),
            (0x0010_0073, "ebreak"),
            (0x20b5_4533, "sh2add a0, a0, a1"),
            (0x40b5_7533, "andn a0, a0, a1"),
            (0x6005_1513, "clz a0, a0"),
            (0x6025_1513, "cpop a0, a0"),
            (0x0ab5_5533, "minu a0, a0, a1"),
            (0x6055_1513, "sext.h a0, a0"),
            (0x0805_4533, "zext.h a0, a0"),
            (0x6105_5513, "rori a0, a0, 16"),
            (0x2875_5513, "orc.b a0, a0"),
            (0x6985_5513, "rev8 a0, a0"),
            (0x49c5_5513, "bexti a0, a0, 28"),
            (0x29c5_1513, "bseti a0, a0, 28"),
        ];
        for (bits, expected) in cases {
            assert_eq!(text(bits), expected, "{bits:#010x}");
        }
    }

    #[test]
    fn reserved_encodings_are_illegal() {
        let cases = [
            (0xffff_ffff, "all ones"),
            (0x0200_1013, "slli with shamt[5]"),
            (0x2000_5033, "srl with a reserved funct7"),
            (0x0815_4533, "pack, of which zext.h is one"),
            (0x6a85_5513, "rev8 with shamt[5]"),
            (0x0000_2063, "branch funct3 2"),
            (0x0000_3003, "ld"),
            (0x0000_6003, "lwu"),
            (0x0000_3023, "sd"),
            (0x0000_1067, "jalr funct3 1"),
            (0x0000_200f, "misc-mem funct3 2"),
            (0x1015_262f, "lr.w with rs2"),
            (0x1005_362f, "lr.d"),
            (0x2800_202f, "amo funct5 5"),
            (0x3020_0073, "mret"),
            (0x1050_0073, "wfi"),
            (0x0000_4073, "system funct3 4"),
            (0x0000_2007, "flw"),
            (0x0000_0053, "fadd.s"),
            (0x0000_001b, "addiw"),
            (0xc000_1073, "csrrw to cycle"),
            (0xc000_d073, "csrrwi to cycle"),
            (0xc000_e073, "csrrsi 1 to cycle"),
            (0xc005_2073, "csrrs a0 to cycle"),
            (0x3000_2573, "mstatus"),
        ];
        for (bits, name) in cases {
            assert_eq!(decode(bits), None, "{name}");
        }
        assert_eq!(text(0xb000_1073), "csrrw zero, 0xb00, zero");
        assert_eq!(text(0xc000_6573), "csrrsi a0, 0xc00, 0");
    }

    proptest! {
        #[test]
        fn any_word_decodes_without_panic_and_encodes_back(bits: u32) {
            let Some(Decoded { inst, size }) = decode(bits) else { return Ok(()) };
            prop_assert!(size == 2 || size == 4);
            let again = decode(inst.encode());
            prop_assert_eq!(again, Some(Decoded { inst, size: 4 }));
        }

        #[test]
        fn words_of_every_operation_decode_to_it(index in 0..Op::ALL.len(), bits: u32) {
            let op = Op::ALL[index];
            let mask = op.format().mask();
            let word = bits & !mask | op.pattern();
            match decode(word) {
                Some(decoded) => prop_assert_eq!(decoded.inst.op, op),
                None => prop_assert!(op.mnemonic().starts_with("csr"), "{} {:#010x}", op.mnemonic(), word),
            }
        }
    }
}
