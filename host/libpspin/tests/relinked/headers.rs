//! The headers compile as C and C++, and their constants match the library's.

use std::process::Command;

use pspin::conf::CONSTANTS;

use crate::build::{Link, Workshop, folder};

#[test]
fn constants_and_defaults_are_the_library_s() {
    let workshop = Workshop::new();
    let program = workshop.program("tests/relinked/programs/constants.c", Link::Shared);
    let ran = workshop.run::<&str>(&program, &[]);
    let expected: String = CONSTANTS.iter().map(|(name, value)| format!("{name} {value}\n")).collect();
    let defaults = "ni 32 32 32\nno 32 32 0 2048 32\npcie 32 32 32 32 32 2 0.014782\n";
    assert_eq!(ran.out, expected + defaults);
    assert!(ran.success && ran.err.is_empty(), "{ran:?}");
}

/// Each header compiles alone in every language of user programs.
#[test]
fn headers_compile_alone_as_c_and_as_cpp() {
    let workshop = Workshop::new();
    for header in ["pspinsim.h", "spin.h", "spin_hw_conf.h"] {
        let text = format!("#include <{header}>\n#include <{header}>\ntypedef int used;\n");
        for (compiler, name, standard) in [
            ("cc", "alone.c", "-std=c11"),
            ("cc", "alone.c", "-std=c17"),
            ("c++", "alone.cc", "-std=c++11"),
            ("c++", "alone.cc", "-std=c++17"),
        ] {
            let source = workshop.file(name, text.as_bytes());
            let mut command = Command::new(compiler);
            command.args([standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-I"]);
            let output = command.arg(folder().join("include")).arg(source).output().expect("a compiler");
            assert!(output.status.success(), "{header} {standard}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// C++ programs find the functions by their C names.
#[test]
fn cpp_programs_link() {
    let workshop = Workshop::new();
    workshop.program("tests/relinked/programs/constants.c", Link::Shared);
    let text = std::fs::read_to_string(folder().join("tests/relinked/programs/constants.c")).unwrap();
    let source = workshop.file("constants.cc", text.as_bytes());
    let library = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let program = workshop.path("constants-cpp");
    let mut command = Command::new("c++");
    command.arg("-I").arg(folder().join("include")).arg(source).arg("-o").arg(&program).arg("-L").arg(&library);
    let output = command.arg("-lpspin").arg(format!("-Wl,-rpath,{}", library.display())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(workshop.run::<&str>(&program, &[]).success);
}
