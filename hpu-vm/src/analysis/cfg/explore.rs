//! Builds the graph of a region.
//!
//! Calls are inlined: a block belongs to an [`InlineContext`], so that a return is a comparison with a single return
//! address. Calls that are recursive, too deep, too large or through registers leave the region, as does code beyond the
//! budget. Code that the image marks as cold is explored last, for liveness only.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use spin_abi::map::RETURN_ADDRESS;

use super::context::{Contexts, InlineContext};
use super::flow::{Cost, Flow, MAX_COST};
use super::functions::Functions;
use super::graph::{Block, BlockId, Cfg, End, Start, Target};
use super::regions::Region;
use crate::code::Code;
use crate::decode::Decoded;
use crate::inst::{Format, Inst, Op, Reg};

/// Number of instructions up to which calls are inlined.
const MAX_INLINED: usize = 2_000;
/// Maximum number of targets of a computed jump.
const MAX_TARGETS: usize = 256;
/// Maximum number of edges from computed jumps: the analyses look at each of them.
const MAX_EDGES: usize = 50_000;
/// Maximum number of instructions of a first block that is [peeled](InlineContext::PEELED).
const MAX_PEELED: usize = 100;

/// What a region is built from.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'c> {
    pub(crate) code: &'c Code,
    pub(crate) functions: &'c Functions,
    /// Possible targets of computed jumps.
    pub(crate) taken: &'c BTreeSet<u32>,
    pub(crate) cost: Cost,
    /// Whether code that the image marks as cold is in other regions.
    pub(crate) parts_cold: bool,
}

/// Builds the graph of the handler at `entry`.
pub(crate) fn handler(scope: Scope<'_>, entry: u32) -> Cfg {
    let root = Place { context: InlineContext::ROOT, pc: entry };
    let mut explorer = Explorer::new(scope, Some(entry), 0..u32::MAX);
    explorer.explore([root]);
    explorer.into_cfg(&[root])
}

/// Builds the graph of a shared region. Its points are in ascending order of their addresses.
pub(crate) fn shared(scope: Scope<'_>, region: &Region) -> Cfg {
    let place = |&pc: &u32| Place { context: InlineContext::ROOT, pc };
    let points: Vec<Place> = region.entries.iter().map(place).collect();
    let mut explorer = Explorer::new(scope, None, region.extent.clone());
    explorer.explore(points.iter().copied());
    explorer.into_cfg(&points)
}

/// An instruction in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    context: InlineContext,
    pc: u32,
}

/// The table of a computed jump: its context, and the first address of the function that it is in.
type TableKey = (InlineContext, u32);

/// Where control goes from a place.
enum Next {
    Following,
    Goto(Place),
    Branch { taken: Place, not: Place },
    Jump { likely: Option<Place>, table: Option<TableKey> },
    Nowhere,
}

struct Explorer<'c> {
    scope: Scope<'c>,
    /// First instruction of a handler.
    entry: Option<u32>,
    /// Addresses that may belong to the region.
    extent: Range<u32>,
    /// Context of jumps to the handler's first instruction.
    again: InlineContext,
    contexts: Contexts,
    /// Contexts by caller and return address.
    callees: HashMap<(InlineContext, u32), InlineContext>,
    /// Every explored instruction, and whether a block begins there.
    planned: HashMap<Place, bool>,
    cost: usize,
    tables: BTreeSet<TableKey>,
    /// Where execution enters cold code.
    cold: BTreeSet<Place>,
    work: Vec<Place>,
}

impl<'c> Explorer<'c> {
    fn new(scope: Scope<'c>, entry: Option<u32>, extent: Range<u32>) -> Self {
        let is_peeled = entry.is_some_and(|entry| !runs_on(scope.code, entry, MAX_PEELED));
        Self {
            scope,
            entry,
            extent,
            again: if is_peeled { InlineContext::PEELED } else { InlineContext::ROOT },
            contexts: Contexts::new(entry.is_some()),
            callees: HashMap::new(),
            planned: HashMap::new(),
            cost: 0,
            tables: BTreeSet::new(),
            cold: BTreeSet::new(),
            work: Vec::new(),
        }
    }

    fn explore(&mut self, starts: impl IntoIterator<Item = Place>) {
        starts.into_iter().for_each(|place| self.begin_block(place));
        self.follow_all();
        for place in self.cold.clone() {
            self.begin_block(place);
        }
        self.follow_all();
    }

    fn follow_all(&mut self) {
        while let Some(place) = self.work.pop() {
            self.follow(place);
        }
    }

    fn begin_block(&mut self, place: Place) {
        if let Some(leads) = self.planned.get_mut(&place) {
            *leads = true;
        } else if place.context != InlineContext::OUTSIDE && self.plan(place, true) {
            self.work.push(place);
        }
    }

    /// Adds an instruction to the region, if the budget allows it.
    fn plan(&mut self, place: Place, leads: bool) -> bool {
        let cost = self.scope.code.fetch(place.pc).map_or(1, |decoded| self.scope.cost.of(&decoded.inst));
        if self.cost + cost > MAX_COST {
            return false;
        }
        self.cost += cost;
        self.planned.insert(place, leads);
        true
    }

    /// Begins a block where a jump leads. Cold code of a handler comes later; that of a shared region has no other region.
    fn lead(&mut self, from: Place, to: Place) {
        let code = self.scope.code;
        let parts_cold = self.entry.is_some() && self.scope.parts_cold;
        if parts_cold && code.is_cold(to.pc) && !code.is_cold(from.pc) && to.context != InlineContext::OUTSIDE {
            self.cold.insert(to);
        } else {
            self.begin_block(to);
        }
    }

    /// Explores instructions from `place` on, up to one that ends the block.
    fn follow(&mut self, mut place: Place) {
        let mut before = None;
        loop {
            let Some(&decoded) = self.scope.code.fetch(place.pc) else { return self.begin_block(place) };
            match self.next(place, &decoded, before) {
                Next::Following => {}
                Next::Goto(to) => return self.lead(place, to),
                Next::Branch { taken, not } => {
                    self.lead(place, taken);
                    return self.lead(place, not);
                }
                Next::Jump { likely, table } => {
                    likely.into_iter().for_each(|to| self.lead(place, to));
                    return table.into_iter().for_each(|key| self.begin_table(place, key));
                }
                Next::Nowhere => return,
            }
            let next = Place { pc: decoded.next(place.pc), ..place };
            let is_inside = self.extent.contains(&next.pc);
            if self.planned.contains_key(&next) || !is_inside || !self.plan(next, false) {
                if is_inside {
                    self.begin_block(next);
                }
                return;
            }
            (before, place) = (Some((place.pc, decoded.inst)), next);
        }
    }

    /// Where control goes from `place`; `before` is the instruction that precedes it in its block.
    fn next(&mut self, place: Place, decoded: &Decoded, before: Option<(u32, Inst)>) -> Next {
        let place = Place { context: place.context.behind(), ..place };
        match Flow::of(place.pc, decoded, before) {
            Flow::Next => Next::Following,
            Flow::Jump(target) => Next::Goto(self.jump(place.context, target)),
            Flow::Branch(target) => {
                let not = Place { pc: decoded.next(place.pc), ..place };
                Next::Branch { taken: self.jump(place.context, target), not: self.inside(not) }
            }
            Flow::Call { target: Some(target), back } => Next::Goto(self.call(place.context, target, back)),
            Flow::Call { target: None, .. } => Next::Jump { likely: None, table: None },
            Flow::Return => {
                // A shared region most likely ends the task, or its callers are elsewhere.
                let pc = self.contexts.back(place.context).unwrap_or(RETURN_ADDRESS);
                let back = Place { context: self.contexts.caller(place.context), pc };
                Next::Jump { likely: Some(back), table: None }
            }
            Flow::Indirect => {
                let function = self.scope.functions.extent(place.pc).start;
                Next::Jump { likely: None, table: Some((place.context, function)) }
            }
            Flow::Stop => Next::Nowhere,
        }
    }

    /// Where a jump within `context` leads.
    fn jump(&self, context: InlineContext, pc: u32) -> Place {
        let is_first = context == InlineContext::ROOT && self.entry == Some(pc);
        self.inside(Place { context: if is_first { self.again } else { context }, pc })
    }

    /// A place, or one outside of the region if its address is.
    fn inside(&self, place: Place) -> Place {
        let context = if self.extent.contains(&place.pc) { place.context } else { InlineContext::OUTSIDE };
        Place { context, ..place }
    }

    /// Where a call of `target` leads that returns to `back`.
    fn call(&mut self, caller: InlineContext, target: u32, back: u32) -> Place {
        if let Some(&context) = self.callees.get(&(caller, back)) {
            return Place { context, pc: target };
        }
        let is_handler = self.entry.is_some();
        let inlines = is_handler && self.planned.len() <= MAX_INLINED && self.contexts.allows(caller, back);
        let context = if inlines { self.contexts.add(caller, back) } else { InlineContext::OUTSIDE };
        self.callees.insert((caller, back), context);
        Place { context, pc: target }
    }

    /// Begins blocks at the targets of a table.
    fn begin_table(&mut self, from: Place, key: TableKey) {
        if self.tables.insert(key) {
            for pc in self.table(key) {
                self.lead(from, Place { context: key.0, pc });
            }
        }
    }

    /// Addresses of a table: those of the function that the image contains.
    fn table(&self, (_, function): TableKey) -> Vec<u32> {
        let extent = self.scope.functions.extent(function);
        let inside = self.scope.taken.range(extent).filter(|pc| self.extent.contains(pc));
        inside.take(MAX_TARGETS).copied().collect()
    }

    fn into_cfg(mut self, starts: &[Place]) -> Cfg {
        let leaders = self.planned.iter().filter(|(_, leads)| **leads).map(|(&place, _)| place);
        let mut order: Vec<Place> = leaders.collect();
        let is_first = |place: &Place| self.entry.is_some() && starts.contains(place);
        order.sort_unstable_by_key(|place| (!is_first(place), *place));
        let ids: BTreeMap<Place, BlockId> = order.iter().enumerate().map(|(id, &place)| (place, id)).collect();
        let mut blocks: Vec<Block> = order.iter().map(|&place| self.block(place, &ids)).collect();
        let place_in = |&(context, function): &TableKey| {
            let places = self.table((context, function)).into_iter().map(|pc| Place { context, pc });
            places.map(|place| target(place, &ids)).filter(|target| target.block.is_some()).collect()
        };
        let tables: Vec<Vec<Target>> = self.tables.iter().map(place_in).collect();
        limit_edges(&mut blocks, &tables);
        let points = starts.iter().filter_map(|place| ids.get(place).copied()).collect();
        let start = if self.entry.is_some() { Start::Task } else { Start::Points(points) };
        let cfg = Cfg { start, blocks, tables, predecessors: Vec::new(), instructions: 0, exits: BTreeSet::new() };
        let cold: BTreeSet<BlockId> = self.cold.iter().filter_map(|place| ids.get(place).copied()).collect();
        self.finish(cfg, &order, &cold)
    }

    /// Fills in what follows from the blocks.
    fn finish(&self, mut cfg: Cfg, order: &[Place], cold: &BTreeSet<BlockId>) -> Cfg {
        let mut is_hot = vec![false; order.len()];
        let mut work = cfg.starts().to_vec();
        while let Some(block) = work.pop() {
            if !std::mem::replace(&mut is_hot[block], true) {
                work.extend(cfg.successors(block).filter(|to| !cold.contains(to)));
            }
        }
        cfg.blocks.iter_mut().zip(&is_hot).for_each(|(block, is_hot)| block.cold = !is_hot);
        cfg.instructions = cfg.hot_blocks().map(|id| cfg.blocks[id].body.len()).sum();
        // All code that shared regions lead to is in one of them.
        if cfg.begins_task() {
            cfg.exits = cfg.hot_blocks().flat_map(|id| self.exits(&cfg, id, order)).collect();
        }
        cfg.update();
        cfg
    }

    /// Where execution may continue when it leaves the region in a block.
    fn exits(&self, cfg: &Cfg, id: BlockId, order: &[Place]) -> Vec<u32> {
        let block = &cfg.blocks[id];
        let leaves = |target: &&Target| target.block.is_none_or(|to| cfg.blocks[to].cold);
        let mut exits: Vec<u32> = cfg.targets(id).filter(leaves).map(|target| target.pc).collect();
        let is_jump = matches!(block.end, End::Jump { .. });
        if exits.is_empty() && !is_jump {
            return exits;
        }
        if let (Some((pc, decoded)), Some(inst)) = (block.body.last(), block.last())
            && matches!(inst.op, Op::Jal | Op::Jalr)
            && inst.rd != Reg::ZERO
        {
            exits.push(decoded.next(*pc));
        }
        let returns = matches!(block.end, End::Jump { likely: Some(_), .. });
        if is_jump && !returns {
            exits.extend(self.scope.taken);
        }
        if !returns {
            exits.extend(self.contexts.return_addresses(order[id].context));
            let inner = cfg.successors(id).filter(|&to| cfg.blocks[to].cold).map(|to| order[to].context);
            inner.for_each(|context| exits.extend(self.contexts.return_addresses(context)));
        }
        exits
    }

    fn block(&mut self, leader: Place, ids: &BTreeMap<Place, BlockId>) -> Block {
        let target = |place: Place| target(place, ids);
        let mut body: Vec<(u32, Decoded)> = Vec::new();
        let mut place = leader;
        let end = loop {
            let Some(&decoded) = self.scope.code.fetch(place.pc) else { break End::Fetch(place.pc) };
            let before = body.last().map(|(pc, decoded)| (*pc, decoded.inst));
            body.push((place.pc, decoded));
            let following = Place { pc: decoded.next(place.pc), ..place };
            match self.next(place, &decoded, before) {
                Next::Following if ids.contains_key(&following) || !self.planned.contains_key(&following) => {
                    break End::Goto(target(following));
                }
                Next::Following => place = following,
                Next::Goto(to) => break End::Goto(target(to)),
                Next::Branch { taken, not } => break End::Branch { taken: target(taken), not: target(not) },
                Next::Jump { likely, table } => {
                    let table = table.and_then(|key| self.tables.iter().position(|&other| other == key));
                    break End::Jump { likely: likely.map(target), table };
                }
                Next::Nowhere => break End::Goto(Target { pc: following.pc, block: None }),
            }
        };
        Block { start: leader.pc, body, end, cold: false }
    }
}

/// Whether `count` instructions from `pc` on follow one another.
fn runs_on(code: &Code, pc: u32, count: usize) -> bool {
    let mut at = pc;
    (0..count).all(|_| {
        let jumps = |op: Op| matches!(op.format(), Format::Branch | Format::J | Format::JumpRegister);
        let decoded = code.fetch(at).filter(|decoded| !jumps(decoded.inst.op));
        decoded.map(|decoded| at = decoded.next(at)).is_some()
    })
}

/// Leaves jumps whose tables would be too many edges without a table.
fn limit_edges(blocks: &mut [Block], tables: &[Vec<Target>]) {
    let mut left = MAX_EDGES;
    for block in blocks {
        let End::Jump { table, .. } = &mut block.end else { continue };
        match left.checked_sub(table.map_or(0, |table| tables[table].len())) {
            Some(less) => left = less,
            None => *table = None,
        }
    }
}

fn target(place: Place, ids: &BTreeMap<Place, BlockId>) -> Target {
    Target { pc: place.pc, block: ids.get(&place).copied() }
}
