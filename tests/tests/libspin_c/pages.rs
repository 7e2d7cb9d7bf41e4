//! The manual pages: each function has one, with the header's declaration.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use spin_tests::c_programs::{is_there, libspin_c, run};

use crate::header::{constants, declared, normalized};

/// A page in mdoc(7).
pub struct Page {
    /// File name without extension.
    pub name: String,
    text: String,
}

/// A program of a page, and what it prints.
pub struct Example {
    pub program: String,
    pub output: String,
}

/// All pages.
pub fn pages() -> Vec<Page> {
    let files = fs::read_dir(libspin_c().join("man")).expect("a folder").map(|entry| entry.expect("an entry").path());
    let name = |path: &std::path::Path| path.file_stem().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
    files.map(|path| Page { name: name(&path), text: fs::read_to_string(&path).expect("text") }).collect()
}

impl Page {
    /// Text of a section.
    fn section(&self, name: &str) -> &str {
        let start = self.text.split_once(&format!("\n.Sh {name}\n")).map_or("", |(_, text)| text);
        start.split("\n.Sh ").next().unwrap_or_default()
    }

    /// Functions that the section NAME lists.
    fn names(&self) -> Vec<&str> {
        self.section("NAME")
            .lines()
            .filter_map(|line| Some(line.strip_prefix(".Nm ")?.trim_end_matches(" ,")))
            .collect()
    }

    /// Functions of the synopsis, with their normalized declarations.
    fn declarations(&self) -> BTreeMap<String, String> {
        let mut declarations = BTreeMap::new();
        let mut result = "";
        for line in self.section("SYNOPSIS").lines() {
            match words(line).as_slice() {
                [".Ft", kind] => result = kind,
                [".Fn", name, arguments @ ..] => {
                    let declaration = normalized(&format!("{result} {name}({})", arguments.join(", ")));
                    assert_eq!(declarations.insert((*name).to_owned(), declaration), None, "{name} is there twice");
                }
                _ => {}
            }
        }
        declarations
    }

    /// The section's displays are programs, each followed by its output.
    pub fn examples(&self) -> Vec<Example> {
        let displays = self.section("EXAMPLES").split(".Bd -literal -offset indent\n").skip(1);
        let displays: Vec<_> = displays.map(|text| plain(text.split_once("\n.Ed").expect("an end").0)).collect();
        let pairs = displays.chunks(2).map(|pair| match pair {
            [program, output] => Example { program: program.clone(), output: output.clone() },
            _ => panic!("{}: each program shows its output", self.name),
        });
        pairs.collect()
    }
}

/// Words of a line, some of them in quotation marks.
fn words(line: &str) -> Vec<&str> {
    let parts = line.split('"').enumerate();
    // Each second part is inside quotation marks.
    parts
        .flat_map(|(number, part)| if number % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
        .collect()
}

/// Text of a display, with a newline at the end.
fn plain(display: &str) -> String {
    let text = display.replace(r"\&.", ".").replace(r"\-", "-").replace(r"\(aq", "'");
    assert_eq!(
        text.matches('\\').count(),
        text.matches(r"\e").count(),
        "an escape that this test does not know: {text}"
    );
    text.replace(r"\e", r"\") + "\n"
}

#[test]
fn each_function_has_one_page_with_its_declaration() {
    let mut shown = BTreeMap::new();
    for page in pages() {
        let declarations = page.declarations();
        if page.name == "libspin" {
            assert!(declarations.is_empty() && page.names() == ["libspin"]);
            continue;
        }
        let mut names = page.names();
        names.sort_unstable();
        assert_eq!(names, declarations.keys().collect::<Vec<_>>(), "NAME and SYNOPSIS of {}", page.name);
        for (name, declaration) in declarations {
            assert_eq!(shown.insert(name.clone(), declaration), None, "{name} has two pages");
        }
    }
    for (name, declaration) in declared() {
        assert_eq!(shown.remove(&name), Some(declaration), "{name} in the header, and on its page");
    }
    assert!(shown.is_empty(), "not in the header: {shown:?}");
}

#[test]
fn constants_of_the_header_are_explained() {
    let text: String = pages().into_iter().map(|page| page.text).collect();
    let missing: Vec<_> = constants().into_iter().filter(|name| !text.contains(&format!(".It Dv {name}\n"))).collect();
    assert!(missing.is_empty(), "on no page: {missing:?}");
}

#[test]
fn the_pages_are_valid() {
    if is_there("mandoc") {
        let files = pages().into_iter().map(|page| libspin_c().join(format!("man/{}.3", page.name)));
        run(Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(files));
    }
}
