//! State of the emission, and what all instructions need: operands, results, ways out.

use spin_abi::fault::Cause;

use super::frame::{Home, Homes, ZERO};
use super::stub::{BackEdge, Cursor, Exits, Stub};
use crate::analysis::cfg::Cfg;
use crate::analysis::dataflow::{Dataflow, RegState};
use crate::bpf::assembler::Assembler;
use crate::bpf::flow::{Done, Flow};
use crate::bpf::insn::{Alu, Label, Operand, Register, Size};
use crate::bpf::layout::{Layout, Reason};
use crate::bpf::options::Options;
use crate::code::Code;
use crate::inst::{Inst, Reg};

/// What the program is emitted from.
#[derive(Clone, Copy)]
pub(in crate::bpf) struct Input<'i> {
    pub(in crate::bpf) code: &'i Code,
    pub(in crate::bpf) cfg: &'i Cfg,
    pub(in crate::bpf) facts: &'i Dataflow,
    pub(in crate::bpf) flow: &'i Flow,
    pub(in crate::bpf) layout: &'i Layout,
    pub(in crate::bpf) options: Options,
}

/// The first scratch register.
pub(super) const R0: Register = Register::R0;
/// The second scratch register.
pub(super) const R1: Register = Register::R1;
/// End of the frame.
pub(super) const END: Register = Register::R9;
/// End of the program's stack.
pub(super) const STACK: Register = Register::FRAME;

/// The emission of a program.
pub(super) struct Emitter<'i> {
    pub(super) input: Input<'i>,
    pub(super) asm: Assembler,
    pub(super) homes: Homes,
    /// By block, the label of its first instruction.
    pub(super) blocks: Vec<Label>,
    pub(super) at: Cursor,
    /// Code behind the blocks.
    pub(super) stubs: Vec<Stub>,
    /// Edges that close loops.
    pub(super) back_edges: Vec<BackEdge>,
    pub(super) exits: Exits,
}

impl<'i> Emitter<'i> {
    pub(super) fn new(input: Input<'i>) -> Self {
        let mut asm = Assembler::default();
        let blocks = input.cfg.blocks.iter().map(|_| asm.label()).collect();
        let exits = Exits::new(&mut asm);
        let homes = Homes::new(input.cfg, &input.flow.reached);
        Self { input, asm, homes, blocks, at: Cursor::default(), stubs: Vec::new(), back_edges: Vec::new(), exits }
    }

    /// What is known before the instruction in progress.
    pub(super) fn known(&self) -> &'i RegState {
        self.input.facts.before(self.at.block, self.at.index)
    }

    /// A register with the value of a guest register: its own, or `scratch`.
    pub(super) fn get(&mut self, reg: Reg, scratch: Register) -> Register {
        if self.known().constant(reg).is_none()
            && let Some(Home::Register(home)) = self.homes.of(reg)
        {
            return home;
        }
        self.get_into(scratch, reg);
        scratch
    }

    /// Copies the value of a guest register.
    pub(super) fn get_into(&mut self, to: Register, reg: Reg) {
        if let Some(value) = self.known().constant(reg) {
            return self.constant(to, value);
        }
        match self.homes.of(reg) {
            Some(Home::Register(home)) if home == to => {}
            Some(Home::Register(home)) => self.asm.mov32(to, home),
            Some(Home::Stack(offset)) => self.asm.load(Size::Double, to, STACK, offset),
            None => self.constant(to, 0),
        }
    }

    /// The value of a guest register as an operand: a constant, or a register that may be `scratch`.
    pub(super) fn operand(&mut self, reg: Reg, scratch: Register) -> Operand {
        match self.known().constant(reg) {
            Some(value) => value.into(),
            None => self.get(reg, scratch).into(),
        }
    }

    /// Sets a register to a constant.
    pub(super) fn constant(&mut self, to: Register, value: u32) {
        if self.input.options.opaque {
            self.asm.load(Size::Double, to, STACK, ZERO);
            self.asm.alu32(Alu::Xor, to, value);
        } else {
            self.asm.mov32(to, value);
        }
    }

    /// The register in which the result for `rd` is best computed, from which [`Self::set`] takes it. It differs from
    /// the homes of `operands`.
    pub(super) fn result(&self, rd: Reg, operands: &[Reg]) -> Register {
        match self.homes.of(rd) {
            Some(Home::Register(home)) if !operands.contains(&rd) => home,
            _ => R0,
        }
    }

    /// Sets a guest register.
    pub(super) fn set(&mut self, rd: Reg, value: Register) {
        match self.homes.of(rd) {
            Some(Home::Register(home)) if home != value => self.asm.mov32(home, value),
            Some(Home::Stack(offset)) => self.asm.store(Size::Double, STACK, offset, value),
            _ => {}
        }
    }

    /// Sets a guest register to a constant.
    pub(super) fn set_constant(&mut self, rd: Reg, value: u32) {
        match self.homes.of(rd) {
            Some(Home::Register(home)) => self.constant(home, value),
            Some(Home::Stack(offset)) => {
                self.constant(R0, value);
                self.asm.store(Size::Double, STACK, offset, R0);
            }
            None => {}
        }
    }

    /// The value of a guest register to store: a constant, or a register other than R1.
    pub(super) fn stored(&mut self, reg: Reg) -> Operand {
        self.operand(reg, R0)
    }

    /// The guest address of an access.
    pub(super) fn address_into(&mut self, to: Register, inst: &Inst) {
        self.get_into(to, inst.rs1);
        if inst.imm != 0 {
            self.asm.alu32(Alu::Add, to, inst.imm);
        }
    }

    /// Code that ends the handler with a fault at a constant address.
    pub(super) fn fault(&mut self, cause: Cause, address: u32) -> Label {
        let label = self.asm.label();
        self.stubs.push(Stub::Fault { label, pc: self.at.pc, cause, address });
        label
    }

    /// Code that leaves the handler to user space.
    pub(super) fn leave(&mut self, reason: Reason) -> Label {
        let (label, written) = (self.asm.label(), self.written());
        self.stubs.push(Stub::Leave { label, pc: self.at.pc, reason, written });
        label
    }

    /// What the handler may have done before the instruction in progress.
    pub(super) fn done(&self) -> Done {
        let Input { cfg, facts, flow, .. } = self.input;
        flow.done_before(cfg, facts, self.at.block, self.at.index)
    }

    /// Whether the handler may have written memory that others see.
    pub(super) fn written(&self) -> bool {
        self.done().written
    }
}
