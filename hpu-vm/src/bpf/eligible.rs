//! Handlers that cannot run in the hook, and why.

use std::fmt;

use super::command_words::{Before, Command, NIC_ADDRESS, issues};
use super::layout::Layout;
use crate::analysis::cfg::{BlockId, Cfg, End};
use crate::analysis::dataflow::{Dataflow, PointsTo};
use crate::inst::{Format, Inst, Op, Reg};

/// Why a handler cannot run in the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ineligible {
    /// Calls are recursive, too deep, too much code, or through pointers; or a jump leads to no code, or has no table.
    Calls {
        /// Address at which its code would continue.
        address: u32,
    },
    /// There are vector instructions.
    Vectors {
        /// Address of the first one.
        address: u32,
    },
    /// A counter or another CSR is read or written.
    Counters {
        /// Address of the first such instruction.
        address: u32,
    },
    /// There is a command other than a send, or a write or copy to host memory of a few bytes. Their number must be known, and the context
    /// must have host memory.
    Command {
        /// Address of the instruction that issues it.
        address: u32,
    },
    /// Something else than the packet in L2 is sent.
    Send {
        /// Address of the instruction that issues the command.
        address: u32,
    },
    /// There are environment calls.
    EnvironmentCall {
        /// Address of the first one.
        address: u32,
    },
}

impl Ineligible {
    /// Address of the code that is the reason.
    #[must_use]
    pub const fn address(self) -> u32 {
        match self {
            Self::Calls { address }
            | Self::Vectors { address }
            | Self::Counters { address }
            | Self::Command { address }
            | Self::Send { address }
            | Self::EnvironmentCall { address } => address,
        }
    }
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Calls { .. } => "calls or jumps that cannot be followed",
            Self::Vectors { .. } => "a vector instruction",
            Self::Counters { .. } => "access to a counter or CSR",
            Self::Command { .. } => {
                "a command other than a send, or a write or copy to host memory of up to 128 bytes whose number is known"
            }
            Self::Send { .. } => {
                "a send from other memory than the packet in L2 (spin_parse_udp_l2 and the like find that)"
            }
            Self::EnvironmentCall { .. } => "an ecall",
        };
        write!(f, "{what} (pc {:#010x})", self.address())
    }
}

/// Looks at all code that the handler reaches.
pub(super) fn check(cfg: &Cfg, facts: &Dataflow, reached: &[bool], layout: &Layout) -> Result<(), Ineligible> {
    let blocks = || (0..cfg.blocks.len()).filter(|&id| reached[id]);
    let leaves = |id| cfg.targets(id).find(|target| target.block.is_none()).map(|target| target.pc);
    let exit = || cfg.exits.first().copied().filter(|_| blocks().any(|id| !is_followed(cfg, id)));
    if let Some(address) = blocks().find_map(leaves).or_else(exit) {
        return Err(Ineligible::Calls { address });
    }
    let mut insts = blocks().flat_map(|id| &cfg.blocks[id].body);
    let refused = insts.find_map(|(pc, decoded)| refused(*pc, &decoded.inst));
    let command = || blocks().find_map(|block| other_command(cfg, facts, block, layout));
    refused.or_else(command).map_or(Ok(()), Err)
}

/// Whether the program has the targets of a jump that ends a block: a return's, or the entries of a table. A jump to
/// another address leaves the hook when it happens.
fn is_followed(cfg: &Cfg, id: BlockId) -> bool {
    let block = &cfg.blocks[id];
    let End::Jump { likely, table } = &block.end else { return true };
    let has_targets = likely.is_some() || table.is_some_and(|table| !cfg.tables[table].is_empty());
    has_targets && block.last().is_some_and(|inst| inst.rd == Reg::ZERO)
}

/// A command that the program does not make.
fn other_command(cfg: &Cfg, facts: &Dataflow, block: BlockId, layout: &Layout) -> Option<Ineligible> {
    let mut issues = facts.walk(cfg, block).filter(|(_, inst, state)| issues(inst, state));
    issues.find_map(|(index, ..)| {
        let (before, address) = (Before { cfg, facts, block, index }, cfg.blocks[block].body[index].0);
        match (before.command(layout), before.points_to(NIC_ADDRESS)) {
            (Command::Other, _) => Some(Ineligible::Command { address }),
            (Command::Send { certain: true }, Some(to)) if to != PointsTo::L2Packet => {
                Some(Ineligible::Send { address })
            }
            _ => None,
        }
    })
}

fn refused(address: u32, inst: &Inst) -> Option<Ineligible> {
    match inst.op.format() {
        Format::Vector => Some(Ineligible::Vectors { address }),
        Format::Csr | Format::CsrImmediate => Some(Ineligible::Counters { address }),
        Format::System if inst.op == Op::Ecall => Some(Ineligible::EnvironmentCall { address }),
        _ => None,
    }
}
