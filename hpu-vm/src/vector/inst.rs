//! Vector instructions: the list of arithmetic operations, and the fields of each kind of instruction.

use crate::reg::Reg;
pub use crate::reg::VReg;
use crate::vector::vtype::Width;

/// Calls a macro with the list of vector operations outside memory and configuration:
/// `Variant "mnemonic" Major funct6 Shape Signs operands`.
///
/// Encodings are those of the spec's "Vector Instruction Listing"; operations of one major opcode and funct6 stand
/// together. The mnemonic lacks the suffix that [`Shape`] and [`Source`] give.
macro_rules! for_each_vector_op {
    ($action:ident) => {
        $action! {
            Add "vadd" Integer 0x00 Plain U VXI;
            Sub "vsub" Integer 0x02 Plain U VX;
            ReverseSub "vrsub" Integer 0x03 Plain U XI;
            Minu "vminu" Integer 0x04 Plain U VX;
            Min "vmin" Integer 0x05 Plain S VX;
            Maxu "vmaxu" Integer 0x06 Plain U VX;
            Max "vmax" Integer 0x07 Plain S VX;
            And "vand" Integer 0x09 Plain U VXI;
            Or "vor" Integer 0x0a Plain U VXI;
            Xor "vxor" Integer 0x0b Plain U VXI;
            Gather "vrgather" Integer 0x0c Permute U VXU;
            SlideUp "vslideup" Integer 0x0e Permute U XU;
            Gather16 "vrgatherei16" Integer 0x0e Permute U V;
            SlideDown "vslidedown" Integer 0x0f Permute U XU;
            Merge "vmerge" Integer 0x17 Merge U VXI;
            Move "vmv.v" Integer 0x17 Move U VXI;
            Equal "vmseq" Integer 0x18 Compare U VXI;
            NotEqual "vmsne" Integer 0x19 Compare U VXI;
            Lessu "vmsltu" Integer 0x1a Compare U VX;
            Less "vmslt" Integer 0x1b Compare S VX;
            LessEqualu "vmsleu" Integer 0x1c Compare U VXI;
            LessEqual "vmsle" Integer 0x1d Compare S VXI;
            Greateru "vmsgtu" Integer 0x1e Compare U XI;
            Greater "vmsgt" Integer 0x1f Compare S XI;
            SaturatingAddu "vsaddu" Integer 0x20 Plain U VXI;
            SaturatingAdd "vsadd" Integer 0x21 Plain S VXI;
            SaturatingSubu "vssubu" Integer 0x22 Plain U VX;
            SaturatingSub "vssub" Integer 0x23 Plain S VX;
            ShiftLeft "vsll" Integer 0x25 Plain U VXU;
            MoveRegisters "vmv" Integer 0x27 MoveRegisters U Count;
            ShiftRightLogical "vsrl" Integer 0x28 Plain U VXU;
            ShiftRightArithmetic "vsra" Integer 0x29 Plain SU VXU;
            NarrowShiftLogical "vnsrl" Integer 0x2c Narrow U VXU;
            NarrowShiftArithmetic "vnsra" Integer 0x2d Narrow SU VXU;
            NarrowClipu "vnclipu" Integer 0x2e Narrow U VXU;
            NarrowClip "vnclip" Integer 0x2f Narrow SU VXU;
            WidenReduceSumu "vwredsumu" Integer 0x30 WidenReduce U V;
            WidenReduceSum "vwredsum" Integer 0x31 WidenReduce S V;
            ReduceSum "vredsum" Multiply 0x00 Reduce U V;
            ReduceAnd "vredand" Multiply 0x01 Reduce U V;
            ReduceOr "vredor" Multiply 0x02 Reduce U V;
            ReduceXor "vredxor" Multiply 0x03 Reduce U V;
            ReduceMinu "vredminu" Multiply 0x04 Reduce U V;
            ReduceMin "vredmin" Multiply 0x05 Reduce S V;
            ReduceMaxu "vredmaxu" Multiply 0x06 Reduce U V;
            ReduceMax "vredmax" Multiply 0x07 Reduce S V;
            AveragingAddu "vaaddu" Multiply 0x08 Plain U VX;
            AveragingAdd "vaadd" Multiply 0x09 Plain S VX;
            Slide1Up "vslide1up" Multiply 0x0e Permute U X;
            Slide1Down "vslide1down" Multiply 0x0f Permute U X;
            ElementToScalar "vmv.x.s" Multiply 0x10 ElementToScalar S Unary(0);
            CountMask "vcpop.m" Multiply 0x10 MaskToScalar U Unary(0x10);
            FirstMask "vfirst.m" Multiply 0x10 MaskToScalar U Unary(0x11);
            ScalarToElement "vmv.s.x" Multiply 0x10 ScalarToElement U X;
            ZeroExtend4 "vzext.vf4" Multiply 0x12 Extend4 U Unary(4);
            SignExtend4 "vsext.vf4" Multiply 0x12 Extend4 S Unary(5);
            ZeroExtend2 "vzext.vf2" Multiply 0x12 Extend2 U Unary(6);
            SignExtend2 "vsext.vf2" Multiply 0x12 Extend2 S Unary(7);
            Index "vid.v" Multiply 0x14 Index U Unary(0x11);
            MaskAndNot "vmandn" Multiply 0x18 MaskLogic U V;
            MaskAnd "vmand" Multiply 0x19 MaskLogic U V;
            MaskOr "vmor" Multiply 0x1a MaskLogic U V;
            MaskXor "vmxor" Multiply 0x1b MaskLogic U V;
            MaskOrNot "vmorn" Multiply 0x1c MaskLogic U V;
            MaskNand "vmnand" Multiply 0x1d MaskLogic U V;
            MaskNor "vmnor" Multiply 0x1e MaskLogic U V;
            MaskXnor "vmxnor" Multiply 0x1f MaskLogic U V;
            Divu "vdivu" Multiply 0x20 Plain U VX;
            Div "vdiv" Multiply 0x21 Plain S VX;
            Remu "vremu" Multiply 0x22 Plain U VX;
            Rem "vrem" Multiply 0x23 Plain S VX;
            MulHighu "vmulhu" Multiply 0x24 Plain U VX;
            Mul "vmul" Multiply 0x25 Plain U VX;
            MulHighsu "vmulhsu" Multiply 0x26 Plain SU VX;
            MulHigh "vmulh" Multiply 0x27 Plain S VX;
            MulAdd "vmadd" Multiply 0x29 Accumulate U VX;
            NegMulSub "vnmsub" Multiply 0x2b Accumulate U VX;
            MulAcc "vmacc" Multiply 0x2d Accumulate U VX;
            NegMulAcc "vnmsac" Multiply 0x2f Accumulate U VX;
            WidenAddu "vwaddu" Multiply 0x30 Widen U VX;
            WidenAdd "vwadd" Multiply 0x31 Widen S VX;
            WidenSubu "vwsubu" Multiply 0x32 Widen U VX;
            WidenSub "vwsub" Multiply 0x33 Widen S VX;
            WideAddu "vwaddu" Multiply 0x34 WidenWide U VX;
            WideAdd "vwadd" Multiply 0x35 WidenWide S VX;
            WideSubu "vwsubu" Multiply 0x36 WidenWide U VX;
            WideSub "vwsub" Multiply 0x37 WidenWide S VX;
            WidenMulu "vwmulu" Multiply 0x38 Widen U VX;
            WidenMulsu "vwmulsu" Multiply 0x3a Widen SU VX;
            WidenMul "vwmul" Multiply 0x3b Widen S VX;
            WidenMulAccu "vwmaccu" Multiply 0x3c WidenAccumulate U VX;
            WidenMulAcc "vwmacc" Multiply 0x3d WidenAccumulate S VX;
            WidenMulAccus "vwmaccus" Multiply 0x3e WidenAccumulate SU X;
            WidenMulAccsu "vwmaccsu" Multiply 0x3f WidenAccumulate US VX;
        }
    };
}

macro_rules! define_vector_ops {
    ($($variant:ident $mnemonic:literal $major:ident $funct6:literal $shape:ident $signs:ident $operands:expr;)*) => {
        /// An operation; its [`Shape`] defines the operands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum VectorOp {
            $(#[doc = concat!("`", $mnemonic, "`")] $variant,)*
        }

        impl VectorOp {
            /// Every operation, in list order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the assembler mnemonic without the suffix for its operands.
            #[must_use]
            pub const fn mnemonic(self) -> &'static str {
                match self { $(Self::$variant => $mnemonic,)* }
            }

            /// Which of the two opcode spaces it is in.
            pub(super) const fn major(self) -> Major {
                match self { $(Self::$variant => Major::$major,)* }
            }

            /// Bits 31:26 of the encoding.
            pub(super) const fn funct6(self) -> u32 {
                match self { $(Self::$variant => $funct6,)* }
            }

            /// Returns the shape of the operands.
            #[must_use]
            pub const fn shape(self) -> Shape {
                match self { $(Self::$variant => Shape::$shape,)* }
            }

            /// Returns the extension of elements of vs2 and of the other source: whether each is signed. Unsigned where
            /// the result does not depend on it.
            #[must_use]
            pub const fn signs(self) -> (bool, bool) {
                match self { $(Self::$variant => signs::$signs,)* }
            }

            /// Returns the forms in which it exists.
            #[must_use]
            pub const fn operands(self) -> Operands {
                use Operands::*;
                match self { $(Self::$variant => $operands,)* }
            }
        }
    };
}

for_each_vector_op!(define_vector_ops);

/// Signedness of (vs2, other source), by the names of the list.
mod signs {
    pub(super) const U: (bool, bool) = (false, false);
    pub(super) const S: (bool, bool) = (true, true);
    pub(super) const SU: (bool, bool) = (true, false);
    pub(super) const US: (bool, bool) = (false, true);
}

/// The two opcode spaces of integer operations: OPIVV, OPIVX and OPIVI; OPMVV and OPMVX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Major {
    Integer,
    Multiply,
}

/// Kinds of the other source, besides vs2: `V` a vector, `X` a scalar register, `I` a signed immediate of five bits,
/// `U` an unsigned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the type's comment spells the letters out")]
pub enum Operands {
    V,
    X,
    VX,
    XI,
    XU,
    VXI,
    VXU,
    /// No other source: its field contains this number, which selects the operation.
    Unary(u32),
    /// No other source: its field contains the number of registers less one.
    Count,
}

/// Operands of an operation; elements have the width SEW unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// vd\[i\] = vs2\[i\] op source\[i\].
    Plain,
    /// vd\[i\] = f(vd\[i\], vs2\[i\], source\[i\]).
    Accumulate,
    /// Mask bit vd\[i\] = vs2\[i\] op source\[i\].
    Compare,
    /// Mask bit vd\[i\] = mask bit vs2\[i\] op mask bit vs1\[i\]; never masked.
    MaskLogic,
    /// vd of 2 × SEW, both sources of SEW.
    Widen,
    /// vd of 2 × SEW, both sources of SEW, with vd as third source.
    WidenAccumulate,
    /// vd and vs2 of 2 × SEW, the other source of SEW.
    WidenWide,
    /// vs2 of 2 × SEW, vd and the shift amounts of SEW.
    Narrow,
    /// vd\[0\] = vs1\[0\] op all of vs2.
    Reduce,
    /// vd\[0\] = vs1\[0\] op all of vs2, with vd and vs1 of 2 × SEW.
    WidenReduce,
    /// vd\[i\] = vs2\[i\], extended from SEW / 2.
    Extend2,
    /// vd\[i\] = vs2\[i\], extended from SEW / 4.
    Extend4,
    /// vd\[i\] = mask\[i\] ? source\[i\] : vs2\[i\]; the mask is always an operand.
    Merge,
    /// vd\[i\] = source\[i\]; never masked.
    Move,
    /// vd gets elements of vs2 in another order.
    Permute,
    /// Whole registers, independent of the vtype.
    MoveRegisters,
    /// rd = vs2\[0\], sign-extended.
    ElementToScalar,
    /// vd\[0\] = rs1.
    ScalarToElement,
    /// rd = result of a search or count in the mask bits vs2.
    MaskToScalar,
    /// vd\[i\] = i.
    Index,
}

impl Shape {
    /// Whether the destination is a scalar register.
    #[must_use]
    pub const fn has_scalar_result(self) -> bool {
        matches!(self, Self::ElementToScalar | Self::MaskToScalar)
    }
}

/// A vector instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VectorInst {
    /// `vsetvli`, `vsetivli`, `vsetvl`.
    Configure(Configure),
    /// A load or store.
    Memory(Memory),
    /// An operation on vector registers.
    Arithmetic(Arithmetic),
}

/// Sets `vl` and `vtype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Configure {
    /// Destination of the new `vl`.
    pub rd: Reg,
    /// AVL, the requested number of elements.
    pub length: Length,
    /// Source of the new `vtype`.
    pub vtype: NewType,
}

/// Source of the requested number of elements (spec §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Length {
    /// The value of a register.
    Register(Reg),
    /// A number below 32.
    Immediate(u32),
    /// The maximum (VLMAX): rs1 is x0, rd is not.
    Max,
    /// The current `vl`: rs1 and rd are x0.
    Keep,
}

/// Source of a new `vtype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NewType {
    /// Immediate bits: 11 of `vsetvli`, 10 of `vsetivli`. They may be illegal, which sets `vill`.
    Immediate(u32),
    /// The value of a register: `vsetvl`.
    Register(Reg),
}

/// A load or store of elements, or of whole registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    /// Load or store.
    pub direction: Direction,
    /// First register loaded or stored.
    pub vd: VReg,
    /// Register with the base address.
    pub rs1: Reg,
    /// Placement of the elements.
    pub addressing: Addressing,
    /// Width in the encoding: width of the elements. For indexed accesses it is the width of the indices, and the data
    /// have SEW.
    pub width: Width,
    /// Number of fields of a segment, 1 to 8; for whole registers their number, 1, 2, 4 or 8.
    pub fields: u32,
    /// Whether only elements whose bit in v0 is set are accessed.
    pub masked: bool,
}

/// Direction of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From memory.
    Load,
    /// To memory.
    Store,
}

/// Placement of the elements of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addressing {
    /// Consecutive elements.
    Unit,
    /// A constant stride in bytes, held by a register.
    Strided(Reg),
    /// Offsets in bytes, held by a vector.
    Indexed {
        /// Vector with the offsets.
        vs2: VReg,
        /// Whether the order of accesses is fixed; this implementation always uses element order.
        ordered: bool,
    },
    /// Whole registers, independent of `vl` and `vtype`.
    Whole,
    /// The bytes of a mask of `vl` bits.
    Mask,
}

/// An operation on vector registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arithmetic {
    /// Operation.
    pub op: VectorOp,
    /// Destination; for shapes with a scalar destination see [`Arithmetic::rd`].
    pub vd: VReg,
    /// Second source in the encoding, first operand of the operation. v0 where the shape has none.
    pub vs2: VReg,
    /// Other operand.
    pub source: Source,
    /// Whether v0 is a mask. Elements whose bit is clear are then unchanged, except by [`Shape::Merge`].
    pub masked: bool,
}

impl Arithmetic {
    /// Returns the scalar destination.
    #[must_use]
    pub const fn rd(&self) -> Reg {
        Reg::new(self.vd.number())
    }
}

/// Operand besides vs2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// No operand.
    None,
    /// vs1.
    Vector(VReg),
    /// rs1, for every element.
    Scalar(Reg),
    /// Immediate for every element: -16 to 15, or 0 to 31; for whole-register moves their number.
    Immediate(i32),
}
