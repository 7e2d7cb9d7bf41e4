//! Blocks that the ways out of a region lead to.

use cranelift_codegen::ir;
use cranelift_codegen::ir::types::I32;
use cranelift_frontend::FunctionBuilder;

use crate::jit::prologue::Prologue;
use crate::jit::side_exits::SideExits;

/// Number of predecessors of a block for which Cranelift's work is negligible: it looks at all of them for each value.
const FEW_PREDECESSORS: usize = 64;

/// Ways out.
pub(super) struct Ways {
    pub(super) fault_return: ir::Block,
    pub(super) returned: ir::Block,
    /// Of tasks that the host ended.
    pub(super) ended: Junction,
    /// Of faults: takes cause, pc and address.
    pub(super) faults: Junction,
    /// To the interpreter, to another region, and of tasks that wait: each takes the number of the exit.
    pub(super) interpreted: Junction,
    pub(super) jumps: Junction,
    pub(super) waits: Junction,
    /// What is known at each exit.
    pub(super) exits: SideExits,
    /// Duties of the prologue.
    pub(super) prologue: Prologue,
    /// Exit that leads back to the first of several checks with nothing but repeatable instructions between them.
    pub(super) shared: Option<ir::Block>,
    /// By block, the value of `shared` at its end.
    pub(super) shared_after: Vec<Option<ir::Block>>,
}

impl Ways {
    pub(super) fn new(builder: &mut FunctionBuilder<'_>, blocks: usize) -> Self {
        let [fault_return, returned] = [(); 2].map(|()| builder.create_block());
        builder.set_cold_block(fault_return);
        Self {
            fault_return,
            returned,
            ended: Junction::new(0),
            faults: Junction::new(3),
            interpreted: Junction::new(1),
            jumps: Junction::new(1),
            waits: Junction::new(1),
            exits: SideExits::default(),
            prologue: Prologue::default(),
            shared: None,
            shared_after: vec![None; blocks],
        }
    }

    /// Whether anything leads to the fault return, as far as is known before Cranelift optimises.
    pub(super) fn are_used(&self) -> bool {
        let ways = [&self.faults, &self.interpreted, &self.jumps, &self.waits, &self.ended];
        ways.into_iter().any(|junction| !junction.blocks.is_empty())
    }
}

/// Cold blocks with equal code, each of which few ways lead to.
pub(super) struct Junction {
    /// Number of 32-bit parameters.
    parameters: usize,
    ways: usize,
    pub(super) blocks: Vec<ir::Block>,
}

impl Junction {
    const fn new(parameters: usize) -> Self {
        Self { parameters, ways: 0, blocks: Vec::new() }
    }

    /// The block where one more way ends.
    pub(super) fn way(&mut self, builder: &mut FunctionBuilder<'_>) -> ir::Block {
        if self.ways.is_multiple_of(FEW_PREDECESSORS) {
            let block = builder.create_block();
            builder.set_cold_block(block);
            (0..self.parameters).for_each(|_| _ = builder.append_block_param(block, I32));
            self.blocks.push(block);
        }
        self.ways += 1;
        self.blocks[self.blocks.len() - 1]
    }
}
