//! Finds and removes code that only tests compile.

use std::mem;

use syn::punctuated::Punctuated;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Block, Expr, Field, Fields, File, ImplItem, Item, ItemImpl, Meta, Stmt, Token, TraitItem};

/// Whether these attributes keep an item out of every build without tests.
pub fn is_test_code(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.is_ident("cfg") {
            attribute.parse_args::<Meta>().is_ok_and(|predicate| evaluate(&predicate) == Some(false))
        } else {
            path.is_ident("test")
        }
    })
}

/// Value of a `cfg` predicate without tests, or `None` where it depends on other settings.
fn evaluate(predicate: &Meta) -> Option<bool> {
    let Meta::List(list) = predicate else {
        return predicate.path().is_ident("test").then_some(false);
    };
    let parse = Punctuated::<Meta, Token![,]>::parse_terminated;
    let values: Vec<Option<bool>> = list.parse_args_with(parse).ok()?.iter().map(evaluate).collect();
    if list.path.is_ident("not") {
        values.first().copied().flatten().map(|value| !value)
    } else if list.path.is_ident("all") {
        combine(&values, false)
    } else {
        combine(&values, true)
    }
}

/// Value of `all` (`decisive` is false) or `any` (`decisive` is true).
fn combine(values: &[Option<bool>], decisive: bool) -> Option<bool> {
    if values.contains(&Some(decisive)) {
        Some(decisive)
    } else if values.contains(&None) {
        None
    } else {
        Some(!decisive)
    }
}

/// Lines that test modules in this file take.
pub fn test_module_lines(items: &[Item]) -> usize {
    items
        .iter()
        .map(|item| match item {
            Item::Mod(module) => match &module.content {
                Some((braces, _)) if is_test_code(&module.attrs) => {
                    let first = module.attrs.first().map_or(module.mod_token.span, |first| first.pound_token.span);
                    braces.span.close().end().line - first.start().line + 1
                }
                Some((_, items)) => test_module_lines(items),
                None => 0,
            },
            _ => 0,
        })
        .sum()
}

/// Removes test code from a parsed file.
pub fn remove_test_code(file: &mut File) {
    Remover.visit_file_mut(file);
}

struct Remover;

impl VisitMut for Remover {
    fn visit_file_mut(&mut self, file: &mut File) {
        retain_items(&mut file.items);
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            retain_items(items);
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut ItemImpl) {
        block.items.retain(|item| !is_test_code(impl_item_attributes(item)));
        visit_mut::visit_item_impl_mut(self, block);
    }

    fn visit_item_trait_mut(&mut self, item: &mut syn::ItemTrait) {
        item.items.retain(|item| !is_test_code(trait_item_attributes(item)));
        visit_mut::visit_item_trait_mut(self, item);
    }

    fn visit_item_enum_mut(&mut self, item: &mut syn::ItemEnum) {
        let variants = mem::take(&mut item.variants);
        item.variants = variants.into_iter().filter(|variant| !is_test_code(&variant.attrs)).collect();
        visit_mut::visit_item_enum_mut(self, item);
    }

    fn visit_fields_mut(&mut self, fields: &mut Fields) {
        match fields {
            Fields::Named(named) => retain_fields(&mut named.named),
            Fields::Unnamed(unnamed) => retain_fields(&mut unnamed.unnamed),
            _ => {}
        }
        visit_mut::visit_fields_mut(self, fields);
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        block.stmts.retain(|statement| !is_test_code(statement_attributes(statement)));
        visit_mut::visit_block_mut(self, block);
    }

    fn visit_expr_match_mut(&mut self, expression: &mut syn::ExprMatch) {
        expression.arms.retain(|arm| !is_test_code(&arm.attrs));
        visit_mut::visit_expr_match_mut(self, expression);
    }

    fn visit_expr_struct_mut(&mut self, expression: &mut syn::ExprStruct) {
        let fields = mem::take(&mut expression.fields);
        expression.fields = fields.into_iter().filter(|field| !is_test_code(&field.attrs)).collect();
        visit_mut::visit_expr_struct_mut(self, expression);
    }
}

fn retain_items(items: &mut Vec<Item>) {
    items.retain(|item| !is_test_code(item_attributes(item)));
}

fn retain_fields(fields: &mut Punctuated<Field, Token![,]>) {
    *fields = mem::take(fields).into_iter().filter(|field| !is_test_code(&field.attrs)).collect();
}

fn item_attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn impl_item_attributes(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        _ => &[],
    }
}

fn trait_item_attributes(item: &TraitItem) -> &[Attribute] {
    match item {
        TraitItem::Const(item) => &item.attrs,
        TraitItem::Fn(item) => &item.attrs,
        TraitItem::Macro(item) => &item.attrs,
        TraitItem::Type(item) => &item.attrs,
        _ => &[],
    }
}

fn statement_attributes(statement: &Stmt) -> &[Attribute] {
    match statement {
        Stmt::Local(local) => &local.attrs,
        Stmt::Item(item) => item_attributes(item),
        Stmt::Macro(statement) => &statement.attrs,
        Stmt::Expr(Expr::Block(expression), _) => &expression.attrs,
        Stmt::Expr(Expr::Call(expression), _) => &expression.attrs,
        Stmt::Expr(Expr::MethodCall(expression), _) => &expression.attrs,
        Stmt::Expr(Expr::Assign(expression), _) => &expression.attrs,
        Stmt::Expr(Expr::If(expression), _) => &expression.attrs,
        _ => &[],
    }
}
