//! Loads and stores.
//!
//! A guest address is an offset in the view, whose mapping catches addresses at which nothing is. An instruction's
//! immediate becomes part of the host's addressing mode unchecked. Below and above the 4 GiB nothing is mapped either, nor
//! are the first and last pages. An address that wraps around in the guest thus faults on both sides.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use spin_abi::map::{DRIVER_BASE, PAGE};
use spin_abi::regs::{TASK_END, TASK_FIRST};

use super::access::{FIXED, GUEST, Host, offset};
use super::commands;
use super::counters::recheck_limit;
use super::device::{device_load, device_store, either};
use super::emitter::Emitter;
use super::zero_copy::{read_in_place, reads_in_place};
use crate::analysis::regs::size;
use crate::device::{self, is_device};
use crate::inst::{Inst, Op, Reg};
use crate::jit::bounds::WORD;
use crate::jit::passes::{Place, TASK_POINTER_DISTANCE, issues, may_be_device, register};
use crate::jit::state::State;

/// Range of an immediate.
const IMMEDIATES: std::ops::Range<i32> = -(1 << 11)..1 << 11;

/// What an instruction accesses.
enum Access {
    Memory(Host),
    Device,
    /// Memory or a device, which is only known at run time.
    Either,
}

pub(super) fn load(emitter: &mut Emitter<'_>, inst: &Inst) {
    let is_task_pointer = emitter.at.block == Some(0) && emitter.input.plan.task_pointer == Some(emitter.at.index);
    if is_task_pointer {
        return load_task_pointer(emitter, inst);
    }
    if reads_in_place(emitter, inst) {
        let host = read_in_place(emitter, inst);
        let value = load_guest(emitter, inst.op, host);
        return emitter.set_wide(inst.rd, value);
    }
    match access(emitter, inst) {
        Access::Memory(host) => {
            let value = load_guest(emitter, inst.op, host);
            emitter.set_wide(inst.rd, value);
        }
        Access::Device => {
            let value = if issues(inst, emitter.known()) {
                commands::issue(emitter, inst)
            } else {
                let address = guest_address(emitter, inst);
                device_load(emitter, inst, address)
            };
            emitter.set(inst.rd, value);
            recheck_limit(emitter);
        }
        Access::Either => load_either(emitter, inst),
    }
}

/// Computes the pointer to the task registers, which is at a known distance from the arguments.
fn load_task_pointer(emitter: &mut Emitter<'_>, inst: &Inst) {
    if emitter.exact() {
        // The check covers accesses near this one, too.
        check_range(emitter, inst);
    }
    // Accesses through the pointer use the host address of the arguments.
    let argument = emitter.get_wide(Reg::A0);
    let place = place(emitter);
    host(emitter, place, Reg::A0);
    // The sum is not negative: arguments are above the descriptor. So it is recomputed where it is used, or part of
    // addresses.
    let value = emitter.builder.ins().iadd_imm_s(argument, i64::from(TASK_POINTER_DISTANCE));
    emitter.set_wide(inst.rd, value);
}

pub(super) fn store(emitter: &mut Emitter<'_>, inst: &Inst) {
    if let Some(at) = register(inst, emitter.known()) {
        let (value, known) = (emitter.get(inst.rs2), emitter.known().constant(inst.rs2));
        emitter.cache.command.note(at / 4, value, known);
        if emitter.at.block.is_some_and(|id| emitter.input.plan.commands.hidden[id]) {
            return;
        }
    }
    match access(emitter, inst) {
        Access::Memory(host) => {
            let value = emitter.get(inst.rs2);
            store_guest(emitter, inst.op, value, host);
        }
        Access::Device => {
            let (address, value) = (guest_address(emitter, inst), emitter.get(inst.rs2));
            let width = size(inst).unwrap_or(4);
            let may_wait = emitter.known().address(inst).is_some_and(|address| device::waits(address, width));
            device_store(emitter, inst, address, value, may_wait);
            recheck_limit(emitter);
        }
        Access::Either => store_either(emitter, inst),
    }
}

/// Determines what an instruction accesses, and emits the checks.
fn access(emitter: &mut Emitter<'_>, inst: &Inst) -> Access {
    let width = size(inst).unwrap_or(4);
    if let Some(address) = emitter.known().address(inst) {
        if let Some(at) = register(inst, emitter.known()) {
            emitter.ways.prologue.command = true;
            return Access::Memory(Host(emitter.state, offset(offset_of!(State, hart.command) + at)));
        }
        return match task_register(emitter, address, width) {
            Some(host) => Access::Memory(host),
            None if is_device(address) => Access::Device,
            None => Access::Memory(memory(emitter, inst)),
        };
    }
    if may_be_device(inst, emitter.known(), emitter.input.plan.any_device) {
        return Access::Either;
    }
    Access::Memory(memory(emitter, inst))
}

/// The location of a task register, whose address in the driver page stands for that of the memory that holds it.
pub(super) fn task_register(emitter: &mut Emitter<'_>, address: u32, width: u32) -> Option<Host> {
    let at = address.wrapping_sub(DRIVER_BASE + TASK_FIRST);
    if at > TASK_END - TASK_FIRST - width {
        return None;
    }
    let task = emitter.load_fixed(I32, offset_of!(State, memory.task_base));
    let task = emitter.builder.ins().uextend(I64, task);
    Some(Host(emitter.builder.ins().iadd(emitter.base, task), offset(at as usize)))
}

/// The location of a memory access, checked if checks are exact.
pub(super) fn memory(emitter: &mut Emitter<'_>, inst: &Inst) -> Host {
    if emitter.exact() {
        check_range(emitter, inst);
    }
    if let Some(address) = emitter.known().address(inst) {
        if let Ok(address) = i32::try_from(address) {
            return Host(emitter.base, address);
        }
        let address = emitter.builder.ins().iconst(I64, i64::from(address));
        return Host(emitter.builder.ins().iadd(emitter.base, address), 0);
    }
    let place = place(emitter);
    if let Some(host) = place.and_then(|place| near(emitter, place, inst.imm)) {
        return host;
    }
    Host(host(emitter, place, inst.rs1), inst.imm)
}

/// The place that the base register of the current access holds.
pub(super) fn place(emitter: &Emitter<'_>) -> Option<Place> {
    emitter.number().and_then(|number| emitter.input.plan.checks.place(number))
}

/// The host address of what a register points to; others may be near it.
fn host(emitter: &mut Emitter<'_>, place: Option<Place>, reg: Reg) -> Value {
    let address = emitter.get_wide(reg);
    let host = emitter.builder.ins().iadd(emitter.base, address);
    if let Some(place) = place {
        emitter.cache.add_host(place, host);
    }
    host
}

/// The host address `imm` bytes from a place by that of another with its value number: as far away as an immediate can
/// reach, since an address that wraps around must fault.
fn near(emitter: &Emitter<'_>, place: Place, imm: i32) -> Option<Host> {
    let (host, distance) = emitter.cache.host_near(place)?;
    let at = distance.checked_add(imm)?;
    IMMEDIATES.contains(&at).then_some(Host(host, at))
}

/// The guest address of an access.
pub(super) fn guest_address(emitter: &mut Emitter<'_>, inst: &Inst) -> Value {
    let base = emitter.get(inst.rs1);
    let imm = emitter.constant(inst.imm.cast_unsigned());
    emitter.builder.ins().iadd(base, imm)
}

/// Checks that this access and those that share its check lie in one range. If not, the interpreter finds the first that
/// does not.
fn check_range(emitter: &mut Emitter<'_>, inst: &Inst) {
    let range = emitter.number().and_then(|number| emitter.input.plan.checks.range(number));
    if let Some(range) = range {
        let low = address_wide(emitter, inst.rs1, inst.imm.wrapping_add(range.from));
        let refused = beyond_bound(emitter, low, range.len);
        emitter.refuse_if(refused);
    }
}

/// The guest address `distance` from what a register holds, zero-extended.
pub(super) fn address_wide(emitter: &mut Emitter<'_>, reg: Reg, distance: i32) -> Value {
    if let Some(base) = emitter.known().constant(reg) {
        let address = base.wrapping_add(distance.cast_unsigned());
        return emitter.builder.ins().iconst(I64, i64::from(address));
    }
    if distance == 0 {
        return emitter.get_wide(reg);
    }
    let (base, distance) = (emitter.get(reg), emitter.constant(distance.cast_unsigned()));
    let address = emitter.builder.ins().iadd(base, distance);
    emitter.builder.ins().uextend(I64, address)
}

/// Whether not all of `len` bytes at `low`, which is zero-extended, are in one range: see [`crate::jit::bounds`].
pub(super) fn beyond_bound(emitter: &mut Emitter<'_>, low: Value, len: u32) -> Value {
    let bounds = emitter.load_fixed(I64, offset_of!(State, memory.bounds));
    let page = emitter.builder.ins().ushr_imm_u(low, i64::from(PAGE.trailing_zeros()));
    let entry = emitter.builder.ins().ishl_imm_u(page, 2);
    let entry = emitter.builder.ins().iadd(bounds, entry);
    // Not `uload32`: Cranelift neither moves nor merges that.
    let beyond = emitter.builder.ins().load(I32, FIXED, entry, 0);
    if len == WORD {
        let low = emitter.builder.ins().ireduce(I32, low);
        return emitter.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, low, beyond);
    }
    let beyond = emitter.builder.ins().uextend(I64, beyond);
    // In 64 bits only the first few addresses wrap, at which nothing is: the result refuses them.
    let low = emitter.builder.ins().iadd_imm_s(low, i64::from(len) - i64::from(WORD));
    emitter.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, low, beyond)
}

/// The value that an instruction loads from memory, zero-extended to 64 bits.
fn load_guest(emitter: &mut Emitter<'_>, op: Op, Host(base, at): Host) -> Value {
    let ins = emitter.builder.ins();
    let value = match op {
        Op::Lb => ins.sload8(I32, GUEST, base, at),
        Op::Lh => ins.sload16(I32, GUEST, base, at),
        Op::Lbu => ins.uload8(I64, GUEST, base, at),
        Op::Lhu => ins.uload16(I64, GUEST, base, at),
        // Not `load`: that may become an operand of another instruction, to which its fault would be attributed.
        _ => ins.uload32(GUEST, base, at),
    };
    seen_by_others(emitter);
    if matches!(op, Op::Lb | Op::Lh) { emitter.builder.ins().uextend(I64, value) } else { value }
}

fn store_guest(emitter: &mut Emitter<'_>, op: Op, value: Value, Host(base, at): Host) {
    let ins = emitter.builder.ins();
    match op {
        Op::Sb => ins.istore8(GUEST, value, base, at),
        Op::Sh => ins.istore16(GUEST, value, base, at),
        _ => ins.store(GUEST, value, base, at),
    };
    seen_by_others(emitter);
}

/// Keeps the last access to guest memory from being merged with a later one, or removed because of one. Other threads
/// write and read there, a task may be ended before the later access, and each access has a fault of its own. Cranelift
/// knows nothing of that (`alias_analysis.rs`; its option to disable the pass has no effect). No code is emitted.
pub(super) fn seen_by_others(emitter: &mut Emitter<'_>) {
    emitter.builder.ins().sequence_point();
}

/// Continues in a block that only a part of the code emitted so far leads to.
fn enter_way(emitter: &mut Emitter<'_>, block: cranelift_codegen::ir::Block) {
    emitter.builder.switch_to_block(block);
    emitter.begin_block();
}

fn load_either(emitter: &mut Emitter<'_>, inst: &Inst) {
    let address = guest_address(emitter, inst);
    let [device, plain, joined] = either(emitter, address);
    emitter.builder.append_block_param(joined, I64);
    emitter.builder.switch_to_block(device);
    let value = device_load(emitter, inst, address);
    let value = emitter.builder.ins().uextend(I64, value);
    emitter.builder.ins().jump(joined, &[value.into()]);
    enter_way(emitter, plain);
    let host = memory(emitter, inst);
    let value = load_guest(emitter, inst.op, host);
    emitter.builder.ins().jump(joined, &[value.into()]);
    emitter.builder.seal_block(joined);
    enter_way(emitter, joined);
    let value = emitter.builder.block_params(joined)[0];
    emitter.set_wide(inst.rd, value);
    recheck_limit(emitter);
}

fn store_either(emitter: &mut Emitter<'_>, inst: &Inst) {
    let (address, value) = (guest_address(emitter, inst), emitter.get(inst.rs2));
    let [device, plain, joined] = either(emitter, address);
    emitter.builder.switch_to_block(device);
    device_store(emitter, inst, address, value, true);
    emitter.builder.ins().jump(joined, &[]);
    enter_way(emitter, plain);
    let host = memory(emitter, inst);
    store_guest(emitter, inst.op, value, host);
    emitter.builder.ins().jump(joined, &[]);
    emitter.builder.seal_block(joined);
    enter_way(emitter, joined);
    recheck_limit(emitter);
}
