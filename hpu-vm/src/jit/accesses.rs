//! Which memory accesses go by the same base, so that one check serves all of them.
//!
//! A register is some value nothing is known of, its *root*, plus a constant. Accesses of one root lie at known distances from
//! each other. Roots, and what was checked of them, hold in later blocks too, as far as all ways there agree.

use std::collections::HashMap;

use crate::device::is_device;
use crate::inst::{Format, Inst, Op, Reg};
use crate::jit::facts::{Known, writes};
use crate::jit::plan::{Block, BlockId, Plan};

/// Largest distance over which accesses share a check: a page.
const REACH: i64 = 4096;
/// How far before what a block accesses of something its check may begin, for the blocks behind it: an object's first bytes are mostly
/// there if later ones are. What comes after those that are accessed may not be: that is what handlers compare lengths for.
const BEFORE: i64 = 64;
/// So many blocks on.
const AHEAD: u32 = 3;
/// Instructions looked at there: a block may go on at any of many others, and each of these too.
const MOST_AHEAD: usize = 2000;

/// A value nothing is known of.
pub(crate) type Root = u64;

/// Root and distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) root: Root,
    pub(crate) distance: u32,
}

/// Bytes around an access that others of its block touch too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// From the access's own address to the first byte: at most 0.
    pub(crate) from: i32,
    /// Bytes.
    pub(crate) len: u32,
}

/// A load of a pointer of which is known where it points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described {
    /// Index of the instruction.
    pub(crate) index: usize,
    /// From what its base register holds to there.
    pub(crate) away: i32,
    /// Bytes from there on that are checked along with it: what else of them is accessed takes no check.
    pub(crate) len: u32,
}

/// The accesses of a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accesses {
    /// By index of the instruction: what to check there. Accesses without an entry are covered by an earlier one.
    spans: HashMap<usize, Span>,
    /// By the same, where the base register points of those that go to memory for certain.
    places: HashMap<usize, Place>,
}

impl Accesses {
    /// Looks at a block, at whose start `known` is known; `any_device` as in
    /// [`may_be_device`]. `roots` is what is known of roots there, and becomes what is at its end. `behind` tells what blocks behind it
    /// access, by what is known there.
    pub(crate) fn new(
        block: &Block,
        known: &Known,
        any_device: bool,
        described: Option<Described>,
        roots: &mut Roots,
        behind: impl FnOnce(&Roots) -> Firsts,
    ) -> Self {
        let mut known = known.clone();
        let mut seen: HashMap<Root, Vec<Seen>> = HashMap::new();
        let mut alone = Vec::new();
        let mut places = HashMap::new();
        for (index, (_, decoded)) in block.body.iter().enumerate() {
            let inst = &decoded.inst;
            if let Some(size) = size(inst) {
                let place = roots.places[inst.rs1.index()];
                let start = place.distance.wrapping_add(inst.imm.cast_unsigned()).cast_signed();
                // What goes to a device takes no check, so none may rely on it.
                if is_device_access(inst, &known) || may_be_device(inst, &known, any_device) {
                    alone.push((index, Span { from: 0, len: size }));
                } else {
                    places.insert(index, place);
                    seen.entry(place.root).or_default().push(Seen { index, start, size });
                }
            }
            let described = described.filter(|described| described.index == index);
            let pointer = described.map(|Described { away, len, .. }| {
                let place = roots.moved(inst.rs1, away.cast_unsigned());
                let whole = Seen { index, start: place.distance.cast_signed(), size: len };
                seen.entry(place.root).or_default().push(whole);
                place
            });
            roots.step(inst, &known);
            if let Some(pointer) = pointer.filter(|_| inst.rd != Reg::ZERO) {
                roots.places[inst.rd.index()] = pointer;
            }
            known.step_in(block, index);
        }
        let mut spans: HashMap<usize, Span> = alone.into_iter().collect();
        let firsts = if seen.is_empty() { Firsts::default() } else { behind(roots) };
        for (root, accesses) in &seen {
            let (checked, behind) = (roots.checked.get(root).copied(), firsts.0.get(root).copied());
            roots.checked.extend(add_spans(&mut spans, accesses, checked, behind).map(|checked| (*root, checked)));
        }
        roots.prune();
        Self { spans, places }
    }

    /// Where the base register of an access points, unless it may be a device's.
    pub(crate) fn place(&self, index: usize) -> Option<Place> {
        self.places.get(&index).copied()
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

/// Bytes around a root, by their distance from it: from the first to behind the last.
type Bytes = (i64, i64);

/// By root: how far from it the first byte is that blocks behind one access.
#[derive(Debug, Default)]
pub(crate) struct Firsts(HashMap<Root, i64>);

impl Firsts {
    /// Of the blocks behind a block, at whose end `roots` is known, on all ways that do not lead back.
    pub(crate) fn behind(plan: &Plan, id: BlockId, roots: &Roots) -> Self {
        let mut firsts = Self::default();
        firsts.look(plan, id, roots, AHEAD, &mut { MOST_AHEAD });
        firsts
    }

    /// Looks at so many blocks on each way, and at no more than `left` instructions in all.
    fn look(&mut self, plan: &Plan, id: BlockId, roots: &Roots, ahead: u32, left: &mut usize) {
        let nothing = Known::default();
        for next in plan.successors(id).filter(|&next| next > id) {
            let Some(less) = left.checked_sub(1 + plan.blocks[next].body.len()) else { return };
            *left = less;
            let mut roots = Roots { places: roots.places, checked: HashMap::new(), newest: roots.newest };
            for (_, decoded) in &plan.blocks[next].body {
                let inst = &decoded.inst;
                if size(inst).is_some() {
                    let Place { root, distance } = roots.moved(inst.rs1, inst.imm.cast_unsigned());
                    let (first, from) = (self.0.entry(root).or_insert(i64::MAX), i64::from(distance.cast_signed()));
                    *first = from.min(*first);
                }
                roots.step(inst, &nothing);
            }
            if ahead > 1 {
                self.look(plan, next, &roots, ahead - 1, left);
            }
        }
    }
}

/// Adds spans of accesses of one root, in the order of the block, each as far as [`REACH`] allows. Takes and returns the bytes
/// that are checked already; `behind` is the first one that is accessed behind the block.
fn add_spans(
    spans: &mut HashMap<usize, Span>,
    accesses: &[Seen],
    mut checked: Option<Bytes>,
    behind: Option<i64>,
) -> Option<Bytes> {
    let bytes = |access: &Seen| (i64::from(access.start), i64::from(access.start) + i64::from(access.size));
    let join = |(low, high): Bytes, (from, to): Bytes| (low.min(from), high.max(to));
    let mut rest = accesses;
    while let Some((first, others)) = rest.split_first() {
        if checked.is_some_and(|checked| join(checked, bytes(first)) == checked) {
            rest = others;
            continue;
        }
        // What was checked before is checked again along with the rest: so it stays one piece, which covers what lies between.
        let start = checked.map(|checked| join(checked, bytes(first))).filter(|(low, high)| high - low <= REACH);
        let mut all = start.unwrap_or_else(|| bytes(first));
        let mut count = 1;
        for access in others {
            let (low, high) = join(all, bytes(access));
            if high - low > REACH {
                break;
            }
            (all, count) = ((low, high), count + 1);
        }
        if let Some(at) = behind
            && at >= 0
            && (all.0 - BEFORE..all.0).contains(&at)
            && all.1 - at <= REACH
        {
            all.0 = at;
        }
        let from = i32::try_from(all.0 - i64::from(first.start)).unwrap_or(0);
        let len = u32::try_from(all.1 - all.0).unwrap_or(0);
        spans.insert(first.index, Span { from, len });
        checked = Some(all);
        rest = &rest[count..];
    }
    checked
}

/// Whether only a load's or store's address tells, when it runs, whether it is to a device. With `any_device` no register but
/// sp is known to point elsewhere.
pub(crate) fn may_be_device(inst: &Inst, known: &Known, any_device: bool) -> bool {
    let moves = matches!(inst.op.format(), Format::Load | Format::Store);
    let unknown = known.constant(inst.rs1).is_none();
    moves && unknown && (known.may_be_device(inst.rs1) || (any_device && !known.is_stack(inst.rs1)))
}

/// Whether it certainly is to a device.
fn is_device_access(inst: &Inst, known: &Known) -> bool {
    known.address(inst).is_some_and(is_device)
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

/// What registers are at one point in terms of roots, and what was checked of those.
#[derive(Clone, Debug)]
pub(crate) struct Roots {
    places: [Place; 32],
    checked: HashMap<Root, Bytes>,
    /// The newest root; no other block has such.
    newest: Root,
}

impl Roots {
    /// At the start of a block that the ways with these ends lead to; `None` for any other way.
    pub(crate) fn at_start<'r>(id: BlockId, mut ends: impl Iterator<Item = Option<&'r Self>>) -> Self {
        let newest = (id as Root) << 32;
        let Some(Some(first)) = ends.next() else { return Self::unknown(newest) };
        let mut roots = Self { newest, ..first.clone() };
        for end in ends {
            let Some(end) = end else { return Self::unknown(newest) };
            roots.meet(end);
        }
        roots
    }

    fn unknown(newest: Root) -> Self {
        let mut roots = Self { places: [Place { root: 0, distance: 0 }; 32], checked: HashMap::new(), newest };
        (0..32).map(Reg::new).for_each(|reg| roots.forget(reg));
        roots
    }

    /// Keeps what holds on both ways.
    fn meet(&mut self, other: &Self) {
        for reg in (0..32).map(Reg::new) {
            if self.places[reg.index()] != other.places[reg.index()] {
                self.forget(reg);
            }
        }
        self.checked.retain(|root, (low, high)| {
            let Some(&(from, to)) = other.checked.get(root) else { return false };
            (*low, *high) = ((*low).max(from), (*high).min(to));
            low < high
        });
    }

    /// Forgets what was checked of roots that no register has.
    fn prune(&mut self) {
        let Self { places, checked, .. } = self;
        checked.retain(|root, _| places.iter().any(|place| place.root == *root));
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

    pub(crate) fn forget(&mut self, reg: Reg) {
        self.newest += 1;
        self.places[reg.index()] = Place { root: self.newest, distance: 0 };
    }

    fn moved(&self, reg: Reg, by: u32) -> Place {
        let place = self.places[reg.index()];
        Place { distance: place.distance.wrapping_add(by), ..place }
    }

    fn offset(&self, reg: Reg, by: Option<u32>) -> Option<Place> {
        by.map(|by| self.moved(reg, by))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Accesses, Firsts, Roots, Span};
    use crate::code::Code;
    use crate::inst::{Inst, Op, Reg};
    use crate::jit::facts::{Facts, Regs};
    use crate::jit::plan::Plan;

    const ENTRY: u32 = 0x1d00_0000;

    /// What is accessed, block by block.
    fn accesses(program: &[Inst]) -> Vec<Accesses> {
        let mut plan = Plan::new(&Code::of(ENTRY, program), ENTRY, &BTreeSet::new());
        let facts = Facts::new(&mut plan, Regs(0), 0);
        let mut ends: Vec<Option<Roots>> = vec![None; plan.blocks.len()];
        let mut all = Vec::new();
        for (id, block) in plan.blocks.iter().enumerate() {
            let known = facts.known(id).cloned().unwrap_or_default();
            let ways = (0..id).filter(|&from| plan.successors(from).any(|to| to == id));
            let mut roots = Roots::at_start(id, ways.map(|from| ends[from].as_ref()));
            let behind = |roots: &Roots| Firsts::behind(&plan, id, roots);
            all.push(Accesses::new(block, &known, false, None, &mut roots, behind));
            ends[id] = Some(roots);
        }
        all
    }

    /// The check of the first access, when one that may follow is `behind` it.
    fn first_span(behind: i32) -> Option<Span> {
        let [pointer, value] = [5, 6].map(Reg::new);
        let accesses = accesses(&[
            Inst::new(Op::Lw).rd(pointer).rs1(Reg::A0),
            Inst::new(Op::Lw).rd(value).rs1(pointer).imm(100),
            Inst::new(Op::Beq).rs1(value).rs2(Reg::ZERO).imm(8),
            Inst::new(Op::Lw).rd(value).rs1(pointer).imm(behind),
            Inst::new(Op::Jalr).rs1(Reg::RA),
        ]);
        accesses[0].span(1)
    }

    #[test]
    fn a_check_begins_with_what_may_follow_a_little_before() {
        let alone = Some(Span { from: 0, len: 4 });
        assert_eq!(first_span(100), alone);
        assert_eq!(first_span(40), Some(Span { from: -60, len: 64 }));
        // What is further on or further away may not be there.
        assert_eq!((first_span(104), first_span(32), first_span(-4)), (alone, alone, alone));
    }
}
