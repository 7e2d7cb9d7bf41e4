//! Throughput of two threads beside one, and a model of more.
//!
//! Machines change their speed from second to second. So two threads take turns every few milliseconds: one alone, both, the other alone,
//! both. The model has three terms, each with a cost on one thread, measured here, and a slowdown with several threads, measured with a
//! loop that does nothing else:
//!
//! * instructions: what a packet takes when its frames are in the second-level cache;
//! * memory: what it takes more when they are not;
//! * shared lines: lines that a packet's tasks write and those of other units do, too, times the time until such a line arrives.

use std::sync::Barrier;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use spin_bench::peers::results::median;

use crate::{Failure, Unit};

/// Duration of a turn.
const TURN: Duration = Duration::from_millis(4);
/// The part of a turn that is not counted, in which a core wakes up.
const SETTLE: Duration = Duration::from_micros(400);
/// Turns of a round: one thread, both, the other one, both.
const TURNS: u32 = 4;
/// Bytes that the memory loop walks through, one line in each page: those of the frames of a thread.
const WALK: usize = 2 << 20;
const PAGE: usize = 4096;

/// Work that a thread does in turns. Returns how much was done.
pub trait Load {
    fn run(&mut self) -> Result<u64, Failure>;
}

impl Load for Unit {
    fn run(&mut self) -> Result<u64, Failure> {
        self.poll_times(8)
    }
}

/// Instructions that depend on nothing but registers.
pub struct Compute([u64; 4]);

impl Default for Compute {
    fn default() -> Self {
        Self([1, 2, 3, 4])
    }
}

impl Load for Compute {
    fn run(&mut self) -> Result<u64, Failure> {
        for _ in 0..1000 {
            self.0 = self.0.map(|word| word.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(7));
        }
        std::hint::black_box(&mut self.0);
        Ok(1)
    }
}

/// Reads and writes of lines as far apart as frames.
pub struct Walk(Vec<u64>);

impl Default for Walk {
    fn default() -> Self {
        Self(vec![1; WALK / size_of::<u64>()])
    }
}

impl Load for Walk {
    fn run(&mut self) -> Result<u64, Failure> {
        self.0.iter_mut().step_by(PAGE / size_of::<u64>()).for_each(|word| *word += 1);
        std::hint::black_box(&mut self.0);
        Ok(1)
    }
}

/// Atomic additions to one line, with as much work in between as a packet is: the other thread has added meanwhile.
pub struct Shared<'l>(pub &'l AtomicU64);

impl Load for Shared<'_> {
    fn run(&mut self) -> Result<u64, Failure> {
        for number in 0..100 {
            let mut word = self.0.fetch_add(1, Relaxed) ^ number;
            (0..80).for_each(|_| word = std::hint::black_box(word.wrapping_mul(3)));
        }
        Ok(100)
    }
}

/// Rates of two threads, in units of work per second.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// One thread alone: the mean of both.
    pub alone: f64,
    /// Both together.
    pub both: f64,
}

impl Rates {
    pub fn ratio(self) -> f64 {
        self.both / self.alone
    }
}

/// Work and time of a thread, alone and beside the other one.
#[derive(Clone, Copy, Default)]
struct Done {
    work: [u64; 2],
    time: [Duration; 2],
}

/// Measures two loads for some rounds of turns, each on a core of its own. `make` is called on the thread.
pub fn measure<L: Load>(rounds: u32, make: impl Fn(usize) -> Result<L, Failure> + Sync) -> Result<Rates, Failure> {
    let barrier = Barrier::new(2);
    let done = thread::scope(|scope| {
        let (make, barrier) = (&make, &barrier);
        let thread = |number: usize| -> Result<Done, Failure> {
            let load = spin_nic::affinity::pin(number).map_err(Failure::from).and_then(|()| make(number));
            barrier.wait();
            take_turns(load?, number, rounds)
        };
        let threads = [0, 1].map(|number| scope.spawn(move || thread(number)));
        threads.map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    });
    let [one, other] = done;
    let (one, other) = (one?, other?);
    let rate = |done: &Done, turn: usize| done.work[turn] as f64 / done.time[turn].as_secs_f64();
    Ok(Rates { alone: (rate(&one, 0) + rate(&other, 0)) / 2.0, both: rate(&one, 1) + rate(&other, 1) })
}

fn take_turns(mut load: impl Load, number: usize, rounds: u32) -> Result<Done, Failure> {
    let (start, mut done) = (Instant::now(), Done::default());
    for turn in 0..rounds * TURNS {
        let (begins, alone) = (start + TURN * turn, turn % 2 == 0);
        if alone && (turn / 2) as usize % 2 != number {
            continue;
        }
        thread::sleep(begins.saturating_duration_since(Instant::now()));
        while Instant::now() < begins + SETTLE {
            load.run()?;
        }
        let (from, mut work) = (Instant::now(), 0);
        while Instant::now() < begins + TURN {
            work += load.run()?;
        }
        let place = usize::from(!alone);
        done.work[place] += work;
        done.time[place] += from.elapsed();
    }
    Ok(done)
}

/// Slowdowns of the resources when two threads use them, and the cost of a line that both write.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    pub instructions: f64,
    pub memory: f64,
    /// Seconds more than when the other thread did not write it.
    pub shared_line: f64,
}

impl Machine {
    pub fn measure(rounds: u32) -> Result<Self, Failure> {
        let instructions = 2.0 / measure(rounds, |_| Ok(Compute::default()))?.ratio();
        let memory = 2.0 / measure(rounds, |_| Ok(Walk::default()))?.ratio();
        let line = AtomicU64::new(0);
        let shared = measure(rounds, |_| Ok(Shared(&line)))?;
        Ok(Self { instructions, memory, shared_line: 2.0 / shared.both - 1.0 / shared.alone })
    }
}

impl Machine {
    /// The medians of several measurements.
    pub fn median(all: &[Self]) -> Self {
        let of = |value: fn(&Self) -> f64| median(&all.iter().map(value).collect::<Vec<_>>());
        Self {
            instructions: of(|it| it.instructions),
            memory: of(|it| it.memory),
            shared_line: of(|it| it.shared_line),
        }
    }
}

/// Costs of a packet on one thread, in seconds, and the lines that it writes and other units do, too.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    pub instructions: f64,
    pub memory: f64,
    pub shared_lines: f64,
}

impl Costs {
    /// Throughput of `threads` threads, relative to one. With more than two, cores are assumed to be as independent of each other as
    /// these, and a write to a shared line to wait for those of all others.
    pub fn predict(self, machine: Machine, threads: u32) -> f64 {
        // Measured factors below 1 are noise.
        let several = |factor: f64| if threads > 1 { factor.max(1.0) } else { 1.0 };
        let alone = self.instructions + self.memory;
        let waits = self.shared_lines * machine.shared_line * f64::from(threads - 1);
        let each = self.instructions * several(machine.instructions) + self.memory * several(machine.memory) + waits;
        f64::from(threads) * alone / each
    }
}
