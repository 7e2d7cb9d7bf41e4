//! Exits from translated code to the interpreter and to other regions.

use crate::hart::Hart;
use crate::inst::Reg;

/// Exits of a function to the interpreter and to other regions, numbered by [`State::resume`](super::state::State::resume). The code does not
/// write registers whose values were known at translation; this table holds them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SideExits {
    exits: Vec<SideExit>,
    /// Registers and their values, shared by consecutive exits.
    values: Vec<Box<[(Reg, u32)]>>,
}

#[derive(Clone, Debug)]
struct SideExit {
    /// Address of the next instruction; `None`: the code wrote it to the hart.
    pc: Option<u32>,
    /// Index in [`SideExits::values`].
    values: usize,
}

impl SideExits {
    /// Adds an exit and returns its number.
    pub(crate) fn add(&mut self, pc: Option<u32>, values: Vec<(Reg, u32)>) -> u32 {
        if self.values.last().is_none_or(|last| **last != *values) {
            self.values.push(values.into());
        }
        self.exits.push(SideExit { pc, values: self.values.len() - 1 });
        // The limit on a function's size keeps the number of exits far below 2^32.
        u32::try_from(self.exits.len() - 1).unwrap_or(u32::MAX)
    }

    /// Writes the values that are known at an exit to the hart.
    pub(crate) fn restore(&self, hart: &mut Hart, exit: u32) {
        let Some(SideExit { pc, values }) = self.exits.get(exit as usize) else { return };
        hart.pc = pc.unwrap_or(hart.pc);
        self.values[*values].iter().for_each(|&(reg, value)| hart.set(reg, value));
    }
}
