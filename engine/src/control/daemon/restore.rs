//! Installs persistent contexts again. An entry of the state folder is checked as a request of its owner would be. One that is refused
//! stays there, and the log names it: the next start may accept it, and `spinctl rm` removes it. A damaged one stays, too, and only an
//! administrator can remove it.

use crate::context::loader::Loader;
use crate::control::policy::host::Host;
use crate::control::server::Settings;
use crate::control::state::{Entry, LoadError, RankTable, State};
use crate::cores::{Transaction, WorkerGroup};
use crate::install::{InstallError, MatchSpec, Prepared, User};

/// Reason why a context is not restored.
#[derive(Debug, thiserror::Error)]
enum RestoreError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Install(#[from] InstallError),
}

/// Installs the contexts of all entries, in order of priority. Logs those that are not restored. Returns the ranks of the others.
pub fn restore(
    state: &State,
    entries: Vec<(u32, u32)>,
    group: &WorkerGroup,
    loader: &Loader,
    settings: &Settings,
    host: &Host,
) -> RankTable {
    let mut ranks = RankTable::default();
    let mut valid = None;
    for (rank, id) in entries {
        if valid == Some(rank) {
            state.remove_replaced(rank, id);
            continue;
        }
        let loaded = state.load(rank, id);
        if matches!(loaded, Ok(_) | Err(LoadError::Charge(_))) {
            valid = Some(rank);
        }
        let loaded = loaded.map_err(RestoreError::from);
        match loaded.and_then(|(entry, image)| install(group, loader, settings, host, id, entry, &image)) {
            Ok(()) => ranks.restore(id, rank),
            Err(error) => {
                let path = state.path_of(rank, id);
                tracing::error!("persistent context {id} is not restored: {}: {error}", path.display());
            }
        }
    }
    ranks
}

/// Installs the context of an entry.
fn install(
    group: &WorkerGroup,
    loader: &Loader,
    settings: &Settings,
    host: &Host,
    id: u32,
    Entry { uid, gid, install, administrator }: Entry,
    image: &[u8],
) -> Result<(), RestoreError> {
    let grant = settings.policy.grant(uid, gid, host);
    let rules = administrator.map(|set| MatchSpec::parse(&set.rules, set.eom.as_deref())).transpose()?;
    let prepared = Prepared::for_user(install, image, &grant, loader, &settings.limits)?;
    let mut described = prepared.describe();
    // What it replaced is gone.
    group.restore(prepared.replacing(None), id)?;
    if let Some(rules) = rules {
        described = format!("{described}, with rules of an administrator: {}", rules.rules());
        let rules = vec![(id, User(0), rules)];
        let changed = group.change(Transaction { rules, ..Transaction::default() }).ruled;
        if let Err(error) = changed.into_iter().collect::<Result<(), _>>() {
            // Its owner's rules alone may take packets that the administrator gave to others.
            group.remove(id, User(0))?;
            return Err(error.into());
        }
    }
    tracing::info!("restored context {id}: {described}");
    Ok(())
}
