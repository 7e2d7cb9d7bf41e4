//! The place of an access: which memory it may be in, and the checks that it is. Each access is checked to the byte.

use spin_abi::map::{PACKET_WINDOW, STACK_WINDOW, TASK_BLOCK};

use super::emitter::{END, Emitter, R0, R1, STACK};
use super::frame::{DATA, LENGTH, SLOT};
use super::stub::{Kind, Stub};
use crate::address::AddressMap;
use crate::analysis::dataflow::PointsTo;
use crate::bpf::insn::{Alu, Condition, Insn, Label, Size};
use crate::bpf::layout::{L1_PACKET, Layout, Range};
use crate::bpf::options::L1Packet;
use crate::inst::{Inst, Reg};

/// Memory that an access may be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    Stack {
        len: u32,
    },
    /// The packet in L2, or in L1 while it is the frame.
    Frame {
        base: u32,
    },
    /// The copy of the packet in L1.
    Copy,
    Shared(Range),
}

impl Region {
    const fn base(self, layout: &Layout) -> u32 {
        match self {
            Self::Stack { .. } => layout.stack(),
            Self::Frame { base } => base,
            Self::Copy => layout.l1_packet(),
            Self::Shared(range) => range.base,
        }
    }

    /// Number of bytes, or the most that there can be.
    const fn len(self) -> u32 {
        match self {
            Self::Stack { len } => len,
            Self::Frame { .. } | Self::Copy => PACKET_WINDOW,
            Self::Shared(range) => range.len,
        }
    }
}

/// An access of an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access<'i> {
    pub(super) inst: &'i Inst,
    pub(super) kind: Kind,
    pub(super) size: Size,
}

/// The address of an access, if it is known: a constant, or at a known distance from the initial stack pointer. Aliases
/// are resolved.
pub(super) fn known_address(emitter: &Emitter<'_>, inst: &Inst, len: u32) -> Option<u32> {
    let layout = emitter.input.layout;
    let known = emitter.known();
    let stack = || {
        let distance = known.stack().filter(|_| inst.rs1 == Reg::SP)?;
        Some(layout.task().wrapping_add_signed(distance).wrapping_add_signed(inst.imm))
    };
    let address = known.address(inst).or_else(stack)?;
    let mut addresses = AddressMap::default();
    addresses.set_l1(layout.machine.l1_base(layout.hpu.0), layout.machine.l1_size);
    addresses.set_task(layout.task());
    Some(addresses.canonical(address, len))
}

/// Emits the way to the bytes of an access. `access` is emitted once for each memory that they may be in, with their
/// address in R1 and an offset. It may overwrite R0 and R1.
pub(super) fn reach(emitter: &mut Emitter<'_>, access: Access<'_>, emit: &mut dyn FnMut(&mut Emitter<'_>, i16)) {
    match known_address(emitter, access.inst, access.size.bytes()) {
        Some(address) => reach_known(emitter, access, address, emit),
        None => {
            emitter.address_into(R0, access.inst);
            let regions = regions(emitter, access);
            reach_one_of(emitter, access, &regions, emit);
        }
    }
}

fn reach_known(
    emitter: &mut Emitter<'_>,
    access: Access<'_>,
    address: u32,
    emit: &mut dyn FnMut(&mut Emitter<'_>, i16),
) {
    let (layout, len) = (emitter.input.layout, access.size.bytes());
    if access.kind.is_aligned() && address & 3 != 0 {
        let misaligned = misaligned(emitter, access);
        return emitter.asm.jump(misaligned);
    }
    if let Some(at) = within(layout.stack(), stack_len(layout, access.kind), address, len) {
        emitter.asm.load(Size::Double, R1, STACK, SLOT);
        return emit(emitter, i16::try_from(at).unwrap_or_else(|_| unreachable!("a window has few bytes")));
    }
    let mut ranges = layout.ranges.iter().filter(|range| range.writable || access.kind.reads_only());
    if let Some((map, offset)) = ranges.find_map(|range| Some((range.map, range.offset_of(address, len)?))) {
        emitter.asm.push(Insn::MapValue { to: R1, map, offset });
        return emit(emitter, 0);
    }
    emitter.constant(R0, address);
    let regions =
        all_regions(emitter, access).into_iter().filter(|region| matches!(region, Region::Frame { .. } | Region::Copy));
    let regions: Vec<Region> = regions.collect();
    reach_one_of(emitter, access, &regions, emit);
}

/// Bytes of the stack window that an access may be in: handlers may not write to task registers that the program relies
/// on.
const fn stack_len(layout: &Layout, kind: Kind) -> u32 {
    if kind.reads_only() || layout.own_task { STACK_WINDOW } else { STACK_WINDOW - TASK_BLOCK }
}

/// The offset of `len` bytes at an address in `room` bytes from `base` on, if they are there.
fn within(base: u32, room: u32, address: u32, len: u32) -> Option<u32> {
    address.checked_sub(base).filter(|&at| room >= len && at <= room - len)
}

/// Regions that an access is looked for in: the one that its pointer most likely points to, or all.
fn regions(emitter: &Emitter<'_>, access: Access<'_>) -> Vec<Region> {
    let layout = emitter.input.layout;
    let all = all_regions(emitter, access);
    let is_likely = |region: &Region| match (emitter.known().points_to(access.inst.rs1), region) {
        (None, _) | (Some(PointsTo::Stack), Region::Stack { .. }) => true,
        (Some(PointsTo::Packet), Region::Frame { base }) => *base == layout.l1_packet(),
        (Some(PointsTo::Packet), Region::Copy) => true,
        (Some(PointsTo::L2Packet), Region::Frame { base }) => *base == layout.l2_packet(),
        (Some(PointsTo::HandlerMemory), Region::Shared(range)) => range.contains(layout.machine.handler_mem_base),
        _ => false,
    };
    let likely: Vec<Region> = all.iter().copied().filter(is_likely).collect();
    if likely.is_empty() { all } else { likely }
}

/// All regions that an access may be in.
fn all_regions(emitter: &Emitter<'_>, access: Access<'_>) -> Vec<Region> {
    regions_of(emitter, access.kind, access.size.bytes())
}

/// All regions that an access to `len` bytes may be in. A frame is the last one.
fn regions_of(emitter: &Emitter<'_>, kind: Kind, len: u32) -> Vec<Region> {
    let layout = emitter.input.layout;
    let may = |range: &&Range| range.writable || kind.reads_only();
    let mut all: Vec<Region> = layout.ranges.iter().filter(may).copied().map(Region::Shared).collect();
    all.push(Region::Stack { len: stack_len(layout, kind) });
    // The kernel has no atomics on packets.
    let is_plain = kind.is_plain();
    match emitter.input.flow.l1 {
        Some(L1Packet::Copied) => all.push(Region::Copy),
        Some(L1Packet::InPlace) if kind == Kind::Load && !emitter.done().packet_written => {
            all.push(Region::Frame { base: layout.l1_packet() });
        }
        _ => {}
    }
    if is_plain {
        all.push(Region::Frame { base: layout.l2_packet() });
    }
    all.retain(|region| region.len() >= len);
    all
}

/// Looks for the address in R0 in one region after the other.
fn reach_one_of(
    emitter: &mut Emitter<'_>,
    access: Access<'_>,
    regions: &[Region],
    emit: &mut dyn FnMut(&mut Emitter<'_>, i16),
) {
    let miss = miss(emitter, access);
    if access.kind.is_aligned() {
        let misaligned = misaligned(emitter, access);
        emitter.asm.branch32(Condition::AnySet, R0, 3, misaligned);
    }
    find(emitter, access.size.bytes(), regions, miss, emit);
}

/// As [`reach_one_of`], for `len` bytes that a command reads.
pub(super) fn reach_bytes(
    emitter: &mut Emitter<'_>,
    len: u32,
    miss: Label,
    emit: &mut dyn FnMut(&mut Emitter<'_>, i16),
) {
    let regions = regions_of(emitter, Kind::Load, len);
    find(emitter, len, &regions, miss, emit);
}

/// Finds the region that has `len` bytes at the address in R0.
fn find(
    emitter: &mut Emitter<'_>,
    len: u32,
    regions: &[Region],
    miss: Label,
    emit: &mut dyn FnMut(&mut Emitter<'_>, i16),
) {
    let end = emitter.asm.label();
    let mut base = 0;
    for &region in regions {
        let next = emitter.asm.label();
        let start = region.base(emitter.input.layout);
        emitter.asm.alu32(Alu::Sub, R0, start.wrapping_sub(base));
        base = start;
        emitter.asm.branch64(Condition::Above, R0, region.len() - len, next);
        locate(emitter, region, len, miss);
        emit(emitter, 0);
        emitter.asm.jump(end);
        emitter.asm.bind(next);
    }
    emitter.asm.jump(miss);
    emitter.asm.bind(end);
}

/// Makes R1 the address of the byte at offset R0 of a region.
fn locate(emitter: &mut Emitter<'_>, region: Region, len: u32, miss: Label) {
    let asm = &mut emitter.asm;
    match region {
        Region::Stack { .. } => {
            asm.load(Size::Double, R1, STACK, SLOT);
            asm.alu64(Alu::Add, R1, R0);
        }
        Region::Shared(range) => {
            asm.push(Insn::MapValue { to: R1, map: range.map, offset: range.offset });
            asm.alu64(Alu::Add, R1, R0);
        }
        Region::Copy => {
            asm.load(Size::Double, R1, STACK, LENGTH);
            asm.alu64(Alu::Sub, R1, len);
            asm.branch64(Condition::Greater, R0, R1, miss);
            asm.load(Size::Double, R1, STACK, SLOT);
            asm.alu64(Alu::Add, R1, L1_PACKET);
            asm.alu64(Alu::Add, R1, R0);
        }
        Region::Frame { .. } => {
            asm.load(Size::Double, R1, STACK, DATA);
            asm.alu64(Alu::Add, R1, R0);
            asm.mov64(R0, R1);
            asm.alu64(Alu::Add, R0, len);
            asm.branch64(Condition::Above, R0, END, miss);
        }
    }
}

fn miss(emitter: &mut Emitter<'_>, access: Access<'_>) -> Label {
    let (label, written) = (emitter.asm.label(), emitter.written());
    let Access { inst, kind, size } = access;
    let (at, inst) = (emitter.at, *inst);
    emitter.stubs.push(Stub::Miss { label, at, inst, kind, size, written });
    label
}

fn misaligned(emitter: &mut Emitter<'_>, access: Access<'_>) -> Label {
    let label = emitter.asm.label();
    emitter.stubs.push(Stub::Misaligned { label, at: emitter.at, inst: *access.inst, kind: access.kind });
    label
}
