//! The units that run a context, and its memory there.

use std::sync::Arc;

use hpu_vm::memory::{Region, SpaceError};
use spin_abi::control::{Abi, AllUnits, Checks, Engine, Install, RunInfo, UnitCount};
use spin_abi::map::Machine;
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::hpu::memory::ContextMemory;
use spin_pspin::hpu::shadow::{ShadowInterpreter, ShadowMemory};
use spin_pspin::hpu::{Hpu, Hpus};

use super::in_hook::Request;
use super::memory::{charge_memory, context_memory};
use crate::context::loader::Loader;
use crate::install::ledger::Charge;
use crate::install::{InstallError, UnitMemory};

/// The number of units that are to run a context.
///
/// # Errors
/// [`InstallError::NoUnit`], [`InstallError::OneUnit`].
pub(super) fn count(install: &Install, loader: &Loader) -> Result<u32, InstallError> {
    let all = loader.units.count;
    let wanted = install.units.unwrap_or(UnitCount::Number(1));
    let first = install.unit.unwrap_or(0);
    let count = match wanted {
        UnitCount::Number(count) => count,
        UnitCount::All(AllUnits::All) => all,
    };
    if count == 0 || first.checked_add(count).is_none_or(|end| end > all) {
        return Err(InstallError::NoUnit { first, count, units: all });
    }
    let refusal = match (install.abi, loader.engine) {
        _ if count == 1 => return Ok(1),
        (Abi::Pspin | Abi::Fpspin, _) => "handlers of this ABI know one unit, and would use one index for two messages",
        (_, Engine::Check) => "--engine check compares the memory of one unit",
        _ => return Ok(count),
    };
    Err(InstallError::OneUnit(wanted, refusal))
}

/// A context's image, and its memory in each of its units. `first`: image and memory in the first one. What the others need is added to
/// `charges`.
///
/// # Errors
/// See [`InstallError`].
pub(super) fn memories(
    request: &Request<'_>,
    loader: &Loader,
    (first_image, first): (Arc<LoadedImage>, ContextMemory),
    charges: &mut Vec<Arc<Charge>>,
) -> Result<(Arc<LoadedImage>, Vec<UnitMemory>), InstallError> {
    let Request { install, run, entries, file, uid, .. } = request;
    let count = count(install, loader)?;
    let machine = &loader.machine;
    let unit = |image: Arc<LoadedImage>, memory: ContextMemory, number| {
        let memory = memory.in_unit(loader.units.index(machine, number, count));
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
    Ok((units[0].image.clone(), units))
}

/// A context's HPUs on all clusters of a unit.
fn hpus(machine: &Machine, image: &LoadedImage, memory: &ContextMemory, run: &RunInfo) -> Result<Hpus, SpaceError> {
    let (checks, placement) = (checks(run), run.placement);
    let twins = match run.engine {
        Engine::Check => Some(Arc::new(ShadowMemory::new(&image.memory, memory)?)),
        Engine::Interp | Engine::Jit => None,
    };
    let hpu = |own| {
        let mut hpu = Hpu::new(machine, own, &image.memory, memory, placement, checks)?;
        if let Some(twins) = &twins {
            hpu.set_shadow(ShadowInterpreter::new(machine, own, twins.clone(), placement, checks)?);
        }
        Ok(hpu)
    };
    memory.hpus().map(hpu).collect::<Result<_, _>>().map(|hpus| Hpus::new(run.hpus, hpus))
}

pub(super) const fn checks(run: &RunInfo) -> hpu_vm::Checks {
    match run.checks {
        Checks::Page => hpu_vm::Checks::Page,
        Checks::Exact => hpu_vm::Checks::Exact,
    }
}
