//! Checks the language of the repository: sentences of at most 30 words in Markdown and doc comments, and neither names nor words that
//! have plainer replacements.
//!
//! Usage: `language-lint [REPOSITORY]`. The lists `names.txt`, `words.txt` and `exceptions.txt` are in `.ci/language` of the repository.

mod names;
mod prose;
mod sentences;
mod words;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use prose::{Paragraph, markdown, rust};

const FOLDER: &str = ".ci/language";
/// Folders that are not the project's text.
const LEFT_OUT: [&str; 4] = ["target", ".git", "node_modules", ".cargo"];

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of findings.
fn run() -> Result<usize, String> {
    let repository = env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let list =
        |name: &str| -> Result<Vec<String>, String> { Ok(entries(&read(&repository, &format!("{FOLDER}/{name}"))?)) };
    let (names, words, exceptions) = (list("names.txt")?, list("words.txt")?, list("exceptions.txt")?);
    let words = words::Words::parse(&words)?;
    let names = names::Names::parse(&names)?;
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    let mut paths = Vec::new();
    find(&repository, Path::new(""), &mut paths).map_err(|error| format!("{}: {error}", repository.display()))?;
    for path in &paths {
        let text = read(&repository, path)?;
        let paragraphs = if path.ends_with(".md") { markdown(&text) } else { rust(&text) };
        for Paragraph { line, text } in &paragraphs {
            for found in sentences::too_long(text).into_iter().chain(words.find(text)) {
                match exceptions.iter().find(|exception| found.sentence.contains(exception.as_str())) {
                    Some(exception) => _ = used.insert(exception.clone()),
                    None => findings.push(format!("{path}:{line}: {}: {}", found.rule, found.sentence)),
                }
            }
        }
        if path.ends_with(".rs") {
            findings.extend(names.find(&text).into_iter().map(|(line, what)| format!("{path}:{line}: {what}")));
        }
    }
    findings.extend(
        exceptions.iter().filter(|exception| !used.contains(*exception)).map(|exception| {
            format!("{FOLDER}/exceptions.txt: nothing matches any more: remove the line `{exception}`")
        }),
    );
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("language: {} files, {} findings", paths.len(), findings.len());
    Ok(findings.len())
}

/// Lines that are neither empty nor comments.
fn entries(list: &str) -> Vec<String> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

fn read(repository: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(repository.join(path)).map_err(|error| format!("{path}: {error}"))
}

/// All Markdown and Rust files, by their path in the repository.
fn find(repository: &Path, folder: &Path, paths: &mut Vec<String>) -> std::io::Result<()> {
    let mut entries = fs::read_dir(repository.join(folder))?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = folder.join(&name);
        if entry.file_type()?.is_dir() {
            if !LEFT_OUT.contains(&name.as_str()) && path != Path::new(FOLDER) {
                find(repository, &path, paths)?;
            }
        } else if name.ends_with(".md") || name.ends_with(".rs") {
            paths.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}
