//! Rights to send: what ordinary users' handlers may do with a frame. Only answers of a few comparisons at constant positions are made in
//! the hook: UDP over IPv4 without tags and options (`spin_matcher::Headers::plain_end`). Packets that are not of this form, or not to the
//! host, go to user space before the handler begins.

use super::emitter::{END, Emitter, R0, R1, STACK};
use super::frame::{DATA, LENGTH, SENT, SLOT};
use crate::bpf::insn::{Alu, Condition, Label, Register, Size};
use crate::bpf::layout::{RECEIVED, ReplySource};

/// The headers: Ethernet, IPv4, UDP.
const HEADERS: u32 = 42;
const ETHERTYPE: i16 = 12;
const VERSION: i16 = 14;
const TOTAL_LENGTH: i16 = 16;
const FRAGMENT: i16 = 20;
const PROTOCOL: i16 = 23;
/// Addresses and ports of the sender and of the receiver: offsets and sizes of both.
const ENDS: [(i16, i16, Size); 4] =
    [(6, 0, Size::Word), (10, 4, Size::Half), (26, 30, Size::Word), (34, 36, Size::Half)];
const SOURCE: i16 = 26;
const DESTINATION: i16 = 30;
/// First octets of addresses that are of one host: from 1 to below this.
const GROUPS: u32 = 224;

/// The frame.
const FRAME: Register = Register::R2;
const VALUE: Register = Register::R3;

/// Goes to user space with packets that handlers may not answer, and remembers sender and receiver of all others.
pub(super) fn receive(emitter: &mut Emitter<'_>, source: &ReplySource) {
    let other = emitter.exits.no_slot;
    plain(emitter, LENGTH, other);
    to_host(emitter, source, other);
    emitter.asm.load(Size::Double, R1, STACK, SLOT);
    for (from, to, size) in ENDS {
        for at in [from, to] {
            emitter.asm.load(size, VALUE, FRAME, at);
            emitter.asm.store(size, R1, received(at), VALUE);
        }
    }
}

/// Goes to `forbidden` unless the frame to send is an answer.
pub(super) fn check_reply(emitter: &mut Emitter<'_>, forbidden: Label) {
    plain(emitter, SENT, forbidden);
    compare_ends(emitter, true, forbidden);
}

/// Goes to `forbidden` unless the frame still has the addresses and ports that it had.
pub(super) fn check_unchanged(emitter: &mut Emitter<'_>, forbidden: Label) {
    plain(emitter, LENGTH, forbidden);
    compare_ends(emitter, false, forbidden);
}

/// Place in a slot of a field of the received frame.
fn received(at: i16) -> i16 {
    i16::try_from(RECEIVED).unwrap_or_else(|_| unreachable!("a slot has few bytes")) + at
}

fn compare_ends(emitter: &mut Emitter<'_>, swapped: bool, forbidden: Label) {
    emitter.asm.load(Size::Double, R1, STACK, SLOT);
    for (from, to, size) in ENDS {
        for (sent, was) in if swapped { [(from, to), (to, from)] } else { [(from, from), (to, to)] } {
            emitter.asm.load(size, R0, FRAME, sent);
            emitter.asm.load(size, VALUE, R1, received(was));
            emitter.asm.branch64(Condition::NotEqual, R0, VALUE, forbidden);
        }
    }
}

/// Makes [`FRAME`] the frame. Goes to `other` unless it is plain, and its packet ends within the length that `length` has on the stack.
fn plain(emitter: &mut Emitter<'_>, length: i16, other: Label) {
    let asm = &mut emitter.asm;
    let big = |value: u16| u32::from(value.to_be());
    asm.load(Size::Double, FRAME, STACK, DATA);
    asm.mov64(R0, FRAME);
    asm.alu64(Alu::Add, R0, HEADERS);
    asm.branch64(Condition::Above, R0, END, other);
    asm.load(Size::Half, R0, FRAME, ETHERTYPE);
    asm.branch64(Condition::NotEqual, R0, big(0x0800), other);
    asm.load(Size::Byte, R0, FRAME, VERSION);
    asm.branch64(Condition::NotEqual, R0, 0x45, other);
    asm.load(Size::Half, R0, FRAME, FRAGMENT);
    asm.alu64(Alu::And, R0, big(0x3fff));
    asm.branch64(Condition::NotEqual, R0, 0, other);
    asm.load(Size::Byte, R0, FRAME, PROTOCOL);
    asm.branch64(Condition::NotEqual, R0, 17, other);
    // The packet's end, byte by byte: its order does not depend on the machine.
    asm.load(Size::Byte, R0, FRAME, TOTAL_LENGTH);
    asm.alu64(Alu::Lsh, R0, 8);
    asm.load(Size::Byte, VALUE, FRAME, TOTAL_LENGTH + 1);
    asm.alu64(Alu::Or, R0, VALUE);
    asm.alu64(Alu::Add, R0, u32::from(VERSION.unsigned_abs()));
    asm.branch64(Condition::Below, R0, HEADERS, other);
    asm.load(Size::Double, VALUE, STACK, length);
    asm.branch64(Condition::Above, R0, VALUE, other);
}

/// Goes to `other` unless the packet is from one host to this one: [`FRAME`].
fn to_host(emitter: &mut Emitter<'_>, source: &ReplySource, other: Label) {
    let asm = &mut emitter.asm;
    for group in [0, 6] {
        asm.load(Size::Byte, R0, FRAME, group);
        asm.alu64(Alu::And, R0, 1);
        asm.branch64(Condition::NotEqual, R0, 0, other);
    }
    for address in [SOURCE, DESTINATION] {
        asm.load(Size::Byte, R0, FRAME, address);
        asm.branch64(Condition::Equal, R0, 0, other);
        asm.branch64(Condition::AboveOrEqual, R0, GROUPS, other);
    }
    let [a, b, c, d, e, f] = source.mac;
    asm.load(Size::Word, R0, FRAME, 0);
    asm.branch32(Condition::NotEqual, R0, u32::from_ne_bytes([a, b, c, d]), other);
    asm.load(Size::Half, R0, FRAME, 4);
    asm.branch32(Condition::NotEqual, R0, u32::from(u16::from_ne_bytes([e, f])), other);
    let known = asm.label();
    asm.load(Size::Word, R0, FRAME, DESTINATION);
    for address in &source.addresses {
        asm.branch32(Condition::Equal, R0, u32::from_ne_bytes(*address), known);
    }
    asm.jump(other);
    asm.bind(known);
}
