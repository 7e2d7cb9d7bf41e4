//! Which memory accesses of a block go by the same base, so that one check serves all of them.
//!
//! Within a block a register is some value nothing is known of, its *root*, plus a constant. Accesses of one root lie at
//! known distances from each other.

use std::collections::HashMap;

use crate::device::is_device;
use crate::inst::{Format, Inst, Op, Reg};
use crate::jit::facts::{Known, writes};
use crate::jit::plan::Block;

/// Largest distance over which accesses share a check: a page.
const REACH: i64 = 4096;

/// A value nothing is known of.
type Root = u32;

/// Root and distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    root: Root,
    distance: u32,
}

/// Bytes around an access that others of its block touch too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// From the access's own address to the first byte: at most 0.
    pub(crate) from: i32,
    /// Bytes.
    pub(crate) len: u32,
}

/// The accesses of a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accesses {
    /// By index of the instruction: what to check there. Accesses without an entry are covered by an earlier one.
    spans: HashMap<usize, Span>,
    /// What AMOs touch by way of registers as they are at the block's start, and indices of those.
    amos: Vec<AmoSpan>,
}

/// AMOs of one base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AmoSpan {
    /// The base, at the block's start.
    pub(crate) reg: Reg,
    /// From there to the first byte.
    pub(crate) from: i32,
    /// Bytes.
    pub(crate) len: u32,
    /// Indices of the AMOs.
    pub(crate) indices: Vec<usize>,
}

impl Accesses {
    /// Looks at a block, at whose start `known` is known; `any_device` as in [`may_be_device`].
    pub(crate) fn new(block: &Block, known: &Known, any_device: bool) -> Self {
        let mut tracker = Tracker::new();
        let mut known = known.clone();
        let mut seen: HashMap<Root, Vec<Seen>> = HashMap::new();
        let mut alone = Vec::new();
        for (index, (pc, decoded)) in block.body.iter().enumerate() {
            let inst = &decoded.inst;
            if let Some(size) = size(inst) {
                let place = tracker.places[inst.rs1.index()];
                let start = place.distance.wrapping_add(inst.imm.cast_unsigned()).cast_signed();
                // What goes to a device takes no check, so none may rely on it.
                if is_device_access(inst, &known) || may_be_device(inst, &known, any_device) {
                    alone.push((index, Span { from: 0, len: size }));
                } else {
                    seen.entry(place.root).or_default().push(Seen { index, start, size });
                }
            }
            tracker.step(inst, &known);
            known.step(*pc, inst, decoded.size);
        }
        let amos = amo_spans(block, &seen);
        let spans = seen.into_values().flat_map(spans).chain(alone).collect();
        Self { spans, amos }
    }

    /// AMOs that one check at the block's start tells all about: of bases with more than one.
    pub(crate) fn amos(&self) -> &[AmoSpan] {
        &self.amos
    }

    /// What to check at an access: `None` when an earlier check covers it.
    pub(crate) fn span(&self, index: usize) -> Option<Span> {
        self.spans.get(&index).copied()
    }
}

/// An access, by its distance from its root.
#[derive(Clone, Copy)]
struct Seen {
    index: usize,
    start: i32,
    size: u32,
}

fn amo_spans(block: &Block, seen: &HashMap<Root, Vec<Seen>>) -> Vec<AmoSpan> {
    // The roots that registers are at the start, see `Tracker::new`.
    let roots = (1u32..32).filter_map(|number| Some((Reg::new(number), seen.get(&(number + 1))?)));
    let spans = roots.filter_map(|(reg, accesses)| {
        let is_amo = |access: &&Seen| {
            let op = block.body[access.index].1.inst.op;
            op.format() == Format::Amo && op != Op::ScW
        };
        let amos: Vec<&Seen> = accesses.iter().filter(is_amo).collect();
        let (low, high) = (amos.iter().map(|amo| amo.start).min()?, amos.iter().map(|amo| amo.start).max()?);
        let len = u32::try_from(i64::from(high) - i64::from(low)).ok().filter(|&len| i64::from(len) < REACH)?;
        let indices: Vec<usize> = amos.iter().map(|amo| amo.index).collect();
        (indices.len() > 1).then_some(AmoSpan { reg, from: low, len: len + 4, indices })
    });
    spans.collect()
}

/// Spans of accesses of one root, in the order of the block: each as far as [`REACH`] allows.
fn spans(accesses: Vec<Seen>) -> Vec<(usize, Span)> {
    let mut spans = Vec::new();
    let mut rest = &accesses[..];
    while let Some(first) = rest.first() {
        let (mut low, mut high) = (i64::from(first.start), i64::from(first.start) + i64::from(first.size));
        let mut count = 0;
        for access in rest {
            let start = i64::from(access.start);
            let (l, h) = (low.min(start), high.max(start + i64::from(access.size)));
            if h - l > REACH {
                break;
            }
            (low, high, count) = (l, h, count + 1);
        }
        let from = i32::try_from(low - i64::from(first.start)).unwrap_or(0);
        let len = u32::try_from(high - low).unwrap_or(0);
        spans.push((first.index, Span { from, len }));
        rest = &rest[count..];
    }
    spans
}

/// Whether only a load's or store's address tells, when it runs, whether it is to a device. With `any_device` no register but
/// sp is known to point elsewhere.
pub(crate) fn may_be_device(inst: &Inst, known: &Known, any_device: bool) -> bool {
    let moves = matches!(inst.op.format(), Format::Load | Format::Store);
    let unknown = known.constant(inst.rs1).is_none();
    moves && unknown && (known.may_be_device(inst.rs1) || (any_device && inst.rs1 != Reg::SP))
}

/// Whether it certainly is to a device.
fn is_device_access(inst: &Inst, known: &Known) -> bool {
    known.constant(inst.rs1).is_some_and(|base| is_device(base.wrapping_add(inst.imm.cast_unsigned())))
}

/// Bytes of a memory access.
pub(crate) const fn size(inst: &Inst) -> Option<u32> {
    Some(match inst.op {
        Op::Lb | Op::Lbu | Op::Sb => 1,
        Op::Lh | Op::Lhu | Op::Sh => 2,
        Op::Lw | Op::Sw => 4,
        _ => match inst.op.format() {
            Format::Amo | Format::LoadReserved => 4,
            _ => return None,
        },
    })
}

struct Tracker {
    places: [Place; 32],
    next: Root,
}

impl Tracker {
    fn new() -> Self {
        let mut next = 0;
        let mut fresh = || {
            next += 1;
            next
        };
        let places = [(); 32].map(|()| Place { root: fresh(), distance: 0 });
        Self { places, next }
    }

    fn step(&mut self, inst: &Inst, known: &Known) {
        if inst.op == Op::Ecall {
            self.forget(Reg::A0);
            self.forget(Reg::A1);
        }
        let rd = writes(inst);
        if rd == Reg::ZERO {
            return;
        }
        let place = match inst.op {
            Op::Addi => Some(self.moved(inst.rs1, inst.imm.cast_unsigned())),
            Op::Add if known.constant(inst.rs1).is_some() => self.offset(inst.rs2, known.constant(inst.rs1)),
            Op::Add => self.offset(inst.rs1, known.constant(inst.rs2)),
            _ => None,
        };
        self.forget(rd);
        if let Some(place) = place {
            self.places[rd.index()] = place;
        }
    }

    fn forget(&mut self, reg: Reg) {
        self.next += 1;
        self.places[reg.index()] = Place { root: self.next, distance: 0 };
    }

    fn moved(&self, reg: Reg, by: u32) -> Place {
        let place = self.places[reg.index()];
        Place { distance: place.distance.wrapping_add(by), ..place }
    }

    fn offset(&self, reg: Reg, by: Option<u32>) -> Option<Place> {
        by.map(|by| self.moved(reg, by))
    }
}
