//! Ways out of a region: faults, side exits to the interpreter or another region, parking, and the return.
//!
//! All ways but the return end in one epilogue, [`FAULT_RETURN`]. Signal handlers send a thread there from anywhere in the
//! body, so it needs nothing but the frame.

use std::mem::offset_of;

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{self, InstBuilder, SourceLoc, Value};
use spin_abi::fault::Cause;

use super::access::{TRUSTED, offset};
use super::emitter::Emitter;
use super::ways::Ways;
use crate::analysis::cfg::{BlockId, End};
use crate::analysis::regs::Regs;
use crate::inst::{Format, Inst};
use crate::jit::convention::RETURNED;
use crate::jit::pc_map::{FAULT_RETURN, HANDLER_RETURN};
use crate::jit::state::{ExitReason, State};

/// How a region is left at a guest address.
#[derive(Clone, Copy)]
enum Way {
    /// The interpreter executes the instruction there.
    Interpret,
    /// Execution continues there, in another region if there is one.
    Jump,
    /// The task waits, and the interpreter continues there.
    Wait,
}

/// Whether an instruction can be repeated unnoticed. Loads from devices cannot, but calls of the host forget the shared
/// exit anyway.
pub(super) const fn is_repeatable(inst: &Inst) -> bool {
    let format = inst.op.format();
    format.computes() || matches!(format, Format::Load | Format::Branch | Format::J | Format::JumpRegister)
}

impl Emitter<'_> {
    /// Faults when `condition` holds.
    pub(super) fn fault_if(&mut self, condition: Value, cause: Cause, address: Value) {
        let fault = self.ways.faults.way(&mut self.builder);
        // The constants are made in the cold block, not before the branch.
        self.unlikely(condition, |emitter| {
            emitter.publish_count();
            let (cause, pc) = (emitter.constant(cause.code()), emitter.constant(emitter.at.pc));
            emitter.builder.ins().jump(fault, &[cause.into(), pc.into(), address.into()]);
        });
    }

    /// Ends the block with a fault.
    pub(super) fn fault_always(&mut self, cause: Cause, address: u32) {
        self.publish_count();
        let arguments = [cause.code(), self.at.pc, address].map(|value| self.constant(value).into());
        let fault = self.ways.faults.way(&mut self.builder);
        self.builder.ins().jump(fault, &arguments);
    }

    /// Ends the block: the interpreter continues with the current instruction.
    pub(super) fn interpret(&mut self) {
        let (pc, live) = (self.at.pc, self.live());
        self.leave_at(Some(pc), live, Way::Interpret);
    }

    /// Ends the block: the interpreter continues at `pc`, the address of the next instruction.
    pub(super) fn interpret_from(&mut self, pc: u32) {
        let live = self.live();
        self.leave_at(Some(pc), live, Way::Interpret);
    }

    /// Ends the block: execution continues at `pc`, where the registers `live` may be read.
    pub(super) fn jump_out(&mut self, pc: u32, live: Regs) {
        self.leave_at(Some(pc), live, Way::Jump);
    }

    /// Ends the block: execution continues at a computed address.
    pub(super) fn jump_out_to(&mut self, pc: Value) {
        self.store_state(pc, offset_of!(State, hart.pc));
        self.leave_at(None, Regs::ALL, Way::Jump);
    }

    /// Ends the block: the task waits, and the interpreter continues with the current instruction when it is resumed.
    pub(super) fn wait(&mut self) {
        let (pc, live) = (self.at.pc, self.live());
        self.leave_at(Some(pc), live, Way::Wait);
    }

    fn leave_at(&mut self, pc: Option<u32>, live: Regs, way: Way) {
        let junction = match way {
            Way::Interpret => &mut self.ways.interpreted,
            Way::Jump => &mut self.ways.jumps,
            Way::Wait => &mut self.ways.waits,
        };
        let exit = junction.way(&mut self.builder);
        self.publish_count();
        // The state's own values need not be noted.
        let noted = if self.registers.in_state() { Regs(0) } else { live };
        let known = self.known().constants().filter(|(reg, _)| noted.has(*reg)).collect();
        self.save(self.known().unknown(live));
        self.vectors.save_all(&mut self.builder, self.state);
        let number = self.ways.exits.add(pc, known);
        let number = self.constant(number);
        self.builder.ins().jump(exit, &[number.into()]);
    }

    /// Ends the block: the host has ended the task. `result` of its function is the complement of the
    /// [state's address](crate::jit::convention::task_ended), so that code need not keep that beyond its last call of the host.
    pub(super) fn end_task(&mut self, result: Value) {
        let ended = self.ways.ended.way(&mut self.builder);
        let (state, pc) = (self.builder.ins().bnot(result), self.constant(self.at.pc));
        self.builder.ins().store(TRUSTED, pc, state, offset(offset_of!(State, fault.pc)));
        self.builder.ins().jump(ended, &[]);
    }

    /// Leaves the current instruction, and repeatable ones before it, to the interpreter when `condition` holds. Writing
    /// registers to the hart takes more code than a check: successive checks share one exit.
    pub(super) fn refuse_if(&mut self, condition: Value) {
        // Counts and vector registers must be those of this instruction.
        if self.retired.is_some() || self.vectors.are_used() || self.registers.in_state() {
            return self.unlikely(condition, |emitter| emitter.interpret());
        }
        let go_on = self.builder.create_block();
        if let Some(shared) = self.ways.shared {
            self.builder.ins().brif(condition, shared, &[], go_on, &[]);
        } else {
            let shared = self.builder.create_block();
            self.builder.set_cold_block(shared);
            // Values are computed here, since other blocks will lead there, too.
            for reg in self.known().unknown(self.live()).iter() {
                self.registers.find(&mut self.builder, reg);
            }
            self.builder.ins().brif(condition, shared, &[], go_on, &[]);
            self.builder.switch_to_block(shared);
            self.interpret();
            self.ways.shared = Some(shared);
        }
        self.builder.seal_block(go_on);
        self.builder.switch_to_block(go_on);
    }

    /// The shared exit at the start of a block: that of all its predecessors. Blocks that are yet to be emitted have none,
    /// so that a loop is not repeated from before its start.
    pub(super) fn shared_exit(&self, id: BlockId) -> Option<ir::Block> {
        let cfg = self.input.cfg;
        if cfg.starts().contains(&id) {
            return None;
        }
        let from = cfg.predecessors[id].iter().filter(|&&from| cfg.is_compiled(from, id));
        let mut exits = from.map(|&from| match cfg.blocks[from].end {
            // Computed jumps meet in their dispatch.
            End::Jump { .. } => None,
            _ => self.ways.shared_after[from],
        });
        let first = exits.next()??;
        exits.all(|exit| exit == Some(first)).then_some(first)
    }

    /// Ends the block by leaving the function.
    pub(super) fn leave(&mut self, how: ExitReason) {
        let code = self.builder.ins().iconst(I32, i64::from(how as u32));
        self.store_state(code, offset_of!(State, exit));
        self.builder.ins().jump(self.ways.fault_return, &[]);
    }

    /// Emits the epilogues, and what all ways to them have in common.
    pub(super) fn ways_out(&mut self) {
        for fault in std::mem::take(&mut self.ways.faults.blocks) {
            self.builder.switch_to_block(fault);
            let &[cause, pc, address] = self.builder.block_params(fault) else { unreachable!("it takes three") };
            self.store_state(cause, offset_of!(State, fault.cause));
            self.store_state(pc, offset_of!(State, fault.pc));
            self.store_state(address, offset_of!(State, fault.address));
            self.leave(ExitReason::Faulted);
        }
        let Ways { interpreted, jumps, waits, .. } = &mut self.ways;
        let kinds = [(interpreted, ExitReason::Interpret), (jumps, ExitReason::Jumped), (waits, ExitReason::Waiting)];
        let exits = kinds.map(|(junction, how)| (std::mem::take(&mut junction.blocks), how));
        for (exit, how) in exits.into_iter().flat_map(|(exits, how)| exits.into_iter().map(move |exit| (exit, how))) {
            self.builder.switch_to_block(exit);
            let number = self.builder.block_params(exit)[0];
            self.store_state(number, offset_of!(State, resume));
            self.leave(how);
        }
        for ended in std::mem::take(&mut self.ways.ended.blocks) {
            self.builder.switch_to_block(ended);
            self.builder.ins().jump(self.ways.fault_return, &[]);
        }
        // These are not part of the body: a thread in an epilogue must not be sent to another.
        self.builder.switch_to_block(self.ways.returned);
        self.builder.set_srcloc(SourceLoc::new(HANDLER_RETURN));
        let returned = self.builder.ins().iconst(I64, RETURNED);
        self.return_with(returned);

        self.builder.switch_to_block(self.ways.fault_return);
        self.builder.set_srcloc(SourceLoc::new(FAULT_RETURN));
        // Not zero, and made here: Cranelift might make a constant before, where another instruction uses the same.
        let left = self.builder.ins().get_stack_pointer(I64);
        self.return_with(left);
    }

    /// Returns how the function ended. A second result, if there is one, is only used with certain values of the first.
    fn return_with(&mut self, how: Value) {
        let results = self.builder.func.signature.returns.len();
        self.builder.ins().return_(&[how; 2][..results]);
    }
}
