//! Collects the paths that a module's code uses.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro};

use crate::imports::{Imported, imports};
use crate::tree::plain_name;

/// A path in the code.
pub struct Reference {
    pub segments: Vec<String>,
    pub line: usize,
    /// Whether it stands in a `use` declaration.
    pub is_import: bool,
    /// Whether all names of the module are imported.
    pub is_glob: bool,
}

/// All paths in these items, in macro calls and attributes too.
pub fn references(items: &[Item]) -> Vec<Reference> {
    let mut collector = Collector { found: Vec::new() };
    items.iter().for_each(|item| collector.visit_item(item));
    collector.found
}

struct Collector {
    found: Vec<Reference>,
}

impl Collector {
    fn add_tokens(&mut self, tokens: &TokenStream) {
        // The character before a name: one after `.` or `::` does not start a path.
        let mut before = ' ';
        let mut tokens = tokens.clone().into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(group) => self.add_tokens(&group.stream()),
                TokenTree::Punct(punct) => {
                    before = punct.as_char();
                    continue;
                }
                TokenTree::Ident(ident) => {
                    let line = ident.span().start().line;
                    let mut segments = vec![plain_name(&ident)];
                    let mut rest = tokens.clone();
                    while let Some(name) = next_segment(&mut rest) {
                        segments.push(name);
                        tokens = rest.clone();
                    }
                    // A name alone is known by an import, or not a path at all.
                    if segments.len() > 1 && !matches!(before, '.' | ':') {
                        self.found.push(Reference { segments, line, is_import: false, is_glob: false });
                    }
                }
                TokenTree::Literal(_) => {}
            }
            before = ' ';
        }
    }
}

/// The name after `::`.
fn next_segment(tokens: &mut impl Iterator<Item = TokenTree>) -> Option<String> {
    for _ in 0..2 {
        match tokens.next()? {
            TokenTree::Punct(punct) if punct.as_char() == ':' => {}
            _ => return None,
        }
    }
    match tokens.next()? {
        TokenTree::Ident(ident) => Some(plain_name(&ident)),
        _ => None,
    }
}

impl Visit<'_> for Collector {
    fn visit_item_use(&mut self, declaration: &ItemUse) {
        self.found.extend(imports(declaration).into_iter().map(|import| Reference {
            segments: import.segments,
            line: import.line,
            is_import: true,
            is_glob: matches!(import.name, Imported::All),
        }));
    }

    fn visit_path(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let segments = path.segments.iter().map(|segment| plain_name(&segment.ident)).collect();
            let line = first.ident.span().start().line;
            self.found.push(Reference { segments, line, is_import: false, is_glob: false });
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &Macro) {
        self.visit_path(&call.path);
        self.add_tokens(&call.tokens);
    }

    fn visit_attribute(&mut self, attribute: &Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.add_tokens(&list.tokens);
        }
    }

    // Modules have their own names.
    fn visit_item_mod(&mut self, _: &ItemMod) {}
}
