//! Loads and stores.
//!
//! The view catches what is not mapped: a guest address is an offset in it. An instruction's immediate goes
//! into the host's addressing mode unchecked, since below and above the 4 GiB nothing is mapped either, nor are the first
//! and last pages: what wraps around in the guest faults on both sides.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{self, InstBuilder, Value};
use spin_abi::map::{DRIVER_BASE, PAGE};
use spin_abi::regs::{COMMAND_ISSUE, TASK_END, TASK_FIRST};

use super::{Emitter, GUEST, TRUSTED, offset};
use crate::device::{CommandRegisters, is_device};
use crate::inst::{Inst, Op};
use crate::jit::accesses::{may_be_device, size};
use crate::jit::state::State;

/// A host address: base and constant offset.
#[derive(Clone, Copy)]
pub(super) struct Host(pub(super) Value, pub(super) i32);

/// How bytes compare with their page's bound; numbers are doubled, as in the table.
pub(super) struct Beyond {
    pub(super) beyond: Value,
    /// Address of the table's entry.
    entry: Value,
    bound: Value,
    /// Of the bytes, from the page's start.
    end: Value,
}

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
        match self.access(inst) {
            Access::Memory(host) => {
                let value = self.load_guest(inst.op, host);
                self.set(inst.rd, value);
            }
            Access::Device => {
                let again = self.resume_point();
                let value = if self.issues(inst) {
                    self.device_issue(again)
                } else {
                    let address = self.guest_address(inst);
                    self.device_load(inst, address, again)
                };
                self.set(inst.rd, value);
                self.recheck_limit();
            }
            Access::Either => self.load_either(inst),
        }
    }

    pub(super) fn store(&mut self, inst: &Inst) {
        match self.access(inst) {
            Access::Memory(host) => {
                let value = self.get(inst.rs2);
                self.store_guest(inst.op, value, host);
            }
            Access::Device => {
                let again = self.resume_point();
                let address = self.guest_address(inst);
                let value = self.get(inst.rs2);
                self.device_store(inst, address, value, again);
                self.recheck_limit();
            }
            Access::Either => self.store_either(inst),
        }
    }

    /// Finds out what an instruction accesses, and emits the checks.
    fn access(&mut self, inst: &Inst) -> Access {
        let width = size(inst).unwrap_or(4);
        if let Some(base) = self.known.constant(inst.rs1) {
            let address = base.wrapping_add(inst.imm.cast_unsigned());
            if let Some(at) = CommandRegisters::offset(address, width) {
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

    /// Whether a load from a device at a known address issues a command.
    fn issues(&self, inst: &Inst) -> bool {
        let address = self.known.constant(inst.rs1).map(|base| base.wrapping_add(inst.imm.cast_unsigned()));
        inst.op == Op::Lw && address == Some(DRIVER_BASE + COMMAND_ISSUE)
    }

    /// The task registers, whose address in the driver page stands for that of the plain memory they are in.
    pub(super) fn task_register(&mut self, address: u32, width: u32) -> Option<Host> {
        let at = address.wrapping_sub(DRIVER_BASE + TASK_FIRST);
        if at > TASK_END - TASK_FIRST - width {
            return None;
        }
        let task = self.load_state(I32, offset_of!(State, task_base));
        let task = self.builder.ins().uextend(I64, task);
        Some(Host(self.builder.ins().iadd(self.base, task), offset(at as usize)))
    }

    /// Where a memory access goes, checked if checks are exact.
    pub(super) fn memory(&mut self, inst: &Inst) -> Host {
        if self.exact() {
            self.check_span(inst);
        }
        if let Some(base) = self.known.constant(inst.rs1) {
            let address = base.wrapping_add(inst.imm.cast_unsigned());
            if let Ok(address) = i32::try_from(address) {
                return Host(self.base, address);
            }
            let address = self.builder.ins().iconst(I64, i64::from(address));
            return Host(self.builder.ins().iadd(self.base, address), 0);
        }
        let address = self.get(inst.rs1);
        let address = self.builder.ins().uextend(I64, address);
        Host(self.builder.ins().iadd(self.base, address), inst.imm)
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
        let Some(span) = self.accesses.span(self.index) else { return };
        let address = self.guest_address(inst);
        let from = self.constant(span.from.cast_unsigned());
        let low = self.builder.ins().iadd(address, from);
        let refused = self.beyond_page_bound(low, span.len);
        let [aside, go_on, outside] = [(); 3].map(|()| self.builder.create_block());
        self.builder.set_cold_block(aside);
        self.builder.set_cold_block(outside);
        self.builder.ins().brif(refused.beyond, aside, &[], go_on, &[]);
        self.builder.switch_to_block(aside);
        let inside = self.goes_on_in_next_page(&refused);
        self.builder.ins().brif(inside, go_on, &[], outside, &[]);
        self.builder.switch_to_block(outside);
        let pc = self.constant(self.pc);
        let live = self.live[self.index];
        self.interpret(pc, live);
        self.builder.switch_to_block(go_on);
    }

    /// Compares `len` bytes at `low` with the bound of their page, see [`crate::jit::bounds`].
    pub(super) fn beyond_page_bound(&mut self, low: Value, len: u32) -> Beyond {
        let bounds = self.load_state(I64, offset_of!(State, bounds));
        let page = self.builder.ins().ushr_imm_u(low, i64::from(PAGE.trailing_zeros()));
        let page = self.builder.ins().uextend(I64, page);
        let entry = self.builder.ins().ishl_imm_u(page, 1);
        let entry = self.builder.ins().iadd(bounds, entry);
        let bound = self.builder.ins().uload16(I32, TRUSTED, entry, 0);
        let twice = self.builder.ins().ishl_imm_u(low, 1);
        let mask = self.constant(2 * PAGE - 1);
        let start = self.builder.ins().band(twice, mask);
        let end = self.builder.ins().iadd_imm_s(start, i64::from(2 * len));
        let beyond = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, end, bound);
        Beyond { beyond, entry, bound, end }
    }

    /// Whether bytes that are beyond their first page's bound lie in the same range of the next page.
    fn goes_on_in_next_page(&mut self, Beyond { entry, bound, end, .. }: &Beyond) -> Value {
        let one = self.constant(1);
        let continued = self.builder.ins().band(*bound, one);
        let next = self.builder.ins().uload16(I32, TRUSTED, *entry, 2);
        let rest = self.builder.ins().iadd_imm_s(*end, -i64::from(2 * PAGE));
        let fits = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, rest, next);
        let fits = self.builder.ins().uextend(I32, fits);
        self.builder.ins().band(continued, fits)
    }

    fn load_guest(&mut self, op: Op, Host(base, at): Host) -> Value {
        let ins = self.builder.ins();
        match op {
            Op::Lb => ins.sload8(I32, GUEST, base, at),
            Op::Lbu => ins.uload8(I32, GUEST, base, at),
            Op::Lh => ins.sload16(I32, GUEST, base, at),
            Op::Lhu => ins.uload16(I32, GUEST, base, at),
            // Not `load`: that may become an operand of another instruction, where a fault would be taken for that one's,
            // or for nobody's.
            _ => {
                let word = ins.uload32(GUEST, base, at);
                self.builder.ins().ireduce(I32, word)
            }
        }
    }

    fn store_guest(&mut self, op: Op, value: Value, Host(base, at): Host) {
        let ins = self.builder.ins();
        match op {
            Op::Sb => ins.istore8(GUEST, value, base, at),
            Op::Sh => ins.istore16(GUEST, value, base, at),
            _ => ins.store(GUEST, value, base, at),
        };
    }

    /// Goes on in a block that not all that was emitted before leads to.
    fn enter_way(&mut self, block: ir::Block) {
        self.builder.switch_to_block(block);
        self.registers.begin_block();
    }

    fn load_either(&mut self, inst: &Inst) {
        let again = self.resume_point();
        let address = self.guest_address(inst);
        let (device, memory, joined) = self.either(address);
        self.builder.append_block_param(joined, I32);
        self.builder.switch_to_block(device);
        let value = self.device_load(inst, address, again);
        self.builder.ins().jump(joined, &[value.into()]);
        self.enter_way(memory);
        let host = self.memory(inst);
        let value = self.load_guest(inst.op, host);
        self.builder.ins().jump(joined, &[value.into()]);
        self.enter_way(joined);
        let value = self.builder.block_params(joined)[0];
        self.set(inst.rd, value);
        self.recheck_limit();
    }

    fn store_either(&mut self, inst: &Inst) {
        let again = self.resume_point();
        let (address, value) = (self.guest_address(inst), self.get(inst.rs2));
        let (device, memory, joined) = self.either(address);
        self.builder.switch_to_block(device);
        self.device_store(inst, address, value, again);
        self.builder.ins().jump(joined, &[]);
        self.enter_way(memory);
        let host = self.memory(inst);
        self.store_guest(inst.op, value, host);
        self.builder.ins().jump(joined, &[]);
        self.enter_way(joined);
        self.recheck_limit();
    }
}
