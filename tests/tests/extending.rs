//! The diffs of `docs/extending.md` apply to the sources. With `SPIN_TEST_LONG=1` the result is built, and passes its unit tests.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use spin_testing::bounded;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Returns the fenced diff blocks of a document.
fn diffs(document: &str) -> Vec<String> {
    let blocks = document.split("```diff\n").skip(1);
    blocks.map(|block| block.split("```").next().expect("a block").to_owned()).collect()
}

/// Removes what an earlier copy of a folder has and the folder has no more: a module that moved would be there twice.
fn remove_leftovers(from: &Path, to: &Path) {
    for entry in fs::read_dir(to).expect("a folder").map(|entry| entry.expect("an entry")) {
        if from.join(entry.file_name()).exists() {
            continue;
        }
        let remove = if entry.path().is_dir() { fs::remove_dir_all } else { fs::remove_file };
        remove(entry.path()).expect("it is ours");
    }
}

/// Makes `to` a copy of the workspace without build products.
fn copy_sources(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    remove_leftovers(from, to);
    for entry in fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry")) {
        let (name, path) = (entry.file_name(), entry.path());
        if name == "target" || name == ".git" {
            continue;
        }
        let kind = entry.file_type().expect("a type");
        let place = to.join(&name);
        if kind.is_dir() {
            copy_sources(&path, &place);
        } else if kind.is_file() && fs::read(&place).ok() != Some(fs::read(&path).expect("a file")) {
            // Keeping the modification time spares cargo a rebuild.
            fs::copy(&path, &place).expect("room");
        }
    }
}

fn apply(diff: &str, copy: &Path) {
    // Otherwise git would search for the files in the repository around the copy.
    let mut git = Command::new("git")
        .args(["apply", "-"])
        .current_dir(copy)
        .env("GIT_CEILING_DIRECTORIES", copy.parent().expect("a folder"))
        .stdin(Stdio::piped())
        .spawn()
        .expect("git runs");
    git.stdin.take().expect("a pipe").write_all(diff.as_bytes()).expect("git reads");
    assert!(git.wait().expect("git ends").success(), "does not apply:\n{diff}");
}

/// Writes the manifest of a workspace whose packages are in the folder `tree`. In a shared target folder cargo tells packages apart by
/// their path in the workspace: with the paths of the original one, the copy's artifacts would replace its artifacts.
fn write_manifest(copy: &Path) {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    let (members, rest) = manifest.split_once("\n]\n").expect("members");
    let members = members.replace("    \"", "    \"tree/");
    let rest = rest.replace("path = \"", "path = \"tree/");
    fs::write(copy.join("Cargo.toml"), format!("{members}\n]\n{rest}")).expect("room");
    fs::copy(root().join("Cargo.lock"), copy.join("Cargo.lock")).expect("room");
}

#[test]
fn the_diffs_of_the_extension_guide_apply() {
    let target = root().join("target");
    let copy = target.join("extending");
    let tree = copy.join("tree");
    copy_sources(&root(), &tree);
    fs::remove_file(tree.join("Cargo.toml")).expect("the manifest of the workspace");
    write_manifest(&copy);
    let document = fs::read_to_string(root().join("docs/extending.md")).expect("the guide");
    let diffs = diffs(&document);
    assert_eq!(diffs.len(), 3, "a drop cause, a scheduling policy, a command");
    diffs.iter().for_each(|diff| apply(diff, &tree));
    if bounded(false, true) {
        build_and_test(&copy, &target);
    }
}

fn build_and_test(copy: &Path, target: &Path) {
    let tests = Command::new(env!("CARGO"))
        .args(["test", "--locked", "--lib", "-p", "spin-abi", "-p", "spin-engine", "-p", "libpspin"])
        // With this feature, cranelift is the one that the tests of the workspace use. Otherwise cargo would build it again.
        .args(["--features", "hpu-vm/all-hosts", "--", "--nocapture"])
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .expect("cargo runs");
    let output = String::from_utf8_lossy(&tests.stdout);
    assert!(tests.status.success(), "{output}{}", String::from_utf8_lossy(&tests.stderr));
    for test in ["a_context_of_lower_priority_waits", "the_fourth_type_clears_host_memory"] {
        assert!(output.contains(&format!("{test} ... ok")), "{test} did not run");
    }
}
