//! What the program does before the handler: finds frame and slot, sets the guest's registers.

use spin_abi::map::{PACKET_WINDOW, RETURN_ADDRESS, STACK_WINDOW, TASK_BLOCK};
use spin_abi::regs;

use super::emitter::{END, Emitter, R0, R1, STACK};
use super::frame::{self, Home};
use super::rights;
use crate::bpf::insn::{Alu, Condition, Helper, Insn, Register, Size};
use crate::bpf::layout::{ALLOWANCE, Counter, L1_PACKET, Maps, SLOT, THREAD_POINTER};
use crate::bpf::options::L1Packet;
use crate::hart::UNRESERVED;
use crate::inst::Reg;

/// Offsets in `struct xdp_md`.
const FRAME_START: i16 = 0;
const FRAME_END: i16 = 4;

/// Emits the entrance, behind which the handler's first block is emitted.
pub(super) fn entrance(emitter: &mut Emitter<'_>) {
    find_frame(emitter);
    find_slot(emitter);
    if let Some(source) = &emitter.input.layout.replies {
        rights::receive(emitter, source);
    }
    clear(emitter);
    if !emitter.input.layout.own_task {
        describe(emitter);
    }
    if emitter.input.flow.l1 == Some(L1Packet::Copied) {
        copy_packet(emitter);
    }
    set_registers(emitter);
}

fn find_frame(emitter: &mut Emitter<'_>) {
    let asm = &mut emitter.asm;
    asm.store(Size::Double, STACK, frame::CONTEXT, R1);
    asm.load(Size::Word, Register::R2, R1, FRAME_START);
    asm.load(Size::Word, END, R1, FRAME_END);
    asm.store(Size::Double, STACK, frame::DATA, Register::R2);
    asm.mov64(Register::R3, END);
    asm.alu64(Alu::Sub, Register::R3, Register::R2);
    asm.branch64(Condition::Above, Register::R3, PACKET_WINDOW, emitter.exits.no_slot);
    asm.store(Size::Double, STACK, frame::LENGTH, Register::R3);
}

/// The processor's slot, if its allowance is not used up.
fn find_slot(emitter: &mut Emitter<'_>) {
    let layout = emitter.input.layout;
    let most = layout.processors.min(layout.max_processors());
    let asm = &mut emitter.asm;
    asm.push(Insn::Call { helper: Helper::Processor });
    asm.branch64(Condition::AboveOrEqual, R0, most, emitter.exits.no_slot);
    if layout.host_queue.is_some() {
        asm.store(Size::Double, STACK, frame::PROCESSOR, R0);
    }
    asm.alu64(Alu::Mul, R0, SLOT);
    asm.push(Insn::MapValue { to: R1, map: Maps::SLOTS, offset: 0 });
    asm.alu64(Alu::Add, R1, R0);
    asm.store(Size::Double, STACK, frame::SLOT, R1);
    let [charged, allowance] = [2, 3].map(Register::new);
    asm.load(Size::Double, charged, R1, in_slot(Counter::Charged.offset()));
    asm.load(Size::Double, allowance, R1, in_slot(ALLOWANCE));
    asm.branch64(Condition::AboveOrEqual, charged, allowance, emitter.exits.held);
}

/// Sets what the program keeps in its frame.
fn clear(emitter: &mut Emitter<'_>) {
    let asm = &mut emitter.asm;
    asm.push(Insn::MapValue { to: R1, map: Maps::CONFIGURATION, offset: 0 });
    for (field, slot) in [(Maps::BUDGET, frame::BUDGET), (Maps::BUDGET, frame::GRANTED), (Maps::ZERO, frame::ZERO)] {
        asm.load(Size::Double, R0, R1, i16::try_from(field).unwrap_or(0));
        asm.store(Size::Double, STACK, slot, R0);
    }
    for slot in [frame::SENT, frame::PC, frame::COMMANDS, frame::RESERVED_VALUE] {
        asm.store(Size::Double, STACK, slot, 0);
    }
    asm.store(Size::Double, STACK, frame::RESERVED_ADDRESS, UNRESERVED);
    for pair in 0..frame::WORD_COUNT / 2 {
        asm.store(Size::Double, STACK, frame::WORDS + 8 * pair, 0);
    }
}

/// Writes the packet's size to its task register.
fn describe(emitter: &mut Emitter<'_>) {
    emitter.asm.load(Size::Double, R1, STACK, frame::SLOT);
    emitter.asm.load(Size::Double, R0, STACK, frame::LENGTH);
    let at = in_slot(STACK_WINDOW - TASK_BLOCK + regs::PACKET_SIZE - regs::TASK_FIRST);
    emitter.asm.store(Size::Word, R1, at, R0);
}

fn in_slot(offset: u32) -> i16 {
    i16::try_from(offset).unwrap_or_else(|_| unreachable!("the stack window is at the slot's start"))
}

/// Copies the frame to the packet's window in L1: in pieces of 64 bytes, then 8, then 1. The offset comes from a zero
/// that the verifier does not know, so that it finds all iterations of a loop alike.
fn copy_packet(emitter: &mut Emitter<'_>) {
    const PIECES: [(u32, Size); 3] = [(64, Size::Double), (8, Size::Double), (1, Size::Byte)];
    let [from, to, offset, data, window] = [2, 3, 4, 5, 6].map(Register::new);
    let asm = &mut emitter.asm;
    let done = asm.label();
    asm.load(Size::Double, data, STACK, frame::DATA);
    asm.load(Size::Double, window, STACK, frame::SLOT);
    asm.load(Size::Double, offset, STACK, frame::ZERO);
    for (piece, size) in PIECES {
        let [again, next] = [(); 2].map(|()| asm.label());
        asm.bind(again);
        asm.branch64(Condition::Above, offset, PACKET_WINDOW - piece, next);
        asm.mov64(from, data);
        asm.alu64(Alu::Add, from, offset);
        asm.mov64(R0, from);
        asm.alu64(Alu::Add, R0, piece);
        asm.branch64(Condition::Above, R0, END, next);
        asm.mov64(to, window);
        asm.alu64(Alu::Add, to, offset);
        for at in (0..piece).step_by(size.bytes() as usize) {
            let [at_from, at_to] = [at, L1_PACKET + at].map(in_slot);
            asm.load(size, R1, from, at_from);
            asm.store(size, to, at_to, R1);
        }
        asm.alu64(Alu::Add, offset, piece);
        asm.push(Insn::MayGoto { to: done });
        asm.jump(again);
        asm.bind(next);
    }
    asm.bind(done);
}

fn set_registers(emitter: &mut Emitter<'_>) {
    let layout = emitter.input.layout;
    let value = |reg: Reg| match reg {
        Reg::RA => RETURN_ADDRESS,
        Reg::SP => layout.task(),
        Reg::GP => emitter.input.code.global_pointer(),
        Reg::A0 => layout.arguments(),
        _ => 0,
    };
    let homes: Vec<_> = emitter.homes.all().map(|(reg, home)| (reg, home, value(reg))).collect();
    for (reg, home, value) in homes {
        let to = if let Home::Register(home) = home { home } else { R0 };
        if reg == Reg::TP {
            emitter.asm.load(Size::Double, R1, STACK, frame::SLOT);
            emitter.asm.load(Size::Word, to, R1, in_slot(THREAD_POINTER));
        } else {
            emitter.constant(to, value);
        }
        if let Home::Stack(offset) = home {
            emitter.asm.store(Size::Double, STACK, offset, R0);
        }
    }
}
