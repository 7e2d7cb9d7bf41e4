//! Checks the structure of the repository's crates: module circles, and the size of files, functions and types.
//!
//! Usage: `structure-lint [--write-known] [REPOSITORY]`. The lists `exempt.txt` and `known.txt` are in
//! `.ci/structure` of the repository.

mod circles;
mod imports;
mod known;
mod names;
mod references;
mod rules;
mod sizes;
mod sources;
mod test_code;
#[cfg(test)]
mod tests;
mod tree;
mod types;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use known::{Violation, compare, entries, list};

const EXEMPT: &str = ".ci/structure/exempt.txt";
const KNOWN: &str = ".ci/structure/known.txt";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether nothing has to be changed.
fn run() -> Result<bool, String> {
    let mut write_known = false;
    let mut repository = PathBuf::from(".");
    for argument in env::args_os().skip(1) {
        match argument.to_str() {
            Some("--write-known") => write_known = true,
            Some(option) if option.starts_with('-') => return Err(format!("unknown option {option}")),
            _ => repository = PathBuf::from(argument),
        }
    }
    let exempt = read(&repository, EXEMPT)?;
    let result = rules::check(&sources::read_crates(&repository)?, &exempt)?;
    if write_known {
        fs::write(repository.join(KNOWN), list(&result.violations)).map_err(|error| format!("{KNOWN}: {error}"))?;
    }
    let known = read(&repository, KNOWN)?;
    let lists_are_right = report(&result.violations, &known);
    for name in &result.missing {
        println!("{EXEMPT}: there is no struct {name}: remove this line");
    }
    Ok(lists_are_right && result.missing.is_empty())
}

fn read(repository: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(repository.join(path)).map_err(|error| format!("{path}: {error}"))
}

/// Prints what is new or no longer needed; returns whether that is nothing.
fn report(violations: &[Violation], known: &str) -> bool {
    let comparison = compare(violations, known);
    for violation in &comparison.new {
        println!("{}", violation.message);
    }
    for line in &comparison.stale {
        println!("{KNOWN}: no longer violated: remove the line `{line}`");
    }
    for line in &comparison.smaller {
        println!("note: this circle has fewer modules now; `.ci/lint-structure --write-known` records that: {line}");
    }
    println!("structure: {}, {} new", counts(known), comparison.new.len());
    comparison.new.is_empty() && comparison.stale.is_empty()
}

/// Known violations by rule.
fn counts(known: &str) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in entries(known) {
        *counts.entry(line.split(' ').next().unwrap_or_default()).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
    if counts.is_empty() {
        "no known violations".to_owned()
    } else {
        format!("known violations: {}", counts.join(", "))
    }
}
