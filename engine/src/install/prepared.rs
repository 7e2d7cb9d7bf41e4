//! A context that is ready to be installed.

use std::sync::Arc;

use spin_abi::control::{Area, Areas, Install, RunInfo, TierInfo};
use spin_matcher::table::CompiledEntry;
use spin_matcher::{KeySpec, TableEntry, TableError};
use spin_shm::Region;

use super::handle::{ContextHandle, User};
use super::match_spec::MatchSpec;
use super::placement::{UnitRange, WorkerRange};
use crate::context::header_rule::HeaderRule;
use crate::context::nic_memory::NicMemory;
use crate::context::{Program, Texts};
use crate::cores::units::UnitPart;
use spin_pspin::hpu::Hpus;
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::hpu::memory::ContextMemory;
use spin_pspin::hpu::send_rights::SendRights;
use spin_pspin::ids::Handler;

/// The part of a context in one unit: its image and memory, and HPUs on each of the unit's clusters.
#[derive(Debug)]
pub struct UnitMemory {
    /// The image. Units have one together, unless each has handler memory of its own.
    pub image: Arc<LoadedImage>,
    /// The context's memory.
    pub memory: ContextMemory,
    /// Its HPUs.
    pub hpus: Hpus,
}

/// What a context has on all workers.
#[derive(Clone, Debug)]
pub struct Assigned {
    /// The units that run it.
    pub units: UnitRange,
    /// The workers of these.
    pub workers: WorkerRange,
    /// Its compiled rules.
    pub entry: Arc<CompiledEntry>,
    /// The entry as text for users.
    pub texts: Arc<Texts>,
}

impl Assigned {
    /// The units and workers that run a context with these rules.
    pub(crate) fn new(units: UnitRange, workers: WorkerRange, entry: Arc<CompiledEntry>) -> Self {
        Self { units, workers, texts: Texts::of(entry.entry()).into(), entry }
    }
}

/// A context that is checked and whose memory exists, so that only attaching is left. [`Prepared::parts`] divides it between workers.
#[derive(Debug)]
pub struct Prepared {
    /// The id and slot, equal on all threads; `None`: the worker chooses them.
    pub(crate) handle: Option<ContextHandle>,
    pub(crate) install: Arc<Install>,
    pub(crate) uid: u32,
    /// Weight of the user's share, 1 to [`MOST_WEIGHT`](crate::sched::scheduler::MOST_WEIGHT).
    pub user_weight: u32,
    pub(crate) program: Program,
    /// Its parts, one for each unit that is to run it. A worker's own part has one at most, with the HPUs of the worker's clusters.
    pub(crate) units: Vec<UnitMemory>,
    /// What is decided for all workers together. `None`: there is one worker, or all are of one unit.
    pub(crate) assigned: Option<Assigned>,
    pub(crate) match_spec: Arc<MatchSpec>,
    pub(crate) key: KeySpec,
    pub(crate) header: Option<HeaderRule>,
    pub(crate) host: Option<Arc<Region>>,
    pub(crate) event_ring: Arc<Region>,
    pub(crate) run: RunInfo,
    /// Where its handlers run. `None`: user space was requested.
    pub(crate) tier: Option<TierInfo>,
    /// What the user should know.
    pub(crate) warnings: Vec<String>,
}

impl Prepared {
    /// A line for the log: the user, the context and its packets.
    pub(crate) fn describe(&self) -> String {
        let Self { install, uid, match_spec, .. } = self;
        format!("{} installed {:?} for {}", User(*uid), install.name, match_spec.rules())
    }

    /// Splits off the part for clusters from `cluster` on.
    #[must_use]
    pub fn split_off(&mut self, cluster: u32) -> Self {
        let units = self.units.iter_mut().map(|unit| UnitMemory {
            image: unit.image.clone(),
            memory: unit.memory.clone(),
            hpus: unit.hpus.split_off(cluster),
        });
        let units = units.collect();
        self.with_units(units)
    }

    /// The parts for workers, in their order. A worker of a unit that does not run the context gets one without HPUs.
    #[must_use]
    pub fn parts(mut self, workers: &[UnitPart]) -> Vec<Self> {
        let units = self.assigned.as_ref().map_or(UnitRange::one(0), |assigned| assigned.units);
        let mut parts = Vec::with_capacity(workers.len());
        for (index, worker) in workers.iter().enumerate() {
            let Some(memory) = units.rank(worker.unit).and_then(|rank| self.units.get_mut(rank as usize)) else {
                parts.push(self.with_units(Vec::new()));
                continue;
            };
            let next = workers.get(index + 1).filter(|next| next.unit == worker.unit);
            let rest = match next {
                Some(next) => memory.hpus.split_off(next.clusters.start),
                None => memory.hpus.none(),
            };
            let hpus = std::mem::replace(&mut memory.hpus, rest);
            let own = UnitMemory { image: memory.image.clone(), memory: memory.memory.clone(), hpus };
            parts.push(self.with_units(vec![own]));
        }
        parts
    }

    /// The parts for workers whose units all run the context, without a group of threads: for benchmarks.
    ///
    /// # Errors
    /// When its rules are too many.
    #[doc(hidden)]
    pub fn spread(mut self, workers: &[UnitPart]) -> Result<Vec<Self>, TableError> {
        let units = UnitRange { first: 0, count: workers.last().map_or(1, |worker| worker.unit + 1) };
        self.assigned = Some(Assigned::new(units, WorkerRange::ALL, self.compile(1)?));
        Ok(self.parts(workers))
    }

    /// This context with other parts.
    fn with_units(&self, units: Vec<UnitMemory>) -> Self {
        let image = units.first().map_or(&self.program.image, |unit| &unit.image);
        Self {
            handle: self.handle,
            install: self.install.clone(),
            uid: self.uid,
            user_weight: self.user_weight,
            program: Program { image: image.clone(), ..self.program.clone() },
            units,
            assigned: self.assigned.clone(),
            match_spec: self.match_spec.clone(),
            key: self.key.clone(),
            header: self.header.clone(),
            host: self.host.clone(),
            event_ring: self.event_ring.clone(),
            run: self.run,
            tier: self.tier.clone(),
            warnings: Vec::new(),
        }
    }

    /// The table entry of the context with this id.
    ///
    /// # Errors
    /// When its rules are too many.
    pub(crate) fn compile(&self, id: u32) -> Result<Arc<CompiledEntry>, TableError> {
        let entry = TableEntry {
            context: id,
            rules: self.match_spec.rules.clone(),
            eom: self.match_spec.eom.clone(),
            key: self.key.clone(),
            target: self.program.target(),
        };
        CompiledEntry::new(entry).map(Arc::new)
    }

    /// Sets the frames that the handlers may send.
    pub fn restrict(&mut self, send: SendRights) {
        Arc::make_mut(&mut self.match_spec).send = Some(send);
    }

    /// Has it replace a context of its user, or none.
    #[must_use]
    pub fn replacing(mut self, other: Option<u32>) -> Self {
        Arc::make_mut(&mut self.install).replaces = other;
        self
    }

    /// Takes what the user should know.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// The context that it replaces, if it replaces one.
    #[must_use]
    pub fn replaces(&self) -> Option<u32> {
        self.install.replaces
    }

    /// The host memory, to hand its descriptor to the application.
    #[must_use]
    pub fn host(&self) -> Option<Arc<Region>> {
        self.host.clone()
    }

    /// The NIC memory that the application may reach, by unit.
    #[must_use]
    pub fn nic_memory(&self) -> Vec<NicMemory> {
        self.units.iter().map(|unit| NicMemory::new(&unit.image, &unit.memory)).collect()
    }

    /// Addresses and sizes of its handlers and handler memory.
    #[must_use]
    pub fn areas(&self) -> Areas {
        let handlers = self.program.handlers;
        let handler = |handler: Option<Handler>| handler.map(|Handler { address, size }| Area { address, size });
        let (address, size) = self.units.first().map_or((0, 0), |unit| unit.memory.handler());
        Areas { handlers: handlers.map(|it| handler(it).unwrap_or_default()), handler_mem: Area { address, size } }
    }
}
