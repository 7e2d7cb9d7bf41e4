use super::{R0, R1, R2, R3, R6, R7, R10, bytes_of, constant, fault, run_with};
use crate::bpf::assembler::Assembler;
use crate::bpf::insn::{Alu, Bits, Condition, Insn, Operand, Register, Size};
use crate::bpf::machine::{Area, Fault, MapMemory};

const MIN32: u64 = 0x8000_0000;
const MIN64: u64 = 1 << 63;
/// -1 as a number of 32 bits.
const ONES32: u64 = 0xffff_ffff;
const ONES64: u64 = u64::MAX;
/// Upper halves that operations of 32 bits have to ignore.
const NOISE: u64 = 0x1234_5678 << 32;

/// What R0 holds after a program that gets the numbers in R0 and R7.
fn result(a: u64, b: u64, build: impl FnOnce(&mut Assembler)) -> u64 {
    let constants = bytes_of(&[a, b]);
    let mut out = [0; 8];
    let maps = vec![MapMemory::Constants(&constants), MapMemory::Value(&mut out)];
    let action = run_with(&mut vec![], maps, |program| {
        constant(program, R0, 0, 0);
        constant(program, R7, 0, 1);
        build(program);
        program.push(Insn::MapValue { to: R6, map: 1, offset: 0 });
        program.store(Size::Double, R6, 0, R0);
    })
    .expect("runs");
    let number = u64::from_ne_bytes(out);
    assert_eq!(u64::from(action), number & ONES32, "the action is the lower half");
    number
}

fn alu(bits: Bits, op: Alu, a: u64, b: u64) -> u64 {
    result(a, b, |program| program.push(Insn::Alu { bits, op, to: R0, from: Operand::Register(R7) }))
}

#[test]
fn operations_on_32_bits_ignore_and_clear_the_upper_half() {
    for (op, a, b, expected) in [
        (Alu::Add, ONES32, 2, 1),
        (Alu::Sub, 1, 2, ONES32),
        (Alu::Mul, 0x10001, 0x10001, 0x20001),
        (Alu::Div, ONES32, 2, 0x7fff_ffff),
        (Alu::Div, 7, 0, 0),
        (Alu::DivSigned, ONES32 - 6, 2, ONES32 - 2),
        (Alu::DivSigned, 7, 0, 0),
        (Alu::DivSigned, MIN32, ONES32, MIN32),
        (Alu::Mod, ONES32, 10, 5),
        (Alu::Mod, 7, 0, 7),
        (Alu::ModSigned, ONES32 - 6, 2, ONES32),
        (Alu::ModSigned, 7, ONES32 - 1, 1),
        (Alu::ModSigned, MIN32, ONES32, 0),
        (Alu::ModSigned, ONES32, 0, ONES32),
        (Alu::Or, 0xf0, 0x0f, 0xff),
        (Alu::And, 0xfc, 0x3f, 0x3c),
        (Alu::Xor, 0xff, 0x0f, 0xf0),
        (Alu::Lsh, 0x8000_0001, 1, 2),
        (Alu::Lsh, 1, 33, 2),
        (Alu::Rsh, MIN32, 31, 1),
        (Alu::Rsh, 4, 32, 4),
        (Alu::Arsh, MIN32, 31, ONES32),
        (Alu::Arsh, MIN32, 32, MIN32),
        (Alu::Mov, 1, ONES32, ONES32),
    ] {
        assert_eq!(alu(Bits::B32, op, NOISE | a, NOISE | b), expected, "{op:?} {a:#x} {b:#x}");
    }
}

#[test]
fn operations_on_64_bits() {
    let minus = u64::wrapping_neg;
    for (op, a, b, expected) in [
        (Alu::Add, ONES64, 2, 1),
        (Alu::Add, ONES32, 1, 1 << 32),
        (Alu::Sub, 1, 2, ONES64),
        (Alu::Mul, 1 << 33, (1 << 31) + 1, 1 << 33),
        (Alu::Div, ONES64, 2, MIN64 - 1),
        (Alu::Div, 7, 0, 0),
        (Alu::Div, 7, NOISE, 0),
        (Alu::DivSigned, minus(7), 2, minus(3)),
        (Alu::DivSigned, 7, 0, 0),
        (Alu::DivSigned, MIN64, ONES64, MIN64),
        (Alu::Mod, ONES64, 10, 5),
        (Alu::Mod, NOISE | 7, 0, NOISE | 7),
        (Alu::ModSigned, minus(7), 2, ONES64),
        (Alu::ModSigned, MIN64, ONES64, 0),
        (Alu::ModSigned, minus(7), 0, minus(7)),
        (Alu::Or, NOISE, 5, NOISE | 5),
        (Alu::And, NOISE | 5, NOISE | 4, NOISE | 4),
        (Alu::Xor, NOISE | 5, NOISE, 5),
        (Alu::Lsh, 1, 63, MIN64),
        (Alu::Lsh, 1, 65, 2),
        (Alu::Rsh, MIN64, 63, 1),
        (Alu::Rsh, 4, 64, 4),
        (Alu::Arsh, MIN64, 63, ONES64),
        (Alu::Mov, 1, NOISE | 3, NOISE | 3),
    ] {
        assert_eq!(alu(Bits::B64, op, a, b), expected, "{op:?} {a:#x} {b:#x}");
    }
}

#[test]
fn constants_are_sign_extended() {
    let one = |build: fn(&mut Assembler)| result(1, 0, build);
    assert_eq!(one(|program| program.mov64(R0, -2)), ONES64 - 1);
    assert_eq!(one(|program| program.mov64(R0, 0x8000_0000_u32)), MIN32.wrapping_neg());
    assert_eq!(one(|program| program.mov32(R0, -2)), ONES32 - 1);
    assert_eq!(one(|program| program.alu64(Alu::Add, R0, -2)), ONES64);
    assert_eq!(one(|program| program.alu32(Alu::Add, R0, -2)), ONES32);
    assert_eq!(result(ONES64, 0, |program| program.alu64(Alu::Div, R0, -1)), 1);
    assert_eq!(result(7, 0, |program| program.alu64(Alu::DivSigned, R0, -2)), 3_u64.wrapping_neg());
    assert_eq!(result(NOISE | 0xff, 0, |program| program.alu64(Alu::And, R0, -16)), NOISE | 0xf0);
}

#[test]
fn constants_that_the_verifier_refuses() {
    for (bits, op, constant) in [
        (Bits::B32, Alu::Div, 0),
        (Bits::B64, Alu::DivSigned, 0),
        (Bits::B32, Alu::ModSigned, 0),
        (Bits::B64, Alu::Mod, 0),
        (Bits::B32, Alu::Lsh, 32),
        (Bits::B64, Alu::Rsh, 64),
        (Bits::B64, Alu::Arsh, -1),
    ] {
        let refused = fault(|program| {
            program.mov64(R0, 1);
            program.push(Insn::Alu { bits, op, to: R0, from: Operand::Immediate(constant) });
        });
        assert_eq!(refused, Fault::Constant, "{op:?} {constant}");
    }
    assert_eq!(result(1, 0, |program| program.alu64(Alu::Lsh, R0, 63)), MIN64);
    assert_eq!(result(1, 0, |program| program.alu32(Alu::Lsh, R0, 31)), MIN32);
}

#[test]
fn sign_extension() {
    let extend = |bits, size, number| {
        result(0, number, |program| program.push(Insn::SignExtend { bits, to: R0, from: R7, size }))
    };
    assert_eq!(extend(Bits::B64, Size::Byte, NOISE | 0x80), ONES64 - 0x7f);
    assert_eq!(extend(Bits::B64, Size::Byte, NOISE | 0xff7f), 0x7f);
    assert_eq!(extend(Bits::B64, Size::Half, 0x8000), ONES64 - 0x7fff);
    assert_eq!(extend(Bits::B64, Size::Word, MIN32), MIN32.wrapping_neg());
    assert_eq!(extend(Bits::B64, Size::Word, NOISE | 0x7fff_ffff), 0x7fff_ffff);
    assert_eq!(extend(Bits::B32, Size::Byte, 0x80), ONES32 - 0x7f);
    assert_eq!(extend(Bits::B32, Size::Half, NOISE | 0xffff), ONES32);
    assert_eq!(extend(Bits::B32, Size::Half, 0x1_7fff), 0x7fff);
    for (bits, size) in [(Bits::B32, Size::Word), (Bits::B32, Size::Double), (Bits::B64, Size::Double)] {
        let refused = fault(|program| {
            program.mov64(R0, 1);
            program.push(Insn::SignExtend { bits, to: R0, from: R0, size });
        });
        assert_eq!(refused, Fault::Constant, "{bits:?} {size:?}");
    }
}

#[test]
fn byte_swap_clears_the_upper_half() {
    assert_eq!(result(NOISE | 0x0102_0384, 0, |program| program.push(Insn::SwapBytes { reg: R0 })), 0x8403_0201);
}

/// Whether a branch on two numbers is taken.
fn is_taken(bits: Bits, condition: Condition, a: u64, b: u64) -> bool {
    let taken = result(a, b, |program| {
        let to = program.label();
        program.mov64(R2, R0);
        program.mov64(R0, 1);
        program.push(Insn::Branch { bits, condition, a: R2, b: Operand::Register(R7), to });
        program.mov64(R0, 0);
        program.bind(to);
    });
    taken == 1
}

/// Conditions that hold between two numbers, in the order of [`CONDITIONS`].
fn holding(bits: Bits, a: u64, b: u64) -> [bool; 11] {
    CONDITIONS.map(|condition| is_taken(bits, condition, a, b))
}

const CONDITIONS: [Condition; 11] = [
    Condition::Equal,
    Condition::NotEqual,
    Condition::AnySet,
    Condition::Above,
    Condition::AboveOrEqual,
    Condition::Below,
    Condition::BelowOrEqual,
    Condition::Greater,
    Condition::GreaterOrEqual,
    Condition::Less,
    Condition::LessOrEqual,
];

#[test]
fn comparisons() {
    const EQUAL: [bool; 11] = [true, false, true, false, true, false, true, false, true, false, true];
    const LESS: [bool; 11] = [false, true, true, false, false, true, true, false, false, true, true];
    const ABOVE_LESS: [bool; 11] = [false, true, true, true, true, false, false, false, false, true, true];
    assert_eq!(holding(Bits::B64, NOISE | 3, NOISE | 3), EQUAL);
    assert_eq!(holding(Bits::B64, 3, NOISE | 3), LESS);
    assert_eq!(holding(Bits::B64, ONES64, 1), ABOVE_LESS);
    assert_eq!(holding(Bits::B64, MIN64 | 1, 1), ABOVE_LESS);
    assert_eq!(holding(Bits::B64, 1, MIN32 | 1), LESS);
    assert_eq!(holding(Bits::B32, 3, NOISE | 3), EQUAL);
    assert_eq!(holding(Bits::B32, NOISE | 1, 3), LESS);
    assert_eq!(holding(Bits::B32, ONES32, 1), ABOVE_LESS);
    assert_eq!(holding(Bits::B32, MIN32 | 1, NOISE | 1), ABOVE_LESS);
    assert!(!is_taken(Bits::B32, Condition::AnySet, NOISE | 5, NOISE | 2));
    assert!(is_taken(Bits::B64, Condition::AnySet, NOISE | 5, NOISE | 2));
}

#[test]
fn comparisons_with_constants() {
    let is_taken = |bits, a, constant| {
        result(a, 0, |program| {
            let to = program.label();
            program.mov64(R2, R0);
            program.mov64(R0, 1);
            let b = Operand::Immediate(constant);
            program.push(Insn::Branch { bits, condition: Condition::Equal, a: R2, b, to });
            program.mov64(R0, 0);
            program.bind(to);
        })
    };
    assert_eq!(is_taken(Bits::B64, ONES64, -1), 1);
    assert_eq!(is_taken(Bits::B64, ONES32, -1), 0);
    assert_eq!(is_taken(Bits::B32, ONES32, -1), 1);
    assert_eq!(is_taken(Bits::B32, NOISE | ONES32, -1), 1);
}

/// The context's pointers to the start and the end of the frame, in R2 and R3.
fn frame_pointers(program: &mut Assembler) {
    program.load(Size::Word, R2, R1, 0);
    program.load(Size::Word, R3, R1, 4);
}

fn result_on_frame(build: impl FnOnce(&mut Assembler)) -> u32 {
    super::run(|program| {
        frame_pointers(program);
        build(program);
    })
    .expect("runs")
}

#[test]
fn pointers_add_subtract_and_compare() {
    let length = result_on_frame(|program| {
        program.mov64(R0, R3);
        program.alu64(Alu::Sub, R0, R2);
    });
    assert_eq!(length, 64);
    let byte = result_on_frame(|program| {
        program.mov64(R7, 20);
        program.alu64(Alu::Add, R7, R2);
        program.alu64(Alu::Sub, R7, 3);
        program.alu64(Alu::Add, R7, -7);
        program.load(Size::Byte, R0, R7, -1);
    });
    assert_eq!(byte, 9);
    for (distance, expected) in [(63, 0), (64, 0), (65, 1)] {
        let is_behind = result_on_frame(|program| {
            let end = program.label();
            program.alu64(Alu::Add, R2, distance);
            program.mov64(R0, 1);
            program.branch64(Condition::Above, R2, R3, end);
            program.mov64(R0, 0);
            program.bind(end);
        });
        assert_eq!(is_behind, expected, "{distance}");
    }
    let is_null = result_on_frame(|program| {
        let end = program.label();
        program.mov64(R0, 1);
        program.branch64(Condition::Equal, R2, 0, end);
        program.mov64(R0, 0);
        program.bind(end);
    });
    assert_eq!(is_null, 0);
}

fn refused_on_frame(build: impl FnOnce(&mut Assembler, Register, Register)) -> Fault {
    fault(|program| {
        frame_pointers(program);
        program.mov64(R0, 1);
        build(program, R2, R3);
    })
}

#[test]
fn operations_that_pointers_have_not() {
    let frame = Fault::PointerOperand(Area::Frame);
    assert_eq!(refused_on_frame(|program, start, _| program.alu32(Alu::Add, start, 1)), frame);
    assert_eq!(refused_on_frame(|program, start, _| program.alu64(Alu::And, start, -8)), frame);
    assert_eq!(refused_on_frame(|program, start, _| program.alu64(Alu::Sub, R0, start)), frame);
    assert_eq!(refused_on_frame(|program, start, _| program.alu64(Alu::Add, start, start)), frame);
    assert_eq!(refused_on_frame(|program, start, _| program.mov32(R0, start)), frame);
    assert_eq!(refused_on_frame(|program, start, _| program.push(Insn::SwapBytes { reg: start })), frame);
    let end = Fault::PointerOperand(Area::FrameEnd);
    assert_eq!(refused_on_frame(|program, _, end| program.alu64(Alu::Add, end, 1)), end);
    assert_eq!(refused_on_frame(|program, _, _| program.alu64(Alu::Sub, R2, R10)), Fault::PointerOperand(Area::Stack));
    assert_eq!(refused_on_frame(|program, _, _| program.alu64(Alu::Sub, R10, 8)), Fault::ReadOnlyRegister);
    for (bits, condition, constant) in
        [(Bits::B64, Condition::Above, 0), (Bits::B64, Condition::Equal, 1), (Bits::B32, Condition::Equal, 0)]
    {
        let refused = refused_on_frame(|program, a, _| {
            let to = program.label();
            program.bind(to);
            program.push(Insn::Branch { bits, condition, a, b: Operand::Immediate(constant), to });
        });
        assert_eq!(refused, frame, "{bits:?} {condition:?} {constant}");
    }
    let unrelated = refused_on_frame(|program, start, _| {
        let to = program.label();
        program.bind(to);
        program.branch64(Condition::Below, start, R10, to);
    });
    assert_eq!(unrelated, Fault::PointerOperand(Area::Stack));
}
