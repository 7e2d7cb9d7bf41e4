//! The tree of modules of a target, without test code.

use std::slice;

use syn::{Item, ItemMod};

use crate::sources::{Files, Target};
use crate::test_code::{remove_test_code, test_module_lines};

/// A source file. Inline modules belong to the file that they are written in.
pub struct SourceFile {
    /// Path in the repository.
    pub path: String,
    /// Path of the file's module in its crate; `crate` for the root.
    pub name: String,
    /// Lines without those of test modules.
    pub lines: usize,
}

/// A module: a file or inline.
pub struct Module {
    pub path: Vec<String>,
    /// Index of the parent; the root is its own.
    pub parent: usize,
    /// Index of the file.
    pub file: usize,
    /// Submodules by name.
    pub children: Vec<(String, usize)>,
    pub items: Vec<Item>,
}

/// All modules of a target; the first one is the root.
pub struct Tree {
    pub label: String,
    pub files: Vec<SourceFile>,
    pub modules: Vec<Module>,
}

impl Tree {
    /// Parses the root file and all modules below it.
    pub fn parse(target: &Target, files: &Files) -> Result<Self, String> {
        let mut tree = Self { label: target.label.clone(), files: Vec::new(), modules: Vec::new() };
        let directory = target.root.rsplit_once('/').map_or("", |(directory, _)| directory).to_owned();
        tree.add_file(files, target.root.clone(), Vec::new(), 0, &directory)?;
        Ok(tree)
    }

    /// The path that lists and messages use for an item of a module.
    pub fn full_name(&self, module: usize, name: &str) -> String {
        let mut parts = vec![self.label.as_str()];
        parts.extend(self.modules[module].path.iter().map(String::as_str));
        parts.push(name);
        parts.join("::")
    }

    /// `FILE:LINE` for a message.
    pub fn place(&self, module: usize, line: usize) -> String {
        format!("{}:{line}", self.files[self.modules[module].file].path)
    }

    fn add_file(
        &mut self,
        files: &Files,
        path: String,
        module_path: Vec<String>,
        parent: usize,
        directory: &str,
    ) -> Result<usize, String> {
        let text = files.get(&path).ok_or_else(|| format!("{path}: no such file"))?;
        let mut parsed = syn::parse_file(text)
            .map_err(|error| format!("{path}:{}: cannot be parsed: {error}", error.span().start().line))?;
        let lines = text.lines().count() - test_module_lines(&parsed.items);
        remove_test_code(&mut parsed);
        let name = if module_path.is_empty() { "crate".to_owned() } else { module_path.join("::") };
        self.files.push(SourceFile { path, name, lines });
        let module =
            Module { path: module_path, parent, file: self.files.len() - 1, children: Vec::new(), items: parsed.items };
        self.add_module(files, module, directory)
    }

    /// Adds a module and those below it, whose files are in `directory`.
    fn add_module(&mut self, files: &Files, mut module: Module, directory: &str) -> Result<usize, String> {
        let index = self.modules.len();
        let file = module.file;
        let path = module.path.clone();
        let (declarations, items) = module.items.into_iter().partition(|item| matches!(item, Item::Mod(_)));
        module.items = items;
        self.modules.push(module);
        for declaration in declarations {
            let Item::Mod(ItemMod { ident, content, .. }) = declaration else { continue };
            let name = plain_name(&ident);
            let path = [path.as_slice(), slice::from_ref(&name)].concat();
            let below = format!("{directory}/{name}");
            let child = match content {
                Some((_, items)) => {
                    let module = Module { path, parent: index, file, children: Vec::new(), items };
                    self.add_module(files, module, &below)?
                }
                None => self.add_file(files, module_file(files, &below), path, index, &below)?,
            };
            self.modules[index].children.push((name, child));
        }
        Ok(index)
    }
}

fn module_file(files: &Files, below: &str) -> String {
    let nested = format!("{below}/mod.rs");
    if files.contains_key(&nested) { nested } else { format!("{below}.rs") }
}

/// Name of an identifier without `r#`.
pub fn plain_name(ident: &proc_macro2::Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").map_or(name.clone(), str::to_owned)
}
