//! Contexts of the configuration: their images are read, and the contexts checked and prepared, all before one is installed.

use std::collections::HashMap;

use spin_abi::control::{Install, Tier};
use spin_matcher::{Table, TableEntry};

use super::config::{Config, ConfigError, ConfigErrors, ContextError, StaticContext};
use super::host::memory;
use crate::context::FileId;
use crate::context::loader::Loader;
use crate::cores::units::count_units;
use crate::install::ledger::Ledger;
use crate::install::{MatchSpec, Prepared};
use crate::settings::Limits;

/// A context as the configuration describes it. Two that are equal need not be exchanged for each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The install request, with a name.
    pub install: Install,
    /// Contents of the image.
    pub image: FileId,
}

/// A loader with the machine, engine, tiers and limits of a configuration.
#[must_use]
pub fn loader(config: &Config) -> Loader {
    let loader = Loader::new(config.machine, config.engine).with_compat(config.compat);
    let loader = loader.with_units(count_units(&config.workers), config.sizes.queues);
    loader.with_kernel_tier(config.kernel_tier).with_ledger(ledger(&config.limits).into())
}

/// The limits of users' memory.
fn ledger(limits: &Limits) -> Ledger {
    let total = limits.memory.unwrap_or_else(|| memory::limit() / 4 * 3);
    Ledger::new(total, limits.user_memory.unwrap_or(total / 2))
}

/// A context before the NIC is open.
pub enum Waiting {
    /// The context runs in user space.
    Prepared(Box<Prepared>),
    /// Its image's file, because the context may run in the hook, which there is only once the NIC is open. The account that spind runs as
    /// then need not be able to read the file.
    Image(Vec<u8>),
}

/// Reads all contexts of a configuration, and prepares those that run in user space at any rate, for the administrator `uid`.
///
/// # Errors
/// All that is wrong with them.
pub fn prepare_in_user_space(
    config: &Config,
    uid: u32,
    loader: &Loader,
) -> Result<Vec<(Description, Waiting)>, ConfigErrors> {
    read_all(config, |description, file| {
        let waiting = if config.kernel_tier && description.install.tier != Tier::User {
            Waiting::Image(file)
        } else {
            let prepared = Prepared::new(description.install.clone(), &file, uid, loader, &config.limits)?;
            Waiting::Prepared(Box::new(prepared))
        };
        Ok((description, waiting))
    })
}

/// Prepares the contexts that [`prepare_in_user_space`] left.
///
/// # Errors
/// All that is wrong with them.
pub fn prepare_in_hook(
    config: &Config,
    uid: u32,
    loader: &Loader,
    contexts: Vec<(Description, Waiting)>,
) -> Result<Vec<(Description, Prepared)>, ConfigErrors> {
    let mut errors = ConfigErrors { file: config.file.clone(), ..ConfigErrors::default() };
    let mut prepared = Vec::new();
    for (number, (context, (description, waiting))) in (1..).zip(config.contexts.iter().zip(contexts)) {
        let made = match waiting {
            Waiting::Prepared(prepared) => Ok(*prepared),
            Waiting::Image(file) => Prepared::new(description.install.clone(), &file, uid, loader, &config.limits)
                .map_err(ContextError::from),
        };
        let (name, image) = (description.install.name.clone(), context.image.clone());
        let made = made.map_err(|cause| ConfigError::Context { number, name, image, cause });
        prepared.extend(errors.keep(made).map(|made| (description, made)));
    }
    if errors.errors.is_empty() { Ok(prepared) } else { Err(errors) }
}

/// Checks all contexts of a configuration, for the administrator `uid`. Prepares those for which `is_needed`.
///
/// # Errors
/// All that is wrong with them.
pub fn prepare(
    config: &Config,
    uid: u32,
    loader: &Loader,
    is_needed: impl Fn(&Description) -> bool,
) -> Result<Vec<(Description, Option<Prepared>)>, ConfigErrors> {
    read_all(config, |description, file| {
        let needed = is_needed(&description).then(|| description.install.clone());
        let made = needed.map(|install| Prepared::new(install, &file, uid, loader, &config.limits));
        Ok((description, made.transpose()?))
    })
}

/// Reads all contexts of a configuration with their images, and makes something of each.
fn read_all<T>(
    config: &Config,
    make: impl Fn(Description, Vec<u8>) -> Result<T, ContextError>,
) -> Result<Vec<T>, ConfigErrors> {
    let mut errors = ConfigErrors { file: config.file.clone(), ..ConfigErrors::default() };
    let (mut all, mut names) = (Vec::new(), HashMap::new());
    for (number, context) in (1..).zip(&config.contexts) {
        let name = name(context);
        let made = match names.insert(name.clone(), number) {
            Some(other) => Err(ContextError::SameName(other)),
            None => describe(context, name.clone()).and_then(|(description, file)| make(description, file)),
        };
        let image = context.image.clone();
        all.extend(errors.keep(made.map_err(|cause| ConfigError::Context { number, name, image, cause })));
    }
    let (count, most) = (config.contexts.len(), config.limits.contexts);
    errors.keep(if count > most { Err(ConfigError::ManyContexts { count, most }) } else { Ok(()) });
    errors.keep(check_rules(&config.contexts));
    if errors.errors.is_empty() { Ok(all) } else { Err(errors) }
}

/// A context and its image.
fn describe(context: &StaticContext, name: String) -> Result<(Description, Vec<u8>), ContextError> {
    let file = std::fs::read(&context.image)?;
    let install = Install { name, ..context.install.clone() };
    Ok((Description { install, image: FileId::of(&file) }, file))
}

/// The name of a context: by default its image's.
fn name(context: &StaticContext) -> String {
    let given = Some(&context.install.name).filter(|name| !name.is_empty()).cloned();
    given.unwrap_or_else(|| context.image.file_stem().unwrap_or_default().to_string_lossy().into_owned())
}

/// Checks that the rules of all contexts fit together. Rules that are wrong by themselves are errors of their context.
fn check_rules(contexts: &[StaticContext]) -> Result<(), ConfigError> {
    let entry = |(number, context): (u32, &StaticContext)| {
        let MatchSpec { rules, eom, .. } =
            MatchSpec::parse(&context.install.rules, context.install.eom.as_deref()).ok()?;
        Some(TableEntry { context: number, rules, eom, ..TableEntry::default() })
    };
    let entries: Vec<_> = (1..).zip(contexts).filter_map(entry).collect();
    Table::new(&entries).map(drop).map_err(ConfigError::Rules)
}
