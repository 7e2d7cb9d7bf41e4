//! A program under construction, its labels, and its encoding.

use super::insn::{Alu, Bits, Condition, Encoded, Insn, Label, Operand, Reach, Register, Size};

/// Instructions with labels.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    insns: Vec<Insn>,
    /// By label, the index of the instruction behind it.
    places: Vec<usize>,
}

/// A label that is not bound yet.
const UNBOUND: usize = usize::MAX;

impl Assembler {
    /// Makes a label to be [bound](Self::bind).
    pub(super) fn label(&mut self) -> Label {
        self.places.push(UNBOUND);
        Label(self.places.len() - 1)
    }

    /// Binds a label to the next instruction.
    pub(super) fn bind(&mut self, label: Label) {
        debug_assert_eq!(self.places[label.0], UNBOUND, "a label has one place");
        self.places[label.0] = self.insns.len();
    }

    pub(super) fn push(&mut self, insn: Insn) {
        self.insns.push(insn);
    }

    pub(super) fn alu32(&mut self, op: Alu, to: Register, from: impl Into<Operand>) {
        self.push(Insn::Alu { bits: Bits::B32, op, to, from: from.into() });
    }

    pub(super) fn alu64(&mut self, op: Alu, to: Register, from: impl Into<Operand>) {
        self.push(Insn::Alu { bits: Bits::B64, op, to, from: from.into() });
    }

    pub(super) fn mov32(&mut self, to: Register, from: impl Into<Operand>) {
        self.alu32(Alu::Mov, to, from);
    }

    pub(super) fn mov64(&mut self, to: Register, from: impl Into<Operand>) {
        self.alu64(Alu::Mov, to, from);
    }

    pub(super) fn load(&mut self, size: Size, to: Register, base: Register, offset: i16) {
        self.push(Insn::Load { size, to, base, offset });
    }

    pub(super) fn store(&mut self, size: Size, base: Register, offset: i16, from: impl Into<Operand>) {
        self.push(Insn::Store { size, base, offset, from: from.into() });
    }

    pub(super) fn branch32(&mut self, condition: Condition, a: Register, b: impl Into<Operand>, to: Label) {
        self.push(Insn::Branch { bits: Bits::B32, condition, a, b: b.into(), to });
    }

    pub(super) fn branch64(&mut self, condition: Condition, a: Register, b: impl Into<Operand>, to: Label) {
        self.push(Insn::Branch { bits: Bits::B64, condition, a, b: b.into(), to });
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.push(Insn::Jump { to });
    }

    /// The instructions that are reached: the verifier accepts no others.
    pub(super) fn finish(self) -> Insns {
        let reached = self.reached();
        let mut kept = 0;
        // By instruction, the number of those before it that are kept.
        let mut before = Vec::with_capacity(reached.len() + 1);
        for &reached in &reached {
            before.push(kept);
            kept += usize::from(reached);
        }
        before.push(kept);
        let insns = self.insns.into_iter().zip(&reached).filter(|(_, reached)| **reached).map(|(insn, _)| insn);
        // Labels that are not bound are not used.
        let places = self.places.iter().map(|&place| before.get(place).copied().unwrap_or(UNBOUND));
        Insns { insns: insns.collect(), places: places.collect() }
    }

    fn reached(&self) -> Vec<bool> {
        let mut reached = vec![false; self.insns.len()];
        let mut work = vec![0];
        while let Some(mut index) = work.pop() {
            while index < reached.len() && !std::mem::replace(&mut reached[index], true) {
                let insn = &self.insns[index];
                work.extend(insn.target().map(|to| self.places[to.0]));
                if matches!(insn, Insn::Jump { .. } | Insn::Exit) {
                    break;
                }
                index += 1;
            }
        }
        reached
    }
}

impl From<Register> for Operand {
    fn from(register: Register) -> Self {
        Self::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(value: i32) -> Self {
        Self::Immediate(value)
    }
}

/// A constant of 32 bits; in operations on 64 bits it is sign-extended.
impl From<u32> for Operand {
    fn from(value: u32) -> Self {
        Self::Immediate(value.cast_signed())
    }
}

/// Complete instructions of a program.
#[derive(Clone, Debug)]
pub struct Insns {
    insns: Vec<Insn>,
    places: Vec<usize>,
}

impl Insns {
    /// The instruction at an index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Insn> {
        self.insns.get(index)
    }

    /// Index of the instruction at a label.
    #[must_use]
    pub fn place(&self, label: Label) -> usize {
        self.places[label.0]
    }

    /// Number of instructions.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.insns.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.insns.is_empty()
    }

    /// Encodes the program. Conditional jumps reach 32,768 instructions; those that lead farther use a long jump.
    #[must_use]
    pub fn encode(&self) -> Vec<Encoded> {
        let mut far = vec![false; self.insns.len()];
        // A longer jump may move others out of reach.
        let starts = loop {
            let starts = self.starts(&far);
            let mut changed = false;
            for (index, insn) in self.insns.iter().enumerate() {
                let is_near = insn.target().is_none_or(|to| near(distance(&starts, index, self.place(to))).is_some());
                changed |= !is_near && !std::mem::replace(&mut far[index], true);
            }
            if !changed {
                break starts;
            }
        };
        let mut code = Vec::with_capacity(*starts.last().unwrap_or(&0));
        for (index, insn) in self.insns.iter().enumerate() {
            let distance = insn.target().map_or(0, |to| distance(&starts, index, self.place(to)));
            let reach = near(distance).filter(|_| !far[index]).map_or(Reach::Far(distance), Reach::Near);
            insn.encode(reach, &mut code);
        }
        code
    }

    /// Index of the first encoded instruction of each one, and of the end.
    fn starts(&self, far: &[bool]) -> Vec<usize> {
        let mut at = 0;
        let mut starts = Vec::with_capacity(self.insns.len() + 1);
        for (insn, &far) in self.insns.iter().zip(far) {
            starts.push(at);
            at += insn.len(far);
        }
        starts.push(at);
        starts
    }
}

/// Distance of a jump's target from the end of the jump.
fn distance(starts: &[usize], from: usize, to: usize) -> i32 {
    let [to, behind] = [starts[to], starts[from + 1]].map(|place| i32::try_from(place).unwrap_or(i32::MAX));
    to - behind
}

fn near(distance: i32) -> Option<i16> {
    i16::try_from(distance).ok()
}

#[cfg(test)]
mod tests {
    use super::Assembler;
    use crate::bpf::insn::{Alu, Condition, Encoded, Insn, Register};

    /// Index that the encoded jump at `at` leads to; a conditional one may do so by a long jump behind it.
    fn target(code: &[Encoded], at: usize) -> usize {
        let bytes = |at: usize| code[at].bytes();
        let offset = |bytes: [u8; 8]| i32::from(i16::from_ne_bytes([bytes[2], bytes[3]]));
        let is_far = code.len() > at + 2 && bytes(at + 1) == [0x05, 0, 1, 0, 0, 0, 0, 0];
        let at = if is_far { at + 2 } else { at };
        let long = |bytes: [u8; 8]| i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let distance = if bytes(at)[0] == 0x06 { long(bytes(at)) } else { offset(bytes(at)) };
        usize::try_from(i32::try_from(at).expect("short") + 1 + distance).expect("inside")
    }

    #[test]
    fn jumps_lead_to_their_labels_however_far() {
        for between in [0, 10, 32_764, 32_765, 32_766, 32_767, 32_768, 40_000] {
            let mut assembler = Assembler::default();
            let (start, end) = (assembler.label(), assembler.label());
            assembler.bind(start);
            assembler.branch32(Condition::Equal, Register::R1, 5, end);
            for _ in 0..between {
                assembler.alu32(Alu::Add, Register::R0, 1);
            }
            assembler.branch64(Condition::Below, Register::R1, Register::R2, start);
            assembler.jump(start);
            assembler.bind(end);
            assembler.push(Insn::Exit);
            let code = assembler.finish().encode();
            let first = if code[1].bytes()[0] == 0x05 { 3 } else { 1 };
            let second = first + between;
            assert_eq!(target(&code, 0), code.len() - 1, "{between}");
            assert_eq!([second, code.len() - 2].map(|at| target(&code, at)), [0, 0], "{between}");
        }
    }
}
