//! Checks of memory accesses: accesses whose bases have the same [value number](super::values) share one.

use std::collections::HashMap;

use spin_abi::map::TASK_BLOCK;

use super::devices::may_be_device;
use super::task_pointer;
use super::values::{Bytes, Place, ValueNo, Values};
use crate::device::is_device;
use crate::inst::{Inst, Reg};
use crate::jit::cfg::{BlockId, Cfg};
use crate::jit::dataflow::{Dataflow, RegState};
use crate::jit::regs::size;

/// Largest range that one check covers: a page.
const MAX_RANGE: i64 = 4096;
/// Number of bytes below a block's accesses at which its check may begin for the sake of later blocks: the first bytes of
/// an object are mostly there if later ones are. Bytes beyond the accessed ones may not be there; handlers compare lengths
/// before they access those.
const MAX_BELOW: i64 = 64;
/// Number of blocks that the lookahead follows on each path.
const LOOKAHEAD_BLOCKS: u32 = 3;
/// Number of instructions that the lookahead looks at in all: a block may have many successors, and each of these too.
const LOOKAHEAD_INSTRUCTIONS: usize = 2000;

/// Bytes around an access that one check covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckRange {
    /// Distance from the access to the first byte: at most 0.
    pub(crate) from: i32,
    /// Number of bytes.
    pub(crate) len: u32,
}

/// Checks and places of all memory accesses of a region, by the [number](Dataflow::number) of the instruction.
#[derive(Debug)]
pub(crate) struct Checked {
    ranges: Vec<Option<CheckRange>>,
    places: Vec<Option<Place>>,
}

impl Checked {
    /// Looks at all blocks. `task_pointer` is the instruction of block 0 that loads it.
    pub(super) fn new(
        cfg: &Cfg,
        facts: &Dataflow,
        task_pointer: Option<usize>,
        any_device: bool,
        is_exact: bool,
    ) -> Self {
        let mut checked = Self { ranges: vec![None; facts.numbers()], places: vec![None; facts.numbers()] };
        let mut ends: Vec<Option<Values>> = vec![None; cfg.blocks.len()];
        for id in cfg.hot_blocks() {
            let from = cfg.predecessors[id].iter().filter(|&&from| cfg.is_compiled(from, id));
            let is_start = cfg.starts().contains(&id);
            let mut values =
                Values::at_start(id, is_start.then_some(None).into_iter().chain(from.map(|&from| ends[from].as_ref())));
            let task_pointer = task_pointer.filter(|_| id == 0);
            let block = Accesses { cfg, facts, id, task_pointer, any_device, is_exact };
            block.check(&mut values, &mut checked);
            ends[id] = Some(values);
        }
        checked
    }

    /// The place that the base register of an access holds; `None` when the access may be to a device.
    pub(crate) fn place(&self, number: usize) -> Option<Place> {
        self.places[number]
    }

    /// What to check at an access; `None` when an earlier check covers it.
    pub(crate) fn range(&self, number: usize) -> Option<CheckRange> {
        self.ranges[number]
    }
}

/// An access, by its distance from a value.
#[derive(Clone, Copy)]
struct Access {
    index: usize,
    start: i32,
    size: u32,
}

impl Access {
    fn bytes(self) -> Bytes {
        (i64::from(self.start), i64::from(self.start) + i64::from(self.size))
    }
}

/// The accesses of a block.
struct Accesses<'c> {
    cfg: &'c Cfg,
    facts: &'c Dataflow,
    id: BlockId,
    task_pointer: Option<usize>,
    any_device: bool,
    is_exact: bool,
}

impl Accesses<'_> {
    /// Plans the block's checks; `values` hold at its start, and afterwards at its end.
    fn check(&self, values: &mut Values, checked: &mut Checked) {
        let mut accesses: HashMap<ValueNo, Vec<Access>> = HashMap::new();
        for (index, inst, state) in self.facts.walk(self.cfg, self.id) {
            if let Some(size) = size(inst) {
                let number = self.facts.number(self.id, index);
                let place = values.place(inst.rs1);
                let start = place.distance.wrapping_add(inst.imm.cast_unsigned()).cast_signed();
                // An access to a device has no check that another one could rely on.
                if self.may_reach_device(inst, state) {
                    checked.ranges[number] = Some(CheckRange { from: 0, len: size });
                } else {
                    checked.places[number] = Some(place);
                    accesses.entry(place.value).or_default().push(Access { index, start, size });
                }
            }
            let pointer = (self.task_pointer == Some(index)).then(|| {
                // The descriptor is checked as a whole, so that its fields take no checks.
                let place = values.moved(inst.rs1, task_pointer::DISTANCE.cast_unsigned());
                let whole = Access { index, start: place.distance.cast_signed(), size: TASK_BLOCK };
                accesses.entry(place.value).or_default().push(whole);
                place
            });
            values.transfer(inst, state);
            if let Some(pointer) = pointer.filter(|_| inst.rd != Reg::ZERO) {
                values.set(inst.rd, pointer);
            }
        }
        let needs_lookahead = self.is_exact && !accesses.is_empty();
        let lookahead = if needs_lookahead { Lookahead::new(self.cfg, self.id, values) } else { Lookahead::default() };
        for (value, accesses) in &accesses {
            let (before, first) = (values.checked.get(value).copied(), lookahead.0.get(value).copied());
            let after = self.share(accesses, before, first, checked);
            values.checked.extend(after.map(|bytes| (*value, bytes)));
        }
        values.prune();
    }

    fn may_reach_device(&self, inst: &Inst, state: &RegState) -> bool {
        state.address(inst).is_some_and(is_device) || may_be_device(inst, state, self.any_device)
    }

    /// Plans checks of accesses to one value, in their order, each as large as [`MAX_RANGE`] allows. Takes and returns the
    /// bytes that are checked; `lookahead` is the first byte that later blocks access.
    fn share(
        &self,
        accesses: &[Access],
        mut before: Option<Bytes>,
        lookahead: Option<i64>,
        checked: &mut Checked,
    ) -> Option<Bytes> {
        let join = |(low, high): Bytes, (from, to): Bytes| (low.min(from), high.max(to));
        let mut rest = accesses;
        while let Some((first, others)) = rest.split_first() {
            if before.is_some_and(|bytes| join(bytes, first.bytes()) == bytes) {
                rest = others;
                continue;
            }
            // Checked bytes are checked again with the new ones: so they stay one range, which covers what lies between.
            let start = before.map(|bytes| join(bytes, first.bytes())).filter(|(low, high)| high - low <= MAX_RANGE);
            let mut all = start.unwrap_or_else(|| first.bytes());
            let mut count = 1;
            for access in others {
                let (low, high) = join(all, access.bytes());
                if high - low > MAX_RANGE {
                    break;
                }
                (all, count) = ((low, high), count + 1);
            }
            if let Some(at) = lookahead
                && at >= 0
                && (all.0 - MAX_BELOW..all.0).contains(&at)
                && all.1 - at <= MAX_RANGE
            {
                all.0 = at;
            }
            let from = i32::try_from(all.0 - i64::from(first.start)).unwrap_or(0);
            let len = u32::try_from(all.1 - all.0).unwrap_or(0);
            checked.ranges[self.facts.number(self.id, first.index)] = Some(CheckRange { from, len });
            before = Some(all);
            rest = &rest[count..];
        }
        before
    }
}

/// By value, the distance of the first byte that later blocks access.
#[derive(Debug, Default)]
struct Lookahead(HashMap<ValueNo, i64>);

impl Lookahead {
    /// Looks at the blocks after a block, on all paths that do not lead back. `values` hold at its end.
    fn new(cfg: &Cfg, id: BlockId, values: &Values) -> Self {
        let mut firsts = Self::default();
        firsts.look(cfg, id, values, LOOKAHEAD_BLOCKS, &mut { LOOKAHEAD_INSTRUCTIONS });
        firsts
    }

    /// Looks at `blocks` more blocks on each path, and at no more than `left` instructions in all.
    fn look(&mut self, cfg: &Cfg, id: BlockId, values: &Values, blocks: u32, left: &mut usize) {
        let nothing = RegState::default();
        for next in cfg.successors(id).filter(|&next| next > id && !cfg.blocks[next].cold) {
            let Some(less) = left.checked_sub(1 + cfg.blocks[next].body.len()) else { return };
            *left = less;
            let mut values = values.unchecked();
            for (_, decoded) in &cfg.blocks[next].body {
                let inst = &decoded.inst;
                if size(inst).is_some() {
                    let Place { value, distance } = values.moved(inst.rs1, inst.imm.cast_unsigned());
                    let (first, from) = (self.0.entry(value).or_insert(i64::MAX), i64::from(distance.cast_signed()));
                    *first = from.min(*first);
                }
                values.transfer(inst, &nothing);
            }
            if blocks > 1 {
                self.look(cfg, next, &values, blocks - 1, left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CheckRange, Checked};
    use crate::inst::{Inst, Op, Reg};
    use crate::jit::cfg::tests::handler_of;
    use crate::jit::dataflow::Dataflow;
    use crate::jit::regs::Regs;

    /// The check of the first access, when a later block may access `later`.
    fn first_range(later: i32) -> Option<CheckRange> {
        let [pointer, value] = [5, 6].map(Reg::new);
        let mut cfg = handler_of(&[
            Inst::new(Op::Lw).rd(pointer).rs1(Reg::A0),
            Inst::new(Op::Lw).rd(value).rs1(pointer).imm(100),
            Inst::new(Op::Beq).rs1(value).rs2(Reg::ZERO).imm(8),
            Inst::new(Op::Lw).rd(value).rs1(pointer).imm(later),
            Inst::new(Op::Jalr).rs1(Reg::RA),
        ]);
        let facts = Dataflow::new(&mut cfg, Regs(0), 0);
        Checked::new(&cfg, &facts, None, false, true).range(facts.number(0, 1))
    }

    #[test]
    fn a_check_begins_at_a_later_access_that_is_slightly_below() {
        let alone = Some(CheckRange { from: 0, len: 4 });
        assert_eq!(first_range(100), alone);
        assert_eq!(first_range(40), Some(CheckRange { from: -60, len: 64 }));
        // Bytes above, or further below, may not be there.
        assert_eq!((first_range(104), first_range(32), first_range(-4)), (alone, alone, alone));
    }
}
