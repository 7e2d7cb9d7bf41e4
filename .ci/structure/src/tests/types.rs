//! Rules 2 and 3: fields, and files with methods.

use super::{check_crate, keys};

const NONE: [&str; 0] = [];

fn with_fields(count: usize, code: &str) -> String {
    let fields: Vec<String> = (0..count).map(|number| format!("f{number}: u8")).collect();
    format!("pub struct Large {{ {} }}\n{code}", fields.join(", "))
}

#[test]
fn a_struct_with_methods_has_few_fields() {
    let method = "impl Large { fn run(&self) {} }";
    assert_eq!(keys(&[("lib.rs", &with_fields(16, method))]), ["fields made::Large"]);
    assert_eq!(keys(&[("lib.rs", &with_fields(15, method))]), NONE);
    assert_eq!(keys(&[("lib.rs", &with_fields(16, ""))]), NONE);
    assert_eq!(keys(&[("lib.rs", &with_fields(16, "impl Large { fn new() {} }"))]), NONE);
    assert_eq!(keys(&[("lib.rs", &with_fields(16, "impl Clone for Large { fn clone(&self) {} }"))]), NONE);
    assert_eq!(keys(&[("lib.rs", &with_fields(16, "#[cfg(test)]\nimpl Large { fn run(&self) {} }"))]), NONE);
}

#[test]
fn a_method_can_stand_in_another_file() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\npub use a::Large;"),
        ("a.rs", &with_fields(16, "")),
        ("b.rs", "impl crate::Large {\n fn run(self) {} }"),
    ];
    let violations = check_crate(&files, "").violations;
    assert_eq!(violations[0].key, "fields made::a::Large");
    assert!(violations[0].message.starts_with("made/src/a.rs:1: made::a::Large has methods and 16 fields; at most 15"));
}

#[test]
fn exempt_structs_can_have_many_fields() {
    let code = with_fields(16, "impl Large { fn run(&self) {} }");
    let checked = check_crate(&[("lib.rs", &code)], "# comment\nmade::Large  counters\n");
    assert!(checked.violations.is_empty() && checked.missing.is_empty());
    let checked = check_crate(&[("lib.rs", &code)], "made::Gone  counters");
    assert_eq!(checked.missing, ["made::Gone"]);
}

#[test]
fn methods_stand_in_two_files() {
    let root = ("lib.rs", "mod a;\nmod b;\nmod c;\nuse a::A;\nimpl A { fn one(&self) {} }");
    let a = ("a.rs", "pub struct A;\nimpl A { fn two() {} }\nimpl A { fn again() {} }");
    let b = ("b.rs", "use super::A as Other;\nimpl<T> Other<T> { fn three(&self) {} }");
    let c =
        ("c.rs", "use crate::a::A;\nimpl A { const NO_METHOD: u8 = 0; }\nimpl Drop for A { fn drop(&mut self) {} }");
    let methods = |files: &[_]| keys(files).into_iter().filter(|key| key.starts_with("methods")).collect::<Vec<_>>();
    assert_eq!(methods(&[root, a, b, c]), ["methods made::a::A"]);
    let b = ("b.rs", "#[cfg(test)]\nimpl super::A { fn three(&self) {} }");
    assert_eq!(methods(&[root, a, b, c]), NONE);
}
