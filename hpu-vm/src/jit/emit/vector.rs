//! Vector instructions: 128-bit vectors of the host, as many for a group as it has registers.
//!
//! Most kernels work on all elements there can be, or on a number that is known beforehand: that is what is translated, an
//! operation of the host for each register. The hart always has `vl` and `vtype`; where the length is only known
//! there, whether it is the full one decides which way is taken. The other way, and whatever is not worth translating, is the
//! interpreter's for the one instruction, with the registers it uses in the hart meanwhile.

mod arithmetic;
mod lanes;
mod mask;
mod memory;
mod permute;
mod reduce;

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I8X16, I32};
use cranelift_codegen::ir::{InstBuilder, Value};
use cranelift_frontend::{FunctionBuilder, Variable};

use super::{Emitter, TRUSTED, offset};
use crate::inst::{Inst, Reg};
use crate::jit::facts::{Facts, Regs, reads};
use crate::jit::plan::{BlockId, Plan};
use crate::jit::state::{HostCalls, State};
use crate::jit::vectors::{self, Setting, VRegs};
use crate::vector::{Configure, Length, VLEN_BYTES, VReg, VectorInst, Width};

/// Instructions of the intermediate representation that may be spent on the vector instructions of a function: one of
/// those may take a hundred.
const ROOM: usize = 60_000;

/// The vector registers.
#[derive(Default)]
pub(super) struct Vectors {
    /// The registers; `None`: vector instructions are left to the interpreter.
    variables: Option<[Variable; 32]>,
    /// Those that the function may write; others are zero.
    written: VRegs,
    /// At the start of each block.
    settings: Vec<Setting>,
    /// At the current instruction.
    setting: Setting,
    room: usize,
    /// First elements that are at hand as scalars, within a block.
    firsts: [Option<(Width, Value)>; 32],
}

impl Vectors {
    pub(super) fn new(builder: &mut FunctionBuilder<'_>, plan: &Plan, facts: &Facts, in_memory: bool) -> Self {
        if in_memory || !vectors::are_in(plan) {
            return Self::default();
        }
        let instructions = plan.blocks.iter().flat_map(|block| &block.body);
        let vectors = instructions.filter_map(|(_, decoded)| decoded.inst.vector());
        let written = vectors.fold(VRegs::default(), |all, inst| all.or(vectors::vectors(&inst).1));
        Self {
            variables: Some([(); 32].map(|()| builder.declare_var(I8X16))),
            written,
            settings: vectors::settings(plan, facts),
            setting: Setting::default(),
            room: ROOM,
            firsts: [None; 32],
        }
    }

    /// A block begins.
    pub(super) fn begin_block(&mut self, block: BlockId) {
        self.setting = self.settings.get(block).copied().unwrap_or_default();
        self.forget_firsts();
    }

    /// Whether there are vector instructions.
    pub(super) const fn are_used(&self) -> bool {
        self.variables.is_some()
    }

    /// What is known at the current instruction.
    pub(super) const fn setting(&self) -> Setting {
        self.setting
    }

    /// Goes back to where `setting` was known.
    pub(super) const fn go_back(&mut self, setting: Setting) {
        self.setting = setting;
        self.forget_firsts();
    }

    /// Goes on in a block that not all that was emitted before leads to.
    pub(super) const fn forget_firsts(&mut self) {
        self.firsts = [None; 32];
    }
}

/// Registers that an instruction reads and writes.
struct Touched {
    reads: VRegs,
    writes: VRegs,
}

impl Emitter<'_> {
    /// A vector instruction; `false` when it is left to the interpreter, with all that follows.
    pub(super) fn vector(&mut self, inst: &Inst) -> bool {
        self.begins.vectors = true;
        let vector = inst.vector().filter(|_| self.vectors.variables.is_some() && self.vectors.room > 0);
        let Some(vector) = vector else {
            self.interpret(self.pc, self.live[self.index]);
            return false;
        };
        let before = self.builder.func.dfg.num_insts();
        match vector {
            VectorInst::Configure(configure) => self.configure(inst, &configure),
            VectorInst::Memory(access) => self.vector_memory(inst, &access),
            VectorInst::Arithmetic(arithmetic) => self.vector_arithmetic(inst, &arithmetic),
        }
        self.vectors.setting.step(inst, &self.known);
        let spent = self.builder.func.dfg.num_insts().saturating_sub(before);
        self.vectors.room = self.vectors.room.saturating_sub(spent);
        true
    }

    fn configure(&mut self, inst: &Inst, configure: &Configure) {
        let mut after = self.vectors.setting;
        after.step(inst, &self.known);
        let Some(bits) = after.vtype else { return self.call_interpreter(inst) };
        let length = match (after.vl, after.vtype()) {
            (Some(length), _) => self.constant(length),
            (None, vtype) => {
                let wanted = match configure.length {
                    Length::Register(reg) => self.get(reg),
                    _ => self.load_state(I32, offset_of!(State, hart.vector.vl)),
                };
                let most = self.constant(vtype.map_or(0, |vtype| vtype.vlmax()));
                self.builder.ins().umin(wanted, most)
            }
        };
        let bits = self.constant(bits);
        self.store_state(length, offset_of!(State, hart.vector.vl));
        self.store_state(bits, offset_of!(State, hart.vector.vtype));
        self.set(configure.rd, length);
    }

    /// Leaves an instruction to the interpreter, which may touch any register that an encoding like this can name.
    fn call_interpreter(&mut self, inst: &Inst) {
        let (reads, writes) = inst.vector().map(|vector| vectors::vectors(&vector)).unwrap_or_default();
        self.call_interpreter_with(inst, &Touched { reads, writes });
    }

    /// Leaves an instruction that touches these registers to the interpreter.
    fn call_interpreter_with(&mut self, inst: &Inst, touched: &Touched) {
        self.save(reads(inst));
        self.save_vectors(touched.reads);
        let (pc, bits) = (self.constant(self.pc), self.constant(inst.imm.cast_unsigned()));
        self.store_state(pc, offset_of!(State, hart.pc));
        self.publish_count();
        let result = self.call_host(offset_of!(HostCalls, vector), &[bits]);
        let ended = self.builder.ins().icmp_imm_s(IntCC::SignedLessThan, result, 0);
        let (go_on, aside) = (self.builder.create_block(), self.ended.way(&mut self.builder));
        self.builder.ins().brif(ended, aside, &[], go_on, &[]);
        self.join(go_on);
        let rd = vectors::scalars(inst).1;
        if rd != Reg::ZERO {
            self.registers.reload(&mut self.builder, self.state, rd);
        }
        self.load_vectors(touched.writes);
    }

    /// Emits `fast`, and a call of the interpreter for when one of the conditions `slow` holds.
    fn unless(&mut self, slow: &[Value], inst: &Inst, touched: &Touched, fast: impl FnOnce(&mut Self)) {
        let Some((&first, rest)) = slow.split_first() else { return fast(self) };
        let any = rest.iter().fold(first, |any, &condition| self.builder.ins().bor(any, condition));
        let [aside, straight, joined] = [(); 3].map(|()| self.builder.create_block());
        self.vectors.forget_firsts();
        self.publish(Regs::ALL);
        let mut before = self.registers.clone();
        self.builder.set_cold_block(aside);
        self.fork(any, aside, straight);
        self.builder.switch_to_block(aside);
        self.call_interpreter_with(inst, touched);
        self.publish(Regs::ALL);
        if let Some(block) = self.builder.current_block() {
            self.builder.set_cold_block(block);
        }
        self.builder.ins().jump(joined, &[]);
        self.registers = before.clone();
        self.builder.switch_to_block(straight);
        fast(self);
        self.publish(Regs::ALL);
        self.builder.ins().jump(joined, &[]);
        before.forget(vectors::scalars(inst).1);
        self.registers = before;
        self.join(joined);
        self.vectors.forget_firsts();
    }

    /// When the length is not known: whether it is not `most`.
    fn is_short(&mut self, most: u32) -> Option<Value> {
        if self.vectors.setting.vl.is_some() {
            return None;
        }
        let length = self.load_state(I32, offset_of!(State, hart.vector.vl));
        Some(self.compare(IntCC::NotEqual, length, most))
    }

    /// The value of a vector register: of type I8X16, as all vectors are between operations.
    fn vector_register(&mut self, reg: VReg) -> Value {
        match &self.vectors.variables {
            Some(variables) => self.builder.use_var(variables[reg.number() as usize]),
            None => self.zeroes(),
        }
    }

    fn set_vector_register(&mut self, reg: VReg, value: Value) {
        self.vectors.firsts[reg.number() as usize] = None;
        if let Some(variables) = &self.vectors.variables {
            self.builder.def_var(variables[reg.number() as usize], value);
        }
    }

    /// The first element of a vector register, as a scalar of its width.
    fn first_element(&mut self, reg: VReg, width: Width) -> Value {
        match self.vectors.firsts[reg.number() as usize] {
            Some((known, value)) if known == width => value,
            _ => {
                let vector = self.as_elements(reg, width);
                self.builder.ins().extractlane(vector, 0)
            }
        }
    }

    fn set_first_element(&mut self, reg: VReg, width: Width, value: Value) {
        let vector = self.as_elements(reg, width);
        let vector = self.builder.ins().insertlane(vector, value, 0);
        let vector = self.cast(I8X16, vector);
        self.set_vector_register(reg, vector);
        self.vectors.firsts[reg.number() as usize] = Some((width, value));
    }

    /// Register `index` of a group. An encoding that is legal names none beyond v31.
    fn grouped(first: VReg, index: u32) -> VReg {
        VReg::new(first.number() + index)
    }

    /// Registers at a handler's first instruction.
    pub(super) fn zero_vectors(&mut self) {
        if self.vectors.variables.is_some() {
            let zero = self.zeroes();
            (0..32).map(VReg::new).for_each(|reg| self.set_vector_register(reg, zero));
        }
    }

    /// Writes all registers to the hart, for the interpreter to go on with.
    pub(super) fn save_all_vectors(&mut self) {
        self.save_vectors(self.vectors.written);
    }

    /// Takes all registers from the hart.
    pub(super) fn load_all_vectors(&mut self) {
        self.zero_vectors();
        self.load_vectors(self.vectors.written);
    }

    fn save_vectors(&mut self, regs: VRegs) {
        // What is never written is zero in the hart too.
        let regs = VRegs(regs.0 & self.vectors.written.0);
        if regs == VRegs::default() {
            return;
        }
        // First: the clock may end the task in between, and the next one is to see none of them.
        let used = self.builder.ins().iconst(I8, 1);
        self.store_state(used, offset_of!(State, hart.dirty));
        self.store_state(used, offset_of!(State, hart.vector.used));
        for reg in regs.iter() {
            let value = self.vector_register(reg);
            self.store_state(value, place(reg));
        }
    }

    fn load_vectors(&mut self, regs: VRegs) {
        for reg in regs.iter() {
            let value = self.builder.ins().load(I8X16, TRUSTED, self.state, offset(place(reg)));
            self.set_vector_register(reg, value);
        }
    }
}

/// Offset of a vector register in the state.
const fn place(reg: VReg) -> usize {
    offset_of!(State, hart.vector.v) + (VLEN_BYTES * reg.number()) as usize
}
