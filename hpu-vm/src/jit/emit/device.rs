//! Devices: calls of the host.

use std::collections::HashMap;
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{self, AbiParam, InstBuilder, Signature, Value};
use spin_abi::map::{
    PERIPHERALS, PERIPHERALS_SIZE, PUBLIC_DMA_BASE, PUBLIC_DMA_CLUSTERS, RETURN_ADDRESS, STDOUT_BASE, STDOUT_SIZE,
};
use spin_abi::regs::dma;

use super::{Emitter, TRUSTED, offset};
use crate::device::CommandRegisters;
use crate::hart::UNRESERVED;
use crate::inst::{Inst, Op, Reg};
use crate::jit::accesses::size;
use crate::jit::convention::PENDING;
use crate::jit::facts::{Known, Regs};
use crate::jit::prologue::Prologue;
use crate::jit::state::{ExitReason, HostCalls, Request, State};
use crate::vector::VLEN_BYTES;
use crate::vector::vtype::VILL;

// They are zeroed by so many bytes at a time.
const _: () = assert!(size_of::<CommandRegisters>().is_multiple_of(VLEN_BYTES as usize));

/// Where a parked task goes on.
pub(super) struct Resume {
    here: ir::Block,
    /// Registers that are to be loaded on the way there: those that are read from there on.
    live: Regs,
    /// What is known there, for the same.
    known: Known,
}

impl Emitter<'_> {
    /// The value that `inst` loads from the device at `address`, extended as the instruction does.
    pub(super) fn device_load(&mut self, inst: &Inst, address: Value) -> Value {
        let width = self.constant(size(inst).unwrap_or(4));
        let result = self.device_call(offset_of!(HostCalls, load), &[address, width]);
        let value = self.builder.ins().ireduce(I32, result);
        let bits = match inst.op {
            Op::Lb => 24,
            Op::Lh => 16,
            _ => return value,
        };
        let upper = self.builder.ins().ishl_imm_u(value, bits);
        self.builder.ins().sshr_imm_u(upper, bits)
    }

    /// Stores `value` to the device at `address`. It may have to wait: few do, so the interpreter goes on with those.
    pub(super) fn device_store(&mut self, inst: &Inst, address: Value, value: Value, may_wait: bool) {
        let width = self.constant(size(inst).unwrap_or(4));
        let arguments = [address, width, value];
        if !may_wait {
            self.device_call(offset_of!(HostCalls, store), &arguments);
            return;
        }
        let (result, left) = self.device_result(offset_of!(HostCalls, store), &arguments);
        let (pc, live) = (self.pc, self.live[self.index]);
        self.unlikely(left, |emitter| {
            let over = emitter.builder.ins().icmp_imm_s(IntCC::NotEqual, result, PENDING);
            emitter.unlikely(over, |emitter| emitter.end_here(result));
            emitter.wait(pc, live);
        });
    }

    /// An `ecall`: a0 to a7 are its arguments, a0 and a1 its results, as in the calling convention of RISC-V's SBI.
    pub(super) fn ecall(&mut self) {
        self.save(Regs(0xff << 10));
        let pc = self.constant(self.pc);
        self.store_state(pc, offset_of!(State, hart.pc));
        self.device_call(offset_of!(HostCalls, ecall), &[]);
        for reg in [Reg::A0, Reg::A1] {
            self.registers.reload(&mut self.builder, self.state, reg);
        }
        self.recheck_limit();
    }

    /// Blocks for an access to `address`: a device's, memory's, and where both go on.
    pub(super) fn either(&mut self, address: Value) -> (ir::Block, ir::Block, ir::Block) {
        // The device may be a command register, in a block too that stores none of its own commands' words.
        self.begins.command = true;
        self.publish(Regs::ALL);
        let blocks = [(); 3].map(|()| self.builder.create_block());
        let driver = self.lies_in(address, PERIPHERALS, PERIPHERALS_SIZE);
        let stdout = self.lies_in(address, STDOUT_BASE, STDOUT_SIZE);
        let clusters = self.constant(!PUBLIC_DMA_CLUSTERS);
        let engine = self.builder.ins().band(address, clusters);
        let engine = self.lies_in(engine, PUBLIC_DMA_BASE, dma::SIZE);
        let device = self.builder.ins().bor(driver, stdout);
        let device = self.builder.ins().bor(device, engine);
        self.fork(device, blocks[0], blocks[1]);
        (blocks[0], blocks[1], blocks[2])
    }

    pub(super) fn lies_in(&mut self, address: Value, base: u32, size: u32) -> Value {
        let base = self.constant(base.wrapping_neg());
        let at = self.builder.ins().iadd(address, base);
        self.compare(IntCC::UnsignedLessThan, at, size)
    }

    /// Calls the function at `field` of [`HostCalls`], and leaves if it says so.
    pub(super) fn device_call(&mut self, field: usize, arguments: &[Value]) -> Value {
        let (result, left) = self.device_result(field, arguments);
        self.unlikely(left, |emitter| emitter.end_here(result));
        result
    }

    /// Ends the block: the host has ended the task, and does not know where. It said so by the state's address in a
    /// [way](crate::jit::convention::task_ended): most handlers have a command last, and need not keep that beyond it.
    fn end_here(&mut self, result: Value) {
        let ended = self.ended.way(&mut self.builder);
        let (state, pc) = (self.builder.ins().bnot(result), self.constant(self.pc));
        self.builder.ins().store(TRUSTED, pc, state, offset(offset_of!(State, fault.pc)));
        self.builder.ins().jump(ended, &[]);
    }

    /// The result of the function at `field` of [`HostCalls`], and whether it says to leave.
    fn device_result(&mut self, field: usize, arguments: &[Value]) -> (Value, Value) {
        self.begins.command |= !self.hides_commands;
        self.retreat = None;
        self.registers.found.clear();
        if self.registers.in_state() {
            let pc = self.constant(self.pc);
            self.store_state(pc, offset_of!(State, hart.pc));
        }
        self.publish_count();
        let result = self.call_host(field, arguments);
        let left = self.builder.ins().icmp_imm_s(IntCC::SignedLessThan, result, 0);
        (result, left)
    }

    /// Calls the function at `field` of [`HostCalls`] with the state and `arguments`, which are 32 bits wide.
    pub(super) fn call_host(&mut self, field: usize, arguments: &[Value]) -> Value {
        let signature = *self.signatures[arguments.len()].get_or_insert_with(|| {
            let mut signature = Signature::new(self.builder.func.signature.call_conv);
            signature.params.push(AbiParam::new(I64));
            signature.params.extend(arguments.iter().map(|_| AbiParam::new(I32)));
            signature.returns.push(AbiParam::new(I64));
            self.builder.import_signature(signature)
        });
        // Not taken out of loops: there most calls are rare.
        let function = self.load_state(I64, offset_of!(State, host.calls) + field);
        let mut all = vec![self.state];
        all.extend_from_slice(arguments);
        let call = self.builder.ins().call_indirect(signature, function, &all);
        self.builder.inst_results(call)[0]
    }

    /// Parks the task here if others want the thread. It goes on behind this: so it looks once more at what it waits for, even
    /// if it is wanted away.
    pub(super) fn poll(&mut self) {
        let here = self.builder.create_block();
        let live = self.unknown(self.live[self.index]);
        self.resumes.push(Resume { here, live, known: self.known.clone() });
        // A plan has fewer instructions than a u32 has numbers.
        let number = u32::try_from(self.first_resume + self.resumes.len()).unwrap_or(u32::MAX);
        let wanted = self.load_state(I32, offset_of!(State, request) + Request::PARK_OFFSET);
        self.unlikely(wanted, |emitter| {
            let pc = emitter.constant(emitter.pc);
            emitter.store_state(pc, offset_of!(State, hart.pc));
            emitter.publish_count();
            emitter.save(live);
            emitter.save_all_vectors();
            let number = emitter.constant(number);
            emitter.store_state(number, offset_of!(State, resume));
            emitter.leave(ExitReason::Parked);
        });
        self.publish(Regs::ALL);
        self.builder.ins().jump(here, &[]);
        self.builder.switch_to_block(here);
        self.registers.begin_block();
        self.vectors.forget_firsts();
        self.retreat = None;
    }

    /// The dispatch to resume points, in front of the handler's first instruction.
    pub(super) fn resume_points(&mut self) {
        self.builder.switch_to_block(self.start);
        self.builder.set_srcloc(ir::SourceLoc::default());
        let begin = self.builder.create_block();
        let mut switch = cranelift_frontend::Switch::new();
        let (mut stubs, mut constants) = (Vec::new(), HashMap::new());
        for (number, resume) in (self.first_resume as u128 + 1..).zip(std::mem::take(&mut self.resumes)) {
            let stub = self.builder.create_block();
            self.builder.set_cold_block(stub);
            switch.set_entry(number, stub);
            stubs.push((stub, resume));
        }
        // Always the first; but a function without any way to its fault return could not be stopped.
        let anew =
            |emitter: &mut Self| emitter.builder.ins().brif(emitter.state, begin, &[], emitter.fault_return, &[]);
        if stubs.is_empty() && self.first_resume == 0 {
            if self.may_leave() {
                self.builder.ins().jump(begin, &[]);
            } else {
                anew(self);
            }
        } else {
            let dispatch = self.builder.create_block();
            self.builder.set_cold_block(dispatch);
            let resume = self.load_state(I32, offset_of!(State, resume));
            self.builder.ins().brif(resume, dispatch, &[], begin, &[]);
            self.builder.switch_to_block(dispatch);
            for (_, value) in stubs.iter().flat_map(|(_, resume)| resume.known.constants()) {
                constants.entry(value).or_insert_with(|| self.builder.ins().iconst(I64, i64::from(value)));
            }
            let other = self.builder.create_block();
            self.builder.set_cold_block(other);
            switch.emit(&mut self.builder, resume, other);
            self.builder.switch_to_block(other);
            if self.first_resume > 0 {
                // That function has the other resume points.
                self.unless_stopped();
                self.call_aside(resume);
            } else {
                anew(self);
            }
        }
        for (stub, resume) in stubs {
            self.builder.switch_to_block(stub);
            let begun = self.constant(0);
            self.store_state(begun, offset_of!(State, resume));
            self.registers.begin_block();
            for reg in resume.live.iter() {
                self.registers.reload(&mut self.builder, self.state, reg);
            }
            self.publish(resume.live);
            for (reg, value) in resume.known.constants() {
                self.registers.define(&mut self.builder, reg, constants[&value]);
            }
            self.load_all_vectors();
            self.load_count();
            self.builder.ins().jump(resume.here, &[]);
        }
        self.builder.switch_to_block(begin);
        if self.part.is_aside() {
            self.begin_aside();
        } else {
            self.begin();
        }
    }

    /// What else of a hart is as when it begins.
    pub(super) fn begin_state(&mut self, begins: Prologue) {
        if begins.command {
            let zero = self.zeroes();
            for at in (0..size_of::<CommandRegisters>()).step_by(VLEN_BYTES as usize) {
                self.store_state(zero, offset_of!(State, hart.command) + at);
            }
        }
        if begins.reservation {
            let none = self.constant(UNRESERVED);
            self.store_state(none, offset_of!(State, hart.reserved_address));
        }
        if begins.vectors {
            let (none, illegal) = (self.constant(0), self.constant(VILL));
            self.store_state(none, offset_of!(State, hart.vector.vl));
            self.store_state(illegal, offset_of!(State, hart.vector.vtype));
        }
    }

    /// What a register holds at first, extended with zeroes.
    fn load_given(&mut self, at: usize) -> Value {
        let value = self.load_fixed(I32, at);
        self.builder.ins().uextend(I64, value)
    }

    /// Registers at the handler's first instruction.
    fn begin(&mut self) {
        self.registers.begin_block();
        for reg in Regs::ALL.iter() {
            let value = match reg {
                Reg::A0 => self.argument,
                // Many handlers use neither, and only ways out that are seldom taken ask for them.
                Reg::SP => self.load_given(offset_of!(State, initial.sp)),
                Reg::TP => self.load_given(offset_of!(State, initial.tp)),
                Reg::RA => self.builder.ins().iconst(I64, i64::from(RETURN_ADDRESS)),
                Reg::GP => self.builder.ins().iconst(I64, i64::from(self.code.global_pointer())),
                _ => self.builder.ins().iconst(I64, 0),
            };
            self.registers.define(&mut self.builder, reg, value);
        }
        self.begin_state(self.begins);
        self.zero_vectors();
        let first = self.blocks[0];
        self.builder.ins().jump(first, &[]);
    }
}
