//! Vectors: configured runs of random instructions, loops that take as much at a time as there is.

use hpu_vm::interp::Exit;
use hpu_vm::vector::inst::{Operands, Shape};
use hpu_vm::vector::{
    Addressing, Arithmetic, Configure, Direction, Length, Memory as Access, NewType, Source, VReg, VectorInst,
    VectorOp, Vtype, Width,
};
use hpu_vm::{Code, Hart, Inst, NoDevice, Op, Reg, View, run};
use spin_abi::fault::Cause;

use super::Generator;
use crate::memory::CODE;

/// Registers of a loop: elements left, their address, what a round does. No statement is generated in between.
const LEFT: Reg = Reg::new(28);
const ADDRESS: Reg = Reg::new(29);
const TAKEN: Reg = Reg::new(31);

impl Generator {
    /// A few vector instructions, and at last the registers to where they can be seen.
    pub(super) fn vectors(&mut self) {
        if self.random.one_in(4) {
            return self.strips();
        }
        let vtype = self.some_type();
        self.configure(vtype);
        for _ in 0..=self.random.below(8) {
            match self.random.below(12) {
                0..3 => self.vector_access(vtype),
                3 => self.configure(vtype),
                4 => self.read_vector_csr(),
                _ => self.vector_arithmetic(vtype),
            }
        }
        if !self.random.one_in(4) {
            let first = 8 * self.random.below(4);
            self.whole_registers(Direction::Store, first, 8);
        }
    }

    fn vector(&mut self, inst: VectorInst) {
        self.asm.word(inst.encode());
    }

    /// Bits of a legal vector type.
    fn some_type(&mut self) -> u32 {
        loop {
            let bits = self.random.below(0x100);
            if Vtype::from_bits(bits).is_some() {
                return bits;
            }
        }
    }

    /// Takes on a type, with a length that a translator can know, or not.
    fn configure(&mut self, vtype: u32) {
        let most = Vtype::from_bits(vtype).map_or(0, Vtype::vlmax);
        let over = self.asm.label();
        for round in 0..2 {
            let rd = if self.random.one_in(2) { Reg::ZERO } else { self.scratch() };
            let length = match self.random.below(8) {
                0..2 => Length::Immediate(self.random.below(32)),
                2..4 if rd != Reg::ZERO => Length::Max,
                4 if rd == Reg::ZERO => Length::Keep,
                5 => {
                    let source = self.source();
                    if source == Reg::ZERO { Length::Immediate(1) } else { Length::Register(source) }
                }
                6 => {
                    let reg = self.scratch();
                    let wanted = self.random.below(2 * most);
                    self.set(reg, wanted);
                    Length::Register(reg)
                }
                _ => Length::Register(self.mostly(most)),
            };
            // Another policy is another type, though it means the same.
            let policy = if self.random.one_in(4) { self.random.below(4) << 6 } else { vtype & 0xc0 };
            let bits = vtype & 0x3f | policy;
            let new = if self.random.one_in(8) && !matches!(length, Length::Immediate(_)) {
                let reg = self.scratch();
                self.set(reg, bits);
                NewType::Register(reg)
            } else {
                NewType::Immediate(bits)
            };
            // What was set last may have been the length.
            self.vector(VectorInst::Configure(Configure { rd, length, vtype: new }));
            if round == 0 && self.random.one_in(4) {
                let source = self.source();
                self.asm.to(&mut self.random, Inst::new(Op::Beq).rs1(source), over, 0);
            } else {
                break;
            }
        }
        self.asm.bind(over);
    }

    /// A register that holds `most`, or one less, as the data say.
    fn mostly(&mut self, most: u32) -> Reg {
        let (reg, source, threshold) = (self.scratch(), self.source(), self.random.signed(12));
        self.inst(Inst::new(Op::Sltiu).rd(reg).rs1(source).imm(threshold));
        self.inst(Inst::new(Op::Addi).rd(reg).rs1(reg).imm(most.cast_signed() - 1));
        reg
    }

    fn read_vector_csr(&mut self) {
        let number: i32 = self.random.choose(&[0xc20, 0xc21, 0xc22, 0x009, 0x00a]);
        let rd = self.scratch();
        self.inst(Inst::new(Op::Csrrs).rd(rd).imm(number));
        if self.random.one_in(12) {
            let rounding = self.random.below(4).cast_signed();
            self.inst(Inst::new(Op::Csrrwi).rs1(Reg::new(rounding.cast_unsigned())).imm(0x00a));
        }
    }

    fn vector_arithmetic(&mut self, vtype: u32) {
        let inst = self.legal(vtype, |generator| {
            let op = generator.random.choose(VectorOp::ALL);
            let spread = generator.random.choose(&[1, 2, 4, 8]);
            let [vd, vs2, vs1] = [(); 3].map(|()| generator.vector_register(spread));
            let source = generator.vector_source(op, vs1);
            let masked = match op.shape() {
                Shape::Merge => true,
                Shape::Move | Shape::MaskLogic | Shape::ScalarToElement => false,
                Shape::ElementToScalar | Shape::MoveRegisters => false,
                _ => generator.random.one_in(4),
            };
            let vs2 = match op.shape() {
                Shape::Move | Shape::ScalarToElement | Shape::Index => VReg::V0,
                _ => vs2,
            };
            let vd = if op.shape().has_scalar_result() { VReg::new(generator.scratch().number()) } else { vd };
            VectorInst::Arithmetic(Arithmetic { op, vd, vs2, source, masked })
        });
        inst.into_iter().for_each(|inst| self.vector(inst));
    }

    /// One of few registers, so that results are used.
    fn vector_register(&mut self, spread: u32) -> VReg {
        VReg::new(spread * self.random.below(32 / spread))
    }

    fn vector_source(&mut self, op: VectorOp, vs1: VReg) -> Source {
        let (vector, scalar) = (Source::Vector(vs1), Source::Scalar(self.source()));
        let signed = Source::Immediate(self.random.signed(5));
        let bound = self.random.choose(&[4, 32]);
        let unsigned = Source::Immediate(self.random.below(bound).cast_signed());
        match op.operands() {
            Operands::V => vector,
            Operands::X => scalar,
            Operands::VX => self.random.choose(&[vector, scalar]),
            Operands::XI => self.random.choose(&[scalar, signed]),
            Operands::XU => self.random.choose(&[scalar, unsigned]),
            Operands::VXI => self.random.choose(&[vector, scalar, signed]),
            Operands::VXU => self.random.choose(&[vector, scalar, unsigned]),
            Operands::Unary(_) => Source::None,
            Operands::Count => Source::Immediate(self.random.choose(&[1, 2, 4, 8])),
        }
    }

    fn vector_access(&mut self, vtype: u32) {
        if self.random.one_in(4) {
            let count = self.random.choose(&[1, 2, 4, 8]);
            let first = self.vector_register(count).number();
            let direction = self.random.choose(&[Direction::Load, Direction::Store]);
            return self.whole_registers(direction, first, count);
        }
        let (base, stride) = (self.scratch(), self.scratch());
        let inst = self.legal(vtype, |generator| {
            let spread = generator.random.choose(&[1, 2, 4, 8]);
            let addressing = match generator.random.below(8) {
                0 if stride != base => Addressing::Strided(stride),
                1 => Addressing::Mask,
                2 => {
                    Addressing::Indexed { vs2: generator.vector_register(spread), ordered: generator.random.one_in(2) }
                }
                _ => Addressing::Unit,
            };
            let mask = addressing == Addressing::Mask;
            VectorInst::Memory(Access {
                direction: generator.random.choose(&[Direction::Load, Direction::Load, Direction::Store]),
                vd: generator.vector_register(spread),
                rs1: base,
                addressing,
                width: if mask { Width::E8 } else { generator.random.choose(&Width::ALL) },
                fields: if mask || !generator.random.one_in(6) { 1 } else { 2 + generator.random.below(3) },
                masked: !mask && generator.random.one_in(5),
            })
        });
        let Some(inst @ VectorInst::Memory(access)) = inst else { return };
        if let Addressing::Indexed { vs2, .. } = access.addressing {
            let index = Arithmetic { op: VectorOp::Index, vd: vs2, vs2: VReg::V0, source: Source::None, masked: false };
            self.vector(VectorInst::Arithmetic(index));
        }
        if let Addressing::Strided(stride) = access.addressing {
            let distance = self.random.below(9);
            self.set(stride, distance);
        }
        let bytes = match access.addressing {
            Addressing::Unit | Addressing::Mask => 128,
            _ => 1100,
        };
        self.access_vectors(inst, base, bytes, access.direction);
    }

    /// Loads or stores whole registers.
    fn whole_registers(&mut self, direction: Direction, first: u32, count: u32) {
        let rs1 = self.scratch();
        let access = Access {
            direction,
            vd: VReg::new(first),
            rs1,
            addressing: Addressing::Whole,
            width: Width::E8,
            fields: count,
            masked: false,
        };
        self.access_vectors(VectorInst::Memory(access), rs1, 16 * count, direction);
    }

    /// Executes `inst` with an address in `base` of that many bytes, or of too few.
    fn access_vectors(&mut self, inst: VectorInst, base: Reg, bytes: u32, direction: Direction) {
        let wild = self.shape.hostile && self.random.one_in(24);
        let bytes = if wild { 1 + self.random.below(bytes) } else { bytes };
        if let Some(address) = self.place(bytes, direction == Direction::Store) {
            if self.random.one_in(3) {
                self.set(base, address);
            } else {
                // An address that is not known beforehand.
                let source = self.source();
                self.inst(Inst::new(Op::And).rd(base).rs1(source).rs2(Reg::ZERO));
                self.inst(Inst::new(Op::Sltiu).rd(base).rs1(source).imm(0));
                let other = self.scratch_but(base);
                self.set(other, address);
                self.inst(Inst::new(Op::Add).rd(base).rs1(base).rs2(other));
            }
            self.vector(inst);
        }
    }

    /// A loop over elements in memory that takes as many at a time as it gets.
    fn strips(&mut self) {
        let vtype = self.some_type();
        let Some(Vtype { sew, .. }) = Vtype::from_bits(vtype) else { return };
        let count = self.random.below(100);
        let (bytes, write) = (count * sew.bytes(), self.random.one_in(2));
        let Some(address) = self.place(bytes.max(1), write) else { return };
        let access = |direction| {
            let addressing = Addressing::Unit;
            let vd = VReg::new(8);
            VectorInst::Memory(Access { direction, vd, rs1: ADDRESS, addressing, width: sew, fields: 1, masked: false })
        };
        self.set(LEFT, count);
        self.set(ADDRESS, address);
        let (again, done) = (self.asm.here(), self.asm.label());
        self.asm.to(&mut self.random, Inst::new(Op::Beq).rs1(LEFT), done, 0);
        let length = Length::Register(LEFT);
        self.vector(VectorInst::Configure(Configure { rd: TAKEN, length, vtype: NewType::Immediate(vtype) }));
        self.vector(access(Direction::Load));
        for _ in 0..self.random.below(3) {
            let ops = [VectorOp::Add, VectorOp::Xor, VectorOp::Minu, VectorOp::Max, VectorOp::ReduceSum];
            let op = self.random.choose(&ops);
            let vd = VReg::new(if op == VectorOp::ReduceSum { 16 } else { 8 });
            let source = Source::Vector(VReg::new(16));
            self.vector(VectorInst::Arithmetic(Arithmetic { op, vd, vs2: VReg::new(8), source, masked: false }));
        }
        if write {
            self.vector(access(Direction::Store));
        }
        self.inst(Inst::new(Op::Sub).rd(LEFT).rs1(LEFT).rs2(TAKEN));
        self.inst(Inst::new(Op::Slli).rd(TAKEN).rs1(TAKEN).imm(sew.log2().cast_signed()));
        self.inst(Inst::new(Op::Add).rd(ADDRESS).rs1(ADDRESS).rs2(TAKEN));
        self.asm.to(&mut self.random, Inst::new(Op::Jal), again, 0);
        self.asm.bind(done);
    }

    /// An instruction that is legal under the type, if a few tries make one; any of them now and then.
    fn legal(&mut self, vtype: u32, mut make: impl FnMut(&mut Self) -> VectorInst) -> Option<VectorInst> {
        let any = self.shape.hostile && self.random.one_in(200);
        (0..40).map(|_| make(self)).find(|&inst| any || is_legal(vtype, inst))
    }
}

/// Whether the interpreter executes it.
fn is_legal(vtype: u32, inst: VectorInst) -> bool {
    let set = Configure { rd: Reg::new(5), length: Length::Immediate(1), vtype: NewType::Immediate(vtype) };
    let words = [VectorInst::Configure(set).encode(), inst.encode()].map(u32::to_le_bytes);
    let code = Code::at(CODE, words.as_flattened());
    let mut hart = Hart::new(0);
    hart.begin(CODE, 0, 0);
    let exit = run(&mut hart, &code, &mut View::new(), &mut NoDevice, 2);
    !matches!(exit, Exit::Fault(fault) if fault.cause == Cause::IllegalInstruction)
}
