//! The guide's `sh` blocks work as printed, run one after the other in one shell.
#![forbid(unsafe_code)]

use std::process::Command;

use spin_handlers::folder;
use spin_tests::binary;

/// Returns the contents of the guide's blocks of one language.
fn blocks<'t>(guide: &'t str, language: &str) -> Vec<&'t str> {
    let fence = format!("\n```{language}\n");
    let ends = |rest: &'t str| &rest[..rest.find("\n```\n").expect("a block ends")];
    guide.split(&fence).skip(1).map(ends).collect()
}

/// Whether a block needs `core` for RISC-V.
fn is_rust(block: &str) -> bool {
    block.contains("spin-rustc")
}

#[test]
fn every_command_of_the_guide_works() {
    let guide = std::fs::read_to_string(folder().join("GUIDE.md")).unwrap();
    let mut blocks = blocks(&guide, "sh");
    assert!(blocks.len() >= 7 && blocks.iter().any(|block| is_rust(block)), "{blocks:?}");
    let home = tempfile::tempdir().unwrap();
    let sdk = folder().join("sdk/bin");
    let programs = binary("spind");
    let path = [sdk.as_path(), programs.parent().expect("in a folder")];
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let all = path.into_iter().map(Into::into).chain(std::env::split_paths(&inherited));
    let path = std::env::join_paths(all).unwrap();
    let run = |script: &str| {
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", script]).current_dir(home.path()).env("PATH", &path);
        let output = shell.output().expect("bash starts");
        (output.status.success(), [output.stdout, output.stderr].concat())
    };
    let empty = "#![no_std]\nspin_handler::handlers! { payload: f }\nfn f(_: &mut spin_handler::Task<'_>) {}\n";
    std::fs::write(home.path().join("probe.rs"), empty).unwrap();
    let (can, said) = run("spin-rustc probe.rs -o probe.elf");
    if !can {
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("no core for RISC-V"), "{said}");
        spin_testing::skip(&format!("the guide's handler in Rust: {said}"));
        blocks.retain(|block| !is_rust(block));
    }
    let (worked, said) = run(&blocks.join("\n"));
    assert!(worked, "{}", String::from_utf8_lossy(&said));
}

#[test]
fn files_that_the_guide_names_are_there() {
    let guide = std::fs::read_to_string(folder().join("GUIDE.md")).unwrap();
    let links: Vec<_> = guide.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(!links.is_empty());
    for link in links {
        assert!(folder().join(link).exists(), "{link}");
    }
}
