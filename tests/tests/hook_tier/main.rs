//! Contexts whose handlers run in the XDP hook of a veth: tier `kernel`.

#[path = "../../../nic/tests/common/mod.rs"]
mod common;

mod lab;
mod load;

use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use common::{FAR, Link, NEAR, root, run};
use lab::{ALICE, Lab, exist, programs};
use libbpf_rs::query::ProgramInfo;
use libspin::{Client, Install, Tier};
use serde_json::Value;
use spin_abi::events::What;
use spin_tests::wait_until;

/// Datagrams of a test.
const COUNT: u32 = 1000;
const RULE: &str = "udp dport 9999";

#[test]
fn handlers_in_the_hook_answer_and_count() {
    if !root() {
        return;
    }
    for mode in ["native", "generic"] {
        let lab = Lab::start(&["--xdp-mode", mode]);
        lab.install("udp_pingpong", &["--rule", RULE, "--tier", "kernel"]);
        assert!(lab.spind.ctl_ok(&["list"]).contains("tier: kernel"));
        for len in [4, 64, 512, 1472] {
            assert_eq!(lab.exchange(9999, COUNT / 4, len), COUNT / 4, "{mode}, {len} B");
        }
        let names = ["matched", "payload_runs", "released", "messages", "tx_packets", "hook_runs"];
        assert_eq!(lab.counts(1, names), [u64::from(COUNT); 6], "{mode}");
        assert_eq!(lab.totals(names), [u64::from(COUNT); 6], "{mode}");
        // Headers of Ethernet, IP and UDP.
        let bytes = u64::from(COUNT / 4) * (4 + 64 + 512 + 1472 + 4 * 42);
        assert_eq!(lab.totals(["tx_bytes", "rx_packets", "faults"]), [bytes, 0, 0], "{mode}");
        lab.spind.ctl_ok(&["rm", "udp_pingpong"]);
        assert_eq!(lab.totals(names), [u64::from(COUNT); 6], "the counts of removed contexts stay in the sum");
    }
}

#[test]
fn pings_are_answered_in_the_hook() {
    if !root() {
        return;
    }
    let lab = Lab::start(&[]);
    lab.install("icmp_echo", &["--rule", "icmp echo", "--tier", "kernel"]);
    for size in [18, 56, 1400] {
        let ping = format!("ip netns exec {} ping -n -q -i 0.002 -c 50 -s {size} {NEAR}", lab.link.far);
        let printed = run(&ping);
        assert!(printed.contains("50 packets transmitted, 50 received, 0% packet loss"), "{printed}");
    }
    assert_eq!(lab.counts(1, ["hook_runs", "payload_runs", "tx_packets"]), [150; 3]);
}

#[test]
fn a_handler_that_cannot_run_in_the_hook_says_why_and_runs_in_user_space() {
    if !root() {
        return;
    }
    let lab = Lab::start(&[]);
    for (handler, arguments, why) in [
        ("aggregate", &["--rule", RULE, "--tier", "kernel"][..], "header handler"),
        ("counter", &["--rule", RULE, "--tier", "kernel"], "other memory than the packet in L2"),
        ("udp_pingpong", &["--rule", RULE, "--tier", "kernel", "--eom", "never"], "several packets (leave out --eom)"),
        ("udp_pingpong", &["--rule", RULE, "--tier", "kernel", "--l1-bytes", "64"], "(leave out --l1-bytes)"),
    ] {
        let refused = lab.refused(handler, arguments);
        assert!(refused.contains("tier kernel: ") && refused.contains(why), "{handler}: {refused}");
    }
    assert!(lab.spind.ctl_ok(&["list"]).trim().lines().count() <= 1, "nothing is installed");
    let image = lab.image("udp_pingpong");
    let auto = lab.spind.ctl(&["install", &image, "--rule", RULE, "--tier", "auto", "--isolation", "message"]);
    let told = String::from_utf8_lossy(&auto.stderr).into_owned();
    assert!(auto.status.success() && told.contains("its handlers run in user space: its messages"), "{told}");
    let listed = lab.spind.ctl_ok(&["list"]);
    assert!(listed.contains("tier: user; its messages are isolated from each other"), "{listed}");
    assert_eq!(lab.exchange(9999, 10, 64), 10);
    assert_eq!(lab.counts(1, ["payload_runs", "hook_runs"]), [10, 0]);
}

#[test]
fn packets_go_to_the_first_context_whatever_its_tier() {
    if !root() {
        return;
    }
    let lab = Lab::start(&[]);
    let source = format!("ip src {FAR} and udp dport 7000-7100");
    for (name, rule, tier) in [
        ("first", "udp dport 7000", "kernel"),
        ("second", source.as_str(), "user"),
        ("third", "udp dport 7000-7002", "kernel"),
        ("fourth", "udp dport 7001 or udp dport 8000", "kernel"),
    ] {
        let image = lab.image("udp_pingpong");
        lab.spind.ctl_ok(&["install", &image, "--name", name, "--rule", rule, "--tier", tier]);
    }
    let hook_runs = || [1, 2, 3, 4].map(|id| lab.counts(id, ["payload_runs", "hook_runs"]));
    for (port, count) in [(7000, 10), (7001, 20), (7002, 30), (8000, 40)] {
        assert_eq!(lab.exchange(port, count, 64), count, "port {port}");
    }
    assert_eq!(hook_runs(), [[10, 10], [50, 0], [0, 0], [40, 40]]);
    // Without the second context its packets go to the third.
    lab.spind.ctl_ok(&["rm", "second"]);
    assert_eq!(lab.exchange(7001, 5, 64), 5);
    assert_eq!(lab.counts(3, ["payload_runs", "hook_runs"]), [5, 5]);
}

#[test]
fn nothing_is_left_in_the_kernel() {
    if !root() {
        return;
    }
    let mut lab = Lab::start(&[]);
    let image = lab.image("udp_pingpong");
    let install = |lab: &Lab, name: &str| {
        lab.spind.ctl_ok(&["install", &image, "--name", name, "--rule", RULE, "--tier", "kernel"]);
        let loaded = programs(name);
        assert!(loaded.len() == 1 && loaded[0].map_ids.len() >= 3, "{loaded:?}");
        assert_eq!(lab.exchange(9999, 1, 64), 1);
        loaded
    };
    // Names that no other test has.
    let [removed, killed] = ["gone", "dead"].map(|name| format!("{name}{}", std::process::id()));
    let loaded = install(&lab, &removed);
    lab.spind.ctl_ok(&["rm", &removed]);
    // The context's memory is freed by a thread of its own, its maps with the next context.
    let loaded_again = install(&lab, &killed);
    wait_until(|| !exist(&loaded[..1]) || shares(&loaded, &loaded_again));
    lab.spind.signal(rustix::process::Signal::KILL);
    lab.spind.wait();
    wait_until(|| !exist(&loaded) && !exist(&loaded_again));
}

/// Whether programs have maps in common, such as that of the image.
fn shares(one: &[ProgramInfo], other: &[ProgramInfo]) -> bool {
    one.iter().flat_map(|program| &program.map_ids).any(|id| other.iter().any(|program| program.map_ids.contains(id)))
}

/// Counts datagrams until `ended` is set and none has come for the socket's timeout.
fn count_datagrams(socket: &UdpSocket, ended: &AtomicBool) -> u32 {
    let (mut buffer, mut count) = ([0; 64], 0);
    loop {
        match socket.recv(&mut buffer) {
            Ok(_) => count += 1,
            Err(_) if ended.load(Relaxed) => return count,
            Err(_) => {}
        }
    }
}

#[test]
fn each_packet_is_answered_or_passed_while_contexts_come_and_go() {
    if !root() {
        return;
    }
    let lab = Lab::start(&[]);
    // Gets the packets that match no context.
    let server = Link::udp(&lab.link.near, &format!("{NEAR}:9999"));
    server.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let (client, ended) = (lab.client(), AtomicBool::new(false));
    client.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    // The threads that count may have to wait for a processor.
    for socket in [&client, &server] {
        rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, 16 << 20).expect("root may");
    }
    let image = lab.image("udp_pingpong");
    let (sent, answered, passed) = std::thread::scope(|scope| {
        let (answered, passed) =
            (scope.spawn(|| count_datagrams(&client, &ended)), scope.spawn(|| count_datagrams(&server, &ended)));
        let sending = scope.spawn(|| {
            let mut sent = 0;
            while !ended.load(Relaxed) {
                // Few enough for the buffers of the sockets.
                for _ in 0..10 {
                    client.send_to(&[7; 20], (NEAR, 9999)).expect("sent");
                    sent += 1;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        for tier in ["kernel", "user", "kernel", "kernel", "user", "kernel"] {
            let started = Instant::now();
            lab.spind.ctl_ok(&["install", &image, "--name", "echo", "--rule", RULE, "--tier", tier]);
            std::thread::sleep(Duration::from_millis(100).saturating_sub(started.elapsed()));
            lab.spind.ctl_ok(&["rm", "echo"]);
            std::thread::sleep(Duration::from_millis(20));
        }
        // Each replaces the one before.
        let tiers = ["kernel", "kernel", "user", "kernel", "user", "user", "kernel"];
        let name = |number: usize| format!("echo{number}");
        for (number, tier) in tiers.into_iter().enumerate() {
            let (name, before) = (name(number), name(number.saturating_sub(1)));
            let replace = if number > 0 { &["--replace", &before][..] } else { &[] };
            let arguments = ["install", &image, "--name", &name, "--rule", RULE, "--tier", tier];
            lab.spind.ctl_ok(&[&arguments[..], replace].concat());
            std::thread::sleep(Duration::from_millis(50));
        }
        lab.spind.ctl_ok(&["rm", &name(tiers.len() - 1)]);
        ended.store(true, Relaxed);
        let sent: u32 = sending.join().expect("it sends");
        (sent, answered.join().expect("it counts"), passed.join().expect("it counts"))
    });
    let [hook_runs, runs, removed, unmatched] =
        lab.totals(["hook_runs", "payload_runs", "drop_removed", "drop_unmatched"]);
    assert!(hook_runs > 100 && runs > hook_runs + 100 && passed > 100, "{hook_runs}, {runs}, {passed}");
    assert_eq!(u64::from(answered), runs, "{hook_runs} in the hook");
    // In user space there are packets in flight when a context goes.
    let in_flight = removed + unmatched;
    assert!(in_flight < 50, "{removed}, {unmatched}");
    assert_eq!(u64::from(sent), u64::from(answered + passed) + in_flight, "{answered} answered, {passed} passed");
}

#[test]
fn faults_in_the_hook_are_counted_described_and_announced() {
    if !root() {
        return;
    }
    let lab = Lab::start(&[]);
    lab.install("store_outside", &["--rule", RULE, "--tier", "kernel", "--handler-mem", "4096"]);
    let client = lab.client();
    let mut answer = [0; 64];
    for order in [b"h", b"-", b"E", b"w"] {
        client.send_to(order, (NEAR, 9999)).expect("sent");
    }
    assert_eq!(client.recv(&mut answer).expect("the handler that stores nothing answers"), 1);
    let of = || context(&lab.json("stats"), 1);
    let described = || of()["faults"].as_array().map_or(0, Vec::len);
    wait_until(|| described() == 3);
    assert_eq!(lab.counts(1, ["faults", "hook_runs", "tx_packets"]), [3, 4, 1]);
    for fault in of()["faults"].as_array().expect("a list") {
        assert_eq!(
            (&fault["fault"]["cause"], &fault["handler"]),
            (&"store-access".into(), &"payload".into()),
            "{fault}"
        );
        let symbol = fault["symbol"].as_str().expect("a name");
        assert!(symbol.starts_with("payload_handler+"), "{fault}");
    }
    let events = lab.spind.ctl_ok(&["events", "1"]);
    assert_eq!(events.matches("payload handler: ").count(), 3, "{events}");
}

/// A context in the statistics.
fn context(stats: &Value, id: u32) -> Value {
    stats["contexts"][id.to_string()].clone()
}

#[test]
fn handlers_that_never_end_are_ended_and_leave_others_their_share() {
    if !root() {
        return;
    }
    let lab = Lab::start(&[]);
    lab.install("endless_loop", &["--rule", RULE, "--tier", "kernel", "--watchdog-us", "200"]);
    lab.install_as(ALICE, "udp_pingpong", "udp dport 8000", "user");
    let (ended, flooding) = (AtomicBool::new(false), lab.client());
    let answered = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                for _ in 0..10 {
                    // A full buffer of the socket is no error here.
                    let _ = flooding.send_to(&[7; 20], (NEAR, 9999));
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let answered = lab.exchange(8000, 200, 64);
        let listed = || lab.spind.ctl_ok(&["list"]).contains("tier: kernel; other users are active");
        wait_until(|| lab.exchange(8000, 1, 64) == 1 && listed());
        ended.store(true, Relaxed);
        answered
    });
    // The queue of the interface is full at times.
    assert!(answered >= 180, "{answered} of 200");
    let [held, hook_runs] = lab.counts(1, ["hook_held", "hook_runs"]);
    assert!(held > 0 && hook_runs > 0, "{held}, {hook_runs}");
    wait_until(|| context(&lab.json("stats"), 1)["faults"].to_string().contains("watchdog"));
}

#[test]
fn handlers_of_ordinary_users_answer_and_do_nothing_else() {
    if !root() {
        return;
    }
    let lab = Lab::start(&[]);
    lab.install_as(ALICE, "udp_pingpong", "udp dport 8000", "kernel");
    // Sends packets back as they came.
    lab.install_as(ALICE, "echo_l2", "udp dport 8001", "kernel");
    assert_eq!(lab.exchange(8000, COUNT, 64), COUNT);
    assert_eq!(lab.counts(1, ["hook_runs", "tx_packets", "commands_forbidden_send"]), [COUNT.into(), COUNT.into(), 0]);
    assert_eq!(lab.exchange(8001, 1, 64), 0);
    assert_eq!(lab.counts(2, ["hook_runs", "tx_packets", "commands_forbidden_send"]), [1, 0, 1]);
}

/// Each processor has an HPU and a flow id that the context's HPUs and messages in user space do not have.
#[test]
fn handlers_in_the_hook_have_indexes_of_their_own() {
    if !root() {
        return;
    }
    let lab = Lab::start(&[]);
    lab.install("units", &["--rule", RULE, "--tier", "kernel"]);
    let socket = lab.client();
    for _ in 0..20 {
        socket.send_to(&[0; 64], (NEAR, 9999)).expect("sent");
        let mut answer = [0; 64];
        assert_eq!(socket.recv(&mut answer).expect("an answer"), 64);
        let word = |at: usize| u32::from_le_bytes(answer[4 * at..][..4].try_into().expect("four bytes"));
        let [unit, units, gid, flow, hpus, flows] = [0, 1, 2, 3, 4, 5].map(word);
        // Contexts have one HPU in each cluster: those with the first number. 256 flow ids are PsPIN's, and each thread has 256 queues.
        assert_eq!((unit, units, hpus, flows), (0, 1, 32, 256 + 4 * 256 + 32));
        assert!(gid < hpus && gid % 8 > 0, "HPU {gid}");
        assert_eq!(flow, flows - hpus + gid);
    }
    assert_eq!(lab.counts(1, ["hook_runs", "payload_runs"])[0], 20);
}

#[test]
fn samples_reach_host_memory_with_their_events() {
    if !root() {
        return;
    }
    const SAMPLES: usize = 256;
    const HEADERS: usize = 64;
    let lab = Lab::start(&[]);
    let mut client = Client::connect(lab.spind.socket()).expect("it listens");
    let install = Install {
        name: "sampler".to_owned(),
        rules: vec![RULE.to_owned()],
        tier: Tier::Kernel,
        host_mem: (SAMPLES * HEADERS + 8) as u64,
        ..Install::default()
    };
    let context = client.install(&install, &spin_handlers::image("sampler", &[])).expect("eligible");
    let (host, mut events) = (context.host.expect("host memory"), client.events(context.id).expect("a stream"));
    let socket = lab.client();
    let payload = |number: u32| [&number.to_be_bytes()[..], &[0x5a; 60]].concat();
    for number in 0..COUNT {
        socket.send_to(&payload(number), (NEAR, 9999)).expect("sent");
        // The event ring keeps the latest events only.
        if number % 50 == 49 {
            let mut copied = 0;
            wait_until(|| {
                for event in events.by_ref() {
                    assert!(matches!(event.what, What::Copied { length: 64, .. }), "{event}");
                    copied += 1;
                }
                copied == 50
            });
        }
    }
    let mut count = [0; 8];
    wait_until(|| {
        host.read((SAMPLES * HEADERS) as u64, &mut count).expect("within");
        u64::from_le_bytes(count) == u64::from(COUNT)
    });
    for number in COUNT - SAMPLES as u32..COUNT {
        let mut sample = [0; HEADERS];
        host.read((number as usize % SAMPLES * HEADERS) as u64, &mut sample).expect("within");
        assert_eq!(sample[42..], payload(number)[..HEADERS - 42], "packet {number}");
    }
    let names = ["hook_runs", "commands_dma", "commands_host_direct", "command_errors", "dma_to_host_bytes"];
    let bytes = u64::from(COUNT) * (HEADERS as u64 + 8);
    assert_eq!(lab.counts(context.id, names), [COUNT.into(), COUNT.into(), COUNT.into(), 0, bytes]);
}

#[test]
fn contexts_of_the_configuration_run_in_the_hook() {
    if !root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("reply.elf");
    std::fs::write(&image, spin_handlers::image("udp_pingpong", &[])).expect("written");
    std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o600)).expect("chmod");
    let context = |name: &str, port: u16, tier: &str| {
        let (image, rule) = (image.display(), format!("udp dport {port}"));
        format!("[[context]]\nimage = '{image}'\nname = '{name}'\nrules = ['{rule}']\ntier = '{tier}'\n")
    };
    let lab = Lab::start_configured(&(context("one", 7001, "user") + &context("two", 7002, "kernel")));
    for (port, id, hook_runs) in [(7001, 1, 0), (7002, 2, 10)] {
        assert_eq!(lab.exchange(port, 10, 64), 10);
        assert_eq!(lab.counts(id, ["payload_runs", "hook_runs"]), [10, hook_runs]);
    }
}
