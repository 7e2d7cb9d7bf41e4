//! Device registers at known addresses: commands, the doorbell, the error register.

use spin_abi::fault::Cause;
use spin_abi::map::{DRIVER_BASE, END_OF_COMPUTATION};
use spin_abi::regs::{self, INFO_SEND};

use super::access::reach_bytes;
use super::atomics::restore_end;
use super::emitter::{END, Emitter, Input, R0, R1, STACK};
use super::frame::{COMMANDS, LENGTH, PC, SCRATCH, SENT, WORDS};
use super::stub::Stub;
use crate::bpf::command_words::{Before, Command, TYPE, index};
use crate::bpf::insn::{Alu, Condition, Insn, Label, Size};
use crate::bpf::layout::{HostRange, Reason};
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
        Command::Immediate { len } => write_immediate(emitter, len, left),
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

/// Notes the offset in host memory of `len` bytes at the command's host address.
fn find_host(emitter: &mut Emitter<'_>, host: HostRange, len: u32, left: Label) {
    let Some(most) = host.len.checked_sub(len) else { return emitter.asm.jump(left) };
    emitter.asm.load(Size::Double, R0, STACK, word(0));
    emitter.asm.push(Insn::Constant { to: R1, value: host.base });
    emitter.asm.alu64(Alu::Sub, R0, R1);
    emitter.asm.push(Insn::Constant { to: R1, value: most.into() });
    emitter.asm.branch64(Condition::Above, R0, R1, left);
    emitter.asm.store(Size::Double, STACK, SCRATCH, R0);
}

/// Makes the register of the frame's end the address of the bytes that [`find_host`] has found, until it is
/// [restored](restore_end).
fn host_address(emitter: &mut Emitter<'_>, host: HostRange) {
    emitter.asm.push(Insn::MapValue { to: END, map: host.map, offset: 0 });
    emitter.asm.load(Size::Double, R0, STACK, SCRATCH);
    emitter.asm.alu64(Alu::Add, END, R0);
}

/// Writes `len` bytes of the command's words to host memory (HostDirect).
fn write_immediate(emitter: &mut Emitter<'_>, len: u32, left: Label) {
    let Some(host) = emitter.input.layout.host else { return emitter.asm.jump(left) };
    find_host(emitter, host, len, left);
    host_address(emitter, host);
    for (at, size) in pieces(len, Size::Word) {
        emitter.asm.load(size, R0, STACK, word(3) + at);
        emitter.asm.store(size, END, at, R0);
    }
    restore_end(emitter);
}

/// Copies `len` bytes of the handler's memory to host memory, without an event.
fn copy_to_host(emitter: &mut Emitter<'_>, len: u32, left: Label) {
    let Some(host) = emitter.input.layout.host else { return emitter.asm.jump(left) };
    find_host(emitter, host, len, left);
    emitter.asm.load(Size::Word, R0, STACK, word(2));
    reach_bytes(emitter, len, left, &mut |emitter, offset| {
        host_address(emitter, host);
        for (at, size) in pieces(len, Size::Double) {
            emitter.asm.load(size, R0, R1, offset + at);
            emitter.asm.store(size, END, at, R0);
        }
        restore_end(emitter);
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
