//! Reasons why a program is ended. The kernel's verifier would have refused such a program.

use std::fmt;

use crate::bpf::insn::{Helper, Insn, MapIndex};

/// What a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// The program's stack of [`STACK_BYTES`](super::STACK_BYTES). Offsets count from its end and are negative.
    Stack,
    /// The program's context, `struct xdp_md`.
    Context,
    /// The frame.
    Frame,
    /// End of the frame, as the context tells it. Programs only compare it with pointers to the frame.
    FrameEnd,
    /// The value of a map.
    MapValue(MapIndex),
    /// A map, as an argument of helpers.
    Map(MapIndex),
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stack => f.write_str("stack"),
            Self::Context => f.write_str("context"),
            Self::Frame => f.write_str("frame"),
            Self::FrameEnd => f.write_str("end of the frame"),
            Self::MapValue(map) => write!(f, "value of map {map}"),
            Self::Map(map) => write!(f, "map {map}"),
        }
    }
}

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Load,
    /// A store.
    Store,
    /// An atomic operation.
    Atomic,
}

/// Reason why a program was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Read of a register without a value.
    #[error("R{0} was not written")]
    UnwrittenRegister(usize),
    /// Load of stack bytes without a value.
    #[error("stack{0:+} was not written")]
    UnwrittenStack(i64),
    /// Access to a part of a pointer on the stack, or an atomic operation on it.
    #[error("stack{0:+} is part of a pointer")]
    PartOfPointer(i64),
    /// Write to R10.
    #[error("R10 is read-only")]
    ReadOnlyRegister,
    /// Access outside the area.
    #[error("{access:?} of {bytes} bytes at {area}{offset:+}, which has {length} bytes")]
    Outside {
        /// Kind of the access.
        access: Access,
        /// Area of the pointer.
        area: Area,
        /// Offset of the access in it.
        offset: i64,
        /// Size of the access.
        bytes: u32,
        /// Size of the area.
        length: usize,
    },
    /// Misaligned access to the stack, or misaligned atomic operation.
    #[error("{access:?} of {bytes} bytes at {area}{offset:+} is misaligned")]
    Misaligned {
        /// Kind of the access.
        access: Access,
        /// Area of the pointer.
        area: Area,
        /// Offset of the access in it.
        offset: i64,
        /// Size of the access.
        bytes: u32,
    },
    /// The context has no field with this offset and size.
    #[error("the context has no field of {bytes} bytes at {offset}")]
    ContextField {
        /// Offset of the load.
        offset: i64,
        /// Size of the load.
        bytes: u32,
    },
    /// Kind of access that the area does not allow.
    #[error("{access:?} at {area}{offset:+} is not allowed")]
    Forbidden {
        /// Kind of the access.
        access: Access,
        /// Area of the pointer.
        area: Area,
        /// Offset of the access in it.
        offset: i64,
    },
    /// Access by a frame pointer from before a call of `bpf_xdp_adjust_tail`.
    #[error("the frame pointer is older than the last call of bpf_xdp_adjust_tail")]
    OldPointer,
    /// Access by a number.
    #[error("{0:#x} is a number, not a pointer")]
    NotPointer(u64),
    /// A pointer as the operand of an operation that is defined for numbers only, or for pointers to one area only.
    #[error("a pointer to {0} is no operand of this operation")]
    PointerOperand(Area),
    /// Constant that the operation does not allow: division by 0, shift by more than the register's width, or a
    /// sign-extension that changes nothing.
    #[error("invalid constant")]
    Constant,
    /// The program has no such map.
    #[error("there is no map {0}")]
    NoMap(MapIndex),
    /// An argument of a helper is of the wrong kind.
    #[error("R{register} is no valid argument of {helper:?}")]
    Argument {
        /// The helper.
        helper: Helper,
        /// Number of the argument's register.
        register: usize,
    },
    /// The program continues behind its last instruction.
    #[error("the program has no such instruction")]
    NoInsn,
    /// The program has executed as many instructions as the caller allows.
    #[error("the limit of executed instructions is reached")]
    Limit,
}

/// An instruction that ended a program, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("instruction {index} ({insn:?}): {fault}")]
pub struct Error {
    /// Index of the instruction.
    pub index: usize,
    /// The instruction, if there is one.
    pub insn: Option<Insn>,
    /// Why the program was ended.
    pub fault: Fault,
}
