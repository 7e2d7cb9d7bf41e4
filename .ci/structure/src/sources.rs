//! Finds the crates to check and reads their source files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Crates to check, besides those under `host`. A crate that does not exist yet is left out.
const CRATES: [&str; 7] = ["engine", "pspin", "hpu-vm", "frame", "nic", "matcher", "sync"];

/// Text of source files, by their path in the repository.
pub type Files = BTreeMap<String, String>;

/// A library, a program or a build script: one tree of modules.
pub struct Target {
    /// First part of the paths in messages and lists: `engine`, or `engine::main` for a program.
    pub label: String,
    /// Path of the root file in the repository.
    pub root: String,
}

/// A directory with a `Cargo.toml`.
pub struct Crate {
    pub targets: Vec<Target>,
    pub files: Files,
}

/// Reads all crates to check below the repository's root.
pub fn read_crates(repository: &Path) -> Result<Vec<Crate>, String> {
    let mut directories: Vec<String> = CRATES.iter().map(|name| (*name).to_owned()).collect();
    directories.extend(subdirectories(repository, "host")?);
    directories.retain(|directory| repository.join(directory).join("Cargo.toml").exists());
    directories.iter().map(|directory| read_crate(repository, directory)).collect()
}

fn subdirectories(repository: &Path, parent: &str) -> Result<Vec<String>, String> {
    let directory = repository.join(parent);
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&directory).map_err(|error| describe(parent, &error))? {
        let entry = entry.map_err(|error| describe(parent, &error))?;
        found.push(format!("{parent}/{}", entry.file_name().to_string_lossy()));
    }
    found.sort();
    Ok(found)
}

fn read_crate(repository: &Path, directory: &str) -> Result<Crate, String> {
    let mut files = Files::new();
    read_below(repository, &format!("{directory}/src"), &mut files)?;
    let build = format!("{directory}/build.rs");
    if repository.join(&build).exists() {
        read_file(repository, build, &mut files)?;
    }
    let targets = find_targets(directory, &files);
    Ok(Crate { targets, files })
}

fn read_below(repository: &Path, directory: &str, files: &mut Files) -> Result<(), String> {
    for path in subdirectories(repository, directory)? {
        if repository.join(&path).is_dir() {
            read_below(repository, &path, files)?;
        } else if Path::new(&path).extension().is_some_and(|extension| extension == "rs") {
            read_file(repository, path, files)?;
        }
    }
    Ok(())
}

fn read_file(repository: &Path, path: String, files: &mut Files) -> Result<(), String> {
    let text = fs::read_to_string(repository.join(&path)).map_err(|error| describe(&path, &error))?;
    files.insert(path, text);
    Ok(())
}

fn describe(path: &str, error: &io::Error) -> String {
    format!("{path}: {error}")
}

/// Targets at the places that cargo looks at by default.
pub fn find_targets(directory: &str, files: &Files) -> Vec<Target> {
    let name = directory.rsplit('/').next().unwrap_or(directory);
    let programs = format!("{directory}/src/bin/");
    let mut targets = Vec::new();
    for path in files.keys() {
        let label = if *path == format!("{directory}/src/lib.rs") {
            name.to_owned()
        } else if *path == format!("{directory}/src/main.rs") {
            format!("{name}::main")
        } else if *path == format!("{directory}/build.rs") {
            format!("{name}::build")
        } else if let Some(program) = path.strip_prefix(&programs).and_then(program_name) {
            format!("{name}::{program}")
        } else {
            continue;
        };
        targets.push(Target { label, root: path.clone() });
    }
    targets
}

/// `NAME.rs` and `NAME/main.rs` below `src/bin` are programs; other files there are modules of them.
fn program_name(below: &str) -> Option<&str> {
    let name = below.strip_suffix("/main.rs").or_else(|| below.strip_suffix(".rs"))?;
    (!name.contains('/')).then_some(name)
}
