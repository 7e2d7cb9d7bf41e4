//! What translating costs at the most: images of 32 KiB (less when not optimised) that make as much work as they can.
//!
//! In an optimised build, `--nocapture` prints the table: `cargo test --release -p hpu-vm --test bounds -- --nocapture`.

#[path = "../support/assembly.rs"]
mod assembly;
#[path = "../support/guest.rs"]
mod guest;
#[path = "../support/hostile.rs"]
mod hostile;
#[path = "../qemu/random.rs"]
mod random;
#[path = "../support/regions.rs"]
mod regions;

mod worst;

use std::collections::BTreeSet;

use assembly::{A2, Assembly, T0};
use guest::{CODE, Guest, OWN, task};
use hpu_vm::jit::{Atomics, Executor, Limits, Options, Slot, Source, Task, Translation};
use hpu_vm::memory::{Access, Region, Space};
use hpu_vm::{Checks, Code, Exit, NoDevice, Op, Reg, RegionKind};
use random::Random;
use spin_abi::fault::Cause;
use spin_abi::map::PAGE;

/// Maximum number of instructions of a handler with inlined calls. All other code is translated once.
const MOST_INSTRUCTIONS: usize = 4_000;
/// Bytes of host code of a handler, at the most: a sixteenth of the memory for code.
const MOST_BYTES: usize = 16 << 20;
/// What the process may have resident while a translation is made.
const MOST_MEMORY: usize = 1 << 30;

/// Nanoseconds that a translation may take: several times the slowest of them, which the test prints.
const MOST_TIME: u64 = 6_000_000_000;

/// The most memory this process has resident meanwhile, in bytes.
fn peak(of: impl FnOnce()) -> usize {
    // Older kernels cannot: then it is the peak so far.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    of();
    let status = std::fs::read_to_string("/proc/self/status").expect("this process's status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// Nanoseconds this thread was on a processor.
fn processor_time() -> u64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").expect("this thread's times");
    times.split_whitespace().next().and_then(|time| time.parse().ok()).expect("a number")
}

fn source<'c>(code: &'c Code, taken: &'c BTreeSet<u32>) -> Source<'c> {
    Source { code, entries: &[CODE], taken }
}

/// Translates an image, runs it for a while and says what that took.
fn measure(executor: &Executor, name: &str, image: &worst::Image, options: Options, functions: bool) -> Measured {
    let code = Code::at(CODE, &image.bytes);
    let end = CODE + u32::try_from(image.bytes.len()).expect("a small image");
    // By its symbols each instruction begins one, and each jump that does not come back is to one.
    let code = if functions { code.with_functions((CODE..end).step_by(4)) } else { code };
    let (begin, mut translation) = (processor_time(), None);
    let memory = peak(|| translation = Translation::new(source(&code, &image.taken), options).ok());
    let taken = processor_time() - begin;
    // What would take too much is refused, and left to the interpreter.
    let size = translation.as_ref().map(Translation::size).unwrap_or_default();
    let in_bounds = size.instructions <= MOST_INSTRUCTIONS + image.bytes.len() / 2
        && size.bytes <= MOST_BYTES
        && memory <= MOST_MEMORY
        && taken <= MOST_TIME;
    let mut guest = Guest::new(OWN, &code, 0);
    guest.slot.view().set_checks(options.checks);
    let task =
        Task { limits: Limits { time: Some(10_000), instructions: None }, ..task(OWN, &code, translation.as_ref()) };
    executor.run(&mut guest.slot, &mut [], &task, &mut NoDevice);
    let micros = taken as f64 / 1e3;
    let of_image = image.bytes.len() as f64 / image.width;
    let text = format!(
        "{name:<69} {micros:>9.0} us, {:>7.2} us each of {of_image:>5.0}, {:>5} planned, {:>8} bytes, {:>4} MiB",
        micros / of_image,
        size.instructions,
        size.bytes,
        memory >> 20
    );
    Measured { text, in_bounds }
}

/// A row of the table.
struct Measured {
    text: String,
    in_bounds: bool,
}

#[test]
fn the_worst_images_are_translated_in_bounds() {
    let executor = Executor::new().expect("a timer");
    let (least, most) = (
        Options { checks: Checks::Page, atomics: Atomics::Shared, ..Options::default() },
        Options {
            checks: Checks::Exact,
            atomics: Atomics::Home,
            counting: true,
            observe: false,
            any_device: true,
            result: true,
            described: true,
        },
    );
    let mut beyond = Vec::new();
    for (name, image) in worst::images() {
        let ways = [("page", least), ("exact, counted, any device", most)];
        for ((way, options), functions) in ways.into_iter().flat_map(|way| [(way, false), (way, true)]) {
            let name = format!("{name}: {way}{}", if functions { ", functions" } else { "" });
            let Measured { text, in_bounds } = measure(&executor, &name, &image, options, functions);
            println!("{text}");
            if !in_bounds {
                beyond.push(text);
            }
        }
    }
    assert!(beyond.is_empty(), "out of bounds:\n{}", beyond.join("\n"));
}

/// What Cranelift does for each value grows with the square of the loops around it.
#[test]
fn loops_that_are_nested_deep_are_left_to_the_interpreter() {
    for (depth, translated) in [(1, true), (40, true), (41, false), (200, false)] {
        let mut program = Assembly::new().li(A2, 0);
        let mut heads = Vec::new();
        for _ in 0..depth {
            heads.push(program.pc());
            program = program.imm(Op::Addi, A2, A2, 1);
        }
        for head in heads.into_iter().rev() {
            program = program.branch(Op::Bne, A2, Reg::A0, head);
        }
        let (code, taken) = (program.ret().code(), BTreeSet::new());
        let made = Translation::new(source(&code, &taken), Options::default());
        assert_eq!(made.is_ok(), translated, "{depth} loops: {made:?}");
    }
}

/// Nanoseconds of a processor that a task with a limit of a millisecond may take.
const LATE: u64 = 10_000_000;

/// The slowest instructions of the interpreter: strided vector loads of as many elements as there can be, each of
/// which crosses the end of a page that is of the last of many ranges.
#[test]
fn a_task_that_is_interpreted_ends_soon_after_its_time_is_over() {
    const RANGES: u32 = 24;
    let executor = Executor::new().expect("a timer");
    let region = Region::new(PAGE as usize).expect("memory");
    let end = 0x1001_0000 + RANGES * PAGE;
    for (name, sew, width) in [("e8", 0, 0), ("e16", 1, 5), ("e32", 2, 6)] {
        let vlse = 2 << 26 | 1 << 25 | A2.number() << 15 | width << 12 | 8 << 7 | 0x07_u32;
        let mut program = Assembly::new().li(A2, end - PAGE - 1).vsetvli(T0, Reg::ZERO, sew << 3 | 3);
        let top = program.pc();
        for _ in 0..60 {
            program = program.raw(&vlse.to_le_bytes());
        }
        let code = program.jal(Reg::ZERO, top).code();
        let mut space = Space::new().expect("a space");
        for base in (end - RANGES * PAGE..end).step_by(PAGE as usize) {
            space.map(RegionKind::Scratchpad, base, &region, 0, PAGE, Access::Write).expect("mapped");
        }
        let mut slot = Slot::new(0, space);
        slot.view().set_checks(Checks::Page);
        let task = Task { limits: Limits { time: Some(1000), instructions: None }, ..task(OWN, &code, None) };
        let begin = processor_time();
        let exit = executor.run(&mut slot, &mut [], &task, &mut NoDevice);
        let taken = processor_time() - begin;
        println!("{name}: {taken} ns");
        assert!(matches!(exit, Exit::Fault(fault) if fault.cause == Cause::Watchdog), "{exit:?}");
        assert!(taken < LATE, "{name}: {taken} ns");
    }
}

/// Programs of random bytes.
const HOSTILE: u64 = if cfg!(debug_assertions) { 400 } else { 4000 };

#[test]
fn any_bytes_are_code_that_ends_as_in_the_interpreter() {
    let executor = Executor::new().expect("a timer");
    for seed in 1..=HOSTILE {
        let mut random = Random::new(seed);
        let bytes = worst::soup(&mut random, 200);
        let options = hostile::options(random.next().to_le_bytes()[0]);
        hostile::check(&executor, options, &bytes).unwrap_or_else(|text| panic!("seed {seed}, {options:?}: {text}"));
    }
}
