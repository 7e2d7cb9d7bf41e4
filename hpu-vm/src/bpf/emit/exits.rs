//! The ends of the program: what is recorded and counted, and the result for the kernel.

use spin_abi::verdict::{Fate, Verdict};

use super::emitter::{Emitter, R0, R1, STACK};
use super::frame::{BUDGET, COMMANDS, CONTEXT, GRANTED, Home, LENGTH, PC, SENT, SLOT, WRITTEN};
use super::rights;
use crate::bpf::insn::{Alu, Condition, Helper, Insn, Label, Operand, Register, Size};
use crate::bpf::layout::{Counter, FAULT_ENTRY, FAULT_RING, FAULTS, Outcome, PACKET_CHARGE, RECORD, Reason, Record};
use crate::inst::Reg;

/// Results of an XDP program (`enum xdp_action`).
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;

/// Offset of the queue in `struct xdp_md`.
const QUEUE: i16 = 16;

/// Emits all ends.
pub(super) fn exits(emitter: &mut Emitter<'_>) {
    let [done, discard, to_user] = [(); 3].map(|()| emitter.asm.label());
    returned(emitter, done);
    finished(emitter, done);
    faulted(emitter, done);
    left(emitter, discard, to_user);
    emitter.asm.bind(done);
    transmit(emitter, discard);
    emitter.asm.bind(discard);
    result(emitter, XDP_DROP);
    emitter.asm.bind(emitter.exits.held);
    load_slot(emitter);
    count(emitter, Counter::Held, 1);
    emitter.asm.bind(emitter.exits.no_slot);
    emitter.asm.bind(to_user);
    to_user_space(emitter);
}

fn result(emitter: &mut Emitter<'_>, action: u32) {
    emitter.asm.mov32(R0, action);
    emitter.asm.push(Insn::Exit);
}

/// Makes R1 the address of the slot.
fn load_slot(emitter: &mut Emitter<'_>) {
    emitter.asm.load(Size::Double, R1, STACK, SLOT);
}

/// Writes a field of the record in the slot at R1.
fn record(emitter: &mut Emitter<'_>, field: u32, value: impl Into<Operand>) {
    emitter.asm.store(Size::Word, R1, in_slot(RECORD + field), value);
}

fn in_slot(offset: u32) -> i16 {
    i16::try_from(offset).unwrap_or_else(|_| unreachable!("a slot has few bytes"))
}

/// Adds to a counter in the slot at R1. R0 becomes the new value.
fn count(emitter: &mut Emitter<'_>, counter: Counter, amount: impl Into<Operand>) {
    let at = in_slot(counter.offset());
    emitter.asm.load(Size::Double, R0, R1, at);
    emitter.asm.alu64(Alu::Add, R0, amount);
    emitter.asm.store(Size::Double, R1, at, R0);
}

/// What is recorded and counted of all ends. R0 and R2 are overwritten.
fn record_rest(emitter: &mut Emitter<'_>) {
    let value = Register::R2;
    emitter.asm.load(Size::Double, value, STACK, BUDGET);
    emitter.asm.store(Size::Double, R1, in_slot(RECORD + Record::BUDGET), value);
    emitter.asm.load(Size::Double, R0, STACK, GRANTED);
    emitter.asm.alu64(Alu::Sub, R0, value);
    emitter.asm.alu64(Alu::Add, R0, PACKET_CHARGE);
    emitter.asm.mov64(value, R0);
    count(emitter, Counter::Charged, value);
    emitter.asm.load(Size::Double, value, STACK, COMMANDS);
    count(emitter, Counter::Commands, value);
    emitter.asm.load(Size::Double, R0, STACK, SENT);
    record(emitter, Record::SENT, R0);
    emitter.asm.load(Size::Word, R0, STACK, PC);
    record(emitter, Record::PC, R0);
}

fn returned(emitter: &mut Emitter<'_>, done: Label) {
    emitter.asm.bind(emitter.exits.returned);
    // a0 has its home at every return.
    match emitter.homes.of(Reg::A0) {
        Some(Home::Register(home)) => emitter.asm.mov32(R0, home),
        Some(Home::Stack(at)) => emitter.asm.load(Size::Double, R0, STACK, at),
        None => emitter.asm.mov32(R0, emitter.input.layout.arguments()),
    }
    load_slot(emitter);
    record(emitter, Record::OUTCOME, Outcome::RETURNED);
    record(emitter, Record::RESULT, R0);
    if emitter.input.options.decides {
        verdict(emitter);
    }
    count(emitter, Counter::Runs, 1);
    record_rest(emitter);
    emitter.asm.jump(done);
}

/// Acts on the verdict in R0. A frame that was sent cannot be passed, too.
fn verdict(emitter: &mut Emitter<'_>) {
    let [passes, discards, bad, both, done] = [(); 5].map(|()| emitter.asm.label());
    let most = Verdict::ALL.map(Verdict::code).into_iter().max().unwrap_or(0);
    emitter.asm.branch32(Condition::Above, R0, most, bad);
    for verdict in Verdict::ALL {
        match verdict.fate() {
            Fate::Process => {}
            Fate::Pass => emitter.asm.branch32(Condition::Equal, R0, verdict.code(), passes),
            Fate::Discard => emitter.asm.branch32(Condition::Equal, R0, verdict.code(), discards),
        }
    }
    emitter.asm.jump(done);
    emitter.asm.bind(bad);
    count(emitter, Counter::BadVerdicts, 1);
    emitter.asm.jump(done);
    emitter.asm.bind(discards);
    count(emitter, Counter::Discarded, 1);
    emitter.asm.load(Size::Double, Register::R2, STACK, LENGTH);
    count(emitter, Counter::DiscardedBytes, Register::R2);
    emitter.asm.jump(done);
    emitter.asm.bind(passes);
    emitter.asm.load(Size::Double, R0, STACK, SENT);
    emitter.asm.branch64(Condition::NotEqual, R0, 0, both);
    if emitter.input.layout.replies.is_some() {
        require(emitter, rights::check_unchanged, Counter::PassForbidden, discards);
    }
    count(emitter, Counter::Runs, 1);
    count(emitter, Counter::Passed, 1);
    record_rest(emitter);
    result(emitter, XDP_PASS);
    emitter.asm.bind(both);
    emitter.asm.store(Size::Word, STACK, WRITTEN, 1);
    emitter.asm.mov32(R1, Reason::Command as u32);
    emitter.asm.jump(emitter.exits.left);
    emitter.asm.bind(done);
}

/// Emits a check, which jumps to the label that it gets if it fails. Then `counter` is counted, and `otherwise` follows, with the slot in R1.
fn require(emitter: &mut Emitter<'_>, check: impl FnOnce(&mut Emitter<'_>, Label), counter: Counter, otherwise: Label) {
    let [holds, fails] = [(); 2].map(|()| emitter.asm.label());
    check(emitter, fails);
    emitter.asm.jump(holds);
    emitter.asm.bind(fails);
    load_slot(emitter);
    count(emitter, counter, 1);
    emitter.asm.jump(otherwise);
    emitter.asm.bind(holds);
}

fn finished(emitter: &mut Emitter<'_>, done: Label) {
    emitter.asm.bind(emitter.exits.finished);
    load_slot(emitter);
    record(emitter, Record::OUTCOME, Outcome::FINISHED);
    count(emitter, Counter::Runs, 1);
    record_rest(emitter);
    emitter.asm.jump(done);
}

/// What the handler has sent is sent, as after a return.
fn faulted(emitter: &mut Emitter<'_>, done: Label) {
    let [cause, address, entry] = [2, 3, 4].map(Register::new);
    emitter.asm.bind(emitter.exits.faulted);
    emitter.asm.mov32(cause, R1);
    emitter.asm.mov32(address, R0);
    load_slot(emitter);
    record(emitter, Record::OUTCOME, Outcome::FAULTED);
    record(emitter, Record::CAUSE, cause);
    record(emitter, Record::ADDRESS, address);
    emitter.asm.load(Size::Double, entry, R1, in_slot(Counter::Faults.offset()));
    emitter.asm.alu64(Alu::And, entry, FAULTS - 1);
    emitter.asm.alu64(Alu::Mul, entry, FAULT_ENTRY);
    emitter.asm.alu64(Alu::Add, entry, R1);
    emitter.asm.store(Size::Word, entry, in_slot(FAULT_RING), cause);
    emitter.asm.load(Size::Word, R0, STACK, PC);
    emitter.asm.store(Size::Word, entry, in_slot(FAULT_RING + 4), R0);
    emitter.asm.store(Size::Word, entry, in_slot(FAULT_RING + 8), address);
    count(emitter, Counter::Faults, 1);
    count(emitter, Counter::Runs, 1);
    record_rest(emitter);
    emitter.asm.jump(done);
}

/// Only a packet that nobody has seen changed goes to user space.
fn left(emitter: &mut Emitter<'_>, discard: Label, to_user: Label) {
    let [reason, written] = [2, 3].map(Register::new);
    let lost = emitter.asm.label();
    emitter.asm.bind(emitter.exits.left);
    emitter.asm.mov32(reason, R1);
    load_slot(emitter);
    record(emitter, Record::OUTCOME, Outcome::LEFT);
    record(emitter, Record::CAUSE, reason);
    emitter.asm.load(Size::Word, written, STACK, WRITTEN);
    record(emitter, Record::ADDRESS, written);
    record_rest(emitter);
    emitter.asm.branch32(Condition::NotEqual, written, 0, lost);
    count(emitter, Counter::Left, 1);
    emitter.asm.jump(to_user);
    emitter.asm.bind(lost);
    count(emitter, Counter::Lost, 1);
    emitter.asm.jump(discard);
}

/// Sends the frame back, if the handler has sent it, with the length that it asked for.
fn transmit(emitter: &mut Emitter<'_>, discard: Label) {
    let (sent, length, same) = (Register::R2, Register::R3, emitter.asm.label());
    emitter.asm.load(Size::Double, sent, STACK, SENT);
    emitter.asm.branch64(Condition::Equal, sent, 0, discard);
    if emitter.input.layout.replies.is_some() {
        require(emitter, rights::check_reply, Counter::Forbidden, discard);
        emitter.asm.load(Size::Double, sent, STACK, SENT);
    }
    emitter.asm.load(Size::Double, length, STACK, LENGTH);
    emitter.asm.branch64(Condition::Equal, sent, length, same);
    emitter.asm.alu64(Alu::Sub, sent, length);
    emitter.asm.load(Size::Double, R1, STACK, CONTEXT);
    emitter.asm.push(Insn::Call { helper: Helper::AdjustTail });
    emitter.asm.branch64(Condition::Equal, R0, 0, same);
    load_slot(emitter);
    record(emitter, Record::OUTCOME, Outcome::LEFT);
    record(emitter, Record::CAUSE, Reason::Length as u32);
    record(emitter, Record::ADDRESS, 1);
    count(emitter, Counter::Lost, 1);
    emitter.asm.jump(discard);
    emitter.asm.bind(same);
    load_slot(emitter);
    count(emitter, Counter::Sent, 1);
    emitter.asm.load(Size::Double, Register::R2, STACK, SENT);
    count(emitter, Counter::SentBytes, Register::R2);
    result(emitter, XDP_TX);
}

/// Gives the packet to the socket of its queue. Without one it goes to the kernel.
fn to_user_space(emitter: &mut Emitter<'_>) {
    let Some(sockets) = emitter.input.options.sockets else { return result(emitter, XDP_PASS) };
    emitter.asm.load(Size::Double, R1, STACK, CONTEXT);
    emitter.asm.load(Size::Word, Register::R2, R1, QUEUE);
    emitter.asm.push(Insn::Map { to: R1, map: sockets });
    emitter.asm.mov32(Register::R3, XDP_PASS);
    emitter.asm.push(Insn::Call { helper: Helper::RedirectMap });
    emitter.asm.push(Insn::Exit);
}
