//! How blocks end.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, Value};
use cranelift_frontend::Switch;
use spin_abi::map::RETURN_ADDRESS;

use super::Emitter;
use crate::decode::Decoded;
use crate::inst::{Op, Reg};
use crate::jit::facts::{self, Known, Regs};
use crate::jit::plan::{Block, BlockId, End, TableId, Target};

impl Emitter<'_> {
    /// The last instruction's part that is control, and where it leads.
    pub(super) fn end(&mut self, id: BlockId) {
        let block = &self.plan.blocks[id];
        let last = block.body.last().map(|(_, decoded)| *decoded);
        match &block.end {
            End::Fetch(pc) => self.fetch(*pc),
            End::Goto(target) => {
                if let Some(decoded) = last.filter(|decoded| matches!(decoded.inst.op, Op::Jal | Op::Jalr)) {
                    self.link(&decoded);
                    self.known.step(self.pc, &decoded.inst, decoded.size);
                }
                if let Some(send) = self.last_send.take() {
                    return self.return_sending(send);
                }
                self.publish_results(block);
                self.count_end();
                self.goto(target);
            }
            End::Branch { taken, not } => {
                let Some(decoded) = last else { unreachable!("a branch is an instruction") };
                if let Some(choice) = self.choices[id] {
                    self.publish_results(block);
                    return self.choose(id, &decoded, choice);
                }
                let condition = self.condition(&decoded);
                self.publish_results(block);
                self.count_end();
                self.branch(condition, taken, not);
            }
            End::Jump { likely, table } => {
                let Some(decoded) = last else { unreachable!("a jump is an instruction") };
                self.computed_jump(&decoded, likely.as_ref(), *table);
            }
        }
    }

    /// Lets the blocks that follow have what this one leaves in registers.
    fn publish_results(&mut self, block: &Block) {
        self.publish_computed(block, |_| true);
    }

    /// The same, where only the instructions of these indices were emitted.
    pub(super) fn publish_computed(&mut self, block: &Block, is_emitted: impl Fn(usize) -> bool) {
        let live = self.live[block.body.len()];
        let mut rest = live;
        for (index, (_, decoded)) in block.body.iter().enumerate().rev() {
            let rd = facts::writes(&decoded.inst);
            let computed = is_emitted(index) && is_cheap(decoded.inst.op) && self.known.constant(rd).is_none();
            if rest.has(rd) && computed {
                self.registers.compute(&mut self.builder, self.state, rd);
            }
            rest = rest.without(rd);
        }
        self.publish(live);
    }

    /// Nothing can be executed at `pc`.
    fn fetch(&mut self, pc: u32) {
        if pc == RETURN_ADDRESS {
            self.publish_count();
            self.save(self.facts.results);
            self.builder.ins().jump(self.returned, &[]);
        } else {
            let (cause, address) = self.code.fetch_fault(pc);
            self.pc = pc;
            self.fault_always(cause, address);
        }
    }

    fn link(&mut self, decoded: &Decoded) {
        let next = self.constant(self.pc.wrapping_add(u32::from(decoded.size)));
        self.set(decoded.inst.rd, next);
    }

    pub(super) fn goto(&mut self, target: &Target) {
        match target.block {
            Some(id) if self.is_apart(id) => self.hand_over(id),
            Some(id) => {
                let block = self.blocks[id];
                self.builder.ins().jump(block, &[]);
            }
            None => self.leave_plan(target.pc),
        }
    }

    /// Goes on in the interpreter.
    fn leave_plan(&mut self, pc: u32) {
        self.interpret(pc, Regs::ALL);
    }

    pub(super) fn condition(&mut self, decoded: &Decoded) -> Value {
        let (a, b) = (self.get(decoded.inst.rs1), self.get(decoded.inst.rs2));
        let condition = match decoded.inst.op {
            Op::Beq => IntCC::Equal,
            Op::Bne => IntCC::NotEqual,
            Op::Blt => IntCC::SignedLessThan,
            Op::Bge => IntCC::SignedGreaterThanOrEqual,
            Op::Bltu => IntCC::UnsignedLessThan,
            _ => IntCC::UnsignedGreaterThanOrEqual,
        };
        self.builder.ins().icmp(condition, a, b)
    }

    fn branch(&mut self, condition: Value, taken: &Target, not: &Target) {
        let (yes, no) = (self.way(taken), self.way(not));
        self.builder.ins().brif(condition, yes, &[], no, &[]);
        for (block, target) in [(yes, taken), (no, not)] {
            if target.block.is_none() {
                self.aside(block, |emitter| emitter.leave_plan(target.pc));
            }
        }
    }

    /// The block of a target; a new one when it is not planned.
    fn way(&mut self, target: &Target) -> ir::Block {
        match target.block {
            Some(id) => self.blocks[id],
            None => self.builder.create_block(),
        }
    }

    /// Fills a cold block that nothing returns from.
    fn aside(&mut self, block: ir::Block, fill: impl FnOnce(&mut Self)) {
        self.builder.set_cold_block(block);
        self.fill(block, fill);
    }

    /// Fills a block, after which those before go on with the registers as they are.
    pub(super) fn fill(&mut self, block: ir::Block, fill: impl FnOnce(&mut Self)) {
        self.builder.switch_to_block(block);
        let cached = self.registers.clone();
        fill(self);
        self.registers = cached;
    }

    /// Leaves a return address that is not what its frame was called with to the interpreter: so registers need not be kept for
    /// returns to anywhere.
    pub(super) fn expect_return_address(&mut self, freeing: &Decoded, back: u32) {
        let address = self.get(Reg::RA);
        let other = self.compare(IntCC::NotEqual, address, back);
        self.index += 1;
        let next = self.pc.wrapping_add(u32::from(freeing.size));
        self.unlikely(other, |emitter| emitter.interpret(next, Regs::ALL));
        self.index -= 1;
        self.known.expect(Reg::RA, back);
    }

    fn computed_jump(&mut self, decoded: &Decoded, likely: Option<&Target>, table: Option<TableId>) {
        let inst = &decoded.inst;
        let base = self.get(inst.rs1);
        let imm = self.constant(inst.imm.cast_unsigned());
        let sum = self.builder.ins().iadd(base, imm);
        let even = self.constant(!1);
        let address = self.builder.ins().band(sum, even);
        if inst.rd != Reg::ZERO {
            self.link(decoded);
        }
        self.count_end();
        self.publish(Regs::ALL);
        self.known.forget(inst.rd);
        if let Some(Target { pc, block: Some(id) }) = likely {
            let there = self.blocks[*id];
            let elsewhere = self.builder.create_block();
            let other = self.compare(IntCC::NotEqual, address, *pc);
            self.builder.ins().brif(other, elsewhere, &[], there, &[]);
            self.builder.set_cold_block(elsewhere);
            self.builder.switch_to_block(elsewhere);
        }
        match table {
            // Registers get their places for the table's targets in one block for all jumps.
            Some(table) => {
                let dispatch = self.tables[table];
                self.builder.ins().jump(dispatch, &[address.into()]);
            }
            None => self.interpret_at(address, Regs::ALL),
        }
    }

    /// Sends computed jumps to the blocks of their tables.
    pub(super) fn dispatch(&mut self, table: TableId) {
        let (dispatch, plan) = (self.tables[table], self.plan);
        self.builder.switch_to_block(dispatch);
        self.registers.begin_block();
        self.known = Known::default();
        // It is nobody's instruction; a task that is ended here is ended somewhere in its handler.
        self.pc = plan.blocks[0].start;
        self.index = 0;
        self.locate(false);
        let address = self.builder.block_params(dispatch)[0];
        let mut switch = Switch::new();
        for target in &plan.tables[table] {
            if let Some(id) = target.block {
                switch.set_entry(u128::from(target.pc), self.blocks[id]);
            }
        }
        let nowhere = self.builder.create_block();
        let returns = self.compare(IntCC::Equal, address, RETURN_ADDRESS);
        let (done, search) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(returns, done, &[], search, &[]);
        self.fill(done, |emitter| emitter.fetch(RETURN_ADDRESS));
        self.builder.switch_to_block(search);
        switch.emit(&mut self.builder, address, nowhere);
        self.aside(nowhere, |emitter| emitter.interpret_at(address, Regs::ALL));
    }
}

/// Whether Cranelift would rather compute it again than keep it.
const fn is_cheap(op: Op) -> bool {
    matches!(op, Op::Addi | Op::Andi | Op::Ori | Op::Xori | Op::Add | Op::Sub | Op::And | Op::Or | Op::Xor)
}
