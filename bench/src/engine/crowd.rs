//! Several contexts on one thread, with as many packets each: what they cost together, by how many there are.

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

/// Bytes of a frame.
const SIZE: usize = 64;
/// Frames in rotation, each a message of its own, of so many flows.
const FRAMES: u32 = 4096;
const FLOWS: u32 = 512;
/// The first context's; the others' follow.
const PORT: u16 = 9000;
/// How many contexts there are.
pub const CROWDS: [u16; 5] = [1, 2, 4, 16, 64];
/// What shares the time out between them, and what that is called.
pub const SCHEDULES: [(Schedule, &str); 2] = [(Schedule::RoundRobin, "round-robin"), (Schedule::Wlbvt, "wlbvt")];

/// What all engines have in common.
pub struct Crowd {
    loader: Arc<Loader>,
    image: Vec<u8>,
}

impl Crowd {
    /// The handler is in `images` and run by `kind`.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn new(images: &Path, kind: Kind) -> Result<Self, Failure> {
        Ok(Self { loader: Arc::new(Loader::new(Machine::PSPIN, kind)), image: read(images, "empty")? })
    }

    /// Sends `packets` packets or a few more through an engine with so many contexts, whose packets arrive in turn, after as many that are
    /// not counted. Nanoseconds per packet that was processed.
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
