//! A handler's program.

use std::collections::BTreeSet;

use super::assembler::Insns;
use super::eligible::{self, Ineligible};
use super::emit::{self, Input};
use super::flow::Flow;
use super::layout::Layout;
use super::options::{L1Packet, Options};
use crate::analysis::cfg::{self, Cost, Functions, Scope};
use crate::analysis::dataflow::{Begin, Dataflow};
use crate::analysis::regs::Regs;
use crate::code::Code;
use crate::inst::Reg;

/// The program of a payload handler.
#[derive(Clone, Debug)]
pub struct Program {
    insns: Insns,
    guest_instructions: usize,
    l1_packet: Option<L1Packet>,
    has_loops: bool,
}

/// Input of a translation.
#[derive(Clone, Copy, Debug)]
pub struct Source<'c> {
    /// Decoded code of the image.
    pub code: &'c Code,
    /// Address of the handler's first instruction.
    pub entry: u32,
    /// Code addresses contained in the image's data: possible targets of computed jumps.
    pub taken: &'c BTreeSet<u32>,
}

impl Program {
    /// Translates a handler.
    ///
    /// # Errors
    /// Why it cannot run in the hook.
    pub fn new(source: Source<'_>, layout: &Layout, options: Options) -> Result<Self, Ineligible> {
        let Source { code, entry, taken } = source;
        let functions = Functions::new(code, &[entry], taken);
        let scope = Scope { code, functions: &functions, taken, cost: Cost { access: 1 }, parts_cold: false };
        let mut cfg = cfg::handler(scope, entry);
        let results = Regs(0).with(Reg::A0);
        let facts = Dataflow::new(&mut cfg, results, &Begin::Task { global_pointer: code.global_pointer() });
        let flow = Flow::new(&cfg, &facts, options);
        eligible::check(&cfg, &facts, &flow.reached, layout)?;
        let insns = emit::emit(Input { code, cfg: &cfg, facts: &facts, flow: &flow, layout, options });
        let has_loops = flow.has_loops();
        Ok(Self { insns, guest_instructions: cfg.instructions, l1_packet: flow.l1, has_loops })
    }

    /// Returns the program's instructions.
    #[must_use]
    pub const fn insns(&self) -> &Insns {
        &self.insns
    }

    /// Returns the number of guest instructions, including copies of inlined functions.
    #[must_use]
    pub const fn guest_instructions(&self) -> usize {
        self.guest_instructions
    }

    /// Whether the handler has loops. The verifier follows each iteration of one, unless [`Options::forgetful`].
    #[must_use]
    pub const fn has_loops(&self) -> bool {
        self.has_loops
    }

    /// Returns how the packet in L1 is kept. `None` when the handler does not access it.
    #[must_use]
    pub const fn l1_packet(&self) -> Option<L1Packet> {
        self.l1_packet
    }
}
