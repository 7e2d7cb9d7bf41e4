//! The real spind and spinctl over the loopback NIC and captures: no root needed.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use libspin::{Checks, Client, Install, Lifetime, MAX_BLOB, Placement};
use rustix::process::{Pid, Signal, kill_process};
use spin_abi::control::{Reply, Request};
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_shm::channel;
use spin_tests::{ACTION_TIMEOUT, Killed, Spind, binary, image, udp, wait_until};

fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    write_all(&frames.iter().map(|frame| Packet::whole(0, frame.clone())).collect::<Vec<_>>())
}

/// Writes a handler's image to a file for spinctl.
fn image_file(folder: &tempfile::TempDir, handler: &str) -> String {
    let path = folder.path().join(handler).with_extension("elf");
    fs::write(&path, image(handler)).expect("a temporary folder takes files");
    path.to_str().expect("temporary paths are UTF-8").to_owned()
}

fn rule(text: &str) -> Install {
    Install { rules: vec![text.into()], ..Install::default() }
}

/// Returns the number of answers to one datagram to `port`.
fn answers(spind: &mut Client, port: u16) -> usize {
    let replies = spind.replay(&capture(&[udp(port, b"hello")])).expect("loopback replays");
    read_all(&replies).expect("spind writes captures").len()
}

#[test]
fn spinctl_installs_lists_counts_and_removes() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let folder = tempfile::tempdir().unwrap();
    let pingpong = image_file(&folder, "udp_pingpong");
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    fs::write(&input, capture(&[udp(9999, b"one"), udp(80, b"no"), udp(9999, b"two")])).unwrap();
    let (input, output_text) = (input.to_str().unwrap(), output.to_str().unwrap());

    assert_eq!(spind.ctl_ok(&["install", &pingpong, "--rule", "udp dport 9999"]), "installed context 1\n");
    let list = spind.ctl_ok(&["list"]);
    assert!(list.contains("udp_pingpong") && list.contains("udp dport 9999"), "{list}");
    spind.ctl_ok(&["replay", input, output_text]);
    assert_eq!(read_all(&fs::read(&output).unwrap()).unwrap().len(), 2);
    let stats = spind.ctl_ok(&["stats"]);
    for line in ["payload_runs                            2", "drop_unmatched                          1"] {
        assert!(stats.contains(line), "{line:?} in\n{stats}");
    }
    assert_eq!(spind.ctl_ok(&["rm", "udp_pingpong"]), "removed context 1\n");
    let said = spind.ctl_ok(&["replay", input, output_text]);
    assert!(said.contains("matched no context), 0 were sent"), "{said}");
    assert_eq!(read_all(&fs::read(&output).unwrap()).unwrap().len(), 0, "replies stop");
    let refused = spind.ctl(&["replay", input, input]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("it is what is replayed"));
    let twice = [(); 2].map(|()| spind.ctl(&["install", &pingpong, "--rule", "udp dport 7", "--rule", "udp dport 8"]));
    let notes = twice.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
    assert_eq!(notes[0], "");
    let note = |port| {
        format!("spinctl: note: context 2 (udp_pingpong) comes first, and gets what matches \"udp dport {port}\"\n")
    };
    assert_eq!(notes[1], note(7) + &note(8));
    ["2", "3"].into_iter().for_each(|id| _ = spind.ctl_ok(&["rm", id]));
    let huge = folder.path().join("huge");
    fs::File::create(&huge).unwrap().set_len(100 << 20).unwrap();
    let refused = spind.ctl(&["install", huge.to_str().unwrap(), "--rule", "any"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("too long, spind takes at most 16777216 bytes"));
    let refused = spind.ctl(&["rm", "udp_pingpong"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no context \"udp_pingpong\" is installed"));
}

#[test]
fn what_takes_a_context_s_place_has_its_name_and_who_follows_its_events_is_told_when_it_goes() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let folder = tempfile::tempdir().unwrap();
    let [pingpong, loops] = ["udp_pingpong", "endless_loop"].map(|name| image_file(&folder, name));
    spind.ctl_ok(&["install", &pingpong, "--name", "reply", "--rule", "udp dport 9999"]);
    for (image, id) in [(&pingpong, 2), (&loops, 3)] {
        let said = spind.ctl_ok(&["install", "--replace", "reply", image, "--rule", "udp dport 9999"]);
        assert_eq!(said, format!("installed context {id} in place of {}\n", id - 1));
    }
    let follow = |spind: &Spind| {
        Command::new(binary("spinctl"))
            .args(["events", "-f", "reply", "--socket"])
            .arg(spind.socket())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("spinctl runs")
    };
    // Once an event is printed, the context's events are followed.
    let event = |child: &mut Child| {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        line
    };
    let said = |child: Child| {
        let output = child.wait_with_output().expect("it ends");
        (output.status.success(), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    let mut client = Client::connect(spind.socket()).expect("spind is up");
    client.replay(&capture(&[udp(9999, b"a")])).expect("loopback replays");
    let mut following = follow(&spind);
    let first = event(&mut following);
    assert!(first.contains("ran over its time"), "{first}");
    spind.ctl_ok(&["rm", "reply"]);
    let (fine, text) = said(following);
    assert!(fine && text.contains("context 3 is gone"), "{text}");
    spind.ctl_ok(&["install", &loops, "--name", "reply", "--rule", "udp dport 9999"]);
    client.replay(&capture(&[udp(9999, b"a")])).expect("loopback replays");
    let mut following = follow(&spind);
    event(&mut following);
    let _folder = spind.kill();
    let (fine, text) = said(following);
    assert!(!fine && text.starts_with("spinctl: "), "{text}");
}

#[test]
fn faults_are_reported_with_cause_place_and_symbol() {
    let mut spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    for (port, handler) in [(1, "wild_jump"), (2, "endless_loop"), (3, "store_outside")] {
        let install = Install { checks: Checks::Exact, ..rule(&format!("udp dport {port}")) };
        client.install(&install, &image(handler)).unwrap();
    }
    client.install(&rule("udp dport 9999"), &image("udp_pingpong")).unwrap();
    let with_lines = spin_handlers::try_build(&[&spin_handlers::source("illegal")], &["-g"]).unwrap();
    client.install(&rule("udp dport 4"), &with_lines).unwrap();
    let ports = [1, 9999, 2, 9999, 3, 9999, 4];
    let frames = ports.map(|port| udp(port, b"e"));
    let replies = client.replay(&capture(&frames)).unwrap();
    assert_eq!(read_all(&replies).unwrap().len(), 3, "the packets in between are answered");
    let stats = spind.ctl_ok(&["stats"]);
    for text in [
        "fault in payload handler: jump outside the code (pc 0x00002000, address 0x00002000) in payload_handler",
        "fault in payload handler: ran over its time limit (pc 0x1d00",
        "fault in payload handler: store outside its memory (pc 0x1d00",
        " in payload_handler+0x",
        " (illegal.c:",
    ] {
        assert!(stats.contains(text), "{text:?} in\n{stats}");
    }
    let events = spind.ctl_ok(&["events", "5"]);
    assert!(events.contains("illegal instruction") && events.contains(" in payload_handler+0x"), "{events}");
    assert!(events.trim_end().ends_with(')') && events.contains(" (illegal.c:"), "{events}");
    // The log contains a context's first and tenth fault.
    client.replay(&capture(&[3; 10].map(|port| udp(port, b"e")))).unwrap();
    spind.wait_for_log("fault 10 in payload handler: store outside its memory (pc 0x1d00");
    assert_eq!(spind.logged.matches("fault 1 in payload handler").count(), 4, "{}", spind.logged);
    assert_eq!(spind.logged.matches("handler: store outside").count(), 2, "{}", spind.logged);
}

#[test]
fn a_panic_in_rust_names_its_file_and_line_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = "#![no_std]
        use spin_handler::{Task, handlers};
        handlers! { payload: look }
        fn look(task: &mut Task<'_>) {
            let packet = task.packet();
            assert!(packet[42] != b'!', \"not this one\");
        }";
    fs::write(path("look.rs"), text).unwrap();
    let mut compiler = Command::new(spin_handlers::folder().join("sdk/bin/spin-rustc"));
    let compiled = compiler.arg(path("look.rs")).arg("-o").arg(path("look.elf")).output().unwrap();
    let said = String::from_utf8_lossy(&compiled.stderr);
    if said.contains("no core for RISC-V") {
        spin_testing::skip(&format!("handlers in Rust: {said}"));
        return;
    }
    assert!(compiled.status.success(), "{said}");
    let mut spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    client.install(&rule("udp dport 1"), &fs::read(path("look.elf")).unwrap()).unwrap();
    client.replay(&capture(&[udp(1, b"!")])).unwrap();
    spind.wait_for_log("look.rs:6");
    assert!(spind.logged.contains("panicked at "), "{}", spind.logged);
    spind.wait_for_log("error 6 reported by the handler");
}

#[test]
fn a_context_that_leaves_messages_open_is_told_of_what_it_loses() {
    let mut spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    client.install(&Install { eom: Some("ether type 0xffff".into()), ..rule("udp dport 1") }, &image("empty")).unwrap();
    // Each datagram is a message of its own, by its address.
    let frames: Vec<_> = (0..256 + 12_u16)
        .map(|number| {
            let mut frame = udp(1, b"e");
            frame[26..28].copy_from_slice(&number.to_be_bytes());
            frame
        })
        .collect();
    client.replay(&capture(&frames)).unwrap();
    spind.wait_for_log(
        "packet 10 of a new message is lost: all queues are taken, 256 of them by messages of context 1 (",
    );
    assert_eq!(spind.logged.matches("of a new message is lost").count(), 2, "{}", spind.logged);
    let stats = spind.ctl_ok(&["stats", "--explain"]);
    let lost = "drop_no_mpq                            12  frames of a new message";
    let context = stats.split("context 1").nth(1).expect("the context's");
    assert!(context.contains(lost), "{stats}");
}

#[test]
fn a_log_that_nobody_reads_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("talks.c");
    let line = "again and again and again and again and again and again";
    fs::write(
        &source,
        format!(
            "#include <spin.h>\nvoid payload_handler(handler_args_t *args) {{ (void)args; spin_puts(\"{line}\\n\"); }}"
        ),
    )
    .unwrap();
    let talks = spin_handlers::build(&source);
    let socket = folder.path().join("spind.sock");
    let mut command = Command::new(binary("spind"));
    command.args(["--nic", "loopback", "--socket"]).arg(&socket).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut spind = Killed(command.spawn().expect("spind starts"));
    wait_until(|| Client::connect(&socket).is_ok_and(|mut client| client.contexts().is_ok()));
    let mut client = Client::connect(&socket).unwrap();
    client.install(&rule("udp dport 1"), &talks).unwrap();
    client.install(&rule("udp dport 9999"), &image("udp_pingpong")).unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        // More lines than a pipe holds and than spind queues.
        client.replay(&capture(&vec![udp(1, b"x"); 8000])).unwrap();
        tell.send(answers(&mut client, 9999))
    });
    assert_eq!(told.recv_timeout(ACTION_TIMEOUT), Ok(1));
    let pid = Pid::from_raw(spind.0.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::TERM).unwrap();
    assert!(spind.0.wait().unwrap().success(), "it ends all the same");
}

#[test]
fn what_cannot_be_written_is_no_failure() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    for log_too in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("spind.sock");
        let mut command = Command::new(binary("spind"));
        let log = if log_too { full().into() } else { Stdio::null() };
        command.args(["--nic", "loopback", "--socket"]).arg(&socket).stdout(full()).stderr(log);
        let mut spind = Killed(command.spawn().expect("spind starts"));
        wait_until(|| Client::connect(&socket).is_ok_and(|mut client| client.contexts().is_ok()));
        kill_process(Pid::from_raw(spind.0.id().cast_signed()).expect("a process"), Signal::TERM).unwrap();
        assert!(spind.0.wait().unwrap().success());
    }
}

#[test]
fn broken_images_are_refused_with_a_reason_and_spind_serves_on() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    client.install(&rule("udp dport 9999"), &image("udp_pingpong")).unwrap();
    let good = image("counter");
    let word = |at: usize| u32::from_le_bytes(good[at..at + 4].try_into().unwrap()) as usize;
    let program_headers = word(28);
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = good.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let second = program_headers + 32;
    let first_address: [u8; 4] = good[program_headers + 8..program_headers + 12].try_into().unwrap();
    let broken = [
        ("64-bit", with(4, &[2])),
        ("big-endian", with(5, &[2])),
        ("another machine", with(18, &62u16.to_le_bytes())),
        ("overlapping segments", with(second + 8, &first_address)),
        ("entry outside the code", with(24, &0x1000_0000u32.to_le_bytes())),
        ("1 GiB of BSS", with(second + 20, &0x4000_0000u32.to_le_bytes())),
        ("no ELF", b"#!/bin/sh\n".to_vec()),
        ("nothing", Vec::new()),
    ];
    let mut reasons = Vec::new();
    for (what, image) in broken {
        match client.install(&rule("udp dport 1"), &image) {
            Err(libspin::Error::Refused(reason)) => reasons.push(format!("{what}: {reason}")),
            other => panic!("{what}: {other:?}"),
        }
    }
    eprintln!("{}", reasons.join("\n"));
    reasons.iter().for_each(|reason| assert!(reason.contains("handler image: "), "{reason}"));
    // Images cut at every byte are refused, except for cuts that leave all segments and only shorten sections for
    // tools.
    let mut refused = 0;
    for len in 0..good.len() {
        match client.install(&rule("udp dport 1"), &good[..len]) {
            Err(libspin::Error::Refused(_)) => refused += 1,
            Ok(context) => client.remove(context.id).unwrap(),
            Err(other) => panic!("cut at {len}: {other}"),
        }
    }
    assert_eq!(refused, good.len(), "a file cut anywhere is refused: the section headers are at its end");
    assert_eq!(answers(&mut client, 9999), 1, "spind serves on");
    assert_eq!(client.contexts().unwrap().len(), 1);
}

#[test]
fn a_context_lives_as_long_as_its_connection_or_as_spind() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let mut watcher = Client::connect(spind.socket()).unwrap();
    let mut owner = Client::connect(spind.socket()).unwrap();
    let install = Install { host_mem: 8192, ..rule("udp dport 1") };
    let context = owner.install(&install, &image("dma_probe")).unwrap();
    owner.install(&Install { lifetime: Lifetime::Daemon, ..rule("udp dport 2") }, &image("udp_pingpong")).unwrap();
    let shown: Vec<_> = watcher.contexts().unwrap().iter().map(|context| context.lifetime).collect();
    assert_eq!(shown, [Lifetime::Connection, Lifetime::Daemon]);
    let persistent = Install { lifetime: Lifetime::Persistent, ..rule("udp dport 3") };
    let refused = owner.install(&persistent, &image("udp_pingpong")).unwrap_err().to_string();
    assert!(refused.contains("no state folder"), "{refused}");
    assert_eq!(answers(&mut watcher, 1), 1);
    // Handlers use the host memory's address in this process; they wrote the packet's start there.
    let host = context.host.expect("host memory");
    let mut start = [0; 6];
    host.read(0, &mut start).unwrap();
    assert_eq!(start, [2, 0, 0, 0, 0, 2], "the frame's destination address");
    drop(owner);
    wait_until(|| watcher.contexts().unwrap().len() == 1);
    assert_eq!(watcher.contexts().unwrap()[0].rules, ["udp dport 2"]);
    assert_eq!(answers(&mut watcher, 1), 0);
}

#[test]
fn nonsense_on_the_control_socket_harms_nobody() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    client.install(&rule("udp dport 9999"), &image("udp_pingpong")).unwrap();
    // A complete message that is not understood is answered; the connection and its contexts stay.
    let stream = UnixStream::from(client.as_fd().try_clone_to_owned().unwrap());
    let set_rules = r#"{"request":"set-rules","context":1,"rules":["udp"],"eomm":"never"}"#;
    for json in [r#"{"request":"remove","of":[[[]]]}"#, r#"{"request":"capability"}"#, r#""stats""#, "[]", set_rules] {
        let length = u32::try_from(json.len()).unwrap();
        let blob = spin_abi::control::Preamble { json: length, blob: 3 }.encode();
        (&stream).write_all(&[&blob, json.as_bytes(), b"???"].concat()).unwrap();
        let reply = channel::receive::<Reply>(&stream).unwrap().expect("a reply").body;
        assert!(matches!(&reply, Reply::Error { message } if message.contains("not understood")), "{json}: {reply:?}");
    }
    assert_eq!(answers(&mut client, 9999), 1);
    // If the kernel supports it, descriptors are not even received.
    let other = UnixStream::connect(spind.socket()).unwrap();
    let sent = spin_shm::send_with_fds(&other, &[0; 16], &[stream.as_fd()]);
    let can = spin_shm::take_no_fds(&UnixStream::pair().unwrap().0).is_ok();
    assert_eq!(sent.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied), can);
    let preamble = spin_abi::control::Preamble { json: 20, blob: u32::from(u16::MAX) }.encode();
    let mut seed = 1u32;
    for round in 0..300 {
        let mut stream = UnixStream::connect(spind.socket()).unwrap();
        let mut bytes: Vec<u8> = (0..round)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                seed.to_be_bytes()[0]
            })
            .collect();
        if round % 3 == 0 {
            bytes.splice(0..0, preamble);
        }
        // spind may close the connection before everything is written.
        let _ = stream.write_all(&bytes);
    }
    assert_eq!(answers(&mut client, 9999), 1);
}

#[test]
fn signals_end_it_with_statistics_and_leave_no_socket() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut spind = Spind::start(&["--nic", "loopback"]);
        let mut client = Client::connect(spind.socket()).unwrap();
        client.install(&rule("udp dport 9999"), &image("udp_pingpong")).unwrap();
        assert_eq!(answers(&mut client, 9999), 1);
        spind.signal(signal);
        let (success, printed) = spind.wait();
        assert!(success);
        assert!(
            printed.contains("###### Statistics ######\nNIC inbound engine:\n\tPackets: 1; Bytes: 47"),
            "{printed}"
        );
        assert!(!spind.socket().exists());
    }
}

#[test]
fn a_socket_in_use_is_kept_and_a_stale_one_replaced() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let second =
        Command::new(binary("spind")).args(["--nic", "loopback", "--socket"]).arg(spind.socket()).output().unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("another spind listens on"));
    let folder = spind.kill();
    assert!(folder.path().join("spind.sock").exists(), "killed without notice, it left its socket");
    let spind = Spind::start_in(folder, &["--nic", "loopback"]);
    assert_eq!(Client::connect(spind.socket()).unwrap().contexts().unwrap().len(), 0);
}

/// Capabilities needed to serve an interface: NET_ADMIN (12), NET_RAW (13), BPF (39).
const KEPT: u64 = 1 << 12 | 1 << 13 | 1 << 39;

#[test]
fn what_it_does_not_need_it_gives_up() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let status = fs::read_to_string(format!("/proc/{}/status", spind.pid())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel tells");
        u64::from_str_radix(line.trim(), 16).expect("hexadecimal")
    };
    assert_eq!(field("CapPrm:") & !KEPT, 0);
    assert_eq!(field("CapEff:") & !KEPT, 0);
    assert_eq!(field("NoNewPrivs:"), 1);
}

#[test]
fn who_looks_for_long_handlers_has_priority_and_nothing_else() {
    if !rustix::process::geteuid().is_root() {
        spin_testing::skip("real-time priority needs root");
        return;
    }
    let spind = Spind::start(&["--nic", "loopback"]);
    let of_task =
        |task: std::io::Result<fs::DirEntry>, file: &str| fs::read_to_string(task.unwrap().path().join(file)).unwrap();
    let tasks = || fs::read_dir(format!("/proc/{}/task", spind.pid())).expect("spind runs");
    let monitor = tasks().position(|task| of_task(task, "comm").trim() == "spin-monitor").expect("a monitor");
    let task = |file| of_task(tasks().nth(monitor).expect("it stays"), file);
    // Fields of proc_pid_stat(5) after the name; the policy is field 41.
    let stat = task("stat");
    let policy = stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(41 - 3));
    assert_eq!(policy, Some("1"), "SCHED_FIFO");
    assert!(task("status").lines().any(|line| line == "CapPrm:\t0000000000000000"));
}

#[test]
fn without_privileges_an_interface_is_refused_and_the_capabilities_named() {
    if !rustix::process::geteuid().is_root() {
        spin_testing::skip("becoming an unprivileged user needs root");
        return;
    }
    // A folder that another user can read, wherever the source tree is.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("spind");
    fs::copy(binary("spind"), &program).unwrap();
    let error_with = |socket: &Path| {
        let mut command = Command::new(&program);
        command.args(["--iface", "lo", "--xdp-mode", "generic", "--socket"]).arg(socket);
        let output = command.uid(65534).gid(65534).output().unwrap();
        assert_eq!(output.status.code(), Some(77), "no restart mends that");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = error_with(&folder.path().join("s"));
    // A socket path that needs privileges too is not what the first error is about.
    assert_eq!(error_with(Path::new("/run/spin-unprivileged.sock")), error);
    for capability in ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_PERFMON", "CAP_IPC_LOCK"] {
        assert!(error.contains(capability), "{error}");
    }
}

#[test]
fn install_says_which_rules_never_hold_and_why_handlers_are_interpreted() {
    let folder = tempfile::tempdir().unwrap();
    let image = image_file(&folder, "udp_pingpong");
    let warnings = |arguments: &[&str]| {
        let spind = Spind::start(arguments);
        let install = ["install", &image, "--rule", "udp dport 1 and udp dport 2"];
        let run = Command::new(binary("spinctl")).args(install).arg("--socket").arg(spind.socket()).output().unwrap();
        assert!(run.status.success());
        String::from_utf8(run.stderr).unwrap()
    };
    let never = "spinctl: rule `udp dport 1 and udp dport 2` never holds: no packet matches both `udp dport 1` and `udp dport 2`\n";
    assert_eq!(warnings(&["--nic", "loopback"]), never);
    let interpreted = "spinctl: its handlers are interpreted: spind runs with --engine interp\n";
    assert_eq!(warnings(&["--nic", "loopback", "--engine", "interp"]), format!("{never}{interpreted}"));
    let spind = Spind::start(&["--nic", "loopback", "--engine", "interp"]);
    spind.ctl_ok(&["install", &image, "--rule", "udp"]);
    assert!(spind.ctl_ok(&["list"]).contains("  interpreted: spind runs with --engine interp\n"));
}

#[test]
fn a_tier_that_is_off_is_refused_or_explained() {
    let folder = tempfile::tempdir().unwrap();
    let image = image_file(&folder, "udp_pingpong");
    let spind = Spind::start(&["--nic", "loopback"]);
    let install = |tier: &str| spind.ctl(&["install", &image, "--rule", "udp", "--name", tier, "--tier", tier]);
    let reason = "the kernel tier is off (`kernel_tier = true` in spind's configuration turns it on)\n";
    let refused = install("kernel");
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.ends_with(&format!("tier kernel: {reason}")), "{said}");
    assert!(install("user").status.success() && install("auto").status.success());
    let list = spind.ctl_ok(&["list"]);
    assert_eq!(list.matches("  tier: ").count(), 1, "{list}");
    assert!(list.ends_with(&format!("  tier: user; {reason}")), "{list}");
}

#[test]
fn handlers_are_named_on_the_command_line_and_in_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let image = image_file(&folder, "udp_pingpong");
    let spind = Spind::start(&["--nic", "loopback"]);
    let install = |handlers: &str| spind.ctl(&["install", &image, "--rule", "udp", "--handlers", handlers]);
    let error = |handlers: &str| String::from_utf8(install(handlers).stderr).unwrap();
    assert!(error("xh=payload_handler").contains("\"xh\" is no handler; expected hh=NAME,ph=NAME,th=NAME"));
    assert!(
        error("th=nothing").contains("completion_handler \"nothing\" is neither a symbol of the image nor an address")
    );
    assert!(install("th=payload_handler").status.success());
    assert!(spind.ctl_ok(&["list"]).contains(" --c "), "{}", spind.ctl_ok(&["list"]));
    let config = folder.path().join("spind.toml");
    let text = format!("[[context]]\nimage = {image:?}\nrules = ['udp']\nhandlers = 'hh=payload_handler'\n");
    fs::write(&config, text).unwrap();
    let spind = Spind::start(&["--nic", "loopback", "--config", config.to_str().unwrap()]);
    assert!(spind.ctl_ok(&["list"]).contains(" h-- "), "{}", spind.ctl_ok(&["list"]));
}

#[test]
fn the_folder_of_the_socket_has_its_mode_whatever_the_umask() {
    for umask in ["000", "022", "077", "777"] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("spin/spind.sock");
        let mut command = Command::new("sh");
        command.args(["-c", "umask $0; exec \"$@\"", umask]).arg(binary("spind"));
        command.args(["--nic", "loopback", "--socket"]).arg(&socket).stdout(Stdio::null()).stderr(Stdio::null());
        let _spind = Killed(command.spawn().expect("spind starts"));
        wait_until(|| Client::connect(&socket).is_ok_and(|mut client| client.contexts().is_ok()));
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(socket.parent().unwrap()), mode(&socket)), (0o755, 0o660), "umask {umask}");
    }
}

#[test]
fn an_ordinary_file_is_not_taken_for_a_stale_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    fs::write(&path, "data").unwrap();
    let run = Command::new(binary("spind")).args(["--nic", "loopback", "--socket"]).arg(&path).output().unwrap();
    assert!(String::from_utf8_lossy(&run.stderr).contains("exists and is no socket"));
    assert_eq!(fs::read(&path).unwrap(), b"data");
}

#[test]
fn a_successors_socket_is_left_alone() {
    let mut first = Spind::start(&["--nic", "loopback"]);
    fs::remove_file(first.socket()).unwrap();
    let second = Command::new(binary("spind"))
        .args(["--nic", "loopback", "--socket"])
        .arg(first.socket())
        .stderr(Stdio::null())
        .spawn();
    let mut second = second.unwrap();
    wait_until(|| Client::connect(first.socket()).is_ok());
    first.signal(Signal::TERM);
    assert!(first.wait().0);
    let served = Client::connect(first.socket()).and_then(|mut client| client.contexts());
    second.kill().unwrap();
    second.wait().unwrap();
    assert_eq!(served.unwrap().len(), 0);
}

#[test]
fn connections_are_limited_and_the_refusal_is_heard() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let mut held: Vec<_> = (0..32).map(|_| Client::connect(spind.socket()).unwrap()).collect();
    held.iter_mut().for_each(|client| assert_eq!(client.contexts().unwrap().len(), 0));
    let refused = Client::connect(spind.socket()).unwrap().contexts().unwrap_err().to_string();
    assert!(refused.contains("all 32 control connections of this user are in use"), "{refused}");
    held.pop();
    wait_until(|| Client::connect(spind.socket()).unwrap().contexts().is_ok());
}

/// Replies may carry descriptors, which the kernel counts against spind until they are received.
#[test]
fn a_connection_is_in_use_until_its_replies_are_read() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let unread: Vec<_> = (0..32)
        .map(|_| {
            let stream = UnixStream::connect(spind.socket()).unwrap();
            channel::send(&stream, &Request::List, &[], None).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            stream
        })
        .collect();
    let refused = || Client::connect(spind.socket()).unwrap().contexts().is_err();
    wait_until(refused);
    // Longer than a list takes.
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(10));
        assert!(refused(), "all are in use");
    }
    for stream in &unread {
        assert!(matches!(channel::receive::<Reply>(stream).unwrap().expect("a reply").body, Reply::Contexts { .. }));
    }
    wait_until(|| !refused());
}

#[test]
fn what_is_behind_a_request_has_a_bound_by_its_kind() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    let limit = client.capabilities().unwrap().limits.image;
    let context = client.install(&rule("udp dport 1"), &image("udp_pingpong")).unwrap().id;
    let stream = UnixStream::from(client.as_fd().try_clone_to_owned().unwrap());
    let said = move |request: &Request, len: usize| {
        channel::send(&stream, request, &vec![7; len], None).unwrap();
        match channel::receive::<Reply>(&stream).unwrap().expect("a reply").body {
            Reply::Error { message } => message,
            other => panic!("{other:?}"),
        }
    };
    let (image_len, install) = (usize::try_from(limit).unwrap() + 1, Request::Install(Box::new(rule("udp dport 2"))));
    assert_eq!(said(&install, image_len), format!("an image of {image_len} bytes: at most {limit} on this machine"));
    let write = Request::WriteMemory { context, address: 0, unit: 0 };
    assert!(said(&write, 5 << 20).contains("at most 4194304"), "as much as L2 has for handlers");
    assert!(said(&Request::List, 16 << 20).contains("behind a request that has none"));
    // A blob that is not read while blobs of other connections are pending is read once these are closed.
    let preamble = spin_abi::control::Preamble { json: 20, blob: u32::try_from(MAX_BLOB).unwrap() }.encode();
    let others = [(); 2].map(|()| UnixStream::connect(spind.socket()).unwrap());
    others.iter().for_each(|mut other| {
        other.write_all(&[&preamble, &br#"{"request":"replay"}"#[..], &[0; 9]].concat()).unwrap()
    });
    let waiting = std::thread::spawn(move || said(&Request::Replay, MAX_BLOB));
    drop(others);
    let reply = waiting.join().unwrap();
    assert!(reply.starts_with("capture:"), "{reply}");
    assert_eq!(answers(&mut client, 1), 1);
}

/// Descriptors in flight count against the limit of their sender, which is spind. A client that does not receive them
/// gets one per connection.
#[test]
fn descriptors_that_nobody_receives_are_few() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let mut others: Vec<_> = (0..31).map(|_| Client::connect(spind.socket()).unwrap()).collect();
    others.iter_mut().for_each(|client| assert_eq!(client.contexts().unwrap().len(), 0));
    let mut client = Client::connect(spind.socket()).unwrap();
    let context = client.install(&rule("udp dport 1"), &image("udp_pingpong")).unwrap().id;
    let stream = UnixStream::from(client.as_fd().try_clone_to_owned().unwrap());
    (0..5).for_each(|_| channel::send(&stream, &Request::Events { context }, &[], None).unwrap());
    stream.shutdown(Shutdown::Write).unwrap();
    // The list is empty once all requests of the closed connection have been answered.
    wait_until(|| others[0].contexts().unwrap().is_empty());
    let refused = Client::connect(spind.socket()).unwrap().contexts().unwrap_err().to_string();
    assert!(refused.contains("all 32 control connections"), "{refused}");
    let replies = (0..5).map(|_| channel::receive::<Reply>(&stream).unwrap().expect("a reply"));
    let replies: Vec<_> = replies.collect();
    assert!(matches!(replies[0].body, Reply::Events { .. }) && replies[0].fd.is_some());
    for reply in &replies[1..] {
        let Reply::Error { message } = &reply.body else { panic!("{reply:?}") };
        assert!(message.contains("read the replies") && reply.fd.is_none(), "{message}");
    }
    wait_until(|| Client::connect(spind.socket()).unwrap().contexts().is_ok());
}

#[test]
fn rules_are_as_short_as_they_are_shown() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    let eom = vec!["kind&1=1"; 300].join(" or ");
    assert!(eom.len() < 4096);
    let refused =
        client.install(&Install { eom: Some(eom), ..rule("udp dport 1") }, &image("udp_pingpong")).unwrap_err();
    assert!(refused.to_string().contains("at most 4096"), "{refused}");
    // The request exceeds the limit for applications.
    let refused = client.set_rules(1, vec![String::new(); 100_000], None).unwrap_err().to_string();
    assert!(refused.contains("at most 65536"), "{refused}");
}

#[test]
fn a_handler_that_sends_without_end_does_not_hang_a_replay() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    client.install(&rule("udp dport 1"), &image("command_loop")).unwrap();
    assert!((1..1000).contains(&answers(&mut client, 1)), "it sent until it was refused or ended");
    assert_eq!(client.stats().unwrap().contexts[0].faults.len(), 1);
}

/// Each frame's handler uses its full time limit: a minute in total.
#[test]
fn a_replay_that_takes_long_keeps_nobody_waiting_and_ends_with_spind() {
    let mut spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    client.install(&rule("udp dport 1"), &image("spin")).unwrap();
    let long = udp(1, &[0xff; 4]);
    let mut other = Client::connect(spind.socket()).unwrap();
    let replay = std::thread::spawn(move || client.replay(&capture(&vec![long; 6000])).map(drop));
    wait_until(|| {
        let counters = other.stats().unwrap().engine;
        counters.iter().any(|(name, count)| name == "faults" && count > 2)
    });
    assert_eq!(other.contexts().unwrap().len(), 1);
    let id = other.install(&rule("udp dport 2"), &image("udp_pingpong")).unwrap().id;
    other.remove(id).unwrap();
    assert!(!replay.is_finished(), "all of that was answered meanwhile");
    spind.signal(Signal::TERM);
    assert!(spind.wait().0);
    assert!(replay.join().unwrap().is_err(), "what was sent so far is not all");
}

#[test]
fn each_engine_serves_and_says_how_contexts_are_run() {
    let folder = tempfile::tempdir().unwrap();
    let handler = image_file(&folder, "udp_pingpong");
    for engine in ["interp", "jit", "check"] {
        let spind = Spind::start(&["--nic", "loopback", "--engine", engine]);
        let options = ["--checks", "exact", "--isolation", "message", "--placement", "home", "--watchdog-us", "5000"];
        let install = [&["install", &handler, "--rule", "udp dport 9999"], &options[..]].concat();
        spind.ctl_ok(&install);
        let mut client = Client::connect(spind.socket()).unwrap();
        assert_eq!(answers(&mut client, 9999), 1, "{engine}");
        let how = format!("engine: {engine}; checks: exact; isolation: message; placement: home; limit: 5000 us");
        for command in ["list", "stats"] {
            let shown = spind.ctl_ok(&[command]);
            assert!(shown.contains(&how), "{how:?} in\n{shown}");
        }
        let refused = spind.ctl(&["install", &handler, "--rule", "any", "--watchdog-us", "10001"]);
        let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(reason.contains("time limit in microseconds 10001: between 1 and 10000"), "{reason}");
        let stats = client.stats().unwrap();
        assert_eq!(stats.engine.named("check_differences"), Some(0), "{:?}", stats.engine);
    }
}

#[test]
fn another_clusters_l1_is_named_where_it_is_out_of_reach() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    let home = Install { scratchpad: 64, placement: Placement::Home, ..rule("udp dport 1") };
    client.install(&home, &image("remote_l1")).unwrap();
    client.replay(&capture(&[udp(1, b"1x")])).unwrap();
    let stats = spind.ctl_ok(&["stats"]);
    assert!(stats.contains("store outside its memory (pc 0x1d00"), "{stats}");
    assert!(stats.contains(": remote L1: cluster "), "{stats}");
}

#[test]
fn host_memory_of_an_installed_context_can_be_dumped() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let folder = tempfile::tempdir().unwrap();
    let probe = image_file(&folder, "dma_probe");
    spind.ctl_ok(&["install", &probe, "--rule", "udp dport 1", "--host-mem", "4K"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    assert_eq!(answers(&mut client, 1), 1);
    let dump = spind.ctl(&["dump", "dma_probe", "--length", "6"]).stdout;
    assert_eq!(dump, [2, 0, 0, 0, 0, 2], "the frame's destination address, which the handler wrote there");
    assert_eq!(spind.ctl(&["dump", "1"]).stdout.len(), 4096);
    assert!(!spind.ctl(&["dump", "1", "--offset", "1", "--length", "4K"]).status.success());
    assert!(!spind.ctl(&["dump", "1", "--offset", "8K"]).status.success());
}

#[test]
fn captures_in_and_out_with_contexts_from_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let pingpong = image_file(&folder, "udp_pingpong");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("in.pcap"), capture(&[udp(9999, b"one"), udp(80, b"no"), udp(9999, b"two")])).unwrap();
    fs::write(
        path("spind.toml"),
        format!(
            "nic = 'pcap:{},{}'\n[[context]]\nimage = '{pingpong}'\nrules = ['udp dport 9999']\n",
            path("in.pcap"),
            path("out.pcap")
        ),
    )
    .unwrap();
    let run = Command::new(binary("spind"))
        .args(["--config", &path("spind.toml"), "--socket", &path("spind.sock")])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert!(
        String::from_utf8_lossy(&run.stdout).contains("payload_runs: 2"),
        "{}",
        String::from_utf8_lossy(&run.stdout)
    );
    let replies = read_all(&fs::read(path("out.pcap")).unwrap()).unwrap();
    let payloads: Vec<_> = replies.iter().map(|frame| frame.data[42..].to_vec()).collect();
    assert_eq!(payloads, [b"one", b"two"]);

    // A capture that is cut off: the statistics up to that point are still printed.
    let whole = fs::read(path("in.pcap")).unwrap();
    fs::write(path("in.pcap"), &whole[..whole.len() - 3]).unwrap();
    let run = Command::new(binary("spind"))
        .args(["--config", &path("spind.toml"), "--socket", &path("spind.sock")])
        .output()
        .unwrap();
    let (printed, said) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(!run.status.success() && said.contains("ends inside the record"), "{said}");
    assert!(printed.contains("payload_runs: 1"), "{printed}");
}

/// Each change of contexts is logged. Frames that are too short for any rule do not count as arrived.
#[test]
fn changes_of_contexts_are_logged() {
    let mut spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    let named = Install { name: "echo".into(), ..rule("udp dport 9999") };
    let id = client.install(&named, &image("udp_pingpong")).unwrap().id;
    let uid = rustix::process::getuid().as_raw();
    spind.wait_for_log(&format!("user {uid} installed \"echo\" for udp dport 9999 as context {id}"));
    client.set_rules(id, vec!["udp dport 1".into(), "icmp echo".into()], None).unwrap();
    spind.wait_for_log(&format!("user {uid} has context {id} take udp dport 1 or icmp echo"));
    let (_, told) = client.replay_counted(&capture(&[vec![0; 13], vec![], udp(1, b"a")])).unwrap();
    assert_eq!((told.arrived, told.too_short, told.sent), (1, 2, 1));
    client.remove(id).unwrap();
    spind.wait_for_log(&format!("user {uid} removed context {id}"));
    // A refused request is not logged as a change.
    client.remove(id).unwrap_err();
    client.install(&named, &image("udp_pingpong")).unwrap();
    spind.wait_for_log(&format!("as context {}", id + 1));
    assert_eq!(spind.logged.matches("removed context").count(), 1, "{}", spind.logged);
}

#[test]
fn clear_errors_for_what_a_user_gets_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s").to_str().unwrap().to_owned();
    let fails = |arguments: &[&str]| {
        let run = Command::new(binary("spind")).args(arguments).args(["--socket", &socket]).output().unwrap();
        assert!(!run.status.success(), "{arguments:?} succeeded");
        String::from_utf8(run.stderr).unwrap()
    };
    assert!(fails(&[]).contains("no NIC to serve: give --iface IF"));
    assert!(fails(&["--nic", "carrier-pigeon"]).contains("\"carrier-pigeon\" is not a NIC"));
    let missing = fails(&["--iface", "nosuch0"]);
    assert!(missing.contains("nosuch0") && missing.contains("lo"), "names those that exist: {missing}");
    let clusters = fails(&["--nic", "loopback", "--clusters", "5"]);
    assert!(clusters.contains("machine.clusters 5: between 1 and 4"), "{clusters}");
    assert!(fails(&["--nic", "pcap:/nonexistent,/tmp/x"]).contains("/nonexistent"));
    let bad_rule = folder.path().join("spind.toml");
    let image = image_file(&folder, "udp_pingpong");
    fs::write(&bad_rule, format!("iface = 'lo'\n[[context]]\nimage = '{image}'\nrules = ['udp dprt 1']\n")).unwrap();
    let bad_rule = fails(&["--config", bad_rule.to_str().unwrap()]);
    assert!(bad_rule.contains("udp_pingpong.elf: rule 1: column 5"), "before the interface is touched: {bad_rule}");
    assert!(fails(&["--config", "/nonexistent"]).contains("configuration /nonexistent"));
    let none = Command::new(binary("spinctl")).args(["list", "--socket", &socket]).output().unwrap();
    assert!(String::from_utf8_lossy(&none.stderr).contains("cannot connect to spind at"));
}
