//! Rules 4 and 5: lines of files and functions.

use super::{check_crate, keys};

const NONE: [&str; 0] = [];

fn lines(count: usize) -> String {
    "    f();\n".repeat(count)
}

#[test]
fn a_file_has_at_most_500_lines() {
    assert_eq!(keys(&[("lib.rs", &"\n".repeat(501))]), ["file made/src/lib.rs"]);
    assert_eq!(keys(&[("lib.rs", &"\n".repeat(500))]), NONE);
}

#[test]
fn tests_do_not_count_for_the_file() {
    let tests = format!("/// Tests.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(600));
    assert_eq!(keys(&[("lib.rs", &format!("{}{tests}", "\n".repeat(500)))]), NONE);
    assert_eq!(keys(&[("lib.rs", &format!("{}{tests}", "\n".repeat(501)))]), ["file made/src/lib.rs"]);
    let inline = tests.replace("#[cfg(test)]", "");
    assert_eq!(keys(&[("lib.rs", &inline)]), ["file made/src/lib.rs"]);
}

#[test]
fn a_function_has_at_most_60_lines() {
    let function = |count| format!("/// Does it.\n#[inline]\npub fn long() {{\n{}}}", lines(count));
    assert_eq!(keys(&[("lib.rs", &function(58))]), NONE);
    let violations = check_crate(&[("lib.rs", &function(59))], "").violations;
    assert_eq!(violations[0].message, "made/src/lib.rs:3: function made::long has 61 lines; at most 60");
}

#[test]
fn functions_are_named_by_what_is_around_them() {
    let body = lines(60);
    let code = format!(
        "mod inner {{ impl<T> A<T> {{ fn a(&self) {{\n{body}}} }}\n impl fmt::Debug for A {{ fn b() {{\n{body}}} }}\n\
         trait T {{ fn c() {{\n{body}}} fn d(); }} }}"
    );
    let expected =
        ["function made::inner::A::a", "function made::inner::<A as Debug>::b", "function made::inner::T::c"];
    assert_eq!(keys(&[("lib.rs", &code)]), expected);
}

#[test]
fn test_functions_can_be_long() {
    assert_eq!(keys(&[("lib.rs", &format!("#[cfg(test)]\nmod tests {{ fn a() {{\n{}}} }}", lines(70)))]), NONE);
    assert_eq!(keys(&[("lib.rs", &format!("#[test]\nfn a() {{\n{}}}", lines(70)))]), NONE);
}

#[test]
fn one_flat_match_can_be_long() {
    let arms = "        1 => 2,\n".repeat(70);
    let function = |before, after: &str| {
        format!("fn name(x: u8) -> u8 {{\n{}    match x {{\n{arms}        _ => 0,\n    }}{after}\n}}", lines(before))
    };
    assert_eq!(keys(&[("lib.rs", &function(8, ""))]), NONE);
    assert_eq!(keys(&[("lib.rs", &function(9, ""))]), ["function made::name"]);
    assert_eq!(keys(&[("lib.rs", &function(0, ".min(9)"))]), ["function made::name"]);
}
