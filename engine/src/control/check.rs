//! Checks a configuration as a whole, without opening anything but its files.

use super::config::{Config, ConfigError, ConfigErrors, File, Nic};
use super::privileges::Account;
use super::static_contexts::{self, loader};

/// Checks the values and contexts of a configuration file.
///
/// # Errors
/// All that is wrong with it.
pub fn check(file: File) -> Result<(), ConfigErrors> {
    let config = checked(file)?;
    let mut errors = check_contexts(&config).err().unwrap_or_default();
    errors.file.clone_from(&config.file);
    errors.keep(account(&config));
    if errors.errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Checks the values of a configuration.
///
/// # Errors
/// All that is wrong with it. If there is anything, also the errors of its contexts, so that nobody has to start twice to see them.
pub fn checked(file: File) -> Result<Config, ConfigErrors> {
    let contexts = contexts_alone(&file);
    Config::try_from(file).map_err(|mut errors| {
        let wrong = Config::try_from(contexts).and_then(|config| check_contexts(&config));
        errors.errors.extend(wrong.err().unwrap_or_default().errors);
        errors
    })
}

/// The account that spind runs as once an interface is open.
///
/// # Errors
/// [`ConfigError::NoAccount`].
pub fn account(config: &Config) -> Result<Option<Account>, ConfigError> {
    if !matches!(config.nic, Nic::Interface(_)) {
        return Ok(None);
    }
    let name = config.user.as_deref();
    let missing = || ConfigError::NoAccount(name.unwrap_or("nobody").to_owned());
    Account::find(name).ok_or_else(missing).map(Some)
}

fn check_contexts(config: &Config) -> Result<(), ConfigErrors> {
    let uid = rustix::process::getuid().as_raw();
    static_contexts::prepare(config, uid, &loader(config), |_| true).map(drop)
}

/// The contexts of a file, with those of its settings that they are checked against, if these are valid.
fn contexts_alone(file: &File) -> File {
    let File { preset, machine, engine, compat, kernel_tier, limits, context, .. } = file.clone();
    let nic = Some("loopback".to_owned());
    let settings = File { nic, preset, machine, engine, compat, kernel_tier, limits, ..File::default() };
    let settings = if Config::try_from(settings.clone()).is_ok() {
        settings
    } else {
        File { nic: settings.nic, ..File::default() }
    };
    File { context, ..settings }
}
