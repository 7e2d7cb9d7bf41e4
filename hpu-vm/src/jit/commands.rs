//! What instructions do with the command registers, and where what these hold is of use to nobody.

use spin_abi::map::{DRIVER_BASE, RETURN_ADDRESS};
use spin_abi::regs::{COMMAND_ISSUE, COMMAND_WORD_COUNT};

use super::accesses::{may_be_device, size};
use super::facts::{Facts, Known};
use super::plan::{Block, BlockId, End, Plan, Target};
use crate::device::{CommandRegisters, is_device};
use crate::inst::{Inst, Op};

/// Words that say what a send or a copy is.
pub(crate) const WORDS: usize = 5;

/// Those words and the command's type, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts(u32);

impl Parts {
    const ALL: Self = Self((1 << (WORDS + 1)) - 1);

    /// All that says what a send or a copy is.
    pub(crate) fn are_all(self) -> bool {
        self == Self::ALL
    }

    /// Which of them the register at `offset` is, if it is one.
    pub(crate) const fn part(offset: usize) -> Option<usize> {
        match offset / 4 {
            index @ 0..WORDS => Some(index),
            COMMAND_WORD_COUNT => Some(WORDS),
            _ => None,
        }
    }

    pub(crate) const fn add(&mut self, part: usize) {
        self.0 |= 1 << part;
    }
}

/// Offset in the [`CommandRegisters`] of the one that is accessed, if it is known to be one.
pub(crate) fn register(inst: &Inst, known: &Known) -> Option<usize> {
    CommandRegisters::offset(known.address(inst)?, size(inst)?)
}

/// Whether an instruction issues a command, for certain.
pub(crate) fn issues(inst: &Inst, known: &Known) -> bool {
    inst.op == Op::Lw && known.address(inst) == Some(DRIVER_BASE + COMMAND_ISSUE)
}

/// Whether an instruction that accesses no register of commands for certain may read one, where not any address may be a device's. With
/// `exact` checks the interpreter goes on where one is refused, and finds a device there if there is one.
pub(crate) fn may_read(inst: &Inst, known: &Known, exact: bool) -> bool {
    let is_device = known.address(inst).is_some_and(is_device);
    is_device || may_be_device(inst, known, exact) || inst.op == Op::Ecall
}

/// What a block does with the parts of a command that registers hold when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Reads,
    /// Reads none that it has not stored.
    Replaces,
    Neither,
}

impl Use {
    fn of(block: &Block, known: &Known, exact: bool) -> Self {
        let moves = |inst: &Inst| size(inst).is_some() || inst.op == Op::Ecall;
        if block.restore.is_none() && !block.body.iter().any(|(_, decoded)| moves(&decoded.inst)) {
            return Self::Neither;
        }
        let (mut known, mut stored) = (known.clone(), Parts::default());
        for (index, (_, decoded)) in block.body.iter().enumerate() {
            let inst = &decoded.inst;
            let to = register(inst, &known).filter(|_| inst.op == Op::Sw);
            match to {
                Some(offset) => Parts::part(offset).into_iter().for_each(|part| stored.add(part)),
                None if may_read(inst, &known, exact) => return Self::Reads,
                None => {}
            }
            if stored.are_all() {
                return Self::Replaces;
            }
            // The interpreter goes on behind it with another one than is expected, wherever that leads.
            if block.restored(index).is_some() {
                return Self::Reads;
            }
            known.step_in(block, index);
        }
        Self::Neither
    }
}

/// By block: whether something may read, when that has been executed, what the command registers held before, in terms of [`may_read`].
/// Who goes on elsewhere, the interpreter too, does what the plan does.
pub(crate) fn live_behind(plan: &Plan, facts: &Facts, exact: bool) -> Vec<bool> {
    let uses: Vec<Use> = (0..plan.blocks.len())
        .map(|id| facts.known(id).map_or(Use::Neither, |known| Use::of(&plan.blocks[id], known, exact)))
        .collect();
    let mut behind = vec![false; uses.len()];
    loop {
        let mut changed = false;
        for id in (0..uses.len()).rev() {
            let at = |to: BlockId| match uses[to] {
                Use::Reads => true,
                Use::Replaces => false,
                Use::Neither => behind[to],
            };
            let leads = |target: &Target| target.block.map_or(target.pc != RETURN_ADDRESS, at);
            let live = match &plan.blocks[id].end {
                End::Goto(to) => leads(to),
                End::Branch { taken, not } => leads(taken) || leads(not),
                End::Jump { .. } => true,
                // The handler's end, or a fault.
                End::Fetch(_) => false,
            };
            changed |= live != behind[id];
            behind[id] = live;
        }
        if !changed {
            return behind;
        }
    }
}
