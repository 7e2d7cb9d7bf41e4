//! AF_XDP on veth pairs: received, passed and sent frames, and errors.

mod common;
mod packet_socket;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{
    FAR, LINK, Link, NEAR, TIMEOUT, alone, counter, receive, root, run, start, swap_addresses, udp_to, within,
};
use spin_abi::rules::RuleSet;
use spin_nic::afxdp::{Mode, Queues, ZeroCopy};
use spin_nic::{AfXdp, AfXdpConfig, NicError, Queue, TxQueue};

/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;

fn config(mode: Mode) -> AfXdpConfig {
    AfXdpConfig { mode, ..AfXdpConfig::new(LINK) }
}

fn echo_and_pass(mode: Mode, word: &str) {
    let link = Link::new(1);
    let mut queue = link.open(&config(mode)).expect("opens");
    assert!(queue.describe().starts_with(&format!("{LINK}: {word}, copy, 1 queue, 4096 x 4096 B UMEM")));
    queue.steering().set_rules(&RuleSet::list(&udp_to(9999))).expect("rules");
    let client = Link::udp(&link.far, &format!("{FAR}:0"));
    let kernel = Link::udp(&link.near, &format!("{NEAR}:8888"));
    let mut buffer = [0; 2048];
    for len in [18, 256, 1472] {
        let text = vec![len as u8; len];
        client.send_to(&text, (NEAR, 8888)).expect("sent");
        client.send_to(&text, (NEAR, 9999)).expect("sent");
        let (count, _) = kernel.recv_from(&mut buffer).expect("passed to the kernel");
        assert_eq!(&buffer[..count], text);
        let mut frames = receive(&mut queue, 1);
        assert_eq!((frames[0].len(), &frames[0][HEADERS..]), (HEADERS + len, &text[..]));
        swap_addresses(&mut frames[0]);
        assert_eq!(queue.send(&mut frames), 1);
        queue.flush().expect("flush");
        let (count, from) = client.recv_from(&mut buffer).expect("an answer");
        assert_eq!((&buffer[..count], from.port()), (&text[..], 9999));
    }
    assert_eq!((counter(&mut queue, "redirected"), counter(&mut queue, "rx_frames")), (3, 3));
    assert_eq!((counter(&mut queue, "passed_kernel"), counter(&mut queue, "tx_frames")), (3, 3));
    let matched_bytes = (3 * HEADERS + 18 + 256 + 1472) as u64;
    assert_eq!(counter(&mut queue, "redirected_bytes"), matched_bytes);
    assert_eq!(counter(&mut queue, "passed_kernel_bytes"), matched_bytes);
}

#[test]
fn matched_frames_are_answered_and_the_rest_passes_native() {
    if root() {
        echo_and_pass(Mode::Native, "native");
    }
}

#[test]
fn matched_frames_are_answered_and_the_rest_passes_generic() {
    if root() {
        echo_and_pass(Mode::Generic, "generic");
    }
}

#[test]
fn rules_change_at_once_and_drop_detaches() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let mut queue = link.open(&config(Mode::Auto)).expect("opens");
    let client = Link::udp(&link.far, &format!("{FAR}:0"));
    let kernel = Link::udp(&link.near, &format!("{NEAR}:9999"));
    let mut buffer = [0; 64];
    let mut passes = |text: &[u8]| {
        client.send_to(text, (NEAR, 9999)).expect("sent");
        let (count, _) = kernel.recv_from(&mut buffer).expect("passed to the kernel");
        assert_eq!(&buffer[..count], text);
    };
    passes(b"no rules yet");
    queue.steering().set_rules(&RuleSet::list(&udp_to(9999))).expect("rules");
    client.send_to(b"matched", (NEAR, 9999)).expect("sent");
    receive(&mut queue, 1).into_iter().for_each(|frame| queue.recycle(frame));
    queue.steering().set_rules(&RuleSet::list(&udp_to(1))).expect("rules");
    passes(b"another port");
    queue.steering().set_rules(&RuleSet::default()).expect("rules");
    passes(b"none again");
    queue.steering().set_rules(&RuleSet::list(&udp_to(9999))).expect("rules");
    alone(|| {
        drop(queue);
        passes(b"detached");
        link.open(&config(Mode::Auto)).expect("opens again at once");
    });
}

#[test]
fn frames_are_reused_many_times() {
    if !root() {
        return;
    }
    const BURST: usize = 100;
    let link = Link::new(1);
    let small = AfXdpConfig { frames_per_queue: 300, rx_ring: 128, tx_ring: 64, ..config(Mode::Native) };
    let mut queue = link.open(&small).expect("opens");
    queue.steering().set_rules(&RuleSet::list(&udp_to(9999))).expect("rules");
    let client = Link::udp(&link.far, &format!("{FAR}:0"));
    let mut buffer = [0; 64];
    for round in 0..20_u8 {
        for number in 0..BURST as u8 {
            client.send_to(&[round, number], (NEAR, 9999)).expect("sent");
        }
        let mut frames = receive(&mut queue, BURST);
        frames.iter_mut().for_each(|frame| swap_addresses(frame));
        let begin = Instant::now();
        // The ring is smaller than the burst, and one system call sends at most 32 frames.
        while !frames.is_empty() {
            assert!(begin.elapsed() < TIMEOUT, "{} frames could not be sent", frames.len());
            queue.send(&mut frames);
            queue.flush().expect("flush");
        }
        for number in 0..BURST as u8 {
            let (count, _) = client.recv_from(&mut buffer).expect("an answer");
            assert_eq!(buffer[..count], [round, number]);
        }
    }
    for name in ["bad_descriptors", "foreign_frames", "tx_invalid", "tx_invalid_kernel", "rx_dropped", "rx_invalid"] {
        assert_eq!(counter(&mut queue, name), 0, "{name}");
    }
}

#[test]
fn a_flood_is_counted_and_leaves_frames_to_send() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let small = AfXdpConfig { frames_per_queue: 300, rx_ring: 128, tx_ring: 64, ..config(Mode::Native) };
    let mut queue = link.open(&small).expect("opens");
    queue.steering().set_rules(&RuleSet::list(&udp_to(9999))).expect("rules");
    let client = Link::udp(&link.far, &format!("{FAR}:0"));
    for _ in 0..400 {
        client.send_to(b"flood", (NEAR, 9999)).expect("sent");
    }
    let begin = Instant::now();
    while counter(&mut queue, "redirected") < 400 && begin.elapsed() < TIMEOUT {
        queue.flush().expect("flush");
    }
    let frames: Vec<_> = std::iter::from_fn(|| queue.allocate()).collect();
    assert_eq!(frames.len(), 300 - 128);
    frames.into_iter().for_each(|frame| queue.recycle(frame));
    receive(&mut queue, 128).into_iter().for_each(|frame| queue.recycle(frame));
    assert_eq!(queue.receive(&mut Vec::new(), 1), 0);
    // In copy mode both counters count a frame without a chunk.
    assert_eq!((counter(&mut queue, "rx_dropped"), counter(&mut queue, "rx_fill_empty")), (400 - 128, 400 - 128));
    queue.flush().expect("flush");
    client.send_to(b"after the flood", (NEAR, 9999)).expect("sent");
    assert!(receive(&mut queue, 1)[0].ends_with(b"after the flood"));
}

#[test]
fn own_frames_are_sent_from_where_they_begin() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let mut queue = link.open(&config(Mode::Auto)).expect("opens");
    queue.steering().set_rules(&RuleSet::list(&udp_to(9999))).expect("rules");
    let client = Link::udp(&link.far, &format!("{FAR}:0"));
    client.send_to(b"template", (NEAR, 9999)).expect("sent");
    let mut template = receive(&mut queue, 1).remove(0);
    swap_addresses(&mut template);
    let mut frame = queue.allocate().expect("free");
    frame.fill(&[b"thrown away", &template[..]].concat()).expect("fits");
    frame.trim(11, template.len()).expect("within");
    let mut short = queue.allocate().expect("free");
    short.fill(&[0; 13]).expect("fits");
    let mut batch = vec![short, frame];
    assert_eq!((queue.send(&mut batch), batch.len()), (2, 0));
    queue.flush().expect("flush");
    let mut buffer = [0; 64];
    let (count, _) = client.recv_from(&mut buffer).expect("arrives");
    assert_eq!(&buffer[..count], b"template");
    assert_eq!(counter(&mut queue, "tx_invalid"), 1);
    queue.recycle(template);
}

#[test]
fn two_queues_are_both_served() {
    if !root() {
        return;
    }
    let link = Link::new(2);
    let mut queue = link.open(&config(Mode::Native)).expect("opens");
    assert!(queue.describe().contains("2 queues"), "{}", queue.describe());
    queue.steering().set_rules(&RuleSet::list(&udp_to(9999))).expect("rules");
    // A hash of the flow selects the sender's transmit queue, and veth receives on the queue of the same number.
    let clients: Vec<_> = (0..32).map(|_| Link::udp(&link.far, &format!("{FAR}:0"))).collect();
    for client in &clients {
        client.send_to(b"from one of many flows", (NEAR, 9999)).expect("sent");
    }
    let mut frames = receive(&mut queue, clients.len());
    frames.iter_mut().for_each(|frame| swap_addresses(frame));
    queue.send(&mut frames);
    queue.flush().expect("flush");
    for client in &clients {
        client.recv_from(&mut [0; 64]).expect("an answer");
    }
    let one = AfXdpConfig { queues: Queues::List(vec![1]), ..config(Mode::Native) };
    let mut queue = alone(|| {
        drop(queue);
        link.open(&one).expect("opens one queue")
    });
    assert!(queue.describe().contains("1 queue of 2"), "{}", queue.describe());
    queue.steering().set_rules(&RuleSet::list(&udp_to(9999))).expect("rules");
    for client in &clients {
        client.send_to(b"again", (NEAR, 9999)).expect("sent");
    }
    let begin = Instant::now();
    let decided = |queue: &mut AfXdp| counter(queue, "redirected") + counter(queue, "unserved");
    while decided(&mut queue) < clients.len() as u64 && begin.elapsed() < TIMEOUT {
        queue.wait(None, Duration::from_millis(10)).expect("wait");
    }
    assert_eq!(decided(&mut queue), clients.len() as u64);
    assert!(counter(&mut queue, "unserved") > 0 && counter(&mut queue, "redirected") > 0);
}

#[test]
fn vlan_tags_written_by_the_sender_are_in_the_frame() {
    if !root() {
        return;
    }
    for mode in [Mode::Native, Mode::Generic] {
        for tags in [&[0x81, 0, 0, 100][..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 100]] {
            let link = Link::new(1);
            let mut queue = link.open(&config(mode)).expect("opens");
            queue.steering().set_rules(&RuleSet::list(&udp_to(9999))).expect("rules");
            let client = Link::udp(&link.far, &format!("{FAR}:0"));
            client.send_to(b"template", (NEAR, 9999)).expect("sent");
            let untagged = receive(&mut queue, 1).remove(0);
            let tagged = [&untagged[..12], tags, &untagged[12..]].concat();
            packet_socket::send(&link.far, LINK, &tagged);
            let mut frames = receive(&mut queue, 1);
            assert_eq!(frames[0][..], tagged, "{mode:?}");
            // The reverse direction: a tagged frame that we send arrives. The kernel drops it, because it has no such VLAN.
            let before = packet_socket::received(&link.far, LINK);
            assert_eq!(queue.send(&mut frames), 1);
            queue.flush().expect("flush");
            assert!(packet_socket::received(&link.far, LINK) > before);
            queue.recycle(untagged);
        }
    }
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let mut holder = Command::new(std::env::current_exe().expect("own path"));
    holder.args(["--exact", "holds_the_interface_until_killed", "--ignored", "--nocapture"]);
    let mut child = start(holder.env("SPIN_NIC_NAMESPACE", &link.near).stdout(Stdio::piped())).expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let ready = lines.map_while(Result::ok).any(|line| line.contains("holding"));
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(ready, "the other process did not open the interface");
    let mut queue = link.open(&config(Mode::Auto)).expect("opens after kill -9");
    queue.steering().set_rules(&RuleSet::list(&udp_to(9999))).expect("rules");
    Link::udp(&link.far, &format!("{FAR}:0")).send_to(b"alive", (NEAR, 9999)).expect("sent");
    assert!(receive(&mut queue, 1)[0].ends_with(b"alive"));
}

/// The other process of the test above.
#[test]
#[ignore = "run by another test, in a process to be killed"]
fn holds_the_interface_until_killed() {
    let Ok(namespace) = std::env::var("SPIN_NIC_NAMESPACE") else { return };
    let queue = within(&namespace, || AfXdp::open(&config(Mode::Auto))).expect("opens");
    println!("holding {}", queue.describe());
    std::thread::sleep(TIMEOUT * 3);
}

#[test]
fn an_interface_that_vanishes_is_exhausted() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let mut queue = link.open(&config(Mode::Auto)).expect("opens");
    assert!(!queue.exhausted());
    run(&format!("ip -n {} link del {LINK}", link.far));
    let begin = Instant::now();
    while !queue.exhausted() {
        assert!(begin.elapsed() < TIMEOUT, "not noticed");
        queue.wait(None, Duration::from_millis(10)).expect("wait");
    }
    let mut frame = queue.allocate().expect("free");
    frame.fill(&[0; 60]).expect("fits");
    queue.send(&mut vec![frame]);
    assert!(matches!(queue.flush(), Err(NicError::Gone { .. })));
}

/// Opens, expecting a refusal.
fn refusal(link: &Link, config: &AfXdpConfig) -> NicError {
    link.open(config).map(|queue| queue.describe()).expect_err("must be refused")
}

#[test]
fn refusals_say_what_to_do() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let error = refusal(&link, &AfXdpConfig::new("nosuchif0")).to_string();
    assert!(error.contains("nosuchif0") && error.contains("lo") && error.contains(LINK), "{error}");
    let error = refusal(&link, &AfXdpConfig { queues: Queues::List(vec![1]), ..config(Mode::Auto) });
    assert!(matches!(error, NicError::NoQueue { queue: 1, count: 1, .. }), "{error}");
    let error = refusal(&link, &AfXdpConfig { zero_copy: ZeroCopy::On, ..config(Mode::Native) });
    assert!(matches!(error, NicError::Bind { mode: "zero-copy", .. }), "{error}");

    let asymmetric = Link::new(2);
    run(&format!("ip netns exec {} ethtool -L {LINK} tx 1", asymmetric.near));
    let error = refusal(&asymmetric, &config(Mode::Auto));
    assert!(matches!(error, NicError::NoTransmitQueue { queue: 1, receive: 2, transmit: 1, .. }), "{error}");
    let first = AfXdpConfig { queues: Queues::List(vec![0]), ..config(Mode::Auto) };
    asymmetric.open(&first).expect("one that can be sent on");

    let holder = link.open(&config(Mode::Auto)).expect("opens");
    let error = refusal(&link, &config(Mode::Auto));
    assert!(matches!(error, NicError::AlreadyAttached { id: 1.., .. }), "{error}");
    assert!(error.to_string().contains("xdp off"), "{error}");
    drop(holder);

    run(&format!("ip -n {} link set {LINK} mtu 9000", link.near));
    let error = refusal(&link, &config(Mode::Auto));
    assert!(matches!(error, NicError::Mtu { mtu: 9000, limit: 3818, .. }), "{error}");
    link.open(&config(Mode::Generic)).expect("generic mode takes any MTU");
    run(&format!("ip -n {} link set {LINK} mtu 1500", link.near));
    run(&format!("ip -n {} link set {LINK} down", link.near));
    let error = refusal(&link, &config(Mode::Auto)).to_string();
    assert!(error.contains("is down") && error.contains(&format!("ip link set dev {LINK} up")), "{error}");
}

#[test]
fn without_capabilities_the_error_names_them() {
    if !root() {
        return;
    }
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let link = Link::new(1);
    // The capabilities of this one thread.
    let error = within(&link.near, || {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, sets).expect("dropped");
        AfXdp::open(&config(Mode::Auto)).map(|queue| queue.describe())
    });
    let error = error.expect_err("must be refused");
    assert!(matches!(error, NicError::Privileges { .. }), "{error:?}");
    for name in ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"] {
        assert!(error.to_string().contains(name), "{error}");
    }
}
