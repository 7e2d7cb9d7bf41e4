//! Vector type and length at each point of a region, and the vector registers that instructions use.

use crate::analysis::cfg::Cfg;
use crate::device::is_device;
use crate::inst::{Inst, Reg};
use crate::vector::legal::Operands;
use crate::vector::vtype::VILL;
use crate::vector::{
    Addressing, Arithmetic, Configure, Direction, Length, Memory, NewType, Source, VReg, VectorInst, Vtype,
};

/// Vector type and length at one point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Value of `vtype`, if it is equal on all ways to this point.
    pub(crate) vtype: Option<u32>,
    /// Value of `vl`, if it is equal on all ways to this point.
    pub(crate) vl: Option<u32>,
}

impl Setting {
    /// At a handler's first instruction.
    const BEGIN: Self = Self { vtype: Some(VILL), vl: Some(0) };

    /// The vector type, if it is known and legal.
    pub(crate) fn vtype(self) -> Option<Vtype> {
        self.vtype.and_then(Vtype::from_bits)
    }

    /// Applies an instruction. `constant` returns the values of registers that are constants.
    pub(crate) fn transfer(&mut self, inst: &Inst, constant: impl Fn(Reg) -> Option<u32>) {
        if let Some(change) = Change::of(inst, constant) {
            *self = change.after(*self);
        }
    }

    /// Keeps what holds in both.
    fn join(self, other: Self) -> Self {
        Self { vtype: self.vtype.filter(|_| self.vtype == other.vtype), vl: self.vl.filter(|_| self.vl == other.vl) }
    }
}

/// Effect of a configuring instruction on the [`Setting`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    vtype: Option<u32>,
    wanted: Wanted,
}

/// Requested number of elements.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Known(u32),
    Kept,
    Unknown,
}

impl Change {
    pub(super) fn of(inst: &Inst, constant: impl Fn(Reg) -> Option<u32>) -> Option<Self> {
        let configure = configuration(inst)?;
        let vtype = match configure.vtype {
            NewType::Immediate(bits) => Some(bits),
            NewType::Register(reg) => constant(reg),
        };
        let wanted = match configure.length {
            Length::Register(reg) => constant(reg).map_or(Wanted::Unknown, Wanted::Known),
            Length::Immediate(count) => Wanted::Known(count),
            Length::Max => Wanted::Known(u32::MAX),
            Length::Keep => Wanted::Kept,
        };
        Some(Self { vtype, wanted })
    }

    fn after(self, before: Setting) -> Setting {
        let Some(bits) = self.vtype else { return Setting::default() };
        let Some(vtype) = Vtype::from_bits(bits) else { return Setting::BEGIN };
        let wanted = match self.wanted {
            Wanted::Known(count) => Some(count),
            Wanted::Kept => before.vl,
            Wanted::Unknown => None,
        };
        Setting { vtype: Some(bits), vl: wanted.map(|count| count.min(vtype.vlmax())) }
    }
}

/// The operands of a configuring instruction.
fn configuration(inst: &Inst) -> Option<Configure> {
    match inst.vector()? {
        VectorInst::Configure(configure) => Some(configure),
        _ => None,
    }
}

/// The length that a configuring instruction returns, unless it depends on the previous length. `constant` returns the values
/// of registers that are constants.
pub(crate) fn new_length(inst: &Inst, constant: impl Fn(Reg) -> Option<u32>) -> Option<u32> {
    let configure = configuration(inst)?;
    let bits = match configure.vtype {
        NewType::Immediate(bits) => bits,
        NewType::Register(reg) => constant(reg)?,
    };
    let Some(vtype) = Vtype::from_bits(bits) else { return Some(0) };
    let wanted = match configure.length {
        Length::Register(reg) => constant(reg)?,
        Length::Immediate(count) => count,
        Length::Max => u32::MAX,
        Length::Keep => return None,
    };
    Some(wanted.min(vtype.vlmax()))
}

/// The setting at the start of each block, by the changes in each.
pub(super) fn settings(cfg: &Cfg, changes: &[Vec<Change>]) -> Vec<Setting> {
    let mut settings: Vec<Option<Setting>> = vec![None; cfg.blocks.len()];
    let mut work = cfg.starts().to_vec();
    let begin = if cfg.begins_task() { Setting::BEGIN } else { Setting::default() };
    work.iter().for_each(|&start| settings[start] = Some(begin));
    while let Some(id) = work.pop() {
        let Some(before) = settings[id] else { continue };
        let after = changes[id].iter().fold(before, |setting, change| change.after(setting));
        for next in cfg.successors(id).filter(|&next| cfg.is_compiled(id, next)) {
            let joined = settings[next].map_or(after, |there| there.join(after));
            // Each setting changes three times at most, so this ends.
            if settings[next] != Some(joined) {
                settings[next] = Some(joined);
                work.push(next);
            }
        }
    }
    settings.into_iter().map(Option::unwrap_or_default).collect()
}

/// A set of vector registers, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VRegs(pub(crate) u32);

impl VRegs {
    /// `count` registers from `first` on.
    pub(crate) fn group(first: VReg, count: u32) -> Self {
        let ones = 1u32.checked_shl(count).map_or(u32::MAX, |bit| bit - 1);
        Self(ones << first.number())
    }

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = VReg> {
        (0..32).filter(move |number| self.0 >> number & 1 != 0).map(VReg::new)
    }
}

/// Vector registers that an instruction may read and may write with any vector type.
pub(crate) fn vectors(inst: &VectorInst) -> (VRegs, VRegs) {
    /// Registers of the largest group.
    const MOST: u32 = 8;
    let none = VRegs::default();
    let largest = |first| VRegs::group(first, MOST);
    let mask = |masked| if masked { VRegs::group(VReg::V0, 1) } else { none };
    match *inst {
        VectorInst::Configure(_) => (none, none),
        VectorInst::Memory(Memory { direction, vd, addressing, masked, .. }) => {
            let indices = if let Addressing::Indexed { vs2, .. } = addressing { largest(vs2) } else { none };
            // Elements that are not loaded keep their values.
            let reads = largest(vd).or(indices).or(mask(masked));
            (reads, if direction == Direction::Load { largest(vd) } else { none })
        }
        VectorInst::Arithmetic(Arithmetic { op, vd, vs2, source, masked }) => {
            let other = if let Source::Vector(vs1) = source { largest(vs1) } else { none };
            let written = if op.shape().has_scalar_result() { none } else { largest(vd) };
            (largest(vs2).or(other).or(written).or(mask(masked)), written)
        }
    }
}

/// Vector registers that an arithmetic instruction with these operands reads and writes.
pub(crate) fn vectors_of(inst: &Arithmetic, operands: Operands) -> (VRegs, VRegs) {
    let (most_read, most_written) = vectors(&VectorInst::Arithmetic(*inst));
    let mut read = VRegs::group(inst.vs2, operands.vs2.registers()).or(VRegs::group(inst.vd, operands.vd.registers()));
    if let Source::Vector(vs1) = inst.source {
        read = read.or(VRegs::group(vs1, operands.vs1.registers()));
    }
    if inst.masked {
        read = read.or(VRegs::group(VReg::V0, 1));
    }
    let written = VRegs::group(inst.vd, operands.vd.registers());
    (VRegs(read.0 & most_read.0), VRegs(written.0 & most_written.0))
}

/// Whether an access of up to 128 bytes at `address` may be to a device.
pub(crate) fn may_reach_device(address: u32) -> bool {
    (0..128).any(|offset| is_device(address.wrapping_add(offset)))
}
