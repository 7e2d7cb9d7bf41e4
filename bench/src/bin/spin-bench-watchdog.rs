//! Lateness of the watchdog for tasks that never end: run time less the limit. The machine runs one spinning thread per
//! processor by default.
#![forbid(unsafe_code)]

use clap::Parser;
use hdrhistogram::Histogram;
use hpu_vm::jit::{Executor, Limits, Options, Slot, Source, Task, Translation};
use hpu_vm::memory::{Access, Region, Space};
use hpu_vm::{Code, Device, Exit, Inst, Op, Reg, RegionKind, Trap, View};
use serde::Serialize;
use spin_abi::fault::Cause;
use spin_abi::map::{DRIVER_BASE, L2_BASE, PAGE, PROGRAM_BASE};
use spin_abi::regs::COMMAND_TEST;
use std::collections::BTreeSet;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// Time limits of tasks in microseconds.
const LIMITS: [u64; 3] = [100, 1000, 10_000];
/// Greatest recorded lateness in nanoseconds: a minute.
const MOST: u64 = 60_000_000_000;

/// Measure the lateness of the watchdog.
#[derive(Debug, Parser)]
struct Args {
    /// Tasks per thread and row.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    tasks: u32,
    /// Number of threads [default: one per processor].
    #[arg(long)]
    threads: Option<usize>,
    /// JSON file for the rows.
    #[arg(long, default_value = "bench/results/watchdog.json")]
    json: PathBuf,
}

/// An endless loop.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Loop {
    /// Translated code without memory accesses.
    Registers,
    /// Translated code with a load and a store.
    Memory,
    /// Translated code with a load from a device.
    Device,
    /// Interpreted code without memory accesses.
    Interpreted,
}

/// A row of the table: nanoseconds from a task's limit to its end.
#[derive(Debug, Serialize)]
struct Row {
    spins: Loop,
    limit_us: u64,
    threads: usize,
    tasks: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-bench-watchdog: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or_else(processors).max(1);
    let mut rows = Vec::new();
    println!("{:<12} {:>9} {:>9} {:>9} {:>9}", "loop", "limit us", "p50 us", "p99 us", "max us");
    for spins in [Loop::Registers, Loop::Memory, Loop::Device, Loop::Interpreted] {
        for limit in LIMITS {
            let late = measure(spins, limit, threads, args.tasks)?;
            let row = Row {
                spins,
                limit_us: limit,
                threads,
                tasks: late.len(),
                p50_ns: late.value_at_quantile(0.5),
                p99_ns: late.value_at_quantile(0.99),
                max_ns: late.max(),
            };
            let micros = [row.p50_ns, row.p99_ns, row.max_ns].map(|ns| format!("{:>9.1}", ns as f64 / 1e3));
            println!("{:<12} {limit:>9} {}", format!("{spins:?}"), micros.join(" "));
            rows.push(row);
        }
    }
    Ok(spin_bench::report::write(&args.json, &rows)?)
}

/// Measures the lateness over all threads.
fn measure(spins: Loop, limit: u64, threads: usize, tasks: u32) -> Result<Histogram<u64>, String> {
    let begin = Barrier::new(threads);
    let thread = || spin(spins, limit, tasks, &begin).map_err(|error| error.to_string());
    thread::scope(|scope| {
        let spinning: Vec<_> = (0..threads).map(|_| scope.spawn(thread)).collect();
        let mut all = Histogram::new_with_bounds(1, MOST, 3).map_err(|error| error.to_string())?;
        for thread in spinning {
            let late = thread.join().map_err(|_| "a thread panicked")??;
            all.add(late).map_err(|error| error.to_string())?;
        }
        Ok(all)
    })
}

/// Runs tasks on this thread.
fn spin(spins: Loop, limit: u64, tasks: u32, begin: &Barrier) -> Result<Histogram<u64>, Box<dyn Error>> {
    let prepared = Prepared::new(spins);
    // The barrier is passed in case of failure too, so that the other threads begin.
    begin.wait();
    let Prepared { executor, code, translation, mut slot } = prepared?;
    let mut late = Histogram::new_with_bounds(1, MOST, 3)?;
    let task = Task {
        code: &code,
        translation: translation.as_ref(),
        entry: PROGRAM_BASE,
        sp: 0,
        argument: 0,
        tp: 0,
        limits: Limits { time: Some(limit), instructions: None },
        may_park: false,
        host: None,
    };
    for _ in 0..tasks {
        let begun = Instant::now();
        let exit = executor.run(&mut slot, &mut [], &task, &mut Nothing);
        let taken = u64::try_from(begun.elapsed().as_nanos())?;
        if !matches!(exit, Exit::Fault(fault) if fault.cause == Cause::Watchdog) {
            return Err(format!("a task that never ends ended with {exit:?}").into());
        }
        late.record(taken.saturating_sub(limit * 1000).max(1))?;
    }
    Ok(late)
}

/// State of a thread.
struct Prepared {
    executor: Executor,
    code: Code,
    translation: Option<Translation>,
    slot: Slot,
}

impl Prepared {
    fn new(spins: Loop) -> Result<Self, Box<dyn Error>> {
        let bytes: Vec<u8> = program(spins).iter().flat_map(|inst| inst.encode().to_le_bytes()).collect();
        let code = Code::at(PROGRAM_BASE, &bytes);
        let source = Source { code: &code, entries: &[PROGRAM_BASE], taken: &BTreeSet::new() };
        let translation = match spins {
            Loop::Interpreted => None,
            _ => Some(Translation::new(source, Options::default())?),
        };
        let mut space = Space::new()?;
        space.map(RegionKind::Data, L2_BASE, &Region::new(PAGE as usize)?, 0, PAGE, Access::Write)?;
        Ok(Self { executor: Executor::new()?, code, translation, slot: Slot::new(0, space) })
    }
}

/// Makes a program that loads an address into a1, if it needs one, and then loops.
fn program(spins: Loop) -> Vec<Inst> {
    let a2 = Reg::new(12);
    let address = |base: u32| Inst::new(Op::Lui).rd(Reg::A1).imm(base.cast_signed());
    let count = Inst::new(Op::Addi).rd(a2).rs1(a2).imm(1);
    let back = |to: i32| Inst::new(Op::Jal).imm(to);
    match spins {
        Loop::Registers | Loop::Interpreted => vec![count, back(-4)],
        Loop::Memory => vec![
            address(L2_BASE),
            Inst::new(Op::Lw).rd(a2).rs1(Reg::A1),
            count,
            Inst::new(Op::Sw).rs2(a2).rs1(Reg::A1),
            back(-12),
        ],
        Loop::Device => {
            vec![address(DRIVER_BASE), Inst::new(Op::Lw).rd(a2).rs1(Reg::A1).imm(COMMAND_TEST.cast_signed()), back(-4)]
        }
    }
}

/// A device that answers at once.
struct Nothing;

impl Device for Nothing {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Ok(0)
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Ok(())
    }
}
