//! Programs on the loopback NIC: no root needed.

use std::collections::HashMap;
use std::process::Command;

use libspin::Client;
use spin_tests::ACTION_TIMEOUT;

use super::Language::{C, Cxx};
use super::{Program, all_gone, compile, compiles, exchange, handlers, spind, udp};

/// Splits a line into a constant or member and the header's value of it.
fn printed(line: &str) -> Option<(&str, &str)> {
    let at = line.find(|c: char| c == ' ' && !line.starts_with("struct")).or_else(|| {
        // Format of a member: "struct type.member offset size".
        line.match_indices(' ').nth(1).map(|(at, _)| at)
    })?;
    Some((&line[..at], &line[at + 1..]))
}

/// Layout of `pspin-abi.md` §5 and of FPsPIN's registers, written independently of the library.
const LAYOUT: &[(&str, &str)] = &[
    ("NUM_HPUS", "16"),
    ("ip.ihl", "5"),
    ("ip.version", "4"),
    ("PAGE_SIZE", "4096"),
    ("FPSPIN_HOSTDMA_PAGES_DEFAULT", "16"),
    ("DMA_ALIGN", "64"),
    ("SLMP_PORT", "9330"),
    ("SLMP_PAYLOAD_SIZE", "1462"),
    ("DMA_BUS_WIDTH", "512"),
    ("L2_END", "470810624"),
    ("MAX_COUNTERS", "16"),
    ("NUM_CLUSTERS", "2"),
    ("NUM_RULESETS", "4"),
    ("NUM_RULES_PER_RULESET", "4"),
    ("FPSPIN_MODE_AND", "0"),
    ("FPSPIN_MODE_OR", "1"),
    ("MKEOM", "32768"),
    ("MKSYN", "16384"),
    ("MKACK", "8192"),
    ("EOM(0xe000)", "32768"),
    ("SYN(0xe000)", "16384"),
    ("ACK(0xe000)", "8192"),
    ("sizeof(fpspin_addr_t)", "4"),
    ("mac_addr_t.data", "0 6"),
    ("eth_hdr_t.src", "6 6"),
    ("eth_hdr_t.length", "12 2"),
    ("ip_hdr_t.length", "2 2"),
    ("ip_hdr_t.protocol", "9 1"),
    ("ip_hdr_t.source_id", "12 4"),
    ("ip_hdr_t.dest_id", "16 4"),
    ("udp_hdr_t.dst_port", "2 2"),
    ("udp_hdr_t.length", "4 2"),
    ("slmp_hdr_t.msg_id", "2 4"),
    ("slmp_hdr_t.pkt_off", "6 4"),
    ("pkt_hdr_t.ip_hdr", "14 20"),
    ("pkt_hdr_t.udp_hdr", "34 8"),
    ("slmp_pkt_hdr_t.slmp_hdr", "42 10"),
    ("struct fpspin_rule.idx", "0 4"),
    ("struct fpspin_rule.end", "12 4"),
    ("fpspin_ruleset_t.r", "0 64"),
    ("fpspin_ruleset_t.mode", "64 4"),
    ("fpspin_flag_t.dma_id", "0 1"),
    ("fpspin_flag_t.len", "1 4"),
    ("fpspin_flag_t.hpu_id", "5 2"),
    ("fpspin_flag_t.data", "0 8"),
    ("struct host_data.counters", "128 128"),
    ("fpspin_ctx_t.ctx_id", "0 4"),
    ("fpspin_ctx_t.fd", "4 4"),
    ("fpspin_ctx_t.cpu_addr", "8 8"),
    ("fpspin_ctx_t.mmap_len", "16 8"),
    ("fpspin_ctx_t.dma_idx", "24 16"),
    ("fpspin_ctx_t.pspin_host_data", "40 8"),
    ("fpspin_ctx_t.host_data_ptr", "40 8"),
    ("fpspin_ctx_t.hh", "48 8"),
    ("fpspin_ctx_t.ph", "56 8"),
    ("fpspin_ctx_t.th", "64 8"),
    ("fpspin_ctx_t.handler_mem", "72 8"),
    ("fpspin_ctx_t.app_data", "80 8"),
    ("slmp_sock_t.parallel", "0 1"),
    ("slmp_sock_t.wnd_sz", "4 4"),
    ("slmp_sock_t.align", "8 4"),
    ("slmp_sock_t.fc_us", "12 4"),
    ("slmp_sock_t.num_threads", "16 4"),
    ("false", "0 00000000 00000001 00000000"),
    ("empty", "0 00000000 00000000 00000000"),
    ("ip", "3 ffff0000 08000000 08000000"),
    ("ip_proto", "5 000000ff 00000011 00000011"),
    ("udp_sport", "8 0000ffff 00002472 00002472"),
    ("udp_dport", "9 ffff0000 24720000 24720000"),
];

#[test]
fn the_header_says_the_same_in_c_and_in_cxx() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (language, shared) in [(C, true), (C, false), (Cxx, true), (Cxx, false)] {
        if !compiles(language) {
            continue;
        }
        let program = compile("layout", language, shared, folder.path());
        let output = Command::new(program).output().expect("it runs");
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).expect("text");
        let (lines, rulesets) = text.split_once("bypass ").expect("rulesets follow");
        let said: HashMap<&str, &str> = lines.lines().filter_map(printed).collect();
        for (name, expected) in LAYOUT {
            assert_eq!(said.get(name), Some(expected), "{name} in\n{text}");
        }
        // The library's rulesets consist of the header's rules.
        let rule = |name: &str| format!("{name} {}\n", said[name]);
        let [falsity, empty, ip] = ["false", "empty", "ip"].map(rule);
        let named = |name: &str, rules: [&str; 4]| {
            let lines = rules.map(|rule| format!("{name} {}", rule.split_once(' ').expect("named").1));
            format!("{name} 0\n{}", lines.concat())
        };
        let (proto, port) = (rule("ip_proto"), rule("udp_dport"));
        let end = "eom 10 00008000 00008000 00008000\n";
        let expected = [
            named("bypass", [&falsity; 4]),
            named("match", [&empty; 4]),
            named("udp", [&ip, &proto, &empty, &falsity]),
            named("slmp", [&ip, &proto, &port, end]),
            "00000000  00 73 70 69 6e                                    |.spin|\n".to_owned(),
        ];
        assert_eq!(format!("bypass {rulesets}"), expected.concat());
    }
}

#[test]
fn what_programs_get_wrong_fails_and_says_why() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spind = spind(folder.path(), &[]);
    let (program, image) = (compile("misuse", C, true, folder.path()), handlers("control_handlers", folder.path()));
    let mut command = Command::new(program);
    command.arg(spind.socket()).arg(image).arg(folder.path().join("spind.toml"));
    let output = command.output().expect("it runs");
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{printed}\n{said}", output.status);
    for line in [
        "fpspin_init: ctx is NULL\n",
        "fpspin_init: 5 rulesets: between 1 and 4\n",
        "fpspin_init: cannot connect to spind at /nowhere: ",
        "fpspin_init: image /nowhere: cannot read it: ",
        "fpspin_pop_req: the context was not made by fpspin_init, or fpspin_exit has ended it\n",
        "fpspin_pop_req: HPU 1: there is no page of host memory for it\n",
        "fpspin_get_counter: counter 16: there are 16\n",
        "fpspin_write_memory: NIC memory: 4 bytes at 0x00000000 are not all the context's\n",
        "fpspin_write_memory: NIC memory: 4 bytes at 0x1d000000 are not for writing\n",
        "fpspin_load: image /nowhere: ",
        "fpspin_prog_me: this program has no context\n",
        "fpspin_set_me_ruleset: context 4: this program has no context with that ctx_id\n",
        "slmp_socket: align 2000: between 0 and 1462\n",
        "slmp_sendmsg: buf is NULL\n",
    ] {
        assert!(said.contains(line), "{line:?} in\n{said}");
    }
    all_gone(&mut Client::connect(spind.socket()).expect("spind listens"));
}

#[test]
fn a_program_answers_what_handlers_ask() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Seven flows on two clusters: with 600 packets the ids of one HPU wrap around.
    for (language, shared, options, count) in [
        (C, true, &[][..], 600_usize),
        (Cxx, false, &["--engine", "interp"], 600),
        (C, false, &["--compat", "fpspin"], 600),
        (C, true, &["--engine", "check"], 140),
    ] {
        if !compiles(language) {
            continue;
        }
        let spind = spind(folder.path(), options);
        let (program, image) =
            (compile("echo", language, shared, folder.path()), handlers("echo_handlers", folder.path()));
        // The device name that upstream's programs use, and the environment variable that redirects an unmodified
        // program to another spind.
        let mut command = Command::new(program);
        command.arg("/dev/pspin0").arg(image).arg(count.to_string()).env("FPSPIN_SOCKET", spind.socket());
        let mut program = Program::start(&mut command);
        assert_eq!(program.line(), "ready");
        let mut client = Client::connect(spind.socket()).expect("spind listens");
        let text = |number: usize| format!("datagram {number} {}", "x".repeat(number % 300));
        let host = |number: usize| u8::try_from(number % 7 + 1).expect("few");
        let frames: Vec<_> = (0..count).map(|n| udp(host(n), [4000, 5000], text(n).as_bytes())).collect();
        let answers = exchange(&mut client, &frames);
        assert_eq!(answers.len(), count, "each is answered: {options:?}");
        for (number, (frame, answer)) in frames.iter().zip(&answers).enumerate() {
            assert_eq!((&answer[..6], &answer[6..12]), (&frame[6..12], &frame[..6]), "MAC addresses");
            assert_eq!((&answer[26..30], &answer[30..34]), (&frame[30..34], &frame[26..30]), "addresses");
            assert_eq!((&answer[34..36], &answer[36..38]), (&frame[36..38], &frame[34..36]), "ports");
            assert_eq!(answer[42..], *text(number).to_ascii_uppercase().as_bytes());
        }
        let (status, printed) = program.end(ACTION_TIMEOUT);
        let bytes: usize = frames.iter().map(Vec::len).sum();
        assert_eq!(printed, format!("{count} packets, {bytes} bytes, cycles counted: yes\n"));
        assert!(status.success());
        all_gone(&mut client);
    }
}

#[test]
fn a_program_changes_what_is_loaded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spind = spind(folder.path(), &[]);
    let (program, image) = (compile("control", C, true, folder.path()), handlers("control_handlers", folder.path()));
    let mut program = Program::start(Command::new(program).arg(spind.socket()).arg(image));
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let frames: Vec<_> = (1..6).map(|port| udp(1, [4000, port], &[0; 20])).collect();
    let mut taken = || -> Vec<u8> { exchange(&mut client, &frames).iter().map(|sent| sent[37]).collect() };
    let steps = [("ports 1 and 2", &[1, 2][..]), ("port 3", &[3]), ("port 4", &[4]), ("ports 3 and 4", &[3, 4])];
    for (step, ports) in steps {
        assert_eq!(program.line(), step);
        assert_eq!(taken(), ports);
        program.go_on();
    }
    assert_eq!(program.line(), "60 of 6, 10.0, 0");
    assert_eq!(program.line(), "written");
    assert_eq!(taken(), [3, 4]);
    program.go_on();
    assert_eq!(program.line(), "4018 of 2", "handlers see what was written, and the counter was cleared");
    assert_eq!(program.line(), "loaded anew");
    assert_eq!(taken(), [3, 4], "the rulesets stay");
    program.go_on();
    assert_eq!(program.line(), "20 of 2", "with memory of its own");
    assert_eq!(program.line(), "unloaded");
    assert!(taken().is_empty(), "nothing is there");
    program.go_on();
    assert!(program.end(ACTION_TIMEOUT).0.success());
}

/// Contexts of one program have rulesets of their own, whichever of them is changed.
#[test]
fn contexts_of_a_program_have_their_own_rulesets() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spind = spind(folder.path(), &[]);
    let (program, image) = (compile("contexts", C, true, folder.path()), handlers("control_handlers", folder.path()));
    let mut program = Program::start(Command::new(program).arg(spind.socket()).arg(image));
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let frames: Vec<_> = (1..=9).map(|port| udp(1, [4000, port], &[0; 20])).collect();
    for (step, ports, counts) in [
        ("1, 2 and 3, 4", &[1, 2, 3, 4][..], "0:1 1:2 2:1"),
        ("the latest: 5 and 6", &[1, 2, 3, 5, 6], "0:1 1:2 2:2"),
        ("context 0: 7", &[2, 3, 5, 6, 7], "0:1 1:2 2:2"),
        ("the latest context 1: 8", &[2, 3, 7, 8], "0:1 1:2 2:1"),
        ("the latest that is left: 9", &[7, 9], "0:1 1:1"),
        ("the context 1 that is left: 2", &[2, 7], "0:1 1:1"),
        ("context 0: none", &[2], "0:0 1:1"),
        // Of contexts that match a packet, the one installed first gets it.
        ("context 0: all", &[1, 2, 3, 4, 5, 6, 7, 8, 9], "0:9 1:0"),
    ] {
        assert_eq!(program.line(), step);
        let mut taken: Vec<u8> = exchange(&mut client, &frames).iter().map(|sent| sent[37]).collect();
        taken.sort_unstable();
        assert_eq!(taken, ports, "{step}");
        program.go_on();
        assert_eq!(program.line(), counts, "{step}");
    }
    assert!(program.end(ACTION_TIMEOUT).0.success());
    all_gone(&mut client);
}

#[test]
fn programs_with_the_same_image_share_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spind = spind(folder.path(), &[]);
    let (program, image) = (compile("control", C, true, folder.path()), handlers("control_handlers", folder.path()));
    let mut programs = [(), ()].map(|()| {
        let mut program = Program::start(Command::new(&program).arg(spind.socket()).arg(&image));
        assert_eq!(program.line(), "ports 1 and 2");
        program
    });
    // The context installed first gets all packets.
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    assert_eq!(exchange(&mut client, &[udp(1, [4000, 1], &[0; 20]), udp(1, [4000, 2], &[0; 20])]).len(), 2);
    for (program, counted) in programs.iter_mut().zip(["20 of 2, 10.0, 0", "0 of 0, 0.0, 0"]) {
        for line in ["port 3", "port 4", "ports 3 and 4", counted] {
            program.go_on();
            assert_eq!(program.line(), line);
        }
    }
}

#[test]
fn a_program_outlives_its_spind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spind = spind(folder.path(), &[]);
    let (program, image) = (compile("orphan", C, false, folder.path()), handlers("echo_handlers", folder.path()));
    let mut program = Program::start(Command::new(program).arg(spind.socket()).arg(image));
    assert_eq!(program.line(), "ready");
    drop(spind.kill());
    program.go_on();
    assert_eq!(program.line(), "ended");
    assert!(program.end(ACTION_TIMEOUT).0.success());
}
