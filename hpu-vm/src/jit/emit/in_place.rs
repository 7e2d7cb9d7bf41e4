//! Loads of the packet where it arrived: see [`in_place`].
//!
//! Whoever stores, or calls the host, may find the packet's window closed, and have the packet copied there: then it is read there. A load that
//! opens the window leaves what was read before the same in both.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};

use super::Emitter;
use super::memory::Host;
use crate::inst::{Format, Inst, Reg};
use crate::jit::accesses::{Place, Span, size};
use crate::jit::bounds::WORD;
use crate::jit::in_place;
use crate::jit::state::State;
use crate::memory::PacketSource;

/// Bytes that were found to be of the packet, or not: both ways, where all of them are is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// What their addresses are counted from.
    place: Place,
    /// Host address of that.
    host: Value,
    /// The first of them, and what is behind the last, as distances from there.
    bytes: (i32, i32),
}

/// Whether an instruction leaves the packet in L1 where it is, or what was read of it as it was: calls of the host apart.
pub(super) const fn leaves_packet(inst: &Inst) -> bool {
    let format = inst.op.format();
    format.computes() || matches!(format, Format::Load | Format::Branch | Format::J | Format::JumpRegister)
}

impl Emitter<'_> {
    /// Whether a load is of the packet, most likely, and finds out where that is.
    pub(super) fn reads_in_place(&self, inst: &Inst) -> bool {
        self.in_place.is_some() && in_place::is_of_packet(inst, &self.known)
    }

    /// Where a load of the packet goes. Those of the block that go by the same base find it out together.
    pub(super) fn in_place(&mut self, inst: &Inst) -> Host {
        let width = size(inst).unwrap_or(4);
        let place = self.accesses.place(self.index);
        if let Some(host) = place.and_then(|place| self.found(place, inst.imm, width)) {
            return host;
        }
        let Span { from, len } = self.accesses.span(self.index).unwrap_or(Span { from: 0, len: width });
        let first = inst.imm.wrapping_add(from);
        let base = self.base_of(inst.rs1, first, len);
        let address = self.registers.get_wide(&mut self.builder, self.state, inst.rs1);
        let host = self.builder.ins().iadd(base, address);
        if let Some(place) = place {
            let bytes = (first, first.saturating_add(len.cast_signed()));
            self.registers.found.push(Found { place, host, bytes });
        }
        Host(host, inst.imm)
    }

    /// What guest addresses of `len` bytes at `distance` from what a register holds are added to.
    fn base_of(&mut self, reg: Reg, distance: i32, len: u32) -> Value {
        let is_there = match len {
            WORD => self.is_word_of_packet(reg, distance),
            _ => self.is_in_packet_from(reg, distance, len),
        };
        self.base_if(is_there)
    }

    /// What guest addresses are added to if they are of the packet in L1, or are not. No branch: a processor that has guessed its way would
    /// load from anywhere, what a task without it never reaches, and show by its caches what it found.
    pub(super) fn base_if(&mut self, is_there: Value) -> Value {
        let base = self.packet_base();
        self.builder.ins().select_spectre_guard(is_there, base, self.base)
    }

    /// Whether a word at `distance` from what a register holds is of the packet in L1.
    fn is_word_of_packet(&mut self, reg: Reg, distance: i32) -> Value {
        let address = self.registers.get_wide(&mut self.builder, self.state, reg);
        let packet = self.load_fixed(I64, offset_of!(State, packet));
        // What would wrap around is far beyond the packet.
        let place = self.builder.ins().iadd(address, packet);
        let place = self.builder.ins().iadd_imm_s(place, i64::from(distance));
        let words = self.shown(offset_of!(PacketSource, words));
        self.builder.ins().icmp(IntCC::UnsignedLessThan, place, words)
    }

    /// Where `len` bytes are that are `imm` from a place, if that was found out.
    fn found(&self, place: Place, imm: i32, len: u32) -> Option<Host> {
        self.registers.found.iter().filter(|found| found.place.root == place.root).find_map(|found| {
            let at = place.distance.wrapping_sub(found.place.distance).cast_signed().checked_add(imm)?;
            let end = at.checked_add(len.cast_signed())?;
            (found.bytes.0 <= at && end <= found.bytes.1).then_some(Host(found.host, at))
        })
    }

    /// Whether `len` bytes at `distance` from what a register holds are of the packet in L1.
    pub(super) fn is_in_packet_from(&mut self, reg: Reg, distance: i32, len: u32) -> Value {
        let (address, distance) = (self.get(reg), self.constant(distance.cast_unsigned()));
        let first = self.builder.ins().iadd(address, distance);
        self.is_in_packet(first, len)
    }

    /// Whether `len` bytes at a guest address are of the packet in L1.
    pub(super) fn is_in_packet(&mut self, first: Value, len: u32) -> Value {
        let len = self.builder.ins().iconst(I64, i64::from(len));
        self.are_in_packet(first, len)
    }

    /// The same of as many as a value says, of which are fewer than 2^63.
    pub(super) fn are_in_packet(&mut self, first: Value, len: Value) -> Value {
        let packet = self.load_fixed(I64, offset_of!(State, packet));
        let packet = self.builder.ins().ireduce(I32, packet);
        let place = self.builder.ins().iadd(first, packet);
        let place = self.builder.ins().uextend(I64, place);
        let end = self.builder.ins().iadd(place, len);
        let room = self.shown(offset_of!(PacketSource, len));
        self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, room)
    }

    /// What guest addresses of the packet in L1 are added to.
    pub(super) fn packet_base(&mut self) -> Value {
        self.shown(offset_of!(PacketSource, base))
    }

    /// A field of what is shown, which changes when the packet is copied to its window.
    fn shown(&mut self, field: usize) -> Value {
        self.load_state(I64, offset_of!(State, shown) + field)
    }
}
