//! Rules 2 and 3: fields of structs with behaviour, and files with a type's methods.

use std::collections::{BTreeMap, BTreeSet};

use syn::{ImplItem, Item, ItemImpl, Type};

use crate::known::Violation;
use crate::names::{Found, Names};
use crate::tree::{Tree, plain_name};

/// Most fields of a struct that has methods.
const MAX_FIELDS: usize = 15;
/// Most files that the methods of a type stand in.
const MAX_FILES: usize = 2;

/// A type, by the module that defines it and its name.
type TypeId = (usize, String);

/// The functions of a type's inherent impls.
#[derive(Default)]
struct Methods {
    has_receiver: bool,
    /// The first impl with functions in each file.
    places: BTreeMap<usize, String>,
}

/// Checks all types of a target. Structs of the exempt list that exist are added to `used`.
pub fn check(tree: &Tree, names: &Names, exempt: &BTreeSet<String>, used: &mut BTreeSet<String>) -> Vec<Violation> {
    let methods = methods(tree, names);
    let mut violations = Vec::new();
    for (module, item) in tree.modules.iter().enumerate().flat_map(|(index, module)| items_of(index, &module.items)) {
        let Item::Struct(item) = item else { continue };
        let full_name = tree.full_name(module, &plain_name(&item.ident));
        let is_exempt = exempt.contains(&full_name);
        if is_exempt {
            used.insert(full_name.clone());
        }
        let has_behaviour = methods.get(&(module, plain_name(&item.ident))).is_some_and(|methods| methods.has_receiver);
        let fields = item.fields.len();
        if has_behaviour && fields > MAX_FIELDS && !is_exempt {
            let place = tree.place(module, item.struct_token.span.start().line);
            let message = format!(
                "{place}: {full_name} has methods and {fields} fields; at most {MAX_FIELDS}. \
                 Option, configuration, wire and counter records can be listed in exempt.txt."
            );
            violations.push(Violation { key: format!("fields {full_name}"), message });
        }
    }
    violations.extend(methods.iter().filter_map(|(id, methods)| check_places(tree, id, methods)));
    violations
}

fn items_of(module: usize, items: &[Item]) -> impl Iterator<Item = (usize, &Item)> {
    items.iter().map(move |item| (module, item))
}

fn check_places(tree: &Tree, (module, name): &TypeId, methods: &Methods) -> Option<Violation> {
    if methods.places.len() <= MAX_FILES {
        return None;
    }
    let full_name = tree.full_name(*module, name);
    let places: Vec<&str> = methods.places.values().map(String::as_str).collect();
    let message = format!(
        "{}: methods of {full_name} stand in {} files; at most {MAX_FILES}: {}",
        tree.files[tree.modules[*module].file].path,
        places.len(),
        places.join(", ")
    );
    Some(Violation { key: format!("methods {full_name}"), message })
}

fn methods(tree: &Tree, names: &Names) -> BTreeMap<TypeId, Methods> {
    let mut found: BTreeMap<TypeId, Methods> = BTreeMap::new();
    for (index, module) in tree.modules.iter().enumerate() {
        for item in &module.items {
            let Item::Impl(block) = item else { continue };
            if block.trait_.is_none()
                && let Some(id) = type_of(names, index, block)
            {
                let line = block.impl_token.span.start().line;
                add_methods(found.entry(id).or_default(), block, module.file, tree.place(index, line));
            }
        }
    }
    found
}

fn add_methods(methods: &mut Methods, block: &ItemImpl, file: usize, place: String) {
    let mut functions = block.items.iter().filter_map(|item| match item {
        ImplItem::Fn(function) => Some(function),
        _ => None,
    });
    let Some(first) = functions.next() else { return };
    methods.places.entry(file).or_insert(place);
    methods.has_receiver |= first.sig.receiver().is_some() || functions.any(|other| other.sig.receiver().is_some());
}

/// The type that an impl belongs to.
fn type_of(names: &Names, module: usize, block: &ItemImpl) -> Option<TypeId> {
    let Type::Path(path) = &*block.self_ty else { return None };
    let segments: Vec<String> = path.path.segments.iter().map(|segment| plain_name(&segment.ident)).collect();
    names.resolve(module, &segments).into_iter().find_map(|found| match found {
        Found::Item { module, name } => Some((module, name)),
        _ => None,
    })
}
