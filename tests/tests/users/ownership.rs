//! Every request of the protocol, on a context of another user.

use std::os::unix::net::UnixStream;

use libspin::{ContextInfo, Install};
use spin_abi::control::{Reply, Request};
use spin_tests::{Spind, image};

use crate::client::{ALICE, BOB, ROOT, ask, connect, install, may_run, refusal, rule};

/// Users whom a request on a context is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// The owner of the context, and root.
    Owner,
    /// The connection that installed the context.
    Connection,
    /// Everyone: the request concerns no single context.
    Everyone,
}

macro_rules! requests {
    (fn $name:ident($context:ident, $address:ident) { $($pattern:pat => $access:ident: $sample:expr,)* }) => {
        fn $name($context: u32, $address: u32) -> Vec<(Request, Access)> {
            // A request of the protocol without a row does not compile.
            let is_in_its_row = |row: usize, request: &Request| {
                let rows = [$(stringify!($pattern)),*];
                match request { $($pattern => rows[row] == stringify!($pattern),)* }
            };
            let rows = vec![$(($sample, Access::$access)),*];
            assert!(rows.iter().enumerate().all(|(row, (request, _))| is_in_its_row(row, request)));
            rows
        }
    };
}

requests! {
    // One request of each kind, on a context and an address of its handler memory.
    fn requests(context, address) {
        Request::Install(_) => Owner: Request::Install(Box::new(Install { replaces: Some(context), ..secret() })),
        Request::Remove { .. } => Owner: Request::Remove { context },
        Request::List => Everyone: Request::List,
        Request::Users => Everyone: Request::Users,
        Request::Stats => Everyone: Request::Stats,
        Request::Capabilities => Everyone: Request::Capabilities,
        Request::MapHost { .. } => Owner: Request::MapHost { context, address: 0x4000 },
        Request::Events { .. } => Owner: Request::Events { context },
        Request::HostMemory { .. } => Owner: Request::HostMemory { context },
        Request::AttachRegion { .. } => Owner: Request::AttachRegion { context, address: 2 * REGION, len: 4096 },
        Request::DetachRegion { .. } => Owner: Request::DetachRegion { context, address: REGION },
        Request::ReadMemory { .. } => Connection: Request::ReadMemory { context, address, len: 4, unit: 0 },
        Request::WriteMemory { .. } => Connection: Request::WriteMemory { context, address, unit: 0 },
        Request::SetRules { .. } => Owner: Request::SetRules { context, rules: vec!["udp dport 9002".into()], eom: None },
        Request::Replay => Everyone: Request::Replay,
    }
}

/// The bytes that a request needs behind it.
fn blob(request: &Request, image: &[u8]) -> Vec<u8> {
    match request {
        Request::Install(_) => image.to_vec(),
        Request::WriteMemory { .. } => vec![1; 4],
        Request::Replay => spin_nic::pcap::write_all(&[]),
        _ => Vec::new(),
    }
}

/// Host address of the attached region.
const REGION: u64 = 1 << 40;

fn secret() -> Install {
    Install { name: "secret".into(), host_mem: 4096, handler_mem: 64, ..rule("udp dport 9001") }
}

/// A context's description, and the address of its host memory for handlers.
fn state(root: &UnixStream, id: u32) -> (ContextInfo, u64) {
    let Reply::Contexts { contexts } = ask(root, &Request::List, &[]) else { panic!("a list") };
    let info = contexts.into_iter().find(|info| info.context == id).expect("it is installed");
    let Reply::HostMemory { address, .. } = ask(root, &Request::HostMemory { context: id }, &[]) else {
        panic!("root reaches all contexts")
    };
    (info, address)
}

/// Installs a context of Alice with an attached region. Returns its id and the address of its handler memory.
fn install_secret(alice: &UnixStream, image: &[u8]) -> (u32, u32) {
    let (context, address) = match ask(alice, &Request::Install(Box::new(secret())), image) {
        Reply::Installed { context, areas, .. } => (context, areas.handler_mem.address),
        other => panic!("not installed: {other:?}"),
    };
    let attached = ask(alice, &Request::AttachRegion { context, address: REGION, len: 4096 }, &[]);
    assert_eq!(attached, Reply::Ok);
    (context, address)
}

#[test]
fn a_context_is_its_owners() {
    if !may_run() {
        return;
    }
    let spind = Spind::start_for_all_users(&["--nic", "loopback"]);
    let image = image("udp_pingpong");
    let [root, alice, bob] = [ROOT, ALICE, BOB].map(|uid| connect(&spind, uid));
    for row in 0..requests(0, 0).len() {
        let (context, address) = install_secret(&alice, &image);
        let before = state(&root, context);
        let (request, access) = requests(context, address).swap_remove(row);
        let send = |user: &UnixStream| ask(user, &request, &blob(&request, &image));
        let is_done = |reply: &Reply| !matches!(reply, Reply::Error { .. });
        let reply = send(&bob);
        match access {
            Access::Owner => assert_eq!(refusal(reply), format!("context {context} belongs to user {ALICE}")),
            Access::Connection => assert!(refusal(reply).contains("was not installed over this connection")),
            Access::Everyone => assert!(is_done(&reply), "{request:?}: {reply:?}"),
        }
        assert_eq!(state(&root, context), before, "{request:?} of another user changed something");
        if access == Access::Connection {
            assert!(refusal(send(&root)).contains("was not installed over this connection"), "{request:?}");
        }
        let reply = send(&alice);
        assert!(is_done(&reply), "{request:?} of the owner: {reply:?}");
        ask(&alice, &Request::Remove { context }, &[]);
    }
}

#[test]
fn root_may_change_contexts_of_all_users() {
    if !may_run() {
        return;
    }
    let spind = Spind::start_for_all_users(&["--nic", "loopback"]);
    let image = image("udp_pingpong");
    let [root, alice] = [ROOT, ALICE].map(|uid| connect(&spind, uid));
    for row in 0..requests(0, 0).len() {
        let (context, address) = install_secret(&alice, &image);
        let (request, access) = requests(context, address).swap_remove(row);
        if access == Access::Owner {
            let reply = ask(&root, &request, &blob(&request, &image));
            assert!(!matches!(reply, Reply::Error { .. }), "{request:?}: {reply:?}");
        }
    }
    assert!(install(&root, rule("udp dport 9003"), &image) > 0);
}
