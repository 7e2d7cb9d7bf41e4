//! The bill: what users take is charged before it is allocated, and refused before the kernel has to end spind.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use libspin::{Bill, Install, Users};
use spin_abi::control::{Preamble, Reply, Request};
use spin_shm::channel;
use spin_tests::{Spind, image, wait_until};

use crate::client::{ALICE, BOB, ROOT, ask, connect, may_run, refusal, rule};

const MIB: u64 = 1 << 20;

fn start(limits: &str) -> Spind {
    Spind::start_configured(&format!("[limits]\n{limits}\n"), &["--nic", "loopback"])
}

fn with_memory(port: u16, bytes: u64) -> Request {
    Request::Install(Box::new(Install { host_mem: bytes, ..rule(&format!("udp dport {port}")) }))
}

/// Installs a context with host memory. Returns its id, and the descriptor of the memory.
fn take(stream: &UnixStream, port: u16, bytes: u64, image: &[u8]) -> Result<(u32, std::os::fd::OwnedFd), String> {
    channel::send(stream, &with_memory(port, bytes), image, None).expect("spind reads");
    let message = channel::receive::<Reply>(stream).expect("spind answers").expect("the connection stays");
    match message.body {
        Reply::Installed { context, .. } => Ok((context, message.fd.expect("host memory"))),
        refused => Err(refusal(refused)),
    }
}

fn users(stream: &UnixStream) -> Users {
    match ask(stream, &Request::Users, &[]) {
        Reply::Users(users) => users,
        other => panic!("no bill: {other:?}"),
    }
}

fn sums(stream: &UnixStream) -> HashMap<u32, u64> {
    users(stream).users.iter().map(|user| (user.uid, user.bill.host_memory)).collect()
}

#[test]
fn memory_beyond_a_limit_is_refused_and_the_limit_named() {
    if !may_run() {
        return;
    }
    let spind = start("memory = '300M'\nuser_memory = '200M'");
    let image = image("udp_pingpong");
    let [root, alice, bob] = [ROOT, ALICE, BOB].map(|uid| connect(&spind, uid));
    let hers: Vec<_> = (9001..9004).map(|port| take(&alice, port, 64 * MIB, &image).expect("within 200 MiB")).collect();
    let refused = take(&alice, 9004, 64 * MIB, &image).expect_err("over it");
    assert!(refused.contains("host memory of 67108864 bytes") && refused.contains("limits.user_memory"), "{refused}");
    let _his = take(&bob, 9005, 64 * MIB, &image).expect("another user's limit");
    for stream in [&bob, &root] {
        let refused = take(stream, 9006, 64 * MIB, &image).expect_err("over that of all");
        assert!(refused.contains("(limits.memory)"), "{refused}");
    }
    assert_eq!(sums(&root), HashMap::from([(ALICE, 192 * MIB), (BOB, 64 * MIB)]));
    assert_eq!(sums(&bob), HashMap::from([(BOB, 64 * MIB)]), "an ordinary user sees itself");
    // Memory of a context that is gone is charged while somebody has it.
    for (context, _) in &hers {
        assert_eq!(ask(&alice, &Request::Remove { context: *context }, &[]), Reply::Ok);
    }
    assert_eq!(sums(&root)[&ALICE], 192 * MIB);
    drop(hers);
    wait_until(|| take(&alice, 9007, 64 * MIB, &image).is_ok());
}

/// Bytes that a process takes: its own pages, page tables, and what was allocated of memory files, mapped or not.
fn taken(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let kilobytes = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.split_whitespace().next().expect("a number").parse().expect("a number")
    };
    let pages = ["RssAnon:", "RssFile:", "VmPTE:"].map(kilobytes).iter().sum::<u64>() * 1024;
    let folder = format!("/proc/{process}/fd");
    let files = fs::read_dir(folder).expect("it runs").filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_memory = fs::read_link(&path).ok()?.to_string_lossy().contains("memfd:");
        let file = fs::metadata(&path).ok().filter(|_| is_memory)?;
        Some((file.st_ino(), file.st_blocks() * 512))
    });
    pages + files.collect::<HashMap<_, _>>().values().sum::<u64>()
}

#[test]
fn the_sum_of_the_bill_is_what_spind_takes() {
    if !may_run() {
        return;
    }
    let spind = start("contexts = 200");
    let image = image("udp_pingpong");
    let root = connect(&spind, ROOT);
    let streams: Vec<_> = (0..8).map(|user| connect(&spind, 60_100 + user)).collect();
    let mut kept = Vec::new();
    for (number, stream) in (0..).zip(&streams) {
        for port in 0..6 {
            let memory = if port < 2 { (number + 1) << 18 } else { 4096 };
            kept.push(take(stream, 9000 + 100 * number as u16 + port, memory, &image).expect("there is room"));
        }
    }
    let bill = users(&root);
    assert_eq!(bill.users.len(), 8);
    let (billed, taken) = (bill.own + bill.users.iter().map(|user| user.bill.total()).sum::<u64>(), taken(spind.pid()));
    assert!(billed.abs_diff(taken) <= taken * 15 / 100, "billed {billed}, taken {taken}: {bill:?}");
}

/// The bill of a user, as root sees it.
fn bill(root: &UnixStream, uid: u32) -> Bill {
    users(root).users.iter().find(|user| user.uid == uid).map(|user| user.bill).unwrap_or_default()
}

/// Two users install the same image. Each pays for all of its own.
#[test]
fn each_kind_of_memory_is_on_the_bill_until_it_is_free() {
    if !may_run() {
        return;
    }
    let spind = start("");
    let image = image("udp_pingpong");
    let root = connect(&spind, ROOT);
    let taken: Vec<_> = [(ALICE, 9001), (BOB, 9002)]
        .into_iter()
        .map(|(uid, port)| {
            let stream = connect(&spind, uid);
            let memory = take(&stream, port, MIB, &image).expect("there is room").1;
            let Bill { host_memory, context_memory, images, translations, requests } = bill(&root, uid);
            assert_eq!((host_memory, requests), (MIB, 0));
            // The file's symbols and its decoded code, besides the memory.
            assert!(images >= 2 * image.len() as u64, "{images} for a file of {}", image.len());
            assert!(translations > 0 && context_memory > 4096, "{translations}, {context_memory}");
            (stream, memory)
        })
        .collect();
    // A payload that is on its way is charged in full before it is read.
    let json = serde_json::to_vec(&with_memory(9003, 0)).expect("JSON");
    let preamble = Preamble { json: json.len() as u32, blob: MIB as u32 }.encode();
    let slow = connect(&spind, ALICE);
    (&slow).write_all(&[&preamble[..], &json, &[0; 100]].concat()).expect("spind reads");
    wait_until(|| bill(&root, ALICE).requests == MIB);
    drop((slow, taken));
    wait_until(|| [ALICE, BOB].map(|uid| bill(&root, uid)) == [Bill::default(); 2]);
}
