//! Attacks as programs of the XDP hook, in the machine that interprets them or in the kernel.
//!
//! * [`memory`]: the frame and the maps, with canaries.
//! * `oracle`: the interpreter on this memory. `check`: what a program did.
//! * [`expected`]: the attacks that end in another way than in the interpreter.
//! * [`commands`]: commands with hostile addresses and lengths.

mod check;
pub mod commands;
pub mod expected;
pub mod memory;
mod oracle;

use std::collections::BTreeSet;

use hpu_vm::Checks;
use hpu_vm::bpf::machine::MapMemory;
use hpu_vm::bpf::{Ineligible, Machine, Options, Program, Source};

use crate::attack::Attack;
use crate::guest::CODE;
use check::{Run, check};
use expected::Rules;
use memory::Memory;

/// Instructions of eBPF that a program may execute.
const LIMIT: u64 = 5_000_000;

/// Runs programs.
pub trait Runner {
    /// Number of processors that have a slot.
    fn processors(&self) -> u32;

    /// Runs a program on `memory`. Returns the action.
    ///
    /// # Errors
    /// The verifier refuses the program, for this reason.
    fn run(&mut self, program: &Program, memory: &mut Memory) -> Result<u32, String>;
}

/// The machine in user space, which refuses each access outside the frame and the maps.
pub struct InMachine;

impl Runner for InMachine {
    fn processors(&self) -> u32 {
        3
    }

    fn run(&mut self, program: &Program, memory: &mut Memory) -> Result<u32, String> {
        let Memory { frame, configuration, slots, shared, queue } = memory;
        let mut maps = vec![MapMemory::Constants(configuration), MapMemory::Value(slots)];
        maps.extend(shared.iter_mut().map(|shared| MapMemory::Value(&mut shared.bytes)));
        maps.push(MapMemory::Value(queue));
        let mut machine = Machine::new(frame, maps);
        // The slots of others are on both sides.
        machine.processor = 1;
        Ok(machine.run(program.insns(), LIMIT).unwrap_or_else(|error| panic!("{error}")))
    }
}

/// A form of a program.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub name: &'static str,
    pub checks: Checks,
    pub opaque: bool,
    pub forgetful: bool,
    pub copies_packet: bool,
}

const PLAIN: Form =
    Form { name: "plain", checks: Checks::Exact, opaque: false, forgetful: false, copies_packet: false };

/// The forms that handlers are loaded in, one in which the packet in L1 is always a copy, and one with page checks.
pub const FORMS: [Form; 6] = [
    PLAIN,
    Form { name: "forgetful", forgetful: true, ..PLAIN },
    Form { name: "opaque", opaque: true, ..PLAIN },
    Form { name: "opaque, forgetful", opaque: true, forgetful: true, ..PLAIN },
    Form { name: "copy", copies_packet: true, ..PLAIN },
    Form { name: "pages", checks: Checks::Page, ..PLAIN },
];

/// A row of the table.
pub struct Row {
    name: String,
    form: &'static str,
    outcome: String,
    /// What is wrong with it.
    complaints: Vec<String>,
}

/// A translation, if there is one, with the memory that it is for.
fn translate(attack: &Attack, form: Form, processors: u32) -> (Result<Program, Ineligible>, Memory) {
    let memory = Memory::new(attack.program.bytes(), form.checks, processors);
    let taken: BTreeSet<u32> = attack.taken.iter().copied().collect();
    let code = attack.program.code();
    let source = Source { code: &code, entry: CODE, taken: &taken };
    let Form { opaque, forgetful, copies_packet, .. } = form;
    let options = Options { opaque, forgetful, copies_packet, ..Options::default() };
    (Program::new(source, &memory.layout(processors), options), memory)
}

/// Makes an attempt in one form.
pub fn attempt(runner: &mut impl Runner, rules: &mut Rules, attack: &Attack, form: Form) -> Row {
    let (program, before) = translate(attack, form, runner.processors());
    let expected = rules.of(&attack.name, form);
    let (outcome, mut complaints) = match &program {
        Err(reason) => (format!("not eligible: {reason}"), expected.differs_from_refusal(*reason)),
        Ok(program) => {
            let mut after = before.clone();
            match runner.run(program, &mut after) {
                Err(reason) => {
                    let is_expected = expected::may_refuse(&attack.name, form, &reason);
                    let complaint = (!is_expected).then(|| format!("the verifier refused it: {reason}"));
                    (format!("refused: {reason}"), complaint.into_iter().collect())
                }
                Ok(action) => check(&Run { attack, program, form, before, after, action }, expected),
            }
        }
    };
    complaints.iter_mut().for_each(|complaint| *complaint = format!("{}, {}: {complaint}", attack.name, form.name));
    Row { name: attack.name.clone(), form: form.name, outcome, complaints }
}

/// Prints a table, and fails if there are complaints. Forms of an attack with one outcome have one line.
pub fn report(title: &str, rows: &[Row]) {
    println!("{title}: {} attempts", rows.len());
    for forms in rows.chunk_by(|a, b| a.name == b.name && a.outcome == b.outcome) {
        let names: Vec<&str> = forms.iter().map(|row| row.form).collect();
        let names = if names.len() >= FORMS.len() - 1 { "all".to_owned() } else { names.join("; ") };
        println!("  {:<55} {names:<18} {}", forms[0].name, forms[0].outcome);
    }
    let complaints: Vec<&str> = rows.iter().flat_map(|row| &row.complaints).map(String::as_str).collect();
    assert!(complaints.is_empty(), "{} in {} attempts:\n{}", complaints.len(), rows.len(), complaints.join("\n"));
}
