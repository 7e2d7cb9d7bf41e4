//! A file transfer by SLMP from a host program to handlers and their host program, over a veth between two namespaces.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use spin_testing::bounded;
use spin_tests::Spind;

use super::Language::C;
use super::common::{LINK, Link, NEAR, within};
use super::{Program, compile, configuration, handlers};

/// Maximum duration of the transfer. The bound only detects a hang; it is not a performance limit.
const BOUND: Duration = Duration::from_secs(300);

/// Makes bytes without short-range repetition.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut word = || {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len / 8).flat_map(|_| word().to_le_bytes()).collect()
}

#[test]
fn a_file_arrives_as_it_was() {
    if !rustix::process::geteuid().is_root() {
        spin_testing::skip("a file by SLMP over veth: network namespaces need root");
        return;
    }
    // In bytes. The file needs several messages, since a context has at most 64 MiB of host memory by default.
    let (file, message) = bounded((10_000_000, 800_000), (100_000_000, 8_000_000));
    let link = Link::new(1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let config = configuration(folder.path());
    let [send, receive] = ["slmp_send", "slmp_receive"].map(|name| compile(name, C, true, folder.path()));
    let image = handlers("slmp_receive_handlers", folder.path());
    fs::write(path("sent"), noise(file)).expect("a temporary folder takes files");

    let some = vec![("none", "1024", "8"), ("none", "32", "3"), ("fpspin", "256", "1")];
    let windows = ["1", "4", "16", "256", "1024"].into_iter();
    let all = windows.flat_map(|window| ["1", "4", "8"].map(|threads| ("fpspin", window, threads)));
    for (compat, window, threads) in bounded(some.clone(), some.into_iter().chain(all).collect()) {
        let arguments = ["--iface", LINK, "--config", &config, "--compat", compat];
        let spind = within(&link.near, || Spind::start(&arguments));
        let mut receiving = Command::new(&receive);
        receiving.arg(spind.socket()).arg(&image).arg(path("received")).arg(message.to_string());
        let mut receiver = Program::start(&mut receiving);
        assert_eq!(receiver.line(), "ready");
        let sender = within(&link.far, || {
            let mut sending = Command::new(&send);
            // The receiver may be preempted, or wait for its disk.
            sending.env("FPSPIN_SLMP_TIMEOUT_MS", BOUND.as_millis().to_string());
            Program::start(sending.arg(NEAR).arg(path("sent")).arg(message.to_string()).args([window, threads]))
        });
        let (sent, said) = sender.end(BOUND);
        eprint!("compat {compat}, window {window}, {threads} thread(s): {said}");
        assert!(sent.success(), "{}", spind.ctl_ok(&["stats"]));
        let (received, said) = receiver.end(BOUND);
        assert!(received.success());
        let packets: usize = (0..file).step_by(message).map(|at| message.min(file - at).div_ceil(1462)).sum();
        // The empty message at the end is included.
        let messages = file.div_ceil(message) + 1;
        assert_eq!(said, format!("{messages} messages in {} packets, {file} bytes\n", packets + 1));
        let compared = Command::new("cmp").arg(path("sent")).arg(path("received")).status().expect("cmp runs");
        assert!(compared.success(), "the file is the same");
        fs::remove_file(path("received")).expect("it is there");
    }
}

/// A sender whose window is greater than the receive buffer allows says so once, and sends.
#[test]
fn a_window_that_does_not_fit_is_told_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("sent");
    fs::write(&path, noise(3000)).expect("written");
    let program = compile("slmp_send", C, true, folder.path());
    let granted: usize = fs::read_to_string("/proc/sys/net/core/rmem_max").expect("Linux").trim().parse().expect("one");
    let fitting = (granted / 1024).min(1024);
    // An address of this process alone.
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, high.max(1), low, 77);
    let receiver = UdpSocket::bind((address, 9330)).expect("the port is free");
    receiver.set_read_timeout(Some(BOUND)).expect("a timeout");
    for (window, is_told) in [(fitting, false), (fitting + 1, true)] {
        let mut command = Command::new(&program);
        command.arg(address.to_string()).arg(&path).args(["1000", &window.to_string(), "1"]).stderr(Stdio::piped());
        let mut sender = command.spawn().expect("it starts");
        // Three messages of one packet each, then an empty one.
        for message in 1..=4 {
            let mut packet = [0; 2000];
            let (length, from) = receiver.recv_from(&mut packet).expect("a packet");
            assert_eq!((&packet[..6], length), (&[0xc0, 0, 0, 0, 0, message][..], if message < 4 { 1010 } else { 10 }));
            packet[0] |= 0x20;
            receiver.send_to(&packet[..10], from).expect("an acknowledgement");
        }
        let mut said = String::new();
        sender.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        assert!(sender.wait().expect("it ends").success(), "{said}");
        let start = format!("libfpspin: SLMP window {window}: acknowledgements of {fitting} packets fit");
        let lines: Vec<_> = said.lines().collect();
        assert_eq!((lines.len(), said.starts_with(&start)), (usize::from(is_told), is_told), "{said}");
    }
}
