//! Tasks that wait for a device are parked, others run meanwhile, and they go on as if they had never waited.

#[path = "../differential/assembler.rs"]
mod assembler;
#[path = "../support/assembly.rs"]
mod assembly;
#[path = "../differential/compare.rs"]
#[expect(dead_code, reason = "a part of it is for other tests")]
mod compare;
#[path = "../differential/device.rs"]
mod device;
#[path = "../differential/engine.rs"]
mod engine;
#[path = "../differential/generate/mod.rs"]
mod generate;
#[path = "../support/guest.rs"]
mod guest;
#[path = "../differential/memory.rs"]
mod memory;
#[path = "../differential/program.rs"]
#[expect(dead_code, reason = "a part of it is for other tests")]
mod program;
#[path = "../qemu/random.rs"]
mod random;
#[path = "../support/regions.rs"]
mod regions;
#[path = "../differential/space.rs"]
#[allow(dead_code, reason = "its engine is for other tests")]
mod space;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/waits.rs"]
mod waits;

mod packet;
mod polling;
mod reservation;
mod waiting;

use engine::{Engine, Oracle, Steps};
use hpu_vm::jit::{Atomics, Options};
use hpu_vm::{Hart, Op};
use program::Program;
use waiting::{Parker, Parks};

/// Random programs of each comparison.
const PROGRAMS: u64 = if cfg!(debug_assertions) { 60 } else { 1500 };

/// Whether parking may show: a word that was reserved before is not any more.
fn reserves(program: &Program) -> bool {
    let mut reserves = false;
    let observe = |program: &Program, before: &Hart, _: &mut Hart| {
        let decoded = program.image.code().fetch(before.pc);
        reserves |= decoded.is_some_and(|decoded| decoded.inst.op == Op::ScW);
    };
    Steps { step: 1, observe }.run(program);
    reserves
}

/// Compares what `parker` does with `expected`, both of one program.
fn same(program: &Program, expected: &Parks, actual: &Parks) -> Result<(), String> {
    if let Some(difference) = compare::difference(program, &expected.outcome, &actual.outcome) {
        return Err(difference);
    }
    let at = expected.parks.iter().zip(&actual.parks).position(|(one, other)| !one.agrees(other));
    if let Some(at) = at {
        return Err(format!("park {at}: {:x?}, not {:x?}", actual.parks[at], expected.parks[at]));
    }
    let (one, other) = (expected.parks.len(), actual.parks.len());
    if one == other { Ok(()) } else { Err(format!("parked {other} times, not {one}")) }
}

fn check(name: &str, parker: &mut Parker) {
    let (mut parks, mut interpreter) = (0, Parker::new(None));
    for seed in 1..=PROGRAMS {
        let program = compare::program(seed, true);
        let expected = interpreter.run(&program);
        let actual = parker.run(&program);
        parks += actual.parks.len();
        same(&program, &expected, &actual)
            .unwrap_or_else(|text| panic!("{name}, seed {seed}:\n{text}\n{}", program.disassembly(&[])));
    }
    println!("{name}: {PROGRAMS} programs, parked {parks} times");
    assert!(parks as u64 > PROGRAMS / 8, "{parks} parks only");
}

/// The interpreter that parks is compared with the one that does not.
#[test]
fn the_interpreter_goes_on_as_if_it_had_never_waited() {
    let (mut parker, mut compared) = (Parker::new(None), 0);
    for seed in 1..=PROGRAMS {
        let program = compare::program(seed, true);
        if reserves(&program) {
            continue;
        }
        compared += 1;
        let difference = compare::difference(&program, &Oracle.run(&program), &parker.run(&program).outcome);
        assert_eq!(difference, None, "seed {seed}");
    }
    println!("{compared} programs compared");
    assert!(compared > PROGRAMS / 4);
}

#[test]
fn translated_code_is_parked_where_the_interpreter_is() {
    for atomics in [Atomics::Shared, Atomics::Home] {
        for observe in [true, false] {
            for any_device in [false, true] {
                let result = atomics == Atomics::Home;
                let options = Options { atomics, observe, any_device, result, counting: true, ..Options::default() };
                check(
                    &format!("{atomics:?}, observed {observe}, any device {any_device}"),
                    &mut Parker::new(Some(options)),
                );
            }
        }
    }
}
