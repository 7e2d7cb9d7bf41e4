//! The manual pages of spind and spinctl have the options that the programs have.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use spin_tests::binary;
use spin_tests::c_programs::{is_there, run};

/// Options of spinctl that all commands have.
const COMMON: [&str; 3] = ["help", "socket", "version"];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace").join("docs/man").join(name)
}

fn page(name: &str) -> String {
    std::fs::read_to_string(file(name)).expect("a page")
}

fn help(program: &str, arguments: &[&str]) -> String {
    run(Command::new(binary(program)).args(arguments).arg("--help"))
}

/// Long options that a help text lists: `-h, --help`, `--json[=<FORM>]`.
fn listed(help: &str) -> BTreeSet<&str> {
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let options = lines.filter_map(|line| line.split([' ', ',']).find_map(|word| word.strip_prefix("--")));
    options.filter_map(|option| option.split(['[', '=']).next()).collect()
}

/// Long options that a part of a page explains: `.It Fl h , Fl -help`.
fn explained(page: &str) -> BTreeSet<&str> {
    let items = page.lines().filter_map(|line| line.strip_prefix(".It Fl "));
    items.filter_map(|item| item.split(' ').find_map(|word| word.strip_prefix('-'))).collect()
}

#[test]
fn the_page_of_spind_has_its_options() {
    let (help, page) = (help("spind", &[]), page("spind.8"));
    assert_eq!(explained(&page), listed(&help));
    assert!(listed(&help).is_superset(&["iface", "check", "help"].into()), "{help}");
}

#[test]
fn the_page_of_spinctl_has_its_commands_and_their_options() {
    let (whole, page) = (help("spinctl", &[]), page("spinctl.1"));
    let mut sections = page.split("\n.Ss ");
    assert_eq!(explained(sections.next().expect("a page")), COMMON.into());
    let mut known = BTreeSet::new();
    for section in sections {
        let command = section.split([' ', '\n']).next().expect("a name");
        let help = help("spinctl", &[command]);
        let options: BTreeSet<_> = listed(&help).into_iter().filter(|option| !COMMON.contains(option)).collect();
        assert_eq!(explained(section), options, "{command}");
        known.insert(command);
    }
    let commands = whole.split("Commands:\n").nth(1).and_then(|text| text.split("\n\n").next()).expect("a list");
    let commands = commands.lines().filter_map(|line| line.split_whitespace().next());
    assert_eq!(known, commands.filter(|command| *command != "help").collect());
}

#[test]
fn the_pages_are_valid() {
    if is_there("mandoc") {
        run(Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(["spind.8", "spinctl.1"].map(file)));
    }
}
