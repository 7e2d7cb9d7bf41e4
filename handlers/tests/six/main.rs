//! The paper's six handlers (PsPIN paper §IV-C) on the engine in memory: results of interleaved messages, byte for
//! byte.
//!
//! Frames have 64 to 4096 bytes, the machine's limits.
#![forbid(unsafe_code)]

#[path = "../../../engine/tests/common/mod.rs"]
mod common;
#[path = "../frames/mod.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
mod frames;
mod reference;
mod traffic;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{Kind, Lab, ROOT};
use reference::{Cache, ELEMENTS, ENTRIES, RECORD};
use spin_abi::control::{Install, Placement, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::settings::Sizes;
use spin_shm::Region;
use traffic::{EOM, HEADERS, MESSAGES, Message, RULE, Random, interleaved, messages, turns};

const SIZES: [usize; 5] = [64, 512, 1024, 2048, 4096];

/// Way to run a handler, and frame size.
#[derive(Clone, Copy, Debug)]
struct Setting {
    kind: Kind,
    clusters: u32,
    placement: Placement,
    /// Build flags of the image.
    flags: &'static [&'static str],
    size: usize,
}

/// Returns every setting of an engine; only one for the engine with a shadow interpreter, which does everything twice.
fn settings(kind: Kind) -> Vec<Setting> {
    if kind == Kind::Check {
        return vec![Setting { kind, clusters: 2, placement: Placement::Any, flags: &[], size: 512 }];
    }
    let mut all = Vec::new();
    for size in SIZES {
        for clusters in [1, 2] {
            let setting = Setting { kind, clusters, placement: Placement::Any, flags: &[], size };
            let home = Setting { placement: Placement::Home, ..setting };
            all.extend([setting, home, Setting { flags: &["-DSPIN_HOME", "--vectors"], ..home }]);
        }
    }
    all
}

/// Makes a test of each handler on each engine.
macro_rules! on_every_engine {
    ($($handler:ident)*) => {
        on_every_engine!(interp Interp, $($handler)*);
        on_every_engine!(jit Jit, $($handler)*);
        on_every_engine!(check Check, $($handler)*);
    };
    ($module:ident $kind:ident, $($handler:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $handler() {
                    super::settings(super::Kind::$kind).into_iter().for_each(super::$handler);
                }
            )*
        }
    };
}

on_every_engine! { reduce aggregate filtering kvstore strided_ddt histogram }

/// An engine with a handler, and its results.
struct Run {
    lab: Lab,
    host: Option<Arc<Region>>,
    setting: Setting,
}

impl Run {
    fn new(handler: &str, setting: Setting, install: Install) -> Self {
        let machine = Machine { clusters: setting.clusters, ..Machine::PSPIN };
        let mut lab = Lab::sized(setting.kind, machine, 256, Sizes::default(), Schedule::default());
        let install =
            Install { rules: vec![RULE.into()], eom: Some(EOM.into()), placement: setting.placement, ..install };
        let (_, host) =
            lab.try_install(&spin_handlers::image(handler, setting.flags), install, ROOT).expect("it installs");
        Self { lab, host, setting }
    }

    fn host(&self) -> &Region {
        self.host.as_deref().expect("host memory was asked for")
    }

    fn host_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.host().len()).expect("small")];
        self.host().read(0, &mut bytes).expect("all of it");
        bytes
    }

    /// Adds up the vectors of `length` words that the clusters wrote to host memory, one after the other.
    fn sum_of_clusters(&self, length: usize) -> Vec<u32> {
        let bytes = self.host_bytes();
        let clusters = self.setting.clusters as usize;
        let (vectors, rest) = bytes.split_at(clusters * length * 4);
        assert!(rest.iter().all(|byte| *byte == 0), "{:?}: nothing behind the vectors", self.setting);
        let mut sum = vec![0u32; length];
        for vector in vectors.chunks_exact(length * 4) {
            assert!(vector.iter().any(|byte| *byte != 0), "{:?}: every cluster is home to messages", self.setting);
            sum.iter_mut().zip(reference::words(vector)).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
        }
        sum
    }

    /// Checks that every packet ran once, every message ended, and no errors occurred.
    fn verify(&self, messages: &[Message]) {
        let packets: usize = messages.iter().map(|message| message.datagrams.len()).sum();
        let expected = [
            (Counter::PayloadRuns, packets),
            (Counter::Released, packets),
            (Counter::Messages, messages.len()),
            (Counter::Faults, 0),
            (Counter::CommandErrors, 0),
        ];
        for (counter, value) in expected {
            assert_eq!(self.lab.total(counter), value as u64, "{:?}: {}", self.setting, counter.name());
        }
    }
}

fn reduce(setting: Setting) {
    let mut random = Random::new(setting.size as u64);
    let messages = messages(setting.size, |_, payload| random.bytes(payload));
    let mut run = Run::new("reduce", setting, Install { scratchpad: 4096, host_mem: 8192, ..Install::default() });
    assert!(run.lab.exchange(&interleaved(&messages, 0)).is_empty());
    assert_eq!(run.sum_of_clusters(ELEMENTS), reference::reduce(&messages), "{setting:?}");
    run.verify(&messages);
}

fn histogram(setting: Setting) {
    let mut random = Random::new(setting.size as u64);
    let fill = |_, payload: &mut [u8]| {
        for word in payload.chunks_mut(4) {
            // Includes values that are not counted.
            let value = (random.word() % 1100).to_le_bytes();
            word.copy_from_slice(&value[..word.len()]);
        }
    };
    let messages = messages(setting.size, fill);
    let mut run =
        Run::new("histogram", setting, Install { scratchpad: 8192, host_mem: 20 << 10, ..Install::default() });
    assert!(run.lab.exchange(&interleaved(&messages, 0)).is_empty());
    assert_eq!(run.sum_of_clusters(reference::BINS), reference::histogram(&messages), "{setting:?}");
    run.verify(&messages);
}

/// All messages are open at the same time; they end one by one, so that each sum is visible.
fn aggregate(setting: Setting) {
    let mut random = Random::new(setting.size as u64);
    let messages = messages(setting.size, |_, payload| random.bytes(payload));
    let mut run = Run::new("aggregate", setting, Install { scratchpad: 4096, host_mem: 4096, ..Install::default() });
    run.lab.exchange(&interleaved(&messages, 1));
    assert!(run.host_bytes().iter().all(|byte| *byte == 0), "{setting:?}: no message has ended");
    for message in &messages {
        run.lab.exchange(&[message.frames().last().expect("a datagram")]);
        let mut expected = vec![0; 4096];
        expected[..4].copy_from_slice(&reference::aggregate(message).to_le_bytes());
        assert_eq!(run.host_bytes(), expected, "{setting:?}");
    }
    run.verify(&messages);
}

fn strided_ddt(setting: Setting) {
    // The paper's layout, and one without common multiples.
    for (block, stride) in [(256, 512), (101, 333)] {
        let mut random = Random::new(setting.size as u64);
        let data = setting.size - HEADERS - 4;
        let mut next = 0;
        let fill = |_, payload: &mut [u8]| {
            random.bytes(payload);
            payload[..4].copy_from_slice(&u32::to_be_bytes(next));
            next += u32::try_from(data).expect("short");
        };
        let messages = messages(setting.size, fill);
        let mut run =
            Run::new("strided_ddt", setting, Install { handler_mem: 4096, host_mem: 1 << 20, ..Install::default() });
        let mut expected = vec![0; 1 << 20];
        // The layout is not set yet.
        run.lab.exchange(&interleaved(&messages, 0)[..1]);
        assert_eq!(run.host_bytes(), expected);
        let layout = [block, stride].map(|word: u32| word.to_le_bytes()).concat();
        let end = expected.len() - layout.len();
        expected[end..].copy_from_slice(&layout);
        run.host().write(end as u64, &layout).expect("inside");
        // The first packet is not sent again: its message's header handler has run, and its data are missing.
        run.lab.exchange(&interleaved(&messages, 0)[1..]);
        let mut sent = messages;
        sent[0].datagrams.remove(0);
        reference::scatter(&sent, block as usize, stride as usize, &mut expected);
        assert!(run.host_bytes() == expected, "{setting:?}: {block} of {stride}");
        assert_eq!(run.lab.total(Counter::Messages), MESSAGES as u64);
        assert_eq!((run.lab.total(Counter::Faults), run.lab.total(Counter::CommandErrors)), (0, 0));
    }
}

/// Table entry and port of each source.
type Known = BTreeMap<[u8; 4], (usize, u16)>;

/// Makes a table with entries for most of the messages' sources, some of them displaced from the first probed entry.
fn filter_table(messages: &[Message]) -> (Vec<u8>, Known) {
    let mut table = vec![0; ENTRIES * 8];
    let mut known = Known::new();
    let mut put = |at: usize, source: [u8; 4], port: u16| {
        table[at * 8..][..4].copy_from_slice(&source);
        table[at * 8 + 4..][..2].copy_from_slice(&port.to_be_bytes());
        // Two unused bytes.
        table[at * 8 + 6..][..2].copy_from_slice(&[0xaa; 2]);
    };
    for (number, message) in messages.iter().enumerate() {
        // The second source is absent, behind an empty entry; the third is behind eight entries of others.
        let displaced = [0, 1, 8, 3, 7][number % 5];
        let home = reference::home_entry(message.source);
        let first = usize::from(displaced == 1);
        for step in first..displaced {
            put((home + step) % ENTRIES, [192, 168, 1, 1], 1);
        }
        let at = (home + displaced) % ENTRIES;
        let port = 20_000 + u16::try_from(number).expect("few");
        put(at, message.source, port);
        if displaced != 1 && displaced != 8 {
            known.insert(message.source, (at, port));
        }
    }
    (table, known)
}

fn filtering(setting: Setting) {
    const RECORDS: usize = ENTRIES * RECORD;
    let mut random = Random::new(setting.size as u64);
    let messages = messages(setting.size, |_, payload| random.bytes(payload));
    let (table, known) = filter_table(&messages);
    assert_eq!(known.len(), MESSAGES - 4, "strangers are sent too");
    let install = Install { handler_mem: 516 << 10, host_mem: (4 << 20) + (516 << 10), ..Install::default() };
    let mut run = Run::new("filtering", setting, install);
    let mut turns = turns(&messages, 0);
    run.host().write(RECORDS as u64, &table).expect("inside");
    // The table is not marked complete yet, so the first packet's headers are not written.
    run.lab.exchange(&[turns[0].remove(0)]);
    assert!(run.host_bytes()[..RECORDS].iter().all(|byte| *byte == 0), "{setting:?}");
    run.host().write((RECORDS + table.len()) as u64, &1u32.to_le_bytes()).expect("inside");
    // A message's last datagram leaves the record, so it is sent after the others have been processed.
    for frames in turns {
        assert!(run.lab.exchange(&frames).is_empty());
    }
    let mut expected = vec![0; RECORDS];
    for message in &messages {
        if let Some((at, port)) = known.get(&message.source) {
            let last = message.frames().last().expect("a datagram");
            expected[at * RECORD..][..HEADERS].copy_from_slice(&reference::rewritten(&last, *port));
        }
    }
    assert!(run.host_bytes()[..RECORDS] == expected, "{setting:?}");
    run.verify(&messages);
}

/// Returns the answers to a message's requests, as frames.
fn answers(message: &Message, cache: &mut Cache) -> Vec<Vec<u8>> {
    let answer = |(request, frame): (&Vec<u8>, Vec<u8>)| {
        let mut frame =
            [&frame[6..12], &frame[..6], &frame[12..26], &frame[30..34], &frame[26..30], &frame[34..]].concat();
        frame[34..38].rotate_left(2);
        // A zero field means no checksum.
        frame[40..42].fill(0);
        frame.splice(HEADERS.., cache.answer(request));
        frame
    };
    message.datagrams.iter().zip(message.frames()).map(answer).collect()
}

/// Each message uses keys of sets that no other message uses, so the order of messages does not matter. Requests of one
/// message depend on their order: each is sent after the previous one was answered.
fn kvstore(setting: Setting) {
    let mut random = Random::new(setting.size as u64);
    let mut run = Run::new("kvstore", setting, Install { handler_mem: 8192, ..Install::default() });
    let mut cache = Cache::default();
    let (mut all, mut codes) = (Vec::new(), [0; 6]);
    // Several rounds fill the sets.
    for _ in 0..6 {
        let fill = |message: usize, payload: &mut [u8]| {
            random.bytes(payload);
            // Six keys of one set with four entries, and some of another set.
            let set = message * 3 + usize::from(random.below(7) == 0);
            let key = u32::try_from(set + 125 * random.below(6)).expect("small");
            let operation: u32 = if random.below(2) == 0 { 1 } else { 2 };
            payload[..4].copy_from_slice(&operation.to_be_bytes());
            payload[4..8].copy_from_slice(&key.to_be_bytes());
        };
        let messages = messages(setting.size, fill);
        let mut expected: Vec<_> = messages.iter().flat_map(|message| answers(message, &mut cache)).collect();
        expected.iter().for_each(|frame| codes[usize::from(frame[HEADERS + 3])] += 1);
        let mut replies: Vec<_> = turns(&messages, 0).iter().flat_map(|frames| run.lab.exchange(frames)).collect();
        expected.sort();
        replies.sort();
        assert!(replies == expected, "{setting:?}");
        all.extend(messages);
    }
    assert!(codes[3..].iter().all(|count| *count > 0), "found, absent and stored: {codes:?}");
    run.verify(&all);
}
