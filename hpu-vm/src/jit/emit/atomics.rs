//! LR, SC and AMOs. They are sequentially consistent, whatever their ordering bits.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, MemFlagsData, Value};
use spin_abi::fault::Cause;
use spin_abi::map::{DRIVER_BASE, L1_ALIAS, L1_BASE, L1_STRIDE, L2_BASE};
use spin_abi::regs::{TASK_END, TASK_FIRST};

use super::access::Host;
use super::emitter::Emitter;
use super::memory::{memory, seen_by_others, task_register};
use crate::hart::UNRESERVED;
use crate::inst::{Inst, Op, Reg};
use crate::jit::state::State;

/// Atomics are aligned.
const ATOMIC: MemFlagsData = MemFlagsData::new().with_aligned();

/// Each address from L2 on has one of these bits; addresses in the L1 of the first 16 clusters and in its alias have none.
const BEYOND_L1: u32 = 0xe400_0000;
const _: () = assert!(!BEYOND_L1 < L2_BASE && (L1_BASE | (16 * L1_STRIDE - 1) | L1_ALIAS) & BEYOND_L1 == 0);

pub(super) fn amo(emitter: &mut Emitter<'_>, inst: &Inst) {
    if let Some(old) = amo_anywhere(emitter, inst) {
        emitter.set(inst.rd, old);
    }
}

/// Emits an AMO. Returns the old value, if it is used.
fn amo_anywhere(emitter: &mut Emitter<'_>, inst: &Inst) -> Option<Value> {
    // One test finds both misaligned addresses and those beyond L1.
    let with_place = emitter.home() && !emitter.known().is_aligned(inst.rs1);
    if !with_place {
        check_aligned(emitter, inst, Cause::StoreMisaligned);
    }
    let (guest, host) = atomic_address(emitter, inst);
    let value = emitter.get(inst.rs2);
    // Without a use of the old value, load, operation and store become one instruction.
    let wanted = inst.rd != Reg::ZERO;
    if !emitter.home() {
        let old = locked(emitter, inst.op, host, value);
        return wanted.then_some(old);
    }
    let elsewhere = if with_place {
        let not_aligned_l1 = emitter.constant(BEYOND_L1 | 3);
        let beyond = emitter.builder.ins().band(guest, not_aligned_l1);
        emitter.compare(IntCC::NotEqual, beyond, 0)
    } else {
        emitter.compare(IntCC::UnsignedGreaterThanOrEqual, guest, L2_BASE)
    };
    let [cold, quick, joined] = [(); 3].map(|()| emitter.builder.create_block());
    emitter.fork(elsewhere, cold, quick);
    if wanted {
        emitter.builder.append_block_param(joined, I32);
    }
    for (block, lock) in [(quick, false), (cold, true)] {
        emitter.builder.switch_to_block(block);
        if lock && with_place {
            check_aligned(emitter, inst, Cause::StoreMisaligned);
            let block = emitter.builder.current_block();
            block.into_iter().for_each(|block| emitter.builder.set_cold_block(block));
        }
        let old = if lock { locked(emitter, inst.op, host, value) } else { plain(emitter, inst.op, host, value) };
        let result = wanted.then_some(old.into());
        emitter.builder.ins().jump(joined, result.as_slice());
    }
    emitter.builder.set_cold_block(cold);
    emitter.join(joined);
    wanted.then(|| emitter.builder.block_params(joined)[0])
}

/// An AMO on memory that no other thread works on.
fn plain(emitter: &mut Emitter<'_>, op: Op, Host(base, at): Host, value: Value) -> Value {
    let old = emitter.builder.ins().load(I32, ATOMIC, base, at);
    let new = match op {
        Op::AmoaddW => emitter.builder.ins().iadd(old, value),
        Op::AmoxorW => emitter.builder.ins().bxor(old, value),
        Op::AmoandW => emitter.builder.ins().band(old, value),
        Op::AmoorW => emitter.builder.ins().bor(old, value),
        Op::AmominW => emitter.builder.ins().smin(old, value),
        Op::AmomaxW => emitter.builder.ins().smax(old, value),
        Op::AmominuW => emitter.builder.ins().umin(old, value),
        Op::AmomaxuW => emitter.builder.ins().umax(old, value),
        _ => value,
    };
    emitter.builder.ins().store(ATOMIC, new, base, at);
    seen_by_others(emitter);
    old
}

fn locked(emitter: &mut Emitter<'_>, op: Op, Host(base, at): Host, value: Value) -> Value {
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
    let address = emitter.builder.ins().iadd_imm_s(base, i64::from(at));
    emitter.builder.ins().atomic_rmw(I32, ATOMIC, operation, address, value)
}

pub(super) fn load_reserved(emitter: &mut Emitter<'_>, inst: &Inst) {
    emitter.ways.prologue.reservation = true;
    check_aligned(emitter, inst, Cause::LoadMisaligned);
    let (guest, Host(base, at)) = atomic_address(emitter, inst);
    let address = emitter.builder.ins().iadd_imm_s(base, i64::from(at));
    let value = emitter.builder.ins().atomic_load(I32, ATOMIC, address);
    let guest = without_alias(emitter, guest);
    emitter.store_state(guest, offset_of!(State, hart.reserved_address));
    emitter.store_state(value, offset_of!(State, hart.reserved_value));
    emitter.set(inst.rd, value);
}

/// Stores if the word is reserved and unchanged. Otherwise the word is written with its own value, so that a store to
/// read-only memory faults in either case.
pub(super) fn store_conditional(emitter: &mut Emitter<'_>, inst: &Inst) {
    emitter.ways.prologue.reservation = true;
    check_aligned(emitter, inst, Cause::StoreMisaligned);
    let (guest, Host(base, at)) = atomic_address(emitter, inst);
    let value = emitter.get(inst.rs2);
    let address = emitter.builder.ins().iadd_imm_s(base, i64::from(at));
    let guest = without_alias(emitter, guest);
    let reserved = emitter.load_state(I32, offset_of!(State, hart.reserved_address));
    let expected = emitter.load_state(I32, offset_of!(State, hart.reserved_value));
    let holds = emitter.builder.ins().icmp(IntCC::Equal, guest, reserved);
    let [swap, touch, joined] = [(); 3].map(|()| emitter.builder.create_block());
    emitter.builder.append_block_param(joined, I8);
    emitter.fork(holds, swap, touch);
    emitter.builder.switch_to_block(swap);
    let found = emitter.builder.ins().atomic_cas(ATOMIC, address, expected, value);
    let differs = emitter.builder.ins().icmp(IntCC::NotEqual, found, expected);
    emitter.builder.ins().jump(joined, &[differs.into()]);
    emitter.builder.switch_to_block(touch);
    let zero = emitter.constant(0);
    emitter.builder.ins().atomic_rmw(I32, ATOMIC, AtomicRmwOp::Or, address, zero);
    let failed = emitter.builder.ins().iconst(I8, 1);
    emitter.builder.ins().jump(joined, &[failed.into()]);
    emitter.join(joined);
    let failed = emitter.builder.block_params(joined)[0];
    let none = emitter.constant(UNRESERVED);
    emitter.store_state(none, offset_of!(State, hart.reserved_address));
    let failed = emitter.builder.ins().uextend(I32, failed);
    emitter.set(inst.rd, failed);
}

fn check_aligned(emitter: &mut Emitter<'_>, inst: &Inst, misaligned: Cause) {
    if !emitter.known().is_aligned(inst.rs1) {
        let (guest, low) = (emitter.get(inst.rs1), emitter.constant(3));
        let low = emitter.builder.ins().band(guest, low);
        emitter.fault_if(low, misaligned, guest);
    }
}

/// Guest and host address of an atomic. For a task register these are the addresses of the word on the stack, since
/// reservations are of words. Devices have no atomics: their addresses are not mapped, except for the task registers.
fn atomic_address(emitter: &mut Emitter<'_>, inst: &Inst) -> (Value, Host) {
    let guest = emitter.get(inst.rs1);
    let constant = emitter.known().constant(inst.rs1);
    if let Some(address) = constant
        && let Some(host) = task_register(emitter, address, 4)
    {
        let task = emitter.load_fixed(I32, offset_of!(State, memory.task_base));
        let at = emitter.constant(address.wrapping_sub(DRIVER_BASE + TASK_FIRST));
        return (emitter.builder.ins().iadd(task, at), host);
    }
    let anything = constant.is_none() && (emitter.input.plan.any_device || emitter.known().may_be_device(inst.rs1));
    // With exact checks the interpreter executes them.
    if anything && !emitter.exact() {
        return memory_or_task_register(emitter, guest);
    }
    (guest, memory(emitter, inst))
}

/// Guest and host address of the word at `guest`, which may be a task register.
fn memory_or_task_register(emitter: &mut Emitter<'_>, guest: Value) -> (Value, Host) {
    let first = emitter.constant((DRIVER_BASE + TASK_FIRST).wrapping_neg());
    let at = emitter.builder.ins().iadd(guest, first);
    let end = emitter.constant(TASK_END - TASK_FIRST - 3);
    let register = emitter.builder.ins().icmp(IntCC::UnsignedLessThan, at, end);
    let task = emitter.load_fixed(I32, offset_of!(State, memory.task_base));
    let there = emitter.builder.ins().iadd(task, at);
    let guest = emitter.builder.ins().select(register, there, guest);
    let address = emitter.builder.ins().uextend(I64, guest);
    (guest, Host(emitter.builder.ins().iadd(emitter.base, address), 0))
}

/// Replaces an address in the own cluster's alias window by that in its L1.
fn without_alias(emitter: &mut Emitter<'_>, guest: Value) -> Value {
    let alias = emitter.constant(L1_ALIAS.wrapping_neg());
    let at = emitter.builder.ins().iadd(guest, alias);
    let size = emitter.load_fixed(I32, offset_of!(State, memory.l1_size));
    let aliased = emitter.builder.ins().icmp(IntCC::UnsignedLessThan, at, size);
    let l1 = emitter.load_fixed(I32, offset_of!(State, memory.l1_base));
    let there = emitter.builder.ins().iadd(l1, at);
    emitter.builder.ins().select(aliased, there, guest)
}
