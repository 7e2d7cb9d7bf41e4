//! Handlers in Rust on the engine in memory answer like those in C.
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
use spin_abi::control::{Abi, Install};
use spin_abi::counters::Counter;

/// Builds a source. `None`, with a printed note: this machine has no `core` for RISC-V.
fn build(source: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("handler.elf");
    let mut compiler = Command::new(spin_handlers::folder().join("sdk/bin/spin-rustc"));
    let output = compiler.arg(source).args(arguments).arg("-o").arg(&image).output().expect("spin-rustc starts");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("no core for RISC-V") {
        spin_testing::skip(&format!("handlers in Rust: {said}"));
        return None;
    }
    assert!(output.status.success() && said.is_empty(), "{}: {said}", source.display());
    Some(std::fs::read(&image).unwrap())
}

fn example(name: &str) -> Option<Vec<u8>> {
    build(&spin_handlers::folder().join("rust/examples").join(name), &[])
}

/// Returns UDP datagrams in all kinds of frames, most of which get an answer, and every prefix of three of them.
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
            // Two trailing bytes that are not a complete word.
            let payload = [&words.map(u32::to_le_bytes).concat()[..], &[0xff; 2]].concat();
            lab.exchange(&[common::udp(9999, &payload)]);
        }
        let mut written = [0; 8];
        host.expect("host memory").read(0, &mut written).expect("inside");
        assert_eq!(u64::from_le_bytes(written), u64::from(sum), "{kind:?}");
        assert_eq!((lab.total(Counter::Messages), lab.total(Counter::Faults)), (1, 0));
    }
}

/// Builds a source given as text.
fn build_text(text: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("handler.rs");
    std::fs::write(&source, text).unwrap();
    build(&source, arguments)
}

/// Uses every command and every memory.
#[test]
fn commands_and_memories() {
    let text = "#![no_std]
        use core::sync::atomic::Ordering::Relaxed;
        use spin_handler::{Status, Task, command, handlers};
        handlers! { payload: probe }
        fn probe(task: &mut Task<'_>) {
            let host = task.host();
            let mut bytes = [0; 13];
            assert_eq!(host.read(64, &mut bytes), Status::Done);
            bytes.reverse();
            assert_eq!(host.write(0, &bytes).wait(), Status::Done);
            let now = host.write_now(16, b\"hello\").unwrap();
            assert!(now.is_complete() && now.status() == Status::Done);
            assert!(host.write_now(16, &[0; 33]).is_none() && host.write_now(16, &[]).is_none());
            assert_eq!(host.write(u64::from(host.size()) - 12, &bytes).wait(), Status::BadHostAddress);
            let (kept, scratch) = (task.handler_memory(), task.home_scratchpad());
            assert_eq!((kept.len(), scratch.len()), (1024, 512));
            let count = kept[1023].fetch_add(1, Relaxed) + 1;
            scratch[511].store(0x0102_0304 * count, Relaxed);
            assert_eq!(host.write_words(24, &scratch[510..]).wait(), Status::Done);
            assert_eq!(host.read_words(24, &kept[..2]), Status::Done);
            assert_eq!(kept[1].load(Relaxed), 0x0102_0304 * count);
            assert!(task.hpu().1 < 4 && task.home_cluster() < 4 && task.scratchpad(task.home_cluster()).len() == 512);
            assert_eq!(command::send(task.packet()).wait(), Status::Done);
            assert_eq!(command::send(&task.packet()[..5]).wait(), Status::BadLength);
        }";
    let Some(image) = build_text(text, &[]) else { return };
    for kind in [Kind::Interp, Kind::Jit, Kind::Check] {
        let mut lab = Lab::new(kind);
        let install = Install { handler_mem: 4096, scratchpad: 2048, host_mem: 4096, ..rule("udp dport 9999") };
        let (id, host) = lab.try_install(&image, install, ROOT).expect("it installs");
        let host = host.expect("host memory");
        host.write(64, b"reversed here").expect("inside");
        let frame = common::udp(9999, b"frame");
        assert_eq!(lab.exchange(&[frame.clone(), frame.clone()]), [frame.clone(), frame], "{:?}", lab.faults(id));
        assert!(lab.faults(id).is_empty(), "{:?}", lab.faults(id));
        assert_eq!(lab.total(Counter::CommandErrors), 4);
        let mut written = [0; 32];
        host.read(0, &mut written).expect("inside");
        let expected = b"ereh desrever\0\0\0hello\0\0\0\0\0\0\0\x08\x06\x04\x02";
        assert_eq!(written, *expected, "{kind:?}");
    }
}

#[test]
fn verdicts_decide() {
    let text = "#![no_std]
        use spin_handler::{Task, Verdict, handlers};
        handlers! { header: look, payload: ignore }
        fn look(task: &mut Task<'_>) -> Verdict {
            if task.packet().last() == Some(&b'!') { Verdict::Drop } else { Verdict::ProcessData }
        }
        fn ignore(_: &mut Task<'_>) {}";
    let Some(image) = build_text(text, &[]) else { return };
    let mut lab = Lab::new(Kind::Jit);
    let mut refused = |image: &[u8], install: Install| {
        lab.try_install(image, install, ROOT).expect_err("it would be misunderstood").to_string()
    };
    assert!(refused(&image, rule("any")).contains("--verdicts"));
    assert!(refused(&image, Install { verdicts: true, abi: Abi::Pspin, ..rule("any") }).contains("wire"));
    let silent = text.replace("-> Verdict", "").replace("Verdict::Drop", "{}").replace("Verdict::ProcessData", "{}");
    let silent = build_text(&silent.replace("Verdict, ", ""), &[]).expect("a compiler");
    assert!(refused(&silent, Install { verdicts: true, ..rule("any") }).contains("verdicts"));
    lab.try_install(&image, Install { verdicts: true, ..rule("udp dport 9999") }, ROOT).expect("it installs");
    lab.exchange(&[common::udp(9999, b"no!"), common::udp(9999, b"yes")]);
    assert_eq!((lab.total(Counter::HeaderRuns), lab.total(Counter::PayloadRuns)), (2, 1));
}

#[test]
fn a_panic_ends_the_handler_and_names_its_line() {
    let text = "#![no_std]
        use spin_handler::{Task, handlers, println};
        handlers! { payload: look }
        fn look(task: &mut Task<'_>) {
            let packet = task.packet();
            let at = packet[42] as usize;
            println!(\"byte {at} is {:#04x}\", packet[at]);
        }";
    let Some(image) = build_text(text, &[]) else { return };
    let mut lab = Lab::new(Kind::Jit);
    let (id, _) = lab.try_install(&image, rule("udp dport 9999"), ROOT).expect("it installs");
    lab.exchange(&[common::udp(9999, &[42]), common::udp(9999, &[43])]);
    let faults = lab.faults(id);
    assert_eq!(faults.len(), 1, "the first packet is long enough: {faults:?}");
    let said = faults[0].fault.to_string();
    assert!(said.starts_with("error 7 reported by the handler (pc 0x1d00"), "{said}");
}

#[test]
fn faults_name_the_source_line() {
    let text = "#![no_std]
        use spin_handler::{Task, handlers};
        handlers! { payload: store }
        fn store(_: &mut Task<'_>) {
            // SAFETY: none, it ends the handler.
            unsafe { core::arch::asm!(\"sw zero, 0({})\", in(reg) 0x2000) };
        }";
    for (arguments, line) in [(&["-g"][..], Some("handler.rs:6")), (&[], None)] {
        let Some(image) = build_text(text, arguments) else { return };
        let mut lab = Lab::new(Kind::Jit);
        let (id, _) = lab.try_install(&image, rule("udp dport 9999"), ROOT).expect("it installs");
        lab.exchange(&[common::udp(9999, b"")]);
        let fault = lab.faults(id).pop().expect("a fault");
        assert_eq!(fault.line.map(|line| line.to_string()).as_deref(), line);
    }
}
