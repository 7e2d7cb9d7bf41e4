//! Rules 4 and 5: lines of files and functions.

use syn::visit::{self, Visit};
use syn::{Block, Expr, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemTrait, Signature, Stmt, TraitItemFn, Type};

use crate::known::Violation;
use crate::tree::{Tree, plain_name};

/// Most lines of a file without its test modules.
const MAX_FILE_LINES: usize = 500;
/// Most lines of a function, from `fn` to the closing brace.
const MAX_FUNCTION_LINES: usize = 60;
/// Most lines outside of the match at the end of a function that may be longer than this.
const MAX_LINES_AROUND_MATCH: usize = 10;

/// Checks the files and functions of a target.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations: Vec<Violation> = tree
        .files
        .iter()
        .filter(|file| file.lines > MAX_FILE_LINES)
        .map(|file| Violation {
            key: format!("file {}", file.path),
            message: format!("{}:1: {} lines without tests; at most {MAX_FILE_LINES}", file.path, file.lines),
        })
        .collect();
    for (module, contents) in tree.modules.iter().enumerate() {
        let mut functions = Functions { tree, module, context: Vec::new(), violations: Vec::new() };
        contents.items.iter().for_each(|item| functions.visit_item(item));
        violations.append(&mut functions.violations);
    }
    violations
}

struct Functions<'a> {
    tree: &'a Tree,
    module: usize,
    /// Names of the impl, trait or function around this one.
    context: Vec<String>,
    violations: Vec<Violation>,
}

impl Functions<'_> {
    fn check_function(&mut self, signature: &Signature, block: &Block) {
        let lines = lines_between(signature.fn_token.span, block.brace_token.span.close());
        if lines <= MAX_FUNCTION_LINES || is_flat_match(block, lines) {
            return;
        }
        let name = self.tree.full_name(self.module, &self.context.join("::"));
        let place = self.tree.place(self.module, signature.fn_token.span.start().line);
        let message = format!("{place}: function {name} has {lines} lines; at most {MAX_FUNCTION_LINES}");
        self.violations.push(Violation { key: format!("function {name}"), message });
    }

    fn within(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.context.push(name);
        visit(self);
        self.context.pop();
    }
}

impl Visit<'_> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &ItemFn) {
        self.within(plain_name(&function.sig.ident), |this| {
            this.check_function(&function.sig, &function.block);
            visit::visit_item_fn(this, function);
        });
    }

    fn visit_impl_item_fn(&mut self, function: &ImplItemFn) {
        self.within(plain_name(&function.sig.ident), |this| {
            this.check_function(&function.sig, &function.block);
            visit::visit_impl_item_fn(this, function);
        });
    }

    fn visit_trait_item_fn(&mut self, function: &TraitItemFn) {
        self.within(plain_name(&function.sig.ident), |this| {
            if let Some(block) = &function.default {
                this.check_function(&function.sig, block);
            }
            visit::visit_trait_item_fn(this, function);
        });
    }

    fn visit_item_impl(&mut self, block: &ItemImpl) {
        self.within(impl_name(block), |this| visit::visit_item_impl(this, block));
    }

    fn visit_item_trait(&mut self, item: &ItemTrait) {
        self.within(plain_name(&item.ident), |this| visit::visit_item_trait(this, item));
    }

    // Modules are visited by themselves.
    fn visit_item_mod(&mut self, _: &ItemMod) {}
}

/// `Type`, or `<Type as Trait>`.
fn impl_name(block: &ItemImpl) -> String {
    let name = match &*block.self_ty {
        Type::Path(path) => last_name(&path.path),
        Type::Reference(reference) => match &*reference.elem {
            Type::Path(path) => format!("&{}", last_name(&path.path)),
            _ => "_".to_owned(),
        },
        _ => "_".to_owned(),
    };
    block.trait_.as_ref().map_or(name.clone(), |implemented| format!("<{name} as {}>", last_name(&implemented.0)))
}

fn last_name(path: &syn::Path) -> String {
    path.segments.last().map_or_else(String::new, |segment| plain_name(&segment.ident))
}

fn lines_between(first: proc_macro2::Span, last: proc_macro2::Span) -> usize {
    last.end().line - first.start().line + 1
}

/// Whether a function of so many lines is little more than one match.
fn is_flat_match(block: &Block, lines: usize) -> bool {
    let Some(Stmt::Expr(Expr::Match(expression), None)) = block.stmts.last() else { return false };
    let in_match = lines_between(expression.match_token.span, expression.brace_token.span.close());
    lines - in_match <= MAX_LINES_AROUND_MATCH
}
