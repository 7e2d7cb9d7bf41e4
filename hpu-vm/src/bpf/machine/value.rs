//! Values of registers and of stack slots.

use super::error::{Area, Fault};
use crate::bpf::insn::Register;

/// An offset in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    pub(super) area: Area,
    /// Number of calls of `bpf_xdp_adjust_tail` before the load of a frame pointer; 0 for other areas.
    pub(super) generation: u32,
    /// From the start of the area; of the stack, from its end.
    pub(super) offset: i64,
}

impl Pointer {
    pub(super) const fn new(area: Area, offset: i64) -> Self {
        Self { area, generation: 0, offset }
    }

    /// Adds a number to it, as far as the kernel's verifier allows it.
    pub(super) const fn add(self, distance: u64) -> Result<Self, Fault> {
        match self.area {
            Area::Stack | Area::Frame | Area::MapValue(_) => {
                Ok(Self { offset: self.offset.wrapping_add(distance.cast_signed()), ..self })
            }
            area => Err(Fault::PointerOperand(area)),
        }
    }

    /// Offsets of two pointers from one start. Pointers to different areas have none.
    pub(super) fn common(self, other: Self) -> Option<(i64, i64)> {
        let start = |area| if area == Area::FrameEnd { Area::Frame } else { area };
        let are_related = start(self.area) == start(other.area) && self.generation == other.generation;
        are_related.then_some((self.offset, other.offset))
    }
}

/// Value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Pointer(Pointer),
}

impl Value {
    pub(super) const fn number(self) -> Result<u64, Fault> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Pointer(pointer) => Err(Fault::PointerOperand(pointer.area)),
        }
    }

    pub(super) const fn pointer(self) -> Result<Pointer, Fault> {
        match self {
            Self::Number(number) => Err(Fault::NotPointer(number)),
            Self::Pointer(pointer) => Ok(pointer),
        }
    }
}

/// R0 to R10. Registers without a value have not been written.
#[derive(Clone, Debug)]
pub(super) struct Registers([Option<Value>; 11]);

impl Registers {
    /// Registers at the start of a program.
    pub(super) const fn new() -> Self {
        let mut values = [None; 11];
        values[Register::R1.index()] = Some(Value::Pointer(Pointer::new(Area::Context, 0)));
        values[Register::FRAME.index()] = Some(Value::Pointer(Pointer::new(Area::Stack, 0)));
        Self(values)
    }

    pub(super) fn get(&self, register: Register) -> Result<Value, Fault> {
        self.0[register.index()].ok_or(Fault::UnwrittenRegister(register.index()))
    }

    pub(super) fn set(&mut self, register: Register, value: Value) -> Result<(), Fault> {
        if register == Register::FRAME {
            return Err(Fault::ReadOnlyRegister);
        }
        self.0[register.index()] = Some(value);
        Ok(())
    }

    /// Removes the values of R1 to R5, as a call does.
    pub(super) fn clear_arguments(&mut self) {
        self.0[1..=5].fill(None);
    }
}
