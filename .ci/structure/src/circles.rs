//! Rule 1: modules of a crate do not import each other in a circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::known::{Violation, circle_key};
use crate::names::{Found, Names};
use crate::references::{Reference, references};
use crate::tree::Tree;

/// For each file, the files that its code uses, with the first line that does so.
type Graph = Vec<BTreeMap<usize, String>>;

/// One violation for each set of files that use each other.
pub fn check(tree: &Tree, names: &Names) -> Vec<Violation> {
    let graph = graph(tree, names);
    components(&graph).iter().map(|component| describe(tree, &graph, component)).collect()
}

fn graph(tree: &Tree, names: &Names) -> Graph {
    let mut graph = vec![BTreeMap::new(); tree.files.len()];
    for (index, module) in tree.modules.iter().enumerate() {
        for reference in references(&module.items) {
            for file in used_files(tree, names, index, &reference) {
                if file != module.file {
                    let place = tree.place(index, reference.line);
                    graph[module.file].entry(file).or_insert_with(|| format!("{place}: {}", text(&reference)));
                }
            }
        }
    }
    graph
}

/// A path that ends at a module uses nothing of it; paths that begin with this module's name do.
fn used_files(tree: &Tree, names: &Names, module: usize, reference: &Reference) -> Vec<usize> {
    let used = names.resolve(module, &reference.segments).into_iter().filter_map(|found| match found {
        Found::Item { module, .. } => Some(tree.modules[module].file),
        Found::Module(module) if reference.is_glob && names.defines_items(module) => Some(tree.modules[module].file),
        _ => None,
    });
    used.collect()
}

fn text(reference: &Reference) -> String {
    let path = reference.segments.join("::");
    match (reference.is_import, reference.is_glob) {
        (true, true) => format!("use {path}::*"),
        (true, false) => format!("use {path}"),
        _ => path,
    }
}

/// Strongly connected components with more than one file.
fn components(graph: &Graph) -> Vec<BTreeSet<usize>> {
    let reachable: Vec<BTreeSet<usize>> = (0..graph.len()).map(|file| reachable_from(graph, file)).collect();
    let mut found: Vec<BTreeSet<usize>> = Vec::new();
    for file in 0..graph.len() {
        let component: BTreeSet<usize> =
            reachable[file].iter().copied().filter(|other| reachable[*other].contains(&file)).collect();
        if component.len() > 1 && !found.contains(&component) {
            found.push(component);
        }
    }
    found
}

/// Files that can be reached by at least one edge.
fn reachable_from(graph: &Graph, start: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        open.extend(graph[file].keys().filter(|next| reached.insert(**next)));
    }
    reached
}

fn describe(tree: &Tree, graph: &Graph, component: &BTreeSet<usize>) -> Violation {
    let modules = component.iter().map(|file| tree.files[*file].name.clone()).collect();
    let circle = shortest_circle(graph, component);
    let first = circle.first().copied().unwrap_or_default();
    let mut message = format!(
        "{}: {} modules of {} import each other in a circle; the bound is none. The shortest circle:",
        tree.files[first].path,
        component.len(),
        tree.label
    );
    for (position, file) in circle.iter().enumerate() {
        let next = circle.get(position + 1).copied().unwrap_or(first);
        message.push_str(&format!("\n    {} -> {}: {}", name(tree, *file), name(tree, next), graph[*file][&next]));
    }
    Violation { key: circle_key(&tree.label, &modules), message }
}

fn name(tree: &Tree, file: usize) -> &str {
    &tree.files[file].name
}

fn shortest_circle(graph: &Graph, component: &BTreeSet<usize>) -> Vec<usize> {
    component.iter().filter_map(|file| circle_through(graph, *file)).min_by_key(Vec::len).unwrap_or_default()
}

/// The shortest circle through a file, by a breadth-first search.
fn circle_through(graph: &Graph, start: usize) -> Option<Vec<usize>> {
    let mut previous = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(file) = open.pop_front() {
        if graph[file].contains_key(&start) {
            let mut circle = vec![file];
            while let Some(before) = previous.get(&circle[circle.len() - 1]) {
                circle.push(*before);
            }
            circle.reverse();
            return Some(circle);
        }
        for next in graph[file].keys() {
            if *next != start && !previous.contains_key(next) {
                previous.insert(*next, file);
                open.push_back(*next);
            }
        }
    }
    None
}
