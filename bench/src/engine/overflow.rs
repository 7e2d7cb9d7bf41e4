//! One thread's packets with another thread that has none: what is gained when payload tasks overflow to it, by how long they take.

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

/// Bytes of a frame.
const SIZE: usize = 64;
/// Frames in rotation, each a message of its own, of so many flows.
const FRAMES: u32 = 4096;
const FLOWS: u32 = 512;
const PORT: u16 = 9999;
/// Turns of a handler's loop, of which a pass runs eight; and what that is called.
pub const LOOPS: [(u32, &str); 5] = [(2_000, "2k"), (4_000, "4k"), (8_000, "8k"), (32_000, "32k"), (128_000, "128k")];

/// A thread with packets, and one without.
pub struct OneSided {
    loader: Arc<Loader>,
    image: Vec<u8>,
}

impl OneSided {
    /// The handler is in `images` and run by `kind`.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn new(images: &Path, kind: Kind) -> Result<Self, Failure> {
        Ok(Self { loader: Arc::new(Loader::new(Machine::PSPIN, kind)), image: read(images, "spin")? })
    }

    /// Sends `packets` packets whose handlers' loops take `polls` through one thread's engine, after half as many that are not counted;
    /// with [`Placement::Any`] their tasks may overflow to the other. Nanoseconds per packet.
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
        let mut engine = engine.with_peers(helpers);
        engine.install(part, &Limits::default())?;
        Ok(engine)
    }
}

/// What went through an engine.
struct Sent {
    /// Per packet, of those that count.
    nanoseconds: f64,
    /// Packets in all.
    taken: u64,
    /// Payload handlers run here.
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
        // What was received and had to wait counts when it is let in.
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
