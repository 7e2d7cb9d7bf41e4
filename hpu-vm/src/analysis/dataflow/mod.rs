//! Facts about a region, computed once before anything is emitted: the state of the registers before each instruction,
//! and liveness after it.
//!
//! * [`pointers`]: registers that most likely point into the packet or into handler memory.
//! * [`state`]: the lattice.
//! * [`liveness`]: registers that may still be read.
//! * [`vector`]: vector type and length.

mod liveness;
mod pointers;
mod state;
pub(crate) mod vector;

use crate::analysis::cfg::{BlockId, Cfg, End, Target};
use crate::analysis::regs::Regs;
use crate::inst::{Inst, Op};

pub(crate) use pointers::PointsTo;
pub(crate) use state::RegState;

/// What is known where a region is entered.
pub(crate) enum Begin {
    /// A task begins; gp holds this address.
    Task { global_pointer: u32 },
    /// Nothing, but these registers most likely hold the addresses of devices, if any do.
    Points { device: Regs },
}

/// Facts about all instructions of a region.
pub(crate) struct Dataflow {
    /// By block, the index of its first entry below; each block has one more entry than instructions.
    first: Vec<usize>,
    /// State before each instruction, and at the end of the block.
    states: Vec<RegState>,
    /// Registers that may be read from there on.
    live: Vec<Regs>,
    /// By block, whether it is reached.
    reached: Vec<bool>,
    /// Vector type and length at the start of each block; empty without vector instructions.
    settings: Vec<vector::Setting>,
    /// Registers that are read after the handler has returned.
    pub(crate) results: Regs,
    /// The address of a device is stored to memory, so that any loaded value may be one.
    pub(crate) device_escapes: bool,
    /// The state in which nothing is known.
    nothing: RegState,
}

impl Dataflow {
    /// Analyses `cfg`. Computed jumps whose address is a constant become direct ones. `results` are read after the
    /// handler has returned.
    pub(crate) fn new(cfg: &mut Cfg, results: Regs, begin: &Begin) -> Self {
        let at_start = states_at_start(cfg, begin);
        let reached: Vec<bool> = at_start.iter().map(Option::is_some).collect();
        let (first, states) = states_within(cfg, at_start);
        resolve_jumps(cfg, &first, &states, &reached);
        let live = liveness::within(cfg, results);
        let mut facts = Self {
            first,
            states,
            live,
            reached,
            settings: Vec::new(),
            results,
            device_escapes: false,
            nothing: RegState::default(),
        };
        let escapes = |id: BlockId| facts.walk(cfg, id).any(|(_, inst, state)| state.escapes(inst));
        facts.device_escapes = cfg.hot_blocks().any(escapes);
        if cfg.hot_instructions().any(|inst| inst.op == Op::Vector) {
            let changes = |id: BlockId| {
                let changes = facts.walk(cfg, id);
                changes.filter_map(|(_, inst, state)| vector::Change::of(inst, |reg| state.constant(reg))).collect()
            };
            let changes: Vec<Vec<vector::Change>> = (0..cfg.blocks.len()).map(changes).collect();
            facts.settings = vector::settings(cfg, &changes);
        }
        facts
    }

    /// Registers that hold the addresses of devices where the region is left, most likely.
    pub(crate) fn devices_outside(&self, cfg: &Cfg) -> Regs {
        // Neither ra nor t0 to t6: by the calling convention nobody reads them on the other side of a call or return.
        const PASSED: Regs = Regs(!0xf000_00e2);
        // s0 to s11. Functions seldom return the address of a device, and most leave something in a0.
        const SAVED: Regs = Regs(0x0ffc_0300);
        let read_outside = |id: BlockId| {
            let read = |target: &Target| match target.block {
                Some(to) if cfg.blocks[to].cold => self.live(to, 0),
                Some(_) => Regs(0),
                None => PASSED,
            };
            let computed = match cfg.blocks[id].end {
                // A return.
                End::Jump { likely: Some(_), .. } => SAVED,
                End::Jump { .. } => PASSED,
                _ => Regs(0),
            };
            cfg.targets(id).map(read).fold(computed, Regs::or)
        };
        let devices = cfg.hot_blocks().map(|id| (id, read_outside(id))).filter(|(_, read)| *read != Regs(0));
        let devices = devices.map(|(id, read)| {
            let state = self.before(id, cfg.blocks[id].body.len());
            state.devices().and(read).and(PASSED)
        });
        devices.fold(Regs(0), Regs::or)
    }

    /// What is known before the instruction at `index` of a block; after its last one when `index` is its length.
    pub(crate) fn before(&self, block: BlockId, index: usize) -> &RegState {
        &self.states[self.first[block] + index]
    }

    /// Registers that may be read from that point on.
    pub(crate) fn live(&self, block: BlockId, index: usize) -> Regs {
        self.live[self.first[block] + index]
    }

    /// The state in which nothing is known.
    pub(crate) const fn nothing(&self) -> &RegState {
        &self.nothing
    }

    /// Whether any way leads to a block.
    pub(crate) fn is_reached(&self, block: BlockId) -> bool {
        self.reached[block]
    }

    /// Vector type and length at the start of a block.
    pub(crate) fn vector_setting(&self, block: BlockId) -> vector::Setting {
        self.settings.get(block).copied().unwrap_or_default()
    }

    /// The number of an instruction within the region, and one more for the end of each block.
    pub(crate) fn number(&self, block: BlockId, index: usize) -> usize {
        self.first[block] + index
    }

    /// How many such numbers there are.
    pub(crate) const fn numbers(&self) -> usize {
        self.states.len()
    }

    /// The instructions of a block, each with its index and the state before it.
    pub(crate) fn walk<'f>(
        &'f self,
        cfg: &'f Cfg,
        block: BlockId,
    ) -> impl Iterator<Item = (usize, &'f Inst, &'f RegState)> {
        let body = cfg.blocks[block].body.iter().enumerate();
        body.map(move |(index, (_, decoded))| (index, &decoded.inst, self.before(block, index)))
    }
}

/// State at the start of each block; `None` where no way leads.
fn states_at_start(cfg: &Cfg, begin: &Begin) -> Vec<Option<RegState>> {
    let mut states: Vec<Option<RegState>> = vec![None; cfg.blocks.len()];
    let begin = match *begin {
        Begin::Task { global_pointer } => RegState::at_task_start(global_pointer),
        Begin::Points { device } => RegState::at_point(device),
    };
    let mut work = cfg.starts().to_vec();
    work.iter().for_each(|&start| states[start] = Some(begin.clone()));
    let mut queued = vec![false; cfg.blocks.len()];
    while let Some(id) = work.pop() {
        queued[id] = false;
        let Some(mut state) = states[id].clone() else { continue };
        let block = &cfg.blocks[id];
        (0..block.body.len()).for_each(|index| state.transfer(block, index));
        // A cold block does not lead back: it is compiled elsewhere.
        for next in cfg.successors(id).filter(|&next| !block.cold || cfg.blocks[next].cold) {
            let changed = match &mut states[next] {
                Some(there) => there.join(&state),
                none => {
                    *none = Some(state.clone());
                    true
                }
            };
            if changed && !std::mem::replace(&mut queued[next], true) {
                work.push(next);
            }
        }
    }
    states
}

/// States before each instruction of all blocks, and the index of each block's first.
fn states_within(cfg: &Cfg, at_start: Vec<Option<RegState>>) -> (Vec<usize>, Vec<RegState>) {
    let (mut first, mut states) = (Vec::with_capacity(cfg.blocks.len()), Vec::new());
    for (block, state) in cfg.blocks.iter().zip(at_start) {
        first.push(states.len());
        let mut state = state.unwrap_or_default();
        for index in 0..block.body.len() {
            states.push(state.clone());
            state.transfer(block, index);
        }
        states.push(state);
    }
    (first, states)
}

fn resolve_jumps(cfg: &mut Cfg, first: &[usize], states: &[RegState], reached: &[bool]) {
    for id in (0..cfg.blocks.len()).filter(|&id| reached[id]) {
        let block = &cfg.blocks[id];
        let (End::Jump { .. }, Some(jump)) = (&block.end, block.last()) else { continue };
        let before = &states[first[id] + block.body.len() - 1];
        if let Some(address) = before.constant(jump.rs1) {
            let pc = address.wrapping_add(jump.imm.cast_unsigned()) & !1;
            cfg.resolve(id, pc);
        }
    }
    cfg.update();
}
