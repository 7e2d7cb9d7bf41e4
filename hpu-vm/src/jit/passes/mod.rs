//! Decisions about a region, each made by one pass on the graph and its facts. [`Plan`] holds them; the emission follows
//! it.
//!
//! * [`spin_loops`]: loops that wait for memory to change, where a task may be parked.
//! * [`if_conversion`]: branches that become conditional moves.
//! * [`values`], [`checks`]: accesses at known distances from each other share checks and host addresses.
//! * [`commands`]: command words that need not be stored; sends that are left to the caller.
//! * [`zero_copy`]: handlers that read the packet where it arrived.
//! * [`devices`]: accesses that may be to a device.
//! * [`task_pointer`]: the load of the pointer to the task registers.

mod checks;
mod commands;
mod devices;
mod if_conversion;
mod spin_loops;
mod task_pointer;
mod values;
mod zero_copy;

use crate::analysis::cfg::{BlockId, Cfg, LoopForest};
use crate::analysis::dataflow::Dataflow;
use crate::csr::Csr;
use crate::inst::{Format, Inst, Op};
use crate::jit::options::Options;
use crate::view::Checks;

pub(crate) use checks::{CheckRange, Checked};
pub(crate) use commands::{COMMAND_WORDS, CommandPlan, issues, register};
pub(crate) use devices::may_be_device;
pub(crate) use if_conversion::Choice;
pub(crate) use task_pointer::DISTANCE as TASK_POINTER_DISTANCE;
pub(crate) use values::Place;
pub(crate) use zero_copy::is_of_packet;

/// Maximum depth of nested loops. Optimising takes time in proportion to its square: for each value Cranelift looks at
/// the loops around it, and at those around each of them (`egraph/elaborate.rs`).
const MAX_LOOP_DEPTH: usize = 40;

/// Decisions about a region.
pub(crate) struct Plan {
    /// By block, whether it is the head of a loop that waits.
    pub(crate) spins: Vec<bool>,
    /// First and last addresses of the blocks of such loops.
    pub(crate) spinning: Vec<(u32, u32)>,
    /// By block, the choice that its branch becomes.
    pub(crate) choices: Vec<Option<Choice>>,
    /// Checks of memory accesses.
    pub(crate) checks: Checked,
    /// Stores and issues of commands.
    pub(crate) commands: CommandPlan,
    /// Number of bytes of the packet in L1 that are likely to be read where it arrived; `None` when none are to be.
    pub(crate) zero_copy: Option<u32>,
    /// Index of the instruction of block 0 that loads the pointer to the task registers.
    pub(crate) task_pointer: Option<usize>,
    /// Any address may be a device's.
    pub(crate) any_device: bool,
    /// Instructions are counted.
    pub(crate) counts: bool,
}

impl Plan {
    /// Runs all passes. `None` when loops are nested too deep to optimise.
    pub(crate) fn new(cfg: &Cfg, facts: &Dataflow, options: Options) -> Option<Self> {
        let forest = LoopForest::new(cfg);
        if forest.depth() > MAX_LOOP_DEPTH {
            return None;
        }
        let spinning = spin_loops::find(cfg, facts, &forest);
        let mut spins = vec![false; cfg.blocks.len()];
        spinning.iter().for_each(|found| spins[found.head] = true);
        let extent = |id: &BlockId| Some((cfg.blocks[*id].start, cfg.blocks[*id].body.last()?.0));
        let extents = spinning.iter().flat_map(|found| &found.blocks).filter_map(extent).collect();
        let any_device = options.any_device || facts.device_escapes;
        let counts = options.counting || reads_counters(cfg);
        let is_exact = options.checks == Checks::Exact;
        let converts = !counts && !options.observe;
        let choices = if converts { if_conversion::find(cfg, &spins) } else { vec![None; cfg.blocks.len()] };
        let task_pointer = if options.described { task_pointer::find(cfg) } else { None };
        let watched = any_device || counts || options.observe;
        Some(Self {
            checks: Checked::new(cfg, facts, task_pointer, any_device),
            commands: CommandPlan::new(cfg, facts, watched, is_exact),
            zero_copy: zero_copy::bytes_read(cfg, facts, &forest, options, any_device),
            spins,
            spinning: extents,
            choices,
            task_pointer,
            any_device,
            counts,
        })
    }
}

/// Whether a region reads a counter of instructions.
pub(crate) fn reads_counters(cfg: &Cfg) -> bool {
    let counts = |inst: &Inst| match inst.op.format() {
        Format::Csr | Format::CsrImmediate => {
            matches!(Csr::from_number(inst.imm.cast_unsigned()), Some(Csr::Cycle(_) | Csr::Time(_) | Csr::Instret(_)))
        }
        _ => inst.op == Op::Ecall,
    };
    cfg.hot_instructions().any(counts)
}
