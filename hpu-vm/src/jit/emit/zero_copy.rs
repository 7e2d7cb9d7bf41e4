//! Loads from the packet where it arrived: see [`crate::jit::passes`].
//!
//! Stores and calls of the host may find the packet's window closed, and have the packet copied there: from then on it is
//! read there. A load that opens the window leaves the bytes that were read before equal in both places.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};

use super::access::Host;
use super::emitter::Emitter;
use crate::analysis::regs::size;
use crate::inst::{Format, Inst, Reg};
use crate::jit::bounds::WORD;
use crate::jit::passes::{CheckRange, is_of_packet};
use crate::jit::state::State;
use crate::memory::PacketSource;

/// Whether an instruction leaves the packet in L1 and its location as they are. Calls of the host are considered apart.
pub(super) const fn leaves_packet(inst: &Inst) -> bool {
    let format = inst.op.format();
    format.computes() || matches!(format, Format::Load | Format::Branch | Format::J | Format::JumpRegister)
}

/// Whether a load is most likely from the packet and is to find out where that is.
pub(super) fn reads_in_place(emitter: &Emitter<'_>, inst: &Inst) -> bool {
    emitter.input.plan.zero_copy.is_some() && is_of_packet(inst, emitter.known())
}

/// The location of a load from the packet. Loads of the block with the same value number find it out together.
pub(super) fn read_in_place(emitter: &mut Emitter<'_>, inst: &Inst) -> Host {
    let width = size(inst).unwrap_or(4);
    let (number, checks) = (emitter.number(), &emitter.input.plan.checks);
    let place = number.and_then(|number| checks.place(number));
    if let Some(host) = place.and_then(|place| emitter.cache.packet_near(place, inst.imm, width)) {
        return host;
    }
    let range = number.and_then(|number| checks.range(number));
    let CheckRange { from, len } = range.unwrap_or(CheckRange { from: 0, len: width });
    let first = inst.imm.wrapping_add(from);
    let base = base_of(emitter, inst.rs1, first, len);
    let address = emitter.get_wide(inst.rs1);
    let host = emitter.builder.ins().iadd(base, address);
    if let Some(place) = place {
        emitter.cache.add_packet(place, host, (first, first.saturating_add(len.cast_signed())));
    }
    Host(host, inst.imm)
}

/// What guest addresses of `len` bytes at `distance` from what a register holds are added to.
///
/// There is no branch: a processor that speculates on one would load from anywhere, also what a task without the packet
/// never reaches, and reveal in its caches what it found.
fn base_of(emitter: &mut Emitter<'_>, reg: Reg, distance: i32, len: u32) -> Value {
    let is_there = match len {
        WORD => is_word_of_packet(emitter, reg, distance),
        _ => {
            let (address, distance) = (emitter.get(reg), emitter.constant(distance.cast_unsigned()));
            let first = emitter.builder.ins().iadd(address, distance);
            is_in_packet(emitter, first, len)
        }
    };
    let base = packet_base(emitter);
    emitter.builder.ins().select_spectre_guard(is_there, base, emitter.base)
}

/// Whether a word at `distance` from what a register holds belongs to the packet in L1.
fn is_word_of_packet(emitter: &mut Emitter<'_>, reg: Reg, distance: i32) -> Value {
    let address = emitter.get_wide(reg);
    let packet = emitter.load_fixed(I64, offset_of!(State, packet.negated_address));
    // A sum that would wrap around is far beyond the packet.
    let place = emitter.builder.ins().iadd(address, packet);
    let place = emitter.builder.ins().iadd_imm_s(place, i64::from(distance));
    let words = load_source(emitter, offset_of!(PacketSource, words));
    emitter.builder.ins().icmp(IntCC::UnsignedLessThan, place, words)
}

/// Whether `len` bytes at a guest address belong to the packet in L1.
pub(super) fn is_in_packet(emitter: &mut Emitter<'_>, first: Value, len: u32) -> Value {
    let packet = emitter.load_fixed(I64, offset_of!(State, packet.negated_address));
    let packet = emitter.builder.ins().ireduce(I32, packet);
    let place = emitter.builder.ins().iadd(first, packet);
    let place = emitter.builder.ins().uextend(I64, place);
    let end = emitter.builder.ins().iadd_imm_u(place, i64::from(len));
    let room = load_source(emitter, offset_of!(PacketSource, len));
    emitter.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, room)
}

/// What guest addresses of the packet in L1 are added to.
pub(super) fn packet_base(emitter: &mut Emitter<'_>) -> Value {
    load_source(emitter, offset_of!(PacketSource, base))
}

/// A field of the packet's location, which changes when the packet is copied to its window.
fn load_source(emitter: &mut Emitter<'_>, field: usize) -> Value {
    emitter.load_state(I64, offset_of!(State, packet.source) + field)
}
