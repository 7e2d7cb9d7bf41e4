//! Memory of a context, on its user's bill.

use std::sync::Arc;

use hpu_vm::Image;
use hpu_vm::jit::Translation;
use hpu_vm::memory::Region as Memory;
use spin_abi::control::{BillKind, Install};
use spin_abi::map::{Machine, PAGE};
use spin_pspin::hpu::entries::Entries;
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::hpu::memory::{ContextMemory, ContextSizes};
use spin_shm::Region;

use super::limits::at_most;
use crate::context::event_ring::EventRing;
use crate::context::loader::Loader;
use crate::install::InstallError;
use crate::install::ledger::Charge;
use crate::settings::Limits;
use crate::telemetry::context_latency::ContextLatencies;

/// Bytes of a view of guest memory: page tables, and descriptions of its mappings. Measured: 22 to 28 KiB.
const VIEW_BYTES: u64 = 24 << 10;

/// A context's own memory, in a region that `make` makes.
///
/// # Errors
/// [`InstallError::TooLarge`], and the errors of `make`.
pub(super) fn context_memory<E: From<InstallError>>(
    install: &Install,
    hpus: u32,
    (image, entries): (&Image, &Entries),
    machine: &Machine,
    make: impl FnOnce(usize) -> Result<Arc<Memory>, E>,
) -> Result<ContextMemory, E> {
    let base = image.handler_mem_end();
    let end = machine.handler_mem_base + machine.handler_mem_size;
    at_most("handler memory", install.handler_mem, end.saturating_sub(base), None)?;
    at_most("scratchpad", install.scratchpad, machine.scratchpad_size(), None)?;
    let sizes = ContextSizes { hpus, handler: install.handler_mem, scratchpad: install.scratchpad };
    let memory = ContextMemory::new_in(machine, base, sizes, make)?;
    Ok(match entries.handler_mem {
        Some(address) => memory.with_handler_memory(address, image.handler_mem_from(address).unwrap_or(0)),
        None => memory,
    })
}

/// Host memory, if it is requested.
///
/// # Errors
/// [`InstallError::TooLarge`], the user's limit, and that there is no memory.
pub(super) fn host_memory(
    install: &Install,
    uid: u32,
    limits: &Limits,
    loader: &Loader,
) -> Result<Option<Arc<Region>>, InstallError> {
    at_most("host memory", install.host_mem, limits.host_mem, Some("host_mem"))?;
    if install.host_mem == 0 {
        return Ok(None);
    }
    let bytes = install.host_mem.next_multiple_of(PAGE.into());
    // The user pays until nobody has the region, which may be long after the context is gone.
    let charge = loader.ledger.charge(uid, BillKind::HostMemory, bytes)?;
    Ok(Some(Arc::new(Region::create_with(install.host_mem, Box::new(charge))?)))
}

/// Charges an image, and a context's own memory.
///
/// # Errors
/// The user's limit.
pub(super) fn charge_placed(
    (loader, uid): (&Loader, u32),
    (image, file): (&Arc<LoadedImage>, &[u8]),
    memory: &ContextMemory,
) -> Result<Vec<Arc<Charge>>, InstallError> {
    Ok(vec![charge_image(loader, uid, image, file)?, charge_memory(loader, uid, memory)?])
}

/// Charges a translation.
///
/// # Errors
/// The user's limit.
pub(super) fn charge_translation(
    loader: &Loader,
    uid: u32,
    translation: Option<&Arc<Translation>>,
) -> Result<Option<Arc<Charge>>, InstallError> {
    let charge = |translation: &Arc<Translation>| {
        let bytes = translation.size().bytes as u64;
        loader.ledger.charge_shared(uid, BillKind::Translations, translation, bytes)
    };
    Ok(translation.map(charge).transpose()?)
}

/// Charges an image with its memory, its file's symbols and its decoded code: about as many bytes as the file for each.
fn charge_image(loader: &Loader, uid: u32, image: &Arc<LoadedImage>, file: &[u8]) -> Result<Arc<Charge>, InstallError> {
    let bytes = image.memory.region().len() as u64 + 2 * file.len() as u64;
    Ok(loader.ledger.charge_shared(uid, BillKind::Images, image, bytes)?)
}

/// Charges a context's own memory in a unit, with event ring, views, and latencies on the greatest number of threads.
pub(super) fn charge_memory(loader: &Loader, uid: u32, memory: &ContextMemory) -> Result<Arc<Charge>, InstallError> {
    let views = memory.hpus().count() as u64 * VIEW_BYTES;
    let latencies = u64::from(loader.machine.clusters) * size_of::<ContextLatencies>() as u64;
    let bytes = memory.region().len() as u64 + EventRing::bytes(loader.machine.clusters) + views + latencies;
    Ok(Arc::new(loader.ledger.charge(uid, BillKind::ContextMemory, bytes)?))
}
