//! `use` declarations as plain paths.

use syn::{ItemUse, UseTree};

use crate::tree::plain_name;

/// One name, or all names of a module, that a `use` declaration brings in.
pub struct Import {
    /// The path as written, with those of the groups around it.
    pub segments: Vec<String>,
    pub name: Imported,
    pub line: usize,
}

/// What the import is known as in its module.
pub enum Imported {
    Name(String),
    /// `as _`
    Nothing,
    /// `*`
    All,
}

/// The imports of a `use` declaration, with nested groups resolved.
pub fn imports(declaration: &ItemUse) -> Vec<Import> {
    let mut found = Vec::new();
    if declaration.leading_colon.is_none() {
        collect(&declaration.tree, &mut Vec::new(), &mut found);
    }
    found
}

fn collect(tree: &UseTree, prefix: &mut Vec<String>, found: &mut Vec<Import>) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(plain_name(&path.ident));
            collect(&path.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| collect(tree, prefix, found)),
        UseTree::Glob(glob) => {
            let line = glob.star_token.spans[0].start().line;
            found.push(Import { segments: prefix.clone(), name: Imported::All, line });
        }
        UseTree::Name(name) => {
            let segments = extended(prefix, plain_name(&name.ident));
            let known_as = segments.last().cloned().unwrap_or_default();
            let line = name.ident.span().start().line;
            found.push(Import { segments, name: Imported::Name(known_as), line });
        }
        UseTree::Rename(rename) => {
            let known_as = plain_name(&rename.rename);
            let name = if known_as == "_" { Imported::Nothing } else { Imported::Name(known_as) };
            let segments = extended(prefix, plain_name(&rename.ident));
            found.push(Import { segments, name, line: rename.ident.span().start().line });
        }
    }
}

/// The prefix with another name; `self` in a group means the prefix.
fn extended(prefix: &[String], name: String) -> Vec<String> {
    let mut segments = prefix.to_vec();
    if name != "self" || prefix.is_empty() {
        segments.push(name);
    }
    segments
}
