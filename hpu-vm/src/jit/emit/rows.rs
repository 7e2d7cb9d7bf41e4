//! Loops that add up [rows](crate::jit::rows). A row is loaded as vectors and added to a vector that is carried around
//! the loop. Each element of that vector is a partial sum; the elements are added to the total where the loop is left.
//!
//! If all rows of a loop belong to the packet, which is determined before the loop, there are no further checks, and
//! the rows are [read where the packet arrived](crate::jit::in_place).
//!
//! A vector that lies within a page faults as its first word does. Iterations whose row crosses a page are executed as
//! the block specifies, outside of the loop. With exact checks the same applies to iterations whose row is refused.
//!
//! Others may write to a row at the same time, and an aligned word must be read as it was before or after a write. A
//! processor may load a vector in several accesses. On x86-64 each has at least a quadword (Intel SDM, vol. 3A, 9.1.1;
//! AMD64 APM, vol. 2, 7.3.2), which contains such words whole. A64 promises that only for vectors at multiples of 8
//! (Arm ARM, B2.2.1). There, rows of aligned words at other addresses are also executed as the block specifies.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I32X4, I64};
use cranelift_codegen::ir::{self, InstBuilder, Value};
use spin_abi::map::PAGE;

use super::{Emitter, GUEST, offset};
use crate::inst::{Inst, Reg};
use crate::jit::bounds::WORD;
use crate::jit::facts::Regs;
use crate::jit::plan::BlockId;
use crate::jit::rows::{Even, Row, way_out};
use crate::vector::VLEN_BYTES;

/// Turns that are done at once where so many are left: then what is looked at before is so once for all of them.
const TURNS: u32 = 4;

/// Where the rows of a loop are.
#[derive(Clone, Copy)]
enum Rows {
    /// That is looked at in each turn: it goes `aside` where it is to be done as the block says.
    Anywhere { aside: ir::Block },
    /// All of them in the packet, whose addresses are added to `base`.
    InPacket { base: Value },
}

impl<'a> Emitter<'a> {
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
        ((one_check && row.fills_vectors()) || !self.exact()).then_some(row)
    }

    /// A block that adds up rows.
    pub(super) fn add_rows(&mut self, id: BlockId, row: &Row) {
        let [again, aside] = [(); 2].map(|()| self.builder.create_block());
        self.builder.set_cold_block(aside);
        let zero = self.zeroes();
        let zero = self.cast(I32X4, zero);
        let known = self.known.clone();
        let of_packet = self.reads_in_place(self.first_load(id, row));
        match row.even.as_ref().filter(|even| of_packet && even.counts_by_bits()) {
            Some(even) => self.add_rows_of_packet(id, row, even, (again, zero)),
            None => {
                self.builder.ins().jump(again, &[zero.into()]);
            }
        }
        self.known.clone_from(&known);
        let sum = self.add_rows_in(id, row, again, Rows::Anywhere { aside });

        self.known = known;
        self.builder.switch_to_block(aside);
        self.registers.begin_block();
        self.add_to_total(row.total, sum);
        self.note_totals(&self.plan.blocks[id]);
        self.cold_body(id);
        // What the last turn began with is not the same on both ways.
        self.retreats[id] = None;
    }

    /// The loop that begins with `again`, which takes what is added up so far. Returns that.
    fn add_rows_in(&mut self, id: BlockId, row: &Row, again: ir::Block, rows: Rows) -> Value {
        let sum = self.builder.append_block_param(again, I32X4);
        self.builder.switch_to_block(again);
        self.registers.begin_block();
        if let Some(even) = row.even.as_ref().filter(|_| !self.exact()) {
            self.turns(id, row, even, (again, sum), rows);
        }
        self.turn(id, row, (again, sum), rows);
        self.builder.seal_block(again);
        sum
    }

    /// Adds up all rows if they are of the packet; else goes to `otherwise` with `zero`.
    fn add_rows_of_packet(&mut self, id: BlockId, row: &Row, even: &Even, (otherwise, zero): (ir::Block, Value)) {
        self.locate_first(id, row);
        let are_there = self.are_all_in_packet(self.first_load(id, row), row, even);
        let base = self.base_if(are_there);
        let [there, again] = [(); 2].map(|()| self.builder.create_block());
        self.builder.ins().brif(are_there, there, &[], otherwise, &[zero.into()]);
        self.join(there);
        self.builder.ins().jump(again, &[zero.into()]);
        self.add_rows_in(id, row, again, Rows::InPacket { base });
    }

    /// Whether all rows that the loop adds up, of which this is the first load, are of the packet.
    fn are_all_in_packet(&mut self, inst: &Inst, row: &Row, even: &Even) -> Value {
        let left = self.left(even);
        // Of a distance that is no multiple of the steps many turns are left, and of none at all as many as there are numbers: with
        // the lower bits on top that is more than any packet has.
        let turns = self.builder.ins().rotr_imm_u(left, i64::from(even.counter.1.unsigned_abs().trailing_zeros()));
        let others = self.builder.ins().iadd_imm_s(turns, -1);
        let others = self.builder.ins().uextend(I64, others);
        let bytes = self.builder.ins().imul_imm_u(others, i64::from(row.bytes()));
        let bytes = self.builder.ins().iadd_imm_u(bytes, i64::from(row.bytes()));
        let first = self.guest_address(inst);
        self.are_in_packet(first, bytes)
    }

    /// How far the counter is from where the loop ends.
    fn left(&mut self, even: &Even) -> Value {
        let (counter, step) = even.counter;
        let (at, end) = (self.get(counter), self.get(even.end));
        let (from, to) = if step > 0 { (at, end) } else { (end, at) };
        self.builder.ins().isub(to, from)
    }

    /// The first load of a row.
    fn first_load<'b>(&self, id: BlockId, row: &Row) -> &'b Inst
    where
        'a: 'b,
    {
        let Some(&first) = row.loads.first() else { unreachable!("a row has words") };
        &self.plan.blocks[id].body[first].1.inst
    }

    /// Code emitted from here on belongs to that.
    fn locate_first(&mut self, id: BlockId, row: &Row) {
        let Some(&first) = row.loads.first() else { unreachable!("a row has words") };
        let (pc, decoded) = self.plan.blocks[id].body[first];
        (self.index, self.pc, self.current) = (first, pc, Some((pc, decoded)));
        self.locate(false);
    }

    /// A turn of the loop that begins with `again`, and the way out of it.
    fn turn(&mut self, id: BlockId, row: &Row, (again, sum): (ir::Block, Value), rows: Rows) {
        let block = &self.plan.blocks[id];
        let mut after = sum;
        for (index, (pc, decoded)) in block.body.iter().enumerate() {
            (self.index, self.pc, self.current) = (index, *pc, Some((*pc, *decoded)));
            self.locate(false);
            if row.loads.first() == Some(&index) {
                let base = match rows {
                    Rows::Anywhere { aside } => {
                        self.turn_aside(&decoded.inst, row, aside);
                        self.base
                    }
                    Rows::InPacket { base } => base,
                };
                after = self.add_vectors(&decoded.inst, base, row.bytes(), sum);
            } else if !row.has(index) {
                self.instruction(decoded);
            }
            self.known.step(*pc, &decoded.inst, decoded.size);
        }
        self.go_round(id, row, after, again);
    }

    /// Does [`TURNS`] of the loop at once if so many are left, and their rows are within a page. Goes on where one is to be done by itself.
    fn turns(&mut self, id: BlockId, row: &Row, even: &Even, (again, sum): (ir::Block, Value), rows: Rows) {
        self.locate_first(id, row);
        let (inst, bytes) = (self.first_load(id, row), TURNS * row.bytes());
        let [one, enough] = [(); 2].map(|()| self.builder.create_block());
        let (left, step) = (self.left(even), even.counter.1);
        // None of the turns but the last one is that after which they are the same.
        let is_end_near = self.compare(IntCC::UnsignedLessThanOrEqual, left, (TURNS - 1) * step.unsigned_abs());
        self.builder.ins().brif(is_end_near, one, &[], enough, &[]);
        self.join(enough);
        let base = match rows {
            Rows::Anywhere { .. } => {
                let (refused, go_on) = (self.refused(inst, bytes), self.builder.create_block());
                self.fork(refused, one, go_on);
                self.builder.switch_to_block(go_on);
                self.base
            }
            Rows::InPacket { base } => {
                self.builder.seal_block(one);
                base
            }
        };
        let after = self.add_vectors(inst, base, bytes, sum);
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

    /// Goes `aside` if the row whose first load this is cannot be loaded as vectors.
    fn turn_aside(&mut self, inst: &Inst, row: &Row, aside: ir::Block) {
        let (refused, go_on) = (self.refused(inst, row.bytes()), self.builder.create_block());
        self.fork(refused, aside, go_on);
        self.builder.switch_to_block(go_on);
    }

    /// Whether so many bytes from the first load of a row on may not be loaded as vectors.
    fn refused(&mut self, inst: &Inst, bytes: u32) -> Value {
        let checked = if self.exact() { self.beyond_span(inst) } else { None };
        let refused = checked.unwrap_or_else(|| self.crosses_page(inst, bytes));
        if self.loads_quadwords { refused } else { self.or_torn(refused, inst) }
    }

    /// Adds to `sum` so many bytes from the first load of a row on, of memory whose addresses are added to `base`.
    fn add_vectors(&mut self, inst: &Inst, base: Value, bytes: u32, sum: Value) -> Value {
        let address = self.registers.get_wide(&mut self.builder, self.state, inst.rs1);
        let base = self.builder.ins().iadd(base, address);
        // By themselves, so that a turn waits for one addition of that before; and each at once, so that an addition may load.
        let mut all: Option<Value> = None;
        let (vectors, rest) = ((bytes / VLEN_BYTES) as usize, (bytes % VLEN_BYTES / WORD) as usize);
        let rest_at = inst.imm + offset(vectors * VLEN_BYTES as usize);
        let vectors = (inst.imm..).step_by(VLEN_BYTES as usize).take(vectors).map(|at| (I32X4, at));
        let rest = (rest_at..).step_by(WORD as usize).take(rest).map(|at| (I32, at));
        for (kind, at) in vectors.chain(rest) {
            let loaded = self.builder.ins().load(kind, GUEST, base, at);
            let vector = if kind == I32 { self.builder.ins().scalar_to_vector(I32X4, loaded) } else { loaded };
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
