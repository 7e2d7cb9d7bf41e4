//! Loads and stores of consecutive elements.
//!
//! The bytes of a group are moved 16 at a time. The interpreter executes stores that may only partly be allowed, since the
//! elements before the faulting one must be stored: those that cross a page, or with exact checks a range. Loads need no
//! such care: nothing sees the registers of a task that has faulted.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I8X16, I16, I32, I64, I64X2};
use cranelift_codegen::ir::{InstBuilder, Value};
use spin_abi::map::{PAGE, PERIPHERALS, PERIPHERALS_SIZE, STDOUT_BASE, STDOUT_SIZE};

use super::fallback::Touched;
use super::lanes::vector_of;
use crate::analysis::dataflow::vector::{VRegs, may_reach_device};
use crate::inst::{Inst, Reg};
use crate::jit::emit::access::{GUEST, Host};
use crate::jit::emit::device::lies_in;
use crate::jit::emit::emitter::Emitter;
use crate::jit::emit::memory::{address_wide, beyond_bound, seen_by_others};
use crate::jit::emit::vector::fallback::{call_interpreter, is_short, unless};
use crate::jit::emit::vector::lanes::{cast, grouped, set_vector_register, vector_register};
use crate::vector::{Addressing, Direction, Memory, VLEN_BYTES, VReg, Width};

/// Maximum number of bytes of an access.
const MOST: u32 = 8 * VLEN_BYTES;

/// Maximum number of elements that are stored one by one where the end of a page splits them. A call of the interpreter
/// would need all registers in the hart, which slows the code around it.
const MOST_ONE_BY_ONE: u32 = 64;

/// A contiguous access.
#[derive(Clone, Copy)]
struct Access {
    registers: u32,
    bytes: u32,
    /// Maximum number of elements, unless the number is known.
    full: Option<u32>,
}

pub(super) fn vector_memory(emitter: &mut Emitter<'_>, inst: &Inst, memory: &Memory) {
    let constant = emitter.known().constant(memory.rs1);
    let access = contiguous(emitter, memory).filter(|_| !constant.is_some_and(may_reach_device));
    let Some(access) = access else { return call_interpreter(emitter, inst) };
    if access.bytes == 0 {
        return;
    }
    let group = VRegs::group(memory.vd, access.registers);
    let none = VRegs::default();
    let writes = if memory.direction == Direction::Load { group } else { none };
    let touched = Touched { reads: group, writes };
    let address = emitter.get(memory.rs1);
    let mut slow = Vec::new();
    slow.extend(access.full.and_then(|full| is_short(emitter, full)));
    slow.extend(is_exceptional(emitter, memory, address, access.bytes));
    let split = is_split(emitter, memory, address, access.bytes);
    let one_by_one = access.bytes / memory.width.bytes() <= MOST_ONE_BY_ONE && slow.is_empty();
    if !one_by_one {
        slow.extend(split);
    }
    unless(emitter, &slow, inst, &touched, |emitter| {
        let host = vector_host(emitter, memory.rs1);
        match (memory.direction, split.filter(|_| one_by_one)) {
            (Direction::Load, _) => load_group(emitter, memory.vd, host, access.bytes),
            (Direction::Store, None) => store_group(emitter, memory.vd, host, access.bytes),
            (Direction::Store, Some(split)) => store_split(emitter, memory, host, access.bytes, split),
        }
        seen_by_others(emitter);
    });
}

/// Stores a group: one element after the other if it is `split` by the end of a page.
fn store_split(emitter: &mut Emitter<'_>, memory: &Memory, host: Host, bytes: u32, split: Value) {
    let [aside, whole, joined] = [(); 3].map(|()| emitter.builder.create_block());
    emitter.builder.set_cold_block(aside);
    emitter.fork(split, aside, whole);
    emitter.builder.switch_to_block(aside);
    store_elements(emitter, memory, host, bytes);
    emitter.builder.ins().jump(joined, &[]);
    emitter.builder.switch_to_block(whole);
    store_group(emitter, memory.vd, host, bytes);
    emitter.builder.ins().jump(joined, &[]);
    emitter.join(joined);
}

fn store_elements(emitter: &mut Emitter<'_>, memory: &Memory, Host(base, at): Host, bytes: u32) {
    let size = memory.width.bytes();
    for offset in (0..bytes).step_by(size as usize).map(u32::cast_signed) {
        let piece = Piece { register: offset.cast_unsigned() / VLEN_BYTES, offset, size };
        let value = vector_register(emitter, grouped(memory.vd, piece.register));
        let value = cast(emitter, piece.types().1, value);
        let value = emitter.builder.ins().extractlane(value, piece.lane());
        emitter.builder.ins().store(GUEST, value, base, at + offset);
    }
}

/// The access of an instruction, if it is contiguous and legal.
fn contiguous(emitter: &Emitter<'_>, memory: &Memory) -> Option<Access> {
    match memory.addressing {
        Addressing::Whole => Some(Access { registers: memory.fields, bytes: memory.fields * VLEN_BYTES, full: None }),
        Addressing::Unit if !memory.masked && memory.fields == 1 => {
            let vtype = emitter.vectors.setting.vtype()?;
            let group = vtype.group(memory.width).filter(|group| group.fits(memory.vd))?;
            let most = vtype.vlmax();
            let count = emitter.vectors.setting.vl.unwrap_or(most);
            let bytes = count * memory.width.bytes();
            Some(Access { registers: group.registers(), bytes, full: Some(most) })
        }
        _ => None,
    }
}

/// Whether the interpreter must execute an access of `bytes` at `address`.
fn is_exceptional(emitter: &mut Emitter<'_>, memory: &Memory, address: Value, bytes: u32) -> Option<Value> {
    let refused = emitter.exact().then(|| {
        let low = address_wide(emitter, memory.rs1, 0);
        beyond_bound(emitter, low, bytes)
    });
    if !(emitter.known().may_be_device(memory.rs1)
        || emitter.input.plan.any_device && !emitter.known().is_stack(memory.rs1))
    {
        return refused;
    }
    let driver = lies_in(emitter, address, PERIPHERALS - MOST, PERIPHERALS_SIZE + MOST);
    let stdout = lies_in(emitter, address, STDOUT_BASE - MOST, STDOUT_SIZE + MOST);
    let device = emitter.builder.ins().bor(driver, stdout);
    Some(refused.map_or(device, |refused| emitter.builder.ins().bor(device, refused)))
}

/// Whether a store crosses a page, so that it may fault halfway. Exact checks exclude that.
fn is_split(emitter: &mut Emitter<'_>, memory: &Memory, address: Value, bytes: u32) -> Option<Value> {
    if emitter.exact() || memory.direction == Direction::Load || bytes == 1 {
        return None;
    }
    let within = emitter.constant(PAGE - 1);
    let start = emitter.builder.ins().band(address, within);
    Some(emitter.compare(IntCC::UnsignedGreaterThan, start, PAGE - bytes))
}

fn vector_host(emitter: &mut Emitter<'_>, base: Reg) -> Host {
    let constant = emitter.known().constant(base).and_then(|address| i32::try_from(address).ok());
    if let Some(address) = constant.filter(|at| *at < i32::MAX / 2) {
        return Host(emitter.base, address);
    }
    let address = address_wide(emitter, base, 0);
    Host(emitter.builder.ins().iadd(emitter.base, address), 0)
}

fn load_group(emitter: &mut Emitter<'_>, vd: VReg, Host(base, at): Host, bytes: u32) {
    for piece in pieces(bytes) {
        let (reg, at) = (grouped(vd, piece.register), at + piece.offset);
        let value = if piece.size == VLEN_BYTES {
            emitter.builder.ins().load(I8X16, GUEST, base, at)
        } else {
            let (old, lane) = (vector_register(emitter, reg), piece.lane());
            let (scalar, vector) = piece.types();
            let old = cast(emitter, vector, old);
            let value = emitter.builder.ins().load(scalar, GUEST, base, at);
            let value = emitter.builder.ins().insertlane(old, value, lane);
            cast(emitter, I8X16, value)
        };
        set_vector_register(emitter, reg, value);
    }
}

fn store_group(emitter: &mut Emitter<'_>, vs3: VReg, Host(base, at): Host, bytes: u32) {
    for piece in pieces(bytes) {
        let value = vector_register(emitter, grouped(vs3, piece.register));
        let value = if piece.size == VLEN_BYTES {
            value
        } else {
            let value = cast(emitter, piece.types().1, value);
            emitter.builder.ins().extractlane(value, piece.lane())
        };
        emitter.builder.ins().store(GUEST, value, base, at + piece.offset);
    }
}

/// Bytes that are moved by one instruction.
struct Piece {
    /// Index of the register in the group.
    register: u32,
    /// Distance from the access's address.
    offset: i32,
    /// 16, 8, 4, 2 or 1.
    size: u32,
}

impl Piece {
    /// Index of the piece in its register, in units of its size.
    fn lane(&self) -> u8 {
        let within = self.offset.cast_unsigned() % VLEN_BYTES;
        (within / self.size).to_le_bytes()[0]
    }

    /// Types of the piece and of a vector of such pieces.
    const fn types(&self) -> (cranelift_codegen::ir::Type, cranelift_codegen::ir::Type) {
        match self.size {
            8 => (I64, I64X2),
            4 => (I32, vector_of(Width::E32)),
            2 => (I16, vector_of(Width::E16)),
            _ => (I8, vector_of(Width::E8)),
        }
    }
}

/// Pieces of an access: whole registers, then the rest in powers of two.
fn pieces(bytes: u32) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = bytes - at;
        let size = if left >= VLEN_BYTES { VLEN_BYTES } else { 1 << left.checked_ilog2()? };
        let piece = Piece { register: at / VLEN_BYTES, offset: at.cast_signed(), size };
        at += size;
        Some(piece)
    })
}
