//! Programs as FPsPIN's are published: host programs and handlers written from the machine's documentation, as their authors would. The
//! images are made by spin-cc with both compilers, or have the published form: a runtime of their own, a segment without bytes at the
//! start of L1, and handlers that only their symbols name, since link-time optimisation removed `init_handlers`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libspin::{Abi, Client};
use spin_testing::bounded;
use spin_tests::{ACTION_TIMEOUT, Spind};

use super::common::{LINK, Link, NEAR, within};
use super::images::{self, FORMS, Form, published};
use super::{Program, all_gone, exchange, folder, link_with_library, spind, udp};

/// Compiles handlers in a form.
fn image(name: &str, form: Form, defines: &[&str], to: &Path) -> PathBuf {
    images::image(Abi::Fpspin, name, form, defines, to)
}

/// Compiles a host program.
fn program(name: &str, to: &Path) -> PathBuf {
    let program = to.join(name);
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"]).arg(folder().join("include"));
    command.arg(published("fpspin").join(name).with_extension("c")).arg("-o").arg(&program);
    link_with_library(&mut command, true);
    let output = command.output().expect("the compiler starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Sum of 16-bit words (RFC 1071). 0xffff for bytes with a right checksum.
fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let sum: u32 = bytes.chunks(2).map(word).sum();
    (sum & 0xffff) + (sum >> 16)
}

/// An echo request with this sequence number.
fn echo_request(number: u16) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 0xaa]);
    let builder = builder.ipv4([10, 0, 0, 1], [10, 0, 0, 0xaa], 64).icmpv4_echo_request(7, number);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[number as u8; 56]).expect("a vector takes all");
    frame
}

/// Runs the ping program with an image, lets frames arrive, and returns the replies.
fn pinged(
    kind: &str,
    through_host: bool,
    spind: &Spind,
    program: &Path,
    image: &Path,
    frames: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let requests = if through_host { frames.len() } else { 0 };
    let mut command = Command::new(program);
    command.args([kind, "/dev/pspin0"]).arg(image).arg(requests.to_string()).env("FPSPIN_SOCKET", spind.socket());
    let mut program = Program::start(&mut command);
    assert_eq!(program.line(), "ready");
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let replies = exchange(&mut client, frames);
    let faults: Vec<_> = client.contexts().expect("a list").into_iter().flat_map(|context| context.faults).collect();
    assert_eq!(faults, []);
    if !through_host {
        program.go_on();
    }
    let (status, printed) = program.end(ACTION_TIMEOUT);
    assert!(status.success());
    let average = if kind == "icmp" || through_host { "known" } else { "unknown" };
    let count = frames.len();
    assert!(printed.starts_with(&format!("{count} packets, average {average}\n")) || !through_host, "{printed}");
    assert!(printed.ends_with("handlers of messages: 0\n"), "{printed}");
    all_gone(&mut client);
    replies
}

#[test]
fn pings_are_answered_by_handlers_and_by_the_host() {
    let count = bounded(100, 1000_u16);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = program("ping_host", folder.path());
    let echo: Vec<_> = (0..count).map(echo_request).collect();
    let datagrams: Vec<_> =
        (0..count).map(|number| udp(1, [4000, 5000], format!("datagram {number}").as_bytes())).collect();
    let engines = ["jit", "interp", "check"];
    for (number, form) in FORMS.into_iter().enumerate() {
        for defines in [&["-DDO_HOST"][..], &[]] {
            if bounded(defines.is_empty() && number > 0, false) {
                continue;
            }
            let [icmp, datagram] = ["icmp_ping", "udp_ping"].map(|name| image(name, form, defines, folder.path()));
            // In short, one engine for each form.
            for &engine in bounded(&engines[number..=number], &engines[..]) {
                let spind = spind(folder.path(), &["--engine", engine]);
                let through_host = !defines.is_empty();
                let what = format!("{form:?}, {defines:?}, {engine}");
                // What is no echo request is not the context's.
                let others = [echo.clone(), datagrams[..5].to_vec()].concat();
                let frames = if through_host { &echo } else { &others };
                let replies = pinged("icmp", through_host, &spind, &program, &icmp, frames);
                assert_eq!(replies.len(), echo.len(), "{what}");
                for (request, reply) in echo.iter().zip(&replies) {
                    assert_eq!((&reply[..6], &reply[6..12]), (&request[6..12], &request[..6]), "{what}");
                    assert_eq!((&reply[26..30], &reply[30..34]), (&request[30..34], &request[26..30]), "{what}");
                    assert_eq!((reply[34], sum(&reply[34..]), &reply[38..]), (0, 0xffff, &request[38..]), "{what}");
                }
                let replies = pinged("udp", through_host, &spind, &program, &datagram, &datagrams);
                assert_eq!(replies.len(), datagrams.len(), "{what}");
                for (request, reply) in datagrams.iter().zip(&replies) {
                    let mut payload = request[42..].to_vec();
                    if through_host {
                        payload.reverse();
                    }
                    assert_eq!((&reply[34..36], &reply[36..38]), (&request[36..38], &request[34..36]), "{what}");
                    assert_eq!(reply[42..], payload, "{what}");
                }
            }
        }
    }
}

/// The kernel's ping, over veth.
#[test]
fn ping_gets_all_its_answers_from_the_host_program() {
    if !rustix::process::geteuid().is_root() {
        spin_testing::skip("ping over veth: network namespaces need root");
        return;
    }
    let (count, link) = (bounded("100", "1000"), Link::new(1));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = super::configuration(folder.path());
    let program = program("ping_host", folder.path());
    for (form, engine) in [(Form::Upstream, "jit"), (Form::SpinCc("clang"), "interp"), (Form::SpinCc("gcc"), "check")] {
        let image = image("icmp_ping", form, &["-DDO_HOST"], folder.path());
        let options = ["--iface", LINK, "--config", &config, "--engine", engine];
        let spind = within(&link.near, || Spind::start(&options));
        let mut command = Command::new(&program);
        let mut host = Program::start(command.arg("icmp").arg(spind.socket()).arg(&image).arg(count));
        assert_eq!(host.line(), "ready");
        let ping = within(&link.far, || {
            Command::new("ping")
                .args(["-c", count, "-i", "0.002", "-W", "10", "-q", NEAR])
                .output()
                .expect("ping starts")
        });
        let said = String::from_utf8_lossy(&ping.stdout);
        assert!(said.contains(&format!("{count} received, 0% packet loss")), "{engine}: {said}");
        let (status, printed) = host.end(ACTION_TIMEOUT);
        assert!(status.success() && printed.starts_with(&format!("{count} packets, average known\n")), "{printed}");
    }
}

/// A datatype engine: an allocator and a hash table in handler memory, and a type that the host writes behind the image's data.
#[test]
fn messages_are_unpacked_by_a_datatype() {
    if !rustix::process::geteuid().is_root() {
        spin_testing::skip("messages over veth: network namespaces need root");
        return;
    }
    let link = Link::new(1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = super::configuration(folder.path());
    let [host, send] = ["datatypes_host", "datatypes_send"].map(|name| program(name, folder.path()));
    for (form, engine) in [(Form::Upstream, "jit"), (Form::SpinCc("clang"), "check"), (Form::SpinCc("gcc"), "interp")] {
        let image = image("datatypes", form, &[], folder.path());
        let options = ["--iface", LINK, "--config", &config, "--engine", engine];
        let spind = within(&link.near, || Spind::start(&options));
        let (messages, bytes) = bounded(("5", "20000"), ("20", "50000"));
        let mut command = Command::new(&host);
        let mut host = Program::start(command.arg(spind.socket()).arg(&image).args([messages, bytes, "600"]));
        assert_eq!(host.line(), "ready");
        let sent = within(&link.far, || Command::new(&send).args([NEAR, messages, bytes]).output().expect("it starts"));
        assert!(sent.status.success(), "{engine}: {}", String::from_utf8_lossy(&sent.stderr));
        let (status, printed) = host.end(ACTION_TIMEOUT);
        assert!(status.success(), "{form:?}, {engine}: {printed}");
        assert_eq!(printed, "unpacked\n");
    }
}

/// Functions with names like `calc_phase` are no handlers of an image that has `init_handlers`. Without it, the first names are.
#[test]
fn handlers_are_those_that_the_image_declares() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = program("phases_host", folder.path());
    let spind = spind(folder.path(), &[]);
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let datagrams: Vec<_> = (1..=6).map(|host| udp(host, [4000, 9], &[0; 80])).collect();
    for form in FORMS {
        let defines = if form == Form::Upstream { &["-DFIRST"][..] } else { &[] };
        let image = image("phases", form, defines, folder.path());
        // Calls of the header, payload and completion handler, of calc_phase (by the payload handler) and of work_phases.
        for (ruleset, calls) in [("match", "6 6 6 6 0"), ("udp", "0 6 0 6 0")] {
            let mut command = Command::new(&program);
            let mut host = Program::start(command.arg(spind.socket()).arg(&image).arg(ruleset));
            assert_eq!(host.line(), "ready", "{form:?}, {ruleset}");
            let replies = exchange(&mut client, &datagrams).len();
            host.go_on();
            assert_eq!((host.line(), replies), (calls.to_owned(), 6), "{form:?}, {ruleset}");
            assert!(host.end(ACTION_TIMEOUT).0.success());
            all_gone(&mut client);
        }
    }
    // No handler of this image would run on packets without messages.
    let image = image("phases", FORMS[0], &["-DIDLE"], folder.path());
    let refused = Command::new(&program).arg(spind.socket()).arg(&image).arg("udp").output().expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.starts_with("fpspin_init: ") && said.contains("no header and completion handler runs"), "{said}");
    all_gone(&mut client);
}

/// A program that was linked with the library as it was before its structures changed does not start.
#[test]
fn a_program_of_the_first_library_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    // The first library had no soname and no symbol versions.
    fs::write(path("old.c"), "int fpspin_init(void) { return 1; }\n").expect("written");
    fs::write(path("program.c"), "int fpspin_init(void);\nint main(void) { return fpspin_init() ? 0 : 3; }\n")
        .expect("written");
    let cc = |arguments: &[&str]| {
        assert!(Command::new("cc").current_dir(folder.path()).args(arguments).status().expect("cc starts").success());
    };
    cc(&["-shared", "-fPIC", "-o", "libfpspin.so", "old.c"]);
    cc(&["-o", "program", "program.c", "-L.", "-lfpspin"]);
    let run = |libraries: &Path| {
        Command::new(path("program")).env("LD_LIBRARY_PATH", libraries).output().expect("the program starts")
    };
    assert!(run(folder.path()).status.success(), "with its own library it runs");
    let new = link_with_library(&mut Command::new("cc"), true);
    let symbols = Command::new("readelf").args(["-W", "--dyn-syms"]).arg(new.join("libfpspin.so.2")).output();
    let symbols = String::from_utf8(symbols.expect("readelf starts").stdout).expect("text");
    for name in ["fpspin_init", "fpspin_prog_me", "slmp_sendmsg", "hexdump"] {
        assert!(symbols.contains(&format!(" {name}@@FPSPIN_2\n")), "{name} in {symbols}");
    }
    let refused = run(new);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(127), "{said}");
    assert!(said.contains("linked with an older libfpspin") && said.contains("compile and link it again"), "{said}");
}

/// A refusal of host memory prints the configuration line that allows it.
#[test]
fn host_memory_up_to_a_gigabyte_works_with_the_line_that_the_refusal_prints() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (host, image) = (program("datatypes_host", folder.path()), image("datatypes", FORMS[0], &[], folder.path()));
    let start = |spind: &Spind, pages: u32| {
        let mut command = Command::new(&host);
        command.arg(spind.socket()).arg(&image).args(["1", "1", &pages.to_string()]);
        command
    };
    for (pages, config) in [(32_768 + 16, "large.toml"), (262_144, "largest.toml")] {
        let refused = start(&spind(folder.path(), &[]), pages).output().expect("it starts");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "64 MiB is the default limit");
        let line = said.split('`').nth(1).unwrap_or_else(|| panic!("a line in {said}"));
        assert_eq!(line, format!("host_mem = {}", pages * 4096));
        let path = folder.path().join(config);
        fs::write(&path, format!("preset = 'fpspin'\n[limits]\n{line}\n")).expect("written");
        let spind = Spind::start(&["--nic", "loopback", "--config", path.to_str().expect("UTF-8")]);
        assert_eq!(Program::start(&mut start(&spind, pages)).line(), "ready");
    }
}
