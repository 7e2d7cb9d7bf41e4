//! Code behind the blocks: accesses that were not where they were expected, and other ends of handlers.

use std::collections::BTreeMap;

use spin_abi::fault::Cause;
use spin_abi::map::{
    DRIVER_BASE, L1_ALIAS, PAGE, PERIPHERALS, PERIPHERALS_SIZE, PUBLIC_DMA_BASE, PUBLIC_DMA_CLUSTERS, STACK_WINDOW,
    STDOUT_BASE, STDOUT_SIZE,
};
use spin_abi::regs::{self, TASK_END, TASK_FIRST};

use super::emitter::{Emitter, R0, R1, STACK};
use super::frame::{LENGTH, PC, WRITTEN};
use super::stub::{Kind, Stub};
use crate::bpf::insn::{Alu, Condition, Label, Register, Size};
use crate::bpf::layout::Reason;

/// Emits all stubs, and what misses have in common.
pub(super) fn stubs(emitter: &mut Emitter<'_>) {
    let mut common: BTreeMap<(Kind, u32), (Size, Label)> = BTreeMap::new();
    for stub in std::mem::take(&mut emitter.stubs) {
        match stub {
            Stub::Miss { label, at, inst, kind, size, written } => {
                emitter.asm.bind(label);
                emitter.at = at;
                emitter.address_into(R0, &inst);
                note(emitter, at.pc, Some(written));
                let (_, to) = *common.entry((kind, size.bytes())).or_insert_with(|| (size, emitter.asm.label()));
                emitter.asm.jump(to);
            }
            Stub::Misaligned { label, at, inst, kind } => {
                emitter.asm.bind(label);
                emitter.at = at;
                emitter.address_into(R0, &inst);
                fault(emitter, at.pc, kind.misaligned());
            }
            Stub::Fault { label, pc, cause, address } => {
                emitter.asm.bind(label);
                emitter.asm.mov32(R0, address);
                fault(emitter, pc, cause);
            }
            Stub::Report { label, at, reg } => {
                emitter.asm.bind(label);
                emitter.at = at;
                emitter.get_into(R0, reg);
                fault(emitter, at.pc, Cause::Reported);
            }
            Stub::Leave { label, pc, reason, written } => {
                emitter.asm.bind(label);
                note(emitter, pc, Some(written));
                emitter.asm.mov32(R1, reason as u32);
                emitter.asm.jump(emitter.exits.left);
            }
        }
    }
    for ((kind, _), (size, label)) in common {
        emitter.asm.bind(label);
        classify(emitter, kind, size);
    }
}

fn note(emitter: &mut Emitter<'_>, pc: u32, written: Option<bool>) {
    emitter.asm.store(Size::Word, STACK, PC, pc);
    if let Some(written) = written {
        emitter.asm.store(Size::Word, STACK, WRITTEN, i32::from(written));
    }
}

/// Ends with a fault at the address in R0.
fn fault(emitter: &mut Emitter<'_>, pc: u32, cause: Cause) {
    note(emitter, pc, None);
    emitter.asm.mov32(R1, cause.code());
    emitter.asm.jump(emitter.exits.faulted);
}

/// Ends a handler that accessed the address in R0: to user space if the access is one that user space makes.
fn classify(emitter: &mut Emitter<'_>, kind: Kind, size: Size) {
    let [unexpected, aliased, device, overflow] = [(); 4].map(|()| emitter.asm.label());
    let layout = emitter.input.layout;
    for range in layout.ranges.iter().filter(|range| range.writable || kind.reads_only()) {
        if let Some(most) = range.len.checked_sub(size.bytes()) {
            if_within(emitter, range.base, most + 1, unexpected);
        }
    }
    if_within(emitter, layout.stack(), STACK_WINDOW + 1 - size.bytes(), unexpected);
    for packet in [layout.l1_packet(), layout.l2_packet()] {
        if_in_packet(emitter, packet, size, unexpected);
    }
    if_within(emitter, L1_ALIAS, layout.machine.l1_size, aliased);
    if_within(emitter, DRIVER_BASE + TASK_FIRST, TASK_END - TASK_FIRST, aliased);
    if_within(emitter, PERIPHERALS, PERIPHERALS_SIZE, device);
    if_within(emitter, STDOUT_BASE, STDOUT_SIZE, device);
    if_public_dma(emitter, device);
    if_within(emitter, layout.stack() - PAGE, PAGE, overflow);
    emitter.asm.mov32(R1, kind.refused().code());
    emitter.asm.jump(emitter.exits.faulted);
    emitter.asm.bind(overflow);
    emitter.asm.mov32(R1, Cause::StackOverflow.code());
    emitter.asm.jump(emitter.exits.faulted);
    for (label, reason) in [(unexpected, Reason::UnexpectedPointer), (aliased, Reason::Alias), (device, Reason::Device)]
    {
        emitter.asm.bind(label);
        emitter.asm.mov32(R1, reason as u32);
        emitter.asm.jump(emitter.exits.left);
    }
}

/// Jumps if the address in R0 is one of `len` from `base` on.
fn if_within(emitter: &mut Emitter<'_>, base: u32, len: u32, to: Label) {
    emitter.asm.mov32(R1, R0);
    emitter.asm.alu32(Alu::Sub, R1, base);
    emitter.asm.branch32(Condition::Below, R1, len, to);
}

/// Jumps if the bytes at the address in R0 lie in the packet's window at `base`.
fn if_in_packet(emitter: &mut Emitter<'_>, base: u32, size: Size, to: Label) {
    let room = Register::R2;
    emitter.asm.mov32(R1, R0);
    emitter.asm.alu32(Alu::Sub, R1, base);
    emitter.asm.alu64(Alu::Add, R1, size.bytes());
    emitter.asm.load(Size::Double, room, STACK, LENGTH);
    emitter.asm.branch64(Condition::BelowOrEqual, R1, room, to);
}

fn if_public_dma(emitter: &mut Emitter<'_>, to: Label) {
    emitter.asm.mov32(R1, R0);
    emitter.asm.alu32(Alu::And, R1, !PUBLIC_DMA_CLUSTERS);
    emitter.asm.alu32(Alu::Sub, R1, PUBLIC_DMA_BASE);
    emitter.asm.branch32(Condition::Below, R1, regs::dma::SIZE, to);
}
