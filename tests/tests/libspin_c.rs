//! libspin for C: header, binary interface and manual pages, and programs in C on a running spind.

#[path = "libspin_c/abi.rs"]
mod abi;
#[path = "libspin_c/examples.rs"]
mod examples;
#[path = "libspin_c/header.rs"]
mod header;
#[path = "libspin_c/pages.rs"]
mod pages;

use std::path::{Path, PathBuf};
use std::process::Command;

use etherparse::PacketBuilder;
use libspin::{Client, Guarantees};
use spin_nic::pcap::{Packet, write_all};
use spin_tests::Spind;
use spin_tests::c_programs::{checked, compile, libspin_c, run};

/// Builds the image of the example `count_sources` in a folder.
fn count_sources(to: &Path) -> PathBuf {
    let image = spin_handlers::build(&libspin_c().join("examples/count_sources_handlers.c"));
    let file = to.join("count_sources.elf");
    std::fs::write(&file, image).expect("written");
    file
}

/// A running spind, a folder, and the handlers of the example in it.
fn prepare() -> (Spind, tempfile::TempDir, PathBuf) {
    let to = tempfile::tempdir().expect("a temporary folder");
    let file = count_sources(to.path());
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
fn a_program_counts_packets_by_source() {
    let (spind, to, handlers) = prepare();
    let capture = capture(to.path());
    let socket = spind.socket();
    for shared in [true, false] {
        let program = compile(&libspin_c().join("examples/count_sources.c"), shared, to.path());
        // Both libraries have the same code: one run under valgrind is enough.
        let mut command = if shared { checked(&program) } else { Command::new(&program) };
        let said = run(command.args([&socket, &handlers, &capture]).arg("udp dport 9999"));
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
    let program = compile(&libspin_c().join("tests/misuse.c"), true, to.path());
    let socket = spind.socket();
    let said = run(checked(&program).args([&socket, &handlers, to.path(), &capture(to.path())]));
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
