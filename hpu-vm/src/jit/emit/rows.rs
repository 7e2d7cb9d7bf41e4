//! Loops that add up [rows](crate::jit::rows): a row is loaded as vectors, and added to one that goes round the loop. Lane by lane that adds up
//! the same, which is added to the total where the loop is left.
//!
//! A vector that lies within a page faults as its first word does. So turns whose row does not, and with exact checks those whose row is
//! refused, are done as the block says, outside of the loop.
//!
//! Others may write to a row meanwhile, and an aligned word is seen as it was before that or after. A processor may load a vector in several
//! accesses: on x86-64 these are of quadwords at the least (Intel SDM, vol. 3A, 9.1.1; AMD64 APM, vol. 2, 7.3.2), which have such words whole;
//! A64 promises no more than that of vectors at multiples of 8 (Arm ARM, B2.2.1), so there rows of aligned words that are at none are done as
//! the block says too.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I32X4;
use cranelift_codegen::ir::{self, InstBuilder, Value};
use spin_abi::map::PAGE;

use super::{Emitter, GUEST};
use crate::inst::{Inst, Reg};
use crate::jit::facts::Regs;
use crate::jit::plan::BlockId;
use crate::jit::rows::{Even, Row, way_out};
use crate::vector::VLEN_BYTES;

/// Turns that are done at once where so many are left: then what is looked at before is so once for all of them.
const TURNS: u32 = 4;

impl Emitter<'_> {
    /// The row that a block adds up, if nothing but its registers and faults is looked at.
    pub(super) fn row(&self, id: BlockId) -> Option<Row> {
        let is_watched = self.options.observe || self.retired.is_some() || self.registers.in_state();
        let is_special = id == 0 || self.polls[id] || self.is_apart(id) || self.choices[id].is_some();
        if is_watched || is_special {
            return None;
        }
        let live = self.live.last().copied().unwrap_or(Regs::ALL);
        let row = Row::of(id, &self.plan.blocks[id], &self.known, live, self.any_device)?;
        let is_checked = |index: &usize| self.accesses.span(*index).is_some();
        let (first, others) = row.loads.split_first()?;
        let one_check = is_checked(first) && !others.iter().any(is_checked);
        (one_check || !self.exact()).then_some(row)
    }

    /// A block that adds up rows.
    pub(super) fn add_rows(&mut self, id: BlockId, row: &Row) {
        let [again, aside] = [(); 2].map(|()| self.builder.create_block());
        self.builder.set_cold_block(aside);
        let zero = self.zeroes();
        let zero = self.cast(I32X4, zero);
        let sum = self.builder.append_block_param(again, I32X4);
        self.builder.ins().jump(again, &[zero.into()]);
        let known = self.known.clone();
        self.builder.switch_to_block(again);
        self.registers.begin_block();
        if let Some(even) = row.even.as_ref().filter(|_| !self.exact()) {
            self.turns(id, row, even, (again, sum));
        }
        self.turn(id, row, (again, sum), aside);
        self.builder.seal_block(again);

        self.known = known;
        self.builder.switch_to_block(aside);
        self.registers.begin_block();
        self.add_to_total(row.total, sum);
        self.note_totals(&self.plan.blocks[id]);
        self.cold_body(id);
        // What the last turn began with is not the same on both ways.
        self.retreats[id] = None;
    }

    /// A turn of the loop that begins with `again`, and the way out of it. Goes `aside` instead where it is to be done as the block says.
    fn turn(&mut self, id: BlockId, row: &Row, (again, sum): (ir::Block, Value), aside: ir::Block) {
        let block = &self.plan.blocks[id];
        let mut after = sum;
        for (index, (pc, decoded)) in block.body.iter().enumerate() {
            (self.index, self.pc, self.current) = (index, *pc, Some((*pc, *decoded)));
            self.locate(false);
            if row.loads.first() == Some(&index) {
                after = self.load_row(&decoded.inst, row, sum, aside);
            } else if !row.has(index) {
                self.instruction(decoded);
            }
            self.known.step(*pc, &decoded.inst, decoded.size);
        }
        self.go_round(id, row, after, again);
    }

    /// Does [`TURNS`] of the loop at once if so many are left, and their rows are within a page. Goes on where one is to be done by itself.
    fn turns(&mut self, id: BlockId, row: &Row, even: &Even, (again, sum): (ir::Block, Value)) {
        let Some(&first) = row.loads.first() else { unreachable!("a row has words") };
        let (pc, decoded) = self.plan.blocks[id].body[first];
        (self.index, self.pc, self.current) = (first, pc, Some((pc, decoded)));
        self.locate(false);
        let [one, enough, go_on] = [(); 3].map(|()| self.builder.create_block());
        let (counter, step) = even.counter;
        let (at, end) = (self.get(counter), self.get(even.end));
        let (from, to) = if step > 0 { (at, end) } else { (end, at) };
        let distance = self.builder.ins().isub(to, from);
        // None of the turns but the last one is that after which they are the same.
        let is_end_near = self.compare(IntCC::UnsignedLessThanOrEqual, distance, (TURNS - 1) * step.unsigned_abs());
        self.builder.ins().brif(is_end_near, one, &[], enough, &[]);
        self.join(enough);
        let refused = self.refused(&decoded.inst, TURNS * row.bytes());
        self.fork(refused, one, go_on);
        self.builder.switch_to_block(go_on);
        let after = self.add_vectors(&decoded.inst, TURNS * row.bytes(), sum);
        for &(reg, step) in &even.steps {
            let (before, steps) = (self.get(reg), self.constant(TURNS.wrapping_mul(step.cast_unsigned())));
            let after = self.builder.ins().iadd(before, steps);
            self.set(reg, after);
        }
        self.go_round(id, row, after, again);
        self.builder.switch_to_block(one);
        self.registers.begin_block();
    }

    /// Ends a turn with the loop's branch: to `again` or out of it, where what the rows add up to is added to the total.
    fn go_round(&mut self, id: BlockId, row: &Row, after: Value, again: ir::Block) {
        let block = &self.plan.blocks[id];
        let Some((way_out, leaves_if_taken)) = way_out(id, block) else { unreachable!("a row is of a loop") };
        self.index = block.body.len();
        let Some((_, branch)) = block.body.last() else { unreachable!("it has a branch") };
        let condition = self.condition(branch);
        self.publish_computed(block, |index| !row.has(index));
        let left = self.builder.create_block();
        if leaves_if_taken {
            self.builder.ins().brif(condition, left, &[], again, &[after.into()]);
        } else {
            self.builder.ins().brif(condition, again, &[after.into()], left, &[]);
        }
        self.builder.seal_block(left);
        self.builder.switch_to_block(left);
        self.add_to_total(row.total, after);
        self.publish(Regs(0).with(row.total));
        self.goto(way_out);
    }

    /// Adds to `sum` the row whose first load this is, unless that goes `aside`.
    fn load_row(&mut self, inst: &Inst, row: &Row, sum: Value, aside: ir::Block) -> Value {
        let refused = self.refused(inst, row.bytes());
        let go_on = self.builder.create_block();
        self.fork(refused, aside, go_on);
        self.builder.switch_to_block(go_on);
        self.add_vectors(inst, row.bytes(), sum)
    }

    /// Whether so many bytes from the first load of a row on may not be loaded as vectors.
    fn refused(&mut self, inst: &Inst, bytes: u32) -> Value {
        let checked = if self.exact() { self.beyond_span(inst) } else { None };
        let refused = checked.unwrap_or_else(|| self.crosses_page(inst, bytes));
        if self.loads_quadwords { refused } else { self.or_torn(refused, inst) }
    }

    /// Adds to `sum` so many bytes from the first load of a row on.
    fn add_vectors(&mut self, inst: &Inst, bytes: u32, sum: Value) -> Value {
        let address = self.registers.get_wide(&mut self.builder, self.state, inst.rs1);
        let base = self.builder.ins().iadd(self.base, address);
        // By themselves, so that a turn waits for one addition of that before; and each at once, so that an addition may load.
        let mut all: Option<Value> = None;
        for at in (inst.imm..).step_by(VLEN_BYTES as usize).take((bytes / VLEN_BYTES) as usize) {
            let vector = self.builder.ins().load(I32X4, GUEST, base, at);
            all = Some(all.map_or(vector, |all| self.builder.ins().iadd(all, vector)));
            self.seen_by_others();
        }
        all.map_or(sum, |all| self.builder.ins().iadd(sum, all))
    }

    /// Whether so many bytes at the address of an access do not lie within a page.
    fn crosses_page(&mut self, inst: &Inst, bytes: u32) -> Value {
        let address = self.guest_address(inst);
        let in_page = self.builder.ins().band_imm_u(address, i64::from(PAGE - 1));
        self.compare(IntCC::UnsignedGreaterThan, in_page, PAGE - bytes)
    }

    /// Whether `refused`, or a vector at the address of an access would be of aligned words, and its halves of no aligned quadwords.
    fn or_torn(&mut self, refused: Value, inst: &Inst) -> Value {
        let address = self.guest_address(inst);
        let in_quadword = self.builder.ins().band_imm_u(address, 7);
        let torn = self.compare(IntCC::Equal, in_quadword, 4);
        self.builder.ins().bor(refused, torn)
    }

    /// Adds up the lanes of a vector, and that to a total.
    fn add_to_total(&mut self, total: Reg, sum: Value) {
        let mut lanes = sum;
        for distance in [VLEN_BYTES / 2, VLEN_BYTES / 4] {
            let others = self.shuffled(lanes, lanes, |at| (at + distance) % VLEN_BYTES);
            let others = self.cast(I32X4, others);
            lanes = self.builder.ins().iadd(lanes, others);
        }
        let (before, more) = (self.get(total), self.builder.ins().extractlane(lanes, 0));
        let after = self.builder.ins().iadd(before, more);
        self.set(total, after);
    }
}
