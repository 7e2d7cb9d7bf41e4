//! All rules on all crates.

use std::collections::BTreeSet;

use crate::known::{Violation, entries};
use crate::names::Names;
use crate::sources::Crate;
use crate::tree::Tree;
use crate::{circles, sizes, types};

/// What the rules found.
pub struct Checked {
    pub violations: Vec<Violation>,
    /// Structs of the exempt list that do not exist.
    pub missing: Vec<String>,
}

/// Checks the crates. `exempt` is the text of the exempt list: `PATH::STRUCT  REASON` in each line.
pub fn check(crates: &[Crate], exempt: &str) -> Result<Checked, String> {
    let exempt = exempt_names(exempt)?;
    let mut used = BTreeSet::new();
    let mut violations = Vec::new();
    for (source, target) in crates.iter().flat_map(|source| source.targets.iter().map(move |target| (source, target))) {
        let tree = Tree::parse(target, &source.files)?;
        let names = Names::new(&tree);
        violations.extend(circles::check(&tree, &names));
        violations.extend(types::check(&tree, &names, &exempt, &mut used));
        violations.extend(sizes::check(&tree));
    }
    Ok(Checked { violations, missing: exempt.difference(&used).cloned().collect() })
}

fn exempt_names(list: &str) -> Result<BTreeSet<String>, String> {
    let parse = |line: &str| match line.split_once(char::is_whitespace) {
        Some((name, _)) => Ok(name.to_owned()),
        None => Err(format!("exempt.txt: {line} has no reason")),
    };
    entries(list).map(parse).collect()
}
