//! Limits of connections, with real users.

use std::os::unix::net::UnixStream;

use spin_abi::control::{Reply, Request};
use spin_shm::channel;
use spin_tests::{Spind, wait_until};

use crate::client::{ROOT, ask, connect, may_run, refusal};

/// Connections of one user, and of all users but root together.
const PER_USER: u32 = 32;
const ALL: u32 = 256;

/// Asks over a connection that spind may have refused and closed.
fn answer(stream: &UnixStream) -> Reply {
    let _ = channel::send(stream, &Request::List, &[], None);
    channel::receive(stream).expect("spind answers").expect("a reply").body
}

#[test]
fn users_who_take_all_connections_keep_root_from_none() {
    if !may_run() {
        return;
    }
    let spind = Spind::start_for_all_users(&["--nic", "loopback"]);
    let users = (1..=ALL / PER_USER).map(|number| 60_000 + number);
    let mut held: Vec<_> =
        users.flat_map(|uid| (0..PER_USER).map(move |_| uid)).map(|uid| connect(&spind, uid)).collect();
    for stream in &held {
        assert!(matches!(ask(stream, &Request::List, &[]), Reply::Contexts { .. }), "below the limits");
    }
    let other = 60_100;
    assert!(refusal(answer(&connect(&spind, other))).contains("too many of all users"));
    let root: Vec<_> = (0..PER_USER).map(|_| connect(&spind, ROOT)).collect();
    for stream in &root {
        assert!(matches!(answer(stream), Reply::Contexts { .. }), "root's connections are not counted with others'");
    }
    assert!(refusal(answer(&connect(&spind, ROOT))).contains("of this user are in use"), "root has a limit of its own");
    held.pop();
    wait_until(|| matches!(answer(&connect(&spind, other)), Reply::Contexts { .. }));
}
