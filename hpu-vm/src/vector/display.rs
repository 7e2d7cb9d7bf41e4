//! Disassembly of vector instructions, as LLVM prints them.

use std::fmt;

use crate::vector::inst::{
    Addressing, Arithmetic, Configure, Direction, Length, Memory, NewType, Shape, Source, VReg, VectorInst,
};

impl fmt::Display for VReg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.number())
    }
}

impl fmt::Display for VectorInst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configure(inst) => configure(inst, f),
            Self::Memory(inst) => memory(inst, f),
            Self::Arithmetic(inst) => arithmetic(inst, f),
        }
    }
}

fn configure(inst: &Configure, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let rd = inst.rd;
    let vtype = match inst.vtype {
        NewType::Immediate(bits) => type_name(bits),
        NewType::Register(reg) => reg.to_string(),
    };
    match (inst.length, inst.vtype) {
        (Length::Immediate(count), _) => write!(f, "vsetivli {rd}, {count}, {vtype}"),
        (length, NewType::Immediate(_)) => write!(f, "vsetvli {rd}, {}, {vtype}", length_name(length)),
        (length, NewType::Register(_)) => write!(f, "vsetvl {rd}, {}, {vtype}", length_name(length)),
    }
}

fn length_name(length: Length) -> String {
    match length {
        Length::Register(reg) => reg.to_string(),
        Length::Immediate(count) => count.to_string(),
        Length::Max | Length::Keep => "zero".to_owned(),
    }
}

fn type_name(bits: u32) -> String {
    const LMUL: [&str; 8] = ["m1", "m2", "m4", "m8", "", "mf8", "mf4", "mf2"];
    let (sew, lmul) = (bits >> 3 & 7, LMUL[(bits & 7) as usize]);
    if bits >> 8 != 0 || sew > 3 || lmul.is_empty() {
        return format!("{bits:#x}");
    }
    let policy = |bit: u32, letter: char| format!("{letter}{}", if bits >> bit & 1 == 1 { 'a' } else { 'u' });
    format!("e{}, {lmul}, {}, {}", 8 << sew, policy(6, 't'), policy(7, 'm'))
}

fn memory(inst: &Memory, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (letter, bits, fields) =
        (if inst.direction == Direction::Load { 'l' } else { 's' }, inst.width.bits(), inst.fields);
    let segment = if fields == 1 { String::new() } else { format!("seg{fields}") };
    match inst.addressing {
        Addressing::Unit => write!(f, "v{letter}{segment}e{bits}.v")?,
        Addressing::Strided(_) => write!(f, "v{letter}s{segment}e{bits}.v")?,
        Addressing::Indexed { ordered, .. } => {
            write!(f, "v{letter}{}x{segment}ei{bits}.v", if ordered { 'o' } else { 'u' })?;
        }
        Addressing::Whole if inst.direction == Direction::Load => write!(f, "vl{fields}re{bits}.v")?,
        Addressing::Whole => write!(f, "vs{fields}r.v")?,
        Addressing::Mask => write!(f, "v{letter}m.v")?,
    }
    write!(f, " {}, ({})", inst.vd, inst.rs1)?;
    match inst.addressing {
        Addressing::Strided(stride) => write!(f, ", {stride}")?,
        Addressing::Indexed { vs2, .. } => write!(f, ", {vs2}")?,
        _ => {}
    }
    mask(inst.masked, f)
}

fn arithmetic(inst: &Arithmetic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Arithmetic { op, vd, vs2, source, masked } = *inst;
    let letter = match source {
        Source::Vector(_) => 'v',
        Source::Scalar(_) => 'x',
        Source::Immediate(_) | Source::None => 'i',
    };
    let name = op.mnemonic();
    match op.shape() {
        Shape::MoveRegisters => return write!(f, "vmv{}r.v {vd}, {vs2}", SourceText(source)),
        Shape::Move => return write!(f, "{name}.{letter} {vd}, {}", SourceText(source)),
        Shape::ScalarToElement => return write!(f, "{name} {vd}, {}", SourceText(source)),
        Shape::ElementToScalar => return write!(f, "{name} {}, {vs2}", inst.rd()),
        Shape::Merge => return write!(f, "{name}.v{letter}m {vd}, {vs2}, {}, v0", SourceText(source)),
        Shape::MaskToScalar => write!(f, "{name} {}, {vs2}", inst.rd())?,
        Shape::Index => write!(f, "{name} {vd}")?,
        Shape::Extend2 | Shape::Extend4 => write!(f, "{name} {vd}, {vs2}")?,
        Shape::MaskLogic => write!(f, "{name}.mm {vd}, {vs2}, {}", SourceText(source))?,
        Shape::Reduce | Shape::WidenReduce => write!(f, "{name}.vs {vd}, {vs2}, {}", SourceText(source))?,
        Shape::WidenWide | Shape::Narrow => write!(f, "{name}.w{letter} {vd}, {vs2}, {}", SourceText(source))?,
        Shape::Accumulate | Shape::WidenAccumulate => {
            write!(f, "{name}.v{letter} {vd}, {}, {vs2}", SourceText(source))?;
        }
        Shape::Plain | Shape::Compare | Shape::Widen | Shape::Permute => {
            write!(f, "{name}.v{letter} {vd}, {vs2}, {}", SourceText(source))?;
        }
    }
    mask(masked, f)
}

fn mask(masked: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if masked { f.write_str(", v0.t") } else { Ok(()) }
}

struct SourceText(Source);

impl fmt::Display for SourceText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Source::None => Ok(()),
            Source::Vector(reg) => reg.fmt(f),
            Source::Scalar(reg) => reg.fmt(f),
            Source::Immediate(value) => value.fmt(f),
        }
    }
}
