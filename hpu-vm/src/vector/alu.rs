//! Element-wise arithmetic of vector operations.

use crate::vector::inst::VectorOp;
use crate::vector::vtype::Width;

/// Parameters of an operation besides the elements.
pub(super) struct Alu {
    /// The operation.
    pub(super) op: VectorOp,
    /// Width of the result's elements.
    pub(super) result: Width,
    /// Width of vs2's elements.
    pub(super) first: Width,
    /// Rounding mode.
    pub(super) vxrm: u32,
    /// Set when a result was clipped.
    pub(super) vxsat: bool,
}

impl Alu {
    /// The result for `a` of vs2 and `b` of the other operand, extended by the operation's [signs](VectorOp::signs),
    /// and `d` of vd. Only the result's lower bits are used, and `i64` always contains them: products and sums with
    /// them may wrap, all other results are exact.
    pub(super) fn compute(&mut self, a: i64, b: i64, d: i64) -> i64 {
        use VectorOp as Op;
        match self.op {
            Op::Add | Op::WidenAddu | Op::WidenAdd | Op::WideAddu | Op::WideAdd => a + b,
            Op::ReduceSum | Op::WidenReduceSumu | Op::WidenReduceSum => a + b,
            Op::Sub | Op::WidenSubu | Op::WidenSub | Op::WideSubu | Op::WideSub => a - b,
            Op::ReverseSub => b - a,
            Op::Minu | Op::Min | Op::ReduceMinu | Op::ReduceMin => a.min(b),
            Op::Maxu | Op::Max | Op::ReduceMaxu | Op::ReduceMax => a.max(b),
            Op::And | Op::ReduceAnd | Op::MaskAnd => a & b,
            Op::Or | Op::ReduceOr | Op::MaskOr => a | b,
            Op::Xor | Op::ReduceXor | Op::MaskXor => a ^ b,
            Op::MaskAndNot => a & !b,
            Op::MaskOrNot => a | !b,
            Op::MaskNand => !(a & b),
            Op::MaskNor => !(a | b),
            Op::MaskXnor => !(a ^ b),
            Op::Equal => i64::from(a == b),
            Op::NotEqual => i64::from(a != b),
            Op::Lessu | Op::Less => i64::from(a < b),
            Op::LessEqualu | Op::LessEqual => i64::from(a <= b),
            Op::Greateru | Op::Greater => i64::from(a > b),
            Op::SaturatingAddu => self.clip(a + b, false),
            Op::SaturatingAdd => self.clip(a + b, true),
            Op::SaturatingSubu => self.clip(a - b, false),
            Op::SaturatingSub => self.clip(a - b, true),
            Op::AveragingAddu | Op::AveragingAdd => self.round(a + b, 1),
            Op::ShiftLeft => a << self.amount(b),
            Op::ShiftRightLogical | Op::ShiftRightArithmetic => a >> self.amount(b),
            Op::NarrowShiftLogical | Op::NarrowShiftArithmetic => a >> self.amount(b),
            Op::NarrowClipu => {
                let rounded = self.round(a, self.amount(b));
                self.clip(rounded, false)
            }
            Op::NarrowClip => {
                let rounded = self.round(a, self.amount(b));
                self.clip(rounded, true)
            }
            Op::Divu | Op::Div => a.checked_div(b).unwrap_or(-1),
            Op::Remu | Op::Rem => a.checked_rem(b).unwrap_or(a),
            Op::Mul | Op::WidenMulu | Op::WidenMulsu | Op::WidenMul => a.wrapping_mul(b),
            Op::MulHighu | Op::MulHighsu | Op::MulHigh => a.wrapping_mul(b) >> self.result.bits(),
            Op::MulAdd => b.wrapping_mul(d).wrapping_add(a),
            Op::NegMulSub => a.wrapping_sub(b.wrapping_mul(d)),
            Op::MulAcc | Op::WidenMulAccu | Op::WidenMulAcc | Op::WidenMulAccus | Op::WidenMulAccsu => {
                d.wrapping_add(a.wrapping_mul(b))
            }
            Op::NegMulAcc => d.wrapping_sub(a.wrapping_mul(b)),
            Op::ZeroExtend2 | Op::ZeroExtend4 | Op::SignExtend2 | Op::SignExtend4 => a,
            Op::Merge | Op::Move => b,
            // Operations on several elements, or on scalars: `interp` executes them.
            Op::Gather | Op::Gather16 | Op::SlideUp | Op::SlideDown | Op::Slide1Up | Op::Slide1Down => a,
            Op::MoveRegisters | Op::ElementToScalar | Op::ScalarToElement => a,
            Op::CountMask | Op::FirstMask | Op::Index => a,
        }
    }

    /// The shift amount: the lower bits of `b`, as many as the shifted operand's width needs.
    const fn amount(&self, b: i64) -> u32 {
        b as u32 & (self.first.bits() - 1)
    }

    /// The nearest value that an element of the result can hold.
    fn clip(&mut self, value: i64, signed: bool) -> i64 {
        let bits = self.result.bits();
        let (least, greatest) = if signed { (-1 << (bits - 1), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
        let clipped = value.clamp(least, greatest);
        self.vxsat |= clipped != value;
        clipped
    }

    /// `value` shifted right by `amount`, rounded by `vxrm` (spec §3.8).
    const fn round(&self, value: i64, amount: u32) -> i64 {
        if amount == 0 {
            return value;
        }
        let (result, lost) = (value >> amount, value & ((1 << amount) - 1));
        let half = 1 << (amount - 1);
        let up = match self.vxrm & 3 {
            // To nearest, halves up.
            0 => lost >= half,
            // To nearest, halves to even.
            1 => lost > half || lost == half && result & 1 != 0,
            // Down.
            2 => false,
            // To odd.
            _ => lost != 0 && result & 1 == 0,
        };
        result + up as i64
    }
}
