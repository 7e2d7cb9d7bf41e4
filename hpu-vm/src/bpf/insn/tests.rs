//! The encoding of each kind of instruction. Expected bytes are written by hand from the kernel's
//! `Documentation/bpf/standardization/instruction-set.rst`: opcode, registers (the destination in the lower four bits),
//! offset, immediate. Those of `may_goto` and the numbers of helpers are from `include/uapi/linux/bpf.h`.
#![cfg(target_endian = "little")]

use super::{Alu, Atomic, Bits, Condition, Helper, Insn, Label, Operand, Reach, Register, Size};

const R3: Register = Register::new(3);
const R7: Register = Register::new(7);
const R9: Register = Register::R9;
const FRAME: Register = Register::FRAME;
const TO: Label = Label(0);

/// Checks the encoding of an instruction whose jump, if it has one, leads so far.
fn check(insn: Insn, reach: Reach, expected: &[[u8; 8]]) {
    let mut code = Vec::new();
    insn.encode(reach, &mut code);
    let bytes: Vec<[u8; 8]> = code.iter().map(|encoded| encoded.bytes()).collect();
    assert_eq!(bytes, expected, "{insn:?}");
    assert_eq!(insn.len(matches!(reach, Reach::Far(_))), expected.len(), "the length of {insn:?}");
}

fn check_one(insn: Insn, expected: [u8; 8]) {
    check(insn, Reach::Near(0), &[expected]);
}

/// The opcode is code | source | class: source 0x08 for a register, class 0x04 for 32 bits and 0x07 for 64.
#[test]
fn arithmetic() {
    // By operation, the opcodes of: 32 bits and an immediate, 32 and a register, 64 and an immediate, 64 and a register.
    // The last number is the offset, which is 1 for signed division.
    let operations = [
        (Alu::Add, [0x04, 0x0c, 0x07, 0x0f], 0),
        (Alu::Sub, [0x14, 0x1c, 0x17, 0x1f], 0),
        (Alu::Mul, [0x24, 0x2c, 0x27, 0x2f], 0),
        (Alu::Div, [0x34, 0x3c, 0x37, 0x3f], 0),
        (Alu::DivSigned, [0x34, 0x3c, 0x37, 0x3f], 1),
        (Alu::Or, [0x44, 0x4c, 0x47, 0x4f], 0),
        (Alu::And, [0x54, 0x5c, 0x57, 0x5f], 0),
        (Alu::Lsh, [0x64, 0x6c, 0x67, 0x6f], 0),
        (Alu::Rsh, [0x74, 0x7c, 0x77, 0x7f], 0),
        (Alu::Mod, [0x94, 0x9c, 0x97, 0x9f], 0),
        (Alu::ModSigned, [0x94, 0x9c, 0x97, 0x9f], 1),
        (Alu::Xor, [0xa4, 0xac, 0xa7, 0xaf], 0),
        (Alu::Mov, [0xb4, 0xbc, 0xb7, 0xbf], 0),
        (Alu::Arsh, [0xc4, 0xcc, 0xc7, 0xcf], 0),
    ];
    for (op, [word_immediate, word_register, immediate, register], offset) in operations {
        let insn = |bits, from| Insn::Alu { bits, op, to: R3, from };
        // -2 is fe ff ff ff.
        let minus_two = Operand::Immediate(-2);
        check_one(insn(Bits::B32, minus_two), [word_immediate, 0x03, offset, 0, 0xfe, 0xff, 0xff, 0xff]);
        check_one(insn(Bits::B32, R7.into()), [word_register, 0x73, offset, 0, 0, 0, 0, 0]);
        check_one(insn(Bits::B64, minus_two), [immediate, 0x03, offset, 0, 0xfe, 0xff, 0xff, 0xff]);
        check_one(insn(Bits::B64, R7.into()), [register, 0x73, offset, 0, 0, 0, 0, 0]);
    }
}

/// MOVSX is MOV from a register with the number of bits as the offset; BSWAP is END (0xd0) in the class of 64 bits.
#[test]
fn sign_extension_and_byte_swap() {
    let extend = |bits, size| Insn::SignExtend { bits, to: R3, from: R7, size };
    check_one(extend(Bits::B32, Size::Byte), [0xbc, 0x73, 8, 0, 0, 0, 0, 0]);
    check_one(extend(Bits::B32, Size::Half), [0xbc, 0x73, 16, 0, 0, 0, 0, 0]);
    check_one(extend(Bits::B64, Size::Byte), [0xbf, 0x73, 8, 0, 0, 0, 0, 0]);
    check_one(extend(Bits::B64, Size::Half), [0xbf, 0x73, 16, 0, 0, 0, 0, 0]);
    check_one(extend(Bits::B64, Size::Word), [0xbf, 0x73, 32, 0, 0, 0, 0, 0]);
    check_one(Insn::SwapBytes { reg: R7 }, [0xd7, 0x07, 0, 0, 32, 0, 0, 0]);
}

/// The opcode is mode | size | class: mode MEM is 0x60; class 1 loads, 2 stores an immediate, 3 stores a register.
#[test]
fn loads_and_stores() {
    let sizes = [
        (Size::Word, [0x61, 0x62, 0x63]),
        (Size::Half, [0x69, 0x6a, 0x6b]),
        (Size::Byte, [0x71, 0x72, 0x73]),
        (Size::Double, [0x79, 0x7a, 0x7b]),
    ];
    for (size, [load, store_immediate, store_register]) in sizes {
        // -8 is f8 ff; 0x1234 is 34 12.
        check_one(Insn::Load { size, to: R3, base: R7, offset: 0x1234 }, [load, 0x73, 0x34, 0x12, 0, 0, 0, 0]);
        let store = |from| Insn::Store { size, base: FRAME, offset: -8, from };
        check_one(store(R9.into()), [store_register, 0x9a, 0xf8, 0xff, 0, 0, 0, 0]);
        let immediate = Operand::Immediate(0x0102_0304);
        check_one(store(immediate), [store_immediate, 0x0a, 0xf8, 0xff, 0x04, 0x03, 0x02, 0x01]);
    }
}

/// Mode ATOMIC is 0xc0. The immediate is the operation, with 0x01 for those that return the old value.
#[test]
fn atomics() {
    let operations = [
        (Atomic::Add, 0x01),
        (Atomic::Or, 0x41),
        (Atomic::And, 0x51),
        (Atomic::Xor, 0xa1),
        (Atomic::Exchange, 0xe1),
        (Atomic::CompareExchange, 0xf1),
    ];
    for (op, immediate) in operations {
        check_one(Insn::Atomic { op, base: R3, offset: 4, reg: R7 }, [0xc3, 0x73, 4, 0, immediate, 0, 0, 0]);
    }
}

/// The opcode is code | source | class: class 0x05 compares 64 bits, 0x06 compares 32.
#[test]
fn branches() {
    let conditions = [
        (Condition::Equal, [0x15, 0x1d, 0x16, 0x1e]),
        (Condition::Above, [0x25, 0x2d, 0x26, 0x2e]),
        (Condition::AboveOrEqual, [0x35, 0x3d, 0x36, 0x3e]),
        (Condition::AnySet, [0x45, 0x4d, 0x46, 0x4e]),
        (Condition::NotEqual, [0x55, 0x5d, 0x56, 0x5e]),
        (Condition::Greater, [0x65, 0x6d, 0x66, 0x6e]),
        (Condition::GreaterOrEqual, [0x75, 0x7d, 0x76, 0x7e]),
        (Condition::Below, [0xa5, 0xad, 0xa6, 0xae]),
        (Condition::BelowOrEqual, [0xb5, 0xbd, 0xb6, 0xbe]),
        (Condition::Less, [0xc5, 0xcd, 0xc6, 0xce]),
        (Condition::LessOrEqual, [0xd5, 0xdd, 0xd6, 0xde]),
    ];
    for (condition, [immediate, register, word_immediate, word_register]) in conditions {
        let branch = |bits, b| Insn::Branch { bits, condition, a: R3, b, to: TO };
        let near = |insn, expected| check(insn, Reach::Near(-3), &[expected]);
        let seven = Operand::Immediate(7);
        near(branch(Bits::B64, seven), [immediate, 0x03, 0xfd, 0xff, 7, 0, 0, 0]);
        near(branch(Bits::B64, R7.into()), [register, 0x73, 0xfd, 0xff, 0, 0, 0, 0]);
        near(branch(Bits::B32, seven), [word_immediate, 0x03, 0xfd, 0xff, 7, 0, 0, 0]);
        near(branch(Bits::B32, R7.into()), [word_register, 0x73, 0xfd, 0xff, 0, 0, 0, 0]);
    }
}

/// JA has the distance in the offset in class 0x05, and in the immediate in class 0x06.
#[test]
fn jumps() {
    const LONG: [u8; 8] = [0x06, 0, 0, 0, 0x78, 0x56, 0x34, 0x12];
    const OVER_ONE: [u8; 8] = [0x05, 0, 1, 0, 0, 0, 0, 0];
    let far = Reach::Far(0x1234_5678);
    check(Insn::Jump { to: TO }, Reach::Near(0x1234), &[[0x05, 0, 0x34, 0x12, 0, 0, 0, 0]]);
    check(Insn::Jump { to: TO }, far, &[LONG]);
    // A conditional jump that leads far leads over a jump over a long one.
    let branch = Insn::Branch { bits: Bits::B32, condition: Condition::Less, a: R3, b: R7.into(), to: TO };
    check(branch, far, &[[0xce, 0x73, 1, 0, 0, 0, 0, 0], OVER_ONE, LONG]);
    // BPF_JMP | BPF_JCOND with the source BPF_MAY_GOTO (0).
    let may_goto = Insn::MayGoto { to: TO };
    check(may_goto, Reach::Near(5), &[[0xe5, 0, 5, 0, 0, 0, 0, 0]]);
    check(may_goto, far, &[[0xe5, 0, 1, 0, 0, 0, 0, 0], OVER_ONE, LONG]);
}

/// IMM | DW | LD is 0x18. The source says what the immediate is: 0 a number, 5 the index of a map, 6 the index of a map
/// whose value's address is meant, with an offset in the second immediate.
#[test]
fn wide_constants() {
    let near = |insn, expected: [[u8; 8]; 2]| check(insn, Reach::Near(0), &expected);
    let value = 0x1122_3344_5566_7788;
    near(
        Insn::Constant { to: R3, value },
        [[0x18, 0x03, 0, 0, 0x88, 0x77, 0x66, 0x55], [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11]],
    );
    near(Insn::Map { to: R7, map: 2 }, [[0x18, 0x57, 0, 0, 2, 0, 0, 0], [0; 8]]);
    near(
        Insn::MapValue { to: R9, map: 3, offset: 0x8000_0010 },
        [[0x18, 0x69, 0, 0, 3, 0, 0, 0], [0, 0, 0, 0, 0x10, 0, 0, 0x80]],
    );
}

/// CALL with the source 0 calls a helper by its number.
#[test]
fn calls_and_the_end() {
    check_one(Insn::Call { helper: Helper::Processor }, [0x85, 0, 0, 0, 8, 0, 0, 0]);
    check_one(Insn::Call { helper: Helper::RedirectMap }, [0x85, 0, 0, 0, 51, 0, 0, 0]);
    check_one(Insn::Call { helper: Helper::AdjustTail }, [0x85, 0, 0, 0, 65, 0, 0, 0]);
    check_one(Insn::Exit, [0x95, 0, 0, 0, 0, 0, 0, 0]);
}
