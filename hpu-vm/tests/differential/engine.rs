//! What runs programs: the oracle, and engines that should do as it does.
//!
//! Another engine is an [`Engine`] and a test that has it [compared](crate::compare::fuzz);
//! [`map`](crate::space::map) gives it memory.

use hpu_vm::{Exit, Hart, Reg, run};
use spin_abi::fault::Cause;

use crate::device::{Access, Recorder};
use crate::memory::{Block, view};
use crate::program::Program;

/// All that can be seen of a program's run.
#[derive(Debug)]
pub struct Outcome {
    pub exit: Exit,
    /// The hart's `pc` and registers at the end, if the engine exposes them.
    pub state: Option<(u32, [u32; 32])>,
    /// What a handler that returned has as its result, if the engine keeps it.
    pub result: Option<u32>,
    /// Instructions completed, if the engine counts them.
    pub retired: Option<u64>,
    /// The memory at the end.
    pub blocks: Vec<Block>,
    /// What arrived at the device.
    pub log: Vec<Access>,
}

/// Runs programs.
pub trait Engine {
    /// Whether it counts the instructions of the program of `seed`: without, programs read no counters and those that reach their
    /// limit are not run.
    fn counts(&self, seed: u64) -> bool {
        let _ = seed;
        true
    }

    /// Whether it runs programs without devices, counters, environment calls, recursion and vectors only.
    fn is_plain(&self) -> bool {
        false
    }

    /// Runs `program` from its start on a copy of its memory, with a [`Recorder`] for a device and `mhartid`
    /// [`HART_ID`].
    fn run(&mut self, program: &Program) -> Outcome;
}

/// What `mhartid` reads.
pub const HART_ID: u32 = 0x23;

/// The interpreter, in one go: the oracle.
pub struct Oracle;

impl Engine for Oracle {
    fn run(&mut self, program: &Program) -> Outcome {
        let mut blocks = program.blocks.clone();
        let mut hart = begin(program);
        let mut recorder = Recorder::default();
        let code = program.image.code();
        let exit = run(&mut hart, code, &mut view(&mut blocks, program.checks), &mut recorder, program.start.limit);
        outcome(exit, &hart, blocks, recorder)
    }
}

/// The interpreter, stopped and continued every few instructions.
pub struct Steps<F> {
    /// Instructions of each run, at least 1.
    pub step: u64,
    /// Called with the hart before and after each run of at least one instruction, be it one that faulted.
    pub observe: F,
}

impl<F: FnMut(&Program, &Hart, &mut Hart)> Engine for Steps<F> {
    fn run(&mut self, program: &Program) -> Outcome {
        let mut blocks = program.blocks.clone();
        let mut view = view(&mut blocks, program.checks);
        let mut hart = begin(program);
        let mut recorder = Recorder::default();
        let mut left = program.start.limit;
        let exit = loop {
            let (before, charged) = (hart.clone(), recorder.charged);
            let exit = run(&mut hart, program.image.code(), &mut view, &mut recorder, self.step.min(left));
            if left == 0 {
                break exit;
            }
            (self.observe)(program, &before, &mut hart);
            if !matches!(exit, Exit::Fault(fault) if fault.cause == Cause::InstructionLimit) {
                break exit;
            }
            let executed = hart.retired() - before.retired();
            left = left.saturating_sub(executed + recorder.charged - charged);
        };
        drop(view);
        outcome(exit, &hart, blocks, recorder)
    }
}

/// A hart at the program's start.
pub fn begin(program: &Program) -> Hart {
    let mut hart = Hart::new(HART_ID);
    hart.begin(program.start.entry, program.start.sp, program.start.argument);
    hart
}

/// What can be seen of a hart that ended so.
pub fn outcome(exit: Exit, hart: &Hart, blocks: Vec<Block>, recorder: Recorder) -> Outcome {
    Outcome {
        exit,
        state: Some((hart.pc, hart.x)),
        result: (exit == Exit::Returned).then(|| hart.get(Reg::A0)),
        retired: Some(hart.retired()),
        blocks,
        log: recorder.log,
    }
}
