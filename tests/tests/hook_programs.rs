//! Random programs as eBPF programs, loaded into the kernel and run on one frame each: all that can be seen must be what
//! the interpreter does. Programs that the verifier refuses are counted by reason.
//!
//! `SPIN_FUZZ_PROGRAMS` says how many, `SPIN_FUZZ_SEED` where to begin.
#![allow(dead_code, reason = "the modules that generate programs have parts for other tests")]

#[path = "../../hpu-vm/tests/differential/assembler.rs"]
mod assembler;
#[path = "../../hpu-vm/tests/differential/bpf.rs"]
mod bpf;
#[path = "../../hpu-vm/tests/differential/compare.rs"]
mod compare;
#[path = "../../hpu-vm/tests/differential/device.rs"]
mod device;
#[path = "../../hpu-vm/tests/differential/engine.rs"]
mod engine;
#[path = "../../hpu-vm/tests/differential/generate/mod.rs"]
mod generate;
#[path = "../../hpu-vm/tests/differential/memory.rs"]
mod memory;
#[path = "../../hpu-vm/tests/differential/program.rs"]
mod program;
#[path = "../../hpu-vm/tests/qemu/random.rs"]
mod random;
#[path = "../../hpu-vm/tests/support/mod.rs"]
mod support;

use std::os::fd::AsFd;

use bpf::{Bpf, Counts, Memory, Runner};
use compare::fuzz;
use hpu_vm::bpf::Program as Translated;
use hpu_vm::bpf::layout::Record;
use spin_nic::hook::{ArrayMap, LoadError, LoadOptions, Program};
use spin_testing::from_environment;

/// Programs of a run, unless the environment says otherwise.
const PROGRAMS: u64 = 500;

/// The kernel, by BPF_PROG_TEST_RUN.
#[derive(Default)]
struct InKernel;

impl Runner for InKernel {
    fn processors(&self) -> u32 {
        32
    }

    fn run(&mut self, translated: &Translated, memory: &mut Memory) -> Result<u32, String> {
        if !(14..=3520).contains(&memory.frame.len()) {
            return Err("the kernel's test takes no such frame".to_owned());
        }
        let map = |name: &str, bytes: &[u8]| {
            let map = ArrayMap::new(name, u32::try_from(bytes.len()).expect("short")).expect("a map");
            map.write(bytes).expect("written");
            map
        };
        let mut maps = vec![
            map("configuration", &memory.configuration),
            map("slots", &memory.slots.repeat(self.processors() as usize)),
        ];
        maps.extend(memory.shared.iter().map(|(_, bytes)| map("memory", bytes)));
        let descriptors: Vec<_> = maps.iter().map(AsFd::as_fd).collect();
        let instructions: Vec<[u8; 8]> = translated.insns().encode().into_iter().map(|insn| insn.bytes()).collect();
        let options = LoadOptions { name: "handler", full_log: false };
        let program = Program::load(&instructions, &descriptors, options).map_err(|error| match error {
            LoadError::Refused(refusal) => format!("refused: {}", refusal.reason),
            other => panic!("{other}"),
        })?;
        let run = program.test_run(&memory.frame, 1).expect("a run");
        memory.frame = run.frame;
        let slots = maps[1].read().expect("read");
        // The record of the processor that ran it; the others have none.
        let mut slots = slots.chunks_exact(memory.slots.len());
        memory.slots = slots.find(|slot| Record::read(slot, 0).is_some()).expect("a record").to_vec();
        for ((_, bytes), map) in memory.shared.iter_mut().zip(&maps[2..]) {
            *bytes = map.read().expect("read");
        }
        Ok(run.action)
    }
}

#[test]
fn loaded_programs_do_what_the_interpreter_does() {
    let first = from_environment("SPIN_FUZZ_SEED", 1);
    let seeds = first..first + from_environment("SPIN_FUZZ_PROGRAMS", PROGRAMS);
    let (engines, totals) = fuzz(Bpf::<InKernel>::default, seeds).unwrap_or_else(|report| panic!("{report}"));
    let mut all = Counts::default();
    engines.iter().for_each(|engine| all.add(&engine.0));
    println!("{totals}\n{all}");
    assert!(all.compared >= totals.programs / 8, "too few are compared");
}
