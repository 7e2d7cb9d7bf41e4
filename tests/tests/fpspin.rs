//! libfpspin from C and C++: programs shaped like FPsPIN's, compiled as their authors would, with handlers in C, on a
//! running spind.

#[path = "../../nic/tests/common/mod.rs"]
mod common;
#[path = "fpspin/compat.rs"]
mod compat;
#[path = "../published/image.rs"]
mod images;
#[path = "fpspin/programs.rs"]
mod programs;
#[path = "fpspin/published.rs"]
mod published;
#[path = "fpspin/slmp.rs"]
mod slmp;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use libspin::Client;
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_tests::{ACTION_TIMEOUT, Spind, built};

/// Folder of the library.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace").join("host/libfpspin")
}

/// Language of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    C,
    Cxx,
}

/// Whether this machine can compile a language; prints a note if not.
fn compiles(language: Language) -> bool {
    let compiler = language.compiler();
    let there = Command::new(compiler).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there {
        spin_testing::skip(&format!("there is no {compiler}"));
    }
    there
}

impl Language {
    const fn compiler(self) -> &'static str {
        match self {
            Self::C => "cc",
            Self::Cxx => "c++",
        }
    }
}

/// Compiles `examples/NAME.c` or `tests/NAME.c` into `to` and links it as the README describes, with the shared or the
/// static library.
fn compile(name: &str, language: Language, shared: bool, to: &Path) -> PathBuf {
    let places = ["examples", "tests"].map(|place| folder().join(place).join(name).with_extension("c"));
    let source = places.iter().find(|path| path.is_file()).expect("there is such a program");
    let program = to.join(name);
    let mut command = Command::new(language.compiler());
    command.args(match language {
        Language::C => ["-x", "c", "-std=c11"],
        Language::Cxx => ["-x", "c++", "-std=c++17"],
    });
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-I"]).arg(folder().join("include"));
    command.arg(source).args(["-x", "none", "-o"]).arg(&program);
    link_with_library(&mut command, shared);
    let output = command.output().expect("the compiler starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Adds the shared or the static library to a compiler's arguments, as the README describes. Returns the library's folder.
fn link_with_library(command: &mut Command, shared: bool) -> &'static Path {
    let library = built();
    if shared {
        let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/link-libraries.sh");
        assert!(Command::new(link).arg(library).status().expect("bash starts").success());
        command.arg("-L").arg(library).arg("-lfpspin").arg(format!("-Wl,-rpath,{}", library.display()));
    } else {
        command.arg(library.join("libfpspin.a")).args(["-lpthread", "-ldl", "-lm"]);
    }
    library
}

/// Compiles handlers into the programs' folder.
fn handlers(name: &str, to: &Path) -> PathBuf {
    let places = ["examples", "tests"].map(|place| folder().join(place).join(name).with_extension("c"));
    let source = places.iter().find(|path| path.is_file()).expect("there are such handlers");
    let image = to.join(name).with_extension("elf");
    let bytes = spin_handlers::try_build(&[source], &["--abi", "fpspin", "-Werror"]).expect("they compile");
    std::fs::write(&image, bytes).expect("a temporary folder takes files");
    image
}

/// A running program; killed when dropped.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().expect("piped")));
        Self { child, input, output }
    }

    /// Returns the next line of the program's output.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Resumes the program.
    fn go_on(&mut self) {
        self.input.as_mut().expect("piped").write_all(b"\n").expect("it reads");
    }

    /// Waits for the program's exit, and returns the rest of its output.
    fn end(mut self, patience: Duration) -> (ExitStatus, String) {
        let deadline = Instant::now() + patience;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(Instant::now() < deadline, "the program did not end");
            thread::sleep(Duration::from_millis(5));
        };
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        (status, rest)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a spind on the loopback NIC as an FPsPIN, with a time limit that lets programs answer handlers.
fn spind(folder: &Path, options: &[&str]) -> Spind {
    let config = configuration(folder);
    Spind::start(&[&["--nic", "loopback", "--config", &config], options].concat())
}

/// Writes a configuration file of FPsPIN's machine. Its limits allow for handlers that wait for programs, and for
/// programs that are preempted.
fn configuration(folder: &Path) -> String {
    let path = folder.join("spind.toml");
    std::fs::write(&path, "preset = 'fpspin'\n[limits]\nwatchdog_us = 60_000_000\n").expect("written");
    path.to_str().expect("temporary paths are UTF-8").to_owned()
}

/// A UDP datagram from 10.0.0.`host`.
fn udp(host: u8, ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, host], [2, 0, 0, 0, 0, 0xaa]);
    let builder = builder.ipv4([10, 0, 0, host], [10, 0, 0, 0xaa], 64).udp(ports[0], ports[1]);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).expect("a vector takes all");
    frame
}

/// Returns the frames that handlers send when these frames arrive.
fn exchange(client: &mut Client, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let packets: Vec<_> = frames.iter().map(|frame| Packet::whole(0, frame.clone())).collect();
    let sent = client.replay(&write_all(&packets)).expect("loopback replays");
    read_all(&sent).expect("spind writes captures").into_iter().map(|packet| packet.data).collect()
}

/// Waits until all contexts are removed.
fn all_gone(client: &mut Client) {
    let deadline = Instant::now() + ACTION_TIMEOUT;
    while !client.contexts().expect("a list").is_empty() {
        assert!(Instant::now() < deadline, "contexts go with their programs");
        thread::sleep(Duration::from_millis(5));
    }
}
