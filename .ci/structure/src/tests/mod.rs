//! Small made-up crates for each rule: some that break it, and some that do not.

mod circles;
mod known;
mod sizes;
mod types;

use crate::rules::{Checked, check};
use crate::sources::{Crate, Files, find_targets};

/// Checks a crate `made` with these files below `src`.
fn check_crate(files: &[(&str, &str)], exempt: &str) -> Checked {
    let files: Files = files.iter().map(|(path, text)| (format!("made/src/{path}"), (*text).to_owned())).collect();
    let targets = find_targets("made", &files);
    check(&[Crate { targets, files }], exempt).unwrap()
}

/// Keys of the violations of such a crate.
fn keys(files: &[(&str, &str)]) -> Vec<String> {
    check_crate(files, "").violations.into_iter().map(|violation| violation.key).collect()
}
