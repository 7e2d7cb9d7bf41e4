//! libspin for C: the header in C and C++, the symbols of the shared library, and programs in C on a running spind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use etherparse::PacketBuilder;
use libspin::{Client, Guarantees};
use spin_nic::pcap::{Packet, write_all};
use spin_tests::{Spind, built};

/// Options of a compiler that accepts no doubtful code.
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Folder of the library's sources.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace").join("host/libspin-c")
}

/// Folder of the built libraries. The shared one is linked once.
fn libraries() -> &'static Path {
    static LINKED: OnceLock<&Path> = OnceLock::new();
    LINKED.get_or_init(|| {
        let link = folder().join("../../deploy/link-libraries.sh");
        assert!(Command::new(link).arg(built()).status().expect("bash starts").success());
        built()
    })
}

/// Runs a command that must succeed, and returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{}{}", output.status, said[0], said[1]);
    said[0].clone()
}

/// Whether a program is installed; prints a note if not.
fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        spin_testing::skip(&format!("there is no {program}"));
    }
    found
}

/// Compiles a program of the library's folder into `to`, with the shared or the static library, as the README describes.
fn compile(source: &str, shared: bool, to: &Path) -> PathBuf {
    let source = folder().join(source).with_extension("c");
    let program = to.join(source.file_stem().expect("a file"));
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-O1", "-g"]).args(STRICT).arg("-I").arg(folder().join("include"));
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

/// Runs a program, under valgrind if it is installed: no errors, and no memory left.
fn check(program: &Path, arguments: &[&str]) -> String {
    if !is_there("valgrind") {
        return run(Command::new(program).args(arguments));
    }
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=99", "--leak-check=full", "--show-leak-kinds=all"]);
    command.args(["--errors-for-leak-kinds=all", "--track-fds=no"]);
    run(command.arg(program).args(arguments))
}

/// Functions that the header declares. A declaration begins at the start of a line.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(folder().join("include/spin_client.h")).expect("the header");
    let lines = header.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
    let before = lines.filter_map(|line| line.split_once('(')).map(|(before, _)| before);
    before.filter_map(|text| text.rsplit([' ', '*']).next()).map(str::to_owned).collect()
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// A running spind, a folder, and the handlers of the example in it.
fn prepare() -> (Spind, tempfile::TempDir, PathBuf) {
    let to = tempfile::tempdir().expect("a temporary folder");
    let source = folder().join("examples/count_sources_handlers.c");
    let image = spin_handlers::try_build(&[&source], &["-Werror"]).expect("they compile");
    let file = to.path().join("handlers.elf");
    std::fs::write(&file, image).expect("written");
    (Spind::start(&["--nic", "loopback"]), to, file)
}

/// Writes a capture of six packets of three senders, the first one 10.0.0.3.
fn capture(to: &Path) -> PathBuf {
    let packets = [3, 7, 3, 200, 3, 7].map(|source| {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, source], [10, 0, 0, 99], 64);
        let mut frame = Vec::new();
        builder.udp(1234, 9999).write(&mut frame, b"payload").expect("a vector takes all");
        Packet::whole(0, frame)
    });
    let file = to.join("in.pcap");
    std::fs::write(&file, write_all(&packets)).expect("written");
    file
}

#[test]
fn the_header_is_strict_c_and_cxx() {
    for (compiler, language, standard) in
        [("gcc", "c", "-std=c11"), ("gcc", "c", "-std=c17"), ("g++", "c++", "-std=c++17")]
    {
        if is_there(compiler) {
            let mut command = Command::new(compiler);
            command.args(["-x", language, standard, "-fsyntax-only", "-I"]).arg(folder().join("include")).args(STRICT);
            run(command.arg(folder().join("tests/header.c")));
        }
    }
}

#[test]
fn the_shared_library_exports_the_functions_of_the_header() {
    let library = libraries().join("libspin.so.1");
    let listed = run(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(&library));
    let symbols = listed.lines().filter(|line| !line.ends_with(" A SPIN_1"));
    let symbols = symbols.map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "));
    let expected = declared().iter().map(|name| format!("T {name}@@SPIN_1")).collect::<BTreeSet<_>>();
    assert_eq!(symbols.collect::<BTreeSet<_>>(), expected);
    assert!(expected.len() > 50 && expected.iter().all(|symbol| symbol.starts_with("T spin_")), "{expected:?}");
    let dynamic = run(Command::new("readelf").args(["-W", "-d"]).arg(&library));
    assert!(dynamic.contains("Library soname: [libspin.so.1]"), "{dynamic}");
}

#[test]
fn a_program_counts_packets_by_source() {
    let (spind, to, handlers) = prepare();
    let capture = capture(to.path());
    let socket = spind.socket();
    let arguments = [&socket, &handlers, &capture].map(|path| path_text(path));
    for shared in [true, false] {
        let program = compile("examples/count_sources", shared, to.path());
        let arguments = [&arguments[..], &["udp dport 9999"]].concat();
        // Both libraries have the same code: one run under valgrind is enough.
        let said = if shared { check(&program, &arguments) } else { run(Command::new(&program).args(&arguments)) };
        let total = if shared { 6 } else { 12 };
        let expected = [
            "6 frames arrived",
            "6 copies, 0 events lost",
            "source .3: 3 packets",
            "source .7: 2 packets",
            "source .200: 1 packets",
            &format!("payload_runs: 6 of the engine's {total}"),
        ];
        assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    }
    assert_eq!(spind.ctl_ok(&["list", "--json"]).trim(), "[]", "contexts are removed");
}

#[test]
fn misuse_is_refused_with_a_code_and_a_reason() {
    let (spind, to, handlers) = prepare();
    let program = compile("tests/misuse", true, to.path());
    let socket = spind.socket();
    let said = check(&program, &[&socket, &handlers, to.path(), &capture(to.path())].map(path_text));
    assert_eq!(said, format!("{}\nmisuse: all refused\n", capabilities(&spind)));
}

/// The line of capabilities that `misuse.c` prints.
fn capabilities(spind: &Spind) -> String {
    let known = Client::connect(spind.socket()).expect("it listens").capabilities().expect("an answer");
    let (machine, limits) = (known.machine, known.limits);
    let parts = [machine.clusters, machine.hpus_per_cluster, known.max_frame, known.max_payload];
    let words = [u32::from(known.protocol), known.threads].into_iter().chain(parts);
    let words = words.chain([machine.handler_mem, machine.scratchpad]).map(u64::from);
    let limits = [limits.contexts, limits.queues, limits.host_mem, limits.image, limits.watchdog_us];
    let loopback = Guarantees { clock_hz: None, ..known.guarantees };
    let expected = Guarantees {
        header_first: true,
        in_order_delivery: true,
        in_order: loopback.in_order,
        ..Guarantees::default()
    };
    assert_eq!(loopback, expected, "the bits below are those of a loopback NIC");
    let bits = 3 + 4 * u64::from(loopback.in_order);
    let numbers: Vec<_> = words.chain(limits).chain([bits]).map(|number| number.to_string()).collect();
    format!("{} {}", numbers.join(" "), known.version)
}
