//! Contexts of the configuration: their images are read, and the contexts checked and prepared, all before one is installed.

use std::collections::HashMap;

use spin_abi::control::{Install, Tier};
use spin_matcher::{Table, TableEntry};

use super::config::{Config, ConfigError, ConfigErrors, ContextError, StaticContext};
use super::host::memory;
use crate::context::FileId;
use crate::context::loader::Loader;
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
    loader.with_kernel_tier(config.kernel_tier).with_ledger(ledger(&config.limits).into())
}

/// The limits of users' memory.
fn ledger(limits: &Limits) -> Ledger {
    let total = limits.memory.unwrap_or_else(|| memory::limit() / 4 * 3);
    Ledger::new(total, limits.user_memory.unwrap_or(total / 2))
}

/// Checks all contexts, as [`prepare`]. Prepares those that run in user space at any rate. Whether the others run in the hook is not
/// known before the NIC is open.
///
/// # Errors
/// All that is wrong with them.
pub fn prepare_in_user_space(config: &Config, uid: u32, loader: &Loader) -> Result<Vec<Context>, ConfigErrors> {
    prepare(config, uid, loader, |description| !may_use_hook(config, description))
}

/// Prepares the contexts that [`prepare_in_user_space`] left.
///
/// # Errors
/// All that is wrong with them.
pub fn prepare_in_hook(
    config: &Config,
    uid: u32,
    loader: &Loader,
    contexts: &mut [Context],
) -> Result<(), ConfigErrors> {
    if config.kernel_tier {
        let others = prepare(config, uid, loader, |description| may_use_hook(config, description))?;
        for ((_, prepared), (_, other)) in contexts.iter_mut().zip(others) {
            *prepared = prepared.take().or(other);
        }
    }
    Ok(())
}

fn may_use_hook(config: &Config, description: &Description) -> bool {
    config.kernel_tier && description.install.tier != Tier::User
}

/// A context, prepared or only checked.
type Context = (Description, Option<Prepared>);

/// Checks all contexts of a configuration, for the administrator `uid`. Prepares those for which `is_needed`.
///
/// # Errors
/// All that is wrong with them.
pub fn prepare(
    config: &Config,
    uid: u32,
    loader: &Loader,
    is_needed: impl Fn(&Description) -> bool,
) -> Result<Vec<Context>, ConfigErrors> {
    let mut errors = ConfigErrors { file: config.file.clone(), ..ConfigErrors::default() };
    let (mut prepared, mut names) = (Vec::new(), HashMap::new());
    for (number, context) in (1..).zip(&config.contexts) {
        let name = name(context);
        let made = match names.insert(name.clone(), number) {
            Some(other) => Err(ContextError::SameName(other)),
            None => describe(context, name.clone()).and_then(|(description, file)| {
                let needed = is_needed(&description).then(|| description.install.clone());
                let made = needed.map(|install| Prepared::new(install, &file, uid, loader, &config.limits));
                Ok((description, made.transpose()?))
            }),
        };
        let image = context.image.clone();
        prepared.extend(errors.keep(made.map_err(|cause| ConfigError::Context { number, name, image, cause })));
    }
    let (count, most) = (config.contexts.len(), config.limits.contexts);
    errors.keep(if count > most { Err(ConfigError::ManyContexts { count, most }) } else { Ok(()) });
    errors.keep(check_rules(&config.contexts));
    if errors.errors.is_empty() { Ok(prepared) } else { Err(errors) }
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
