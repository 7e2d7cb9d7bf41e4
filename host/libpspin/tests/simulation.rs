//! Random packets through the simulation. Handlers report the order of a naive model of the queues, and each packet is
//! released once. Running cycle by cycle gives the same result as one run.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use hpu_vm::jit::Executor;
use proptest::prelude::*;
use pspin::conf::Settings;
use pspin::ec::{Context, Ec};
use pspin::host::{Access, Host, Times};
use pspin::image::Loaded;
use pspin::inbox::{Added, Inbox};
use pspin::memory::NicMemory;
use pspin::simulation::{End, Simulation};

/// Events of a program, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    /// Word that a handler sent: stage and flow.
    Told(u64, u64),
    Sent(usize),
    Released(u64, Times),
}

#[derive(Default)]
struct Recorder {
    seen: Vec<Seen>,
    problems: Vec<String>,
}

impl Host for Recorder {
    fn send(&mut self, packet: &mut [u8]) {
        self.seen.push(Seen::Sent(packet.len()));
    }

    fn write(&mut self, _: u64, data: &mut [u8]) {
        let word = u64::from_le_bytes((&*data).try_into().expect("a whole word"));
        self.seen.push(Seen::Told(word >> 56, word >> 32 & 0xff_ffff));
    }

    fn read(&mut self, _: u64, _: &mut [u8]) {}

    fn released(&mut self, user: u64, times: Times) {
        self.seen.push(Seen::Released(user, times));
    }

    fn accessed(&mut self, _: Access, _: usize) {}

    fn print(&mut self, _: &[u8]) {}

    fn report(&mut self, problem: &str) {
        self.problems.push(problem.into());
    }
}

/// A packet of a test. Bits of `handlers` select the context's handlers: header, payload, completion.
#[derive(Clone, Copy, Debug)]
struct Packet {
    handlers: usize,
    msgid: u32,
    len: usize,
    eom: bool,
    wait_cycles: u32,
}

fn packet() -> impl Strategy<Value = Packet> {
    let msgid = prop_oneof![0..4_u32, Just(256), Just(1023), any::<u32>()];
    let wait = prop_oneof![4 => Just(0), 2 => 0..100_u32, 1 => 0..5000_u32];
    let packet = (0..8_usize, msgid, prop_oneof![Just(1), Just(64), 1..4097_usize], prop::bool::weighted(0.3), wait);
    packet.prop_map(|(handlers, msgid, len, eom, wait_cycles)| Packet { handlers, msgid, len, eom, wait_cycles })
}

/// Returns the expected stages of each flow in order, computed from the packets of its messages.
fn expected(packets: &[Packet]) -> BTreeMap<u64, Vec<u64>> {
    let mut flows: BTreeMap<u64, (Option<usize>, Vec<u64>)> = BTreeMap::new();
    for packet in packets {
        let (open, stages) = flows.entry(u64::from(packet.msgid % 256)).or_default();
        let first = open.is_none();
        // A message belongs to the context of its first packet.
        let handlers = *open.get_or_insert(packet.handlers);
        stages.extend((first && handlers & 1 != 0).then_some(1));
        stages.extend((handlers & 2 != 0).then_some(2));
        if packet.eom {
            stages.extend((handlers & 4 != 0).then_some(3));
            *open = None;
        }
    }
    flows.into_iter().map(|(flow, (_, stages))| (flow, stages)).filter(|(_, stages)| !stages.is_empty()).collect()
}

/// Makes contexts with the handlers `count_hh`, `count_ph`, `count_th` of the tests' image, in NIC memory of their own.
fn contexts() -> Vec<Arc<Context>> {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    let image = IMAGE.get_or_init(|| {
        let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/relinked/programs/handlers.c");
        spin_handlers::try_build(&[&source], &["--abi", "pspin"]).expect("it compiles")
    });
    let memory = Arc::new(NicMemory::new().expect("memory"));
    let loaded = Arc::new(Loaded::new(image.clone(), &memory).expect("an image"));
    let find = |name, wanted| if wanted { loaded.image.symbol(name).expect("a handler") } else { 0 };
    let ec = |handlers: usize| Ec {
        hh_addr: find("count_hh", handlers & 1 != 0),
        ph_addr: find("count_ph", handlers & 2 != 0),
        th_addr: find("count_th", handlers & 4 != 0),
        scratchpad_size: [4096; 4],
        ..Ec::default()
    };
    let context = |handlers| Context::new(handlers, &ec(handlers as usize), &loaded).expect("a context");
    (0..8).map(|handlers| Arc::new(context(handlers))).collect()
}

fn add(inbox: &Inbox, contexts: &[Arc<Context>], packets: &[Packet]) {
    let added = inbox.add((0..).zip(packets).map(|(user, packet)| {
        let Packet { handlers, msgid, len, eom, wait_cycles } = *packet;
        let context = contexts[handlers].clone();
        Added { context, msgid, bytes: vec![0; len], l1_len: len, eom, wait_cycles, user }
    }));
    assert!(added, "more come");
    inbox.end();
}

fn run(packets: &[Packet], executor: &Executor, ticking: bool) -> (Recorder, String) {
    let inbox = Arc::new(Inbox::default());
    let mut simulation = Simulation::new(&Settings::default(), inbox.clone());
    add(&inbox, &contexts(), packets);
    let mut recorder = Recorder::default();
    if ticking {
        while !simulation.tick(executor, &mut recorder) {}
    } else {
        assert_eq!(simulation.run(executor, &mut recorder), End::Done);
    }
    (recorder, simulation.totals.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn packets_are_handled_in_order_and_released_once(packets in prop::collection::vec(packet(), 0..80)) {
        let executor = Executor::new().expect("a timer");
        let (recorder, statistics) = run(&packets, &executor, false);
        prop_assert_eq!(&recorder.problems, &Vec::<String>::new());
        let mut flows: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut released = Vec::new();
        let mut last = 0;
        for seen in &recorder.seen {
            match *seen {
                Seen::Told(stage, flow) => flows.entry(flow).or_default().push(stage),
                Seen::Released(user, times) => {
                    released.push(user);
                    prop_assert!(times.nic_arrival < times.pspin_arrival && times.pspin_arrival <= times.feedback);
                    prop_assert!(last <= times.feedback, "feedback in order of time");
                    last = times.feedback;
                }
                Seen::Sent(_) => prop_assert!(false, "no handler sends"),
            }
        }
        prop_assert_eq!(flows, expected(&packets));
        released.sort_unstable();
        prop_assert_eq!(released, (0..packets.len() as u64).collect::<Vec<_>>());
        let (ticked, same) = run(&packets, &executor, true);
        prop_assert_eq!(ticked.seen, recorder.seen);
        prop_assert_eq!(same, statistics);
    }
}
