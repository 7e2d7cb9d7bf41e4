//! What is there after a restart, and when it answers.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use std::{fs, thread};

use libspin::{Client, Install, Lifetime};
use rustix::process::Signal;
use spin_testing::bounded;
use spin_tests::{Spind, as_user, can_be_other_users, image};

use crate::common::{FAR, LINK, Link, NEAR, root, within};
use crate::state::{answers, contexts, persistent, start, state};

/// An ordinary user.
const ALICE: u32 = 60_001;

#[test]
fn persistent_contexts_survive_a_kill_with_ids_rules_and_priorities() {
    let image = image("udp_pingpong");
    let spind = start(tempfile::tempdir().expect("a temporary folder"));
    let mut client = Client::connect(spind.socket()).expect("it listens");
    let mut install = |install: &Install| client.install(install, &image).expect("installed").id;
    let [first, _daemon, third] = [
        install(&persistent(1)),
        install(&Install { lifetime: Lifetime::Daemon, ..persistent(2) }),
        install(&Install { host_mem: 4096, ..persistent(3) }),
    ];
    let removed = install(&persistent(4));
    let replacing = install(&Install { name: "new".into(), replaces: Some(first), ..persistent(1) });
    // Not persistent any more.
    let fifth = install(&persistent(5));
    install(&Install { lifetime: Lifetime::Daemon, replaces: Some(fifth), ..persistent(5) });
    client.remove(removed).expect("it is there");
    client.set_rules(third, vec!["udp dport 30".into()], None).expect("they are valid");

    let spind = start(spind.kill());
    let mut client = Client::connect(spind.socket()).expect("it listens");
    let kept = [(replacing, "new".into(), "udp dport 1".into()), (third, "3".into(), "udp dport 30".into())];
    assert_eq!(contexts(&mut client), kept);
    assert!(client.contexts().expect("a list").iter().all(|info| info.lifetime == Lifetime::Persistent));
    assert_eq!((answers(&mut client, &[1, 30]), answers(&mut client, &[2, 3, 4, 5])), (2, 0));
    assert_eq!(client.host_memory(third).expect("new host memory").0.len(), 4096);
    let new = client.install(&persistent(6), &image).expect("installed").id;
    assert!(new > replacing, "{new}: an id is not given twice");
    spind.ctl_ok(&["rm", "3"]);

    // An orderly end, too.
    let mut spind = spind;
    spind.signal(Signal::TERM);
    assert!(spind.wait().0);
    let spind = start(spind.kill());
    let mut client = Client::connect(spind.socket()).expect("it listens");
    assert_eq!(contexts(&mut client), [kept[0].clone(), (new, "6".into(), "udp dport 6".into())]);
    let mode = fs::metadata(state(spind.socket().parent().expect("a folder"))).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_context_stays_its_owners_and_an_administrators_rules_stay_beyond_the_policy() {
    if !can_be_other_users() {
        spin_testing::skip("acting as several users needs root");
        return;
    }
    let image = image("udp_pingpong");
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = state(parent.path());
    let arguments = ["--nic", "loopback", "--state", folder.to_str().expect("UTF-8")];
    let mut spind = Spind::start_for_all_users(&arguments);
    let socket = spind.socket();
    let hers = as_user(ALICE, || {
        let mut client = Client::connect(&socket).expect("all users may connect");
        [9001, 9002].map(|port| client.install(&persistent(port), &image).expect("the policy allows it").id)
    });
    let mut administrator = Client::connect(&socket).expect("it listens");
    administrator.set_rules(hers[0], vec!["udp dport 53".into()], None).expect("root may");
    for policy in ["", "[policy]\nports = []\n"] {
        drop(spind.kill());
        spind = Spind::start_configured(policy, &arguments);
        let mut client = Client::connect(spind.socket()).expect("it listens");
        let known: Vec<_> = client.contexts().expect("a list").into_iter().map(|it| (it.uid, it.rules)).collect();
        let expected = [(ALICE, vec!["udp dport 53".to_owned()]), (ALICE, vec!["udp dport 9002".to_owned()])];
        assert_eq!(known, if policy.is_empty() { &expected[..] } else { &[] });
    }
    // She may remove what the policy does not allow any more.
    let socket = spind.socket();
    as_user(ALICE, || hers.map(|id| Client::connect(&socket).expect("it listens").remove(id).expect("it is hers")));
    assert_eq!(fs::read_dir(&folder).expect("it exists").count(), 0);
}

/// spind is killed again and again while a host sends to a persistent context. Each datagram sent 3 s after the start is answered.
#[test]
fn traffic_is_answered_soon_after_a_kill() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let image = image("udp_pingpong");
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = state(parent.path());
    let arguments = ["--iface", LINK, "--state", folder.to_str().expect("UTF-8")];
    let mut spind = within(&link.near, || Spind::start(&arguments));
    let mut client = Client::connect(spind.socket()).expect("it listens");
    client.install(&persistent(9999), &image).expect("installed");
    let socket = Link::udp(&link.far, &format!("{FAR}:0"));
    socket.connect((NEAR, 9999)).expect("an address");
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("not zero");
    let mut number = 0u32;
    let mut is_answered = || {
        number += 1;
        let _ = socket.send(&number.to_be_bytes());
        let mut answer = [0; 64];
        loop {
            match socket.recv(&mut answer) {
                Ok(len) if answer[..len] == number.to_be_bytes() => return true,
                // A late answer to an earlier one.
                Ok(_) => {}
                // None came, or the kernel refused it while spind was away.
                Err(_) => return false,
            }
        }
    };
    let mut times = Vec::new();
    for _ in 0..bounded(3, 20) {
        assert!((0..50).any(|_| is_answered()), "it answers before it is killed");
        let folder = spind.kill();
        let started = Instant::now();
        spind = within(&link.near, || Spind::start_in(folder, &arguments));
        while !is_answered() {
            assert!(started.elapsed() < spin_tests::ACTION_TIMEOUT, "no answer:\n{}", spind.logged);
        }
        times.push(started.elapsed());
    }
    thread::sleep(Duration::from_secs(3));
    assert!((0..50).all(|_| is_answered()), "each datagram is answered");
    times.sort_unstable();
    println!("first answer after a start: median {:?}, longest {:?}", times[times.len() / 2], times[times.len() - 1]);
}
