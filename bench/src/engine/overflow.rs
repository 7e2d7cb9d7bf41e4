//! A thread with packets and an idle thread: the gain when payload tasks overflow to the idle one, by the duration of
//! the tasks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use spin_abi::control::{Engine as Kind, Install, Placement, Schedule};
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::cores::Poller;
use spin_engine::cores::helpers::Helpers;
use spin_engine::install::Prepared;
use spin_engine::settings::Limits;
use spin_engine::worker::Worker;
use spin_nic::{NicError, Queue, SyntheticSource, Wakeup};

use super::cores;
use super::lab::{Failure, SIZES, read, runs};
use super::shares::frame;

/// Frame size in bytes.
const SIZE: usize = 64;
/// Frames in rotation, each a message of its own; they belong to `FLOWS` flows.
const FRAMES: u32 = 4096;
const FLOWS: u32 = 512;
const PORT: u16 = 9999;
/// Loop iterations of a handler, eight of them per pass, and their names.
pub const LOOPS: [(u32, &str); 5] = [(2_000, "2k"), (4_000, "4k"), (8_000, "8k"), (32_000, "32k"), (128_000, "128k")];

/// A thread with packets and an idle one.
pub struct OneSided {
    loader: Arc<Loader>,
    image: Vec<u8>,
}

impl OneSided {
    /// Reads the handler from `images`; `kind` runs it.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn new(images: &Path, kind: Kind) -> Result<Self, Failure> {
        Ok(Self { loader: Arc::new(Loader::new(Machine::PSPIN, kind)), image: read(images, "spin")? })
    }

    /// Runs `packets` packets through one thread's engine, after a warm-up of half as many; the handlers' loops take
    /// `polls` iterations. With [`Placement::Any`] the tasks may overflow to the other thread. Returns nanoseconds per
    /// packet.
    ///
    /// # Errors
    /// An engine fails, or packets were lost.
    pub fn round(&self, polls: u32, placement: Placement, packets: u64) -> Result<f64, Failure> {
        let install = Install { rules: vec![format!("udp dport {PORT}")], placement, ..Install::default() };
        let mut first = Prepared::new(install, &self.image, 0, &self.loader, &Limits::default())?;
        let second = first.split_off(1);
        let [to_first, to_second] = two(Helpers::of(&[wakeup()?, wakeup()?]))?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let other = cores::start(scope, 1, || {
                let (mut engine, start) = (self.engine(&[], second, 1, to_second)?, Instant::now());
                while !stop.load(Relaxed) || engine.has_tasks() {
                    engine.poll(|| start.elapsed())?;
                }
                Ok(runs(&engine))
            });
            let frames: Vec<_> = (0..FRAMES).map(|index| frame(PORT, index % FLOWS, polls)).collect();
            let spent = self.engine(&frames, first, 0, to_first).and_then(|engine| send(engine, packets));
            stop.store(true, Relaxed);
            let away = cores::end(other)?;
            let Sent { nanoseconds, taken, run } = spent?;
            if taken != run + away {
                return Err(format!("{run} and {away} tasks were run of {taken}").into());
            }
            Ok(nanoseconds)
        })
    }

    fn engine(&self, frames: &[Vec<u8>], part: Prepared, cluster: u32, helpers: Helpers) -> Result<Worker, Failure> {
        let nic: Box<dyn Queue> = Box::new(SyntheticSource::new(frames, SIZE, 0)?);
        let engine = Worker::new(self.loader.clone(), nic, SIZES, Schedule::default(), cluster..cluster + 1)?;
        let mut engine = engine.with_helpers(helpers);
        engine.install(part, &Limits::default())?;
        Ok(engine)
    }
}

/// Counts of an engine.
struct Sent {
    /// Nanoseconds per counted packet.
    nanoseconds: f64,
    /// Packets in total, including the warm-up.
    taken: u64,
    /// Payload handlers run by this engine.
    run: u64,
}

fn send(mut engine: Worker, packets: u64) -> Result<Sent, Failure> {
    let start = Instant::now();
    let polls = |engine: &mut Worker, most: u64| {
        let mut taken = 0;
        while taken < most {
            taken += engine.poll(|| start.elapsed())? as u64;
        }
        Ok::<_, Failure>(taken)
    };
    let warm = polls(&mut engine, packets / 2)?;
    let (begun, mut taken) = (Instant::now(), polls(&mut engine, packets)?);
    engine.close();
    while engine.has_tasks() {
        // A packet that had to wait counts when it is admitted.
        taken += engine.poll(|| start.elapsed())? as u64;
    }
    let nanoseconds = begun.elapsed().as_nanos() as f64 / taken as f64;
    Ok(Sent { nanoseconds, taken: warm + taken, run: runs(&engine) })
}

fn wakeup() -> Result<Arc<Wakeup>, NicError> {
    Ok(Wakeup::new()?)
}

fn two<T>(all: Vec<T>) -> Result<[T; 2], Failure> {
    all.try_into().map_err(|_| "there are two threads".into())
}
