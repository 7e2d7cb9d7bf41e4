//! Received frames that go back to the kernel's stack.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{FAR, LINK, Link, NEAR, TIMEOUT, counter, receive, root, run, udp_to, within};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use spin_abi::rules::{Base, END_OF_RULE, RuleSet, Test};
use spin_nic::afxdp::Mode;
use spin_nic::{AfXdp, AfXdpConfig, Frame, Queue, TxQueue, memory};

/// Passes a batch as spind does: in the namespace of the interface, with the capabilities that spind keeps after start.
fn pass(link: &Link, queue: &mut AfXdp, batch: &mut Vec<Frame>) -> usize {
    let kept = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::BPF;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    within(&link.near, || {
        set_capabilities(None, sets).expect("fewer capabilities");
        queue.pass_to_kernel(batch)
    })
}

fn open(link: &Link, mode: Mode, rules: &[Test]) -> AfXdp {
    let queue = link.open(&AfXdpConfig { mode, ..AfXdpConfig::new(LINK) }).expect("opens");
    queue.steering().set_rules(&RuleSet::list(rules)).expect("rules");
    queue
}

/// Datagrams of several lengths pass through the queue to a kernel socket, each once.
fn datagrams(link: &Link, mode: Mode) {
    let mut queue = open(link, mode, &udp_to(9999));
    let client = Link::udp(&link.far, &format!("{FAR}:0"));
    let kernel = Link::udp(&link.near, &format!("{NEAR}:9999"));
    let texts = [1, 18, 100, 1472].map(|len: usize| (0..len).map(|at| (at * 7 + len) as u8).collect::<Vec<_>>());
    let rounds = 3;
    for _ in 0..rounds {
        texts.iter().for_each(|text| assert_eq!(client.send_to(text, (NEAR, 9999)).expect("sent"), text.len()));
        let mut frames = receive(&mut queue, texts.len());
        assert_eq!((pass(link, &mut queue, &mut frames), frames.len()), (texts.len(), 0));
        let mut buffer = [0; 2048];
        for text in &texts {
            let (count, from) = kernel.recv_from(&mut buffer).expect("the kernel has it");
            assert_eq!((&buffer[..count], from), (&text[..], client.local_addr().expect("an address")));
        }
    }
    let all = (rounds * texts.len()) as u64;
    assert_eq!(counter(&mut queue, "passed"), all);
    assert_eq!(counter(&mut queue, "redirected"), all, "no frame is redirected twice");
    for name in ["pass_failed", "foreign_frames", "passed_kernel"] {
        assert_eq!(counter(&mut queue, name), 0, "{name}");
    }
    // Passed frames are recycled: as many frames are free as at first.
    queue.flush().expect("flush");
    assert_eq!(std::iter::from_fn(|| queue.allocate()).count(), 4096 - 2048);
}

#[test]
fn the_kernel_gets_frames_back_native() {
    if root() {
        datagrams(&Link::new(1), Mode::Native);
    }
}

#[test]
fn the_kernel_gets_frames_back_generic() {
    if root() {
        datagrams(&Link::new(1), Mode::Generic);
    }
}

/// The stack moves frames to other CPUs before the generic program sees them.
#[test]
fn the_kernel_gets_frames_back_generic_with_packet_steering() {
    if root() {
        let link = Link::new(1);
        let set = format!("echo 2 > /sys/class/net/{LINK}/queues/rx-0/rps_cpus");
        let output =
            Command::new("ip").args(["netns", "exec", &link.near, "sh", "-c", &set]).output().expect("ip runs");
        assert!(output.status.success(), "{output:?}");
        datagrams(&link, Mode::Generic);
    }
}

fn pings(mode: Mode) {
    let link = Link::new(1);
    let icmp = 0x0800 << 16 | 4 << 8 | 1;
    let rule = Test { base: Base::Kind, flags: END_OF_RULE, offset: 0, mask: u32::MAX, min: icmp, max: icmp };
    let mut queue = open(&link, mode, &[rule]);
    let mut ping = Command::new("ip")
        .args(["netns", "exec", &link.far, "ping", "-c", "3", "-i", "0.2", "-s", "500", NEAR])
        .stdout(Stdio::null())
        .spawn()
        .expect("ping runs");
    let begin = Instant::now();
    let mut frames = Vec::new();
    let status = loop {
        if let Some(status) = ping.try_wait().expect("a child") {
            break status;
        }
        if begin.elapsed() > TIMEOUT {
            ping.kill().expect("a child");
        }
        queue.receive(&mut frames, 8);
        pass(&link, &mut queue, &mut frames);
        queue.flush().expect("flush");
        queue.wait(None, Duration::from_millis(20)).expect("wait");
    };
    assert!(status.success(), "{status}, {:?}", queue.counters());
    assert_eq!((counter(&mut queue, "redirected"), counter(&mut queue, "passed")), (3, 3));
}

#[test]
fn the_kernel_answers_pings_that_were_taken() {
    if root() {
        pings(Mode::Native);
        pings(Mode::Generic);
    }
}

#[test]
fn a_frame_is_passed_whole() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let mut queue = open(&link, Mode::Auto, &udp_to(9999));
    let client = Link::udp(&link.far, &format!("{FAR}:0"));
    client.send_to(b"template", (NEAR, 9999)).expect("sent");
    let template = receive(&mut queue, 1).remove(0);
    let tap = within(&link.near, tap);
    let mut own = queue.allocate().expect("free");
    own.fill(&template).expect("fits");
    let expected = own.to_vec();
    let (_stranger, mut other) = memory::pair(1).expect("a pair");
    let mut foreign = other.allocate().expect("free");
    foreign.fill(&template).expect("fits");
    let [short, long] = [13, 3800].map(|len| {
        let mut frame = queue.allocate().expect("free");
        frame.fill(&vec![0; len]).expect("fits");
        frame
    });
    let mut batch = vec![foreign, short, long, own, template];
    assert_eq!((pass(&link, &mut queue, &mut batch), batch.len()), (2, 0));
    for _ in 0..2 {
        let mut buffer = [0; 4096];
        let count = rustix::io::read(&tap, &mut buffer).expect("a frame");
        assert_eq!(&buffer[..count], expected);
    }
    let counts = ["passed", "pass_failed", "foreign_frames"].map(|name| counter(&mut queue, name));
    assert_eq!(counts, [2, 2, 1]);
}

#[test]
fn an_interface_that_is_gone_takes_nothing() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let mut queue = open(&link, Mode::Auto, &udp_to(9999));
    let mut batch = vec![queue.allocate().expect("free")];
    batch[0].fill(&[0; 60]).expect("fits");
    run(&format!("ip -n {} link del {LINK}", link.near));
    assert_eq!((pass(&link, &mut queue, &mut batch), batch.len()), (0, 0));
    assert_eq!((counter(&mut queue, "passed"), counter(&mut queue, "pass_failed")), (0, 1));
}

/// A packet socket that sees the IPv4 frames an interface receives.
fn tap() -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with, sockopt};
    let ipv4 = Protocol::from_raw(std::num::NonZeroU32::new(u32::from(0x0800_u16.to_be())).expect("not 0"));
    let socket =
        socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipv4)).expect("a socket");
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(TIMEOUT)).expect("a timeout");
    socket
}
