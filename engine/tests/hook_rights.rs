//! Frames that handlers of ordinary users send from the XDP hook, against the check of user space: `SendRights`.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use hpu_vm::bpf::layout::{Counter, Counters, Description, Maps, Range, ReplySource};
use hpu_vm::bpf::machine::MapMemory;
use hpu_vm::bpf::{Layout, Machine as Program, Options, Program as Translated, Source};
use hpu_vm::{Image, Kind};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use spin_abi::map::Machine;
use spin_matcher::Headers;
use spin_matcher::testing::{frames, plain_frames};
use spin_pspin::hpu::send_rights::{HostAddresses, Received, SendRights, SendSource};
use spin_testing::bounded;

const MACHINE: Machine = Machine::PSPIN;
const HANDLER_MEM: u32 = 8192;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
/// Instructions of a run.
const LIMIT: u64 = 10_000_000;

/// A handler that sends any frame, of a user who may only answer packets to the host.
struct Lab {
    image: Image,
    source: ReplySource,
    rights: SendRights,
    taken: BTreeSet<u32>,
}

impl Lab {
    fn new(mac: [u8; 6], address: [u8; 4]) -> Self {
        let image = Image::load(&spin_handlers::image("overwrite", &[]), &MACHINE).expect("an image");
        let host = HostAddresses { mac, ip: vec![IpAddr::from(Ipv4Addr::from(address))] };
        let rights = SendRights::reply(SendSource { host: Some(host), ..SendSource::default() });
        let taken = image.addresses_taken();
        Self { image, source: ReplySource { mac, addresses: vec![address] }, rights, taken }
    }

    /// The action on a packet whose handler sends `sent`, the frame that is left, and the counters.
    fn run(&self, received: &[u8], sent: &[u8]) -> (u32, Vec<u8>, Counters) {
        let base = self.image.handler_mem_end();
        let layout = Layout {
            machine: MACHINE,
            hpu: (0, 0),
            first_hpu: 0,
            first_flow: 0,
            processors: 1,
            ranges: vec![Range { base, len: HANDLER_MEM, writable: true, map: Maps::MEMORY, offset: 0 }],
            host_queue: None,
            own_task: false,
            replies: Some(self.source.clone()),
        };
        let entry = self.image.handler(Kind::Payload).expect("one");
        let source = Source { code: self.image.code(), entry, taken: &self.taken };
        let translated = Translated::new(source, &layout, Options::default()).expect("eligible");
        let description =
            Description { handler_mem: (base, HANDLER_MEM), scratchpads: [(0, 0); 4], host: (0, 0), unit: [0; 2] };
        let mut configuration = vec![0; Maps::CONFIGURATION_SIZE as usize];
        configuration[..8].copy_from_slice(&100_000_u64.to_ne_bytes());
        let (mut slots, mut memory) = (layout.slots(&description), vec![0; HANDLER_MEM as usize]);
        memory[..4].copy_from_slice(&u32::to_le_bytes(sent.len() as u32));
        memory[4..4 + sent.len()].copy_from_slice(sent);
        let mut frame = received.to_vec();
        let maps =
            vec![MapMemory::Constants(&configuration), MapMemory::Value(&mut slots), MapMemory::Value(&mut memory)];
        let action =
            Program::new(&mut frame, maps).run(translated.insns(), LIMIT).unwrap_or_else(|error| panic!("{error}"));
        (action, frame, Counters::sum(&slots))
    }
}

/// Ends of a plain packet, exchanged.
fn answer(frame: &[u8]) -> Vec<u8> {
    let mut sent = frame.to_vec();
    sent[..6].copy_from_slice(&frame[6..12]);
    sent[6..12].copy_from_slice(&frame[..6]);
    sent[26..30].copy_from_slice(&frame[30..34]);
    sent[30..34].copy_from_slice(&frame[26..30]);
    sent[34..36].copy_from_slice(&frame[36..38]);
    sent[36..38].copy_from_slice(&frame[34..36]);
    sent
}

/// How a frame comes from an answer.
#[derive(Clone, Debug)]
enum Forgery {
    None,
    Byte(usize, u8),
    Cut(usize),
    Other(Vec<u8>),
    Received,
}

fn forgery() -> impl Strategy<Value = Forgery> {
    prop_oneof![
        1 => Just(Forgery::None),
        1 => Just(Forgery::Received),
        4 => (0..48_usize, any::<u8>()).prop_map(|(at, value)| Forgery::Byte(at, value)),
        1 => (14..64_usize).prop_map(Forgery::Cut),
        1 => frames().boxed().prop_map(Forgery::Other),
    ]
}

#[test]
fn only_what_user_space_allows_is_sent() {
    let (sent_count, kept) = (Cell::new(0_u32), Cell::new(0_u32));
    let mut runner =
        TestRunner::new(Config { cases: bounded(1500, 20_000), failure_persistence: None, ..Config::default() });
    let received = prop_oneof![9 => plain_frames().boxed(), 1 => frames().boxed()]
        .prop_filter("a header", |frame| frame.len() >= 42);
    let result = runner.run(&(received, forgery(), prop::bool::weighted(0.9)), |(received, forgery, is_to_host)| {
        let mac = if is_to_host { *received.first_chunk().expect("a MAC") } else { [2; 6] };
        let lab = Lab::new(mac, *received[30..].first_chunk().expect("an address"));
        let mut sent = answer(&received);
        match forgery {
            Forgery::None => {}
            Forgery::Byte(at, value) if at < sent.len() => sent[at] = value,
            Forgery::Byte(..) => {}
            Forgery::Cut(len) => sent.truncate(len),
            Forgery::Other(mut other) => {
                other.truncate(sent.len());
                sent = other;
            }
            Forgery::Received => sent.clone_from(&received),
        }
        if sent.len() < 14 {
            return Err(TestCaseError::reject("no frame"));
        }
        let (action, frame, counters) = lab.run(&received, &sent);
        let allowed = lab.rights.allow(&Received::of(&received), &sent);
        let is_plain = |frame: &[u8]| Headers::plain_end(frame).is_some();
        match action {
            XDP_TX => {
                prop_assert!(allowed, "sent: {sent:02x?} for {received:02x?}");
                prop_assert_eq!(&frame, &sent);
                sent_count.set(sent_count.get() + 1);
            }
            XDP_DROP => {
                prop_assert_eq!(counters.get(Counter::Forbidden), 1);
                prop_assert!(!allowed || !is_plain(&sent), "kept: {sent:02x?} for {received:02x?}");
                kept.set(kept.get() + 1);
            }
            // To user space, before the handler has begun.
            other => {
                prop_assert_eq!((other, &frame), (XDP_PASS, &received));
                prop_assert!(!is_plain(&received) || !lab.rights.allow(&Received::of(&received), &answer(&received)));
            }
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let (sent, kept) = (sent_count.get(), kept.get());
    assert!(sent > 100 && kept > 300, "{sent} sent, {kept} kept");
}
