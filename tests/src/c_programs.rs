//! C programs that use libspin.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use spin_testing::skip;

use crate::built;

/// Options of a compiler that accepts no doubtful code.
pub const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Returns the folder of the C library's sources.
///
/// # Panics
/// When the tests do not lie in the workspace.
#[must_use]
pub fn libspin_c() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace").join("host/libspin-c")
}

/// Returns the folder of the built libraries. The shared ones are linked once.
///
/// # Panics
/// When they do not link.
#[must_use]
pub fn libraries() -> &'static Path {
    static LINKED: OnceLock<&Path> = OnceLock::new();
    LINKED.get_or_init(|| {
        run(Command::new(libspin_c().join("../../deploy/link-libraries.sh")).arg(built()));
        built()
    })
}

/// Runs a command, and returns what it printed.
///
/// # Panics
/// When it does not succeed.
pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{}{}", output.status, said[0], said[1]);
    said[0].clone()
}

/// Whether a program is installed; prints a note if not.
///
/// # Panics
/// When it is not, with `SPIN_REQUIRE_ALL=1` in the environment.
#[must_use]
pub fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        skip(&format!("there is no {program}"));
    }
    found
}

/// Compiles a C program to the folder `to`, with the shared or the static library, as the README of libspin for C describes.
///
/// # Panics
/// When it does not compile.
#[must_use]
pub fn compile(source: &Path, shared: bool, to: &Path) -> PathBuf {
    let program = to.join(source.file_stem().expect("a file"));
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-O1", "-g"]).args(STRICT).arg("-I").arg(libspin_c().join("include"));
    command.arg(source).arg("-o").arg(&program);
    let library = libraries();
    if shared {
        command.arg("-L").arg(library).arg("-lspin").arg(format!("-Wl,-rpath,{}", library.display()));
    } else {
        command.arg(library.join("libspin.a")).args(["-ldl", "-lm"]);
    }
    run(command.arg("-lpthread"));
    program
}

/// A command that runs a program under valgrind, if that is installed: an error, and memory that is left, make it fail.
#[must_use]
pub fn checked(program: &Path) -> Command {
    if !is_there("valgrind") {
        return Command::new(program);
    }
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=99", "--leak-check=full", "--show-leak-kinds=all"]);
    command.args(["--errors-for-leak-kinds=all", "--track-fds=no"]).arg(program);
    command
}
