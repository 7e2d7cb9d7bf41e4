//! A context that is ready to be installed.

use std::sync::Arc;

use spin_abi::control::{Area, Areas, Install, RunInfo, TierInfo};
use spin_matcher::KeySpec;
use spin_shm::Region;

use super::handle::{ContextHandle, User};
use super::match_spec::MatchSpec;
use crate::context::Program;
use crate::context::header_rule::HeaderRule;
use crate::context::nic_memory::NicMemory;
use spin_pspin::hpu::Hpus;
use spin_pspin::hpu::memory::ContextMemory;
use spin_pspin::hpu::send_rights::SendRights;
use spin_pspin::ids::Handler;

/// A context that is checked and whose memory exists, so that only attaching is left. It has an HPU on each of the machine's
/// clusters; [`Prepared::split_off`] divides them between threads.
#[derive(Debug)]
pub struct Prepared {
    /// The id and slot, equal on all threads; `None`: the worker chooses them.
    pub(crate) handle: Option<ContextHandle>,
    pub(crate) install: Install,
    pub(crate) uid: u32,
    /// Weight of the user's share, 1 to [`MOST_WEIGHT`](crate::sched::scheduler::MOST_WEIGHT).
    pub user_weight: u32,
    pub(crate) program: Program,
    pub(crate) hpus: Hpus,
    pub(crate) memory: ContextMemory,
    pub(crate) match_spec: MatchSpec,
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
        let hpus = self.hpus.split_off(cluster);
        Self {
            handle: self.handle,
            install: self.install.clone(),
            uid: self.uid,
            user_weight: self.user_weight,
            program: self.program.clone(),
            hpus,
            memory: self.memory.clone(),
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

    /// Sets the frames that the handlers may send.
    pub fn restrict(&mut self, send: SendRights) {
        self.match_spec.send = Some(send);
    }

    /// Has it replace a context of its user, or none.
    #[must_use]
    pub fn replacing(mut self, other: Option<u32>) -> Self {
        self.install.replaces = other;
        self
    }

    /// Takes what the user should know.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// The context that it replaces, if it replaces one.
    #[must_use]
    pub const fn replaces(&self) -> Option<u32> {
        self.install.replaces
    }

    /// The host memory, to hand its descriptor to the application.
    #[must_use]
    pub fn host(&self) -> Option<Arc<Region>> {
        self.host.clone()
    }

    /// The NIC memory that the application may reach.
    #[must_use]
    pub fn nic_memory(&self) -> NicMemory {
        NicMemory::new(&self.program.image, &self.memory)
    }

    /// Addresses and sizes of its handlers and handler memory.
    #[must_use]
    pub fn areas(&self) -> Areas {
        let handlers = self.program.handlers;
        let handler = |handler: Option<Handler>| handler.map(|Handler { address, size }| Area { address, size });
        let (address, size) = self.memory.handler();
        Areas { handlers: handlers.map(|it| handler(it).unwrap_or_default()), handler_mem: Area { address, size } }
    }
}
