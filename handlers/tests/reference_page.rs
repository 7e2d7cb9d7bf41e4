//! The reference page lists exactly the functions and types of the headers.
#![forbid(unsafe_code)]

#[path = "../../engine/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::fs;

use common::{Kind, Lab, rule, udp};
use spin_abi::control::Install;
use spin_abi::counters::Counter;
use spin_handlers::folder;

/// Whether a word is an SDK name.
fn is_name(word: &str) -> bool {
    let known = ["spin_", "SPIN_"].iter().any(|start| word.starts_with(start));
    known || ["task_t", "handler_args_t"].contains(&word) || word.ends_with("_handler")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| is_name(word))
}

/// Returns the text of all headers that `spin.h` includes.
fn headers() -> String {
    let include = folder().join("sdk/include");
    let spin = fs::read_to_string(include.join("spin.h")).unwrap();
    let included = spin.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
    included.map(|name| fs::read_to_string(include.join(name)).unwrap()).collect()
}

/// Returns the functions, function-like macros and types that headers define.
fn defined(headers: &str) -> BTreeSet<&str> {
    const STARTS: [&str; 5] = ["static inline ", "#define ", "} ", "typedef ", "spin_result_t "];
    headers
        .lines()
        .filter_map(|line| {
            let rest = STARTS.into_iter().find_map(|start| line.strip_prefix(start))?;
            let called = rest.find('(').map(|at| &rest[..at]);
            let word = match line.as_bytes()[0] {
                // A macro without arguments is a constant.
                b'#' => called.filter(|name| !name.contains(' '))?,
                b'}' => rest.strip_suffix(';')?,
                _ if line.starts_with("typedef ") => rest.strip_suffix(';')?.split(' ').next_back()?,
                _ => called?.split([' ', '*']).next_back()?,
            };
            Some(word).filter(|word| is_name(word))
        })
        .collect()
}

#[test]
fn the_page_has_what_the_headers_define() {
    let (headers, page) = (headers(), fs::read_to_string(folder().join("REFERENCE.md")).unwrap());
    let defined = defined(&headers);
    for name in
        ["spin_parse_udp", "spin_host_mem", "spin_scratchpad", "spin_cmd_t", "SPIN_MIN", "payload_handler", "task_t"]
    {
        assert!(defined.contains(name), "{name} is looked for: {defined:?}");
    }
    let on_page: BTreeSet<_> = words(&page).collect();
    let missing: Vec<_> = defined.difference(&on_page).collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
    let in_headers: BTreeSet<_> = words(&headers).collect();
    // The page also names the header files, and the macros that a file may define before it includes them.
    let files =
        ["spin_task", "spin_packet", "spin_reply", "spin_command", "spin_atomic", "spin_bytes", "spin_checksum"];
    let others: Vec<_> = on_page
        .difference(&in_headers)
        .filter(|name| !files.contains(name) && !["spin_io", "spin_verdict"].contains(name))
        .collect();
    assert!(others.is_empty(), "on the page alone: {others:?}");
}

#[test]
fn costs_are_measured_by_a_handler_that_runs_to_its_end() {
    let source = spin_handlers::source("costs");
    let (text, page) =
        (fs::read_to_string(&source).unwrap(), fs::read_to_string(folder().join("REFERENCE.md")).unwrap());
    let mut lab = Lab::new(Kind::Jit);
    let (id, _) = lab.install_with("costs", Install { handler_mem: 4096, host_mem: 4096, ..rule("udp dport 9999") });
    assert_eq!(lab.exchange(&[udp(9999, &[7; 1024])]).len(), 1, "what is sent last: {:?}", lab.faults(id));
    assert_eq!((lab.total(Counter::Faults), lab.total(Counter::CommandErrors)), (0, 0));
    for line in text.lines().filter_map(|line| line.trim().strip_prefix("COST(")) {
        if let Some(name) = words(line).next() {
            assert!(page.contains(name), "{name} is measured and not on the page");
        }
    }
}
