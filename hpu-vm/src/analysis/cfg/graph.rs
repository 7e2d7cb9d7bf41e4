//! The graph: blocks, their ends, and how a region is entered.

use std::collections::BTreeSet;

use crate::decode::Decoded;
use crate::inst::Inst;

/// Index of a block in [`Cfg::blocks`].
pub(crate) type BlockId = usize;

/// Index of a table in [`Cfg::tables`].
pub(crate) type TableId = usize;

/// Destination of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Guest address.
    pub(crate) pc: u32,
    /// The block there; `None` when it is not part of the region.
    pub(crate) block: Option<BlockId>,
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Execution continues at the target.
    Goto(Target),
    /// The last instruction is a conditional branch.
    Branch { taken: Target, not: Target },
    /// The last instruction is `jalr`: the expected target, and the table of possible ones.
    Jump { likely: Option<Target>, table: Option<TableId> },
    /// No instruction can be executed at this address.
    Fetch(u32),
}

/// A basic block: instructions with one entrance.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Address of the first instruction.
    pub(crate) start: u32,
    /// Addresses and instructions, including the one that ends the block.
    pub(crate) body: Vec<(u32, Decoded)>,
    /// How the block ends.
    pub(crate) end: End,
    /// The block is only reached through code that the image marks as rarely executed. It is part of the graph for the
    /// sake of liveness, but is compiled in a shared region.
    pub(crate) cold: bool,
}

impl Block {
    /// The last instruction.
    pub(crate) fn last(&self) -> Option<&Inst> {
        self.body.last().map(|(_, decoded)| &decoded.inst)
    }

    /// Whether nothing is executed here: the handler returns, or faults.
    pub(crate) const fn is_end(&self) -> bool {
        self.body.is_empty() && matches!(self.end, End::Fetch(_))
    }
}

/// How a region is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// At block 0, the handler's first instruction, when a task begins. No other way leads to block 0.
    Task,
    /// At any of these blocks, with all registers in the hart.
    Points(Vec<BlockId>),
}

/// Control-flow graph of a region.
#[derive(Clone, Debug)]
pub(crate) struct Cfg {
    /// How the region is entered.
    pub(crate) start: Start,
    /// The basic blocks.
    pub(crate) blocks: Vec<Block>,
    /// Targets of computed jumps; each address occurs once per table.
    pub(crate) tables: Vec<Vec<Target>>,
    /// By block, the blocks that lead to it.
    pub(crate) predecessors: Vec<Vec<BlockId>>,
    /// Number of instructions that are compiled, including copies of inlined functions.
    pub(crate) instructions: usize,
    /// Addresses at which execution may continue outside of a handler's graph, as far as they are known.
    pub(crate) exits: BTreeSet<u32>,
}

impl Cfg {
    /// Blocks that may follow one.
    pub(crate) fn successors(&self, block: BlockId) -> impl Iterator<Item = BlockId> + '_ {
        self.targets(block).filter_map(|target| target.block)
    }

    /// Where a block may lead.
    pub(crate) fn targets(&self, block: BlockId) -> impl Iterator<Item = &Target> + '_ {
        let (first, second, table) = match &self.blocks[block].end {
            End::Goto(to) => (Some(to), None, None),
            End::Branch { taken, not } => (Some(taken), Some(not), None),
            End::Jump { likely, table } => (likely.as_ref(), None, *table),
            End::Fetch(_) => (None, None, None),
        };
        let more = table.map_or(&[][..], |table| &self.tables[table]);
        first.into_iter().chain(second).chain(more)
    }

    /// Blocks where the region is entered.
    pub(crate) fn starts(&self) -> &[BlockId] {
        match &self.start {
            Start::Task => &[0],
            Start::Points(points) => points,
        }
    }

    /// Blocks where the region is entered with all registers in the hart.
    pub(crate) fn points(&self) -> &[BlockId] {
        match &self.start {
            Start::Task => &[],
            Start::Points(points) => points,
        }
    }

    /// Whether a task begins with block 0.
    pub(crate) const fn begins_task(&self) -> bool {
        matches!(self.start, Start::Task)
    }

    /// Compiled blocks.
    pub(crate) fn hot_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        (0..self.blocks.len()).filter(|&id| !self.blocks[id].cold)
    }

    /// Instructions of all compiled blocks.
    pub(crate) fn hot_instructions(&self) -> impl Iterator<Item = &Inst> + '_ {
        self.hot_blocks().flat_map(|id| &self.blocks[id].body).map(|(_, decoded)| &decoded.inst)
    }

    /// Whether an edge stays among compiled blocks. A cold block never leads back to a hot one: it is compiled elsewhere.
    pub(crate) fn is_compiled(&self, from: BlockId, to: BlockId) -> bool {
        !self.blocks[from].cold && !self.blocks[to].cold
    }

    /// Whether an edge leads from a cold block back to a compiled one. Facts about compiled blocks do not hold on that way: it
    /// is in another region, where the registers may have other values.
    pub(crate) fn rejoins(&self, from: BlockId, to: BlockId) -> bool {
        self.blocks[from].cold && !self.blocks[to].cold && !self.blocks[to].is_end()
    }

    fn set_predecessors(&mut self) {
        let mut predecessors = vec![Vec::new(); self.blocks.len()];
        for from in 0..self.blocks.len() {
            self.successors(from).for_each(|to| predecessors[to].push(from));
        }
        self.predecessors = predecessors;
    }

    /// Replaces a computed jump by a jump to a known address.
    pub(crate) fn resolve(&mut self, block: BlockId, pc: u32) {
        let target = self.targets(block).find(|target| target.pc == pc).copied();
        if self.begins_task() && target.is_none() && !self.blocks[block].cold {
            self.exits.insert(pc);
        }
        self.blocks[block].end = End::Goto(target.unwrap_or(Target { pc, block: None }));
    }

    /// Recomputes what depends on the ends of blocks.
    pub(crate) fn update(&mut self) {
        self.set_predecessors();
    }
}
