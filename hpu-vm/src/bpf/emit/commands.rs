//! Device registers at known addresses: commands, the doorbell, the error register.

use spin_abi::fault::Cause;
use spin_abi::map::{DRIVER_BASE, END_OF_COMPUTATION};
use spin_abi::regs::{self, INFO_SEND};

use super::access::reach_bytes;
use super::atomics::restore_end;
use super::emitter::{END, Emitter, Input, R0, R1, STACK};
use super::frame::{BUDGET, COMMANDS, LENGTH, PC, PROCESSOR, SENT, WORDS};
use super::stub::Stub;
use crate::bpf::command_words::{Before, Command, TYPE, index};
use crate::bpf::insn::{Alu, Condition, Insn, Label, MapIndex, Size};
use crate::bpf::layout::Reason;
use crate::bpf::queue;
use crate::inst::{Inst, Op};

/// A load from a device's register.
pub(super) fn load(emitter: &mut Emitter<'_>, inst: &Inst, address: u32) {
    if inst.op == Op::Lw
        && let Some(at) = index(address, 4).map(word)
    {
        let to = emitter.result(inst.rd, &[]);
        emitter.asm.load(Size::Word, to, STACK, at);
        return emitter.set(inst.rd, to);
    }
    match address.wrapping_sub(DRIVER_BASE) {
        regs::DOORBELL if inst.op == Op::Lw => {
            emitter.asm.store(Size::Word, STACK, PC, emitter.at.pc);
            let finished = emitter.exits.finished;
            emitter.asm.jump(finished);
        }
        regs::COMMAND_ISSUE if inst.op == Op::Lw => issue(emitter, inst),
        _ => {
            let left = emitter.leave(Reason::Device);
            emitter.asm.jump(left);
        }
    }
}

/// A store to a device's register.
pub(super) fn store(emitter: &mut Emitter<'_>, inst: &Inst, address: u32) {
    if inst.op == Op::Sw
        && let Some(at) = index(address, 4).map(word)
    {
        let value = emitter.stored(inst.rs2);
        return emitter.asm.store(Size::Word, STACK, at, value);
    }
    match address.wrapping_sub(DRIVER_BASE) {
        // Only a send is not complete when it is issued.
        regs::COMMAND_WAIT if inst.op == Op::Sw => {
            let left = emitter.leave(Reason::Command);
            emitter.asm.load(Size::Double, R0, STACK, SENT);
            emitter.asm.branch64(Condition::NotEqual, R0, 0, left);
        }
        regs::ERROR if inst.op == Op::Sw => {
            let label = emitter.asm.label();
            emitter.stubs.push(Stub::Report { label, at: emitter.at, reg: inst.rs2 });
            emitter.asm.jump(label);
        }
        _ if address == END_OF_COMPUTATION && inst.op == Op::Sw => end(emitter, inst),
        _ => {
            let left = emitter.leave(Reason::Device);
            emitter.asm.jump(left);
        }
    }
}

/// A store to the register that ends the task: of 1.
fn end(emitter: &mut Emitter<'_>, inst: &Inst) {
    let bad = emitter.fault(Cause::DeviceAccess, END_OF_COMPUTATION);
    emitter.get_into(R0, inst.rs2);
    emitter.asm.branch32(Condition::NotEqual, R0, 1, bad);
    emitter.asm.store(Size::Word, STACK, PC, emitter.at.pc);
    let finished = emitter.exits.finished;
    emitter.asm.jump(finished);
}

/// Issues the command in the registers. User space makes those that the program does not make.
fn issue(emitter: &mut Emitter<'_>, inst: &Inst) {
    let left = emitter.leave(Reason::Command);
    match before(emitter).command(emitter.input.layout) {
        Command::Send { certain } => {
            if !certain {
                require(emitter, TYPE, INFO_SEND, left);
            }
            send(emitter, left);
        }
        Command::Immediate => write_immediate(emitter, left),
        Command::Copy { len } => copy_to_host(emitter, len, left),
        Command::Other => return emitter.asm.jump(left),
    }
    emitter.asm.load(Size::Double, R0, STACK, COMMANDS);
    emitter.asm.alu64(Alu::Add, R0, 1);
    emitter.asm.store(Size::Double, STACK, COMMANDS, R0);
    emitter.set(inst.rd, R0);
}

/// The block up to the instruction in progress.
fn before<'i>(emitter: &Emitter<'i>) -> Before<'i> {
    let Input { cfg, facts, .. } = emitter.input;
    Before { cfg, facts, block: emitter.at.block, index: emitter.at.index }
}

/// Place in the program's stack of a word of the command.
fn word(index: usize) -> i16 {
    WORDS + 4 * i16::try_from(index).unwrap_or_else(|_| unreachable!("there are few words"))
}

/// Goes to `left` unless a word of the command has this value.
fn require(emitter: &mut Emitter<'_>, index: usize, value: u32, left: Label) {
    if before(emitter).word(index) != Some(value) {
        emitter.asm.load(Size::Word, R0, STACK, word(index));
        emitter.asm.branch32(Condition::NotEqual, R0, value, left);
    }
}

fn send(emitter: &mut Emitter<'_>, left: Label) {
    // No queue pair, no host memory; from the packet's start.
    require(emitter, 1, 0, left);
    require(emitter, 3, 0, left);
    require(emitter, 2, emitter.input.layout.l2_packet(), left);
    // One frame only.
    emitter.asm.load(Size::Double, R0, STACK, SENT);
    emitter.asm.branch64(Condition::NotEqual, R0, 0, left);
    emitter.asm.load(Size::Word, R0, STACK, word(4));
    emitter.asm.branch32(Condition::Below, R0, MIN_FRAME, left);
    emitter.asm.load(Size::Double, R1, STACK, LENGTH);
    emitter.asm.branch64(Condition::Above, R0, R1, left);
    emitter.asm.store(Size::Double, STACK, SENT, R0);
}

/// Makes the register of the frame's end the address of the processor's part of the queue, until it is [restored](restore_end). R0 is
/// overwritten.
fn queue_part(emitter: &mut Emitter<'_>, queue: MapIndex) {
    emitter.asm.push(Insn::MapValue { to: END, map: queue, offset: 0 });
    emitter.asm.load(Size::Double, R0, STACK, PROCESSOR);
    emitter.asm.alu64(Alu::Mul, R0, queue::PART);
    emitter.asm.alu64(Alu::Add, END, R0);
}

/// Takes the command from the budget. Goes to `left` if that is used up, or no entry of the queue is free.
fn require_room(emitter: &mut Emitter<'_>, queue: MapIndex, left: Label) {
    emitter.asm.load(Size::Double, R0, STACK, BUDGET);
    emitter.asm.branch64(Condition::Below, R0, queue::ITERATIONS, left);
    emitter.asm.alu64(Alu::Sub, R0, queue::ITERATIONS);
    emitter.asm.store(Size::Double, STACK, BUDGET, R0);
    queue_part(emitter, queue);
    emitter.asm.load(Size::Double, R0, END, in_part(queue::WRITTEN));
    emitter.asm.load(Size::Double, R1, END, in_part(queue::READ));
    emitter.asm.alu64(Alu::Sub, R0, R1);
    restore_end(emitter);
    emitter.asm.branch64(Condition::AboveOrEqual, R0, queue::ENTRIES, left);
}

/// Writes the words to the next entry, and has `data` write the rest to [`END`] with an offset. R1 is left to that.
fn write_entry(emitter: &mut Emitter<'_>, queue: MapIndex, data: &mut dyn FnMut(&mut Emitter<'_>, i16)) {
    queue_part(emitter, queue);
    emitter.asm.load(Size::Double, R0, END, in_part(queue::WRITTEN));
    emitter.asm.alu64(Alu::And, R0, queue::ENTRIES - 1);
    emitter.asm.alu64(Alu::Mul, R0, queue::ENTRY);
    emitter.asm.alu64(Alu::Add, END, R0);
    let first = in_part(queue::FIRST);
    for at in (0..in_part(queue::DATA)).step_by(8) {
        emitter.asm.load(Size::Double, R0, STACK, WORDS + at);
        emitter.asm.store(Size::Double, END, first + at, R0);
    }
    data(emitter, first + in_part(queue::DATA));
    queue_part(emitter, queue);
    // User space reads the entry once it sees the number. x86 keeps the order of stores.
    emitter.asm.load(Size::Double, R0, END, in_part(queue::WRITTEN));
    emitter.asm.alu64(Alu::Add, R0, 1);
    emitter.asm.store(Size::Double, END, in_part(queue::WRITTEN), R0);
    restore_end(emitter);
}

fn in_part(offset: u32) -> i16 {
    i16::try_from(offset).unwrap_or_else(|_| unreachable!("an entry has few bytes"))
}

/// Queues a write of the command's words to host memory (HostDirect).
fn write_immediate(emitter: &mut Emitter<'_>, left: Label) {
    let Some(queue) = emitter.input.layout.host_queue else { return emitter.asm.jump(left) };
    require_room(emitter, queue, left);
    write_entry(emitter, queue, &mut |_, _| {});
}

/// Queues a copy of `len` bytes of the handler's memory to host memory.
fn copy_to_host(emitter: &mut Emitter<'_>, len: u32, left: Label) {
    let Some(queue) = emitter.input.layout.host_queue else { return emitter.asm.jump(left) };
    require_room(emitter, queue, left);
    emitter.asm.load(Size::Word, R0, STACK, word(2));
    reach_bytes(emitter, len, left, &mut |emitter, offset| {
        write_entry(emitter, queue, &mut |emitter, to| {
            for (at, size) in pieces(len, Size::Double) {
                emitter.asm.load(size, R0, R1, offset + at);
                emitter.asm.store(size, END, to + at, R0);
            }
        });
    });
}

/// Divides `len` bytes into accesses of at most `most`: offsets and sizes.
fn pieces(len: u32, most: Size) -> impl Iterator<Item = (i16, Size)> {
    let mut at = 0;
    let sizes = [Size::Double, Size::Word, Size::Half, Size::Byte].into_iter();
    let sizes = sizes.filter(move |size| size.bytes() <= most.bytes());
    sizes.flat_map(move |size| {
        let count = (len - at) / size.bytes();
        let start = at;
        at += count * size.bytes();
        (0..count).map(move |index| (i16::try_from(start + index * size.bytes()).unwrap_or(i16::MAX), size))
    })
}

/// Bytes of an Ethernet header, the shortest frame that is sent.
const MIN_FRAME: u32 = 14;
