//! Ends of blocks.

use spin_abi::fault::Cause;
use spin_abi::map::RETURN_ADDRESS;

use super::emitter::{Emitter, Input, R0, R1, STACK};
use super::frame::{BUDGET, Home, SCRATCH, ZERO};
use super::stub::BackEdge;
use crate::analysis::cfg::{BlockId, End, TableId, Target};
use crate::bpf::insn::{Alu, Condition, Insn, Label, Size};
use crate::bpf::layout::Reason;
use crate::inst::{Inst, Op};

/// Number of targets up to which they are compared one after the other.
const FEW: usize = 3;

/// Emits the end of a block, behind which the block `next` is emitted.
pub(super) fn end(emitter: &mut Emitter<'_>, id: BlockId, next: Option<BlockId>) {
    let block = &emitter.input.cfg.blocks[id];
    emitter.at.index = block.body.len().saturating_sub(1);
    match (&block.end, block.body.last()) {
        (End::Fetch(pc), _) => fetch(emitter, *pc),
        (End::Goto(target), _) => goto(emitter, id, target, next),
        (End::Branch { taken, not }, Some((_, decoded))) => branch(emitter, id, &decoded.inst, [taken, not], next),
        (End::Jump { likely, table }, Some((pc, decoded))) => {
            emitter.address_into(R0, &decoded.inst);
            emitter.asm.alu32(Alu::And, R0, !1_u32);
            if emitter.homes.of(decoded.inst.rd).is_some() {
                link(emitter, &decoded.inst, decoded.next(*pc));
            }
            computed_jump(emitter, id, likely.as_ref(), *table);
        }
        (End::Branch { .. } | End::Jump { .. }, None) => unreachable!("branches and jumps are instructions"),
    }
}

/// Sets the link register of a computed jump, whose target is in R0.
fn link(emitter: &mut Emitter<'_>, inst: &Inst, next: u32) {
    emitter.asm.store(Size::Double, STACK, SCRATCH, R0);
    emitter.set_constant(inst.rd, next);
    emitter.asm.load(Size::Double, R0, STACK, SCRATCH);
}

/// Nothing can be executed at `pc`.
fn fetch(emitter: &mut Emitter<'_>, pc: u32) {
    emitter.at.pc = pc;
    let to = if pc == RETURN_ADDRESS {
        emitter.exits.returned
    } else {
        let (cause, address) = emitter.input.code.fetch_fault(pc);
        emitter.fault(cause, address)
    };
    emitter.asm.jump(to);
}

/// An `ebreak`.
pub(super) fn breakpoint(emitter: &mut Emitter<'_>) {
    let to = emitter.fault(Cause::Breakpoint, 0);
    emitter.asm.jump(to);
}

fn goto(emitter: &mut Emitter<'_>, from: BlockId, target: &Target, next: Option<BlockId>) {
    if target.block.is_some() && target.block == next && !is_back_edge(emitter, from, target) {
        return;
    }
    let to = way(emitter, from, target);
    emitter.asm.jump(to);
}

/// Where a jump to a target leads. The edges that close loops use up the budget.
fn way(emitter: &mut Emitter<'_>, from: BlockId, target: &Target) -> Label {
    match target.block {
        Some(to) if is_back_edge(emitter, from, target) => {
            let label = emitter.asm.label();
            emitter.back_edges.push(BackEdge { label, pc: emitter.at.pc, to });
            label
        }
        Some(to) => emitter.blocks[to],
        None => emitter.leave(Reason::Jump),
    }
}

fn is_back_edge(emitter: &Emitter<'_>, from: BlockId, target: &Target) -> bool {
    target.block.is_some_and(|to| emitter.input.flow.is_back_edge(from, to))
}

fn branch(emitter: &mut Emitter<'_>, id: BlockId, inst: &Inst, targets: [&Target; 2], next: Option<BlockId>) {
    let condition = match inst.op {
        Op::Beq => Condition::Equal,
        Op::Bne => Condition::NotEqual,
        Op::Blt => Condition::Less,
        Op::Bge => Condition::GreaterOrEqual,
        Op::Bltu => Condition::Below,
        _ => Condition::AboveOrEqual,
    };
    let [taken, not] = targets;
    let a = emitter.get(inst.rs1, R0);
    let b = emitter.operand(inst.rs2, R1);
    let to = way(emitter, id, taken);
    emitter.asm.branch32(condition, a, b, to);
    goto(emitter, id, not, next);
}

/// A jump to the address in R0.
fn computed_jump(emitter: &mut Emitter<'_>, id: BlockId, likely: Option<&Target>, table: Option<TableId>) {
    let mut targets: Vec<Target> = table.map_or(Vec::new(), |table| emitter.input.cfg.tables[table].clone());
    targets.sort_unstable_by_key(|target| target.pc);
    if let Some(target) = likely {
        let to = way(emitter, id, target);
        emitter.asm.branch32(Condition::Equal, R0, target.pc, to);
    }
    search(emitter, id, &targets);
}

/// A binary search for the address in R0.
fn search(emitter: &mut Emitter<'_>, id: BlockId, targets: &[Target]) {
    if targets.len() > FEW {
        let (lower, upper) = targets.split_at(targets.len() / 2);
        let above = emitter.asm.label();
        emitter.asm.branch32(Condition::AboveOrEqual, R0, upper[0].pc, above);
        search(emitter, id, lower);
        emitter.asm.bind(above);
        return search(emitter, id, upper);
    }
    for target in targets {
        let to = way(emitter, id, target);
        emitter.asm.branch32(Condition::Equal, R0, target.pc, to);
    }
    let elsewhere = emitter.leave(Reason::Jump);
    emitter.asm.jump(elsewhere);
}

/// Emits the edges that close loops: each iteration takes one from the budget.
pub(super) fn back_edges(emitter: &mut Emitter<'_>) {
    for BackEdge { label, pc, to } in std::mem::take(&mut emitter.back_edges) {
        emitter.at.pc = pc;
        let over = emitter.fault(Cause::Watchdog, 0);
        emitter.asm.bind(label);
        emitter.asm.load(Size::Double, R0, STACK, BUDGET);
        emitter.asm.branch64(Condition::Equal, R0, 0, over);
        emitter.asm.alu64(Alu::Sub, R0, 1);
        emitter.asm.store(Size::Double, STACK, BUDGET, R0);
        if emitter.input.options.forgetful {
            forget(emitter, to);
        }
        emitter.asm.push(Insn::MayGoto { to: over });
        emitter.asm.jump(emitter.blocks[to]);
    }
}

/// Has the verifier forget what it knows of the registers that are read where the block `to` begins: an exclusive or with
/// a zero that it does not know.
fn forget(emitter: &mut Emitter<'_>, to: BlockId) {
    let Input { facts, .. } = emitter.input;
    let unknown = facts.before(to, 0).unknown(facts.live(to, 0));
    emitter.asm.load(Size::Double, R1, STACK, ZERO);
    for reg in unknown.iter() {
        match emitter.homes.of(reg) {
            Some(Home::Register(home)) => emitter.asm.alu32(Alu::Xor, home, R1),
            Some(Home::Stack(offset)) => {
                emitter.asm.load(Size::Double, R0, STACK, offset);
                emitter.asm.alu32(Alu::Xor, R0, R1);
                emitter.asm.store(Size::Double, STACK, offset, R0);
            }
            None => {}
        }
    }
}
