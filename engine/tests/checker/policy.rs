//! The contexts of a round, which together have every policy.

use fastrand::Rng;
use spin_abi::control::{Checks, Full, Install, Isolation, Placement};

/// Contexts of a round.
pub const CONTEXTS: usize = 8;
/// Microseconds of the time limit where the clock should end no handler. With a short limit, the machine's load would decide
/// whether it hits a correct handler.
pub const UNHURRIED_US: u64 = 10_000_000;

/// The limit that ends endless handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A limit of instructions. It ends only handlers that loop on request.
    Instructions,
    /// The clock. It may end other handlers too.
    Clock,
}

/// A context.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The index of the context in the round.
    pub index: u8,
    pub header: bool,
    pub completion: bool,
    pub verdicts: bool,
    pub full: Full,
    pub ending: Ending,
    /// Whether handlers wait for each other.
    pub waits: bool,
    /// Whether it is the engines' only context.
    pub alone: bool,
    /// Whether there is room for all its packets and messages.
    pub ample: bool,
    /// Whether its packets come through a packet channel with quotas: packets beyond the quota are dropped before their message
    /// is known.
    pub channel_share: bool,
    pub install: Install,
}

impl Policy {
    /// The contexts of a round, or a single one with the engines to itself. With `ample` room, none of them loses packets: no
    /// message times out, and no handler waits for another packet. Unless one of several `stalls` others, their packets may take
    /// the fast path.
    pub fn all(alone: bool, ample: bool, stalls: bool, rng: &mut Rng) -> Vec<Self> {
        let shift = rng.usize(..4);
        let new = |place, index, rng: &mut Rng| {
            let mut policy = Self::new(place, index, shift, ample, rng);
            if !alone && !stalls && policy.full == Full::Wait {
                (policy.full, policy.install.full) = (Full::Drop, Full::Drop);
            }
            if ample {
                (policy.waits, policy.install.message_timeout_us) = (false, None);
            }
            policy
        };
        if alone {
            let index = rng.usize(..CONTEXTS);
            return vec![Self { alone, ..new(0, index, rng) }];
        }
        (0..CONTEXTS).map(|index| new(index, index, rng)).collect()
    }

    /// The context at a place, with the policy of the given index.
    fn new(place: usize, index: usize, shift: usize, ample: bool, rng: &mut Rng) -> Self {
        let full = [Full::Drop, Full::Wait, Full::Mark, Full::Kill][index % 4];
        // Over some rounds, all four kinds of images meet each policy. Each ample one meets both kinds of limit.
        let kind = (index / 2 + shift + index) % 4;
        let by_instructions = if ample { [0, 1, 2, 4].contains(&index) } else { index < CONTEXTS / 2 };
        let ending = if by_instructions { Ending::Instructions } else { Ending::Clock };
        let hpus = if ending == Ending::Clock { rng.u32(2..=8) } else { rng.u32(1..=2) };
        // Verdicts have an effect only for handlers that return, which has to be known.
        let verdicts = ending == Ending::Instructions && (ample || rng.u8(..4) > 0);
        let install = Install {
            name: format!("recorder {index}"),
            rules: vec![format!("udp dport {}", port(place))],
            eom: Some("payload[0:1] = 1".into()),
            scratchpad: 4096,
            // More than an order and the headers before it.
            l1_bytes: rng.bool().then_some(128),
            instruction_limit: (ending == Ending::Instructions).then_some(20_000),
            watchdog_us: Some(if ending == Ending::Clock { 2_000 } else { UNHURRIED_US }),
            message_timeout_us: (rng.u8(..3) == 0).then(|| rng.u64(500..5_000)),
            checks: *rng.choice(&[Checks::Page, Checks::Exact]).unwrap_or(&Checks::Page),
            isolation: *rng.choice(&[Isolation::Context, Isolation::Message]).unwrap_or(&Isolation::Context),
            placement: *rng.choice(&[Placement::Any, Placement::Home]).unwrap_or(&Placement::Any),
            weight: Some(rng.u32(1..6)),
            full,
            hpus: Some(hpus),
            verdicts,
            ..Install::default()
        };
        let index = u8::try_from(place).expect("few contexts");
        let (header, completion) = (kind & 1 == 0, kind & 2 == 0);
        let waits = hpus > 1 && ending == Ending::Clock;
        Self {
            index,
            header,
            completion,
            verdicts,
            full,
            ending,
            waits,
            alone: false,
            ample,
            channel_share: false,
            install,
        }
    }

    /// Whether the queue of a cancelled message may be freed before its end without an event: by the clock, or for other
    /// messages.
    pub fn frees_dead_queues(&self) -> bool {
        self.install.message_timeout_us.is_some() || !self.alone
    }

    /// Arguments of `spin-cc` for its image.
    pub fn arguments(&self) -> Vec<&'static str> {
        let left_out = [(self.header, "-DNO_HEADER"), (self.completion, "-DNO_COMPLETION")];
        left_out.iter().filter(|(has, _)| !has).map(|&(_, define)| define).collect()
    }

    /// Whether packets of an open message are never lost: packets without room wait as long as necessary, or their whole message
    /// is lost.
    pub fn keeps_messages_whole(&self) -> bool {
        let kills = self.full == Full::Kill && !self.channel_share;
        kills || self.full == Full::Wait && self.alone
    }
}

/// The destination port of a context's packets.
pub fn port(index: usize) -> u16 {
    u16::try_from(5000 + index).expect("few contexts")
}
