//! Checks of memory accesses: accesses whose bases have the same [value number](super::values) share one.

use std::collections::HashMap;

use spin_abi::map::TASK_BLOCK;

use super::devices::may_be_device;
use super::task_pointer;
use super::values::{Bytes, Place, ValueNo, Values};
use crate::analysis::cfg::{BlockId, Cfg};
use crate::analysis::dataflow::{Dataflow, RegState};
use crate::analysis::regs::size;
use crate::device::is_device;
use crate::inst::{Inst, Reg};

/// Largest range that one check covers: a page.
const MAX_RANGE: i64 = 4096;
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
    pub(super) fn new(cfg: &Cfg, facts: &Dataflow, task_pointer: Option<usize>, any_device: bool) -> Self {
        let mut checked = Self { ranges: vec![None; facts.numbers()], places: vec![None; facts.numbers()] };
        let mut ends: Vec<Option<Values>> = vec![None; cfg.blocks.len()];
        for id in cfg.hot_blocks() {
            let from = cfg.predecessors[id].iter().filter(|&&from| cfg.is_compiled(from, id));
            let is_start = cfg.starts().contains(&id);
            let mut values =
                Values::at_start(id, is_start.then_some(None).into_iter().chain(from.map(|&from| ends[from].as_ref())));
            let task_pointer = task_pointer.filter(|_| id == 0);
            let block = Accesses { cfg, facts, id, task_pointer, any_device };
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
        for (value, accesses) in &accesses {
            let after = self.share(accesses, values.checked.get(value).copied(), checked);
            values.checked.extend(after.map(|bytes| (*value, bytes)));
        }
        values.prune();
    }

    fn may_reach_device(&self, inst: &Inst, state: &RegState) -> bool {
        state.address(inst).is_some_and(is_device) || may_be_device(inst, state, self.any_device)
    }

    /// Plans checks of accesses to one value, in their order, each as large as [`MAX_RANGE`] allows. Takes and returns the
    /// bytes that are checked.
    fn share(&self, accesses: &[Access], mut before: Option<Bytes>, checked: &mut Checked) -> Option<Bytes> {
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
            let from = i32::try_from(all.0 - i64::from(first.start)).unwrap_or(0);
            let len = u32::try_from(all.1 - all.0).unwrap_or(0);
            checked.ranges[self.facts.number(self.id, first.index)] = Some(CheckRange { from, len });
            before = Some(all);
            rest = &rest[count..];
        }
        before
    }
}
