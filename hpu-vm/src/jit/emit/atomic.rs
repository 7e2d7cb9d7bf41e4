//! LR, SC and AMOs, sequentially consistent whatever their ordering bits say.

use std::mem::offset_of;

use cranelift_codegen::entity::EntityRef;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{self, AtomicRmwOp, InstBuilder, MemFlagsData, Value};
use spin_abi::fault::Cause;
use spin_abi::map::{DRIVER_BASE, L1_ALIAS, L1_BASE, L1_STRIDE, L2_BASE};
use spin_abi::regs::{TASK_END, TASK_FIRST};

use super::Emitter;
use super::memory::Host;
use super::registers::Indexed;
use crate::hart::UNRESERVED;
use crate::inst::{Inst, Op, Reg};
use crate::jit::accesses::AmoSpan;
use crate::jit::state::State;

/// Atomics are aligned.
const ATOMIC: MemFlagsData = MemFlagsData::new().with_aligned();

/// Every address from L2 on has one of these bits; those of the L1 of the first 16 clusters and of its alias have none.
const BEYOND_L1: u32 = 0xe400_0000;
const _: () = assert!(!BEYOND_L1 < L2_BASE && (L1_BASE | (16 * L1_STRIDE - 1) | L1_ALIAS) & BEYOND_L1 == 0);

impl Emitter<'_> {
    pub(super) fn amo(&mut self, inst: &Inst) {
        let table = self.registers.indexed(inst.rs1).filter(|table| table.words);
        // A task register lies elsewhere than its address says.
        let may_be_register = self.any_device || self.known.may_be_device(inst.rs1);
        let old = match table {
            Some(table) if self.home() && !may_be_register => self.amo_in_table(inst, table),
            _ => self.amo_anywhere(inst),
        };
        if let Some(old) = old {
            self.set(inst.rd, old);
        }
    }

    /// Carries an AMO out on a word of a table, all of which is on L1 most likely: in a loop that is found out once. Returns the old value,
    /// if it is wanted.
    fn amo_in_table(&mut self, inst: &Inst, table: Indexed) -> Option<Value> {
        let value = self.get(inst.rs2);
        let wanted = inst.rd != Reg::ZERO;
        if let Some(table) = self.in_l1(&table) {
            let old = self.plain_in_table(inst.op, table, value);
            return wanted.then_some(old);
        }
        let beyond = self.beyond_table(inst, table);
        let [slow, quick, joined] = [(); 3].map(|()| self.builder.create_block());
        if wanted {
            self.builder.append_block_param(joined, I32);
        }
        self.fork(beyond, slow, quick);
        let first = self.builder.func.dfg.num_blocks();
        self.fill(slow, |emitter| {
            emitter.registers.forget_indexed(inst.rs1);
            let old = emitter.amo_anywhere(inst).map(Into::into);
            emitter.builder.ins().jump(joined, old.as_slice());
        });
        let added = first..self.builder.func.dfg.num_blocks();
        added.map(ir::Block::new).chain([slow]).for_each(|block| self.builder.set_cold_block(block));
        self.builder.switch_to_block(quick);
        let old = self.plain_in_table(inst.op, table, value);
        let result = wanted.then_some(old.into());
        self.builder.ins().jump(joined, result.as_slice());
        self.join(joined);
        wanted.then(|| self.builder.block_params(joined)[0])
    }

    fn plain_in_table(&mut self, op: Op, table: Indexed, value: Value) -> Value {
        let base = self.builder.ins().iadd(self.base, table.base.1);
        let host = self.builder.ins().iadd(base, table.index);
        self.plain(op, Host(host, 0), value)
    }

    /// Whether a table with an index of so many bytes at the most is not all in memory that a plain AMO may be on, or not of words.
    pub(super) fn is_beyond_l1(&mut self, base: Value, most: u32) -> Value {
        // What is no multiple of 4 is larger, rotated, than any that is on L1.
        let quarter = self.builder.ins().rotr_imm_u(base, 2);
        self.compare(IntCC::UnsignedGreaterThanOrEqual, quarter, (L2_BASE - most) / 4)
    }

    /// The same of a table that an instruction is on, or whether that is refused.
    fn beyond_table(&mut self, inst: &Inst, table: Indexed) -> Value {
        let beyond = self.is_beyond_l1(table.base.0, table.most);
        let Some(span) = self.accesses.span(self.index).filter(|_| self.exact()) else { return beyond };
        let low = self.moved_wide(table.base, inst.imm.wrapping_add(span.from));
        let refused = self.beyond_bound(low, table.most + span.len);
        self.builder.ins().bor(beyond, refused)
    }

    /// Carries an AMO out. Returns the old value, if it is wanted.
    fn amo_anywhere(&mut self, inst: &Inst) -> Option<Value> {
        let in_l1 = self.in_l1.contains(&self.index);
        // One test tells both. What an exact check refuses before it the interpreter looks at in order.
        let with_place = self.home() && !in_l1 && !self.known.is_aligned(inst.rs1);
        if !with_place {
            self.check_aligned(inst, Cause::StoreMisaligned);
        }
        let (guest, host) = self.atomic_address(inst);
        let value = self.get(inst.rs2);
        // Without a use of the old value it must not seem to have one: load, operation and store become one instruction.
        let wanted = inst.rd != Reg::ZERO;
        if !self.home() {
            let old = self.locked(inst.op, host, value);
            return wanted.then_some(old);
        }
        if in_l1 {
            let old = self.plain(inst.op, host, value);
            return wanted.then_some(old);
        }
        let elsewhere = if with_place {
            let not_aligned_l1 = self.constant(BEYOND_L1 | 3);
            let beyond = self.builder.ins().band(guest, not_aligned_l1);
            self.compare(IntCC::NotEqual, beyond, 0)
        } else {
            self.compare(IntCC::UnsignedGreaterThanOrEqual, guest, L2_BASE)
        };
        let [locked, plain, joined] = [(); 3].map(|()| self.builder.create_block());
        self.fork(elsewhere, locked, plain);
        if wanted {
            self.builder.append_block_param(joined, I32);
        }
        for (block, lock) in [(plain, false), (locked, true)] {
            self.builder.switch_to_block(block);
            if lock && with_place {
                self.check_aligned(inst, Cause::StoreMisaligned);
                let block = self.builder.current_block();
                block.into_iter().for_each(|block| self.builder.set_cold_block(block));
            }
            let old = if lock { self.locked(inst.op, host, value) } else { self.plain(inst.op, host, value) };
            let result = wanted.then_some(old.into());
            self.builder.ins().jump(joined, result.as_slice());
        }
        self.builder.set_cold_block(locked);
        self.join(joined);
        wanted.then(|| self.builder.block_params(joined)[0])
    }

    /// Whether not all AMOs that the block's first instructions can tell about are on L1; `None` when there are none.
    pub(super) fn amos_beyond_l1(&mut self) -> Option<Value> {
        let spans = if self.home() { self.accesses.amos().to_vec() } else { Vec::new() };
        let mut any = None;
        for AmoSpan { reg, from, len, .. } in spans {
            let base = self.get(reg);
            let from = self.constant(from.cast_unsigned());
            let low = self.builder.ins().iadd(base, from);
            let beyond = self.compare(IntCC::UnsignedGreaterThanOrEqual, low, L2_BASE - len);
            any = Some(any.map_or(beyond, |any| self.builder.ins().bor(any, beyond)));
        }
        any
    }

    /// An AMO on memory that no other thread works on.
    fn plain(&mut self, op: Op, Host(base, at): Host, value: Value) -> Value {
        let old = self.builder.ins().load(I32, ATOMIC, base, at);
        let new = match op {
            Op::AmoaddW => self.builder.ins().iadd(old, value),
            Op::AmoxorW => self.builder.ins().bxor(old, value),
            Op::AmoandW => self.builder.ins().band(old, value),
            Op::AmoorW => self.builder.ins().bor(old, value),
            Op::AmominW => self.builder.ins().smin(old, value),
            Op::AmomaxW => self.builder.ins().smax(old, value),
            Op::AmominuW => self.builder.ins().umin(old, value),
            Op::AmomaxuW => self.builder.ins().umax(old, value),
            _ => value,
        };
        self.builder.ins().store(ATOMIC, new, base, at);
        self.seen_by_others();
        old
    }

    fn locked(&mut self, op: Op, Host(base, at): Host, value: Value) -> Value {
        let operation = match op {
            Op::AmoaddW => AtomicRmwOp::Add,
            Op::AmoxorW => AtomicRmwOp::Xor,
            Op::AmoandW => AtomicRmwOp::And,
            Op::AmoorW => AtomicRmwOp::Or,
            Op::AmominW => AtomicRmwOp::Smin,
            Op::AmomaxW => AtomicRmwOp::Smax,
            Op::AmominuW => AtomicRmwOp::Umin,
            Op::AmomaxuW => AtomicRmwOp::Umax,
            _ => AtomicRmwOp::Xchg,
        };
        let address = self.builder.ins().iadd_imm_s(base, i64::from(at));
        self.builder.ins().atomic_rmw(I32, ATOMIC, operation, address, value)
    }

    pub(super) fn load_reserved(&mut self, inst: &Inst) {
        self.begins.reservation = true;
        self.check_aligned(inst, Cause::LoadMisaligned);
        let (guest, Host(base, at)) = self.atomic_address(inst);
        let address = self.builder.ins().iadd_imm_s(base, i64::from(at));
        let value = self.builder.ins().atomic_load(I32, ATOMIC, address);
        let guest = self.without_alias(guest);
        self.store_state(guest, offset_of!(State, hart.reserved_address));
        self.store_state(value, offset_of!(State, hart.reserved_value));
        self.set(inst.rd, value);
    }

    /// Stores when the word is reserved and still has the value it had then. Otherwise it is written with what it holds:
    /// whether it may be written is found out either way.
    pub(super) fn store_conditional(&mut self, inst: &Inst) {
        self.begins.reservation = true;
        self.check_aligned(inst, Cause::StoreMisaligned);
        let (guest, Host(base, at)) = self.atomic_address(inst);
        let value = self.get(inst.rs2);
        let address = self.builder.ins().iadd_imm_s(base, i64::from(at));
        let guest = self.without_alias(guest);
        let reserved = self.load_state(I32, offset_of!(State, hart.reserved_address));
        let expected = self.load_state(I32, offset_of!(State, hart.reserved_value));
        let holds = self.builder.ins().icmp(IntCC::Equal, guest, reserved);
        let [swap, touch, joined] = [(); 3].map(|()| self.builder.create_block());
        self.builder.append_block_param(joined, I8);
        self.fork(holds, swap, touch);
        self.builder.switch_to_block(swap);
        let found = self.builder.ins().atomic_cas(ATOMIC, address, expected, value);
        let differs = self.builder.ins().icmp(IntCC::NotEqual, found, expected);
        self.builder.ins().jump(joined, &[differs.into()]);
        self.builder.switch_to_block(touch);
        let zero = self.constant(0);
        self.builder.ins().atomic_rmw(I32, ATOMIC, AtomicRmwOp::Or, address, zero);
        let failed = self.builder.ins().iconst(I8, 1);
        self.builder.ins().jump(joined, &[failed.into()]);
        self.join(joined);
        let failed = self.builder.block_params(joined)[0];
        let none = self.constant(UNRESERVED);
        self.store_state(none, offset_of!(State, hart.reserved_address));
        let failed = self.builder.ins().uextend(I32, failed);
        self.set(inst.rd, failed);
    }

    fn check_aligned(&mut self, inst: &Inst, misaligned: Cause) {
        if !self.known.is_aligned(inst.rs1) {
            let (guest, low) = (self.get(inst.rs1), self.constant(3));
            let low = self.builder.ins().band(guest, low);
            self.fault_if(low, misaligned, guest);
        }
    }

    /// Guest and host address of an atomic: of a task register, that of the word on the stack, as reservations are of words. Devices
    /// take none: outside of the task registers their addresses are mapped nowhere.
    fn atomic_address(&mut self, inst: &Inst) -> (Value, Host) {
        let guest = self.get(inst.rs1);
        let constant = self.known.constant(inst.rs1);
        if let Some(address) = constant
            && let Some(host) = self.task_register(address, 4)
        {
            let task = self.load_fixed(I32, offset_of!(State, memory.task_base));
            let at = self.constant(address.wrapping_sub(DRIVER_BASE + TASK_FIRST));
            return (self.builder.ins().iadd(task, at), host);
        }
        let anything = constant.is_none() && (self.any_device || self.known.may_be_device(inst.rs1));
        // With exact checks the interpreter sees to them.
        if anything && !self.exact() {
            return self.memory_or_task_register(guest);
        }
        (guest, self.memory(inst))
    }

    /// Guest and host address of the word at `guest`, which may be a task register.
    fn memory_or_task_register(&mut self, guest: Value) -> (Value, Host) {
        let first = self.constant((DRIVER_BASE + TASK_FIRST).wrapping_neg());
        let at = self.builder.ins().iadd(guest, first);
        let end = self.constant(TASK_END - TASK_FIRST - 3);
        let register = self.builder.ins().icmp(IntCC::UnsignedLessThan, at, end);
        let task = self.load_fixed(I32, offset_of!(State, memory.task_base));
        let there = self.builder.ins().iadd(task, at);
        let guest = self.builder.ins().select(register, there, guest);
        let address = self.builder.ins().uextend(I64, guest);
        (guest, Host(self.builder.ins().iadd(self.base, address), 0))
    }

    /// An address in the own cluster's alias window stands for that in its L1.
    fn without_alias(&mut self, guest: Value) -> Value {
        let alias = self.constant(L1_ALIAS.wrapping_neg());
        let at = self.builder.ins().iadd(guest, alias);
        let size = self.load_fixed(I32, offset_of!(State, memory.l1_size));
        let aliased = self.builder.ins().icmp(IntCC::UnsignedLessThan, at, size);
        let l1 = self.load_fixed(I32, offset_of!(State, memory.l1_base));
        let there = self.builder.ins().iadd(l1, at);
        self.builder.ins().select(aliased, there, guest)
    }
}
