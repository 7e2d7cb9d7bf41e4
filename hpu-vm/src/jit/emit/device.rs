//! Accesses to devices: calls of the host.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{self, InstBuilder, Value};
use spin_abi::map::{PERIPHERALS, PERIPHERALS_SIZE, PUBLIC_DMA_BASE, PUBLIC_DMA_CLUSTERS, STDOUT_BASE, STDOUT_SIZE};
use spin_abi::regs::dma;

use super::counters::recheck_limit;
use super::emitter::Emitter;
use crate::analysis::regs::{Regs, size};
use crate::inst::{Inst, Op, Reg};
use crate::jit::convention::PENDING;
use crate::jit::state::{HostCalls, State};

/// The value that `inst` loads from the device at `address`, extended as the instruction does.
pub(super) fn device_load(emitter: &mut Emitter<'_>, inst: &Inst, address: Value) -> Value {
    let width = emitter.constant(size(inst).unwrap_or(4));
    let result = device_call(emitter, offset_of!(HostCalls, load), &[address, width]);
    let value = emitter.builder.ins().ireduce(I32, result);
    let bits = match inst.op {
        Op::Lb => 24,
        Op::Lh => 16,
        _ => return value,
    };
    let upper = emitter.builder.ins().ishl_imm_u(value, bits);
    emitter.builder.ins().sshr_imm_u(upper, bits)
}

/// Stores `value` to the device at `address`. Few stores wait; the interpreter continues with those.
pub(super) fn device_store(emitter: &mut Emitter<'_>, inst: &Inst, address: Value, value: Value, may_wait: bool) {
    let width = emitter.constant(size(inst).unwrap_or(4));
    let arguments = [address, width, value];
    if !may_wait {
        device_call(emitter, offset_of!(HostCalls, store), &arguments);
        return;
    }
    let (result, left) = device_result(emitter, offset_of!(HostCalls, store), &arguments);
    emitter.unlikely(left, |emitter| {
        let over = emitter.builder.ins().icmp_imm_s(IntCC::NotEqual, result, PENDING);
        emitter.unlikely(over, |emitter| emitter.end_task(result));
        emitter.wait();
    });
}

/// An `ecall`: a0 to a7 are its arguments, a0 and a1 its results, as in the calling convention of RISC-V's SBI.
pub(super) fn ecall(emitter: &mut Emitter<'_>) {
    emitter.save(Regs(0xff << 10));
    let pc = emitter.constant(emitter.at.pc);
    emitter.store_state(pc, offset_of!(State, hart.pc));
    device_call(emitter, offset_of!(HostCalls, ecall), &[]);
    [Reg::A0, Reg::A1].into_iter().for_each(|reg| emitter.reload(reg));
    recheck_limit(emitter);
}

/// Goes to the first of three new blocks when `address` is a device's, else to the second; both continue in the third.
pub(super) fn either(emitter: &mut Emitter<'_>, address: Value) -> [ir::Block; 3] {
    // The device may be a command register, also in a block that stores none of its own commands' words.
    emitter.ways.prologue.command = true;
    emitter.publish(Regs::ALL);
    let blocks = [(); 3].map(|()| emitter.builder.create_block());
    let driver = lies_in(emitter, address, PERIPHERALS, PERIPHERALS_SIZE);
    let stdout = lies_in(emitter, address, STDOUT_BASE, STDOUT_SIZE);
    let clusters = emitter.constant(!PUBLIC_DMA_CLUSTERS);
    let engine = emitter.builder.ins().band(address, clusters);
    let engine = lies_in(emitter, engine, PUBLIC_DMA_BASE, dma::SIZE);
    let device = emitter.builder.ins().bor(driver, stdout);
    let device = emitter.builder.ins().bor(device, engine);
    emitter.fork(device, blocks[0], blocks[1]);
    blocks
}

pub(super) fn lies_in(emitter: &mut Emitter<'_>, address: Value, base: u32, size: u32) -> Value {
    let base = emitter.constant(base.wrapping_neg());
    let at = emitter.builder.ins().iadd(address, base);
    emitter.compare(IntCC::UnsignedLessThan, at, size)
}

/// Calls the function at `field` of [`HostCalls`], and ends the task if its result says so.
pub(super) fn device_call(emitter: &mut Emitter<'_>, field: usize, arguments: &[Value]) -> Value {
    let (result, left) = device_result(emitter, field, arguments);
    emitter.unlikely(left, |emitter| emitter.end_task(result));
    result
}

/// The result of the function at `field` of [`HostCalls`], and whether it says to leave.
fn device_result(emitter: &mut Emitter<'_>, field: usize, arguments: &[Value]) -> (Value, Value) {
    let is_hidden = emitter.at.block.is_some_and(|id| emitter.input.plan.commands.hidden[id]);
    emitter.ways.prologue.command |= !is_hidden;
    emitter.ways.shared = None;
    emitter.cache.forget_packet();
    if emitter.registers.in_state() {
        let pc = emitter.constant(emitter.at.pc);
        emitter.store_state(pc, offset_of!(State, hart.pc));
    }
    emitter.publish_count();
    let result = call_host(emitter, field, arguments);
    let left = emitter.builder.ins().icmp_imm_s(IntCC::SignedLessThan, result, 0);
    (result, left)
}

/// Calls the function at `field` of [`HostCalls`] with the state and `arguments`, which are 32 bits wide.
pub(super) fn call_host(emitter: &mut Emitter<'_>, field: usize, arguments: &[Value]) -> Value {
    let signature = emitter.signatures.get(&mut emitter.builder, arguments.len());
    // Not moved out of loops, where most calls are rare.
    let function = emitter.load_state(I64, offset_of!(State, host.calls) + field);
    let mut all = vec![emitter.state];
    all.extend_from_slice(arguments);
    let call = emitter.builder.ins().call_indirect(signature, function, &all);
    emitter.builder.inst_results(call)[0]
}
