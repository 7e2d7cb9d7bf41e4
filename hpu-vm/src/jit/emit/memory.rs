//! Loads and stores.
//!
//! The view catches what is not mapped: a guest address is an offset in it. An instruction's immediate goes
//! into the host's addressing mode unchecked, since below and above the 4 GiB nothing is mapped either, nor are the first
//! and last pages: what wraps around in the guest faults on both sides.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{self, InstBuilder, Value};
use spin_abi::map::{DRIVER_BASE, HANDLER_ARGS, PAGE, TASK_BLOCK};
use spin_abi::regs::{TASK_END, TASK_FIRST};

use super::{Emitter, FIXED, GUEST, offset};
use crate::device::{self, is_device};
use crate::inst::{Format, Inst, Op, Reg};
use crate::jit::accesses::{Place, may_be_device, size};
use crate::jit::bounds::WORD;
use crate::jit::commands;
use crate::jit::plan::Block;
use crate::jit::state::State;

/// From a task's arguments to its registers, in the [block](crate::jit::TaskDescriptor) that describes it.
pub(super) const TASK_POINTER: i32 = HANDLER_ARGS as i32 - TASK_BLOCK as i32;

/// How far an immediate reaches.
const MOST_AWAY: i32 = 1 << 11;

/// A host address: base and constant offset.
#[derive(Clone, Copy)]
pub(super) struct Host(pub(super) Value, pub(super) i32);

/// What an instruction accesses.
pub(super) enum Access {
    /// Memory.
    Memory(Host),
    /// A device, for certain.
    Device,
    /// A device, if it is one: only known when it runs.
    Either,
}

impl Emitter<'_> {
    pub(super) fn load(&mut self, inst: &Inst) {
        if self.task_pointer == Some(self.index) {
            if self.exact() {
                // For the accesses too that are near this one.
                self.check_span(inst);
            }
            // What is reached by the pointer is reached by that of the arguments.
            let argument = self.registers.get_wide(&mut self.builder, self.state, Reg::A0);
            self.host(self.accesses.place(self.index), Reg::A0);
            // It is not negative: arguments are above the block. So it is computed anew wherever it is wanted, or part of addresses.
            let value = self.builder.ins().iadd_imm_s(argument, i64::from(TASK_POINTER));
            return self.set_wide(inst.rd, value);
        }
        if self.reads_in_place(inst) {
            let host = self.in_place(inst);
            let value = self.load_guest(inst.op, host);
            return self.set_wide(inst.rd, value);
        }
        match self.access(inst) {
            Access::Memory(host) => {
                let value = self.load_guest(inst.op, host);
                self.set_wide(inst.rd, value);
            }
            Access::Device => {
                let value = if commands::issues(inst, &self.known) {
                    self.issue(inst)
                } else {
                    let address = self.guest_address(inst);
                    self.device_load(inst, address)
                };
                self.set(inst.rd, value);
                self.recheck_limit();
            }
            Access::Either => self.load_either(inst),
        }
    }

    /// The index of the instruction of a block that loads the pointer from a task's arguments to its registers, as it was when the task
    /// began.
    pub(super) fn task_pointer(&self, block: &Block) -> Option<usize> {
        if !self.options.described || !self.begins_task {
            return None;
        }
        // Other loads may be of devices, which may copy something there.
        let keeps = |inst: &Inst| match inst.op.format() {
            format if format.computes() => inst.rd != Reg::A0,
            Format::Load => inst.rs1 == Reg::A0 && inst.rd != Reg::A0,
            _ => false,
        };
        let loads = |inst: &Inst| inst.op == Op::Lw && inst.rs1 == Reg::A0 && inst.imm == 0;
        let index = block.body.iter().position(|(_, decoded)| loads(&decoded.inst))?;
        block.body[..index].iter().all(|(_, before)| keeps(&before.inst)).then_some(index)
    }

    pub(super) fn store(&mut self, inst: &Inst) {
        if let Some(at) = commands::register(inst, &self.known) {
            let value = self.get(inst.rs2);
            self.registers.stored().note(at / 4, value, self.known.constant(inst.rs2));
            if self.hides_commands {
                return;
            }
        }
        match self.access(inst) {
            Access::Memory(host) => {
                let value = self.get(inst.rs2);
                self.store_guest(inst.op, value, host);
            }
            Access::Device => {
                let (address, value) = (self.guest_address(inst), self.get(inst.rs2));
                let may_wait = self.may_wait(inst);
                self.device_store(inst, address, value, may_wait);
                self.recheck_limit();
            }
            Access::Either => self.store_either(inst),
        }
    }

    /// Finds out what an instruction accesses, and emits the checks.
    fn access(&mut self, inst: &Inst) -> Access {
        let width = size(inst).unwrap_or(4);
        if let Some(address) = self.known.address(inst) {
            if let Some(at) = commands::register(inst, &self.known) {
                self.begins.command = true;
                return Access::Memory(Host(self.state, offset(offset_of!(State, hart.command) + at)));
            }
            return match self.task_register(address, width) {
                Some(host) => Access::Memory(host),
                None if is_device(address) => Access::Device,
                None => Access::Memory(self.memory(inst)),
            };
        }
        if may_be_device(inst, &self.known, self.any_device) {
            return Access::Either;
        }
        Access::Memory(self.memory(inst))
    }

    /// Whether a store to a device at a known address waits for a command.
    fn may_wait(&self, inst: &Inst) -> bool {
        let width = size(inst).unwrap_or(4);
        self.known.address(inst).is_some_and(|address| device::waits(address, width))
    }

    /// The task registers, whose address in the driver page stands for that of the plain memory they are in.
    pub(super) fn task_register(&mut self, address: u32, width: u32) -> Option<Host> {
        let at = address.wrapping_sub(DRIVER_BASE + TASK_FIRST);
        if at > TASK_END - TASK_FIRST - width {
            return None;
        }
        let task = self.load_fixed(I32, offset_of!(State, memory.task_base));
        let task = self.builder.ins().uextend(I64, task);
        Some(Host(self.builder.ins().iadd(self.base, task), offset(at as usize)))
    }

    /// Where a memory access goes, checked if checks are exact.
    pub(super) fn memory(&mut self, inst: &Inst) -> Host {
        if self.exact() {
            self.check_span(inst);
        }
        if let Some(address) = self.known.address(inst) {
            if let Ok(address) = i32::try_from(address) {
                return Host(self.base, address);
            }
            let address = self.builder.ins().iconst(I64, i64::from(address));
            return Host(self.builder.ins().iadd(self.base, address), 0);
        }
        let place = self.accesses.place(self.index);
        if let Some(host) = place.and_then(|place| self.near(place, inst.imm)) {
            return host;
        }
        Host(self.host(place, inst.rs1), inst.imm)
    }

    /// The host address of what a register points to: a place that others may be near to.
    fn host(&mut self, place: Option<Place>, reg: Reg) -> Value {
        let address = self.registers.get_wide(&mut self.builder, self.state, reg);
        let host = self.builder.ins().iadd(self.base, address);
        if let Some(place) = place {
            self.registers.add_host(place, host);
        }
        host
    }

    /// The host address of what is `imm` bytes from a place, by that of another of its root: as far away as an immediate could
    /// say, since what wraps around has to fault.
    fn near(&self, place: Place, imm: i32) -> Option<Host> {
        let (host, distance) = self.registers.host_near(place)?;
        let at = distance.checked_add(imm)?;
        (-MOST_AWAY..MOST_AWAY).contains(&at).then_some(Host(host, at))
    }

    /// The guest address of an access.
    pub(super) fn guest_address(&mut self, inst: &Inst) -> Value {
        let base = self.get(inst.rs1);
        let imm = self.constant(inst.imm.cast_unsigned());
        self.builder.ins().iadd(base, imm)
    }

    /// Checks that this access and those of the block that go by the same base lie in one range. If not, the interpreter
    /// finds out which of them is the first that does not.
    fn check_span(&mut self, inst: &Inst) {
        if let Some(refused) = self.beyond_span(inst) {
            self.retreat_if(refused);
        }
    }

    /// Whether they do not; `None` when an earlier check says that they do.
    pub(super) fn beyond_span(&mut self, inst: &Inst) -> Option<Value> {
        let span = self.accesses.span(self.index)?;
        let low = self.address_wide(inst.rs1, inst.imm.wrapping_add(span.from));
        Some(self.beyond_bound(low, span.len))
    }

    /// The guest address `distance` from what a register holds, extended with zeroes.
    pub(super) fn address_wide(&mut self, reg: Reg, distance: i32) -> Value {
        if let Some(base) = self.known.constant(reg) {
            let address = base.wrapping_add(distance.cast_unsigned());
            return self.builder.ins().iconst(I64, i64::from(address));
        }
        let wide = self.registers.get_wide(&mut self.builder, self.state, reg);
        let narrow = self.get(reg);
        self.moved_wide((narrow, wide), distance)
    }

    /// The guest address `distance` from another one (as 32 bits and extended with zeroes), extended with zeroes.
    pub(super) fn moved_wide(&mut self, (narrow, wide): (Value, Value), distance: i32) -> Value {
        if distance == 0 {
            return wide;
        }
        let distance = self.constant(distance.cast_unsigned());
        let address = self.builder.ins().iadd(narrow, distance);
        self.builder.ins().uextend(I64, address)
    }

    /// Whether not all of `len` bytes at `low`, which is extended with zeroes, are in one range, see [`crate::jit::bounds`].
    pub(super) fn beyond_bound(&mut self, low: Value, len: u32) -> Value {
        let bounds = self.load_fixed(I64, offset_of!(State, memory.bounds));
        let page = self.builder.ins().ushr_imm_u(low, i64::from(PAGE.trailing_zeros()));
        let entry = self.builder.ins().ishl_imm_u(page, 2);
        let entry = self.builder.ins().iadd(bounds, entry);
        // Not `uload32`: that is never taken out of a loop, nor one for two.
        let beyond = self.builder.ins().load(I32, FIXED, entry, 0);
        if len == WORD {
            let low = self.builder.ins().ireduce(I32, low);
            return self.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, low, beyond);
        }
        let beyond = self.builder.ins().uextend(I64, beyond);
        // In 64 bits nothing wraps but the first few addresses, at which there is nothing: what they come to is refused.
        let low = self.builder.ins().iadd_imm_s(low, i64::from(len) - i64::from(WORD));
        self.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, low, beyond)
    }

    /// What an instruction loads from memory, extended with zeroes to 64 bits.
    fn load_guest(&mut self, op: Op, Host(base, at): Host) -> Value {
        let ins = self.builder.ins();
        let value = match op {
            Op::Lb => ins.sload8(I32, GUEST, base, at),
            Op::Lh => ins.sload16(I32, GUEST, base, at),
            Op::Lbu => ins.uload8(I64, GUEST, base, at),
            Op::Lhu => ins.uload16(I64, GUEST, base, at),
            // Not `load`: that may become an operand of another instruction, where a fault would be taken for that one's,
            // or for nobody's.
            _ => ins.uload32(GUEST, base, at),
        };
        self.seen_by_others();
        if matches!(op, Op::Lb | Op::Lh) { self.builder.ins().uextend(I64, value) } else { value }
    }

    fn store_guest(&mut self, op: Op, value: Value, Host(base, at): Host) {
        let ins = self.builder.ins();
        match op {
            Op::Sb => ins.istore8(GUEST, value, base, at),
            Op::Sh => ins.istore16(GUEST, value, base, at),
            _ => ins.store(GUEST, value, base, at),
        };
        self.seen_by_others();
    }

    /// Keeps an access to guest memory, the last one, from standing for a later one, and from being left out for the sake of one. Other
    /// threads write there and look there, a task may be ended before the later one, and each access has a fault of its own. Cranelift
    /// knows nothing of that (`alias_analysis.rs`; its option to go without does nothing). It is no code.
    pub(super) fn seen_by_others(&mut self) {
        self.builder.ins().sequence_point();
    }

    /// Goes on in a block that not all that was emitted before leads to.
    fn enter_way(&mut self, block: ir::Block) {
        self.builder.switch_to_block(block);
        self.registers.begin_block();
        self.retreat = None;
    }

    fn load_either(&mut self, inst: &Inst) {
        let address = self.guest_address(inst);
        let (device, memory, joined) = self.either(address);
        self.builder.append_block_param(joined, I64);
        self.builder.switch_to_block(device);
        let value = self.device_load(inst, address);
        let value = self.builder.ins().uextend(I64, value);
        self.builder.ins().jump(joined, &[value.into()]);
        self.enter_way(memory);
        let host = self.memory(inst);
        let value = self.load_guest(inst.op, host);
        self.builder.ins().jump(joined, &[value.into()]);
        self.builder.seal_block(joined);
        self.enter_way(joined);
        let value = self.builder.block_params(joined)[0];
        self.set_wide(inst.rd, value);
        self.recheck_limit();
    }

    fn store_either(&mut self, inst: &Inst) {
        let (address, value) = (self.guest_address(inst), self.get(inst.rs2));
        let (device, memory, joined) = self.either(address);
        self.builder.switch_to_block(device);
        self.device_store(inst, address, value, true);
        self.builder.ins().jump(joined, &[]);
        self.enter_way(memory);
        let host = self.memory(inst);
        self.store_guest(inst.op, value, host);
        self.builder.ins().jump(joined, &[]);
        self.builder.seal_block(joined);
        self.enter_way(joined);
        self.recheck_limit();
    }
}
