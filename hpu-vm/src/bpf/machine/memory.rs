//! Memory of programs: maps, the stack, and access to bytes.

use super::arithmetic::lower;
use super::error::{Access, Area, Fault};
use super::value::{Pointer, Value};
use crate::bpf::insn::Size;

/// Size of a program's stack (`MAX_BPF_STACK`).
pub const STACK_BYTES: usize = 512;

/// A map of a program.
#[derive(Debug)]
pub enum MapMemory<'m> {
    /// An array with one value.
    Value(&'m mut [u8]),
    /// An array with one value that the program only reads (`BPF_F_RDONLY_PROG`).
    Constants(&'m [u8]),
    /// A map of sockets (`BPF_MAP_TYPE_XSKMAP`), given as the keys that have a socket.
    Sockets(&'m [u32]),
}

impl MapMemory<'_> {
    /// Its value.
    pub(super) const fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Value(bytes) => Some(bytes),
            Self::Constants(bytes) => Some(bytes),
            Self::Sockets(_) => None,
        }
    }

    /// Its value, if the program may write it.
    pub(super) const fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Value(bytes) => Some(bytes),
            Self::Constants(_) | Self::Sockets(_) => None,
        }
    }
}

/// What a stack slot of eight bytes holds.
#[derive(Clone, Copy, Debug)]
enum Slot {
    /// Bytes, and a bit for each one that was written.
    Bytes { bytes: [u8; 8], written: u8 },
    /// A pointer.
    Pointer(Pointer),
}

/// A program's stack. The verifier demands aligned accesses, so that each one lies in one slot.
#[derive(Clone, Debug)]
pub(super) struct Stack([Slot; STACK_BYTES / 8]);

impl Stack {
    pub(super) const fn new() -> Self {
        Self([Slot::Bytes { bytes: [0; 8], written: 0 }; STACK_BYTES / 8])
    }

    /// Loads a number, or a whole pointer.
    pub(super) fn load(&self, access: Access, size: Size, offset: i64) -> Result<Value, Fault> {
        let (slot, at) = Self::find(access, size, offset)?;
        match self.0[slot] {
            Slot::Bytes { bytes, written } if written & mask(size, at) == mask(size, at) => {
                Ok(Value::Number(read(size, &bytes[at..])))
            }
            Slot::Bytes { .. } => Err(Fault::UnwrittenStack(offset)),
            Slot::Pointer(pointer) if size == Size::Double => Ok(Value::Pointer(pointer)),
            Slot::Pointer(_) => Err(Fault::PartOfPointer(offset)),
        }
    }

    /// Stores a number, or a whole pointer. What is left of an overwritten pointer has no value.
    pub(super) fn store(&mut self, access: Access, size: Size, offset: i64, value: Value) -> Result<(), Fault> {
        let (slot, at) = Self::find(access, size, offset)?;
        let slot = &mut self.0[slot];
        match (value, *slot) {
            (Value::Pointer(pointer), _) if size == Size::Double => *slot = Slot::Pointer(pointer),
            (Value::Pointer(pointer), _) => return Err(Fault::PointerOperand(pointer.area)),
            (Value::Number(number), before) => {
                let (mut bytes, written) = match before {
                    Slot::Bytes { bytes, written } => (bytes, written),
                    Slot::Pointer(_) => ([0; 8], 0),
                };
                write(size, &mut bytes[at..], number);
                *slot = Slot::Bytes { bytes, written: written | mask(size, at) };
            }
        }
        Ok(())
    }

    /// Slot of an access, and its offset in the slot.
    fn find(access: Access, size: Size, offset: i64) -> Result<(usize, usize), Fault> {
        let (area, bytes) = (Area::Stack, size.bytes());
        let start = usize::try_from(offset.saturating_add_unsigned(STACK_BYTES as u64)).ok();
        let is_inside = |start: &usize| *start <= STACK_BYTES - bytes as usize;
        let start =
            start.filter(is_inside).ok_or(Fault::Outside { access, area, offset, bytes, length: STACK_BYTES })?;
        if !start.is_multiple_of(bytes as usize) {
            return Err(Fault::Misaligned { access, area, offset, bytes });
        }
        Ok((start / 8, start % 8))
    }
}

/// Bits of the bytes from `at` on.
const fn mask(size: Size, at: usize) -> u8 {
    let first: u8 = match size {
        Size::Byte => 0x01,
        Size::Half => 0x03,
        Size::Word => 0x0f,
        Size::Double => 0xff,
    };
    first << at
}

/// The number in the first bytes, zero-extended.
pub(super) fn read(size: Size, bytes: &[u8]) -> u64 {
    match size {
        Size::Byte => u64::from(bytes[0]),
        Size::Half => u64::from(u16::from_ne_bytes(first(bytes))),
        Size::Word => u64::from(u32::from_ne_bytes(first(bytes))),
        Size::Double => u64::from_ne_bytes(first(bytes)),
    }
}

/// Overwrites the first bytes with the number's lower bytes.
#[allow(clippy::cast_possible_truncation, reason = "the lower bytes are wanted")]
pub(super) fn write(size: Size, bytes: &mut [u8], number: u64) {
    match size {
        Size::Byte => bytes[0] = number as u8,
        Size::Half => bytes[..2].copy_from_slice(&(number as u16).to_ne_bytes()),
        Size::Word => bytes[..4].copy_from_slice(&lower(number).to_ne_bytes()),
        Size::Double => bytes[..8].copy_from_slice(&number.to_ne_bytes()),
    }
}

fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut first = [0; N];
    first.copy_from_slice(&bytes[..N]);
    first
}

/// Start of an access to an area of `length` bytes.
pub(super) fn find(access: Access, size: Size, pointer: Pointer, length: usize) -> Result<usize, Fault> {
    let Pointer { area, offset, .. } = pointer;
    let bytes = size.bytes();
    let start = usize::try_from(offset).ok();
    start.filter(|start| start.checked_add(bytes as usize).is_some_and(|end| end <= length)).ok_or(Fault::Outside {
        access,
        area,
        offset,
        bytes,
        length,
    })
}
