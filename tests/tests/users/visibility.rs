//! The part of a context that other users see.

use libspin::{ContextInfo, Install};
use spin_abi::control::{Reply, Request};
use spin_tests::{Spind, image};

use crate::client::{ALICE, BOB, ROOT, ask, connect, install, may_run, rule};

/// The contexts that a request shows.
fn contexts(reply: Reply) -> Vec<ContextInfo> {
    match reply {
        Reply::Contexts { contexts } => contexts,
        Reply::Stats(stats) => stats.contexts,
        other => panic!("not shown: {other:?}"),
    }
}

#[test]
fn names_and_rules_are_shown_to_the_owner_and_root() {
    if !may_run() {
        return;
    }
    let spind = Spind::start_for_all_users(&["--nic", "loopback"]);
    let [root, alice, bob] = [ROOT, ALICE, BOB].map(|uid| connect(&spind, uid));
    let echo = image("udp_pingpong");
    let secret = Install { name: "secret-name".into(), weight: Some(3), ..rule("udp dport 4711") };
    let hers = install(&alice, secret, &echo);
    let own = install(&bob, Install { name: "own".into(), ..rule("udp dport 9002") }, &echo);
    for request in [Request::List, Request::Stats] {
        for (user, owns) in [(&root, false), (&alice, true)] {
            let seen = &contexts(ask(user, &request, &[]))[0];
            assert_eq!((seen.name.as_str(), seen.hidden, seen.own), ("secret-name", false, owns));
            assert_eq!(seen.rules, ["udp dport 4711"]);
        }
        let reply = ask(&bob, &request, &[]);
        let text = format!("{reply:?}");
        assert!(!text.contains("secret-name") && !text.contains("4711"), "{text}");
        let seen = contexts(reply);
        assert_eq!((seen[0].context, seen[0].uid, seen[0].run.weight), (hers, ALICE, 3));
        assert!(seen[0].hidden && !seen[0].own && seen[0].eom.is_empty() && seen[0].key.is_empty());
        assert!(seen[1].own && seen[1].context == own && seen[1].rules == ["udp dport 9002"]);
    }
}
