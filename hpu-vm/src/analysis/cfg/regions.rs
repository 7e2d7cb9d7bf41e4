//! Shared regions: the code at which execution continues when it leaves another region.
//!
//! Shared code is partitioned by functions; long ones are divided. Each instruction belongs to one region at most, so
//! that the translation grows with the code and not with the number of ways through it. A region is entered at any of its
//! entries, with all registers in the hart: the targets of calls and of jumps from other regions, and the return
//! addresses of calls.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::flood::Flood;
use super::flow::{Cost, Flow, MAX_COST};
use super::functions::Functions;
use crate::code::Code;

/// A shared region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Addresses that belong to it.
    pub(crate) extent: Range<u32>,
    /// Addresses at which it is entered.
    pub(crate) entries: BTreeSet<u32>,
}

/// The shared regions of an image.
#[derive(Debug)]
pub(crate) struct Regions {
    /// Where functions and their parts begin.
    pub(crate) functions: Functions,
    /// Regions in ascending order of their addresses.
    pub(crate) regions: Vec<Region>,
}

impl Regions {
    /// Finds all code that is reached from `exits`, and partitions it.
    pub(crate) fn new(
        code: &Code,
        mut functions: Functions,
        exits: &BTreeSet<u32>,
        taken: &BTreeSet<u32>,
        cost: Cost,
    ) -> Self {
        let flood = Flood::new(code, exits.iter().copied(), taken);
        divide(code, &mut functions, &flood, cost);
        let mut entries: BTreeSet<u32> = exits.iter().copied().filter(|&pc| flood.contains(pc)).collect();
        if flood.uses_taken {
            entries.extend(taken.iter().filter(|&&pc| flood.contains(pc)));
        }
        for (pc, flow) in flood.visited() {
            let extent = functions.extent(pc);
            let next = code.fetch(pc).map(|decoded| decoded.next(pc));
            let (first, second, is_call) = match flow {
                Flow::Next => (next, None, false),
                Flow::Jump(target) => (Some(target), None, false),
                Flow::Branch(target) => (Some(target), next, false),
                Flow::Call { target, back } => (target, Some(back), true),
                Flow::Return | Flow::Indirect | Flow::Stop => (None, None, false),
            };
            let targets = first.into_iter().chain(second).filter(|to| is_call || !extent.contains(to));
            entries.extend(targets.filter(|&to| flood.contains(to)));
        }
        let mut regions: BTreeMap<u32, Region> = BTreeMap::new();
        for pc in entries {
            let extent = functions.extent(pc);
            let region = regions.entry(extent.start).or_insert(Region { extent, entries: BTreeSet::new() });
            region.entries.insert(pc);
        }
        Self { functions, regions: regions.into_values().collect() }
    }
}

/// Divides functions that are too large for one region.
fn divide(code: &Code, functions: &mut Functions, flood: &Flood, cost: Cost) {
    let (mut extent, mut spent) = (0..0, 0);
    for (pc, _) in flood.visited() {
        if !extent.contains(&pc) {
            (extent, spent) = (functions.extent(pc), 0);
        }
        let next = code.fetch(pc).map_or(0, |decoded| cost.of(&decoded.inst));
        spent += next;
        if spent > MAX_COST {
            functions.divide(pc);
            (extent, spent) = (functions.extent(pc), next);
        }
    }
}
