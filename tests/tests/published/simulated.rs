//! Whole runs of the drivers, linked with libpspin and with libpspin-fpspin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use libspin::Abi;
use spin_testing::bounded;
use spin_tests::built;

use super::images::{FORMS, Form, image, published};

/// Compiles the drivers for a library.
fn drivers(abi: Abi, to: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace");
    let (library, define) = match abi {
        Abi::Fpspin => ("pspin-fpspin", "-DSPIN_ABI_FPSPIN"),
        Abi::Pspin | Abi::Wire => ("pspin", "-DSPIN_ABI_PSPIN"),
    };
    let folder = built();
    assert!(Command::new(root.join("deploy/link-libraries.sh")).arg(folder).status().expect("bash starts").success());
    let program = to.join("examples");
    let mut command = Command::new("cc");
    command
        .args(["-std=gnu11", "-O1", "-Wall", "-Werror", define])
        .args((abi == Abi::Fpspin).then_some("-DENTRIES=16384"));
    // The drivers include headers of handlers too.
    command.arg("-I").arg(root.join("handlers/compat/include"));
    command.arg("-I").arg(root.join(format!("host/lib{library}/include"))).arg("-I").arg(published("pspin/driver"));
    command.args(["gdriver.c", "examples.c"].map(|name| published("pspin/driver").join(name))).arg("-o").arg(&program);
    command.arg("-L").arg(folder).arg(format!("-l{library}")).arg(format!("-Wl,-rpath,{}", folder.display()));
    let output = command.output().expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn run(drivers: &Path, name: &str, image: &Path, options: &[&str]) -> Output {
    Command::new(drivers).arg(name).arg(image).args(options).output().expect("it starts")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Names of examples, with options of the driver and the exit status of success.
type Example = (&'static str, &'static [&'static str], i32);
const EXAMPLES: [Example; 13] = [
    ("empty", &["-m", "4"], 0),
    ("ping_pong", &["-m", "8", "-s", "512"], 0),
    ("copy_to_host", &[], 0),
    ("copy_from_host", &["-m", "4", "-s", "300"], 0),
    ("host_direct", &["-m", "8", "-s", "64", "-d", "0"], 0),
    ("aggregate", &["-m", "8"], 0),
    ("reduce", &["-m", "8", "-d", "0", "-l", "0"], 0),
    ("aggregate_and_reduce", &["-m", "8"], 0),
    ("histogram", &["-m", "8", "-p", "20", "-s", "1500"], 0),
    ("filtering", &["-p", "100", "-s", "64"], 0),
    ("synthetic", &["-t"], 1),
    ("perceptron", &["-p", "200", "-s", "128", "-d", "0"], 0),
    ("out_of_order", &["-s", "64", "-d", "0"], 1),
];

/// A trace of two sources, with a wait and a packet of neither.
const TRACE: &str =
    "2 6 512\n0 1 128 10 1 0\n1 0 512 0 2 1\n0 1 0 500 0 0\n0 1 200 0 1 1\n1 0 64 0 3 1\n7 0 64 0 4 1\n";

/// Runs an example in a form of its image.
fn run_example(abi: Abi, drivers: &Path, (name, options, status): Example, form: Form, defines: &[&str], to: &Path) {
    let image = image(abi, name, form, defines, to);
    let trace = to.join("trace");
    fs::write(&trace, TRACE).expect("written");
    let trace = (options == ["-t"]).then_some(trace.to_str().expect("UTF-8"));
    let output = run(drivers, name, &image, &[options, trace.as_slice()].concat());
    assert_eq!(output.status.code(), Some(status), "{abi}, {name}, {form:?}: {}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr);
    // Only the driver of `empty` says anything wrong: it names functions that do not exist.
    assert_eq!(said.is_empty(), name != "empty", "{abi}, {name}, {form:?}: {said}");
    assert!(!text(&output).contains("ended by faults"), "{abi}, {name}, {form:?}: {}", text(&output));
}

#[test]
fn pspins_examples_give_their_results() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let drivers = drivers(Abi::Pspin, folder.path());
    for (turn, form) in FORMS.into_iter().enumerate() {
        for (number, example) in EXAMPLES.into_iter().enumerate() {
            // In short, each example in one form.
            if bounded(number % 3 == turn, true) {
                run_example(Abi::Pspin, &drivers, example, form, &[], folder.path());
            }
        }
        // The published driver of filtering gives a table of 1 MiB to a context of 512 KiB, and ends by its own assertion.
        let image = image(Abi::Pspin, "filtering", form, &[], folder.path());
        let output = run(&drivers, "filtering_published", &image, &[]);
        assert!(output.status.code().is_none() && text(&output).contains("l2_img_size <= HANDLER_MEM_SIZE"));
    }
}

/// A driver that adds a packet when the one before has come back, in a run cycle by cycle.
#[test]
fn a_driver_is_used_interactively() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for abi in [Abi::Pspin, Abi::Fpspin] {
        let drivers = drivers(abi, folder.path());
        let image = image(abi, "ping_pong", Form::SpinCc("gcc"), &[], folder.path());
        let output = run(&drivers, "interactive", &image, &["-i"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{abi}: {}", text(&output));
        assert!(text(&output).contains("\tPackets: 21; "), "{abi}: {}", text(&output));
    }
}

/// The header of libpspin-fpspin has the machine's constants, in C and in C++.
#[test]
fn fpspins_constants_are_those_of_the_machine() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace");
    assert!(Command::new(root.join("deploy/link-libraries.sh")).arg(built()).status().expect("bash starts").success());
    for (compiler, language) in [("cc", "c"), ("c++", "c++")] {
        let program = folder.path().join("constants");
        let mut command = Command::new(compiler);
        command.args(["-x", language, "-I"]).arg(root.join("host/libpspin-fpspin/include"));
        command
            .arg(root.join("host/libpspin/tests/relinked/programs/constants.c"))
            .args(["-x", "none", "-o"])
            .arg(&program);
        command.arg("-L").arg(built()).arg("-lpspin-fpspin").arg(format!("-Wl,-rpath,{}", built().display()));
        assert!(command.status().expect("a compiler").success(), "{compiler}");
        let printed = Command::new(program).output().expect("it starts").stdout;
        let printed = String::from_utf8(printed).expect("text");
        for (name, value) in [
            ("NUM_CLUSTERS", 2_u64),
            ("NUM_CORES", 8),
            ("L1_SIZE", 0x4_0000),
            ("L1_CLUSTER_ACTUAL_MEM_SIZE", 0x4_0000),
            ("L1_RUNTIME_OFFSET", 0x400),
            ("L1_RUNTIME_SIZE", 0x4000),
            ("L1_PKT_BUFF_SIZE", 0x8000),
            ("L1_PKT_BUFF_OFFSET", 0xd000),
            ("L1_SCRATCHPAD_OFFSET", 0x1_5000),
            ("L1_SCRATCHPAD_SIZE", 0x2_b000),
            ("L2_HND_BUFF_START", 0x1c0c_0000),
            ("L2_HND_BUFF_SIZE", 0x4_0000),
            ("L2_PKT_BUFF_START", 0x1c10_0000),
            ("L2_PKT_BUFF_SIZE", 0x8_0000),
            ("PROG_MEM_START", 0x1d00_0000),
            ("PROG_MEM_SIZE", 0x8000),
        ] {
            assert!(printed.lines().any(|line| line == format!("{name} {value}")), "{name} is not {value}: {printed}");
        }
    }
}

/// FPsPIN's layout of the simulation: two clusters, less memory. Packets begin with an IP header in network order where handlers look
/// for it there, and with an Ethernet header for the handlers of `ping_pong`.
#[test]
fn examples_run_on_fpspins_machine() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let drivers = drivers(Abi::Fpspin, folder.path());
    for (turn, form) in FORMS.into_iter().enumerate() {
        for (number, example) in EXAMPLES.into_iter().enumerate() {
            // In short, each example in one form: another one than on PsPIN's machine.
            if bounded((number + 1) % 3 == turn, true) {
                run_example(Abi::Fpspin, &drivers, example, form, &["-DENTRIES=16384"], folder.path());
            }
        }
    }
}
