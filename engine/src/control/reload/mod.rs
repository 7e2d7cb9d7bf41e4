//! Reads the configuration again at SIGHUP, on a thread of its own. Contexts of the file are compared by name: those that did not change
//! are left alone. A file with an error changes nothing.
//!
//! The thread has no privileges, as all threads of this process. The files must be readable for the account that spind runs as.
//!
//! * `merge`: the settings that a file changes, and those that only a restart changes.

mod merge;

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use signal_hook::consts::SIGHUP;
use spin_abi::control::{Reply, Request};

use crate::context::loader::Loader;
use crate::context::niceness::lower_priority;
use crate::control::capabilities;
use crate::control::config::{Config, ConfigErrors};
use crate::control::descriptors::Descriptors;
use crate::control::notify::Notifier;
use crate::control::server::{Answer, ControlHandle, CurrentSettings, Settings, Work};
use crate::control::static_contexts::{self, Description};
use crate::cores::Transaction;
use crate::install::{Prepared, User};
use crate::settings::Limits;
use merge::merge;

/// Reads and checks the configuration.
type ReadConfig = Box<dyn Fn() -> Result<Config, ConfigErrors> + Send>;

/// The signals that ask for a reload.
pub struct HangUps {
    signals: UnixStream,
    read: ReadConfig,
}

impl HangUps {
    /// Catches SIGHUP from now on. `read` reads the configuration.
    ///
    /// # Errors
    /// The system refuses.
    pub fn catch(read: impl Fn() -> Result<Config, ConfigErrors> + Send + 'static) -> io::Result<Self> {
        let (signals, handler) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(SIGHUP, handler)?;
        Ok(Self { signals, read: Box::new(read) })
    }
}

/// Contexts of the configuration that were installed, with their ids.
pub type Installed = Vec<(Description, u32)>;

/// Carries out reloads.
pub struct Reloader {
    /// The configuration in force.
    pub config: Config,
    /// The user who owns the configuration's contexts.
    pub uid: u32,
    /// Contexts of the configuration.
    pub installed: Installed,
    /// The loader of images.
    pub loader: Arc<Loader>,
    /// Settings of connections.
    pub settings: CurrentSettings,
    /// Asks the control thread.
    pub control: ControlHandle,
    /// Tells the service manager.
    pub notifier: Arc<Notifier>,
}

impl Reloader {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system provides no thread.
    pub fn start(mut self, HangUps { mut signals, read }: HangUps) -> io::Result<()> {
        self.warn_of_unreadable_files();
        let run = move || {
            lower_priority();
            // Signals that arrive during a reload are one signal after it.
            loop {
                match signals.read(&mut [0; 64]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return,
                }
                self.notifier.reloading();
                self.reload(&read);
                self.notifier.ready();
            }
        };
        thread::Builder::new().name("reload".into()).spawn(run).map(drop)
    }

    fn warn_of_unreadable_files(&self) {
        let files = self.config.file.iter().chain(self.config.contexts.iter().map(|context| &context.image));
        let unreadable = files.filter_map(|file| Some((file, std::fs::File::open(file).err()?)));
        for (file, error) in unreadable.take(1) {
            let file = file.display();
            tracing::warn!("SIGHUP will be refused while {file} is not readable for spind's account: {error}");
        }
    }

    fn reload(&mut self, read: &ReadConfig) {
        let changed = read().map_err(|errors| errors.lines().collect()).and_then(|config| self.apply(config));
        if let Err(errors) = changed {
            errors.iter().for_each(|error| tracing::error!("{error}"));
            let message = format!("configuration refused, nothing changed: {} errors", errors.len());
            tracing::error!("{message}");
            self.notifier.status(&message);
        }
    }

    /// Checks all of a configuration, then carries out what it changes.
    fn apply(&mut self, new: Config) -> Result<(), Vec<String>> {
        let (config, fixed) = merge(&self.config, new);
        let config = Config { limits: Descriptors::current().fit(config.limits, config.kernel_tier), ..config };
        let living = self.living().map_err(|error| vec![error])?;
        let known = self.installed.iter().filter(|(_, id)| living.contains(id));
        let known: HashMap<_, _> = known.map(|known| (known.0.install.name.clone(), known.clone())).collect();
        let stays = |new: &Description| known.get(&new.install.name).is_some_and(|(old, _)| old == new);
        // New limits may exclude contexts that did not change.
        let checks_all = config.limits != self.config.limits;
        let prepared = static_contexts::prepare(&config, self.uid, &self.loader, |new| checks_all || !stays(new))
            .map_err(|errors| errors.lines().collect::<Vec<_>>())?;
        let mut plan = Plan { gone: known, ..Plan::default() };
        prepared.into_iter().for_each(|(description, prepared)| plan.add(description, prepared));
        let changes = self.carry_out(plan, config.limits).map_err(|error| vec![error])?;
        if !fixed.is_empty() {
            tracing::warn!("a restart is needed for changes of: {}; these keep their values", fixed.join(", "));
        }
        let mut capabilities = self.settings.get().capabilities.clone();
        capabilities::set_limits(&mut capabilities, &config);
        self.settings.set(Settings { limits: config.limits, policy: config.policy.clone(), capabilities });
        self.config = config;
        tracing::info!("configuration read again: contexts: {changes}");
        Ok(())
    }

    /// Has the control thread change contexts together. One that the engine refuses is logged, and its old one stays. Returns the
    /// numbers of changes as text.
    fn carry_out(&mut self, plan: Plan, limits: Limits) -> Result<String, String> {
        let Plan { kept, new, gone, installs } = plan;
        let gone: Installed = gone.into_values().collect();
        let removals = gone.iter().map(|(_, id)| (*id, User(0))).collect();
        let transaction = Transaction { installs, removals, ..Transaction::default() };
        let Answer::Changed(result) = self.control.ask(User(0), Work::Change(Box::new(transaction), limits))? else {
            return Err("the engine gave an unexpected answer".to_owned());
        };
        let (stay, removed) = (kept.len(), gone.len());
        let [mut replaced, mut added, mut refused] = [0; 3];
        self.installed = kept;
        for (New { description, old }, installed) in new.into_iter().zip(result.installed) {
            match installed {
                Ok(id) => {
                    *(if old.is_some() { &mut replaced } else { &mut added }) += 1;
                    self.installed.push((description, id));
                }
                Err(error) => {
                    refused += 1;
                    tracing::error!("context {} is not installed: {error}", description.install.name);
                    self.installed.extend(old);
                }
            }
        }
        Ok(format!("{stay} stay, {replaced} replaced, {added} new, {removed} removed, {refused} refused"))
    }

    /// Ids of all contexts. An administrator may have removed some of the configuration.
    fn living(&self) -> Result<HashSet<u32>, String> {
        match self.control.ask(User(0), Work::Request(Request::List, User(0)))? {
            Answer::Reply(Reply::Contexts { contexts }, ..) => Ok(contexts.iter().map(|info| info.context).collect()),
            _ => Err("the engine gave an unexpected answer".to_owned()),
        }
    }
}

/// A context that is to be installed.
struct New {
    description: Description,
    /// The context that it replaces.
    old: Option<(Description, u32)>,
}

/// What a configuration changes.
#[derive(Default)]
struct Plan {
    kept: Installed,
    new: Vec<New>,
    /// Contexts that it does not name, by name.
    gone: HashMap<String, (Description, u32)>,
    /// The contexts of `new`, ready to be installed.
    installs: Vec<Prepared>,
}

impl Plan {
    fn add(&mut self, description: Description, prepared: Option<Prepared>) {
        match (self.gone.remove(&description.install.name), prepared) {
            (Some((same, id)), _) if same == description => self.kept.push((same, id)),
            (old, Some(prepared)) => {
                self.installs.push(prepared.replacing(old.as_ref().map(|(_, id)| *id)));
                self.new.push(New { description, old });
            }
            // Only contexts that stay are not prepared.
            (_, None) => {}
        }
    }
}
