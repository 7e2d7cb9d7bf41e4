//! The examples under spind: installed by a client, with frames on the loopback NIC or from a packet socket on veth.

use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use libspin::{Abi, Client, ContextInfo, Install, Region};
use spin_abi::map::Machine;
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_testing::bounded;
use spin_tests::{ACTION_TIMEOUT, Spind};

use super::common::{LINK, Link, root, within};
use super::images::{FORMS, Form, image};
use super::packet_socket;

/// Packets of a message.
const PACKETS: u32 = 32;
/// EtherType of frames whose payload has no IP header, for local experiments.
const OWN_TYPE: [u8; 2] = [0x88, 0xb5];
/// First payload word of a message's last packet.
const LAST: u32 = 0x7fff_ffff;
/// Entries of filtering's table.
const ENTRIES: u32 = 131_072;

/// The wire that frames arrive on.
enum Wire<'l> {
    Loopback,
    Veth(&'l Link),
}

/// A context, and what it did.
struct Run {
    client: Client,
    id: u32,
    host: Option<Region>,
    replies: Vec<Vec<u8>>,
}

impl Run {
    fn info(&mut self) -> ContextInfo {
        let contexts = self.client.stats().expect("statistics").contexts;
        contexts.into_iter().find(|context| context.context == self.id).expect("installed")
    }

    fn count(&mut self, name: &str) -> u64 {
        self.info().counters.named(name).unwrap_or(0)
    }

    fn host_word(&self, at: u32) -> u64 {
        let mut bytes = [0; 8];
        self.host.as_ref().expect("host memory").read(u64::from(at) * 8, &mut bytes).expect("inside");
        u64::from_le_bytes(bytes)
    }

    /// The sum of the words at a place of all clusters' scratchpads.
    fn in_scratchpads(&mut self, clusters: u32) -> Vec<u32> {
        let mut sums = vec![0u32; 1024];
        for cluster in 0..clusters {
            let mut bytes = vec![0; 4096];
            self.client.read_memory(self.id, Machine::PSPIN.scratchpad_base(cluster), &mut bytes).expect("its own");
            for (sum, word) in sums.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *sum = sum.wrapping_add(u32::from_le_bytes(*word));
            }
        }
        sums
    }
}

/// A number that looks random.
fn mix(packet: u32, at: u32) -> u32 {
    let x = packet.wrapping_mul(40_503) ^ at.wrapping_mul(2_246_822_519);
    x ^ x >> 13
}

/// Payload words of a packet. The first one of the last packet is [`LAST`].
fn words(packet: u32) -> Vec<u32> {
    let first = if packet + 1 == PACKETS { LAST } else { mix(packet, 0) & 0xffff };
    (0..200).map(|at| if at == 0 { first } else { mix(packet, at) }).collect()
}

/// A datagram of these words.
fn datagram(words: &[u32]) -> Vec<u8> {
    let payload: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 0xaa]);
    let builder = builder.ipv4([10, 7, 0, 2], [10, 7, 0, 1], 64).udp(4000, 9999);
    let mut frame = Vec::new();
    builder.write(&mut frame, &payload).expect("a vector takes all");
    frame
}

/// A frame without an IP header.
fn raw(payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 0xaa, 2, 0, 0, 0, 0, 1][..], &OWN_TYPE, payload].concat()
}

fn datagrams() -> Vec<Vec<u8>> {
    (0..PACKETS).map(|packet| datagram(&words(packet))).collect()
}

/// An example: its name, what it needs, its frames, and a check of its results.
struct Example {
    name: &'static str,
    /// Its handlers, for images in which only symbols name them.
    handlers: &'static str,
    install: fn(&mut Install),
    prepare: fn(&mut Run),
    frames: fn() -> Vec<Vec<u8>>,
    check: fn(&mut Run),
}

const PLAIN: Example = Example {
    name: "empty",
    handlers: "ph=empty_handler",
    install: |_| {},
    prepare: |_| {},
    frames: datagrams,
    check: |_| {},
};

/// Rules for frames without an IP header.
fn own_type(install: &mut Install) {
    (install.rules, install.key, install.eom) =
        (vec!["ether type 0x88b5".into()], Some("frame[0:12]".into()), Some("never".into()));
}

fn sums(place: impl Fn(u32, u32, u32) -> (usize, u32)) -> Vec<u32> {
    let mut sums = vec![0u32; 1024];
    for packet in 0..PACKETS {
        for (at, word) in (0..).zip(words(packet)) {
            let (place, value) = place(packet, at, word);
            sums[place] = sums[place].wrapping_add(value);
        }
    }
    sums
}

/// The words' sums by place arrive in the scratchpads, and the completion handler writes once to the host.
fn is_reduced(run: &mut Run) {
    assert_eq!(run.in_scratchpads(4), sums(|_, at, word| (at as usize, word)));
    assert_eq!((run.count("commands_host_direct"), run.count("messages")), (1, 1));
}

/// Bob Jenkins' one-at-a-time hash.
fn jenkins(key: [u8; 8]) -> u32 {
    let step = |hash: u32, byte: u8| {
        let hash = hash.wrapping_add(byte.into());
        let hash = hash.wrapping_add(hash << 10);
        hash ^ hash >> 6
    };
    let hash = key.into_iter().fold(0, step);
    let hash = hash.wrapping_add(hash << 3);
    let hash = hash ^ hash >> 11;
    hash.wrapping_add(hash << 15)
}

fn key(packet: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&mix(packet, 1).to_le_bytes());
    key[4..].copy_from_slice(&mix(packet, 2).to_le_bytes());
    key
}

/// Input `at` of a sample.
fn input(packet: u32, at: u32) -> i32 {
    (mix(packet, at) % 200).cast_signed() - 100
}

/// A sample's label.
const fn label(packet: u32) -> i32 {
    if packet % 2 == 1 { 1 } else { -1 }
}

fn examples() -> Vec<Example> {
    vec![
        PLAIN,
        Example {
            name: "ping_pong",
            handlers: "ph=pingpong_ph",
            check: |run| {
                assert_eq!(run.count("commands_send"), u64::from(PACKETS));
                for (packet, reply) in (0..).zip(&run.replies) {
                    let sent = datagram(&words(packet));
                    assert_eq!((&reply[26..30], &reply[30..34]), (&sent[30..34], &sent[26..30]), "ids");
                    assert_eq!((&reply[34..36], &reply[36..38]), (&sent[36..38], &sent[34..36]), "ports");
                    assert_eq!(reply[42..], sent[42..]);
                }
            },
            ..PLAIN
        },
        Example {
            name: "copy_to_host",
            handlers: "ph=copy_to_host_ph",
            frames: || vec![datagram(&words(3)); PACKETS as usize],
            check: |run| {
                let sent = datagram(&words(3));
                let mut bytes = vec![0; sent.len() - 42];
                run.host.as_ref().expect("host memory").read(28, &mut bytes).expect("inside");
                assert_eq!(bytes, sent[42..]);
            },
            ..PLAIN
        },
        Example {
            name: "copy_from_host",
            handlers: "ph=copy_from_host_ph",
            install: own_type,
            prepare: |run| {
                let bytes: Vec<u8> = (0..1000u32).map(|at| (at * 7) as u8).collect();
                run.host.as_ref().expect("host memory").write(0, &bytes).expect("inside");
            },
            frames: || vec![raw(&[0; 500]); PACKETS as usize],
            check: |run| {
                assert_eq!(run.count("commands_send"), u64::from(PACKETS));
                for reply in &run.replies {
                    assert!(reply[14..].iter().enumerate().all(|(at, byte)| *byte == (at * 7) as u8), "{reply:x?}");
                }
            },
        },
        Example {
            name: "host_direct",
            handlers: "ph=host_direct_ph",
            // 0xdeadbeef is nobody's address here.
            check: |run| {
                assert_eq!(run.count("commands_host_direct"), 0);
                assert_eq!(run.count("command_errors"), u64::from(PACKETS), "one refusal for each packet");
            },
            ..PLAIN
        },
        Example {
            name: "aggregate",
            handlers: "ph=aggregate_ph,th=aggregate_th",
            check: |run| assert_eq!((run.count("commands_host_direct"), run.count("messages")), (1, 1)),
            ..PLAIN
        },
        Example { name: "reduce", handlers: "ph=reduce_ph,th=reduce_th", check: is_reduced, ..PLAIN },
        Example {
            name: "aggregate_and_reduce",
            handlers: "ph=aggregate_and_reduce_ph,th=aggregate_and_reduce_th",
            check: is_reduced,
            ..PLAIN
        },
        Example {
            name: "histogram",
            handlers: "ph=histogram_ph,th=histogram_th",
            check: |run| {
                assert_eq!(run.in_scratchpads(4), sums(|_, _, word| (word as usize % 1024, 1)));
                assert_eq!(run.host_word(0), 1);
            },
            ..PLAIN
        },
        Example {
            name: "filtering",
            handlers: "ph=filtering_ph",
            install: |install| {
                own_type(install);
                install.handler_mem = ENTRIES * 4;
            },
            prepare: |run| {
                let table: Vec<u8> = (0..ENTRIES).flat_map(|at| mix(7, at).to_le_bytes()).collect();
                run.client.write_memory(run.id, Machine::PSPIN.handler_mem_base, &table).expect("its own");
            },
            frames: || (0..PACKETS).map(|packet| raw(&[&key(packet)[..], &[0; 60]].concat())).collect(),
            check: |run| {
                assert_eq!(run.count("commands_send"), u64::from(PACKETS));
                for (packet, reply) in (0..).zip(&run.replies) {
                    let place = jenkins(key(packet)) % ENTRIES;
                    assert_eq!(reply[14..18], mix(7, place).to_le_bytes());
                    assert_eq!(reply[18..22], place.to_le_bytes());
                }
            },
        },
        Example { name: "synthetic", handlers: "ph=synthetic_ph", ..PLAIN },
        Example {
            name: "perceptron",
            handlers: "hh=perceptron_hh,ph=perceptron_ph,th=perceptron_th",
            frames: || {
                let sample = |packet| {
                    let inputs =
                        (0..8).map(|at| input(packet, at).cast_unsigned()).chain([label(packet).cast_unsigned()]);
                    inputs.collect::<Vec<_>>()
                };
                // The last one ends the message by a word that counts for nothing: its label is 0.
                let last = [[LAST].as_slice(), &[0; 8]].concat();
                (0..PACKETS).map(|packet| datagram(&sample(packet))).chain([datagram(&last)]).collect()
            },
            check: |run| {
                for at in 0..8 {
                    let weight: i32 = (0..PACKETS).map(|packet| label(packet) * input(packet, at)).sum();
                    let weight = weight + 100 * at.cast_signed();
                    assert_eq!(run.host_word(at), u64::from(weight.cast_unsigned()), "weight {at}");
                }
            },
            ..PLAIN
        },
        Example {
            name: "out_of_order",
            handlers: "ph=ooo_ph",
            install: |install| {
                own_type(install);
                install.handler_mem = 65_536;
            },
            frames: || {
                // Every group of eight arrives backwards.
                let number = |packet: u32| packet / 8 * 8 + (7 - packet % 8);
                let words = |number: u32| [1, number, number * 3 + 1].map(u32::to_le_bytes).concat();
                (0..PACKETS).map(|packet| raw(&[&words(number(packet))[..], &[0; 48]].concat())).collect()
            },
            check: |run| {
                for number in 0..PACKETS {
                    assert_eq!(run.host_word(number), u64::from(number) * 3 + 1);
                }
            },
            ..PLAIN
        },
    ]
}

/// Runs an example, and checks its results.
fn run(example: &Example, file: &[u8], named: bool, engine: &str, wire: &Wire<'_>) {
    // The perceptron's model is on cluster 0.
    let clusters = if example.name == "perceptron" { "1" } else { "4" };
    let options = ["--engine", engine, "--clusters", clusters];
    let spind = match wire {
        Wire::Loopback => Spind::start(&[&["--nic", "loopback"], &options[..]].concat()),
        Wire::Veth(link) => within(&link.near, || Spind::start(&[&["--iface", LINK], &options[..]].concat())),
    };
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let mut install = Install {
        name: example.name.into(),
        rules: vec!["udp dport 9999".into()],
        eom: Some("payload[0:4] = 0xffffff7f".into()),
        abi: Abi::Pspin,
        host_mem: 65_536,
        scratchpad: 65_536,
        ..Install::default()
    };
    (example.install)(&mut install);
    if named {
        install.handlers = Some(example.handlers.parse().expect("names"));
    }
    let context = client.install(&install, file).expect("installs");
    let mut run = Run { client, id: context.id, host: context.host, replies: Vec::new() };
    (example.prepare)(&mut run);
    let frames = (example.frames)();
    let count = frames.len() as u64;
    match wire {
        Wire::Loopback => {
            let packets: Vec<_> = frames.into_iter().map(|frame| Packet::whole(0, frame)).collect();
            let sent = run.client.replay(&write_all(&packets)).expect("loopback replays");
            run.replies =
                read_all(&sent).expect("spind writes captures").into_iter().map(|packet| packet.data).collect();
            if ["ping_pong", "copy_from_host", "filtering"].contains(&example.name) {
                assert_eq!(run.replies.len() as u64, count);
            }
        }
        Wire::Veth(link) => frames.iter().for_each(|frame| packet_socket::send(&link.far, LINK, frame)),
    }
    let deadline = Instant::now() + ACTION_TIMEOUT;
    while run.count("released") < count {
        assert!(Instant::now() < deadline, "{}: {:?}", example.name, run.info());
        std::thread::sleep(Duration::from_millis(2));
    }
    (example.check)(&mut run);
    let info = run.info();
    assert_eq!(info.faults, [], "{}", example.name);
    assert_eq!(run.count("payload_runs"), count, "{}", example.name);
    assert_eq!(run.count("check_differences"), 0, "{}", example.name);
    let errors = if example.name == "host_direct" { count } else { 0 };
    assert_eq!(run.count("command_errors"), errors, "{}", example.name);
}

#[test]
fn examples_give_their_results_on_loopback() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let engines = ["jit", "interp", "check"];
    for (turn, form) in FORMS.into_iter().enumerate() {
        for (number, example) in examples().into_iter().enumerate() {
            // In short, each example in one form with one engine.
            if bounded((number + 1) % 3 != turn, false) {
                continue;
            }
            let file = std::fs::read(image(Abi::Pspin, example.name, form, &[], folder.path())).expect("written");
            for &engine in bounded(&engines[turn..=turn], &engines[..]) {
                eprintln!("{}, {form:?}, {engine}", example.name);
                run(&example, &file, form == Form::Upstream, engine, &Wire::Loopback);
            }
        }
    }
}

#[test]
fn examples_give_their_results_on_veth() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let engines = ["jit", "interp", "check"];
    for (number, example) in examples().into_iter().enumerate() {
        let file = std::fs::read(image(Abi::Pspin, example.name, FORMS[0], &[], folder.path())).expect("written");
        for &engine in bounded(&engines[number % 3..=number % 3], &engines[..]) {
            eprintln!("{}, {engine}", example.name);
            run(&example, &file, false, engine, &Wire::Veth(&link));
        }
    }
}
