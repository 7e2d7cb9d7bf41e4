//! The binary interface of the shared library: nothing that programs were linked with is changed or removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use spin_testing::bounded;
use spin_tests::c_programs::{is_there, libraries, libspin_c, run};

/// Compares two descriptions or libraries. Added functions are accepted.
fn abidiff(from: &Path, to: &Path) -> Output {
    let mut command = Command::new("abidiff");
    command.args(["--no-architecture", "--no-added-syms"]);
    // Enumerations. Of a library in Rust there are internal types too.
    command.args((to.extension() == Some("xml".as_ref())).then_some("--non-reachable-types"));
    command.arg(from).arg(to).output().expect("it starts")
}

fn reference() -> PathBuf {
    libspin_c().join("abi/libspin.so.1.xml")
}

/// Builds the library once more, with other options of the compiler.
fn release_build() -> PathBuf {
    let root = libspin_c().join("../..");
    let release = libraries().parent().expect("target").join("release");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(&root).args(["build", "--release", "-p", "libspin-c", "-p", "libfpspin", "--quiet", "--locked"]);
    run(cargo.env("CARGO_TARGET_DIR", release.parent().expect("target")));
    run(Command::new(root.join("deploy/link-libraries.sh")).arg(&release));
    release.join("libspin.so.1")
}

fn assert_equal(from: &Path, to: &Path) {
    let output = abidiff(from, to);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "programs linked with libspin.so.1 would break: it needs another soname:\n{said}");
}

/// Describes, in a folder, the library's header and symbols with `from` replaced.
fn described(to: &Path, from: &str, by: &str) -> PathBuf {
    fs::create_dir_all(to.join("include")).expect("a folder");
    for name in ["include/spin_client.h", "spin.map"] {
        let text = fs::read_to_string(libspin_c().join(name)).expect("a file");
        fs::write(to.join(name), text.replace(from, by)).expect("written");
    }
    let description = run(Command::new(libspin_c().join("abi/describe.sh")).arg(to));
    fs::write(to.join("described.xml"), description).expect("written");
    to.join("described.xml")
}

#[test]
fn header_and_library_have_the_interface_of_the_reference() {
    if !is_there("abidiff") {
        return;
    }
    let to = tempfile::tempdir().expect("a temporary folder");
    let header = described(&to.path().join("header"), "", "");
    let library = libraries().join("libspin.so.1");
    assert_equal(&reference(), &header);
    // Types that have equal sizes and other names are no difference to abidiff.
    assert_equal(&reference(), &library);
    if bounded(false, true) {
        assert_equal(&library, &release_build());
    }
    // It is silent about a library without debugging information.
    let wide = described(&to.path().join("wide"), "uint32_t hpus)", "uint64_t hpus)");
    for known in [&header, &library] {
        let said = String::from_utf8(abidiff(&wide, known).stdout).expect("UTF-8");
        assert!(said.contains("spin_options_set_hpus"), "{}: {said}", known.display());
    }
}

#[test]
fn changes_that_break_programs_are_found() {
    if !is_there("abidiff") {
        return;
    }
    let to = tempfile::tempdir().expect("a temporary folder");
    let edits = [
        ("uint32_t hpus)", "uint64_t hpus)", "spin_options_set_hpus"),
        ("const char *name);", "const void *name);", "spin_options_set_name"),
        ("    uint32_t pc;\n    uint32_t address;", "    uint32_t address;\n    uint32_t pc;", "spin_events_poll"),
        ("SPIN_E_AMBIGUOUS = 10", "SPIN_E_AMBIGUOUS = 20", "enum spin_status"),
        ("        spin_find;\n", "", "spin_find"),
    ];
    for (from, by, expected) in edits {
        let output = abidiff(&reference(), &described(to.path(), from, by));
        let said = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(!output.status.success() && said.contains(expected), "{expected}: {said}");
    }
}
