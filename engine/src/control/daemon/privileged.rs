//! The processes that keep privileges, and giving up those of this one.

use std::path::Path;
use std::sync::Arc;

use hpu_vm::jit::Executor;
use spin_nic::Filter;

use super::DaemonError;
use crate::control::check::account;
use crate::control::config::{Config, ConfigErrors, Nic};
use crate::control::descriptors::Descriptors;
use crate::control::hook_process::client::{HookProcess, HookUnavailable};
use crate::control::hook_process::programs::HookPrograms;
use crate::control::loader_process::client::LoaderProcess;
use crate::control::policy::host::Host;
use crate::control::privileges::{self, Account};
use crate::control::server::Server;
use crate::hook::{Programs, Refusal};
use crate::install::ports::Ports;

/// The processes that keep privileges while an interface is served, and the account that this one runs as then.
pub(super) struct Privileged {
    loader: Arc<LoaderProcess>,
    hook: Result<Arc<HookProcess>, HookUnavailable>,
    pub(super) account: Account,
}

impl Privileged {
    pub(super) fn start(config: &Config) -> Result<Option<Self>, DaemonError> {
        let account = account(config);
        let account = account.map_err(|error| ConfigErrors { file: config.file.clone(), errors: vec![error] })?;
        let Some(account) = account else { return Ok(None) };
        let loader = LoaderProcess::start().map_err(DaemonError::Loader)?;
        let hook = HookProcess::start(Path::new("/proc/self/exe"), config.kernel_tier).map(Arc::new);
        if let Err(reason @ (HookUnavailable::Missing(_) | HookUnavailable::NotStarted(_))) = &hook {
            tracing::warn!("handlers run in user space only: {reason}");
        }
        Ok(Some(Self { loader: Arc::new(loader), hook, account }))
    }
}

/// What loads programs into the hook, or why there is none.
pub(super) type HookAccess = Result<Arc<dyn Programs>, Refusal>;

/// Gives up privileges. The loader process and the hook process keep a few of them.
pub(super) fn give_up_privileges(
    privileged: Option<Privileged>,
    config: &Config,
    descriptors: Descriptors,
    server: &mut Server,
    filter: Option<&Filter>,
) -> Result<(Host, HookAccess), DaemonError> {
    let (host, programs) = match (privileged, &config.nic) {
        (Some(Privileged { loader, hook, account }), Nic::Interface(name)) => {
            hand_over(&loader, server, filter)?;
            let programs = hook_access(hook, &loader, filter);
            privileges::become_user(&account).map_err(DaemonError::Privileges)?;
            let ports = Arc::new(Ports::new(loader.clone(), descriptors.ports()));
            (Host::Interface { name: name.clone(), ports, loader }, programs)
        }
        _ => (Host::Absent, Err(Refusal::of(&HookUnavailable::NoInterface))),
    };
    if !Executor::start_monitor() {
        tracing::info!("no real-time priority (CAP_SYS_NICE): timers look for handlers that run too long");
    }
    privileges::drop_all().and_then(|()| privileges::confine_packet_threads()).map_err(DaemonError::Privileges)?;
    Ok((host, programs))
}

/// Programs of the hook process that hand packets to the sockets of the filter.
fn hook_access(
    hook: Result<Arc<HookProcess>, HookUnavailable>,
    loader: &Arc<LoaderProcess>,
    filter: Option<&Filter>,
) -> HookAccess {
    let hook = hook.map_err(|error| Refusal::of(&error))?;
    let filter = filter.ok_or_else(|| Refusal::of(&HookUnavailable::NoInterface))?;
    let programs = HookPrograms::new(hook, loader.clone(), filter.sockets());
    programs.map(|programs| Arc::new(programs) as _).map_err(|error| Refusal::of(&error))
}

/// Hands over to the loader process what needs privileges.
fn hand_over(loader: &Arc<LoaderProcess>, server: &mut Server, filter: Option<&Filter>) -> Result<(), DaemonError> {
    server.entrust_files(loader).map_err(DaemonError::Loader)?;
    if let Some(filter) = filter {
        loader.take_rules(filter.rule_maps(), filter.programs()).map_err(DaemonError::Loader)?;
        filter.delegate(loader.clone());
    }
    Ok(())
}
