//! Tables that AMOs work on, and loops that do so: a table that stays where it is takes one look before the loop at where that is.

use std::ops::RangeInclusive;

use crate::inst::{Format, Inst, Op, Reg};
use crate::jit::facts::{Facts, Known, Regs, writes};
use crate::jit::plan::{BlockId, End, Plan};

/// Largest index that is followed: a table has as many bytes, and one more.
const MOST_INDEX: u32 = 1 << 20;
/// Most blocks and instructions of a loop that is made twice.
const MOST_BLOCKS: usize = 48;
const MOST_INSTRUCTIONS: usize = 200;
/// So many AMOs at least make up for that.
const FEWEST_AMOS: usize = 2;

/// A sum of a table's address and an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexedBy {
    /// What holds the index,
    pub(crate) index: Reg,
    /// shifted left by so much,
    pub(crate) by: u32,
    /// and the table's address.
    pub(crate) base: Reg,
    /// The largest index, shifted.
    pub(crate) most: u32,
    /// It is a multiple of 4 then.
    pub(crate) words: bool,
}

impl IndexedBy {
    /// What an instruction adds up, if it is an index and something else.
    pub(crate) fn sum(inst: &Inst, known: &Known) -> Option<Self> {
        let by = inst.op.shift_of_sum();
        let is_index = |reg, by: u32| known.constant(reg).is_none() && known.most(reg) <= MOST_INDEX >> by;
        let (index, base) = match inst.op {
            Op::Add | Op::Sh1add | Op::Sh2add | Op::Sh3add if is_index(inst.rs1, by) => (inst.rs1, inst.rs2),
            Op::Add if is_index(inst.rs2, 0) => (inst.rs2, inst.rs1),
            _ => return None,
        };
        if is_index(base, 0) || known.constant(base).is_some() {
            return None;
        }
        Some(Self { index, by, base, most: known.most(index) << by, words: by >= 2 || known.is_aligned(index) })
    }
}

/// A loop in which AMOs are on tables that stay where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableLoop {
    /// All of it.
    pub(crate) blocks: RangeInclusive<BlockId>,
    /// The only one that others lead to.
    pub(crate) head: BlockId,
    /// Registers that hold the addresses of tables, and the largest index into each, in bytes.
    pub(crate) tables: Vec<(Reg, u32)>,
}

/// All of them, none within another; `ways` are the blocks that lead to each. Blocks of a loop follow each other in a plan, but for those of
/// calls, and where the loop goes on may be before where it begins.
pub(crate) fn loops(plan: &Plan, facts: &Facts, ways: &[Vec<BlockId>]) -> Vec<TableLoop> {
    // What computed jumps lead to or from, what is apart, and then what loops have that were found.
    let mut taken: Vec<bool> =
        plan.blocks.iter().map(|block| block.apart || matches!(block.end, End::Jump { .. })).collect();
    plan.tables.iter().flatten().filter_map(|target| target.block).for_each(|id| taken[id] = true);
    let back = |last: BlockId| {
        let near = move |first: &BlockId| (1..=last).contains(first) && last - first < MOST_BLOCKS;
        plan.successors(last).filter(near).map(move |first| first..=last)
    };
    let mut all: Vec<_> = (0..plan.blocks.len()).filter(|&last| !taken[last]).flat_map(back).collect();
    all.sort_by_key(|blocks| blocks.end() - blocks.start());
    let mut found: Vec<TableLoop> = Vec::new();
    for blocks in all {
        if !taken[blocks.clone()].contains(&true)
            && let Some(head) = head(plan, ways, &blocks)
            && let Some(tables) = tables(plan, facts, &blocks)
        {
            taken[blocks.clone()].fill(true);
            found.push(TableLoop { blocks, head, tables });
        }
    }
    found
}

/// Where a short loop begins, if that is what blocks are: nothing else in it is led to from elsewhere.
fn head(plan: &Plan, ways: &[Vec<BlockId>], blocks: &RangeInclusive<BlockId>) -> Option<BlockId> {
    let length: usize = plan.blocks[blocks.clone()].iter().map(|block| block.body.len()).sum();
    if length > MOST_INSTRUCTIONS {
        return None;
    }
    let mut heads = blocks.clone().filter(|&id| ways[id].iter().any(|from| !blocks.contains(from)));
    heads.next().filter(|_| heads.next().is_none())
}

/// The tables of a loop's AMOs.
fn tables(plan: &Plan, facts: &Facts, blocks: &RangeInclusive<BlockId>) -> Option<Vec<(Reg, u32)>> {
    let insts = || plan.blocks[blocks.clone()].iter().flat_map(|block| &block.body).map(|(_, decoded)| decoded.inst);
    let does_more =
        |inst: Inst| matches!(inst.op.format(), Format::System | Format::Csr | Format::CsrImmediate | Format::Vector);
    if insts().any(does_more) {
        return None;
    }
    let written = insts().fold(Regs(0), |written, inst| written.with(writes(&inst)));
    let (mut tables, mut amos) = (Vec::<(Reg, u32)>::new(), 0);
    for id in blocks.clone() {
        let (block, mut known) = (&plan.blocks[id], facts.known(id)?.clone());
        let mut sums: Vec<(Reg, IndexedBy)> = Vec::new();
        for (index, (_, decoded)) in block.body.iter().enumerate() {
            let inst = &decoded.inst;
            let sum = IndexedBy::sum(inst, &known).filter(|sum| sum.words && !written.has(sum.base));
            if inst.op.format() == Format::Amo
                && let Some((_, sum)) = sums.iter().find(|(reg, _)| *reg == inst.rs1)
            {
                amos += 1;
                match tables.iter_mut().find(|(base, _)| *base == sum.base) {
                    Some((_, most)) => *most = sum.most.max(*most),
                    None => tables.push((sum.base, sum.most)),
                }
            }
            sums.retain(|(reg, _)| *reg != writes(inst));
            sums.extend(sum.map(|sum| (inst.rd, sum)));
            known.step_in(block, index);
        }
    }
    (amos >= FEWEST_AMOS).then_some(tables)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{TableLoop, loops};
    use crate::code::Code;
    use crate::inst::{Inst, Op, Reg};
    use crate::jit::emit::ways;
    use crate::jit::facts::{Facts, Regs};
    use crate::jit::plan::Plan;

    const BASE: u32 = 0x1d00_0000;
    const A2: Reg = Reg::new(12);
    const A3: Reg = Reg::new(13);
    const A4: Reg = Reg::new(14);
    const A5: Reg = Reg::new(15);

    /// The loops of a handler that begins with the first instruction.
    fn found(program: &[Inst]) -> Vec<TableLoop> {
        let mut plan = Plan::new(&Code::of(BASE, program), BASE, &BTreeSet::new());
        let facts = Facts::new(&mut plan, Regs(0), 0);
        loops(&plan, &facts, &ways(&plan))
    }

    /// Adds up words of the table that a1 points to, with an index of at most 255; a branch around one of them.
    fn program() -> [Inst; 9] {
        let word = |pointer: Reg| Inst::new(Op::Sh2add).rd(pointer).rs1(A2).rs2(Reg::A1);
        let add = |pointer: Reg| Inst::new(Op::AmoaddW).rs1(pointer).rs2(A3);
        [
            Inst::new(Op::Lw).rd(Reg::A1).rs1(Reg::A0),
            Inst::new(Op::Lbu).rd(A2).rs1(Reg::A0).imm(4),
            word(A4),
            add(A4),
            Inst::new(Op::Beq).rs1(A2).imm(12),
            word(A5),
            add(A5),
            Inst::new(Op::Bne).rs1(A3).imm(-24),
            Inst::new(Op::Jalr).rs1(Reg::RA),
        ]
    }

    #[test]
    fn tables_of_a_loop_are_those_that_stay_where_they_are() {
        let [found] = &found(&program())[..] else { panic!("one loop") };
        assert_eq!((found.tables.clone(), found.blocks.contains(&found.head)), (vec![(Reg::A1, 4 * 255)], true));
    }

    #[test]
    fn loops_that_do_otherwise_are_none() {
        let changed = |at: usize, to: Inst| {
            let mut program = program();
            program[at] = to;
            found(&program)
        };
        // The table moves; an index of any size; one AMO alone; the operating system may change registers; a way into it.
        assert_eq!(changed(2, Inst::new(Op::Sh2add).rd(Reg::A1).rs1(A2).rs2(Reg::A1)), []);
        assert_eq!(changed(1, Inst::new(Op::Lw).rd(A2).rs1(Reg::A0).imm(4)), []);
        assert_eq!(changed(6, Inst::new(Op::Addi)), []);
        assert_eq!(changed(5, Inst::new(Op::Ecall)), []);
        assert_eq!(changed(0, Inst::new(Op::Beq).rs1(Reg::A0).imm(20)), []);
        // The same where the table is known, and a table that moves behind its words.
        let mut into = [&program()[..2], &[Inst::new(Op::Beq).rs1(A3).imm(16)], &program()[2..]].concat();
        into[8] = into[8].imm(-20);
        assert_eq!(found(&into), []);
        let moving =
            [&program()[..7], &[Inst::new(Op::Addi).rd(Reg::A1).rs1(Reg::A1).imm(4)], &program()[7..]].concat();
        assert_eq!(found(&moving), []);
    }
}
