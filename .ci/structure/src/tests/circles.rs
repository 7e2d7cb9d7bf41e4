//! Rule 1: circles of modules.

use super::{check_crate, keys};

const NONE: [&str; 0] = [];
const A_AND_B: [&str; 1] = ["circle made: a b"];

#[test]
fn modules_that_import_each_other_are_a_circle() {
    let root = ("lib.rs", "mod a;\nmod b;");
    let a = ("a.rs", "use crate::b::B;\npub struct A(B);");
    assert_eq!(keys(&[root, a, ("b.rs", "use crate::a::A;\npub struct B(Box<A>);")]), A_AND_B);
    assert_eq!(keys(&[root, a, ("b.rs", "pub struct B;")]), NONE);
}

#[test]
fn the_message_names_the_shortest_circle_with_its_lines() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a.rs", "use crate::b::B;\npub struct A(B);"),
        ("b.rs", "use crate::c::C;\npub struct B(C);"),
        ("c.rs", "use crate::a::A;\n\nuse crate::b::B;\npub struct C(A, B);"),
    ];
    let violations = check_crate(&files, "").violations;
    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].key, "circle made: a b c");
    let expected = "made/src/b.rs: 3 modules of made import each other in a circle; the bound is none. \
                    The shortest circle:\n    b -> c: made/src/b.rs:1: use crate::c::C\
                    \n    c -> b: made/src/c.rs:3: use crate::b::B";
    assert_eq!(violations[0].message, expected);
}

#[test]
fn separate_circles_are_reported_separately() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;"),
        ("a.rs", "use crate::b::B;\npub struct A(B);"),
        ("b.rs", "use crate::a::A;\nuse crate::c::C;\npub struct B(A, C);"),
        ("c.rs", "use crate::d::D;\npub struct C(D);"),
        ("d.rs", "use crate::c::C;\npub struct D(C);"),
    ];
    assert_eq!(keys(&files), ["circle made: a b", "circle made: c d"]);
}

/// What `b` uses of `a`, if `a` uses `b`.
fn used_by_b(b: &str) -> Vec<String> {
    keys(&[
        ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use a as other;"),
        ("a.rs", "pub struct A(crate::b::B);\npub fn run() {}\n#[macro_export]\nmacro_rules! made { () => {} }"),
        ("b.rs", &format!("pub struct B;\n{b}")),
    ])
}

#[test]
fn paths_are_found_wherever_they_stand() {
    for code in [
        "use crate::{a::{self as first, A}};",
        "use super::{b::B as Own, a::{run as go}};",
        "use crate::a::*;",
        "use crate::a::A as _;",
        "use crate::a; fn f() { a::run() }",
        "use crate::other::A;",
        "fn f() { crate::a::run() }",
        "fn f() { use crate::a; a::run() }",
        "fn f(_: Vec<Option<crate::a::A>>) {}",
        "fn f() -> impl Iterator<Item = super::a::A> { None.into_iter() }",
        "impl From<crate::a::A> for B { fn from(_: crate::a::A) -> Self { B } }",
        "fn f() { assert!(true, \"{}\", [crate::a::run()]) }",
        "macro_rules! m { () => { $crate::a::run() } }",
        "#[arg(parser = crate::a::run)] struct C;",
        "fn f() { crate::made!() }",
        "mod inline { fn f() { super::super::a::run() } }",
        "fn f() { crate::a::made_by_a_macro() }",
    ] {
        assert_eq!(used_by_b(code), A_AND_B, "{code}");
    }
}

#[test]
fn other_paths_are_no_edges() {
    for code in [
        "// crate::a::run()",
        "use crate::b::B as Own;",
        "use std::fmt; fn f(_: fmt::Error) {}",
        "use ::a::A;",
        "use other_crate::a::A;",
        "mod a { pub fn run() {} } fn f() { a::run() }",
        "fn f() { let text = \"crate::a::run()\"; }",
        "fn f(value: B) { value.a::<u8>() }",
    ] {
        assert_eq!(used_by_b(code), NONE, "{code}");
    }
}

#[test]
fn test_code_is_left_out() {
    for code in [
        "#[cfg(test)] mod tests { use crate::a::A; }",
        "#[cfg(all(test, loom))] mod tests { use crate::a::A; }",
        "#[cfg(test)] use crate::a::A;",
        "#[cfg(test)] fn f() { crate::a::run() }",
        "#[test] fn f() { crate::a::run() }",
        "impl B { #[cfg(test)] fn f() { crate::a::run() } }",
        "fn f() { #[cfg(test)] crate::a::run(); }",
        "struct C { #[cfg(test)] a: crate::a::A }",
    ] {
        assert_eq!(used_by_b(code), NONE, "{code}");
    }
    for code in ["#[cfg(not(test))] use crate::a::A;", "#[cfg(any(test, loom))] use crate::a::A;"] {
        assert_eq!(used_by_b(code), A_AND_B, "{code}");
    }
}

#[test]
fn files_of_test_modules_are_left_out() {
    let files = [
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "pub struct A(crate::b::B);"),
        ("b.rs", "pub struct B;\n#[cfg(test)]\nmod tests;"),
        ("b/tests.rs", "use crate::a::A;\nuse super::B;"),
    ];
    assert_eq!(keys(&files), NONE);
}

#[test]
fn re_exports_lead_to_the_file_that_defines_the_item() {
    let files = [
        ("lib.rs", "mod frame;\nmod queue;\npub use frame::Frame;\npub use queue::Queue;"),
        ("frame.rs", "pub struct Frame;"),
        ("queue.rs", "use crate::Frame;\npub struct Queue(Frame);"),
    ];
    assert_eq!(keys(&files), NONE);
    let frame = ("frame.rs", "use crate::Queue;\npub struct Frame;\nfn f(_: Queue) {}");
    assert_eq!(keys(&[files[0], frame, files[2]]), ["circle made: frame queue"]);
}

#[test]
fn a_facade_makes_no_circle() {
    let root = ("lib.rs", "mod user;\nmod nic;");
    let facade = ("nic/mod.rs", "mod attach;\nmod error;\npub use attach::attach;\npub use error::*;");
    let attach = ("nic/attach.rs", "use super::NicError;\npub fn attach() -> Result<(), NicError> { Ok(()) }");
    let error = ("nic/error.rs", "pub struct NicError;");
    let user = ("user.rs", "use crate::nic::{self, NicError};\nfn f() -> Result<(), NicError> { nic::attach() }");
    assert_eq!(keys(&[root, facade, attach, error, user]), NONE);

    let error = ("nic/error.rs", "use super::attach;\npub struct NicError;\nfn f() { attach(); }");
    assert_eq!(keys(&[root, facade, attach, error, user]), ["circle made: nic::attach nic::error"]);
}

#[test]
fn a_parent_with_items_and_its_child_can_be_a_circle() {
    let root = ("lib.rs", "mod parent;");
    let child = ("parent/child.rs", "use super::LIMIT;\npub struct Child([u8; LIMIT]);");
    let parent = "mod child;\npub const LIMIT: usize = 1;";
    assert_eq!(keys(&[root, ("parent.rs", parent), child]), NONE);
    let exporting = format!("{parent}\npub use child::Child;");
    assert_eq!(keys(&[root, ("parent.rs", &exporting), child]), ["circle made: parent parent::child"]);
    let importing = format!("{parent}\nfn f(_: self::child::Child) {{}}");
    assert_eq!(keys(&[root, ("parent.rs", &importing), child]), ["circle made: parent parent::child"]);
}

#[test]
fn the_root_is_a_module_too() {
    let child = ("child.rs", "pub struct Child(crate::Size);");
    let root = "mod child;\npub use child::Child;";
    assert_eq!(keys(&[("lib.rs", &format!("{root}\npub struct Size;")), child]), ["circle made: child crate"]);
    assert_eq!(keys(&[("lib.rs", &format!("{root}\npub use other::Size;")), child]), NONE);
}

#[test]
fn imports_of_themselves_end() {
    let files =
        [("lib.rs", "mod a;\nuse a::*;\nuse serde;"), ("a.rs", "use super::*;\nuse serde::Serialize;\nfn f(_: X) {}")];
    assert_eq!(keys(&files), NONE);
}

#[test]
fn programs_are_trees_of_their_own() {
    let files = [
        ("lib.rs", "pub struct A;"),
        ("main.rs", "mod args;\nuse args::Args;\nstruct Command;\nfn main() { Args; made::A; }"),
        ("args.rs", "use crate::Command;\npub struct Args;"),
    ];
    assert_eq!(keys(&files), ["circle made::main: args crate"]);
}
