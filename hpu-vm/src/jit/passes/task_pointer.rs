//! The load of the pointer to the task registers. A task's descriptor is above its stack, at a known distance from the
//! arguments that a0 points to, so that the pointer need not be loaded. Most handlers load it first, and everything else
//! depends on it.

use spin_abi::map::{HANDLER_ARGS, TASK_BLOCK};

use crate::analysis::cfg::Cfg;
use crate::inst::{Format, Inst, Op, Reg};

/// Distance from a task's arguments to its registers.
pub(crate) const DISTANCE: i32 = HANDLER_ARGS as i32 - TASK_BLOCK as i32;

/// Index of the instruction of block 0 that loads the pointer as it was when the task began.
pub(super) fn find(cfg: &Cfg) -> Option<usize> {
    // The instruction before the handler may lead to it.
    if !cfg.begins_task() || !cfg.predecessors[0].is_empty() {
        return None;
    }
    // Other loads may be from devices, which may write to the arguments.
    let keeps = |inst: &Inst| match inst.op.format() {
        format if format.computes() => inst.rd != Reg::A0,
        Format::Load => inst.rs1 == Reg::A0 && inst.rd != Reg::A0,
        _ => false,
    };
    let loads = |inst: &Inst| inst.op == Op::Lw && inst.rs1 == Reg::A0 && inst.imm == 0;
    let body = &cfg.blocks.first()?.body;
    let index = body.iter().position(|(_, decoded)| loads(&decoded.inst))?;
    body[..index].iter().all(|(_, before)| keeps(&before.inst)).then_some(index)
}
