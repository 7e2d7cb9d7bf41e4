//! The header in the versions of C and C++, and the symbols of the shared library.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use spin_tests::c_programs::{STRICT, is_there, libraries, libspin_c, run};

/// The header's text.
fn text() -> String {
    std::fs::read_to_string(libspin_c().join("include/spin_client.h")).expect("the header")
}

/// A declaration with one space between its tokens.
pub fn normalized(declaration: &str) -> String {
    let spaced: String =
        declaration.chars().flat_map(|c| if is_word(c) { vec![c] } else { vec![' ', c, ' '] }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Functions that the header declares, with their normalized declarations.
pub fn declared() -> BTreeMap<String, String> {
    let header = text();
    let code: String = header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let functions = code.split(';').filter(|part| part.contains('(') && !part.contains(['{', '#']));
    let name = |normal: &str| normal.split(" (").next().and_then(|before| before.rsplit(' ').next()).map(str::to_owned);
    let functions = functions.map(normalized).map(|normal| (name(&normal).expect("a name"), normal));
    let functions: BTreeMap<_, _> = functions.collect();
    assert!(functions.len() > 50 && functions.keys().all(|name| name.starts_with("spin_")), "{functions:?}");
    functions
}

/// Constants that the header defines.
pub fn constants() -> BTreeSet<String> {
    let text = text();
    let lines = text.lines().filter_map(|line| line.strip_prefix("    SPIN_")?.split_once(" = "));
    let constants: BTreeSet<_> = lines.map(|(name, _)| format!("SPIN_{name}")).collect();
    assert!(constants.len() > 20, "{constants:?}");
    constants
}

/// The clang that compiles handlers. Debian installs no plain `clang` with it.
fn clang() -> String {
    let names = (14..=21).rev().map(|version| format!("clang-{version}")).chain(["clang".to_owned()]);
    let runs = |name: &String| Command::new(name).arg("--version").output().is_ok();
    names.into_iter().find(runs).unwrap_or_else(|| "clang".to_owned())
}

#[test]
fn the_header_is_strict_c_and_cxx() {
    for compiler in ["gcc".to_owned(), clang()] {
        for (language, standards) in [("c", &["c11", "c17", "c2x"]), ("c++", &["c++17", "c++20", "c++2b"])] {
            for standard in standards.iter().filter(|_| is_there(&compiler)) {
                let mut command = Command::new(&compiler);
                command.args(["-x", language, &format!("-std={standard}"), "-fsyntax-only"]).args(STRICT);
                run(command.arg("-I").arg(libspin_c().join("include")).arg(libspin_c().join("tests/header.c")));
            }
        }
    }
}

#[test]
fn the_shared_library_exports_the_functions_of_the_header() {
    let library = libraries().join("libspin.so.1");
    let listed = run(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(&library));
    let symbols = listed.lines().filter(|line| !line.ends_with(" A SPIN_1"));
    let symbols = symbols.map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "));
    let expected = declared().keys().map(|name| format!("T {name}@@SPIN_1")).collect::<BTreeSet<_>>();
    assert_eq!(symbols.collect::<BTreeSet<_>>(), expected);
    let dynamic = run(Command::new("readelf").args(["-W", "-d"]).arg(&library));
    assert!(dynamic.contains("Library soname: [libspin.so.1]"), "{dynamic}");
}
