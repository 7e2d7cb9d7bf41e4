//! Messages for the recorder (`handlers/testing/recorder.c`), and a check of the handlers' order by its records.

use std::collections::BTreeMap;

use fastrand::Rng;
use spin_abi::control::Install;

use crate::common::udp_from;
use crate::two::Two;

/// Offsets of records and orders, as in `handlers/testing/recorder.c`.
pub const ORDER: usize = 42;
const RECORD: usize = 36;
const FAULT: u8 = 2;
const FINISH: u8 = 5;
pub const SEND: u8 = 6;
const BUSY: u8 = 9;
/// The first flow of packets that arrive at the second engine.
pub const SECOND: u16 = 500;

/// A packet with an order for the recorder.
#[derive(Clone, Copy)]
pub struct Order {
    pub context: u8,
    pub flow: u16,
    pub message: u32,
    pub sequence: u32,
    pub end: bool,
    pub instance: u32,
    pub actions: [u8; 3],
}

impl Order {
    pub fn frame(&self) -> Vec<u8> {
        let mut payload = vec![self.end.into(), self.context];
        payload.extend(self.flow.to_le_bytes());
        payload.extend(self.actions);
        // No verdicts.
        payload.extend([0; 5]);
        payload.extend([self.message, self.sequence, self.instance, 0].map(u32::to_le_bytes).concat());
        udp_from(1000 + self.flow, 5000 + u16::from(self.context), &payload)
    }
}

/// The handlers of a message that ran.
#[derive(Default)]
pub struct Runs {
    pub headers: u32,
    /// Payload runs by sequence number.
    pub payloads: BTreeMap<u32, u32>,
    pub completions: u32,
}

/// The context and the unique number of a record; `None`: the frame is no record.
pub fn number(frame: &[u8]) -> Option<(u8, u32)> {
    is_record(frame).then(|| (frame[15], word(frame, 32)))
}

fn is_record(frame: &[u8]) -> bool {
    frame.len() == RECORD && frame[12..14] == [0x88, 0xb5]
}

fn word(frame: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(frame[at..at + 4].try_into().expect("four"))
}

/// The contents of the records: which handlers ran on which packet, in order.
#[derive(Default)]
pub struct Seen {
    /// Runs by flow and message.
    pub messages: BTreeMap<(u16, u32), Runs>,
    /// Packets that came back.
    pub sent: BTreeMap<u32, u32>,
    /// The number of records by the cluster that the task ran on.
    pub clusters: BTreeMap<u16, u32>,
}

impl Seen {
    /// Checks that each packet's payload handler ran once, and so did the other handlers of its message.
    pub fn verify(&self, orders: &[Order], seed: u64) {
        for order in orders {
            let Runs { headers, payloads, completions } = &self.messages[&(order.flow, order.message)];
            assert_eq!([*headers, payloads[&order.sequence], *completions], [1; 3], "seed {seed}");
        }
    }

    pub fn look(&mut self, frames: &[Vec<u8>], header: bool) {
        for frame in frames {
            let word = |at: usize| word(frame, at);
            let half = |at: usize| u16::from_le_bytes([frame[at], frame[at + 1]]);
            if !is_record(frame) {
                *self.sent.entry(word(ORDER + 20)).or_default() += 1;
                continue;
            }
            let Runs { headers, payloads, completions } = self.messages.entry((half(16), word(20))).or_default();
            let cluster = half(18);
            let is_home = cluster / 2 == u16::from(half(16) >= SECOND);
            assert!(frame[14] == b'P' || is_home, "others than payload handlers run at home");
            match frame[14] {
                b'H' => {
                    assert!(payloads.is_empty() && *completions == 0, "header first");
                    *headers += 1;
                }
                b'P' => {
                    assert!(*completions == 0 && *headers == u32::from(header), "payload between them");
                    *payloads.entry(word(24)).or_default() += 1;
                }
                b'C' => *completions += 1,
                other => panic!("{other}"),
            }
            *self.clusters.entry(cluster).or_default() += 1;
        }
    }
}

/// Lets all packets arrive at once.
pub fn arrive(two: &mut Two, orders: &[Order]) {
    two.arrive(0, &orders.iter().map(Order::frame).collect::<Vec<_>>());
}

/// A context of the recorder.
pub fn recorder(context: u8) -> Install {
    Install {
        rules: vec![format!("udp dport {}", 5000 + u32::from(context))],
        eom: Some("payload[0:1] = 1".into()),
        scratchpad: 4096,
        hpus: Some(2),
        ..Install::default()
    }
}

/// All messages of each flow in `flows`, with packets of all flows interleaved.
pub fn messages(context: u8, flows: std::ops::Range<u16>, rng: &mut Rng, actions: bool) -> Vec<Order> {
    let first = flows.start;
    let mut open: Vec<(u16, u32, u32)> = flows.map(|flow| (flow, 0, rng.u32(1..20))).collect();
    let (mut orders, mut instance) = (Vec::new(), u32::from(context) << 24 | u32::from(first) << 14);
    while !open.is_empty() {
        let at = rng.usize(..open.len());
        let (flow, sequence, length) = &mut open[at];
        let action = |rng: &mut Rng| match rng.u8(..40) {
            0 if actions => FAULT,
            1 if actions => FINISH,
            2 | 3 => SEND,
            _ => BUSY,
        };
        instance += 1;
        orders.push(Order {
            context,
            flow: *flow,
            message: 1,
            sequence: *sequence,
            end: *sequence + 1 == *length,
            instance,
            actions: [(); 3].map(|()| action(rng)),
        });
        *sequence += 1;
        if *sequence == *length {
            open.swap_remove(at);
        }
    }
    orders
}

/// Interleaves these lists at random, keeping the order of each.
pub fn mixed(mut orders: Vec<Vec<Order>>, rng: &mut Rng) -> Vec<Order> {
    let mut mixed = Vec::new();
    orders.iter_mut().for_each(|orders| orders.reverse());
    while !orders.is_empty() {
        let at = rng.usize(..orders.len());
        match orders[at].pop() {
            Some(order) => mixed.push(order),
            None => drop(orders.swap_remove(at)),
        }
    }
    mixed
}

/// Lets packets arrive in groups, with polls in between.
pub fn run(
    two: &mut Two,
    orders: &[Order],
    rng: &mut Rng,
    seen: &mut Seen,
    mut between: impl FnMut(&mut Two, &mut Seen),
) {
    let mut rest = orders;
    while !rest.is_empty() {
        let (some, others) = rest.split_at(rng.usize(1..=300).min(rest.len()));
        arrive(two, some);
        for _ in 0..rng.u32(10..40) {
            let sent = two.poll(rng.usize(..2));
            seen.look(&sent, true);
        }
        between(two, seen);
        seen.look(&two.settle(), true);
        rest = others;
    }
}
