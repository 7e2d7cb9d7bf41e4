//! An engine whose context writes to host memory and emits an event.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use spin_abi::control::{Engine as Kind, Install, Schedule};
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::install::{Prepared, User};
use spin_engine::settings::{Limits, Sizes};
use spin_engine::worker::Worker;
use spin_nic::memory::{MemoryQueue, pair};
use spin_nic::{Queue, TxQueue};
use spin_shm::Region;

use super::super::lab::{Failure, read};
use super::super::shares::frame;

/// Port of the context's datagrams.
const PORT: u16 = 9999;
/// The administrator, who installs the context.
const ROOT: User = User(0);

/// An engine in memory, with one context.
pub(super) struct EventLab {
    engine: Worker,
    far: MemoryQueue,
    context: u32,
    start: Instant,
    /// Number of the latest datagram.
    number: u32,
}

impl EventLab {
    pub(super) fn new(images: &Path) -> Result<Self, Failure> {
        let loader = Arc::new(Loader::new(Machine::PSPIN, Kind::Jit));
        let install = Install { rules: vec![format!("udp dport {PORT}")], host_mem: 4096, ..Install::default() };
        let prepared = Prepared::new(install, &read(images, "direct_event")?, ROOT.0, &loader, &Limits::default())?;
        let (near, far) = pair(64)?;
        let mut engine = Worker::new(loader, Box::new(near), Sizes::default(), Schedule::default(), 0..1)?;
        let context = engine.install(prepared, &Limits::default())?;
        Ok(Self { engine, far, context, start: Instant::now(), number: 0 })
    }

    /// The context's host memory. Its first word is the number of the latest datagram.
    pub(super) fn host(&self) -> Result<Arc<Region>, Failure> {
        Ok(self.engine.host_memory(self.context, ROOT)?.0)
    }

    /// The context's event ring.
    pub(super) fn ring(&self) -> Result<Arc<Region>, Failure> {
        Ok(self.engine.event_ring(self.context, ROOT)?)
    }

    /// Delivers a datagram at each call.
    pub(super) fn deliveries(mut self) -> impl FnMut() -> Result<(), Failure> {
        move || self.deliver()
    }

    /// Delivers a datagram, and polls until its handler has run and the doorbell was rung.
    fn deliver(&mut self) -> Result<(), Failure> {
        self.number += 1;
        let mut buffer = self.far.allocate().ok_or("frames do not come back")?;
        buffer.fill(&frame(PORT, 1, self.number))?;
        self.far.send(&mut vec![buffer]);
        self.far.flush()?;
        let mut taken = 0;
        while taken == 0 || self.engine.has_tasks() {
            taken += self.engine.poll(|| self.start.elapsed())?;
        }
        Ok(())
    }
}
