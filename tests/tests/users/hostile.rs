//! Clients that try to stop spind, or to take from another user. Each attack is a row: what a client does while a neighbour's packets
//! are handled. The neighbour loses none of them, and nothing of the client stays in spind's processes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use libspin::{Client, Install};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spin_abi::control::{Preamble, Reply, Request};
use spin_shm::{channel, send_with_fds};
use spin_tests::{ACTION_TIMEOUT, Killed, Spind, as_user, image, wait_until};

use crate::client::{ALICE, BOB, ask, connect, install, may_run, refusal, rule};
use crate::common::{FAR, LINK, Link, NEAR, within};

/// Ports of the neighbour's context, and of the client's.
const NEIGHBOUR: u16 = 9002;
const OWN: u16 = 9001;
/// Connections of a client that has many, fewer than one user may have.
const MANY: usize = 20;
/// Contexts of all users together.
const CONTEXTS: usize = 24;
/// Packets of the neighbour that are under way at the same time, and how many it sends at least during an attack.
const WINDOW: u64 = 8;
const LEAST: u64 = 400;
/// Variables of the environment of a client that is killed.
const PHASE: &str = "SPIN_KILLED_PHASE";
const SOCKET: &str = "SPIN_KILLED_SOCKET";

/// spind on an interface, with a context of the neighbour.
struct Target {
    socket: PathBuf,
    link: Link,
    neighbour: u32,
}

impl Target {
    /// A connection of the client.
    fn connect(&self) -> UnixStream {
        as_user(ALICE, || UnixStream::connect(&self.socket)).expect("spind listens")
    }

    /// A socket at the far end of the link.
    fn far(&self) -> UdpSocket {
        let socket = Link::udp(&self.link.far, &format!("{FAR}:0"));
        socket.set_read_timeout(Some(ACTION_TIMEOUT)).expect("a timeout");
        socket
    }

    /// Sends datagrams to the client's context, a few at a time, and waits until their tasks have ended.
    fn run(&self, context: u32, payload: &[u8], count: u64) {
        let (socket, before) = (self.far(), self.count(context, "released"));
        for sent in 1..=count {
            socket.send_to(payload, (NEAR, OWN)).expect("sent");
            if sent % WINDOW == 0 || sent == count {
                wait_until(|| self.count(context, "released") == before + sent);
            }
        }
    }

    /// A context's counter by name. Counters that are zero are not listed.
    fn count(&self, context: u32, name: &str) -> u64 {
        let root = UnixStream::connect(&self.socket).expect("spind listens");
        let Reply::Contexts { contexts } = ask(&root, &Request::List, &[]) else { panic!("a list") };
        let info = contexts.into_iter().find(|info| info.context == context).expect("installed");
        info.counters.named(name).unwrap_or(0)
    }
}

/// Pseudo-random numbers: splitmix64 of a counter.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % below as u64) as usize
    }
}

/// The bytes of a message.
fn message(request: &Request, blob: &[u8]) -> Vec<u8> {
    let json = serde_json::to_vec(request).expect("JSON");
    let preamble = Preamble { json: json.len() as u32, blob: blob.len() as u32 }.encode();
    [&preamble[..], &json, blob].concat()
}

/// An install of a context with host memory.
fn with_memory(bytes: u64) -> Request {
    Request::Install(Box::new(Install { host_mem: bytes, ..rule(&format!("udp dport {OWN}")) }))
}

/// Far more connections than one user may have, all of them open at the same time.
fn connections(target: &Target) -> Vec<UnixStream> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(20_000);
    limit.maximum = limit.maximum.map(|most| most.max(20_000));
    setrlimit(Resource::Nofile, Rlimit { ..limit }).expect("root may");
    let socket = &target.socket;
    as_user(ALICE, || (0..10_000).map(|_| UnixStream::connect(socket).expect("spind accepts")).collect())
}

/// Requests whose replies nobody reads.
fn slow_readers(target: &Target) -> Vec<UnixStream> {
    let streams: Vec<_> = (0..MANY).map(|_| target.connect()).collect();
    for stream in &streams {
        stream.set_nonblocking(true).expect("a socket");
        let is_full = (0..100_000).any(|_| channel::send(stream, &Request::Capabilities, &[], None).is_err());
        assert!(is_full, "spind reads no further requests while a reply waits");
    }
    streams
}

/// Messages that end early.
fn halves(target: &Target) -> Vec<UnixStream> {
    let streams: Vec<_> = (0..MANY).map(|_| target.connect()).collect();
    let announced = Preamble { json: 20, blob: 16 << 20 }.encode();
    let whole = [&announced[..], br#"{"request":"replay"}"#, &[0; 1000]].concat();
    for (number, mut stream) in streams.iter().enumerate() {
        stream.write_all(&whole[..1 + number * whole.len() / MANY]).expect("spind reads");
    }
    streams
}

/// Messages with random changes: of lengths, of the document, of the image, and of their ends.
fn changed_messages(target: &Target) -> Vec<UnixStream> {
    let image = image("udp_pingpong");
    let valid = [
        message(&Request::List, &[]),
        message(&with_memory(4096), &image),
        message(&Request::SetRules { context: 1, rules: vec!["udp dport 9001".into()], eom: Some("any".into()) }, &[]),
        message(&Request::WriteMemory { context: 1, address: 0x1c00_0000, unit: 0 }, &[7; 64]),
    ];
    let mut random = Random(1);
    for _ in 0..120 {
        let mut bytes = valid[random.next(valid.len())].clone();
        // Most changes are in the preamble and in the document.
        let most = if random.next(4) == 0 { bytes.len() } else { bytes.len().min(200) };
        for _ in 0..1 + random.next(4) {
            bytes[random.next(most)] = random.next(256) as u8;
        }
        bytes.truncate(if random.next(3) == 0 { random.next(bytes.len()) } else { bytes.len() });
        let mut stream = target.connect();
        stream.set_read_timeout(Some(ACTION_TIMEOUT)).expect("a socket");
        // spind may have closed the connection after the preamble.
        let _ = stream.write_all(&bytes).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
        match stream.read_to_end(&mut Vec::new()) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "spind ends the connection"),
        }
    }
    Vec::new()
}

/// Descriptors that no request has: files, pipes, memory, sockets, the connection itself.
fn descriptors(target: &Target) -> Vec<UnixStream> {
    let (mut watched, passed) = UnixStream::pair().expect("a pair");
    let zeroes = File::open("/dev/zero").expect("a device");
    let text = tempfile::tempfile().expect("a file");
    for count in [1, 5, spin_shm::MAX_FDS] {
        let stream = target.connect();
        let all = [passed.as_fd(), zeroes.as_fd(), text.as_fd(), stream.as_fd()];
        let sent: Vec<BorrowedFd<'_>> = all.into_iter().cycle().take(count).collect();
        let bytes = message(&Request::List, &[]);
        // Kernels since 6.16 refuse to send them: spind sets SO_PASSRIGHTS to 0.
        let Ok(len) = send_with_fds(&stream, &bytes, &sent) else { continue };
        (&stream).write_all(&bytes[len..]).expect("spind reads");
        let reply = channel::receive::<Reply>(&stream).expect("spind answers").expect("a reply");
        assert!(matches!(reply.body, Reply::Contexts { .. }), "descriptors change no request");
    }
    drop(passed);
    watched.set_read_timeout(Some(ACTION_TIMEOUT)).expect("a socket");
    assert_eq!(watched.read(&mut [0]).expect("nobody writes"), 0, "spind has no descriptor of it");
    Vec::new()
}

/// The shared memory of a reply.
fn memory_of(stream: &UnixStream, request: &Request) -> File {
    channel::send(stream, request, &[], None).expect("spind reads");
    let message = channel::receive::<Reply>(stream).expect("a reply").expect("a reply");
    File::from(message.fd.expect("shared memory"))
}

/// Shared memory that its user tries to shorten and to extend, and whose pages it frees. Handlers still write there.
fn changed_memory(target: &Target) -> Vec<UnixStream> {
    let stream = target.connect();
    let context = install(&stream, Install { host_mem: 8192, ..rule("udp dport 9001") }, &image("dma_probe"));
    let memories = [(Request::HostMemory { context }, 8192), (Request::Events { context }, 4096)];
    for (request, some) in memories {
        let memory = memory_of(&stream, &request);
        let own = memory.metadata().expect("a file").len();
        for len in [0, own - 4096, own + 4096, 1 << 30] {
            assert!(memory.set_len(len).is_err(), "its length is sealed: {request:?}");
        }
        assert_eq!(fallocate(&memory, FallocateFlags::empty(), own, 4096), Err(Errno::PERM));
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&memory, hole, 0, some).expect("no seal forbids that");
        target.run(context, b"hello", 20);
    }
    assert!(target.count(context, "dma_to_host_bytes") > 0, "the handler wrote to memory that was freed");
    vec![stream]
}

/// An event ring and host memory whose words, indices among them, change at random while handlers and spind use them.
fn rewritten_memory(target: &Target) -> Vec<UnixStream> {
    let stream = target.connect();
    let context = install(&stream, Install { host_mem: 4096, ..rule("udp dport 9001") }, &image("told"));
    let memories = [Request::Events { context }, Request::HostMemory { context }].map(|of| memory_of(&stream, &of));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (number, memory) in (2..).zip(&memories) {
            let (len, is_over) = (memory.metadata().expect("a file").len(), &is_over);
            scope.spawn(move || {
                let mut random = Random(number);
                while !is_over.load(Relaxed) {
                    let noise: Vec<u8> = (0..64).map(|_| random.next(256) as u8).collect();
                    // The first page has the indices.
                    let most = if random.next(2) == 0 { 4096 } else { len as usize };
                    let at = random.next(most - noise.len());
                    memory.write_all_at(&noise, at as u64).expect("shared memory");
                }
            });
        }
        // An event for each of two copies.
        target.run(context, &[0, 0, 0, 0, 1, 1], 300);
        is_over.store(true, Relaxed);
    });
    vec![stream]
}

/// Contexts that come and go, from several connections at a time.
fn storm(target: &Target) -> Vec<UnixStream> {
    let images = ["udp_pingpong", "dma_probe"].map(image);
    thread::scope(|scope| {
        for (port, image) in (9100..).zip(&images) {
            scope.spawn(move || {
                let mut client = as_user(ALICE, || Client::connect(&target.socket)).expect("spind listens");
                for _ in 0..5 {
                    let install = Install { host_mem: 1 << 20, ..rule(&format!("udp dport {port}")) };
                    let context = client.install(&install, image).expect("room");
                    client.remove(context.id).expect("it is ours");
                }
            });
        }
    });
    Vec::new()
}

/// Requests beyond each limit: contexts, memory, ports, lengths, payload.
fn overruns(target: &Target) -> Vec<UnixStream> {
    let (stream, image) = (target.connect(), image("udp_pingpong"));
    let asked = |install: Install| ask(&stream, &Request::Install(Box::new(install)), &image);
    let many_rules = vec!["udp dport 9001".to_owned(); 2000];
    for install in [
        Install { host_mem: 1 << 40, ..rule("udp dport 9001") },
        Install { handler_mem: u32::MAX, ..rule("udp dport 9001") },
        Install { scratchpad: u32::MAX, ..rule("udp dport 9001") },
        Install { watchdog_us: Some(u64::MAX), ..rule("udp dport 9001") },
        Install { weight: Some(u32::MAX), ..rule("udp dport 9001") },
        rule("udp dport 9001-9065"),
        Install { rules: many_rules, ..Install::default() },
        Install { name: "n".repeat(60_000), ..rule("udp dport 9001") },
    ] {
        refusal(asked(install));
    }
    refusal(ask(&stream, &Request::List, &[0; 100]));
    let mut context = 0;
    for _ in 1..CONTEXTS {
        let install = rule("udp dport 9001");
        context = match asked(install) {
            Reply::Installed { context, .. } => context,
            other => panic!("below the limit: {other:?}"),
        };
    }
    assert!(refusal(asked(rule("udp dport 9001"))).contains("contexts"), "a limit of contexts");
    let write = Request::WriteMemory { context, address: 0x1c00_0000, unit: 0 };
    refusal(ask(&stream, &write, &vec![0; 9 << 20]));
    vec![stream]
}

/// Requests on contexts of the neighbour, and on ids that no context has.
fn stolen_ids(target: &Target) -> Vec<UnixStream> {
    let (stream, image) = (target.connect(), image("udp_pingpong"));
    let ids = (0..40).chain([target.neighbour, 1 << 16, u32::MAX - 1, u32::MAX]).collect::<BTreeSet<_>>();
    for context in ids {
        let rules = vec!["udp dport 9001".into()];
        for request in [
            Request::Remove { context },
            Request::MapHost { context, address: 0x1000 },
            Request::Events { context },
            Request::HostMemory { context },
            Request::ReadMemory { context, address: 0x1c00_0000, len: 4, unit: 0 },
            Request::WriteMemory { context, address: 0x1c00_0000, unit: 0 },
            Request::SetRules { context, rules, eom: None },
            Request::Install(Box::new(Install { replaces: Some(context), ..rule("udp dport 9001") })),
        ] {
            let blob = match request {
                Request::Install(_) => &image[..],
                Request::WriteMemory { .. } => &[1; 4],
                _ => &[],
            };
            refusal(ask(&stream, &request, blob));
        }
    }
    vec![stream]
}

/// The phases of a request in which its client is killed.
const PHASES: [&str; 8] = [
    "before the header",
    "in the header",
    "in the document",
    "with a descriptor, in the document",
    "in the image",
    "before the reply",
    "after the reply",
    "with shared memory",
];

/// Takes a request as far as a phase, says so, and waits.
fn stop_in(phase: usize, socket: &str) {
    let (whole, image) = (message(&with_memory(1 << 20), &image("dma_probe")), image("dma_probe"));
    let json = whole.len() - image.len();
    let mut stream = as_user(ALICE, || UnixStream::connect(socket)).expect("spind listens");
    let mut kept = Vec::new();
    match phase {
        0 => {}
        1 => stream.write_all(&whole[..5]).expect("spind reads"),
        2 => stream.write_all(&whole[..json - 20]).expect("spind reads"),
        3 => {
            // A kernel that refuses descriptors refuses the message.
            let _ = send_with_fds(&stream, &whole[..json - 20], &[stream.as_fd()]);
        }
        4 => stream.write_all(&whole[..whole.len() - 100]).expect("spind reads"),
        5 => stream.write_all(&whole).expect("spind reads"),
        _ => {
            stream.write_all(&whole).expect("spind reads");
            let reply = channel::receive::<Reply>(&stream).expect("a reply").expect("a reply");
            let Reply::Installed { context, host_mem, .. } = reply.body else {
                panic!("not installed: {:?}", reply.body)
            };
            kept.push(spin_shm::Region::from_fd(reply.fd.expect("host memory"), host_mem).expect("mapped"));
            if phase > 6 {
                let ring = memory_of(&stream, &Request::Events { context });
                let len = ring.metadata().expect("a file").len();
                kept.push(spin_shm::Region::from_fd(ring.into(), len).expect("mapped"));
            }
        }
    }
    eprintln!("ready");
    // The other test kills this process, or ends itself.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
#[ignore = "run by the other test, which kills it"]
fn a_client_that_is_killed() {
    let [phase, socket] = [PHASE, SOCKET].map(|name| std::env::var(name).expect("the other test sets it"));
    stop_in(phase.parse().expect("a number"), &socket);
}

/// Clients that are killed in every phase of a request.
fn killed(target: &Target) -> Vec<UnixStream> {
    let test = std::env::current_exe().expect("a program");
    for (phase, what) in PHASES.iter().enumerate() {
        let mut command = Command::new(&test);
        command.args(["--exact", "hostile::a_client_that_is_killed", "--ignored", "--nocapture"]);
        command.env(PHASE, phase.to_string()).env(SOCKET, &target.socket);
        let mut child = Killed(
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts"),
        );
        let mut lines = BufReader::new(child.0.stderr.take().expect("piped")).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("ready")), "{what}: the client came so far");
        drop(child);
        wait_until(|| {
            let Reply::Contexts { contexts } = ask(&target.connect(), &Request::List, &[]) else { panic!("a list") };
            contexts.len() == 1
        });
    }
    Vec::new()
}

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Level {
    threads: usize,
    descriptors: usize,
    mappings: usize,
    resident: u64,
}

/// Mappings that may stay, two for each: 20 stacks of 2 MiB that the C library keeps for later threads, and 16 arenas of its allocator.
const MAPPINGS: usize = 2 * (20 + 16);
/// Memory that may stay for later use.
const RESIDENT: u64 = 16 << 20;

impl Level {
    fn of(process: u32) -> Self {
        let entries = |what: &str| fs::read_dir(format!("/proc/{process}/{what}")).expect("it runs").count();
        let text = |what: &str| fs::read_to_string(format!("/proc/{process}/{what}")).expect("it runs");
        let pages: u64 = text("statm").split_whitespace().nth(1).expect("proc_pid_statm(5)").parse().expect("a number");
        let resident = pages * rustix::param::page_size() as u64;
        Self { threads: entries("task"), descriptors: entries("fd"), mappings: text("maps").lines().count(), resident }
    }

    /// Whether little more is held than before.
    fn is_near(&self, before: &Self) -> bool {
        self.threads <= before.threads
            && self.descriptors <= before.descriptors
            && self.mappings <= before.mappings + MAPPINGS
            && self.resident <= before.resident + RESIDENT
    }
}

/// The number of threads that serve connections, or refuse them.
fn connection_threads(process: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let names = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|name| ["connection", "refusal"].contains(&name.trim())).count()
}

/// Sends the neighbour's packets until the attack is over, and checks each answer. Returns how many there were.
fn send_packets(target: &Target, is_over: &AtomicBool) -> u64 {
    let (socket, mut sent) = (target.far(), 0_u64);
    while sent < LEAST || !is_over.load(Relaxed) {
        let mut expected: BTreeSet<_> = (sent..sent + WINDOW).collect();
        for number in &expected {
            socket.send_to(&number.to_le_bytes(), (NEAR, NEIGHBOUR)).expect("sent");
        }
        while !expected.is_empty() {
            let mut bytes = [0; 8];
            let len = socket.recv(&mut bytes).expect("every packet is answered");
            let number = u64::from_le_bytes(bytes);
            assert!(len == 8 && expected.remove(&number), "{number} is answered once, {expected:?} wait");
        }
        sent += WINDOW;
        // The packets are there to be lost, not to take the processor from the client.
        thread::sleep(Duration::from_millis(1));
    }
    sent
}

/// What a client does. Returns connections that it keeps open.
type Attack = fn(&Target) -> Vec<UnixStream>;

const ATTACKS: [(&str, Attack); 11] = [
    ("10,000 connections", connections),
    ("slow readers", slow_readers),
    ("halves of messages", halves),
    ("changed messages", changed_messages),
    ("descriptors that nobody asked for", descriptors),
    ("memory that grows, shrinks and has holes", changed_memory),
    ("a rewritten event ring and host memory", rewritten_memory),
    ("a storm of installs", storm),
    ("requests beyond every limit", overruns),
    ("ids of others", stolen_ids),
    ("clients killed in every phase of a request", killed),
];

#[test]
fn hostile_clients_take_nothing_from_a_neighbour_and_leave_nothing_behind() {
    if !may_run() {
        return;
    }
    let link = Link::new(1);
    let limits = format!("[limits]\ncontexts = {CONTEXTS}\nuser_contexts = {CONTEXTS}\n");
    let spind = within(&link.near, || Spind::start_configured(&limits, &["--iface", LINK]));
    let neighbour = connect(&spind, BOB);
    let own = install(&neighbour, rule(&format!("udp dport {NEIGHBOUR}")), &image("udp_pingpong"));
    let target = Target { socket: spind.socket(), link, neighbour: own };
    // Memory and threads that stay once they are needed are there before.
    storm(&target);
    let streams: Vec<_> = (0..MANY).map(|_| target.connect()).collect();
    for stream in &streams {
        assert!(
            matches!(ask(stream, &Request::List, &[]), Reply::Contexts { .. }),
            "a thread for each at the same time"
        );
    }
    drop(streams);
    wait_until(|| connection_threads(spind.pid()) == 1);
    let processes = [spind.pid(), spind.child("loader-process"), spind.child("descriptor-process")];
    let before = processes.map(Level::of);
    for (what, attack) in ATTACKS {
        let counters = ["payload_runs", "released", "messages", "tx_packets"];
        let counts = || counters.map(|name| target.count(own, name));
        let (first, is_over) = (counts(), AtomicBool::new(false));
        let (held, sent) = thread::scope(|scope| {
            let packets = scope.spawn(|| send_packets(&target, &is_over));
            let held = scope.spawn(|| attack(&target)).join();
            is_over.store(true, Relaxed);
            (held, packets.join().unwrap_or_else(|_| panic!("{what}: the neighbour's packets")))
        });
        let held = held.unwrap_or_else(|_| panic!("{what}"));
        let Reply::Contexts { contexts } = ask(&neighbour, &Request::List, &[]) else { panic!("{what}: no list") };
        assert!(contexts.iter().any(|context| context.own && context.context == own), "{what}: spind answers");
        let run = counts().iter().zip(first).map(|(now, before)| now - before).collect::<Vec<_>>();
        assert_eq!(run, [sent; 4], "{what}: {counters:?} of the neighbour");
        drop(held);
        let is_near = || processes.map(Level::of).iter().zip(&before).all(|(now, before)| now.is_near(before));
        let deadline = Instant::now() + ACTION_TIMEOUT;
        while !is_near() {
            assert!(Instant::now() < deadline, "{what}: {:?} stay of {before:?}", processes.map(Level::of));
            thread::sleep(Duration::from_millis(5));
        }
        println!("{what}: {sent} packets, {:?}", processes.map(Level::of));
    }
}
