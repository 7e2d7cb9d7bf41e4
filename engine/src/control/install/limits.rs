//! Limits of a context: what its request asks for, within what the daemon allows.

use spin_abi::control::{Install, RunInfo};
use spin_pspin::hpu::memory::saturate;

use crate::context::loader::Loader;
use crate::install::InstallError;
use crate::sched::scheduler::MOST_WEIGHT;
use crate::settings::Limits;

/// Checks a size. `setting`: the limit's name in the daemon's configuration.
///
/// # Errors
/// [`InstallError::TooLarge`].
pub fn at_most(
    what: &'static str,
    asked: impl Into<u64>,
    limit: impl Into<u64>,
    setting: Option<&str>,
) -> Result<(), InstallError> {
    let (asked, limit) = (asked.into(), limit.into());
    if asked <= limit {
        return Ok(());
    }
    let more = |name| format!("; for more, add `{name} = {asked}` to [limits] in spind's configuration");
    Err(InstallError::TooLarge { what, asked, limit, setting: setting.map(more).unwrap_or_default() })
}

/// The run-time parameters of a context.
///
/// # Errors
/// [`InstallError::Limit`].
pub(super) fn run_info(install: &Install, limits: &Limits, loader: &Loader) -> Result<RunInfo, InstallError> {
    let watchdog_us = limit(
        "time limit in microseconds",
        install.watchdog_us,
        limits.watchdog_us,
        " (limits.watchdog_us of spind's configuration)",
    )?;
    let most = limits.instruction_limit;
    let instruction_limit = match install.instruction_limit {
        None => most,
        asked => Some(limit(
            "instruction limit",
            asked,
            most.unwrap_or(u64::MAX),
            " (limits.instruction_limit of spind's configuration)",
        )?),
    };
    let weight = limit("weight", Some(install.weight.unwrap_or(1).into()), MOST_WEIGHT.into(), "")?;
    let hpus = limit("HPUs", Some(install.hpus.unwrap_or(1).into()), loader.machine.hpus_per_cluster.into(), "")?;
    let Install { abi, checks, isolation, placement, message_timeout_us, doorbell_us, full, verdicts, .. } = *install;
    if message_timeout_us.is_some() {
        limit("message timeout in microseconds", message_timeout_us, u64::MAX, "")?;
    }
    Ok(RunInfo {
        engine: loader.engine,
        abi,
        checks,
        isolation,
        placement,
        watchdog_us,
        instruction_limit,
        message_timeout_us,
        doorbell_us,
        weight: saturate(weight),
        full,
        hpus: saturate(hpus),
        verdicts,
    })
}

/// Requested limit, or the daemon's.
fn limit(what: &'static str, asked: Option<u64>, limit: u64, setting: &'static str) -> Result<u64, InstallError> {
    match asked {
        None => Ok(limit),
        Some(asked) if (1..=limit).contains(&asked) => Ok(asked),
        Some(asked) => Err(InstallError::Limit { what, setting, asked, limit }),
    }
}
