//! Instructions of eBPF, version 4 (Linux: `Documentation/bpf/standardization/instruction-set.rst`), as far as the
//! translator emits them.

#[cfg(test)]
mod tests;

/// A register. R10 points to the end of the program's stack and is read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register(u8);

impl Register {
    /// Result of a helper.
    pub const R0: Self = Self(0);
    /// First argument of a helper; the context where a program begins.
    pub const R1: Self = Self(1);
    /// Second argument of a helper.
    pub const R2: Self = Self(2);
    /// Third argument of a helper.
    pub const R3: Self = Self(3);
    /// The last register that the program may write.
    pub const R9: Self = Self(9);
    /// End of the stack.
    pub const FRAME: Self = Self(10);

    /// The register with a number of at most 10.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        assert!(number <= 10, "there is no such register");
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Size of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// One byte.
    Byte,
    /// Two bytes.
    Half,
    /// Four bytes.
    Word,
    /// Eight bytes.
    Double,
}

impl Size {
    /// Number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
            Self::Double => 8,
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Word => 0x00,
            Self::Half => 0x08,
            Self::Byte => 0x10,
            Self::Double => 0x18,
        }
    }
}

/// Which bits of registers an operation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bits {
    /// The lower 32; results are zero-extended.
    B32,
    /// All 64.
    B64,
}

/// An arithmetic operation. Shifts use the lower bits of their second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alu {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Unsigned quotient; 0 by zero.
    Div,
    /// Signed quotient; 0 by zero.
    DivSigned,
    /// Unsigned remainder; the dividend by zero.
    Mod,
    /// Signed remainder; the dividend by zero.
    ModSigned,
    /// Bitwise or.
    Or,
    /// Bitwise and.
    And,
    /// Bitwise exclusive or.
    Xor,
    /// Left shift.
    Lsh,
    /// Logical right shift.
    Rsh,
    /// Arithmetic right shift.
    Arsh,
    /// Copy.
    Mov,
}

impl Alu {
    /// Operation code and the offset that selects signed division.
    const fn code(self) -> (u8, i16) {
        match self {
            Self::Add => (0x00, 0),
            Self::Sub => (0x10, 0),
            Self::Mul => (0x20, 0),
            Self::Div => (0x30, 0),
            Self::DivSigned => (0x30, 1),
            Self::Or => (0x40, 0),
            Self::And => (0x50, 0),
            Self::Lsh => (0x60, 0),
            Self::Rsh => (0x70, 0),
            Self::Mod => (0x90, 0),
            Self::ModSigned => (0x90, 1),
            Self::Xor => (0xa0, 0),
            Self::Mov => (0xb0, 0),
            Self::Arsh => (0xc0, 0),
        }
    }
}

/// Second operand of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register.
    Register(Register),
    /// A constant, sign-extended to 64 bits.
    Immediate(i32),
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// Equal.
    Equal,
    /// Not equal.
    NotEqual,
    /// Any of the second operand's bits is set.
    AnySet,
    /// Unsigned greater.
    Above,
    /// Unsigned greater or equal.
    AboveOrEqual,
    /// Unsigned less.
    Below,
    /// Unsigned less or equal.
    BelowOrEqual,
    /// Signed greater.
    Greater,
    /// Signed greater or equal.
    GreaterOrEqual,
    /// Signed less.
    Less,
    /// Signed less or equal.
    LessOrEqual,
}

impl Condition {
    const fn code(self) -> u8 {
        match self {
            Self::Equal => 0x10,
            Self::Above => 0x20,
            Self::AboveOrEqual => 0x30,
            Self::AnySet => 0x40,
            Self::NotEqual => 0x50,
            Self::Greater => 0x60,
            Self::GreaterOrEqual => 0x70,
            Self::Below => 0xa0,
            Self::BelowOrEqual => 0xb0,
            Self::Less => 0xc0,
            Self::LessOrEqual => 0xd0,
        }
    }
}

/// An atomic operation on a word, which returns the old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Atomic {
    /// Sum.
    Add,
    /// Bitwise or.
    Or,
    /// Bitwise and.
    And,
    /// Bitwise exclusive or.
    Xor,
    /// The operand.
    Exchange,
    /// The operand if the old value is that of R0. R0 becomes the old value.
    CompareExchange,
}

impl Atomic {
    const fn code(self) -> i32 {
        match self {
            Self::Add => 0x01,
            Self::Or => 0x41,
            Self::And => 0x51,
            Self::Xor => 0xa1,
            Self::Exchange => 0xe1,
            Self::CompareExchange => 0xf1,
        }
    }
}

/// A place in a program that jumps lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label(pub(super) usize);

/// Number of a map of a program, from 0.
pub type MapIndex = u32;

/// A helper of the kernel (`include/uapi/linux/bpf.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Helper {
    /// `bpf_get_smp_processor_id()`.
    Processor = 8,
    /// `bpf_redirect_map(map, key, action if there is no such entry)`.
    RedirectMap = 51,
    /// `bpf_xdp_adjust_tail(context, difference of the length)`.
    AdjustTail = 65,
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants describe their operands")]
pub enum Insn {
    /// `to = to op from`.
    Alu { bits: Bits, op: Alu, to: Register, from: Operand },
    /// The lower `size` bytes of `from`, sign-extended.
    SignExtend { bits: Bits, to: Register, from: Register, size: Size },
    /// Reverses the lower four bytes; the upper ones become zero.
    SwapBytes { reg: Register },
    /// Loads and zero-extends.
    Load { size: Size, to: Register, base: Register, offset: i16 },
    /// Stores.
    Store { size: Size, base: Register, offset: i16, from: Operand },
    /// Atomic operation on the word at `base + offset`; `reg` is the operand, and becomes the old value but for
    /// [`Atomic::CompareExchange`].
    Atomic { op: Atomic, base: Register, offset: i16, reg: Register },
    /// Jumps always.
    Jump { to: Label },
    /// Jumps if `a condition b`.
    Branch { bits: Bits, condition: Condition, a: Register, b: Operand, to: Label },
    /// Jumps when a loop runs for too long, by the kernel's measure.
    MayGoto { to: Label },
    /// The address of `offset` in the only value of an array map.
    MapValue { to: Register, map: MapIndex, offset: u32 },
    /// A constant of 64 bits.
    Constant { to: Register, value: u64 },
    /// A map, as an argument of helpers.
    Map { to: Register, map: MapIndex },
    /// Calls a helper, which overwrites R0 to R5.
    Call { helper: Helper },
    /// Ends the program; R0 is the result.
    Exit,
}

/// `BPF_PSEUDO_MAP_IDX` and `BPF_PSEUDO_MAP_IDX_VALUE`: maps by their index in `fd_array`.
const MAP_INDEX: u8 = 5;
const MAP_INDEX_VALUE: u8 = 6;
const LOAD_DOUBLE: u8 = 0x18;
const JUMP: u8 = 0x05;
const JUMP_LONG: u8 = 0x06;
const MAY_GOTO: u8 = 0xe5;

/// An encoded instruction, in the machine's byte order (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Encoded {
    code: u8,
    /// Destination in the lower four bits of a little-endian machine.
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Encoded {
    const fn new(code: u8, to: Register, from: Register, offset: i16, immediate: i32) -> Self {
        let registers = if cfg!(target_endian = "little") { to.0 | from.0 << 4 } else { to.0 << 4 | from.0 };
        Self { code, registers, offset, immediate }
    }

    const fn operand(code: u8, to: Register, from: Operand, offset: i16) -> Self {
        match from {
            Operand::Register(from) => Self::new(code | 0x08, to, from, offset, 0),
            Operand::Immediate(immediate) => Self::new(code, to, Register::R0, offset, immediate),
        }
    }

    /// As the kernel reads it.
    #[must_use]
    pub fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[0] = self.code;
        bytes[1] = self.registers;
        bytes[2..4].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[4..].copy_from_slice(&self.immediate.to_ne_bytes());
        bytes
    }
}

/// How far a jump leads, from the instruction behind it.
#[derive(Clone, Copy)]
pub(super) enum Reach {
    Near(i16),
    Far(i32),
}

impl Insn {
    /// Where it may jump to.
    pub(super) const fn target(&self) -> Option<Label> {
        match *self {
            Self::Jump { to } | Self::Branch { to, .. } | Self::MayGoto { to } => Some(to),
            _ => None,
        }
    }

    /// Number of encoded instructions; conditional jumps that lead far take three.
    pub(super) const fn len(&self, is_far: bool) -> usize {
        match self {
            Self::MapValue { .. } | Self::Map { .. } | Self::Constant { .. } => 2,
            Self::Branch { .. } | Self::MayGoto { .. } if is_far => 3,
            _ => 1,
        }
    }

    /// Appends its encoding. `reach` is that of the instruction's last part, if it jumps.
    pub(super) fn encode(&self, reach: Reach, code: &mut Vec<Encoded>) {
        const ZERO: Register = Register::R0;
        match *self {
            Self::Alu { bits, op, to, from } => {
                let (operation, offset) = op.code();
                let class = if bits == Bits::B64 { 0x07 } else { 0x04 };
                code.push(Encoded::operand(class | operation, to, from, offset));
            }
            Self::SignExtend { bits, to, from, size } => {
                let class = if bits == Bits::B64 { 0xbf } else { 0xbc };
                let offset = i16::from(size.bytes().to_le_bytes()[0]) * 8;
                code.push(Encoded::new(class, to, from, offset, 0));
            }
            Self::SwapBytes { reg } => code.push(Encoded::new(0xd7, reg, ZERO, 0, 32)),
            Self::Load { size, to, base, offset } => code.push(Encoded::new(0x61 | size.code(), to, base, offset, 0)),
            Self::Store { size, base, offset, from } => code.push(match from {
                Operand::Register(from) => Encoded::new(0x63 | size.code(), base, from, offset, 0),
                Operand::Immediate(value) => Encoded::new(0x62 | size.code(), base, ZERO, offset, value),
            }),
            Self::Atomic { op, base, offset, reg } => code.push(Encoded::new(0xc3, base, reg, offset, op.code())),
            Self::Jump { .. } => code.push(match reach {
                Reach::Near(offset) => Encoded::new(JUMP, ZERO, ZERO, offset, 0),
                Reach::Far(offset) => Encoded::new(JUMP_LONG, ZERO, ZERO, 0, offset),
            }),
            Self::Branch { bits, condition, a, b, .. } => {
                let class = if bits == Bits::B64 { 0x05 } else { 0x06 };
                conditional(reach, code, |offset| Encoded::operand(class | condition.code(), a, b, offset));
            }
            Self::MayGoto { .. } => {
                conditional(reach, code, |offset| Encoded::new(MAY_GOTO, ZERO, ZERO, offset, 0));
            }
            Self::MapValue { to, map, offset } => {
                code.push(Encoded::new(LOAD_DOUBLE, to, Register(MAP_INDEX_VALUE), 0, map.cast_signed()));
                code.push(Encoded::new(0, ZERO, ZERO, 0, offset.cast_signed()));
            }
            Self::Constant { to, value } => {
                let [low, high] = [value, value >> 32].map(|word| (word & 0xffff_ffff) as u32);
                code.push(Encoded::new(LOAD_DOUBLE, to, ZERO, 0, low.cast_signed()));
                code.push(Encoded::new(0, ZERO, ZERO, 0, high.cast_signed()));
            }
            Self::Map { to, map } => {
                code.push(Encoded::new(LOAD_DOUBLE, to, Register(MAP_INDEX), 0, map.cast_signed()));
                code.push(Encoded::new(0, ZERO, ZERO, 0, 0));
            }
            Self::Call { helper } => code.push(Encoded::new(0x85, ZERO, ZERO, 0, helper as i32)),
            Self::Exit => code.push(Encoded::new(0x95, ZERO, ZERO, 0, 0)),
        }
    }
}

/// A conditional jump. One that leads far leads to a long jump behind it.
fn conditional(reach: Reach, code: &mut Vec<Encoded>, branch: impl FnOnce(i16) -> Encoded) {
    const ZERO: Register = Register::R0;
    match reach {
        Reach::Near(offset) => code.push(branch(offset)),
        Reach::Far(offset) => {
            code.push(branch(1));
            code.push(Encoded::new(JUMP, ZERO, ZERO, 1, 0));
            code.push(Encoded::new(JUMP_LONG, ZERO, ZERO, 0, offset));
        }
    }
}
