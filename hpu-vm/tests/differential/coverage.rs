//! What programs executed: the proof that the generator does what it is for.

use hpu_vm::compressed::{Form, expand};
use hpu_vm::inst::Format;
use hpu_vm::{Hart, Op};

use crate::engine::{Engine, Outcome, Steps};
use crate::program::Program;

/// How often each instruction was executed; one that faulted counts.
#[derive(Clone, Debug)]
pub struct Coverage {
    ops: [u64; 256],
    forms: [u64; 32],
    /// Branches not taken and taken.
    branches: [[u64; 2]; 256],
    /// Instructions found in the upper half of another.
    middles: u64,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { ops: [0; 256], forms: [0; 32], branches: [[0; 2]; 256], middles: 0 }
    }
}

impl Coverage {
    /// Counts the instruction that took the hart from `before` to `after`.
    fn count(&mut self, program: &Program, before: &Hart, after: &Hart) {
        let code = program.image.code();
        let Some(decoded) = code.fetch(before.pc) else { return };
        let op = decoded.inst.op;
        self.ops[op as usize] += 1;
        if op.format() == Format::Branch {
            let taken = after.pc != before.pc.wrapping_add(u32::from(decoded.size));
            self.branches[op as usize][usize::from(taken)] += 1;
        }
        if decoded.size == 2 {
            let segment = code.segments().iter().find(|segment| before.pc.wrapping_sub(segment.base) < 0x4000);
            let segment = segment.expect("code is in a segment");
            let at = (before.pc - segment.base) as usize;
            let half = u16::from_le_bytes([segment.bytes[at], segment.bytes[at + 1]]);
            let (form, _) = expand(half).expect("a compressed instruction");
            self.forms[form as usize] += 1;
        }
        self.middles += u64::from(program.places.binary_search_by_key(&before.pc, |place| place.0).is_err());
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        self.ops.iter_mut().zip(other.ops).for_each(|(count, more)| *count += more);
        self.forms.iter_mut().zip(other.forms).for_each(|(count, more)| *count += more);
        for (counts, more) in self.branches.iter_mut().zip(other.branches) {
            counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
        self.middles += other.middles;
    }

    /// Checks that everything was executed at least `least` times.
    ///
    /// # Panics
    /// When something was not.
    pub fn check(&self, least: u64) {
        let enough = |count: u64, name: &str| assert!(count >= least, "{name} was executed {count} times only");
        for &op in Op::ALL.iter().filter(|op| is_scalar(**op)) {
            enough(self.ops[op as usize], op.mnemonic());
            if op.format() == Format::Branch {
                enough(self.branches[op as usize][0], &format!("{} not taken", op.mnemonic()));
                enough(self.branches[op as usize][1], &format!("{} taken", op.mnemonic()));
            }
        }
        for &form in Form::ALL {
            enough(self.forms[form as usize], form.mnemonic());
        }
        enough(self.middles, "an instruction in the middle of another");
    }
}

/// Whether the programs are made of such instructions.
fn is_scalar(op: Op) -> bool {
    !op.mnemonic().starts_with('v')
}

/// The interpreter, one instruction at a time, which counts what it executes.
#[derive(Default)]
pub struct Traced(pub Coverage);

impl Engine for Traced {
    fn run(&mut self, program: &Program) -> Outcome {
        let coverage = &mut self.0;
        let observe = |program: &Program, before: &Hart, after: &mut Hart| coverage.count(program, before, after);
        Steps { step: 1, observe }.run(program)
    }
}
