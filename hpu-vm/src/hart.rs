//! One hardware thread: registers, program counter, counters.

use spin_abi::map::RETURN_ADDRESS;

use crate::command_registers::CommandRegisters;
use crate::csr::Csr;
use crate::reg::Reg;
use crate::vector::{VLEN_BYTES, VectorState};

/// Architectural state of an HPU. It outlives tasks. [`Hart::begin`] clears all of it except the instruction count. A
/// task can therefore learn only the run time of the previous one, as on a machine with one clock.
///
/// # Time
/// The HPU's clock is the number of completed instructions: one per cycle at PsPIN's 1 GHz, deterministic. `cycle`,
/// `time` and `instret` all read it; waiting for a command takes no time.
///
/// Translated code accesses the fields in place: hence `repr(C)`.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Hart {
    /// Registers x0 to x31; x0 is zero whenever an instruction begins.
    pub x: [u32; 32],
    /// Address of the next instruction.
    pub pc: u32,
    /// Value of `mhartid`.
    pub id: u32,
    /// Address of the word reserved by LR, [`UNRESERVED`] when there is none.
    pub(crate) reserved_address: u32,
    /// Value of the reserved word when it was reserved.
    pub(crate) reserved_value: u32,
    pub(crate) retired: u64,
    pub(crate) cycle_offset: u64,
    pub(crate) instret_offset: u64,
    /// Registers of the command unit.
    pub command: CommandRegisters,
    /// State was changed that a task of translated code does not reset by itself.
    pub(crate) dirty: bool,
    /// Vector state.
    pub vector: VectorState,
}

/// No word has this address.
pub(crate) const UNRESERVED: u32 = 1;

impl Hart {
    /// Makes an HPU with an instruction count of zero, whose `mhartid` is `id`.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self {
            x: [0; 32],
            pc: 0,
            id,
            reserved_address: UNRESERVED,
            reserved_value: 0,
            retired: 0,
            cycle_offset: 0,
            instret_offset: 0,
            command: CommandRegisters::new(),
            dirty: false,
            vector: VectorState::NEW,
        }
    }

    /// Prepares a task. All registers are zero except `sp`, `a0` (the argument) and `ra` (the address whose return ends
    /// the task). There is no reservation. Counters written by an earlier task are reset to the true count.
    pub fn begin(&mut self, entry: u32, sp: u32, argument: u32) {
        // Field by field: an assignment of the whole would write the vector registers too, which few tasks use.
        self.x = [0; 32];
        self.pc = entry;
        self.clean();
        self.vector.clear();
        self.set(Reg::SP, sp);
        self.set(Reg::A0, argument);
        self.set(Reg::RA, RETURN_ADDRESS);
    }

    /// Whether a task of translated code can begin. Its registers are not in the hart.
    #[inline]
    pub(crate) const fn is_clean(&self) -> bool {
        !self.dirty
    }

    /// Prepares a task of translated code.
    pub(crate) fn begin_translated(&mut self) {
        if self.dirty {
            self.clean();
        }
        self.vector.clear();
    }

    /// Notes that vector registers or their state are about to change.
    pub(crate) const fn use_vectors(&mut self) {
        (self.dirty, self.vector.used) = (true, true);
    }

    fn clean(&mut self) {
        self.clear_reservation();
        (self.reserved_value, self.cycle_offset, self.instret_offset) = (0, 0, 0);
        self.command = CommandRegisters::new();
        self.dirty = false;
    }

    /// Returns the number of instructions completed since the hart was made, over all tasks. Translations without
    /// counting add nothing. A counting translation adds the instructions that its task completed. If a signal ended
    /// the task (refused by page protection, or over the time limit), only those up to the last update of the count are
    /// added, possibly none.
    #[must_use]
    pub const fn retired(&self) -> u64 {
        self.retired
    }

    /// Returns the value of a register.
    #[must_use]
    #[inline(always)]
    pub const fn get(&self, reg: Reg) -> u32 {
        self.x[reg.index()]
    }

    /// Sets a register; x0 stays zero.
    #[inline(always)]
    pub const fn set(&mut self, reg: Reg, value: u32) {
        self.x[reg.index()] = value;
        self.x[0] = 0;
    }

    /// Clears the reservation. Code that lets other harts run between two instructions of this one must call it.
    pub const fn clear_reservation(&mut self) {
        self.reserved_address = UNRESERVED;
    }

    /// Reserves the word at `address`, whose value is `value`.
    pub(crate) const fn reserve(&mut self, address: u32, value: u32) {
        (self.reserved_address, self.reserved_value) = (address, value);
    }

    /// The reserved value of the word at `address`, if that word is reserved.
    pub(crate) fn reservation(&self, address: u32) -> Option<u32> {
        (self.reserved_address == address).then_some(self.reserved_value)
    }

    /// Returns the value of the `cycle` counter.
    #[must_use]
    pub const fn cycle(&self) -> u64 {
        self.retired.wrapping_add(self.cycle_offset)
    }

    #[inline(always)]
    pub(crate) const fn retire(&mut self) {
        self.retired = self.retired.wrapping_add(1);
    }

    /// Reads a register as seen by the instruction in progress, which is not counted itself.
    #[must_use]
    pub const fn read_csr(&self, csr: Csr) -> u32 {
        match csr {
            Csr::Cycle(half) => half.of(self.cycle()),
            Csr::Time(half) => half.of(self.retired),
            Csr::Instret(half) => half.of(self.retired.wrapping_add(self.instret_offset)),
            Csr::HartId => self.id,
            Csr::VectorLength => self.vector.vl,
            Csr::VectorType => self.vector.vtype,
            Csr::VectorBytes => VLEN_BYTES,
            Csr::VectorRounding => self.vector.vxrm,
            Csr::VectorSaturated => self.vector.vxsat,
        }
    }

    /// Writes a register from the instruction in progress: the next one reads `value` (privileged ISA, §3.1.11).
    /// [`Hart::retired`] and `time` are not affected. Writes to read-only registers are ignored; the decoder rejects
    /// them before.
    pub const fn write_csr(&mut self, csr: Csr, value: u32) {
        let after = self.retired.wrapping_add(1);
        match csr {
            Csr::Cycle(half) => {
                self.cycle_offset = half.replace(after.wrapping_add(self.cycle_offset), value).wrapping_sub(after);
            }
            Csr::Instret(half) => {
                self.instret_offset = half.replace(after.wrapping_add(self.instret_offset), value).wrapping_sub(after);
            }
            Csr::VectorRounding => {
                self.use_vectors();
                self.vector.vxrm = value & 3;
            }
            Csr::VectorSaturated => {
                self.use_vectors();
                self.vector.vxsat = value & 1;
            }
            Csr::Time(_) | Csr::HartId | Csr::VectorLength | Csr::VectorType | Csr::VectorBytes => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Hart;
    use crate::csr::{Csr, Half};
    use crate::inst::Reg;

    #[test]
    fn a_task_inherits_nothing_but_the_count() {
        let mut hart = Hart::new(9);
        hart.x = [7; 32];
        hart.reserve(4, 5);
        hart.retire();
        hart.write_csr(Csr::Cycle(Half::High), 5);
        hart.begin(0x1d00_0000, 0x1000_1000, 0x1000_0ff0);
        let mut expected = [0; 32];
        (expected[1], expected[2], expected[10]) = (0xffff_fffc, 0x1000_1000, 0x1000_0ff0);
        assert_eq!(hart.x, expected);
        assert_eq!((hart.pc, hart.id, hart.reserved_address), (0x1d00_0000, 9, super::UNRESERVED));
        assert_eq!((hart.retired(), hart.cycle()), (1, 1));
    }

    #[test]
    fn register_zero_cannot_be_set() {
        let mut hart = Hart::new(0);
        hart.set(Reg::ZERO, 5);
        assert_eq!(hart.get(Reg::ZERO), 0);
    }

    #[test]
    fn a_written_counter_is_read_by_the_next_instruction() {
        let mut hart = Hart::new(0);
        hart.retire();
        hart.write_csr(Csr::Instret(Half::Low), 100);
        hart.retire();
        assert_eq!(hart.read_csr(Csr::Instret(Half::Low)), 100);
        assert_eq!(hart.read_csr(Csr::Cycle(Half::Low)), 2);
        hart.write_csr(Csr::Instret(Half::High), 3);
        hart.retire();
        assert_eq!((hart.read_csr(Csr::Instret(Half::Low)), hart.read_csr(Csr::Instret(Half::High))), (101, 3));
        assert_eq!(hart.retired(), 3);
    }
}
