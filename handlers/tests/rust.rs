//! Handlers in Rust on the engine in memory: they answer as those in C do.
#![forbid(unsafe_code)]

#[path = "../../engine/tests/common/mod.rs"]
mod common;
#[path = "frames/mod.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
mod frames;

use std::path::Path;
use std::process::Command;

use common::{Kind, Lab, ROOT, rule};
use frames::{CLIENT, CLIENT_MAC, Ipv4, SERVER, SERVER_MAC, ethernet, request, udp};
use spin_abi::control::Install;
use spin_abi::counters::Counter;

/// Builds a source; `None` and a note: there is no `core` for RISC-V on this machine.
fn build(source: &Path) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("handler.elf");
    let mut compiler = Command::new(spin_handlers::folder().join("sdk/bin/spin-rustc"));
    let output = compiler.arg(source).arg("-o").arg(&image).output().expect("spin-rustc starts");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("no core for RISC-V") {
        eprintln!("SKIPPED: handlers in Rust: {said}");
        return None;
    }
    assert!(output.status.success() && said.is_empty(), "{}: {said}", source.display());
    Some(std::fs::read(&image).unwrap())
}

fn example(name: &str) -> Option<Vec<u8>> {
    build(&spin_handlers::folder().join("rust/examples").join(name))
}

/// UDP datagrams in all kinds of frames, most of which get an answer, and every beginning of three of them.
fn odd_frames() -> Vec<Vec<u8>> {
    let ask = |payload: &[u8]| Ipv4::new(17, udp(CLIENT, SERVER, [40_000, 9999], payload));
    let bytes = ask(b"hello").bytes();
    let tagged = |tags| ethernet(SERVER_MAC, CLIENT_MAC, tags, 0x0800, &bytes);
    let datagram = [0x9c, 0x40, 0x27, 0x0f, 0, 12, 0xab, 0xcd, 1, 2, 3, 4];
    let ipv6 = |destination: u8| {
        let packet = [&[0x60, 0, 0, 0, 0, 12, 17, 64][..], &[0xfd; 16], &[destination; 16], &datagram].concat();
        ethernet(SERVER_MAC, CLIENT_MAC, &[], 0x86dd, &packet)
    };
    let mut padded = request(&bytes);
    padded.resize(60, 0);
    let mut trailer = request(&ask(&[7; 100]).bytes());
    trailer.extend([0xee; 9]);
    let mut short_udp = request(&bytes);
    short_udp[39] -= 2;
    let mut long_udp = request(&bytes);
    long_udp[39] += 1;
    let whole = [request(&bytes), tagged(&[(0x88a8, 1), (0x8100, 2)]), ipv6(0xfc)];
    let cut = whole.iter().flat_map(|frame| (14..=frame.len()).map(|length| frame[..length].to_vec()));
    let mut all: Vec<_> = cut.collect();
    all.extend([padded, trailer, short_udp, long_udp, ipv6(0xff), tagged(&[(0x8100, 1)]), tagged(&[(0x8100, 1); 3])]);
    all.push(request(&Ipv4 { options: vec![1, 1, 1, 0], ..ask(b"options") }.bytes()));
    all.push(request(&Ipv4 { fragment: 0x2000, ..ask(b"fragment") }.bytes()));
    all.push(request(&Ipv4 { destination: [239, 1, 1, 1], ..ask(b"group") }.bytes()));
    all.push(request(&Ipv4 { source: [0; 4], ..ask(b"nobody") }.bytes()));
    all.extend((0..40u8).map(|length| request(&ask(&vec![length; usize::from(length)]).bytes())));
    all
}

#[test]
fn rust_and_c_answer_alike() {
    let Some(rust) = example("udp_echo.rs") else { return };
    let c = spin_handlers::build(&spin_handlers::folder().join("examples/reply.c"));
    for kind in [Kind::Interp, Kind::Jit] {
        let answers = |image: &[u8]| {
            let mut lab = Lab::new(kind);
            lab.try_install(image, rule("any"), ROOT).expect("it installs");
            let answers: Vec<_> = odd_frames().into_iter().map(|frame| lab.exchange(&[frame])).collect();
            assert_eq!((lab.total(Counter::Faults), lab.total(Counter::CommandErrors)), (0, 0));
            answers
        };
        let (rust, c) = (answers(&rust), answers(&c));
        assert!(c.iter().filter(|answer| !answer.is_empty()).count() > 45);
        for ((frame, rust), c) in odd_frames().iter().zip(rust).zip(c) {
            assert_eq!(rust, c, "{kind:?}: {frame:02x?}");
        }
    }
}

#[test]
fn sums_come_to_host_memory() {
    let Some(image) = example("aggregate.rs") else { return };
    for kind in [Kind::Interp, Kind::Jit, Kind::Check] {
        let mut lab = Lab::new(kind);
        let eom = Some("payload[0:1] = 1".into());
        let install = Install { eom, scratchpad: 4096, host_mem: 4096, ..rule("udp dport 9999") };
        let (_, host) = lab.try_install(&image, install, ROOT).expect("it installs");
        let mut sum = 0u32;
        for number in 0..4u32 {
            let words = [if number == 3 { 1 } else { 0 }, 0x4000_0000 + number, number, u32::MAX];
            sum = words.into_iter().fold(sum, u32::wrapping_add);
            // Two bytes that are no word.
            let payload = [&words.map(u32::to_le_bytes).concat()[..], &[0xff; 2]].concat();
            lab.exchange(&[common::udp(9999, &payload)]);
        }
        let mut written = [0; 8];
        host.expect("host memory").read(0, &mut written).expect("inside");
        assert_eq!(u64::from_le_bytes(written), u64::from(sum), "{kind:?}");
        assert_eq!((lab.total(Counter::Messages), lab.total(Counter::Faults)), (1, 0));
    }
}

#[test]
fn a_panic_ends_the_handler_and_names_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("panics.rs");
    let text = "#![no_std]
        use spin_handler::{Task, handlers, println};
        handlers! { payload: look }
        fn look(task: &mut Task<'_>) {
            let packet = task.packet();
            let at = packet[42] as usize;
            println!(\"byte {at} is {:#04x}\", packet[at]);
        }";
    std::fs::write(&source, text).unwrap();
    let Some(image) = build(&source) else { return };
    let mut lab = Lab::new(Kind::Jit);
    let (id, _) = lab.try_install(&image, rule("udp dport 9999"), ROOT).expect("it installs");
    lab.exchange(&[common::udp(9999, &[42]), common::udp(9999, &[43])]);
    let faults = lab.faults(id);
    assert_eq!(faults.len(), 1, "the first packet is long enough: {faults:?}");
    let said = faults[0].fault.to_string();
    assert!(said.contains("reported") && (said.contains("0x00000007") || said.contains(" 7")), "{said}");
}
