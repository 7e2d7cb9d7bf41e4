//! Atomics on shared memory and the stack. LR and SC are a load and a compare-and-exchange with the value that was loaded,
//! as in the interpreter.

use super::access::{Access, reach};
use super::emitter::{END, Emitter, R0, R1, STACK};
use super::frame::{CONTEXT, RESERVED_ADDRESS, RESERVED_VALUE, SCRATCH};
use super::stub::Kind;
use crate::bpf::insn::{Atomic, Condition, Insn, Size};
use crate::hart::UNRESERVED;
use crate::inst::{Inst, Op};

/// Offset of the frame's end in `struct xdp_md`.
const FRAME_END: i16 = 4;

pub(super) fn load_reserved(emitter: &mut Emitter<'_>, inst: &Inst) {
    let access = Access { inst, kind: Kind::LoadReserved, size: Size::Word };
    reach(emitter, access, &mut |emitter, offset| {
        emitter.get_into(R0, inst.rs1);
        emitter.asm.store(Size::Double, STACK, RESERVED_ADDRESS, R0);
        emitter.asm.load(Size::Word, R0, R1, offset);
        emitter.asm.store(Size::Double, STACK, RESERVED_VALUE, R0);
        emitter.set(inst.rd, R0);
    });
}

pub(super) fn atomic(emitter: &mut Emitter<'_>, inst: &Inst) {
    let access = Access { inst, kind: Kind::Atomic, size: Size::Word };
    reach(emitter, access, &mut |emitter, offset| match inst.op {
        Op::ScW => store_conditional(emitter, inst, offset),
        Op::AmominW => exchange_for(emitter, inst, offset, Condition::LessOrEqual),
        Op::AmomaxW => exchange_for(emitter, inst, offset, Condition::GreaterOrEqual),
        Op::AmominuW => exchange_for(emitter, inst, offset, Condition::BelowOrEqual),
        Op::AmomaxuW => exchange_for(emitter, inst, offset, Condition::AboveOrEqual),
        _ => {
            let op = match inst.op {
                Op::AmoswapW => Atomic::Exchange,
                Op::AmoaddW => Atomic::Add,
                Op::AmoxorW => Atomic::Xor,
                Op::AmoandW => Atomic::And,
                _ => Atomic::Or,
            };
            emitter.get_into(R0, inst.rs2);
            emitter.asm.push(Insn::Atomic { op, base: R1, offset, reg: R0 });
            emitter.set(inst.rd, R0);
        }
    });
}

/// Stores if the reservation is for this word and the word still has the reserved value.
fn store_conditional(emitter: &mut Emitter<'_>, inst: &Inst, offset: i16) {
    let [failed, end] = [(); 2].map(|()| emitter.asm.label());
    with_third(emitter, |emitter| {
        emitter.get_into(END, inst.rs1);
        emitter.asm.load(Size::Double, R0, STACK, RESERVED_ADDRESS);
        emitter.asm.store(Size::Double, STACK, RESERVED_ADDRESS, UNRESERVED);
        emitter.asm.branch64(Condition::NotEqual, R0, END, failed);
        emitter.get_into(END, inst.rs2);
        emitter.asm.load(Size::Double, R0, STACK, RESERVED_VALUE);
        emitter.asm.push(Insn::Atomic { op: Atomic::CompareExchange, base: R1, offset, reg: END });
        emitter.asm.load(Size::Double, R1, STACK, RESERVED_VALUE);
        emitter.asm.branch64(Condition::NotEqual, R0, R1, failed);
        emitter.asm.mov32(R0, 0);
        emitter.asm.jump(end);
        emitter.asm.bind(failed);
        emitter.asm.mov32(R0, 1);
        emitter.asm.bind(end);
    });
    emitter.set(inst.rd, R0);
}

/// Exchanges the word for the operand, unless the word `keeps` its value. The comparison is of the word with the operand.
fn exchange_for(emitter: &mut Emitter<'_>, inst: &Inst, offset: i16, keeps: Condition) {
    let [again, exchange] = [(); 2].map(|()| emitter.asm.label());
    let stopped = emitter.leave(crate::bpf::layout::Reason::Command);
    with_third(emitter, |emitter| {
        emitter.asm.bind(again);
        emitter.asm.load(Size::Word, R0, R1, offset);
        emitter.asm.store(Size::Double, STACK, SCRATCH, R0);
        emitter.get_into(END, inst.rs2);
        emitter.asm.branch32(Condition::Equal, R0, END, exchange);
        let replaces = emitter.asm.label();
        emitter.asm.branch32(inverse(keeps), R0, END, replaces);
        emitter.asm.mov32(END, R0);
        emitter.asm.bind(replaces);
        emitter.asm.bind(exchange);
        emitter.asm.push(Insn::Atomic { op: Atomic::CompareExchange, base: R1, offset, reg: END });
        emitter.asm.load(Size::Double, END, STACK, SCRATCH);
        // Another processor changed it meanwhile.
        let done = emitter.asm.label();
        emitter.asm.branch64(Condition::Equal, R0, END, done);
        emitter.asm.push(Insn::MayGoto { to: stopped });
        emitter.asm.jump(again);
        emitter.asm.bind(done);
    });
    emitter.set(inst.rd, R0);
}

const fn inverse(condition: Condition) -> Condition {
    match condition {
        Condition::LessOrEqual => Condition::Greater,
        Condition::GreaterOrEqual => Condition::Less,
        Condition::BelowOrEqual => Condition::Above,
        _ => Condition::Below,
    }
}

/// Emits code that uses the register of the frame's end for something else, and restores it.
fn with_third(emitter: &mut Emitter<'_>, emit: impl FnOnce(&mut Emitter<'_>)) {
    emit(emitter);
    restore_end(emitter);
}

/// Loads the end of the frame again.
pub(super) fn restore_end(emitter: &mut Emitter<'_>) {
    emitter.asm.load(Size::Double, END, STACK, CONTEXT);
    emitter.asm.load(Size::Word, END, END, FRAME_END);
}
