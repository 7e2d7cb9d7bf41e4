//! Several contexts on one thread with the same number of packets each: their cost by the number of contexts.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use spin_abi::control::{Engine as Kind, Install, Placement, Schedule};
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::install::Prepared;
use spin_engine::settings::Limits;
use spin_engine::worker::Worker;
use spin_nic::SyntheticSource;

use super::lab::{Failure, SIZES, read, runs};
use super::shares::frame;

/// Frame size in bytes.
const SIZE: usize = 64;
/// Frames in rotation, each a message of its own; they belong to `FLOWS` flows.
const FRAMES: u32 = 4096;
const FLOWS: u32 = 512;
/// Port of the first context; the others use the following ones.
const PORT: u16 = 9000;
/// Numbers of contexts.
pub const CROWDS: [u16; 6] = [1, 2, 4, 16, 64, 1024];
/// Scheduling policies and their names.
pub const SCHEDULES: [(Schedule, &str); 2] = [(Schedule::RoundRobin, "round-robin"), (Schedule::Wlbvt, "wlbvt")];

/// State shared by all engines.
pub struct Crowd {
    loader: Arc<Loader>,
    image: Vec<u8>,
}

impl Crowd {
    /// Reads the handler from `images`; `kind` runs it.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn new(images: &Path, kind: Kind) -> Result<Self, Failure> {
        Ok(Self { loader: Arc::new(Loader::new(Machine::PSPIN, kind)), image: read(images, "empty")? })
    }

    /// Runs at least `packets` packets through an engine with `contexts` contexts, after a warm-up of the same length.
    /// Packets arrive for the contexts in rotation. Returns nanoseconds per processed packet.
    ///
    /// # Errors
    /// The engine fails.
    pub fn round(&self, schedule: Schedule, contexts: u16, packets: u64) -> Result<f64, Failure> {
        let port = |index: u32| PORT + (index % u32::from(contexts)) as u16;
        let frames: Vec<_> = (0..FRAMES).map(|index| frame(port(index), index % FLOWS, 0)).collect();
        let nic = Box::new(SyntheticSource::new(&frames, SIZE, 0)?);
        let mut engine = Worker::new(self.loader.clone(), nic, SIZES, schedule, 0..1)?;
        for index in 0..contexts.into() {
            let rules = vec![format!("udp dport {}", port(index))];
            let install = Install { rules, placement: Placement::Home, ..Install::default() };
            let prepared = Prepared::new(install, &self.image, 0, &self.loader, &Limits::default())?;
            engine.install(prepared, &Limits::default())?;
        }
        let start = Instant::now();
        let mut polls = || {
            let (begun, before, mut taken) = (Instant::now(), runs(&engine), 0);
            while taken < packets {
                taken += engine.poll(|| start.elapsed())? as u64;
            }
            Ok::<_, Failure>(begun.elapsed().as_nanos() as f64 / (runs(&engine) - before) as f64)
        };
        polls()?;
        polls()
    }
}
