//! Nanoseconds per packet of the paper's handlers and of eight others in every execution mode, on packets in memory, and
//! the cost of translating the handlers. Figures are medians of interleaved rounds. Every round's results are compared
//! with a reference. Quote ratios: machines differ and are noisy.
#![forbid(unsafe_code)]

use clap::Parser;
use hpu_vm::Checks;
use hpu_vm::jit::Executor;
use spin_bench::handlers::case::{Case, Handler};
use spin_bench::handlers::interp::Interp;
use spin_bench::handlers::jit::Jit;
use spin_bench::handlers::measure::round;
use spin_bench::handlers::native::Twins;
use spin_bench::handlers::reference::Expected;
use spin_bench::handlers::runner::Runner;
use spin_bench::handlers::summary::Summary;
use spin_bench::handlers::translating::translate;
use spin_bench::handlers::work::Work;
use spin_bench::report::{Row, head, line, write};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

/// Default file for the rows; results of a subset are not written by default.
const RESULTS: &str = "bench/results/handlers.json";
/// Libraries of native versions, named as in the Makefile.
const NATIVE: [&str; 3] = ["native-scalar", "native-vector", "native-atomics"];
/// Translation modes: name, image folder, memory checks.
const TRANSLATED: [(&str, &str, Checks); 3] = [
    ("translate-page", "", Checks::Page),
    ("translate-exact", "", Checks::Exact),
    ("translate-vector", "vector", Checks::Page),
];

/// Measure handlers on packets in memory.
#[derive(Debug, Parser)]
struct Args {
    /// Run only cases whose NAME/SIZE contains this text.
    #[arg(long)]
    filter: Option<String>,
    /// Run only the handlers that the translator is not tuned for.
    #[arg(long)]
    untuned: bool,
    /// Run only variants whose name contains this text; nothing is written then.
    #[arg(long)]
    variant: Option<String>,
    /// Number of rounds, interleaved over variants.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// JSON file for the rows [default: bench/results/handlers.json, none for a subset].
    #[arg(long)]
    json: Option<PathBuf>,
    /// Folder of the handler images; its subfolder `vector` has those with vector instructions.
    #[arg(long, default_value = "target/handlers")]
    images: PathBuf,
    /// Folder of the native libraries.
    #[arg(long, default_value = "target/native")]
    native: PathBuf,
}

type Variants = Vec<(&'static str, Box<dyn Runner>)>;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-bench-handlers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let mut rows = Vec::new();
    let executor = Rc::new(Executor::new()?);
    for case in cases(args) {
        let measured = measure(case, args, &executor).map_err(|error| format!("{case}: {error}"))?;
        if measured.is_empty() {
            // Only translations are measured.
            break;
        }
        if rows.is_empty() {
            let variants: Vec<_> = measured.iter().map(|row| row.variant).collect();
            println!("{}", head("case", &variants, "ns/packet (ratio)"));
        }
        println!("{}", line(&measured));
        rows.extend(measured);
    }
    for variant in ["jit-page", "jit-exact"] {
        let medians = rows.iter().map(|row| (row.case.as_str(), row.variant, row.median));
        if let Some(summary) = Summary::of(medians, variant) {
            println!("{summary}");
        }
    }
    rows.extend(translations(args)?);
    let is_subset = args.untuned || args.filter.is_some() || args.variant.is_some();
    match &args.json {
        Some(path) => Ok(write(path, &rows)?),
        None if !is_subset => Ok(write(Path::new(RESULTS), &rows)?),
        None => Ok(()),
    }
}

/// Whether a name contains the requested text, if one was given.
fn is_wanted(name: &str, wanted: Option<&String>) -> bool {
    wanted.is_none_or(|wanted| name.contains(wanted))
}

/// Returns the requested cases.
fn cases(args: &Args) -> impl Iterator<Item = Case> + '_ {
    let chosen = |case: &Case| !args.untuned || Handler::UNTUNED.contains(&case.handler);
    Case::all().filter(move |case| chosen(case) && is_wanted(&case.to_string(), args.filter.as_ref()))
}

/// Measures all variants of one case.
fn measure(case: Case, args: &Args, executor: &Rc<Executor>) -> Result<Vec<Row>, Box<dyn Error>> {
    let work = Work::new(case);
    let mut expected = Expected::of(&work);
    let mut variants = variants(&work, args, executor)?;
    let mut times = vec![Vec::new(); variants.len()];
    for _ in 0..args.rounds {
        for ((name, runner), times) in variants.iter_mut().zip(&mut times) {
            times.push(round(&work, &mut **runner, &mut expected).map_err(|error| format!("{name}: {error}"))?);
        }
    }
    Ok(variants.iter().zip(times).map(|((name, _), times)| Row::new(case, name, times)).collect())
}

fn variants(work: &Work, args: &Args, executor: &Rc<Executor>) -> Result<Variants, Box<dyn Error>> {
    let mut variants = Variants::new();
    for name in NATIVE {
        let twins = Twins::load(&args.native.join(name).with_extension("so"))?;
        variants.push((name, Box::new(twins.runner(work)?)));
    }
    let image = read_image(&args.images, work.case.handler)?;
    for (name, checks) in [("jit-page", Checks::Page), ("jit-exact", Checks::Exact)] {
        variants.push((name, Box::new(Jit::new(executor.clone(), &image, work, checks)?)));
    }
    let vectors = read_image(&args.images.join("vector"), work.case.handler)?;
    variants.push(("jit-vector", Box::new(Jit::new(executor.clone(), &vectors, work, Checks::Page)?)));
    variants.push(("interp", Box::new(Interp::new(&image, work)?)));
    variants.retain(|(name, _)| is_wanted(name, args.variant.as_ref()));
    Ok(variants)
}

/// Measures the translation cost of the cases' handlers, per instruction.
fn translations(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let chosen = |handler: &Handler| cases(args).any(|case| case.handler == *handler);
    let mut variants = Vec::from(TRANSLATED);
    variants.retain(|(name, ..)| is_wanted(name, args.variant.as_ref()));
    let mut rows = Vec::new();
    if variants.is_empty() {
        return Ok(rows);
    }
    let names: Vec<_> = variants.iter().map(|(name, ..)| *name).collect();
    println!("\n{}", head("handlers", &names, "us (each instr.)"));
    for handler in Handler::ALL.into_iter().filter(chosen) {
        let name = handler.symbol();
        print!("{name:<18}");
        for &(variant, folder, checks) in &variants {
            let image = read_image(&args.images.join(folder), handler)?;
            let translated: Result<Vec<_>, _> = (0..args.rounds).map(|_| translate(&image, checks)).collect();
            let each = |(instructions, micros): (usize, f64)| micros / instructions as f64;
            let translated = translated.map_err(|error| format!("{name}: {error}"))?;
            let instructions = translated[0].0;
            let row = Row::of(name, variant, "us/instruction", translated.into_iter().map(each).collect());
            print!("{:>10.0} ({:>5.2})", row.median * instructions as f64, row.median);
            rows.push(row);
        }
        println!();
    }
    Ok(rows)
}

/// Reads the image of a handler.
fn read_image(folder: &Path, handler: Handler) -> Result<Vec<u8>, String> {
    let path = folder.join(handler.symbol()).with_extension("elf");
    std::fs::read(&path).map_err(|error| format!("{}: {error}; `make bench-handlers` builds it", path.display()))
}
