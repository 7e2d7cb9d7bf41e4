//! The programs of the manual pages compile, call every function, and print what the pages show.

use std::fs;
use std::path::Path;
use std::process::Command;

use spin_testing::bounded;
use spin_tests::Spind;
use spin_tests::c_programs::{checked, compile, run};

use crate::header::declared;
use crate::pages::{Example, pages};
use crate::{capture, count_sources};

/// Runs a program in a folder against a spind of its own: the pages show the first context's id and counts from 0.
fn output(program: &Path, folder: &Path) -> String {
    let spind = Spind::start(&["--nic", "loopback"]);
    // Valgrind takes most of the time, and another test calls all functions under it.
    let mut command = bounded(Command::new(program), checked(program));
    run(command.current_dir(folder).arg(spind.socket()))
}

#[test]
fn the_examples_of_the_pages_print_what_they_show() {
    let to = tempfile::tempdir().expect("a temporary folder");
    let folder = to.path();
    let reply = spin_handlers::folder().join("examples/reply.c");
    fs::write(folder.join("reply.elf"), spin_handlers::build(&reply)).expect("written");
    count_sources(folder);
    capture(folder);
    let mut programs = String::new();
    for page in pages() {
        let examples = page.examples();
        assert!(!examples.is_empty(), "{} has no example", page.name);
        for (number, Example { program, output: expected }) in examples.into_iter().enumerate() {
            let source = folder.join(format!("{}-{number}.c", page.name));
            fs::write(&source, &program).expect("written");
            assert_eq!(output(&compile(&source, true, folder), folder), expected, "{}", page.name);
            programs += &program;
        }
    }
    let uncalled: Vec<_> = declared().into_keys().filter(|name| !programs.contains(&format!("{name}("))).collect();
    assert!(uncalled.is_empty(), "no example calls {uncalled:?}");
}
