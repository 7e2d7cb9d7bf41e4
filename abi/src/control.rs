//! Messages between an application and spind, over its Unix stream socket.
//!
//! A message is a [`Preamble`] of 16 bytes, a JSON document and a binary blob. Requests carry the handler image in the
//! blob; replies may carry a descriptor (host memory) as ancillary data. Every preamble carries the protocol
//! version, and a peer of another version is refused by name.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// Version of this protocol; changed whenever an older peer would misunderstand.
pub const VERSION: u16 = 1;
/// First four bytes of every message.
pub const MAGIC: [u8; 4] = *b"sPIN";
/// Most bytes of a JSON document.
pub const MAX_JSON: usize = 4 << 20;
/// Most bytes of a blob.
pub const MAX_BLOB: usize = 16 << 20;
/// Where spind listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/spin/spind.sock";

macro_rules! choices {
    ($($(#[$about:meta])* $name:ident { $($(#[$meaning:meta])* $variant:ident = $text:literal,)* })*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
            #[serde(rename_all = "kebab-case")]
            pub enum $name {
                $($(#[$meaning])* $variant,)*
            }

            impl $name {
                /// The words for all of them.
                pub const ALL: &'static [&'static str] = &[$($text),*];
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(match self { $(Self::$variant => $text,)* })
                }
            }

            impl core::str::FromStr for $name {
                type Err = BadChoice;

                fn from_str(text: &str) -> Result<Self, BadChoice> {
                    match text {
                        $($text => Ok(Self::$variant),)*
                        _ => Err(BadChoice(Self::ALL)),
                    }
                }
            }
        )*
    };
}

/// A word that is none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadChoice(pub &'static [&'static str]);

impl fmt::Display for BadChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected one of: {}", self.0.join(", "))
    }
}

impl core::error::Error for BadChoice {}

choices! {
    /// What runs handlers.
    Engine {
        /// The interpreter.
        Interp = "interp",
        /// Machine code made of them at install, the interpreter where that leaves off.
        #[default]
        Jit = "jit",
        /// Both, and they are compared: slow.
        Check = "check",
    }

    /// How exactly a handler's loads and stores are kept to its memory.
    Checks {
        /// To the pages of it: free of cost. What lies around it in them is nobody else's.
        #[default]
        Page = "page",
        /// To the byte.
        Exact = "exact",
    }

    /// Who may see what a task leaves in its HPU's stack and packet windows.
    Isolation {
        /// Later tasks of the context.
        #[default]
        Context = "context",
        /// Tasks of the same message alone: all is cleared before another one's.
        Message = "message",
    }

    /// Where a message's tasks may run, which is what their atomics have to allow for.
    Placement {
        /// On its home cluster alone: no other cluster's L1 can be reached, and atomics on the own one are plain.
        Home = "home",
        /// On any cluster, at the same time too: all L1 can be reached, all atomics are locked.
        #[default]
        Any = "any",
    }

    /// Which machine's handlers an image's are: how they see a packet.
    Abi {
        /// spind's own: the frame, as it is on the wire.
        #[default]
        Wire = "wire",
        /// PsPIN's: from the IP header on, fields of the IPv4 and UDP headers in the HPU's byte order.
        Pspin = "pspin",
        /// FPsPIN's: the frame, as it is on the wire, and no more HPUs than that machine has.
        Fpspin = "fpspin",
    }

    /// Whose rules of messages contexts have that say nothing of it.
    Compat {
        /// spind's own: a message is named by its whole flow, and what else its context says.
        #[default]
        None = "none",
        /// FPsPIN's, for contexts with its handlers: 16 message queues, named by bits of the frame alone.
        Fpspin = "fpspin",
    }

    /// What becomes of packets of a context that has its share of the packet buffer full, while others have room.
    Full {
        /// They are dropped and counted.
        #[default]
        Drop = "drop",
        /// Nothing more is received until there is room. Others wait too: for no more of the time than its share, then packets are
        /// dropped. Of a context that is alone on its thread nothing is lost.
        Wait = "wait",
        /// From half the share on they are marked as having met congestion (ECN, RFC 3168), if their senders know that; then
        /// they are dropped.
        Mark = "mark",
        /// Their message is given up: what there is of it, and what is still to come.
        Kill = "kill",
    }

    /// Whose tasks run next when several contexts have some.
    Schedule {
        /// As many tasks of each.
        RoundRobin = "round-robin",
        /// Tasks in proportion to the contexts' weights.
        Weighted = "weighted",
        /// Time in proportion to the contexts' weights.
        #[default]
        Wlbvt = "wlbvt",
    }
}

/// The fixed head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// Bytes of JSON that follow.
    pub json: u32,
    /// Bytes of blob that follow the JSON.
    pub blob: u32,
}

/// Why a preamble was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreambleError {
    /// Not this protocol.
    Magic,
    /// Another version: the peer's.
    Version(u16),
    /// Longer than [`MAX_JSON`] or [`MAX_BLOB`].
    TooLong,
}

impl fmt::Display for PreambleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("the peer does not speak spind's control protocol"),
            Self::Version(theirs) => write!(f, "the peer speaks control protocol {theirs}, this is {VERSION}"),
            Self::TooLong => write!(f, "message too long (at most {MAX_JSON} bytes and {MAX_BLOB} of image)"),
        }
    }
}

impl core::error::Error for PreambleError {}

impl Preamble {
    /// Encoded length.
    pub const LEN: usize = 16;

    /// Little-endian bytes: magic, version, two zero bytes, JSON length, blob length.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.json.to_le_bytes());
        bytes[12..].copy_from_slice(&self.blob.to_le_bytes());
        bytes
    }

    /// Reads a preamble.
    ///
    /// # Errors
    /// See [`PreambleError`].
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self, PreambleError> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..4] != MAGIC {
            return Err(PreambleError::Magic);
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return Err(PreambleError::Version(version));
        }
        let preamble = Self { json: word(8), blob: word(12) };
        if preamble.json as usize > MAX_JSON || preamble.blob as usize > MAX_BLOB {
            return Err(PreambleError::TooLong);
        }
        Ok(preamble)
    }
}

/// What an application asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Install an execution context; the image is the blob.
    Install(Install),
    /// Remove a context.
    Remove {
        /// Its id.
        context: u32,
    },
    /// List contexts.
    List,
    /// All counters.
    Stats,
    /// What spind and its machine offer.
    Capabilities,
    /// Tell spind where the application mapped its host memory: handlers name it by these addresses.
    MapHost {
        /// The context's id.
        context: u32,
        /// Address of the region's first byte in the application.
        address: u64,
    },
    /// Share the descriptor of a context: see [`crate::events`].
    Events {
        /// The context's id.
        context: u32,
    },
    /// Share the host memory of a context with another process of its user.
    HostMemory {
        /// The context's id.
        context: u32,
    },
    /// Read NIC memory of a context that was installed over this connection: its image's memories, handler memory, scratchpads. The
    /// bytes are the reply's blob.
    ReadMemory {
        /// The context's id.
        context: u32,
        /// Address as handlers know it.
        address: u32,
        /// Bytes.
        len: u32,
    },
    /// Write the blob to such memory. Aligned doublewords are written as a whole, in order of their address.
    WriteMemory {
        /// The context's id.
        context: u32,
        /// Address as handlers know it.
        address: u32,
    },
    /// Have a context take other packets than before. Messages that are open go on.
    SetRules {
        /// The context's id.
        context: u32,
        /// As [`Install::rules`].
        rules: Vec<String>,
        /// As [`Install::eom`].
        eom: Option<String>,
    },
    /// On `--nic loopback`: the blob is a pcap whose frames arrive as if from the wire; the reply's blob is a pcap of
    /// what was sent.
    Replay,
}

/// A context to install.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Install {
    /// A name for people; the image's file name usually.
    pub name: String,
    /// Rules in the text form of the matcher; any of them matches.
    pub rules: Vec<String>,
    /// When a frame is its message's last, in the matcher's text form: `None` = `always` (each datagram is a message).
    pub eom: Option<String>,
    /// What names a message: `None` = the whole flow, else the key in the matcher's text form.
    pub key: Option<String>,
    /// Bytes of host memory to share, 0 for none.
    pub host_mem: u64,
    /// Bytes of handler memory beyond the image's own.
    pub handler_mem: u32,
    /// Bytes of scratchpad in each cluster's L1.
    pub scratchpad: u32,
    /// Bytes of each packet copied to L1: `None` = all.
    pub l1_bytes: Option<u32>,
    /// Instructions a handler may run, a send for about 1000 and a copy by its length: `None` = the daemon's default,
    /// which is not to count them.
    pub instruction_limit: Option<u64>,
    /// Microseconds of its core that a handler may take: `None` = the daemon's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog_us: Option<u64>,
    /// Microseconds that an open message may wait for its next packet before it is ended and its queue given to another, with what it takes to
    /// notice that: a tenth of a second, with `[sizes] queues` above 8192 as often as that goes into them. `None` = for ever, as long as
    /// queues are free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_timeout_us: Option<u64>,
    /// Microseconds that events may wait for others while there are packets, before the application is woken for all of them:
    /// `None` = it is woken after each batch of packets that had some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doorbell_us: Option<u64>,
    /// Which machine's handlers they are.
    #[serde(skip_serializing_if = "is_default")]
    pub abi: Abi,
    /// How exact memory checks are.
    #[serde(skip_serializing_if = "is_default")]
    pub checks: Checks,
    /// Who sees what tasks leave behind.
    #[serde(skip_serializing_if = "is_default")]
    pub isolation: Isolation,
    /// Where tasks may run.
    #[serde(skip_serializing_if = "is_default")]
    pub placement: Placement,
    /// Share of time and packet buffer, relative to other contexts': `None` = 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// What becomes of packets beyond its share of the packet buffer.
    #[serde(skip_serializing_if = "is_default")]
    pub full: Full,
    /// HPUs of each cluster that its tasks may hold at a time: `None` = 1. A task holds one while it waits, for memory to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpus: Option<u32>,
    /// What its handlers return decides what becomes of packets: see [`crate::verdict`].
    #[serde(skip_serializing_if = "is_default")]
    pub verdicts: bool,
    /// Id of a context of the same user whose place this one takes: messages that begin from then on are this one's, those that
    /// are open end with the handlers they began with. They get 10 s between packets, if not less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u32>,
    /// Stay after this connection closes.
    pub persistent: bool,
}

/// Says nothing of what a peer that does not know it would assume anyway.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What spind answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// The context is installed; its host memory's descriptor comes along when it has one.
    Installed {
        /// Id to name it by.
        context: u32,
        /// Bytes of host memory.
        host_mem: u64,
        /// Address by which handlers name it until [`Request::MapHost`] changes that.
        host_address: u64,
        /// Where its handlers and handler memory are.
        #[serde(default)]
        areas: Areas,
    },
    /// The context's descriptor; the file's descriptor comes along.
    Events {
        /// Bytes.
        len: u64,
    },
    /// Host memory, whose descriptor comes along.
    HostMemory {
        /// Bytes.
        len: u64,
        /// Address by which handlers name its first byte.
        address: u64,
    },
    /// The capture was replayed; what was sent is the blob.
    Replayed(Replayed),
    /// Done, nothing to say.
    Ok,
    /// The contexts.
    Contexts {
        /// In order of installation, which is the order of priority.
        contexts: Vec<ContextInfo>,
    },
    /// Counters of the engine, the NIC and each context.
    Stats(Stats),
    /// What there is to be had.
    Capabilities(Box<Capabilities>),
    /// Refused.
    Error {
        /// What was wrong, where, and what to do.
        message: String,
    },
}

/// What came of a capture that was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Replayed {
    /// Frames that arrived.
    pub arrived: u64,
    /// Those of them that no context had a rule for.
    pub unmatched: u64,
    /// Frames of the capture that were left out: they are longer than the NIC takes.
    pub too_long: u64,
    /// Frames left out that were shorter than an Ethernet header.
    #[serde(default)]
    pub too_short: u64,
    /// Frames that were sent.
    pub sent: u64,
}

/// Bytes in NIC memory; none of something that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// First one's address.
    pub address: u32,
    /// How many.
    pub size: u32,
}

/// Where in NIC memory the parts of a context are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Areas {
    /// Header, payload and completion handler.
    pub handlers: [Area; 3],
    /// Handler memory.
    pub handler_mem: Area,
}

/// One context as `list` and `stats` show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextInfo {
    /// Id.
    pub context: u32,
    /// Name given at install.
    pub name: String,
    /// User it belongs to.
    pub uid: u32,
    /// Rules, in text.
    pub rules: Vec<String>,
    /// End-of-message predicate, in text.
    pub eom: String,
    /// Message key, in text.
    pub key: String,
    /// Which handlers the image has: header, payload, completion.
    pub handlers: [bool; 3],
    /// Bytes of host memory.
    pub host_mem: u64,
    /// How its handlers are run.
    #[serde(default)]
    pub run: RunInfo,
    /// Non-zero counters by name.
    pub counters: Vec<(String, u64)>,
    /// The latest faults, oldest first.
    pub faults: Vec<FaultInfo>,
}

impl ContextInfo {
    /// Adds what another thread knows of the same context.
    pub fn merge(&mut self, other: Self) {
        crate::counters::add_named(&mut self.counters, other.counters);
        self.faults.extend(other.faults);
    }
}

/// How a context's handlers are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// What runs them: the interpreter for a context whose image could not be translated.
    pub engine: Engine,
    /// Which machine's handlers they are.
    pub abi: Abi,
    /// How exact memory checks are.
    pub checks: Checks,
    /// Who sees what tasks leave behind.
    pub isolation: Isolation,
    /// Where tasks may run.
    pub placement: Placement,
    /// Microseconds a handler may run.
    pub watchdog_us: u64,
    /// Instructions a handler may run, if they are counted.
    pub instruction_limit: Option<u64>,
    /// Microseconds that an open message may wait for its next packet, if not for ever.
    pub message_timeout_us: Option<u64>,
    /// Microseconds that events may wait for others before the application is woken.
    pub doorbell_us: Option<u64>,
    /// Share of time and packet buffer, relative to other contexts'.
    pub weight: u32,
    /// What becomes of packets beyond its share of the packet buffer.
    pub full: Full,
    /// HPUs of each cluster that its tasks may hold at a time.
    pub hpus: u32,
    /// Its handlers return verdicts.
    pub verdicts: bool,
}

/// A fault with the names that the image gives its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultInfo {
    /// What happened.
    pub fault: Fault,
    /// `header`, `payload` or `completion`.
    pub handler: String,
    /// Symbol and offset of the pc; the handler's symbol when the pc is in no function.
    pub symbol: String,
    /// Source line of the pc, when the image was built with `-g`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<SourceLine>,
    /// What else is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl FaultInfo {
    /// Symbol and source line, as far as they are known.
    #[must_use]
    pub fn place(&self) -> String {
        let Self { symbol, line, .. } = self;
        line.as_ref().map_or_else(|| symbol.clone(), |line| format!("{symbol} ({line})"))
    }
}

impl fmt::Display for FaultInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, handler, note, .. } = self;
        write!(f, "{handler} handler: {fault} in {}", self.place())?;
        note.iter().try_for_each(|note| write!(f, ": {note}"))
    }
}

/// A place in a handler's source; prints as `file.c:34`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLine {
    /// Name of the file without folders.
    pub file: String,
    /// Line number from 1.
    pub line: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// What an application can know before it chooses handlers and sizes: sPIN's NIC limits, and what its NIC guarantees.
/// Nothing of it changes while spind runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// spind's version.
    pub version: String,
    /// [`VERSION`] of the control protocol.
    pub protocol: u16,
    /// NIC in words: interface, mode, queues.
    pub nic: String,
    /// Clusters, HPUs and memories.
    pub machine: MachineInfo,
    /// Threads that share the clusters out between them.
    pub threads: u32,
    /// Bytes of the longest frame that handlers are given and may send, from the Ethernet header on, without FCS.
    pub max_frame: u32,
    /// Bytes of the longest packet behind an Ethernet header: the MTU.
    pub max_payload: u32,
    /// Limits on contexts.
    pub limits: LimitsInfo,
    /// What runs handlers.
    pub engine: String,
    /// How exact memory checks can be, best first; a context chooses.
    pub checks: Vec<String>,
    /// What isolation of messages there is to choose from.
    pub isolation: Vec<String>,
    /// Where tasks can be placed.
    pub placement: Vec<String>,
    /// Whose rules of messages contexts have that say nothing of it.
    pub compat: Compat,
    /// What holds for packets and handlers.
    pub guarantees: Guarantees,
}

/// Clusters, HPUs and memories of a machine, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineInfo {
    /// Clusters.
    pub clusters: u32,
    /// HPUs of each.
    pub hpus_per_cluster: u32,
    /// L1 of each cluster.
    pub l1: u32,
    /// Of that: most scratchpad a context can have.
    pub scratchpad: u32,
    /// L2 for an image's data.
    pub l2_data: u32,
    /// Handler memory of an image and a context.
    pub handler_mem: u32,
    /// L2 packet buffer.
    pub l2_packet: u32,
    /// Code and constants of an image.
    pub program: u32,
    /// Stack of a task.
    pub stack: u32,
}

/// What contexts may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsInfo {
    /// Contexts at a time, of all users.
    pub contexts: u64,
    /// Message queues: messages open at a time, of all contexts and threads.
    pub queues: u64,
    /// Packets that wait for their handlers at a time.
    pub hers: u64,
    /// Bytes of host memory of one context.
    pub host_mem: u64,
    /// Microseconds a handler may run.
    pub watchdog_us: u64,
    /// Instructions a handler may run, if they are counted for all.
    pub instruction_limit: Option<u64>,
    /// Bytes of an image's file.
    pub image: u64,
    /// Control connections of one user at a time.
    pub connections: u64,
}

/// What holds for packets and handlers (PsPIN paper §II: the network's guarantees decide which handlers are possible).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Guarantees {
    /// A message's header handler has ended before its payload handlers start, and these before its completion handler.
    pub header_first: bool,
    /// Payload handlers of a message start in the order in which its packets arrived at the NIC's queue. If not: those of contexts that
    /// are placed `home` or have verdicts do.
    pub in_order: bool,
    /// Lost packets are sent again.
    pub reliable: bool,
    /// Packets that no context's rules match go to the kernel as if spind were not there.
    pub unmatched_to_kernel: bool,
    /// A handler can pass its packet to the kernel.
    pub matched_to_kernel: bool,
    /// Ticks per second of the handlers' cycle counter; `None`: it counts instructions.
    pub clock_hz: Option<u64>,
}

/// All counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// NIC in words: interface, mode, queues.
    pub nic: String,
    /// Counters of the whole engine, zeros included.
    pub engine: Vec<(String, u64)>,
    /// The same by thread.
    #[serde(default)]
    pub threads: Vec<ThreadInfo>,
    /// Counters of the NIC backend: what the kernel passed and dropped.
    pub nic_counters: Vec<(String, u64)>,
    /// How long packets and handlers took: `total`, `queueing`, `handler`.
    #[serde(default)]
    pub latencies: Vec<LatencyInfo>,
    /// Each context.
    pub contexts: Vec<ContextInfo>,
}

/// One thread's part of the engine's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadInfo {
    /// First and last of its clusters.
    pub clusters: (u32, u32),
    /// Its counters, zeros included.
    pub counters: Vec<(String, u64)>,
}

/// Times of one kind, in nanoseconds, since the start; all threads together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyInfo {
    /// What took them: `total`, a packet from arrival to release; `queueing`, a task until its handler started; `handler`, a
    /// handler.
    pub name: String,
    /// How many were recorded: every packet of `total`, samples of the others.
    pub count: u64,
    /// All of them together.
    pub sum_ns: u64,
    /// Shortest.
    pub min_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Half took at most this; less than 1 % too high, as the other two.
    pub p50_ns: u64,
    /// 99 % took at most this.
    pub p99_ns: u64,
    /// 99.9 % took at most this.
    pub p999_ns: u64,
    /// How many took at most how long: ascending times, with all that took up to 1 % longer.
    pub ranges: Vec<(u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::{BadChoice, Checks, Isolation, Placement, Preamble, PreambleError, VERSION};

    #[test]
    fn preamble_round_trip() {
        let preamble = Preamble { json: 17, blob: 4096 };
        assert_eq!(Preamble::decode(&preamble.encode()), Ok(preamble));
    }

    #[test]
    fn choices_are_read_as_they_are_shown() {
        assert_eq!("exact".parse(), Ok(Checks::Exact));
        assert_eq!("message".parse(), Ok(Isolation::Message));
        for placement in [Placement::Home, Placement::Any] {
            assert_eq!(alloc::string::ToString::to_string(&placement).parse(), Ok(placement));
        }
        assert_eq!("near".parse::<Placement>(), Err(BadChoice(&["home", "any"])));
        assert_eq!(Checks::ALL, ["page", "exact"]);
    }

    #[test]
    fn preamble_refuses_strangers() {
        let good = Preamble { json: 1, blob: 0 }.encode();
        let mut bad = good;
        bad[0] = b'x';
        assert_eq!(Preamble::decode(&bad), Err(PreambleError::Magic));
        let mut old = good;
        old[4] = 0xff;
        assert_eq!(Preamble::decode(&old), Err(PreambleError::Version(VERSION | 0xff)));
        let huge = Preamble { json: 1, blob: u32::MAX }.encode();
        assert_eq!(Preamble::decode(&huge), Err(PreambleError::TooLong));
    }
}
