//! Resolves paths to the items of a crate, through imports and re-exports.

use std::collections::HashMap;

use syn::visit::Visit;
use syn::{ForeignItem, Item, ItemUse};

use crate::imports::{Imported, imports};
use crate::tree::{Tree, plain_name};

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Module(usize),
    /// An item, in the module that defines it.
    Item {
        module: usize,
        name: String,
    },
    /// Something that another crate defines.
    External,
}

/// What a name stands for in a module. One name can be a module, a type and a function at the same time.
enum Meaning {
    Module(usize),
    Item,
    Import(Vec<String>),
}

#[derive(Default)]
struct Scope {
    names: HashMap<String, Vec<Meaning>>,
    globs: Vec<Vec<String>>,
    /// Imports inside of functions.
    local: HashMap<String, Vec<Meaning>>,
    defines_items: bool,
}

/// Imports that are being resolved: a name must not be looked up through itself.
type Pending = Vec<(usize, String, usize)>;

/// The names of all modules of a tree.
pub struct Names<'a> {
    tree: &'a Tree,
    scopes: Vec<Scope>,
}

impl<'a> Names<'a> {
    pub fn new(tree: &'a Tree) -> Self {
        let mut scopes: Vec<Scope> = tree.modules.iter().map(|_| Scope::default()).collect();
        for (index, module) in tree.modules.iter().enumerate() {
            for (name, child) in &module.children {
                scopes[index].add(name.clone(), Meaning::Module(*child));
            }
            for item in &module.items {
                scopes[index].add_item(item);
                if exports_macro(item) {
                    let Item::Macro(item) = item else { continue };
                    let path = [&["crate".to_owned()], module.path.as_slice(), &names_of_macro(item)].concat();
                    if index != 0 {
                        scopes[0].add(names_of_macro(item).concat(), Meaning::Import(path));
                    }
                }
            }
        }
        Self { tree, scopes }
    }

    /// Whether a module defines items itself, rather than only re-exports.
    pub fn defines_items(&self, module: usize) -> bool {
        self.scopes[module].defines_items
    }

    /// Everything that a path in this module can mean; nothing if its first name is not one of this crate's.
    pub fn resolve(&self, module: usize, segments: &[String]) -> Vec<Found> {
        self.resolve_path(module, segments, &mut Pending::new())
    }

    fn resolve_path(&self, module: usize, segments: &[String], pending: &mut Pending) -> Vec<Found> {
        let Some((first, rest)) = segments.split_first() else { return Vec::new() };
        let start = match self.relative_module(module, first) {
            Some(start) => vec![Found::Module(start)],
            None => self.look_up_at_start(module, first, pending),
        };
        rest.iter().fold(start, |found, segment| self.step(found, segment, pending))
    }

    /// The module that `crate`, `self` or `super` stands for.
    fn relative_module(&self, module: usize, segment: &str) -> Option<usize> {
        match segment {
            "crate" => Some(0),
            "self" => Some(module),
            "super" => Some(self.tree.modules[module].parent),
            _ => None,
        }
    }

    /// Follows a path by one name. What comes after an item belongs to the item.
    fn step(&self, found: Vec<Found>, segment: &str, pending: &mut Pending) -> Vec<Found> {
        let Some(module) = found.iter().find_map(|found| match found {
            Found::Module(module) => Some(*module),
            _ => None,
        }) else {
            return found;
        };
        if let Some(module) = self.relative_module(module, segment) {
            return vec![Found::Module(module)];
        }
        let next = self.look_up(module, segment, pending);
        // A macro can have made an item with this name.
        if next.is_empty() { vec![Found::Item { module, name: segment.to_owned() }] } else { next }
    }

    fn look_up_at_start(&self, module: usize, name: &str, pending: &mut Pending) -> Vec<Found> {
        let found = self.look_up(module, name, pending);
        if !found.is_empty() {
            return found;
        }
        self.scopes[module].local.get(name).map_or(Vec::new(), |meanings| self.follow(module, name, meanings, pending))
    }

    fn look_up(&self, module: usize, name: &str, pending: &mut Pending) -> Vec<Found> {
        let scope = &self.scopes[module];
        if let Some(meanings) = scope.names.get(name) {
            return self.follow(module, name, meanings, pending);
        }
        let mut found = Vec::new();
        for (index, glob) in scope.globs.iter().enumerate() {
            let entry = (module, name.to_owned(), index);
            if pending.contains(&entry) {
                continue;
            }
            pending.push(entry);
            for target in self.resolve_path(module, glob, pending) {
                if let Found::Module(target) = target {
                    add_new(&mut found, self.look_up(target, name, pending));
                }
            }
            pending.pop();
        }
        found
    }

    fn follow(&self, module: usize, name: &str, meanings: &[Meaning], pending: &mut Pending) -> Vec<Found> {
        let mut found = Vec::new();
        for (index, meaning) in meanings.iter().enumerate() {
            match meaning {
                Meaning::Module(child) => add_new(&mut found, vec![Found::Module(*child)]),
                Meaning::Item => add_new(&mut found, vec![Found::Item { module, name: name.to_owned() }]),
                Meaning::Import(path) => {
                    let entry = (module, name.to_owned(), index);
                    if pending.contains(&entry) {
                        continue;
                    }
                    pending.push(entry);
                    let targets = self.resolve_path(module, path, pending);
                    pending.pop();
                    add_new(&mut found, if targets.is_empty() { vec![Found::External] } else { targets });
                }
            }
        }
        found
    }
}

fn add_new(found: &mut Vec<Found>, more: Vec<Found>) {
    for target in more {
        if !found.contains(&target) {
            found.push(target);
        }
    }
}

impl Scope {
    fn add(&mut self, name: String, meaning: Meaning) {
        self.names.entry(name).or_default().push(meaning);
    }

    fn add_item(&mut self, item: &Item) {
        if let Item::Use(declaration) = item {
            self.add_imports(declaration);
            return;
        }
        self.defines_items = true;
        for name in item_names(item) {
            self.add(name, Meaning::Item);
        }
        LocalImports { scope: self }.visit_item(item);
    }

    fn add_imports(&mut self, declaration: &ItemUse) {
        for import in imports(declaration) {
            match import.name {
                Imported::Name(name) => self.add(name, Meaning::Import(import.segments)),
                Imported::All => self.globs.push(import.segments),
                Imported::Nothing => {}
            }
        }
    }
}

struct LocalImports<'a> {
    scope: &'a mut Scope,
}

impl Visit<'_> for LocalImports<'_> {
    fn visit_item_use(&mut self, declaration: &ItemUse) {
        for import in imports(declaration) {
            if let Imported::Name(name) = import.name {
                self.scope.local.entry(name).or_default().push(Meaning::Import(import.segments));
            }
        }
    }
}

fn item_names(item: &Item) -> Vec<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => return names_of_macro(item),
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::ForeignMod(block) => return block.items.iter().filter_map(foreign_name).collect(),
        _ => return Vec::new(),
    };
    vec![plain_name(ident)]
}

fn foreign_name(item: &ForeignItem) -> Option<String> {
    match item {
        ForeignItem::Fn(item) => Some(plain_name(&item.sig.ident)),
        ForeignItem::Static(item) => Some(plain_name(&item.ident)),
        ForeignItem::Type(item) => Some(plain_name(&item.ident)),
        _ => None,
    }
}

fn names_of_macro(item: &syn::ItemMacro) -> Vec<String> {
    item.ident.iter().map(plain_name).collect()
}

/// Whether a macro is known in the crate's root, wherever it is defined.
fn exports_macro(item: &Item) -> bool {
    matches!(item, Item::Macro(item) if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")))
}
