//! Loads and stores of consecutive elements.
//!
//! The bytes of a group are moved 16 at a time. An access that is only partly allowed is done by the interpreter, which
//! accesses the elements before the faulting one. Loads of translated code need not do that, since nothing sees the
//! registers of a task that has faulted. Stores are done at once only within a page, or within a range where checks are
//! exact.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I8X16, I16, I32, I64, I64X2};
use cranelift_codegen::ir::{InstBuilder, Value};
use spin_abi::map::{PAGE, PERIPHERALS, PERIPHERALS_SIZE, STDOUT_BASE, STDOUT_SIZE};

use super::Touched;
use super::lanes::vector_of;
use crate::inst::{Inst, Reg};
use crate::jit::emit::memory::Host;
use crate::jit::emit::{Emitter, GUEST};
use crate::jit::vectors::{VRegs, may_reach_device};
use crate::vector::{Addressing, Direction, Memory, VLEN_BYTES, VReg, Width};

/// Most bytes of an access.
const MOST: u32 = 8 * VLEN_BYTES;

/// Most elements that are stored one by one where the end of a page splits them. The interpreter would be called with all
/// registers, which takes its toll of the code around.
const MOST_ONE_BY_ONE: u32 = 64;

/// A contiguous access.
#[derive(Clone, Copy)]
struct Access {
    registers: u32,
    bytes: u32,
    /// Elements when all there can be are accessed, unless the number is known.
    full: Option<u32>,
}

impl Emitter<'_> {
    pub(super) fn vector_memory(&mut self, inst: &Inst, memory: &Memory) {
        let constant = self.known.constant(memory.rs1);
        let access = self.contiguous(memory).filter(|_| !constant.is_some_and(may_reach_device));
        let Some(access) = access else { return self.call_interpreter(inst) };
        if access.bytes == 0 {
            return;
        }
        let group = VRegs::group(memory.vd, access.registers);
        let none = VRegs::default();
        let writes = if memory.direction == Direction::Load { group } else { none };
        let touched = Touched { reads: group, writes };
        let address = self.get(memory.rs1);
        let mut slow = Vec::new();
        slow.extend(access.full.and_then(|full| self.is_short(full)));
        slow.extend(self.is_exceptional(memory, address, access.bytes));
        let split = self.is_split(memory, address, access.bytes);
        let one_by_one = access.bytes / memory.width.bytes() <= MOST_ONE_BY_ONE && slow.is_empty();
        if !one_by_one {
            slow.extend(split);
        }
        self.unless(&slow, inst, &touched, |emitter| {
            let host = emitter.vector_host(memory.rs1);
            match (memory.direction, split.filter(|_| one_by_one)) {
                (Direction::Load, _) => emitter.load_group(memory.vd, host, access.bytes),
                (Direction::Store, None) => emitter.store_group(memory.vd, host, access.bytes),
                (Direction::Store, Some(split)) => emitter.store_split(memory, host, access.bytes, split),
            }
            emitter.seen_by_others();
        });
    }

    /// Stores a group, if it is `split` by the end of a page one element after the other.
    fn store_split(&mut self, memory: &Memory, host: Host, bytes: u32, split: Value) {
        let [aside, whole, joined] = [(); 3].map(|()| self.builder.create_block());
        self.builder.set_cold_block(aside);
        self.fork(split, aside, whole);
        self.builder.switch_to_block(aside);
        self.store_elements(memory, host, bytes);
        self.builder.ins().jump(joined, &[]);
        self.builder.switch_to_block(whole);
        self.store_group(memory.vd, host, bytes);
        self.builder.ins().jump(joined, &[]);
        self.join(joined);
    }

    fn store_elements(&mut self, memory: &Memory, Host(base, at): Host, bytes: u32) {
        let size = memory.width.bytes();
        for offset in (0..bytes).step_by(size as usize).map(u32::cast_signed) {
            let piece = Piece { register: offset.cast_unsigned() / VLEN_BYTES, offset, size };
            let value = self.vector_register(Self::grouped(memory.vd, piece.register));
            let value = self.cast(piece.types().1, value);
            let value = self.builder.ins().extractlane(value, piece.lane());
            self.builder.ins().store(GUEST, value, base, at + offset);
        }
    }

    /// The access of an instruction, if it is one and legal.
    fn contiguous(&self, memory: &Memory) -> Option<Access> {
        match memory.addressing {
            Addressing::Whole => {
                Some(Access { registers: memory.fields, bytes: memory.fields * VLEN_BYTES, full: None })
            }
            Addressing::Unit if !memory.masked && memory.fields == 1 => {
                let vtype = self.vectors.setting.vtype()?;
                let group = vtype.group(memory.width).filter(|group| group.fits(memory.vd))?;
                let most = vtype.vlmax();
                let count = self.vectors.setting.vl.unwrap_or(most);
                let bytes = count * memory.width.bytes();
                Some(Access { registers: group.registers(), bytes, full: Some(most) })
            }
            _ => None,
        }
    }

    /// Whether an access of `bytes` at `address` is one that cannot be done at once.
    fn is_exceptional(&mut self, memory: &Memory, address: Value, bytes: u32) -> Option<Value> {
        let refused = self.exact().then(|| {
            let low = self.address_wide(memory.rs1, 0);
            self.beyond_bound(low, bytes)
        });
        if !(self.known.may_be_device(memory.rs1) || self.any_device && !self.known.is_stack(memory.rs1)) {
            return refused;
        }
        let driver = self.lies_in(address, PERIPHERALS - MOST, PERIPHERALS_SIZE + MOST);
        let stdout = self.lies_in(address, STDOUT_BASE - MOST, STDOUT_SIZE + MOST);
        let device = self.builder.ins().bor(driver, stdout);
        Some(refused.map_or(device, |refused| self.builder.ins().bor(device, refused)))
    }

    /// Whether a store is to two pages, of which one may not be there: where checks are exact that is seen to.
    fn is_split(&mut self, memory: &Memory, address: Value, bytes: u32) -> Option<Value> {
        if self.exact() || memory.direction == Direction::Load || bytes == 1 {
            return None;
        }
        let within = self.constant(PAGE - 1);
        let start = self.builder.ins().band(address, within);
        Some(self.compare(IntCC::UnsignedGreaterThan, start, PAGE - bytes))
    }

    fn vector_host(&mut self, base: Reg) -> Host {
        let constant = self.known.constant(base).and_then(|address| i32::try_from(address).ok());
        if let Some(address) = constant.filter(|at| *at < i32::MAX / 2) {
            return Host(self.base, address);
        }
        let address = self.address_wide(base, 0);
        Host(self.builder.ins().iadd(self.base, address), 0)
    }

    fn load_group(&mut self, vd: VReg, Host(base, at): Host, bytes: u32) {
        for piece in pieces(bytes) {
            let (reg, at) = (Self::grouped(vd, piece.register), at + piece.offset);
            let value = if piece.size == VLEN_BYTES {
                self.builder.ins().load(I8X16, GUEST, base, at)
            } else {
                let (old, lane) = (self.vector_register(reg), piece.lane());
                let (scalar, vector) = piece.types();
                let old = self.cast(vector, old);
                let value = self.builder.ins().load(scalar, GUEST, base, at);
                let value = self.builder.ins().insertlane(old, value, lane);
                self.cast(I8X16, value)
            };
            self.set_vector_register(reg, value);
        }
    }

    fn store_group(&mut self, vs3: VReg, Host(base, at): Host, bytes: u32) {
        for piece in pieces(bytes) {
            let value = self.vector_register(Self::grouped(vs3, piece.register));
            let value = if piece.size == VLEN_BYTES {
                value
            } else {
                let value = self.cast(piece.types().1, value);
                self.builder.ins().extractlane(value, piece.lane())
            };
            self.builder.ins().store(GUEST, value, base, at + piece.offset);
        }
    }
}

/// Bytes that are moved at once.
struct Piece {
    /// In the group.
    register: u32,
    /// From the access's address.
    offset: i32,
    /// 16, 8, 4, 2 or 1.
    size: u32,
}

impl Piece {
    /// Which of the register's parts of this size.
    fn lane(&self) -> u8 {
        let within = self.offset.cast_unsigned() % VLEN_BYTES;
        (within / self.size).to_le_bytes()[0]
    }

    /// A part, and a vector of such.
    const fn types(&self) -> (cranelift_codegen::ir::Type, cranelift_codegen::ir::Type) {
        match self.size {
            8 => (I64, I64X2),
            4 => (I32, vector_of(Width::E32)),
            2 => (I16, vector_of(Width::E16)),
            _ => (I8, vector_of(Width::E8)),
        }
    }
}

/// So many bytes from an access's address on: whole registers, then the rest in powers of two.
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
