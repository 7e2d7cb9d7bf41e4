//! The list of known violations, which can only become shorter.

use std::collections::BTreeSet;

/// Something that breaks a rule.
pub struct Violation {
    /// Line for the list of known violations. It has no line numbers or sizes, so that it stays valid.
    pub key: String,
    pub message: String,
}

/// Key of a circle: the modules that can all reach each other.
pub fn circle_key(label: &str, modules: &BTreeSet<String>) -> String {
    let modules: Vec<&str> = modules.iter().map(String::as_str).collect();
    format!("circle {label}: {}", modules.join(" "))
}

/// What differs between the list and today's violations.
pub struct Comparison<'a> {
    pub new: Vec<&'a Violation>,
    /// Lines of the list that no violation needs.
    pub stale: Vec<&'a str>,
    /// Known circles that have fewer modules today.
    pub smaller: Vec<&'a str>,
}

/// Compares today's violations with the list.
pub fn compare<'a>(violations: &'a [Violation], list: &'a str) -> Comparison<'a> {
    let lines: Vec<&str> = entries(list).collect();
    let is_used = |line: &str| violations.iter().any(|violation| covers(line, &violation.key));
    let is_exact = |line: &str| violations.iter().any(|violation| violation.key == line);
    Comparison {
        new: violations.iter().filter(|violation| !lines.iter().any(|line| covers(line, &violation.key))).collect(),
        stale: lines.iter().copied().filter(|line| !is_used(line)).collect(),
        smaller: lines.iter().copied().filter(|line| is_used(line) && !is_exact(line)).collect(),
    }
}

/// Whether a line of the list allows a violation. A circle is known if all its modules are in a known one.
fn covers(line: &str, key: &str) -> bool {
    match (circle(line), circle(key)) {
        (Some((known_label, known)), Some((label, modules))) => known_label == label && modules.is_subset(&known),
        _ => line == key,
    }
}

fn circle(key: &str) -> Option<(&str, BTreeSet<&str>)> {
    let (label, modules) = key.strip_prefix("circle ")?.split_once(':')?;
    Some((label, modules.split_ascii_whitespace().collect()))
}

/// Lines of a list without comments and empty ones.
pub fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The text of a list with these violations.
pub fn list(violations: &[Violation]) -> String {
    let keys: BTreeSet<&str> = violations.iter().map(|violation| violation.key.as_str()).collect();
    let mut text = String::from(
        "# Known violations of the structure rules, written by `.ci/lint-structure --write-known`.\n\
         # This list only becomes shorter: remove lines, do not add any.\n",
    );
    for key in keys {
        text.push_str(key);
        text.push('\n');
    }
    text
}
