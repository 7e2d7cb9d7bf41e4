//! Handlers that try to leave their memory, loaded into the XDP hook: the attacks of hpu-vm's escape test, run by the
//! kernel. Each one ends as the machine in user space says, and no byte of others changes.
//!
//! `--nocapture` prints the table.
#![allow(dead_code, reason = "the modules have parts for the tests of other tiers")]

#[path = "../../hpu-vm/tests/support/assembly.rs"]
mod assembly;
#[path = "../../hpu-vm/tests/escape/attack.rs"]
mod attack;
#[path = "../../hpu-vm/tests/escape/control.rs"]
mod control;
#[path = "../../hpu-vm/tests/differential/device.rs"]
mod device;
#[path = "../../hpu-vm/tests/support/guest.rs"]
mod guest;
#[path = "../../hpu-vm/tests/escape/hook/mod.rs"]
mod hook;
#[path = "../../hpu-vm/tests/escape/sweep.rs"]
mod sweep;

use std::os::fd::{AsFd, BorrowedFd};

use hook::expected::Rules;
use hook::memory::Memory;
use hook::{FORMS, Row, Runner};
use hpu_vm::bpf::Program as Translated;
use spin_nic::hook::{ArrayMap, LoadError, LoadOptions, Program};
use spin_testing::{bounded, skip};

/// The kernel. Attacks have the same maps one after the other.
#[derive(Default)]
struct InKernel {
    maps: Vec<ArrayMap>,
}

impl InKernel {
    /// The maps with the content of `memory`.
    fn fill(&mut self, memory: &Memory) -> Vec<BorrowedFd<'_>> {
        let own = [memory.configuration.as_slice(), &memory.slots];
        let contents: Vec<&[u8]> = own.into_iter().chain(memory.maps()).collect();
        if self.maps.is_empty() {
            let new =
                |bytes: &[u8]| ArrayMap::new("attack", u32::try_from(bytes.len()).expect("short")).expect("a map");
            self.maps = contents.iter().copied().map(new).collect();
        }
        self.maps.iter().zip(contents).for_each(|(map, bytes)| map.write(bytes).expect("written"));
        self.maps.iter().map(AsFd::as_fd).collect()
    }
}

impl Runner for InKernel {
    fn processors(&self) -> u32 {
        32
    }

    fn run(&mut self, program: &Translated, memory: &mut Memory) -> Result<u32, String> {
        let instructions: Vec<[u8; 8]> = program.insns().encode().into_iter().map(|insn| insn.bytes()).collect();
        let descriptors = self.fill(memory);
        let loaded = Program::load(&instructions, &descriptors, LoadOptions { name: "attack", full_log: false });
        let program = loaded.map_err(|error| match error {
            LoadError::Refused(refusal) => refusal.message,
            other => panic!("{other}"),
        })?;
        let run = program.test_run(&memory.frame, 1).expect("a run");
        memory.frame = run.frame;
        let mut contents = self.maps.iter().map(|map| map.read().expect("read"));
        let mut next = || contents.next().expect("a map");
        (memory.configuration, memory.slots) = (next(), next());
        memory.maps_mut().for_each(|bytes| *bytes = next());
        Ok(run.action)
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("loading programs of the XDP hook needs root");
    }
    root
}

/// All forms of an attack, or one of them, which is another one for the next attack.
fn forms<F: Copy>(index: usize, forms: &[F]) -> Vec<F> {
    bounded(vec![forms[index % forms.len()]], forms.to_vec())
}

#[test]
fn programs_in_the_kernel_reach_nothing_of_others() {
    if !is_root() {
        return;
    }
    let attacks = [control::attacks(), sweep::foreign(), sweep::edges()].concat();
    let (mut kernel, mut rules) = (InKernel::default(), Rules::default());
    let mut rows: Vec<Row> = Vec::new();
    for (index, attack) in attacks.iter().enumerate() {
        let forms = forms(index, &FORMS);
        rows.extend(forms.into_iter().map(|form| hook::attempt(&mut kernel, &mut rules, attack, form)));
    }
    hook::report("the kernel", &rows);
}

#[test]
fn commands_in_the_kernel_are_made_as_described_or_left() {
    if !is_root() {
        return;
    }
    let (commands, all) = (hook::commands::all(), hook::commands::forms().collect::<Vec<_>>());
    let mut kernel = InKernel::default();
    let mut rows: Vec<Row> = Vec::new();
    for (index, commands) in commands.iter().enumerate() {
        let forms = forms(index, &all);
        rows.extend(forms.into_iter().map(|form| hook::commands::attempt(&mut kernel, commands, form)));
    }
    hook::report("commands", &rows);
}
