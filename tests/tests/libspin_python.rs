//! libspin for Python: its unit tests, NumPy's view of host memory, and the types, with the wheel in an environment of its own.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use spin_tests::{Python, built};

/// Folder of the package's sources.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace").join("host/libspin-python")
}

/// Runs a command that must succeed, and returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command.current_dir(folder()).env("PYTHONDONTWRITEBYTECODE", "1").output().expect("it starts");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{}{}", output.status, said[0], said[1]);
    said.concat()
}

#[test]
fn unit_tests() {
    let Some(python) = Python::with_wheel() else { return };
    let mut unittest = Command::new(python.interpreter());
    unittest.args(["-W", "error", "-m", "unittest", "discover", "-s", "tests"]).env("SPIN_BIN", built());
    let said = run(&mut unittest);
    assert!(said.ends_with("\nOK\n"), "nothing is skipped: {said}");
}

/// Starts the interpreter that has the tools, with the installed package.
fn tools(python: &Python) -> Command {
    let print = "import sysconfig; print(sysconfig.get_path('platlib'))";
    let packages = run(Command::new(python.interpreter()).args(["-c", print]));
    let mut tools = Command::new(python.tool("python"));
    tools.env("PYTHONPATH", packages.trim());
    tools
}

#[test]
fn numpy_views_host_memory() {
    let Some(python) = Python::with_wheel() else { return };
    run(tools(python).arg("tests/numpy_view.py").env("SPIN_BIN", built()));
}

#[test]
fn programs_and_package_have_strict_types() {
    let Some(python) = Python::with_wheel() else { return };
    let package = [&["python/libspin"][..], &["--exclude", "numpy_view", "examples", "tests"]];
    // A file each, since all have one name.
    let apps = ["sources", "cache", "receiver"].map(|app| [format!("../apps/{app}/main.py")]);
    let apps = apps.iter().map(|app| app.each_ref().map(String::as_str));
    for checked in package.into_iter().map(<[_]>::to_vec).chain(apps.map(Vec::from)) {
        let mut mypy = Command::new(python.tool("mypy"));
        mypy.arg("--python-executable").arg(python.interpreter()).arg("--cache-dir").arg(python.tool("mypy-cache"));
        run(mypy.args(checked));
    }
}

#[test]
fn stubs_describe_the_native_part() {
    let Some(python) = Python::with_wheel() else { return };
    let mut stubtest = tools(python);
    stubtest.args([
        "-m",
        "mypy.stubtest",
        "libspin._libspin",
        "--ignore-unused-allowlist",
        "--allowlist",
        "tests/stubtest.txt",
    ]);
    run(&mut stubtest);
}
