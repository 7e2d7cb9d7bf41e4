//! The program's own stack of 512 bytes: values that the program keeps, and guest registers that have no register.

use crate::analysis::cfg::{Cfg, LoopForest};
use crate::analysis::regs::{reads, writes};
use crate::bpf::insn::Register;
use crate::inst::Reg;

/// The context of the hook.
pub(super) const CONTEXT: i16 = -8;
/// Start of the frame.
pub(super) const DATA: i16 = -16;
/// The processor's slot.
pub(super) const SLOT: i16 = -24;
/// Rest of the budget.
pub(super) const BUDGET: i16 = -32;
/// Zero, which the verifier does not know.
pub(super) const ZERO: i16 = -40;
/// Length of the frame.
pub(super) const LENGTH: i16 = -48;
/// Length of the frame to send; 0 when there is none.
pub(super) const SENT: i16 = -56;
/// Address and value of the reserved word.
pub(super) const RESERVED_ADDRESS: i16 = -64;
/// See [`RESERVED_ADDRESS`].
pub(super) const RESERVED_VALUE: i16 = -72;
/// Holds a value within one guest instruction.
pub(super) const SCRATCH: i16 = -80;
/// Address of the instruction that ends the handler, 4 bytes.
pub(super) const PC: i16 = -88;
/// Whether the handler may have written memory that others see, 4 bytes.
pub(super) const WRITTEN: i16 = -84;
/// Number of commands that were issued.
pub(super) const COMMANDS: i16 = -96;
/// Words of the command, then its type.
pub(super) const WORDS: i16 = -144;
/// Number of words and type.
pub(super) const WORD_COUNT: i16 = 12;
/// The budget at the start.
pub(super) const GRANTED: i16 = -152;
/// Number of the processor, if there is a queue for commands.
pub(super) const PROCESSOR: i16 = -160;
/// The guest's registers end here.
const GUEST: i16 = PROCESSOR;

const _: () = assert!(WORDS + 4 * WORD_COUNT == COMMANDS);
const _: () = assert!(GUEST - 8 * 32 >= -512);

/// Registers that hold guest registers.
const CACHED: [u8; 7] = [2, 3, 4, 5, 6, 7, 8];
/// Weight of a use in a loop.
const LOOP_WEIGHT: u32 = 8;
/// Maximum depth of loops that weigh more.
const MAX_DEPTH: u32 = 4;

/// Where a guest register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    Register(Register),
    Stack(i16),
}

/// Homes of guest registers.
#[derive(Debug)]
pub(super) struct Homes {
    homes: [Option<Home>; 32],
}

impl Homes {
    /// The registers that are used most have registers.
    pub(super) fn new(cfg: &Cfg, reached: &[bool]) -> Self {
        let mut uses = [0_u32; 32];
        let depths = depths(cfg);
        for (id, block) in cfg.blocks.iter().enumerate().filter(|&(id, _)| reached[id]) {
            let weight = LOOP_WEIGHT.pow(depths[id].min(MAX_DEPTH));
            for (_, decoded) in &block.body {
                let used = reads(&decoded.inst).with(writes(&decoded.inst));
                used.iter().for_each(|reg| uses[reg.index()] = uses[reg.index()].saturating_add(weight));
            }
        }
        let mut order: Vec<Reg> = (1..32).map(Reg::new).filter(|reg| uses[reg.index()] > 0).collect();
        order.sort_by_key(|reg| std::cmp::Reverse(uses[reg.index()]));
        let mut homes = [None; 32];
        for (reg, cached) in order.iter().zip(CACHED) {
            homes[reg.index()] = Some(Home::Register(Register::new(cached)));
        }
        for (reg, offset) in order.iter().skip(CACHED.len()).zip((1..).map(|index| GUEST - 8 * index)) {
            homes[reg.index()] = Some(Home::Stack(offset));
        }
        Self { homes }
    }

    /// Where a register is; `None` when no instruction uses it.
    pub(super) const fn of(&self, reg: Reg) -> Option<Home> {
        self.homes[reg.index()]
    }

    /// All registers that are used.
    pub(super) fn all(&self) -> impl Iterator<Item = (Reg, Home)> + '_ {
        (1..32).map(Reg::new).filter_map(|reg| Some((reg, self.of(reg)?)))
    }
}

/// By block, the number of loops that it is in.
fn depths(cfg: &Cfg) -> Vec<u32> {
    let mut depths = vec![0; cfg.blocks.len()];
    for found in &LoopForest::new(cfg).loops {
        found.blocks.iter().for_each(|&id| depths[id] += 1);
    }
    depths
}
