//! Programs run by the oracle and by an engine: what differs, and the least program that shows it.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use hpu_vm::csr::Csr;
use hpu_vm::device::ECALL_CYCLES;
use hpu_vm::inst::Format;
use hpu_vm::{Checks, Exit, Hart, Op, Reg, RegionKind};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::PAGE;

use crate::engine::{Engine, Oracle, Outcome, Steps};
use crate::generate::{self, Shape};
use crate::memory::Block;
use crate::program::Program;
use crate::random::Random;

/// Most bytes of a block that a report lists.
const BYTES: usize = 8;

/// What happened in a run of many programs.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub programs: u64,
    /// Programs the engine cannot be asked to run, see [`Engine::counts`].
    pub skipped: u64,
    pub instructions: u64,
    /// Device accesses and system calls.
    pub accesses: u64,
    /// Programs by how they ended.
    pub exits: BTreeMap<String, u64>,
}

impl Totals {
    fn count(&mut self, expected: &Outcome) {
        self.programs += 1;
        self.instructions += expected.retired.unwrap_or(0);
        self.accesses += expected.log.len() as u64;
        *self.exits.entry(exit_name(expected.exit)).or_default() += 1;
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.programs += other.programs;
        self.skipped += other.skipped;
        self.instructions += other.instructions;
        self.accesses += other.accesses;
        for (name, count) in &other.exits {
            *self.exits.entry(name.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { programs, skipped, instructions, accesses, exits } = self;
        write!(f, "{programs} programs compared ({skipped} skipped), {instructions} instructions, {accesses} device ")?;
        write!(f, "accesses; ended by")?;
        exits.iter().try_for_each(|(name, count)| write!(f, " {name} {count}"))
    }
}

/// The kind of an exit, as [`Totals::exits`] has it.
pub fn exit_name(exit: Exit) -> String {
    match exit {
        Exit::Fault(fault) => format!("{:?}", fault.cause),
        other => format!("{other:?}"),
    }
}

/// The program of `seed` that an engine which counts, or does not, can run.
pub fn program(seed: u64, counts: bool) -> Program {
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let checks = random.choose(&[Checks::Exact, Checks::Page]);
    let (hostile, vectors) = (!random.one_in(3), random.one_in(3));
    generate::program(seed, Shape { checks, counters: counts, hostile, linux: false, vectors, plain: false })
}

/// The program of `seed` with exact checks, without devices, counters, environment calls, recursion and vectors.
pub fn plain_program(seed: u64) -> Program {
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let hostile = !random.one_in(3);
    let shape = Shape { checks: Checks::Exact, counters: false, hostile, linux: false, vectors: false, plain: true };
    generate::program(seed, shape)
}

/// Compares the programs of all `seeds` on as many threads as there are processors; returns the threads' engines.
///
/// # Errors
/// A report of the first difference found.
pub fn fuzz<E: Engine + Send>(make: impl Fn() -> E + Sync, seeds: Range<u64>) -> Result<(Vec<E>, Totals), String> {
    let next = AtomicU64::new(seeds.start);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let worker = || {
        let (mut engine, mut totals) = (make(), Totals::default());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return Ok((engine, totals));
            }
            let compared = catch_unwind(AssertUnwindSafe(|| compare(&mut engine, seed, &mut totals)));
            if let Err(report) = compared.unwrap_or_else(|_| Err(format!("seed {seed}: a panic, see above"))) {
                // The others stop too.
                next.store(seeds.end, Ordering::Relaxed);
                return Err(report);
            }
        }
    };
    let results: Vec<Result<(E, Totals), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().map(|thread| thread.join().expect("panics are caught")).collect()
    });
    let (mut engines, mut all) = (Vec::new(), Totals::default());
    for result in results {
        let (engine, totals) = result?;
        engines.push(engine);
        all.add(&totals);
    }
    Ok((engines, all))
}

fn compare<E: Engine>(engine: &mut E, seed: u64, totals: &mut Totals) -> Result<(), String> {
    let counts = engine.counts(seed);
    let program = if engine.is_plain() { plain_program(seed) } else { program(seed, counts) };
    let expected = Oracle.run(&program);
    if !counts && depends_on_count(&program, &expected) {
        totals.skipped += 1;
        return Ok(());
    }
    totals.count(&expected);
    match difference(&program, &expected, &engine.run(&program)) {
        None => Ok(()),
        Some(difference) => Err(report(engine, &program, &difference)),
    }
}

/// Whether the number of instructions executed decided anything.
fn depends_on_count(program: &Program, outcome: &Outcome) -> bool {
    if matches!(outcome.exit, Exit::Fault(fault) if fault.cause.is_limit()) {
        return true;
    }
    let mut reads = false;
    let observe = |program: &Program, before: &Hart, _: &mut Hart| {
        let inst = program.image.code().fetch(before.pc).map(|decoded| decoded.inst);
        reads |= inst.is_some_and(|inst| match inst.op.format() {
            Format::Csr | Format::CsrImmediate => {
                let csr = Csr::from_number(inst.imm.cast_unsigned());
                matches!(csr, Some(Csr::Cycle(_) | Csr::Time(_) | Csr::Instret(_)))
            }
            _ => inst.op == Op::Ecall && before.get(Reg::A7) == ECALL_CYCLES,
        });
    };
    Steps { step: 1, observe }.run(program);
    reads
}

/// What an outcome has other than `expected`, if anything.
pub fn difference(program: &Program, expected: &Outcome, actual: &Outcome) -> Option<String> {
    assert_eq!(expected.blocks.len(), actual.blocks.len(), "an engine returns all blocks");
    let mut text = String::new();
    if !same_exit(program.checks, expected.exit, actual.exit) {
        let _ = writeln!(text, "  exit: expected {}, got {}", describe(expected.exit), describe(actual.exit));
    }
    compare_state(expected, actual, &mut text);
    if expected.log != actual.log {
        let at = expected.log.iter().zip(&actual.log).take_while(|(access, other)| access == other).count();
        let (access, other) = (expected.log.get(at), actual.log.get(at));
        let _ = writeln!(text, "  device access {at}: expected {access:x?}, got {other:x?}");
    }
    for (block, other) in expected.blocks.iter().zip(&actual.blocks) {
        compare_bytes(block, other, &mut text);
    }
    (!text.is_empty()).then_some(text)
}

/// Compares what both expose.
fn compare_state(expected: &Outcome, actual: &Outcome, text: &mut String) {
    if let (Some((pc, x)), Some((other_pc, other_x))) = (expected.state, actual.state) {
        if pc != other_pc {
            let _ = writeln!(text, "  pc: expected {pc:#010x}, got {other_pc:#010x}");
        }
        let pairs = x.iter().zip(other_x).enumerate().filter(|(_, (value, other))| **value != *other);
        for (number, (value, other)) in pairs {
            let _ = writeln!(text, "  x{number}: expected {value:#010x}, got {other:#010x}");
        }
    }
    if let (Some(value), Some(other)) = (expected.result, actual.result)
        && value != other
    {
        let _ = writeln!(text, "  result: expected {value:#010x}, got {other:#010x}");
    }
    if let (Some(count), Some(other)) = (expected.retired, actual.retired)
        && count != other
    {
        let _ = writeln!(text, "  instructions: expected {count}, got {other}");
    }
}

fn compare_bytes(expected: &Block, actual: &Block, text: &mut String) {
    // What lies behind the packet in its L2 window is not kept by anybody.
    let len = if expected.kind == RegionKind::L2Packet { expected.len as usize } else { expected.bytes.len() };
    let (bytes, others) = (&expected.bytes[..len], &actual.bytes[..len]);
    if bytes == others {
        return;
    }
    let (kind, base) = (expected.kind, expected.base);
    let pairs = bytes.iter().zip(others).enumerate().filter(|(_, (byte, other))| byte != other);
    for (at, (byte, other)) in pairs.take(BYTES) {
        let _ = writeln!(text, "  {kind:?} {base:#010x}+{at:#x}: expected {byte:#04x}, got {other:#04x}");
    }
}

/// Equal but for one thing: where pages are checked, the fault of an access that crosses the end of a page may name the
/// first byte of the page that is missing.
fn same_exit(checks: Checks, expected: Exit, actual: Exit) -> bool {
    let (Exit::Fault(fault), Exit::Fault(other)) = (expected, actual) else { return expected == actual };
    let next_page = (fault.address | (PAGE - 1)).wrapping_add(1);
    let crosses = next_page.wrapping_sub(fault.address) < 4;
    let memory = matches!(fault.cause, Cause::LoadAccess | Cause::StoreAccess | Cause::StackOverflow);
    fault == other || checks == Checks::Page && memory && crosses && other == Fault { address: next_page, ..fault }
}

fn describe(exit: Exit) -> String {
    match exit {
        Exit::Fault(Fault { cause, pc, address }) => format!("{cause:?} at {pc:#010x}, address {address:#010x}"),
        other => format!("{other:?}"),
    }
}

/// The difference, the least program that has one, and the whole.
fn report<E: Engine>(engine: &mut E, program: &Program, difference: &str) -> String {
    let no_ops = minimise(engine, program);
    let least = program.with_no_ops(&no_ops);
    format!(
        "seed {seed} ({checks:?}): the engine differs from the oracle\n{difference}\
         Least program that differs, from {entry:#010x}, all else no-ops:\n{least}\
         It differs in:\n{rest}\
         The whole program:\n{whole}\
         Once more: SPIN_FUZZ_SEED={seed} SPIN_FUZZ_PROGRAMS=1 cargo test -p hpu-vm --test differential\n",
        seed = program.seed,
        checks = program.checks,
        entry = program.start.entry,
        least = least.disassembly(&no_ops),
        rest = differs(engine, &least).unwrap_or_default(),
        whole = program.disassembly(&[]),
    )
}

fn differs<E: Engine>(engine: &mut E, program: &Program) -> Option<String> {
    let expected = Oracle.run(program);
    if !engine.counts(program.seed) && depends_on_count(program, &expected) {
        return None;
    }
    difference(program, &expected, &engine.run(program))
}

/// The instructions that can be no-ops and still the engine differs: halves are tried first, single ones last.
pub fn minimise<E: Engine>(engine: &mut E, program: &Program) -> Vec<usize> {
    let mut no_ops = Vec::new();
    let mut size = program.places.len().div_ceil(2);
    loop {
        let left: Vec<usize> = (0..program.places.len()).filter(|index| !no_ops.contains(index)).collect();
        for chunk in left.chunks(size) {
            let tried = [&*no_ops, chunk].concat();
            if differs(engine, &program.with_no_ops(&tried)).is_some() {
                no_ops = tried;
            }
        }
        if size == 1 {
            return no_ops;
        }
        size = size.div_ceil(2);
    }
}
