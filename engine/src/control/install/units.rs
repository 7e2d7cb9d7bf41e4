//! The units that run a context, and its memory there.

use spin_abi::control::{Abi, AllUnits, Engine, Install, RunInfo, UnitCount};
use spin_abi::unit::UnitIndex;
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::hpu::memory::ContextMemory;
use std::sync::Arc;

use super::in_hook::Request;
use super::memory::{charge_memory, context_memory};
use super::prepare::hpus;
use crate::context::loader::Loader;
use crate::install::ledger::Charge;
use crate::install::{InstallError, UnitMemory};
use hpu_vm::memory::Region;

/// The number of units that run a context, where there are `all`.
///
/// # Errors
/// [`InstallError::NoUnit`], [`InstallError::OneUnit`].
pub(super) fn count(install: &Install, run: &RunInfo, all: u32) -> Result<u32, InstallError> {
    let wanted = install.units.unwrap_or(UnitCount::Number(1));
    let first = install.unit.unwrap_or(0);
    let count = match wanted {
        UnitCount::Number(count) => count,
        UnitCount::All(AllUnits::All) => all,
    };
    if count == 0 || first.checked_add(count).is_none_or(|end| end > all) {
        return Err(InstallError::NoUnit { first, count, units: all });
    }
    let refusal = match (run.abi, run.engine) {
        _ if count == 1 => return Ok(1),
        (Abi::Pspin | Abi::Fpspin, _) => "handlers of this ABI know one unit, and would use one index for two messages",
        (_, Engine::Check) => "--engine check compares the memory of one unit",
        _ => return Ok(count),
    };
    Err(InstallError::OneUnit(wanted, refusal))
}

/// A context's memory in each of `count` units. `first`: its image and memory in the first one. What the others need is added to
/// `charges`.
///
/// # Errors
/// See [`InstallError`].
pub(super) fn memories(
    request: &Request<'_>,
    loader: &Loader,
    count: u32,
    (first_image, first): (Arc<LoadedImage>, ContextMemory),
    charges: &mut Vec<Arc<Charge>>,
) -> Result<Vec<UnitMemory>, InstallError> {
    let Request { install, run, entries, file, uid, .. } = request;
    let machine = &loader.machine;
    let index = |number| {
        let hpus = machine.clusters * machine.hpus_per_cluster;
        UnitIndex { number, units: count, hpus, flows: loader.units.flows }
    };
    let unit = |image: Arc<LoadedImage>, memory: ContextMemory, number| {
        let memory = memory.in_unit(index(number));
        let hpus = hpus(machine, &image, &memory, run)?;
        Ok::<_, InstallError>(UnitMemory { image, memory, hpus })
    };
    let mut units = vec![unit(first_image, first, 0)?];
    for number in 1..count {
        let image = match install.handler_mem_per_unit {
            true => loader.load_for_unit(file, *uid, number)?,
            false => units[0].image.clone(),
        };
        let make = |len| Region::new(len).map_err(InstallError::from);
        let mut memory = context_memory(install, run.hpus, (&image.image, entries), machine, make)?;
        if !install.handler_mem_per_unit {
            memory = memory.sharing_handler_memory(&units[0].memory);
        }
        charges.push(charge_memory(loader, *uid, &memory)?);
        units.push(unit(image, memory, number)?);
    }
    Ok(units)
}
