//! Images of the handlers in this folder, for tests: compiled from C with the SDK's `spin-cc`.
//!
//! No image is kept in the repository, so what is tested is what a user gets. Only for `dev-dependencies`.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The file system, or `spin-cc` could not be started.
    #[error("{path}: {source}")]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// `spin-cc` refused; the text is what it printed.
    #[error("{0}")]
    Compiler(String),
}

/// Folder of the handlers: this crate's.
#[must_use]
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The SDK's compiler driver.
#[must_use]
pub fn spin_cc() -> PathBuf {
    folder().join("sdk/bin/spin-cc")
}

/// Path of a handler's source by its name: `icmp_echo`, or one of the misbehaving ones in `testing`.
///
/// # Panics
/// When there is no such handler.
#[must_use]
pub fn source(name: &str) -> PathBuf {
    let file = format!("{name}.c");
    let found = [folder().join(name).join(&file), folder().join("testing").join(&file)];
    found.into_iter().find(|path| path.is_file()).unwrap_or_else(|| panic!("no handler {name} in {:?}", folder()))
}

/// Compiles sources with further arguments to `spin-cc` and gives the image.
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

/// Compiles one source; warnings are errors, for these are our own handlers.
///
/// # Panics
/// When it does not compile, with what the compiler said.
#[must_use]
pub fn build(source: &Path) -> Vec<u8> {
    try_build(&[source], &["-Werror"]).unwrap_or_else(|error| panic!("{}: {error}", source.display()))
}

/// The image of a handler with further arguments to `spin-cc`, compiled once; warnings are errors.
///
/// # Panics
/// When there is no such handler, or it does not compile.
#[must_use]
pub fn image(name: &str, arguments: &[&str]) -> Arc<[u8]> {
    static KNOWN: Mutex<BTreeMap<String, Arc<[u8]>>> = Mutex::new(BTreeMap::new());
    let all = [&[name], arguments, &["-Werror"]].concat();
    // A handler that does not compile fails every test that needs it.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let compile = || {
        let image = try_build(&[&source(name)], &all[1..]);
        image.unwrap_or_else(|error| panic!("{name}: {error}")).into()
    };
    known.entry(all.join(" ")).or_insert_with(compile).clone()
}
