//! The entries of all persistent contexts. One thread at a time changes an entry, and holds it by a [`Claim`]. The control thread makes
//! the claim of a new context before another thread can know its id.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use spin_abi::control::{BillKind, Lifetime};

use super::entry::{self, Entry, EntryError, RuleTexts};
use super::error::StateError;
use super::file_name;
use super::folder::{Folder, TemporaryFile};
use crate::control::config::Config;
use crate::control::privileges::Account;
use crate::install::User;
use crate::install::ledger::{Charge, Ledger, OverBudget};
use crate::settings::Limits;

/// Bytes that an entry is charged at least: a file takes a block and an inode.
const LEAST_CHARGE: u64 = 8 << 10;
/// The folder of a spind that root starts for the whole host.
const DEFAULT_FOLDER: &str = "/var/lib/spin";

/// Reason why an entry is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The file is damaged.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// Two entries are of one context.
    #[error("another entry has its id")]
    SameId,
    /// Such a context has no entry.
    #[error("its lifetime is {0}, not persistent")]
    Lifetime(Lifetime),
    /// The owner's limit is lower now.
    #[error(transparent)]
    Charge(#[from] OverBudget),
}

/// Entries of persistent contexts.
#[derive(Debug)]
pub struct State {
    folder: Folder,
    /// Maximum size of an image, in bytes.
    max_image: u64,
    /// Disk space is charged like memory.
    ledger: Arc<Ledger>,
    /// Entries by the contexts' ids.
    known: Mutex<HashMap<u32, Known>>,
    released: Condvar,
}

/// What is known of an entry.
#[derive(Debug)]
struct Known {
    uid: u32,
    rank: u32,
    claimed: bool,
    /// Whether it has a file.
    saved: bool,
    /// The charge for the file. `None`: its owner's limit is lower now.
    charge: Option<Charge>,
}

impl State {
    /// Opens the state folder of a configuration, if there is one, before privileges are given up. `account`: the one that spind runs as
    /// afterwards. By default there is a folder if root serves an interface at the default control socket with an account that owns files.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn open(
        config: &Config,
        account: Option<&Account>,
        max_image: u64,
        ledger: Arc<Ledger>,
    ) -> Result<Option<Self>, StateError> {
        let Some(path) = config.state.clone().or_else(|| default_folder(config, account)) else { return Ok(None) };
        if account.is_some_and(Account::is_nobody) {
            let path = path.display();
            tracing::warn!(
                "other processes of nobody can change state folder {path}: create an account (useradd --system spind)"
            );
        }
        let folder = Folder::open(&path, account)?;
        Ok(Some(Self { folder, max_image, ledger, known: Mutex::default(), released: Condvar::new() }))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes an entry to a temporary file, and charges its owner. All that may lack room is done here.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn stage(&self, entry: &Entry, image: &[u8]) -> Result<Staged<'_>, String> {
        let [head, tail] = entry.encode(image).map_err(|error| error.to_string())?;
        let bytes = [&head, image, &tail].iter().map(|part| part.len() as u64).sum::<u64>();
        let charge = self.ledger.charge(entry.uid, BillKind::Images, bytes.max(LEAST_CHARGE));
        let charge = charge.map_err(|refusal| refusal.to_string())?;
        let file = self.folder.write(&[&head, image, &tail]).map_err(|error| self.failed("write", &error))?;
        Ok(Staged { file, charge })
    }

    /// Refuses further entries of a user whose entries that could not be restored fill the limits. Others count as contexts.
    ///
    /// # Errors
    /// The limit.
    pub fn check_count(&self, uid: u32, limits: &Limits) -> Result<(), String> {
        let known = self.lock();
        let own = known.values().filter(|known| known.uid == uid).count();
        let most_own = if uid == 0 { limits.contexts } else { limits.user_contexts.unwrap_or(limits.contexts / 2) };
        let (count, most) = if own >= most_own.max(1) { (own, most_own) } else { (known.len(), limits.contexts) };
        if count < most {
            return Ok(());
        }
        Err(format!("{count} persistent contexts, also those that could not be restored: at most {most}; remove some"))
    }

    /// A new context is to get an entry. Called by the control thread before another thread can know the context.
    pub fn announce(&self, id: u32, uid: u32, rank: u32) {
        self.lock().insert(id, Known { uid, rank, claimed: true, saved: false, charge: None });
    }

    /// The claim of an announced context, for the thread that asked for the context.
    pub fn announced(&self, id: u32) -> Claim<'_> {
        Claim { state: self, id }
    }

    /// Claims the entry of a context that a user may change. Waits while another thread has it. `None`: there is none.
    pub fn claim(&self, id: u32, user: User) -> Option<Claim<'_>> {
        let may_change = |known: &&mut Known| user.may_change(known.uid);
        let is_claimed =
            |known: &mut HashMap<u32, Known>| known.get_mut(&id).filter(may_change).is_some_and(|it| it.claimed);
        let known = self.released.wait_while(self.lock(), is_claimed);
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        known.get_mut(&id).filter(may_change)?.claimed = true;
        drop(known);
        Some(Claim { state: self, id })
    }

    /// Ranks and ids of all entries, by rank. Of those with one rank the latest is the first: it replaced the others, which a crash left.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn entries(&self) -> io::Result<Vec<(u32, u32)>> {
        let mut entries = Vec::new();
        for file in &self.folder.names()? {
            match file_name::parse(file) {
                Some(entry) => entries.push(entry),
                None => tracing::warn!("{}: {file:?} is no entry", self.path().display()),
            }
        }
        entries.sort_unstable_by_key(|&(rank, id)| (rank, u32::MAX - id));
        Ok(entries)
    }

    /// Path of an entry, for the log.
    pub fn path_of(&self, rank: u32, id: u32) -> PathBuf {
        self.path().join(file_name::of(rank, id))
    }

    /// Reads an entry and its image. From then on the owner may remove it.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(&self, rank: u32, id: u32) -> Result<(Entry, Vec<u8>), LoadError> {
        let bytes = self.folder.read(&file_name::of(rank, id), entry::max_len(self.max_image))?;
        let (entry, image) = Entry::decode(&bytes, self.max_image)?;
        if entry.install.lifetime != Lifetime::Persistent {
            return Err(LoadError::Lifetime(entry.install.lifetime));
        }
        let charge = self.ledger.charge(entry.uid, BillKind::Images, (bytes.len() as u64).max(LEAST_CHARGE));
        let (charge, refusal) = charge.map_or_else(|refusal| (None, Some(refusal)), |charge| (Some(charge), None));
        let known = Known { uid: entry.uid, rank, claimed: false, saved: true, charge };
        match self.lock().entry(id) {
            Occupied(_) => return Err(LoadError::SameId),
            Vacant(free) => drop(free.insert(known)),
        }
        let image = image.to_vec();
        refusal.map_or(Ok((entry, image)), |refusal| Err(refusal.into()))
    }

    /// Removes an entry whose context was replaced before a crash.
    pub fn remove_replaced(&self, rank: u32, id: u32) {
        if let Err(error) = self.folder.remove(&file_name::of(rank, id)) {
            tracing::warn!("{}", self.failed("remove", &error));
        }
    }

    fn failed(&self, what: &str, error: &dyn fmt::Display) -> String {
        format!("cannot {what} an entry in state folder {}: {error}", self.path().display())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Known>> {
        // Each change is one step.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The folder of a spind that serves the whole host.
fn default_folder(config: &Config, account: Option<&Account>) -> Option<PathBuf> {
    let is_own = rustix::process::geteuid().is_root() && account.is_some_and(|account| !account.is_nobody());
    (is_own && config.socket == Path::new(spin_abi::control::DEFAULT_SOCKET)).then(|| DEFAULT_FOLDER.into())
}

/// An entry that is written, and not yet valid. Dropped, it is gone.
#[derive(Debug)]
pub struct Staged<'s> {
    file: TemporaryFile<'s>,
    charge: Charge,
}

/// The right of one thread to change an entry.
#[derive(Debug)]
pub struct Claim<'s> {
    state: &'s State,
    id: u32,
}

impl Claim<'_> {
    /// Makes a staged entry valid, in place of the former one.
    ///
    /// # Errors
    /// The former entry is valid, or the new one. A context that had none has none.
    pub fn save(&self, Staged { file, charge }: Staged<'_>) -> Result<(), String> {
        let name = self.name();
        let renamed = file.rename(&name).map_err(|error| self.state.failed("name", &error));
        let mut entries = self.state.lock();
        let Some(known) = entries.get_mut(&self.id) else { return renamed };
        if renamed.is_ok() {
            (known.saved, known.charge) = (true, Some(charge));
        } else if !known.saved {
            drop(entries);
            // It may have its name already.
            let _ = self.state.folder.remove(&name);
        }
        renamed
    }

    /// Removes the entry.
    ///
    /// # Errors
    /// The entry may remain.
    pub fn delete(self) -> Result<(), String> {
        self.state.folder.remove(&self.name()).map_err(|error| self.state.failed("remove", &error))?;
        self.state.lock().remove(&self.id);
        Ok(())
    }

    /// Stages the entry with other rules, which a user set.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn stage_rules(&self, user: User, texts: RuleTexts) -> Result<Staged<'_>, String> {
        let State { folder, ledger, max_image, .. } = self.state;
        let most = entry::max_len(*max_image);
        let _charge = ledger.charge(user.0, BillKind::Requests, most).map_err(|refusal| refusal.to_string())?;
        let bytes = folder.read(&self.name(), most).map_err(|error| self.state.failed("read", &error))?;
        let decoded = Entry::decode(&bytes, *max_image);
        let (mut entry, image) = decoded.map_err(|error| self.state.failed("read", &error))?;
        entry.set_rules(user.0, texts);
        self.state.stage(&entry, image)
    }

    fn name(&self) -> String {
        let rank = self.state.lock().get(&self.id).map_or(self.id, |known| known.rank);
        file_name::of(rank, self.id)
    }
}

/// Releases the entry. Forgets it if it has no file.
impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut known = self.state.lock();
        if let Some(entry) = known.get_mut(&self.id) {
            entry.claimed = false;
            if !entry.saved {
                known.remove(&self.id);
            }
        }
        drop(known);
        self.state.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Condvar, Mutex};
    use std::thread;
    use std::time::Duration;

    use spin_abi::control::{Install, Lifetime};

    use super::{Entry, Folder, Ledger, State};
    use crate::install::User;
    use crate::settings::Limits;

    const USER: u32 = 7;

    /// A state folder of users who may have 100 KiB each.
    fn state(folder: &tempfile::TempDir) -> State {
        let ledger = Arc::new(Ledger::new(u64::MAX, 100 << 10));
        let folder = Folder::open(&folder.path().join("state"), None).expect("a new folder");
        State { folder, max_image: 1 << 20, ledger, known: Mutex::new(HashMap::new()), released: Condvar::new() }
    }

    fn entry() -> Entry {
        let install = Install { lifetime: Lifetime::Persistent, ..Install::default() };
        Entry { uid: USER, gid: USER, install, administrator: None }
    }

    #[test]
    fn disk_space_is_on_the_bill_until_the_entry_is_gone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = state(&folder);
        let save = |id| {
            let staged = state.stage(&entry(), &[1; 40 << 10])?;
            state.announce(id, USER, id);
            state.announced(id).save(staged)
        };
        assert_eq!((save(1), save(2)), (Ok(()), Ok(())));
        let refused = save(3).expect_err("more than 100 KiB");
        assert!(refused.starts_with("an image of"), "{refused}");
        let files = || {
            let files = folder
                .path()
                .join("state")
                .read_dir()
                .expect("a folder")
                .map(|file| file.expect("readable").metadata());
            files.map(|file| file.expect("readable").len()).sum::<u64>()
        };
        assert!(files() > 80 << 10 && files() < 100 << 10, "{}", files());
        assert!(state.claim(2, User(0)).expect("root may").delete().is_ok() && files() < 50 << 10);
        assert_eq!(save(3), Ok(()));
        // A start charges what is there.
        drop(state);
        let state = self::state(&folder);
        for (rank, id) in state.entries().expect("a folder") {
            assert_eq!(state.load(rank, id).expect("undamaged").1.len(), 40 << 10);
        }
        assert!(state.stage(&entry(), &[1; 40 << 10]).is_err());
        let limits = Limits { user_contexts: Some(2), ..Limits::default() };
        assert!(state.check_count(USER, &limits).is_err() && state.check_count(USER + 1, &limits).is_ok());
        assert!(state.check_count(0, &Limits { contexts: 2, ..limits }).is_err());
    }

    #[test]
    fn one_thread_at_a_time_has_an_entry_and_only_its_user_may() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = state(&folder);
        state.announce(1, USER, 1);
        assert!(state.claim(1, User(USER + 1)).is_none() && state.claim(2, User(USER)).is_none());
        let (sender, claimed) = channel();
        thread::scope(|scope| {
            let first = state.announced(1);
            scope.spawn(|| sender.send(state.claim(1, User(USER)).is_some()));
            assert!(claimed.recv_timeout(Duration::from_millis(50)).is_err(), "another thread has it");
            first.save(state.stage(&entry(), &[]).expect("there is room")).expect("saved");
            drop(first);
            assert_eq!(claimed.recv(), Ok(true));
        });
        // What was announced and not saved is forgotten.
        state.announce(3, USER, 3);
        drop(state.announced(3));
        assert!(state.claim(3, User(USER)).is_none());
    }
}
