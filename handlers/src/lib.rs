//! Images of the handlers in this folder, for tests: compiled from C with the SDK's `spin-cc`.
//!
//! The repository contains no images, so tests use what a user would build. Only for `dev-dependencies`.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// Reason why an image cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file error, or `spin-cc` could not be started.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// `spin-cc` refused the source; the text is its output.
    #[error("{0}")]
    Compiler(String),
}

/// Returns the folder of the handlers: this crate's.
#[must_use]
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the path of the SDK's compiler driver.
#[must_use]
pub fn spin_cc() -> PathBuf {
    folder().join("sdk/bin/spin-cc")
}

/// Returns the path of a handler's source by its name: `icmp_echo`, or one of the test handlers in `testing`.
///
/// # Panics
/// When the handler does not exist.
#[must_use]
pub fn source(name: &str) -> PathBuf {
    let file = format!("{name}.c");
    let found = [folder().join(name).join(&file), folder().join("testing").join(&file)];
    found.into_iter().find(|path| path.is_file()).unwrap_or_else(|| panic!("no handler {name} in {:?}", folder()))
}

/// Compiles sources with further arguments to `spin-cc` and returns the image.
///
/// # Errors
/// See [`BuildError`].
pub fn try_build(sources: &[&Path], arguments: &[&str]) -> Result<Vec<u8>, BuildError> {
    let folder = tempfile::tempdir().map_err(|source| BuildError::Io { path: std::env::temp_dir(), source })?;
    let image = folder.path().join("handler.elf");
    let output = Command::new(spin_cc())
        .args(sources)
        .args(arguments)
        .arg("-o")
        .arg(&image)
        .output()
        .map_err(|source| BuildError::Io { path: spin_cc(), source })?;
    if !output.status.success() {
        return Err(BuildError::Compiler(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    std::fs::read(&image).map_err(|source| BuildError::Io { path: image, source })
}

/// Compiles one source; warnings are errors, since these are the project's own handlers.
///
/// # Panics
/// When the source does not compile; the message contains the compiler's output.
#[must_use]
pub fn build(source: &Path) -> Vec<u8> {
    try_build(&[source], &["-Werror"]).unwrap_or_else(|error| panic!("{}: {error}", source.display()))
}

/// Returns the image of a handler, compiled once with further arguments to `spin-cc`; warnings are errors.
///
/// # Panics
/// When the handler does not exist or does not compile.
#[must_use]
pub fn image(name: &str, arguments: &[&str]) -> Arc<[u8]> {
    static KNOWN: Mutex<BTreeMap<String, Arc<[u8]>>> = Mutex::new(BTreeMap::new());
    let all = [&[name], arguments, &["-Werror"]].concat();
    // Poisoning is ignored: a handler that does not compile fails every test that needs it.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let compile = || {
        let image = try_build(&[&source(name)], &all[1..]);
        image.unwrap_or_else(|error| panic!("{name}: {error}")).into()
    };
    known.entry(all.join(" ")).or_insert_with(compile).clone()
}
