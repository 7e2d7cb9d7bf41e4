//! Cost of a large image of ordinary code: translating it (time and memory), and running its handlers translated, interpreted
//! and as native code. Times are of the processor, and medians of interleaved rounds. Handler memory is compared after every round. Quote
//! ratios: machines differ and are noisy.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use clap::Parser;
use hpu_vm::jit::Executor;
use hpu_vm::{Checks, Image};
use spin_abi::map::Machine;
use spin_bench::large::guest::{Guest, LARGER, MACHINE};
use spin_bench::large::native::Native;
use spin_bench::large::translating::measure;
use spin_bench::large::variant::{Variant, run};
use spin_bench::large::work::{Summary, Work};

/// Images that `bench/large/build` makes, with the machines that they fit.
const IMAGES: [(&str, Machine); 2] = [("large", MACHINE), ("large-unrolled", LARGER)];
/// Memory checks of translations.
const CHECKS: [(&str, Checks); 2] = [("page", Checks::Page), ("exact", Checks::Exact)];

/// Measure a large image of ordinary code.
#[derive(Debug, Parser)]
struct Args {
    /// Folder of the images and the native library.
    #[arg(long, default_value = "target/large")]
    folder: PathBuf,
    /// Measure this image only: large or large-unrolled.
    #[arg(long)]
    image: Option<String>,
    /// Number of packets.
    #[arg(long, default_value_t = 2000)]
    packets: usize,
    /// Number of rounds, interleaved over variants.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Run only variants whose name contains this text.
    #[arg(long)]
    variant: Option<String>,
}

fn main() -> ExitCode {
    match bench(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-bench-large: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: &Args) -> Result<(), Box<dyn Error>> {
    let executor = Rc::new(Executor::new()?);
    for (name, machine) in IMAGES {
        if args.image.as_ref().is_none_or(|wanted| wanted == name) {
            image(name, &machine, args, &executor).map_err(|error| format!("{name}: {error}"))?;
        }
    }
    Ok(())
}

/// Measures an image.
fn image(name: &str, machine: &Machine, args: &Args, executor: &Rc<Executor>) -> Result<(), Box<dyn Error>> {
    let image = Rc::new(Image::load(&read(&args.folder.join(name).with_extension("elf"))?, machine)?);
    let code: usize = image.code().segments().iter().map(|segment| segment.bytes.len()).sum();
    println!("{name}: {code} bytes of code and constants");
    let work = Work::new(7, args.packets);
    let mut variants: Vec<(&str, Box<dyn Variant>)> = Vec::new();
    variants.push(("native", Box::new(Native::load(&args.folder.join("large.so"), &work)?)));
    for (checks_name, checks) in CHECKS {
        let translation = Rc::new(translate(&image, checks_name, checks)?);
        let guest = Guest::new(executor.clone(), image.clone(), Some(translation), &work)?;
        variants.push((checks_name, Box::new(guest)));
    }
    variants.push(("interpreted", Box::new(Guest::new(executor.clone(), image, None, &work)?)));
    variants.retain(|(name, _)| args.variant.as_ref().is_none_or(|wanted| name.contains(wanted)));
    compare(&mut variants, &work, args.rounds)
}

/// Translates an image, and prints the cost.
fn translate(image: &Image, name: &str, checks: Checks) -> Result<hpu_vm::jit::Translation, Box<dyn Error>> {
    let measured = measure(image, checks)?;
    let size = measured.translation.size();
    let seconds = measured.time.as_secs_f64();
    println!(
        "translation with {name} checks: {:.2} s, {:.1} us for each of {} instructions, {} KiB of host code, {} MiB of memory, {} parts left out",
        seconds,
        seconds * 1e6 / size.instructions as f64,
        size.instructions,
        size.bytes >> 10,
        measured.memory >> 20,
        measured.translation.untranslated().len(),
    );
    Ok(measured.translation)
}

/// Runs all variants in turn, and prints nanoseconds per packet.
fn compare(variants: &mut [(&str, Box<dyn Variant>)], work: &Work, rounds: u32) -> Result<(), Box<dyn Error>> {
    let mut times = vec![Vec::new(); variants.len()];
    let mut expected = None;
    for _ in 0..rounds {
        for ((name, variant), times) in variants.iter_mut().zip(&mut times) {
            let (time, memory) = run(&mut **variant, work).map_err(|error| format!("{name}: {error}"))?;
            if *expected.get_or_insert_with(|| memory.clone()) != memory {
                return Err(format!("{name}: other results than before: {:?}", Summary::of(&memory)).into());
            }
            times.push(time.as_secs_f64() * 1e9 / work.count as f64);
        }
    }
    let mut first = None;
    for ((name, _), mut times) in variants.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        println!(
            "{name:<12} {median:>9.0} ns/packet, {:.2} times {}",
            median / *first.get_or_insert(median),
            variants[0].0
        );
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}; `make bench-large` builds it", path.display()))
}
