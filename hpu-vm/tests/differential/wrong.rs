//! Engines with one error each, which the harness must find, and one that is right but tells less.

use hpu_vm::{Exit, Hart, Op};
use spin_abi::fault::Cause;

use crate::engine::{Engine, Oracle, Outcome, Steps};
use crate::program::Program;

/// Changes the hart after an instruction was executed; the operation, the hart before, the hart.
type Harm = fn(Op, &Hart, &mut Hart, &Program);

/// The interpreter with a wrong instruction; it shows memory, accesses and exit alone.
pub struct WrongInstruction(pub Harm);

impl Engine for WrongInstruction {
    fn run(&mut self, program: &Program) -> Outcome {
        let harm = self.0;
        let observe = |program: &Program, before: &Hart, after: &mut Hart| {
            // What did not complete has no result.
            if let Some(decoded) = program.image.code().fetch(before.pc)
                && after.retired() != before.retired()
            {
                harm(decoded.inst.op, before, after, program);
            }
        };
        // An engine need not expose more than this.
        Outcome { state: None, result: None, retired: None, ..Steps { step: 1, observe }.run(program) }
    }
}

/// The interpreter, but nobody may rely on how many instructions it executes.
pub struct Uncounted;

impl Engine for Uncounted {
    fn counts(&self, _: u64) -> bool {
        false
    }

    fn run(&mut self, program: &Program) -> Outcome {
        Outcome { retired: None, ..Oracle.run(program) }
    }
}

/// Changes what a run came to.
type Lie = fn(&mut Outcome);

/// The interpreter with a wrong result at the end.
pub struct WrongOutcome(pub Lie);

impl Engine for WrongOutcome {
    fn run(&mut self, program: &Program) -> Outcome {
        let mut outcome = Oracle.run(program);
        (self.0)(&mut outcome);
        outcome
    }
}

/// Errors of instructions by name.
pub const INSTRUCTIONS: [(&str, Harm); 5] = [
    ("mulhsu is off by one", |op, before, after, program| {
        if op == Op::Mulhsu {
            let rd = program.image.code().fetch(before.pc).map(|decoded| decoded.inst.rd).unwrap_or_default();
            after.set(rd, after.get(rd) ^ 1);
        }
    }),
    ("lb does not extend the sign", |op, before, after, program| {
        if op == Op::Lb {
            let rd = program.image.code().fetch(before.pc).map(|decoded| decoded.inst.rd).unwrap_or_default();
            after.set(rd, after.get(rd) & 0xff);
        }
    }),
    ("sc.w always reports success", |op, before, after, program| {
        if op == Op::ScW {
            let rd = program.image.code().fetch(before.pc).map(|decoded| decoded.inst.rd).unwrap_or_default();
            after.set(rd, 0);
        }
    }),
    ("bgeu of equal values does not branch", |op, before, after, program| {
        let decoded = program.image.code().fetch(before.pc).expect("what was executed");
        if op == Op::Bgeu && before.get(decoded.inst.rs1) == before.get(decoded.inst.rs2) {
            after.pc = before.pc.wrapping_add(u32::from(decoded.size));
        }
    }),
    ("the lowest bit of a jump's target is kept", |op, before, after, program| {
        let decoded = program.image.code().fetch(before.pc).expect("what was executed");
        if op == Op::Jalr {
            after.pc |= before.get(decoded.inst.rs1).wrapping_add(decoded.inst.imm.cast_unsigned()) & 1;
        }
    }),
];

/// Errors of a whole run by name.
pub const OUTCOMES: [(&str, Lie); 5] = [
    ("a result is off by one", |outcome| {
        if let Some(result) = &mut outcome.result {
            *result = result.wrapping_add(1);
        }
    }),
    ("a stack overflow names another address", |outcome| {
        if let Exit::Fault(fault) = &mut outcome.exit
            && fault.cause == Cause::StackOverflow
        {
            fault.address ^= 1;
        }
    }),
    ("an overflow of the stack is a plain fault", |outcome| {
        if let Exit::Fault(fault) = &mut outcome.exit
            && fault.cause == Cause::StackOverflow
        {
            fault.cause = Cause::StoreAccess;
        }
    }),
    ("two device accesses change places", |outcome| {
        if let [.., a, b] = outcome.log.as_mut_slice() {
            std::mem::swap(a, b);
        }
    }),
    ("a limit stops an instruction late", |outcome| {
        if let (Exit::Fault(fault), Some(retired)) = (outcome.exit, &mut outcome.retired)
            && fault.cause == Cause::InstructionLimit
        {
            *retired += 1;
        }
    }),
];
