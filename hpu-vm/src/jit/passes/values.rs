//! Value numbers: each register holds some value of which nothing is known, plus a constant distance.
//!
//! Accesses whose base registers have the same value number lie at known distances from each other. Value numbers, and
//! the bytes around them that were checked, hold in later blocks as far as all predecessors agree.

use std::collections::HashMap;

use crate::analysis::cfg::BlockId;
use crate::analysis::dataflow::RegState;
use crate::analysis::regs::writes;
use crate::inst::{Inst, Op, Reg};

/// Number of an unknown value.
pub(crate) type ValueNo = u64;

/// Distances from a value: the first byte and the end of a range.
pub(super) type Bytes = (i64, i64);

/// A value plus a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) value: ValueNo,
    pub(crate) distance: u32,
}

/// What registers hold at one point, and which bytes around values have been checked.
#[derive(Clone, Debug)]
pub(super) struct Values {
    places: [Place; 32],
    pub(super) checked: HashMap<ValueNo, Bytes>,
    /// The last number given; no other block gives it.
    newest: ValueNo,
}

impl Values {
    /// At the start of a block whose predecessors end like this; `None` stands for an unknown predecessor.
    pub(super) fn at_start<'v>(id: BlockId, mut ends: impl Iterator<Item = Option<&'v Self>>) -> Self {
        let newest = (id as ValueNo) << 32;
        let Some(Some(first)) = ends.next() else { return Self::unknown(newest) };
        let mut values = Self { newest, ..first.clone() };
        for end in ends {
            let Some(end) = end else { return Self::unknown(newest) };
            values.join(end);
        }
        values
    }

    fn unknown(newest: ValueNo) -> Self {
        let mut values = Self { places: [Place { value: 0, distance: 0 }; 32], checked: HashMap::new(), newest };
        (0..32).map(Reg::new).for_each(|reg| values.forget(reg));
        values
    }

    /// Keeps what holds in both.
    fn join(&mut self, other: &Self) {
        for reg in (0..32).map(Reg::new) {
            if self.places[reg.index()] != other.places[reg.index()] {
                self.forget(reg);
            }
        }
        self.checked.retain(|value, (low, high)| {
            let Some(&(from, to)) = other.checked.get(value) else { return false };
            (*low, *high) = ((*low).max(from), (*high).min(to));
            low < high
        });
    }

    /// Forgets the checks of values that no register holds.
    pub(super) fn prune(&mut self) {
        let Self { places, checked, .. } = self;
        checked.retain(|value, _| places.iter().any(|place| place.value == *value));
    }

    /// Applies an instruction.
    pub(super) fn transfer(&mut self, inst: &Inst, state: &RegState) {
        if inst.op == Op::Ecall {
            self.forget(Reg::A0);
            self.forget(Reg::A1);
        }
        let rd = writes(inst);
        if rd == Reg::ZERO {
            return;
        }
        let place = match inst.op {
            Op::Addi => Some(self.moved(inst.rs1, inst.imm.cast_unsigned())),
            Op::Add if state.constant(inst.rs1).is_some() => self.offset(inst.rs2, state.constant(inst.rs1)),
            Op::Add => self.offset(inst.rs1, state.constant(inst.rs2)),
            _ => None,
        };
        self.forget(rd);
        if let Some(place) = place {
            self.set(rd, place);
        }
    }

    pub(super) const fn place(&self, reg: Reg) -> Place {
        self.places[reg.index()]
    }

    pub(super) const fn set(&mut self, reg: Reg, place: Place) {
        self.places[reg.index()] = place;
    }

    fn forget(&mut self, reg: Reg) {
        self.newest += 1;
        self.places[reg.index()] = Place { value: self.newest, distance: 0 };
    }

    /// The place at a distance from what a register holds.
    pub(super) const fn moved(&self, reg: Reg, by: u32) -> Place {
        let place = self.places[reg.index()];
        Place { distance: place.distance.wrapping_add(by), ..place }
    }

    fn offset(&self, reg: Reg, by: Option<u32>) -> Option<Place> {
        by.map(|by| self.moved(reg, by))
    }
}
