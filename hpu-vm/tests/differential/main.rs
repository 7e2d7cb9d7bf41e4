//! Whole random programs, run by the interpreter and by every other engine: all that can be seen must be the same.
//!
//! `SPIN_FUZZ_PROGRAMS` says how many, `SPIN_FUZZ_SEED` where to begin; a failure names its seed and shows the least
//! program that fails.

#[path = "../support/mod.rs"]
mod support;

#[path = "../qemu/random.rs"]
mod random;
#[path = "../support/regions.rs"]
mod regions;

mod assembler;
mod bpf;
mod compare;
mod coverage;
mod device;
mod engine;
mod generate;
mod jit;
mod linux;
mod memory;
mod program;
mod space;
mod wrong;

use std::ops::Range;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use compare::{Totals, fuzz};
use coverage::{Coverage, Traced};
use engine::{Engine, Oracle, Steps};
use hpu_vm::{Hart, RegionKind};
use memory::TABLES;
use program::Program;
use space::Mapped;
use spin_abi::fault::Cause;
use spin_testing::from_environment;

/// Programs of a run, unless the environment says otherwise.
const PROGRAMS: u64 = 4000;
/// Programs in which every wrong engine must be found.
const ENOUGH: u64 = 2000;

/// Seeds of the programs to run, of which there are one for every `divisor` asked for. The first one is another in each run; a failure
/// names its seed.
fn seeds(divisor: u64) -> Range<u64> {
    static RANDOM: LazyLock<u64> =
        LazyLock::new(|| u64::from(SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.subsec_nanos())));
    let first = from_environment("SPIN_FUZZ_SEED", *RANDOM);
    first..first + from_environment("SPIN_FUZZ_PROGRAMS", PROGRAMS).div_ceil(divisor)
}

/// Compares programs, or fails with the report.
fn compared<E: Engine + Send>(name: &str, make: impl Fn() -> E + Sync, seeds: Range<u64>) -> (Vec<E>, Totals) {
    let (engines, totals) = fuzz(make, seeds).unwrap_or_else(|report| panic!("{name}: {report}"));
    println!("{name}: {totals}");
    (engines, totals)
}

#[test]
fn the_interpreter_step_by_step_and_everything_occurs() {
    let (engines, totals) = compared("one instruction at a time", Traced::default, seeds(1));
    let mut coverage = Coverage::default();
    engines.iter().for_each(|engine| coverage.add(&engine.0));
    // 40 and 20 of 8,000 programs.
    coverage.check(totals.programs / 200);
    let causes =
        Cause::ALL.into_iter().filter(|cause| !matches!(cause, Cause::InstructionMisaligned | Cause::Watchdog));
    let names = causes.map(|cause| format!("{cause:?}")).chain(["Returned".to_owned(), "Finished".to_owned()]);
    for name in names {
        let count = totals.exits.get(&name).copied().unwrap_or(0);
        assert!(count >= totals.programs / 400, "{count} programs only ended with {name}");
    }
}

#[test]
fn the_interpreter_stopped_now_and_then() {
    for step in [2, 3, 7] {
        let make = || Steps { step, observe: |_: &Program, _: &Hart, _: &mut Hart| {} };
        compared(&format!("{step} instructions at a time"), make, seeds(8));
    }
}

/// Shared memory in mapped pages is as good as borrowed bytes.
#[test]
fn the_interpreter_on_mapped_memory() {
    compared("mapped memory", || Mapped, seeds(4));
}

#[test]
fn engines_that_do_not_count_are_compared_too() {
    let (_, totals) = compared("without counting", || wrong::Uncounted, 1..ENOUGH);
    assert!(totals.skipped < totals.programs / 4, "{totals}");
}

#[test]
fn wrong_engines_are_found() {
    for (name, harm) in wrong::INSTRUCTIONS {
        assert!(fuzz(|| wrong::WrongInstruction(harm), 1..ENOUGH).is_err(), "nobody noticed that {name}");
    }
    for (name, lie) in wrong::OUTCOMES {
        assert!(fuzz(|| wrong::WrongOutcome(lie), 1..ENOUGH).is_err(), "nobody noticed that {name}");
    }
}

#[test]
fn a_report_shows_the_instruction_that_is_wrong() {
    let (_, harm) = wrong::INSTRUCTIONS[0];
    let mut engine = wrong::WrongInstruction(harm);
    let mut shows =
        |program: &Program| compare::difference(program, &Oracle.run(program), &engine.run(program)).is_some();
    // Not all of one: some programs need more instructions around it than others.
    let programs = (1..ENOUGH).map(|seed| compare::program(seed, true)).filter(|program| shows(program)).take(4);
    let programs: Vec<Program> = programs.collect();
    let texts = programs.iter().map(|program| {
        let no_ops = compare::minimise(&mut engine, program);
        program.with_no_ops(&no_ops).disassembly(&no_ops)
    });
    let texts: Vec<String> = texts.collect();
    assert_eq!(texts.len(), 4, "programs that show it");
    assert!(texts.iter().all(|text| text.contains("mulhsu")), "{texts:#?}");
    assert!(texts.iter().any(|text| text.lines().count() <= 8), "not the least programs:\n{texts:#?}");
}

/// The loader lays out what the programs have as their memory.
#[test]
fn images_are_what_the_programs_say() {
    for seed in 1..200 {
        let program = compare::program(seed, true);
        let code = program.image.code().segments().iter();
        let data = program.image.instantiate();
        let loaded: Vec<(u32, RegionKind, Vec<u8>)> = code
            .map(|segment| (segment.base, RegionKind::Code, segment.bytes.to_vec()))
            .chain(data.segments().map(|(base, kind, bytes)| (base, kind, bytes.to_vec())))
            .collect();
        let in_image = |kind| matches!(kind, RegionKind::Code | RegionKind::Data | RegionKind::HandlerMemory);
        let blocks = program.blocks.iter().filter(|block| in_image(block.kind) && block.base != TABLES);
        let mut expected: Vec<(u32, RegionKind, Vec<u8>)> =
            blocks.map(|block| (block.base, block.kind, block.bytes[..block.len as usize].to_vec())).collect();
        expected.sort_by_key(|(base, kind, _)| (*kind != RegionKind::Code, *base));
        assert_eq!(loaded, expected, "seed {seed}");
    }
}

#[test]
fn linux_programs_end_as_under_qemu() {
    let seeds = seeds(64);
    let all = seeds.clone().count();
    let compared =
        seeds.filter(|&seed| linux::compare(&mut Oracle, seed).unwrap_or_else(|report| panic!("{report}"))).count();
    println!("qemu: {compared} of {all} programs compared");
    assert!(compared >= all - all / 16, "{compared} of {all} programs only were compared");
}

#[test]
fn translated_code() {
    let (engines, totals) = compared("translated code", jit::InTurn::default, seeds(1));
    let sum = |count: fn(&jit::Jit) -> u64| engines.iter().flat_map(|engine| &engine.0).map(count).sum::<u64>();
    // Addresses of devices that come about in ways that are not seen; code that is in many callers.
    let (surprised, refused) = (sum(|engine| engine.surprised), sum(|engine| engine.refused));
    println!("{surprised} took a device for memory, {refused} were too much to translate");
    assert!(surprised.max(refused) <= 1 + totals.programs / 100, "too many that are not compared as they are");
}

#[test]
fn programs_of_the_kernel() {
    let (engines, totals) = compared("programs of the kernel", bpf::Bpf::<bpf::InMachine>::default, seeds(1));
    let mut all = bpf::Counts::default();
    engines.iter().for_each(|engine| all.add(&engine.0));
    println!("{all}");
    assert!(all.compared >= totals.programs / 5, "{all}: too few are compared");
}
