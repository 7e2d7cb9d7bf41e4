//! Ends of blocks.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, Value};
use cranelift_frontend::Switch;
use spin_abi::map::RETURN_ADDRESS;

use super::arithmetic;
use super::commands::return_sending;
use super::counters::count_end;
use super::emitter::{Cursor, Emitter};
use crate::analysis::cfg::{Block, BlockId, End, TableId, Target};
use crate::analysis::regs::{Regs, writes};
use crate::decode::Decoded;
use crate::inst::{Inst, Op, Reg};
use crate::jit::passes::Choice;

/// Emits what the last instruction does to control, and the ways to the next blocks.
pub(super) fn end(emitter: &mut Emitter<'_>, id: BlockId) {
    let cfg = emitter.input.cfg;
    let block = &cfg.blocks[id];
    match (&block.end, block.body.last()) {
        (End::Fetch(pc), _) => fetch(emitter, *pc),
        (End::Goto(target), last) => {
            if let Some((pc, decoded)) = last.filter(|(_, decoded)| matches!(decoded.inst.op, Op::Jal | Op::Jalr)) {
                link(emitter, &decoded.inst, decoded.next(*pc));
            }
            if let Some(send) = emitter.outcome.last_send.take() {
                return return_sending(emitter, send);
            }
            publish(emitter, block);
            count_end(emitter);
            goto(emitter, target);
        }
        (End::Branch { taken, not }, Some((_, decoded))) => {
            let condition = condition(emitter, &decoded.inst);
            publish(emitter, block);
            if let Some(choice) = emitter.input.plan.choices[id] {
                return choose(emitter, condition, choice);
            }
            count_end(emitter);
            branch(emitter, condition, taken, not);
        }
        (End::Jump { likely, table }, Some((pc, decoded))) => {
            let address = jump_address(emitter, &decoded.inst);
            link(emitter, &decoded.inst, decoded.next(*pc));
            computed_jump(emitter, address, likely.as_ref(), *table);
        }
        (End::Branch { .. } | End::Jump { .. }, None) => unreachable!("branches and jumps are instructions"),
    }
}

/// Makes the values that the block leaves in registers available in other blocks.
fn publish(emitter: &mut Emitter<'_>, block: &Block) {
    let live = emitter.live();
    let mut rest = live;
    for (_, decoded) in block.body.iter().rev() {
        let rd = writes(&decoded.inst);
        if rest.has(rd) && is_cheap(decoded.inst.op) && emitter.known().constant(rd).is_none() {
            emitter.registers.compute(&mut emitter.builder, rd);
        }
        rest = rest.without(rd);
    }
    emitter.publish(live);
}

/// Whether Cranelift would recompute the result rather than keep it.
const fn is_cheap(op: Op) -> bool {
    matches!(op, Op::Addi | Op::Andi | Op::Ori | Op::Xori | Op::Add | Op::Sub | Op::And | Op::Or | Op::Xor)
}

/// Nothing can be executed at `pc`.
fn fetch(emitter: &mut Emitter<'_>, pc: u32) {
    if pc == RETURN_ADDRESS {
        emitter.publish_count();
        let results = emitter.input.facts.results;
        emitter.save(results);
        let returned = emitter.ways.returned;
        emitter.builder.ins().jump(returned, &[]);
    } else {
        let (cause, address) = emitter.input.code.fetch_fault(pc);
        emitter.at.pc = pc;
        emitter.fault_always(cause, address);
    }
}

fn link(emitter: &mut Emitter<'_>, inst: &Inst, next: u32) {
    if inst.rd != Reg::ZERO {
        let next = emitter.constant(next);
        emitter.set(inst.rd, next);
    }
}

fn goto(emitter: &mut Emitter<'_>, target: &Target) {
    match compiled(emitter, target) {
        Some(id) => {
            let block = emitter.blocks.of[id];
            emitter.builder.ins().jump(block, &[]);
        }
        None => leave(emitter, target),
    }
}

/// The block of a target, if it is compiled with this region.
fn compiled(emitter: &Emitter<'_>, target: &Target) -> Option<BlockId> {
    target.block.filter(|&id| !emitter.input.cfg.blocks[id].cold)
}

/// Continues outside of the region.
fn leave(emitter: &mut Emitter<'_>, target: &Target) {
    let live = target.block.map_or(Regs::ALL, |id| emitter.input.facts.live(id, 0));
    emitter.jump_out(target.pc, live);
}

fn condition(emitter: &mut Emitter<'_>, inst: &Inst) -> Value {
    let (a, b) = (emitter.get(inst.rs1), emitter.get(inst.rs2));
    let condition = match inst.op {
        Op::Beq => IntCC::Equal,
        Op::Bne => IntCC::NotEqual,
        Op::Blt => IntCC::SignedLessThan,
        Op::Bge => IntCC::SignedGreaterThanOrEqual,
        Op::Bltu => IntCC::UnsignedLessThan,
        _ => IntCC::UnsignedGreaterThanOrEqual,
    };
    emitter.builder.ins().icmp(condition, a, b)
}

fn branch(emitter: &mut Emitter<'_>, condition: Value, taken: &Target, not: &Target) {
    let [yes, no] = [taken, not].map(|target| match compiled(emitter, target) {
        Some(id) => emitter.blocks.of[id],
        None => emitter.builder.create_block(),
    });
    emitter.builder.ins().brif(condition, yes, &[], no, &[]);
    for (block, target) in [(yes, taken), (no, not)] {
        if compiled(emitter, target).is_none() {
            fill_cold(emitter, block, |emitter| leave(emitter, target));
        }
    }
}

/// Emits a cold block that ends the function.
fn fill_cold(emitter: &mut Emitter<'_>, block: ir::Block, fill: impl FnOnce(&mut Emitter<'_>)) {
    emitter.builder.set_cold_block(block);
    emitter.fill(block, fill);
}

/// Ends a block by a conditional move instead of a branch.
fn choose(emitter: &mut Emitter<'_>, condition: Value, choice: Choice) {
    let cfg = emitter.input.cfg;
    let (pc, Decoded { inst, .. }) = cfg.blocks[choice.skipped].body[0];
    let rd = writes(&inst);
    let (new, old) = (arithmetic::result(emitter, pc, &inst), emitter.get(rd));
    let (taken, not) = if choice.if_taken { (new, old) } else { (old, new) };
    let value = emitter.builder.ins().select(condition, taken, not);
    emitter.set(rd, value);
    emitter.ways.shared_after[choice.skipped] = emitter.ways.shared;
    let live = emitter.live();
    emitter.publish(live);
    goto(emitter, &choice.then);
}

/// Where a computed jump leads.
fn jump_address(emitter: &mut Emitter<'_>, inst: &Inst) -> Value {
    // The jump may overwrite its base.
    let base = match inst.rs1 {
        Reg::ZERO => emitter.constant(0),
        reg => emitter.registers.get(&mut emitter.builder, reg),
    };
    let imm = emitter.constant(inst.imm.cast_unsigned());
    let sum = emitter.builder.ins().iadd(base, imm);
    let even = emitter.constant(!1);
    emitter.builder.ins().band(sum, even)
}

fn computed_jump(emitter: &mut Emitter<'_>, address: Value, likely: Option<&Target>, table: Option<TableId>) {
    count_end(emitter);
    emitter.publish(Regs::ALL);
    if let Some(target) = likely
        && let Some(id) = compiled(emitter, target)
    {
        let there = emitter.blocks.of[id];
        let elsewhere = emitter.builder.create_block();
        let other = emitter.compare(IntCC::NotEqual, address, target.pc);
        emitter.builder.ins().brif(other, elsewhere, &[], there, &[]);
        emitter.builder.set_cold_block(elsewhere);
        emitter.builder.switch_to_block(elsewhere);
    }
    match table {
        // Registers meet in one block for all jumps.
        Some(table) => {
            let dispatch = emitter.blocks.tables[table];
            emitter.builder.ins().jump(dispatch, &[address.into()]);
        }
        None => emitter.jump_out_to(address),
    }
}

/// Emits the dispatch of computed jumps to the blocks of their table.
pub(super) fn dispatch(emitter: &mut Emitter<'_>, table: TableId) {
    let cfg = emitter.input.cfg;
    let dispatch = emitter.blocks.tables[table];
    emitter.builder.switch_to_block(dispatch);
    emitter.begin_block();
    // It belongs to no instruction; a task that is ended here is ended at the start of its region.
    emitter.at = Cursor { block: None, index: 0, pc: cfg.blocks[cfg.starts()[0]].start, uncounted: 0 };
    emitter.locate(false);
    let address = emitter.builder.block_params(dispatch)[0];
    let mut switch = Switch::new();
    for target in &cfg.tables[table] {
        if let Some(id) = compiled(emitter, target) {
            switch.set_entry(u128::from(target.pc), emitter.blocks.of[id]);
        }
    }
    let nowhere = emitter.builder.create_block();
    switch.emit(&mut emitter.builder, address, nowhere);
    fill_cold(emitter, nowhere, |emitter| emitter.jump_out_to(address));
}
