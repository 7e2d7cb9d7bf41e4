//! Changes while more packets arrive than user space could handle.

use std::net::Ipv4Addr;
use std::process::id;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use spin_nic::afxdp::mac_address;
use spin_nic::traffic::{Header, HookProgram, LiveSender, Pattern, Plan};
use spin_tests::{Spind, wait_until};

use crate::common::{FAR, LINK, Link, NEAR, root, run, within};
use crate::lab::{Lab, exist, programs};
use crate::{COUNT, RULE};

/// Frames of a call. They come as fast as the kernel makes them, two to three million per second.
const BURST: u32 = 100_000;

/// A lab whose far end counts the answers to frames of a pattern, and a sender of these.
fn loaded() -> (Lab, LiveSender) {
    let link = Link::new(1);
    let mac = |namespace: &str| within(namespace, || mac_address(LINK).expect("it has one"));
    let address = |text: &str| text.parse::<Ipv4Addr>().expect("an address");
    let plan = Plan {
        macs: [mac(&link.near), mac(&link.far)],
        source: address(FAR),
        destination: address(NEAR),
        port: 9999,
        lengths: vec![64],
        flows: vec![1],
        header: Header::None,
        run: 7,
    };
    let pattern = Pattern::new(plan).expect("a plan");
    let lab = Lab::start_with(link, HookProgram::Count, &pattern, &[], "");
    let sender = within(&lab.link.far, || LiveSender::new(LINK, &pattern).expect("root may"));
    (lab, sender)
}

/// Sends while `act` runs. Returns how many frames the near end accepted.
fn under_load(lab: &Lab, sender: &mut LiveSender, act: impl FnOnce()) -> u64 {
    let ended = AtomicBool::new(false);
    let before = sender.sent().expect("it tells").accepted;
    let far = &lab.link.far;
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            within(far, || {
                while !ended.load(Relaxed) {
                    sender.send(BURST).expect("sent");
                }
                sender.sent().expect("it tells").accepted
            })
        });
        act();
        ended.store(true, Relaxed);
        sending.join().expect("it sends") - before
    })
}

/// Waits until the far end has counted all answers that will come. Returns their number.
fn answers(lab: &Lab) -> u64 {
    let count = || lab.far.counts().expect("it tells")[0];
    let mut last = count();
    wait_until(|| {
        thread::sleep(Duration::from_millis(20));
        let now = count();
        std::mem::replace(&mut last, now) == now
    });
    last
}

#[test]
fn no_packet_is_lost_while_contexts_in_the_hook_are_replaced() {
    if !root() {
        return;
    }
    let (lab, mut sender) = loaded();
    let image = lab.image("udp_pingpong");
    let install = |number: u32| {
        let (name, before) = (format!("load{number}"), format!("load{}", number.saturating_sub(1)));
        let replace = if number > 0 { &["--replace", &before][..] } else { &[] };
        let arguments = ["install", &image, "--name", &name, "--rule", RULE, "--tier", "kernel"];
        lab.spind.ctl_ok(&[&arguments[..], replace].concat());
    };
    install(0);
    let accepted = under_load(&lab, &mut sender, || (1..10).for_each(install));
    assert!(accepted > 10_000, "{accepted}");
    let [runs, sent, received] = lab.totals(["hook_runs", "tx_packets", "rx_packets"]);
    assert_eq!((runs, sent, received), (accepted, accepted, 0));
    // The driver may lose answers where its queue is full.
    let answered = answers(&lab);
    assert!(answered <= accepted && answered > accepted / 10 * 9, "{answered} answers to {accepted}");
}

#[test]
fn the_kernel_gets_what_comes_after_a_removal() {
    if !root() {
        return;
    }
    let (lab, mut sender) = loaded();
    lab.install("udp_pingpong", &["--rule", RULE, "--tier", "kernel"]);
    let passed = || lab.json("stats")["nic_counters"]["passed_kernel"].as_u64().expect("a number");
    let before = passed();
    let accepted = under_load(&lab, &mut sender, || {
        thread::sleep(Duration::from_millis(50));
        lab.spind.ctl_ok(&["rm", "udp_pingpong"]);
        thread::sleep(Duration::from_millis(20));
    });
    let [runs] = lab.totals(["hook_runs"]);
    let after = passed() - before;
    assert!(runs > 1000 && after > 1000, "{runs}, {after}");
    assert_eq!(runs + after, accepted);
}

#[test]
fn nothing_is_left_when_spind_is_killed_under_load_and_it_can_start_again() {
    if !root() {
        return;
    }
    let (mut lab, mut sender) = loaded();
    let (name, image) = (format!("killed{}", id()), lab.image("udp_pingpong"));
    lab.spind.ctl_ok(&["install", &image, "--name", &name, "--rule", RULE, "--tier", "kernel"]);
    let loaded = programs(&name);
    assert_eq!(loaded.len(), 1);
    let accepted = under_load(&lab, &mut sender, || {
        thread::sleep(Duration::from_millis(50));
        lab.spind.signal(Signal::KILL);
        thread::sleep(Duration::from_millis(50));
    });
    assert!(accepted > 1000, "{accepted}");
    lab.spind.wait();
    wait_until(|| !exist(&loaded));
    under_load(&lab, &mut sender, || ());
    let near = lab.link.near.clone();
    lab.spind = within(&near, || Spind::start_configured("kernel_tier = true\n", &["--iface", LINK]));
    lab.install("udp_pingpong", &["--rule", RULE, "--tier", "kernel"]);
    let accepted = under_load(&lab, &mut sender, || thread::sleep(Duration::from_millis(20)));
    assert!(accepted > 1000, "{accepted}");
    assert_eq!(lab.totals(["hook_runs"]), [accepted]);
}

#[test]
fn answers_go_on_after_the_interface_was_down() {
    if !root() {
        return;
    }
    let (lab, mut sender) = loaded();
    lab.install("udp_pingpong", &["--rule", RULE, "--tier", "kernel"]);
    let near = &lab.link.near;
    under_load(&lab, &mut sender, || {
        run(&format!("ip -n {near} link set {LINK} down"));
        thread::sleep(Duration::from_millis(20));
        run(&format!("ip -n {near} link set {LINK} up"));
    });
    let before = answers(&lab);
    let accepted = under_load(&lab, &mut sender, || thread::sleep(Duration::from_millis(20)));
    assert!(accepted > u64::from(COUNT));
    assert!(answers(&lab) - before > accepted / 10 * 9);
}
