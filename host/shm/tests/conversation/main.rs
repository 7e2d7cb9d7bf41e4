//! Random conversations of clients: valid requests, documents of other shapes, wrong lengths, changed bytes, early ends.
//! `host/shm/fuzz` runs the same check on inputs of libFuzzer.

mod judge;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use judge::{LONGEST_INPUT, Received, check};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;
use spin_abi::control::{Install, Preamble, Request};

/// Notes the largest allocation.
struct Noting;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all requests go to the system's allocator as they are.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller's requirements are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's requirements are the same.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Noting = Noting;

/// Conversations per run.
const CASES: u32 = 4000;

fn requests() -> impl Strategy<Value = Vec<u8>> {
    let texts = || vec(select(vec!["udp dport 9999", "any", "", "\u{0}", "ip[9:1] = 17"]), 0..4);
    let install = (texts(), any::<u64>(), any::<u32>(), prop::option::of(any::<u64>())).prop_map(
        |(rules, host_mem, handler_mem, watchdog_us)| {
            let rules = rules.into_iter().map(str::to_owned).collect();
            Request::Install(Box::new(Install { rules, host_mem, handler_mem, watchdog_us, ..Install::default() }))
        },
    );
    let context = any::<u32>();
    let others = (context, any::<u32>(), texts()).prop_flat_map(|(context, number, texts)| {
        let rules = texts.into_iter().map(str::to_owned).collect();
        select(vec![
            Request::List,
            Request::Stats,
            Request::Replay,
            Request::Remove { context },
            Request::MapHost { context, address: u64::from(number) << 20 },
            Request::ReadMemory { context, address: number, len: number, unit: number % 3 },
            Request::WriteMemory { context, address: number, unit: number % 3 },
            Request::SetRules { context, rules, eom: None },
        ])
    });
    let valid = prop_oneof![install, others].prop_map(|request| serde_json::to_vec(&request).expect("a document"));
    let other = select(vec![
        &b""[..],
        b"{}",
        b"null",
        b"[]",
        br#"{"request":"list","request":"list"}"#,
        br#"{"request":"nothing"}"#,
        br#"{"request":"remove"}"#,
        br#"{"request":"remove","context":-1}"#,
        br#"{"request":"remove","context":4294967296}"#,
        br#"{"request":"list","more":1}"#,
        br#"{"request":"list"}}"#,
        b"{\"request\":\"\xff\"}",
        br#"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["#,
    ]);
    prop_oneof![3 => valid, 1 => other.prop_map(<[u8]>::to_vec), 1 => vec(any::<u8>(), 0..40)]
}

/// A message, often with lengths of its own.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let length = || prop_oneof![3 => Just(None), 1 => prop_oneof![0..40_u32, any::<u32>()].prop_map(Some)];
    let payload = prop_oneof![3 => vec(any::<u8>(), 0..20), 1 => (0..6000_usize).prop_map(|len| vec![7; len])];
    (requests(), payload, prop::option::weighted(0.1, (length(), length()))).prop_map(|(json, payload, lengths)| {
        let (other_json, other_blob) = lengths.unwrap_or_default();
        let preamble = Preamble {
            json: other_json.unwrap_or(json.len() as u32),
            blob: other_blob.unwrap_or(payload.len() as u32),
        };
        [&preamble.encode()[..], &json, &payload].concat()
    })
}

/// The bytes of a conversation, some of which may be changed, and the end cut off.
fn conversations() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop_oneof![2 => Just(Vec::new()), 1 => vec((any::<Index>(), any::<u8>()), 1..4)];
    (vec(messages(), 0..6), changes, prop::option::weighted(0.3, any::<Index>())).prop_map(
        |(messages, changes, end)| {
            let mut bytes = messages.concat();
            if !bytes.is_empty() {
                for (at, byte) in changes {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
                bytes.truncate(end.map_or(bytes.len(), |end| end.index(bytes.len())));
            }
            bytes
        },
    )
}

#[test]
fn requests_are_received_as_the_protocol_says() {
    let seen = RefCell::new(BTreeMap::<_, u32>::new());
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&conversations(), |bytes| {
        for received in check(&bytes) {
            let kind = match received {
                Received::Request(..) => "requests",
                Received::Skipped(_) => "without their payload",
                Received::NoRequest => "no requests",
                Received::Refused => "refused",
                Received::Cut => "cut",
            };
            *seen.borrow_mut().entry(kind).or_default() += 1;
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let seen = seen.into_inner();
    println!("{seen:?}, at most {} bytes at once", LARGEST.load(Relaxed));
    // Memory grows with the bytes that arrive, not with the length that was announced.
    assert!(LARGEST.load(Relaxed) <= 4 * LONGEST_INPUT, "{} bytes at once", LARGEST.load(Relaxed));
    assert!(seen.len() == 5 && seen.values().all(|&count| count > CASES / 40), "each kind is often seen: {seen:?}");
}
