//! Loops whose AMOs are on [tables](crate::jit::tables) are made twice: one for tables that are all on L1, as they are most likely, and one
//! for others.

use std::mem;
use std::ops::RangeInclusive;

use cranelift_codegen::entity::EntityRef;
use cranelift_codegen::ir::{self, InstBuilder, Value};

use super::Emitter;
use super::registers::Indexed;
use crate::inst::Reg;
use crate::jit::plan::BlockId;
use crate::jit::tables::{self, TableLoop};
use crate::jit::vectors;

/// A table that was found to be on L1 before a loop.
pub(super) struct InL1 {
    /// What holds its address in the loop,
    reg: Reg,
    /// which is this, extended with zeroes: what was looked at, whatever becomes of the register.
    address: Value,
    /// The largest index, in bytes.
    most: u32,
}

impl Emitter<'_> {
    /// The loops that are made twice. Not where more is looked at than where AMOs go, and none that tasks are parked in.
    pub(super) fn table_loops(&self) -> Vec<TableLoop> {
        let is_watched = self.options.observe || self.retired.is_some() || self.registers.in_state();
        if !self.home() || self.exact() || is_watched || vectors::are_in(self.plan) {
            return Vec::new();
        }
        let mut loops = tables::loops(self.plan, self.facts, &self.ways);
        loops.retain(|found| found.blocks.clone().all(|id| self.is_as_it_seems(id, &found.blocks)));
        loops
    }

    /// Whether a block of a loop does nothing on the way from one to another but what is in the loop.
    fn is_as_it_seems(&self, id: BlockId, blocks: &RangeInclusive<BlockId>) -> bool {
        // What a branch chooses is done in its own block, and might move a table behind the look at where that is.
        let chooses_outside = self.choices[id].is_some_and(|choice| !blocks.contains(&choice.skipped));
        !chooses_outside && !self.polls[id] && self.part.has(id)
    }

    /// Both of a loop, and the way in.
    pub(super) fn twice(&mut self, TableLoop { blocks, head, tables }: &TableLoop) {
        let (head, entry) = (*head, self.blocks[*head]);
        let quick: Vec<_> = blocks.clone().map(|_| self.builder.create_block()).collect();
        let quick_head = quick[head - blocks.start()];
        self.builder.switch_to_block(entry);
        self.registers.begin_block();
        self.known = self.facts.known(head).cloned().unwrap_or_default();
        self.pc = self.plan.blocks[head].start;
        self.locate(false);
        let (mut any, mut in_l1) = (None, Vec::new());
        for &(reg, most) in tables {
            let (base, address) = (self.get(reg), self.registers.get_wide(&mut self.builder, self.state, reg));
            in_l1.push(InL1 { reg, address, most });
            let beyond = self.is_beyond_l1(base, most);
            any = Some(any.map_or(beyond, |any| self.builder.ins().bor(any, beyond)));
        }
        let Some(beyond) = any else { unreachable!("such a loop has tables") };
        let slow = self.builder.create_block();
        self.builder.set_cold_block(slow);
        self.builder.ins().brif(beyond, slow, &[], quick_head, &[]);

        let others: Vec<_> = blocks.clone().map(|id| self.blocks[id]).collect();
        self.blocks[blocks.clone()].copy_from_slice(&quick);
        self.tables_in_l1 = in_l1;
        self.all_of(blocks.clone());
        self.tables_in_l1.clear();
        quick.into_iter().for_each(|block| self.builder.seal_block(block));

        self.blocks[blocks.clone()].copy_from_slice(&others);
        self.blocks[head] = slow;
        let first = self.builder.func.dfg.num_blocks();
        self.all_of(blocks.clone());
        let added = first..self.builder.func.dfg.num_blocks();
        let others = others.into_iter().filter(|&block| block != entry);
        let cold = added.map(ir::Block::new).chain(others).chain([slow]);
        cold.for_each(|block| self.builder.set_cold_block(block));
        self.builder.seal_block(slow);
        self.blocks[head] = entry;
    }

    /// Emits blocks, of which what was emitted before tells nothing, nor they of what they know to those that follow.
    fn all_of(&mut self, blocks: RangeInclusive<BlockId>) {
        for id in blocks.clone() {
            if !self.is_chosen(id) && !self.is_too_large() {
                self.block(id);
            }
        }
        self.roots[blocks.clone()].fill(None);
        self.retreats[blocks].fill(None);
    }

    /// A table by the address that was looked at, if it is one of the loop's that are on L1.
    pub(super) fn in_l1(&mut self, table: &Indexed) -> Option<Indexed> {
        let tables = mem::take(&mut self.tables_in_l1);
        let is_it = |known: &&InL1| {
            table.most <= known.most
                && table.base.1 == self.registers.get_wide(&mut self.builder, self.state, known.reg)
        };
        let found = tables.iter().find(is_it).map(|known| Indexed { base: (table.base.0, known.address), ..*table });
        self.tables_in_l1 = tables;
        found
    }
}
