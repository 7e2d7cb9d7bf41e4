//! Commands: handlers store type and words of a command just before they issue it, so that the emission mostly knows
//! them. Where nothing else reads the words, they are not stored.

use spin_abi::map::{DRIVER_BASE, RETURN_ADDRESS};
use spin_abi::regs::{COMMAND_ISSUE, COMMAND_WORD_COUNT, INFO_DMA, INFO_SEND};

use super::devices::may_be_device;
use crate::analysis::cfg::{BlockId, Cfg, End, Target};
use crate::analysis::dataflow::{Dataflow, RegState};
use crate::analysis::regs::size;
use crate::device::{CommandRegisters, is_device};
use crate::inst::{Format, Inst, Op};

/// Number of words of a send or a copy.
pub(crate) const COMMAND_WORDS: usize = 5;

/// Decisions about the commands of a region.
#[derive(Debug)]
pub(crate) struct CommandPlan {
    /// By block, whether the words of its commands need not be stored.
    pub(crate) hidden: Vec<bool>,
    /// By block, the index of its last instruction that does more than compute, if the handler returns behind it.
    pub(crate) last_action: Vec<Option<usize>>,
}

impl CommandPlan {
    /// Looks at all blocks. Nothing is hidden where commands are `watched`: any address may be a device's, or the state
    /// must be up to date. The interpreter accesses a device also where translated code ends the task: with exact checks,
    /// and where instructions are left to it.
    pub(super) fn new(cfg: &Cfg, facts: &Dataflow, watched: bool, is_exact: bool) -> Self {
        let mut hidden = vec![false; cfg.blocks.len()];
        let is_exact = is_exact || is_left_to_interpreter(cfg, facts);
        if !watched {
            cfg.hot_blocks().for_each(|id| hidden[id] = hides(cfg, facts, id, is_exact));
        }
        if hidden.contains(&true) {
            let live = live_after(cfg, facts, is_exact);
            hidden.iter_mut().zip(live).for_each(|(hidden, live)| *hidden &= !live);
        }
        let last_action = (0..cfg.blocks.len()).map(|id| last_action(cfg, id)).collect();
        Self { hidden, last_action }
    }
}

/// Words and type of a command, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fields(u32);

impl Fields {
    const ALL: Self = Self((1 << (COMMAND_WORDS + 1)) - 1);

    /// Which of them the register at `offset` is, if any.
    const fn field(offset: usize) -> Option<usize> {
        match offset / 4 {
            index @ 0..COMMAND_WORDS => Some(index),
            COMMAND_WORD_COUNT => Some(COMMAND_WORDS),
            _ => None,
        }
    }

    const fn add(&mut self, field: usize) {
        self.0 |= 1 << field;
    }
}

/// Offset in the [`CommandRegisters`] of the register that is accessed, if it certainly is one.
pub(crate) fn register(inst: &Inst, state: &RegState) -> Option<usize> {
    CommandRegisters::offset(state.address(inst)?, size(inst)?)
}

/// Whether an instruction certainly issues a command.
pub(crate) fn issues(inst: &Inst, state: &RegState) -> bool {
    inst.op == Op::Lw && state.address(inst) == Some(DRIVER_BASE + COMMAND_ISSUE)
}

/// Whether an instruction only computes, or jumps.
const fn computes(inst: &Inst) -> bool {
    let format = inst.op.format();
    format.computes() || matches!(format, Format::J | Format::JumpRegister | Format::Branch)
}

/// Whether an instruction may read a command register that it does not certainly access.
fn may_read(inst: &Inst, state: &RegState, is_exact: bool) -> bool {
    accesses_device(inst, state, is_exact) || inst.op == Op::Ecall
}

/// Whether the interpreter may execute hot code: from an instruction on that is not translated, or after a wait.
fn is_left_to_interpreter(cfg: &Cfg, facts: &Dataflow) -> bool {
    let is_left = |inst: &Inst, state: &RegState| match inst.op.format() {
        Format::Csr | Format::CsrImmediate | Format::Vector => true,
        Format::Store => register(inst, state).is_none() && accesses_device(inst, state, false),
        _ => false,
    };
    cfg.hot_blocks().any(|id| facts.walk(cfg, id).any(|(_, inst, state)| is_left(inst, state)))
}

/// Whether an access is, or may be, to a device.
fn accesses_device(inst: &Inst, state: &RegState, is_exact: bool) -> bool {
    let known = size(inst).and_then(|_| state.address(inst));
    known.is_some_and(is_device) || may_be_device(inst, state, is_exact)
}

/// Whether a block itself does not need its commands' words in memory. It stores all fields of each command. From the
/// first store to the issue nothing is left to the interpreter; if a command reuses words of the previous one, to the end
/// of the block.
fn hides(cfg: &Cfg, facts: &Dataflow, id: BlockId, is_exact: bool) -> bool {
    let stores = cfg.blocks[id].body.iter().filter(|(_, decoded)| decoded.inst.op == Op::Sw).count();
    let separate = || hides_all(cfg, facts, id, is_exact, true);
    stores > COMMAND_WORDS && (separate() || hides_all(cfg, facts, id, is_exact, false))
}

/// As [`hides`], for commands that are `separate` or that reuse words.
fn hides_all(cfg: &Cfg, facts: &Dataflow, id: BlockId, is_exact: bool, separate: bool) -> bool {
    let (mut stored, mut info, mut begun, mut any) = (Fields::default(), None, false, false);
    for (_, inst, state) in facts.walk(cfg, id) {
        let offset = register(inst, state);
        match offset.map(|offset| Fields::field(offset).filter(|_| inst.op == Op::Sw)) {
            Some(Some(field)) => {
                stored.add(field);
                info = if field == COMMAND_WORDS { state.constant(inst.rs2) } else { info };
                begun = true;
            }
            Some(None) => return false,
            None if issues(inst, state) => {
                if stored != Fields::ALL || !matches!(info, Some(INFO_SEND | INFO_DMA)) {
                    return false;
                }
                any = true;
                if separate {
                    (stored, info, begun) = (Fields::default(), None, false);
                }
            }
            None if begun && !computes(inst) || any && may_read(inst, state, is_exact) => return false,
            None => {}
        }
    }
    any && !(separate && begun)
}

/// What a block does with the fields that the registers hold when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Reads,
    /// The block stores all fields and reads none before.
    Replaces,
    Neither,
}

impl Use {
    fn of(cfg: &Cfg, facts: &Dataflow, id: BlockId, is_exact: bool) -> Self {
        // Cold code is compiled in another region, which may find more devices.
        let is_exact = is_exact || cfg.blocks[id].cold;
        let mut stored = Fields::default();
        for (_, inst, state) in facts.walk(cfg, id) {
            match register(inst, state).filter(|_| inst.op == Op::Sw) {
                Some(offset) => Fields::field(offset).into_iter().for_each(|field| stored.add(field)),
                None if may_read(inst, state, is_exact) => return Self::Reads,
                None => {}
            }
            if stored == Fields::ALL {
                return Self::Replaces;
            }
        }
        Self::Neither
    }
}

/// By block, whether anything may read afterwards what the command registers held before it. Code outside of the region
/// may.
fn live_after(cfg: &Cfg, facts: &Dataflow, is_exact: bool) -> Vec<bool> {
    let use_of = |id| if facts.is_reached(id) { Use::of(cfg, facts, id, is_exact) } else { Use::Neither };
    let uses: Vec<Use> = (0..cfg.blocks.len()).map(use_of).collect();
    let mut after = vec![false; uses.len()];
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for id in (0..uses.len()).rev() {
            let at = |to: BlockId| match uses[to] {
                Use::Reads => true,
                Use::Replaces => false,
                Use::Neither => after[to],
            };
            let leads = |target: &Target| match target.block {
                Some(to) => cfg.rejoins(id, to) || at(to),
                None => target.pc != RETURN_ADDRESS,
            };
            let live = match &cfg.blocks[id].end {
                End::Goto(to) => leads(to),
                End::Branch { taken, not } => leads(taken) || leads(not),
                End::Jump { .. } => true,
                // The handler ends, or faults.
                End::Fetch(_) => false,
            };
            changed |= live != after[id];
            after[id] = live;
        }
    }
    after
}

/// Index of the last instruction of a block that does more than compute, if the handler returns behind it.
fn last_action(cfg: &Cfg, id: BlockId) -> Option<usize> {
    let block = &cfg.blocks[id];
    let End::Goto(Target { block: Some(to), .. }) = block.end else { return None };
    let after = &cfg.blocks[to];
    let returns = after.body.is_empty() && matches!(after.end, End::Fetch(RETURN_ADDRESS)) && !after.cold;
    let last = block.body.iter().rposition(|(_, decoded)| !computes(&decoded.inst))?;
    returns.then_some(last)
}
