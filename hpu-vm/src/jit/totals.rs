//! Totals: registers that a loop of one block does nothing with but add to them, in each turn.

use std::array::from_fn;

use crate::inst::{Op, Reg};
use crate::jit::facts::{Regs, reads, writes};
use crate::jit::plan::Block;

/// A register that has a total.
#[derive(Clone, Copy)]
struct Holder {
    /// The register that has it when the block begins.
    of: Reg,
    /// It was added to: another register has the new one.
    read: bool,
}

/// The totals of a block that leads to itself. To take other registers for them as well would do no harm.
pub(crate) fn totals(block: &Block) -> Regs {
    let insts = || block.body.iter().map(|(_, decoded)| &decoded.inst);
    let written = insts().fold(Regs(0), |written, inst| written.with(writes(inst)));
    let begins = |reg| written.has(reg).then_some(Holder { of: reg, read: false });
    let mut holders: [Option<Holder>; 32] = from_fn(|index| begins(Reg::new(index as u32)));
    let mut spoiled = Regs(0);
    for inst in insts() {
        let mut sum = None;
        for reg in reads(inst).iter() {
            let Some(holder) = &mut holders[reg.index()] else { continue };
            let adds = inst.op == Op::Add && inst.rs1 != inst.rs2;
            if adds && !holder.read && sum.is_none() {
                sum = Some(*holder);
                holder.read = true;
            } else {
                spoiled = spoiled.with(holder.of);
            }
        }
        holders[writes(inst).index()] = sum;
    }
    let has_its_own = |reg: &Reg| holders[reg.index()].is_some_and(|holder| holder.of == *reg && !holder.read);
    let left = written.iter().filter(|reg| !spoiled.has(*reg)).filter(has_its_own);
    left.fold(Regs(0), Regs::with)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::totals;
    use crate::code::Code;
    use crate::inst::{Inst, Op, Reg};
    use crate::jit::plan::Plan;

    const TOTAL: Reg = Reg::A0;
    const OTHER: Reg = Reg::A1;
    const ITEM: Reg = Reg::new(12);
    const MORE: Reg = Reg::new(13);
    const TURNS: Reg = Reg::new(20);

    /// The totals of a loop.
    fn of(body: &[Inst]) -> Vec<Reg> {
        let back = Inst::new(Op::Bne).rs1(TURNS).imm(-4 * body.len() as i32);
        let program = [&[Inst::new(Op::Addi)], body, &[back, Inst::new(Op::Jalr).rs1(Reg::RA)]].concat();
        let plan = Plan::new(&Code::of(0x1d00_0000, &program), 0x1d00_0000, &BTreeSet::new());
        let is_loop = |&id: &usize| plan.successors(id).any(|to| to == id);
        let id = (0..plan.blocks.len()).find(is_loop).expect("there is a loop");
        totals(&plan.blocks[id]).iter().collect()
    }

    fn add(rd: Reg, rs1: Reg, rs2: Reg) -> Inst {
        Inst::new(Op::Add).rd(rd).rs1(rs1).rs2(rs2)
    }

    #[test]
    fn what_is_only_added_to_is_a_total_wherever_it_is_meanwhile() {
        let load = Inst::new(Op::Lw).rd(ITEM).rs1(Reg::SP);
        let count = Inst::new(Op::Addi).rd(TURNS).rs1(TURNS).imm(-1);
        assert_eq!(of(&[load, add(TOTAL, TOTAL, ITEM), count]), [TOTAL]);
        assert_eq!(of(&[load, add(OTHER, ITEM, TOTAL), load, add(TOTAL, OTHER, ITEM), count]), [TOTAL]);
        // Two at a time.
        assert_eq!(of(&[load, add(TOTAL, TOTAL, ITEM), add(OTHER, ITEM, OTHER), count]), [TOTAL, OTHER]);
        // One that stays as it is is no total.
        assert_eq!(of(&[add(TOTAL, MORE, TOTAL), count]), [TOTAL]);
    }

    #[test]
    fn what_is_looked_at_is_none() {
        let load = Inst::new(Op::Lw).rd(ITEM).rs1(Reg::SP);
        let store = |reg| Inst::new(Op::Sw).rs1(Reg::SP).rs2(reg);
        let into = add(OTHER, TOTAL, ITEM);
        for body in [
            &[load, add(TOTAL, TOTAL, ITEM), store(TOTAL)][..],
            &[load, into, store(TOTAL), add(TOTAL, OTHER, ITEM)],
            &[load, into, store(OTHER), add(TOTAL, OTHER, ITEM)],
            // It is another in the next turn.
            &[load, into, add(TOTAL, ITEM, MORE)],
            &[load, into, load],
            &[add(TOTAL, TOTAL, TOTAL)],
            &[Inst::new(Op::Sub).rd(TOTAL).rs1(TOTAL).rs2(MORE)],
        ] {
            assert_eq!(of(body), [], "{body:?}");
        }
    }
}
