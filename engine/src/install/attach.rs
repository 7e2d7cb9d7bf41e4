//! Makes a worker's context of a prepared one.

use std::sync::Arc;
use std::time::Duration;

use spin_matcher::table::CompiledEntry;
use spin_pspin::counts::Counts;
use spin_pspin::host_memory::HostMemory;
use spin_pspin::hpu::Hpus;
use spin_pspin::ids::Slot;

use super::{HOST_ADDRESS, Home, Prepared, UnitRange, WorkerRange};
use crate::context::event_ring::EventRing;
use crate::context::{Context, ContextLabel, ContextLog, Matching, Replacement, Share, Texts};
use crate::sched::weights::ContextWeight;
use crate::worker::core::Core;

/// The context that a worker gets, with its part.
pub(super) fn context(
    prepared: Prepared,
    entry: Arc<CompiledEntry>,
    predecessor: Option<Slot>,
    core: &Core,
) -> Context {
    let Core { part, machine, telemetry, .. } = core;
    let texts = prepared.assigned.as_ref().map(|assigned| assigned.texts.clone());
    let texts = texts.unwrap_or_else(|| Texts::of(entry.entry()).into());
    let key_is_fpspin = prepared.key.is_fpspin();
    let assigned = prepared.assigned.as_ref();
    let (units, workers) =
        assigned.map_or((UnitRange::one(part.unit), WorkerRange::ALL), |assigned| (assigned.units, assigned.workers));
    // A thread has the page of its first cluster, among those of all units of the context.
    let rank = units.rank(part.unit).unwrap_or(0);
    let page = rank * machine.clusters + part.clusters.start;
    let (own, has_others) = (prepared.units.into_iter().next(), workers != WorkerRange::ALL && workers.count > 1);
    let first_flow = own.as_ref().map_or(0, |own| own.memory.unit().first_flow());
    let hpus = own.map_or_else(|| Hpus::new(1, Vec::new()), |own| own.hpus);
    let doorbell_delay = Duration::from_micros(prepared.run.doorbell_us.unwrap_or(0));
    let mut context = Context {
        id: entry.entry().context,
        label: ContextLabel {
            name: prepared.install.name.clone(),
            lifetime: prepared.install.lifetime,
            tier: prepared.tier,
            units,
        },
        weights: ContextWeight { uid: prepared.uid, user_weight: prepared.user_weight, weight: prepared.run.weight },
        matching: Matching::of(
            (entry, texts),
            prepared.header,
            prepared.match_spec.ports.clone(),
            prepared.match_spec.send.clone().unwrap_or_default(),
            Home { workers, by_key: key_is_fpspin && has_others },
        ),
        program: prepared.program,
        hpus,
        host: HostMemory::new(prepared.host, HOST_ADDRESS),
        message_timeout: prepared.run.message_timeout_us.map(Duration::from_micros),
        // The share is set when the context is in the list.
        share: Share::default(),
        is_handed_over: false,
        run: prepared.run,
        counts: Counts::default(),
        replacement: Replacement { predecessor, ..Replacement::default() },
        event_ring: EventRing::new(prepared.event_ring, page, doorbell_delay, &telemetry.doorbell_pending)
            .numbered_from(first_flow),
        log: ContextLog::default(),
    };
    context.hpus.set_host(&context.host);
    context
}
