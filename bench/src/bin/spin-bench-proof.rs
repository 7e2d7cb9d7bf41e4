//! One case of `spin-bench-engine` for a given number of packets on one thread. `bench/proofs.sh` counts its
//! allocations, system calls and library calls. Set-up and warm-up are identical for any number of packets, so two runs
//! differ by their packets alone.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use spin_abi::control::Engine as Kind;
use spin_bench::engine::case::CASES;
use spin_bench::engine::lab::{Failure, Setting};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts the thread's requests.
struct Counting;

// SAFETY: all calls are forwarded to the system's allocator. Counting allocates nothing, since the counter is
// statically initialised.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Send packets through an engine in memory, and count allocations.
#[derive(Debug, Parser)]
struct Args {
    /// Case to run.
    #[arg(long, default_value = "empty/64", value_name = "NAME/SIZE")]
    case: String,
    /// Number of packets after the warm-up.
    #[arg(long, default_value_t = 1_000_000)]
    packets: u64,
    /// Number of warm-up packets.
    #[arg(long, default_value_t = 50_000)]
    warm_up: u64,
    /// Engine that runs the handlers.
    #[arg(long, default_value_t, value_name = "interp|jit|check")]
    engine: Kind,
    /// Folder of the handler images.
    #[arg(long, default_value = "target/handlers")]
    images: PathBuf,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-bench-proof: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let case = CASES.into_iter().find(|case| case.to_string() == args.case);
    let case = case.ok_or_else(|| format!("there is no case {}", args.case))?;
    let setting = Setting::new(case, &args.images, args.engine)?;
    let passed = setting.watched(args.warm_up, args.packets, || ALLOCATIONS.get())?;
    println!("packets {} polls {} allocations {}", passed.packets, passed.polls, passed.watched);
    Ok(())
}
