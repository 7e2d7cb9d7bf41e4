//! Endless packets of several contexts: interleaved flows with losses, duplicates, unmatched frames, and orders to the handlers
//! (`handlers/testing/recorder.c`).

use fastrand::Rng;
use spin_abi::control::Full;

use crate::policy::{Ending, Policy, port};

/// Flows of a context: in all, more than there are queues, unless these are ample.
pub const FLOWS: usize = 12;
/// Bytes before the order: Ethernet, IPv4, UDP.
pub const HEADERS: usize = 14 + 20 + 8;
/// Bytes of an order.
pub const ORDER: usize = 28;
/// Verdicts as handlers return them.
pub const PASS: u8 = 1;
pub const DROP: u8 = 4;
/// Verdicts after which the message stays open.
pub const PROCESS_DATA_PENDING: u8 = 3;
pub const DROP_PENDING: u8 = 5;
pub const SUCCESS_PENDING: u8 = 6;
/// A value that is no verdict.
pub const BAD_VERDICT: u8 = 99;

/// Actions of a handler, with the numbers of `recorder.c`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    #[default]
    Nothing,
    /// A fault before the record is sent.
    FaultUnseen,
    Fault,
    Loop,
    Report,
    /// The handler ends by the doorbell, without a verdict.
    Finish,
    Send,
    Wait,
    Set,
}

impl Action {
    /// Whether the handler faults after its record.
    pub const fn faults(self) -> bool {
        matches!(self, Self::Fault | Self::Loop | Self::Report)
    }

    /// Whether the handler returns.
    pub const fn returns(self) -> bool {
        matches!(self, Self::Nothing | Self::Send | Self::Wait | Self::Set)
    }
}

/// A packet: its identity, and the actions of header, payload and completion handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    pub end: bool,
    pub context: u8,
    pub flow: u16,
    pub actions: [Action; 3],
    pub verdicts: [u8; 2],
    pub message: u32,
    pub sequence: u32,
    /// A number unique to each packet, including duplicates.
    pub instance: u32,
    /// The word that its handler waits for or sends.
    pub word: u32,
}

impl Order {
    /// The order's bytes in the packet.
    fn bytes(&self) -> [u8; ORDER] {
        let mut bytes = [0; ORDER];
        (bytes[0], bytes[1]) = (self.end.into(), self.context);
        bytes[2..4].copy_from_slice(&self.flow.to_le_bytes());
        self.actions.iter().zip(&mut bytes[4..7]).for_each(|(&action, byte)| *byte = action as u8);
        bytes[7..9].copy_from_slice(&self.verdicts);
        let words = [self.message, self.sequence, self.instance, self.word];
        bytes[12..].copy_from_slice(&words.map(u32::to_le_bytes).concat());
        bytes
    }
}

/// A flow of messages.
#[derive(Default)]
struct Flow {
    message: u32,
    length: u32,
    sent: u32,
    /// Sequence numbers in transit.
    window: Vec<u32>,
}

impl Flow {
    /// The sequence number of the next packet, and whether it is the last of its message; `None` when it is lost.
    fn next(&mut self, rng: &mut Rng) -> Option<(u32, bool)> {
        if self.sent == self.length && self.window.is_empty() {
            self.message += 1;
            self.sent = 0;
            self.length = match rng.u32(..64) {
                0..16 => 1,
                16 => rng.u32(50..150),
                _ => rng.u32(2..10),
            };
        }
        while self.sent < self.length && self.window.len() < 4 {
            let copies = usize::from(rng.u8(..50) > 0) * (1 + usize::from(rng.u8(..50) == 0));
            self.window.extend(std::iter::repeat_n(self.sent, copies));
            self.sent += 1;
        }
        let early = rng.usize(..10).saturating_sub(6).min(self.window.len().saturating_sub(1));
        let sequence = (!self.window.is_empty()).then(|| self.window.remove(early))?;
        Some((sequence, sequence + 1 == self.length))
    }
}

/// An arriving frame.
pub enum Arrival {
    /// A packet for a context.
    Packet(Order),
    /// A frame that matches no context.
    Foreign,
}

/// The generator of packets.
pub struct Traffic {
    rng: Rng,
    policies: Vec<Policy>,
    /// Flows by context and number.
    flows: Vec<[Flow; FLOWS]>,
    /// The word that a handler waited for last, and whether it has not been sent yet, by context.
    words: Vec<(u32, bool)>,
    instances: u32,
    /// Context and flow of the current burst, and the number of packets left in it.
    burst: (usize, usize, u32),
}

impl Traffic {
    pub fn new(policies: Vec<Policy>, seed: u64) -> Self {
        let flows = policies.iter().map(|_| Default::default()).collect();
        let words = vec![(0, false); policies.len()];
        Self { rng: Rng::with_seed(seed), policies, flows, words, instances: 0, burst: (0, 0, 0) }
    }

    /// Writes the next frame to `bytes`.
    pub fn next(&mut self, bytes: &mut Vec<u8>) -> Arrival {
        bytes.clear();
        if self.rng.u8(..200) == 0 {
            self.foreign(bytes);
            return Arrival::Foreign;
        }
        let order = self.order();
        let len = match self.rng.u8(..100) {
            0 => 1514,
            1..20 => HEADERS + ORDER + self.rng.usize(..100),
            _ => HEADERS + ORDER + self.rng.usize(..20),
        };
        let capable = self.policies[usize::from(order.context)].full == Full::Mark && self.rng.bool();
        head(bytes, &order, len, capable);
        bytes.extend_from_slice(&order.bytes());
        bytes.extend((HEADERS + ORDER..len).map(|at| filler(order.instance, at)));
        Arrival::Packet(order)
    }

    fn foreign(&mut self, bytes: &mut Vec<u8>) {
        let len = self.rng.usize(14..120);
        bytes.extend(std::iter::repeat_with(|| self.rng.u8(..)).take(len));
        // The frame has neither IP nor a VLAN tag.
        (bytes[12], bytes[13]) = (0x88, 0xb6);
    }

    fn order(&mut self) -> Order {
        loop {
            let (context, flow) = self.flow();
            let Some((sequence, end)) = self.flows[context][flow].next(&mut self.rng) else { continue };
            let message = self.flows[context][flow].message;
            self.instances += 1;
            let order = Order {
                end,
                context: self.policies[context].index,
                flow: u16::try_from(flow).expect("few flows"),
                message,
                sequence,
                instance: self.instances,
                ..Order::default()
            };
            return self.with_orders(order);
        }
    }

    /// The flow of the next packet.
    fn flow(&mut self) -> (usize, usize) {
        let (context, flow, left) = self.burst;
        if left > 0 {
            self.burst.2 -= 1;
            return (context, flow);
        }
        let left = if self.rng.u8(..100) == 0 { self.rng.u32(20..80) } else { self.rng.u32(..6) };
        self.burst = (self.rng.usize(..self.policies.len()), self.rng.usize(..FLOWS), left);
        (self.burst.0, self.burst.1)
    }

    fn with_orders(&mut self, mut order: Order) -> Order {
        let (rng, policy) = (&mut self.rng, &self.policies[usize::from(order.context)]);
        order.actions = [(); 3].map(|()| action(rng, policy));
        // With messages that may be cancelled, it would be unknown whether their waiting handlers ran. With two handlers of a
        // packet, it would be unknown which one did.
        if policy.full != Full::Kill && rng.u8(..100) == 0 {
            order.actions[rng.usize(..3)] = Action::FaultUnseen;
        }
        order.verdicts = [(); 2].map(|()| verdict(rng));
        // Packets for the kernel are dropped while others need the time, which would be a loss.
        if policy.ample && !policy.alone && order.verdicts[0] == PASS {
            order.verdicts[0] = 0;
        }
        let (word, asked) = &mut self.words[usize::from(order.context)];
        if *asked && rng.bool() {
            (order.actions[1], *asked, order.word) = (Action::Set, false, *word);
        } else if policy.waits && rng.u16(..500) == 0 {
            (*word, *asked) = (*word + 1, true);
            (order.actions[1], order.word) = (Action::Wait, *word);
        }
        order
    }
}

fn action(rng: &mut Rng, policy: &Policy) -> Action {
    match (rng.u32(..20_000), policy.ending) {
        (0, _) | (1..40, Ending::Instructions) => Action::Loop,
        (100..200, _) => Action::Fault,
        (200..250, _) => Action::Report,
        (300..400, _) => Action::Finish,
        (1000..2000, _) => Action::Send,
        _ => Action::Nothing,
    }
}

fn verdict(rng: &mut Rng) -> u8 {
    match rng.u8(..100) {
        0..4 => PASS,
        4..8 => DROP,
        8 => BAD_VERDICT,
        9..18 => 2,
        18 => PROCESS_DATA_PENDING,
        19 => DROP_PENDING,
        20 => SUCCESS_PENDING,
        _ => 0,
    }
}

/// A byte of a packet behind its order.
pub fn filler(instance: u32, at: usize) -> u8 {
    instance.to_le_bytes()[at % 4] ^ at.to_le_bytes()[0]
}

/// Writes the headers of a frame of `len` bytes.
fn head(bytes: &mut Vec<u8>, order: &Order, len: usize, capable: bool) {
    let [short, udp] = [len - 14, len - 34].map(|len| u16::try_from(len).expect("a frame").to_be_bytes());
    bytes.extend_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    bytes.extend_from_slice(&[0x45, if capable { 2 } else { 0 }, short[0], short[1], 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend_from_slice(&(1000 + order.flow).to_be_bytes());
    bytes.extend_from_slice(&port(order.context.into()).to_be_bytes());
    bytes.extend_from_slice(&[udp[0], udp[1], 0, 0]);
}
