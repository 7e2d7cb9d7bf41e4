//! Where a region is entered: at the handler's first instruction, at the points of a shared region, and where parked tasks
//! continue.

use std::collections::HashMap;
use std::mem::offset_of;

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{self, InstBuilder, Value};
use cranelift_frontend::Switch;
use spin_abi::map::RETURN_ADDRESS;

use super::access::{TRUSTED, offset};
use super::counters::load_count;
use super::emitter::{Emitter, Resume};
use super::vector_registers::zeroes;
use crate::analysis::regs::Regs;
use crate::device::CommandRegisters;
use crate::hart::UNRESERVED;
use crate::inst::Reg;
use crate::jit::prologue::Prologue;
use crate::jit::state::{ExitReason, Request, State};
use crate::vector::VLEN_BYTES;
use crate::vector::vtype::VILL;

// They are zeroed in pieces of this size.
const _: () = assert!(size_of::<CommandRegisters>().is_multiple_of(VLEN_BYTES as usize));

/// Emits what precedes the blocks: the start of the body, and the points of a shared region.
pub(super) fn enter(emitter: &mut Emitter<'_>) {
    load_count(emitter);
    let start = emitter.blocks.start;
    emitter.builder.ins().jump(start, &[]);
}

/// Parks the task here if others want its thread. It continues behind this, so that it reads once more what it waits for,
/// even when it is asked to park at once.
pub(super) fn poll(emitter: &mut Emitter<'_>) {
    let here = emitter.builder.create_block();
    let live = emitter.known().unknown(emitter.live());
    emitter.resumes.push(Resume { here, live, known: emitter.known().constants().collect() });
    // A region has fewer instructions than a u32 has numbers.
    let number = u32::try_from(emitter.input.cfg.points().len() + emitter.resumes.len()).unwrap_or(u32::MAX);
    let wanted = emitter.load_state(I32, offset_of!(State, request) + Request::PARK_OFFSET);
    emitter.unlikely(wanted, |emitter| {
        let pc = emitter.constant(emitter.at.pc);
        emitter.store_state(pc, offset_of!(State, hart.pc));
        emitter.publish_count();
        emitter.save(live);
        emitter.vectors.save_all(&mut emitter.builder, emitter.state);
        let number = emitter.constant(number);
        emitter.store_state(number, offset_of!(State, resume));
        emitter.leave(ExitReason::Parked);
    });
    emitter.publish(Regs::ALL);
    emitter.builder.ins().jump(here, &[]);
    emitter.builder.switch_to_block(here);
    emitter.begin_block();
}

/// Emits the dispatch to all points where the region is entered.
pub(super) fn dispatch_entries(emitter: &mut Emitter<'_>) {
    let start = emitter.blocks.start;
    emitter.builder.switch_to_block(start);
    emitter.builder.set_srcloc(ir::SourceLoc::default());
    let resumes = std::mem::take(&mut emitter.resumes);
    if !emitter.input.cfg.begins_task() {
        load_registers(emitter);
        let resume = emitter.load_state(I32, offset_of!(State, resume));
        let nothing = emitter.constant(0);
        emitter.store_state(nothing, offset_of!(State, resume));
        return dispatch_resumes(emitter, resume, resumes);
    }
    let begin = emitter.builder.create_block();
    if resumes.is_empty() {
        begin_at(emitter, begin);
    } else {
        let resume = emitter.load_state(I32, offset_of!(State, resume));
        let dispatch = emitter.builder.create_block();
        emitter.builder.set_cold_block(dispatch);
        emitter.builder.ins().brif(resume, dispatch, &[], begin, &[]);
        emitter.builder.switch_to_block(dispatch);
        let nothing = emitter.constant(0);
        emitter.store_state(nothing, offset_of!(State, resume));
        dispatch_resumes(emitter, resume, resumes);
    }
    emitter.builder.switch_to_block(begin);
    begin_task(emitter);
}

/// Loads the registers that are live at any point of a shared region: once, since there may be many points.
fn load_registers(emitter: &mut Emitter<'_>) {
    let (points, facts) = (emitter.input.cfg.points(), emitter.input.facts);
    let live = points.iter().fold(Regs(0), |live, &point| live.or(facts.live(point, 0)));
    emitter.begin_block();
    live.iter().for_each(|reg| emitter.reload(reg));
    emitter.publish(live);
    emitter.vectors.load_all(&mut emitter.builder, emitter.state);
}

/// Goes to where a task begins. A function without any way to its fault return could not be stopped.
fn begin_at(emitter: &mut Emitter<'_>, begin: ir::Block) {
    if emitter.ways.are_used() && !emitter.input.forces_exit {
        emitter.builder.ins().jump(begin, &[]);
    } else {
        let (state, fault_return) = (emitter.state, emitter.ways.fault_return);
        emitter.builder.ins().brif(state, begin, &[], fault_return, &[]);
    }
}

/// Emits the dispatch by the number of the resume point; 1 is the first. The points of a shared region come first.
fn dispatch_resumes(emitter: &mut Emitter<'_>, number: Value, resumes: Vec<Resume>) {
    let mut constants = HashMap::new();
    for &(_, value) in resumes.iter().flat_map(|resume| &resume.known) {
        constants.entry(value).or_insert_with(|| emitter.builder.ins().iconst(I64, i64::from(value)));
    }
    let mut switch = Switch::new();
    let stubs: Vec<_> = resumes.iter().map(|_| emitter.builder.create_block()).collect();
    stubs.iter().for_each(|&stub| emitter.builder.set_cold_block(stub));
    let points = emitter.input.cfg.points().iter().map(|&point| emitter.blocks.of[point]);
    for (number, block) in (1..).zip(points.chain(stubs.iter().copied())) {
        switch.set_entry(number, block);
    }
    let nowhere = emitter.ways.fault_return;
    switch.emit(&mut emitter.builder, number, nowhere);
    for (stub, resume) in stubs.into_iter().zip(resumes) {
        emitter.builder.switch_to_block(stub);
        emitter.begin_block();
        resume.live.iter().for_each(|reg| emitter.reload(reg));
        emitter.publish(resume.live);
        for (reg, value) in &resume.known {
            emitter.registers.define(&mut emitter.builder, *reg, constants[value]);
        }
        emitter.vectors.load_all(&mut emitter.builder, emitter.state);
        load_count(emitter);
        emitter.builder.ins().jump(resume.here, &[]);
    }
}

/// Emits the start of a task: registers as at the handler's first instruction.
fn begin_task(emitter: &mut Emitter<'_>) {
    emitter.begin_block();
    for reg in Regs::ALL.iter() {
        let value = match reg {
            Reg::A0 => emitter.argument,
            // Many handlers use neither, and only ways out that are seldom taken need them.
            Reg::SP => load_initial(emitter, offset_of!(State, initial.sp)),
            Reg::TP => load_initial(emitter, offset_of!(State, initial.tp)),
            Reg::RA => emitter.builder.ins().iconst(I64, i64::from(RETURN_ADDRESS)),
            Reg::GP => {
                let pointer = emitter.input.code.global_pointer();
                emitter.builder.ins().iconst(I64, i64::from(pointer))
            }
            _ => emitter.builder.ins().iconst(I64, 0),
        };
        emitter.registers.define(&mut emitter.builder, reg, value);
    }
    let prologue = emitter.ways.prologue;
    reset_state(emitter, prologue);
    emitter.vectors.zero(&mut emitter.builder);
    let first = emitter.blocks.of[0];
    emitter.builder.ins().jump(first, &[]);
}

/// Resets the parts of the state that the region uses.
fn reset_state(emitter: &mut Emitter<'_>, prologue: Prologue) {
    if prologue.command {
        let zero = zeroes(&mut emitter.builder);
        let first = offset_of!(State, hart.command);
        for at in (0..size_of::<CommandRegisters>()).step_by(VLEN_BYTES as usize) {
            emitter.builder.ins().store(TRUSTED, zero, emitter.state, offset(first + at));
        }
    }
    if prologue.reservation {
        let none = emitter.constant(UNRESERVED);
        emitter.store_state(none, offset_of!(State, hart.reserved_address));
    }
    if prologue.vectors {
        let (none, illegal) = (emitter.constant(0), emitter.constant(VILL));
        emitter.store_state(none, offset_of!(State, hart.vector.vl));
        emitter.store_state(illegal, offset_of!(State, hart.vector.vtype));
    }
}

/// An initial register value, zero-extended.
fn load_initial(emitter: &mut Emitter<'_>, at: usize) -> Value {
    let value = emitter.load_fixed(I32, at);
    emitter.builder.ins().uextend(I64, value)
}
