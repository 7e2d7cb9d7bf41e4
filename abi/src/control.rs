//! Messages between an application and spind, over spind's Unix stream socket.
//!
//! A message is a [`Preamble`] of 16 bytes, a JSON document and a binary blob. The blob of a request holds the handler image. A reply may
//! carry a file descriptor (host memory) as ancillary data. Every preamble carries the protocol version. A peer of another version is
//! refused with an error that names both versions.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::counter_values::Counters;
use crate::counters::Counter;
use crate::fault::Fault;
use crate::handler_names::HandlerNames;

/// Version of this protocol. It changes whenever an older peer would misread a message.
pub const VERSION: u16 = 1;
/// First four bytes of every message.
pub const MAGIC: [u8; 4] = *b"sPIN";
/// Maximum length of the JSON document, in bytes.
pub const MAX_JSON: usize = 16 << 20;
/// Maximum length of the blob, in bytes.
pub const MAX_BLOB: usize = 16 << 20;
/// Default path of spind's control socket.
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
                /// Words of all variants.
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

/// Word that names no variant. Holds the valid words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadChoice(pub &'static [&'static str]);

impl fmt::Display for BadChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected one of: {}", self.0.join(", "))
    }
}

impl core::error::Error for BadChoice {}

choices! {
    /// Execution engine for handlers.
    Engine {
        /// Interpreter.
        Interp = "interp",
        /// Machine code, translated at install. The interpreter continues where the translation stops.
        #[default]
        Jit = "jit",
        /// Both engines, with their results compared. Slow.
        Check = "check",
    }

    /// Granularity of the memory checks on a handler's loads and stores.
    Checks {
        /// Pages: free of cost. Bytes beside the handler's memory in its pages belong to no other context.
        #[default]
        Page = "page",
        /// Bytes.
        Exact = "exact",
    }

    /// Tasks that may see the data that an earlier task left in its HPU's stack and packet windows.
    Isolation {
        /// Later tasks of the same context.
        #[default]
        Context = "context",
        /// Tasks of the same message only: the windows are cleared before a task of another message.
        Message = "message",
    }

    /// Clusters on which a message's tasks may run. This decides how atomics are implemented.
    Placement {
        /// Home cluster only. Handlers cannot access another cluster's L1, and atomics on their own L1 are plain.
        Home = "home",
        /// All clusters, also at the same time. Handlers can access all L1, and all atomics are locked.
        #[default]
        Any = "any",
    }

    /// Where the handlers run.
    Tier {
        /// In the kernel's XDP hook if that is possible, otherwise in user space. [`ContextInfo::tier`] has the reason.
        Auto = "auto",
        /// In user space.
        #[default]
        User = "user",
        /// In the kernel's XDP hook. If that is not possible, the context is refused with the reason.
        Kernel = "kernel",
    }

    /// Machine that the handlers were written for. This decides how they see a packet.
    Abi {
        /// spind's own: the frame as it is on the wire.
        #[default]
        Wire = "wire",
        /// PsPIN: the packet from the IP header on, with fields of the IPv4 and UDP headers in the HPU's byte order.
        Pspin = "pspin",
        /// FPsPIN: the frame as it is on the wire, and no more HPUs than that machine has.
        Fpspin = "fpspin",
    }

    /// Default message rules, for contexts that specify none.
    Compat {
        /// spind's own: the whole flow is the message key.
        #[default]
        None = "none",
        /// FPsPIN's, for contexts with FPsPIN handlers: 16 message queues, selected by bits of the frame alone.
        Fpspin = "fpspin",
    }

    /// Policy for packets of a context whose share of the packet buffer is full while others have room.
    Full {
        /// Packets are dropped and counted.
        #[default]
        Drop = "drop",
        /// Reception stops until there is room, which stalls other contexts too. Once the stalls exceed the context's share of the time,
        /// its packets are dropped. A context that is alone on its thread loses nothing.
        Wait = "wait",
        /// Packets are marked as having met congestion (ECN, RFC 3168) from half the share on, if their senders support ECN. Beyond the
        /// share they are dropped.
        Mark = "mark",
        /// The message is cancelled: its queued packets and all later ones are dropped.
        Kill = "kill",
    }

    /// When a context is removed, unless an application removes it.
    Lifetime {
        /// When the connection that installed it closes.
        #[default]
        Connection = "connection",
        /// When spind ends.
        Daemon = "daemon",
        /// Never: spind installs it again at each start, with its id. Its memories then begin as at the first install.
        Persistent = "persistent",
    }

    /// What becomes of packets that arrive before their message's header, in contexts with a header rule.
    Early {
        /// They wait for it, up to 64 of a message, in half of the context's share of the packet buffer.
        #[default]
        Wait = "wait",
        /// They are dropped and counted.
        Drop = "drop",
    }

    /// Scheduling policy between contexts.
    Schedule {
        /// Equal numbers of tasks for all contexts.
        RoundRobin = "round-robin",
        /// Numbers of tasks in proportion to the contexts' weights.
        Weighted = "weighted",
        /// Execution time in proportion to the contexts' weights.
        #[default]
        Wlbvt = "wlbvt",
    }
}

/// Fixed head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// Length of the JSON document, in bytes.
    pub json: u32,
    /// Length of the blob behind the JSON document, in bytes.
    pub blob: u32,
}

/// Reason for refusing a preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreambleError {
    /// Wrong magic number: not this protocol.
    Magic,
    /// Version of the peer, which differs.
    Version(u16),
    /// JSON document longer than [`MAX_JSON`], or blob longer than [`MAX_BLOB`].
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
    /// Encoded length, in bytes.
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

    /// Decodes a preamble.
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

/// Request of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Install an execution context. The blob is the image.
    Install(Box<Install>),
    /// Remove a context.
    Remove {
        /// Id of the context.
        context: u32,
    },
    /// List contexts. An ordinary user sees only a part of other users' contexts: see [`ContextInfo::hidden`].
    List,
    /// Read the bills of users: the memory of their contexts and requests. Root sees all, others their own.
    Users,
    /// Read all counters. Contexts of other users are shown as by `List`.
    Stats,
    /// Read the capabilities of spind and its machine.
    Capabilities,
    /// Set the address at which the application mapped its host memory. Handlers use this address.
    MapHost {
        /// Id of the context.
        context: u32,
        /// Address of the region's first byte in the application.
        address: u64,
    },
    /// Share the event ring of a context: see [`crate::events`].
    Events {
        /// Id of the context.
        context: u32,
    },
    /// Share the host memory of a context with another process of the same user.
    HostMemory {
        /// Id of the context.
        context: u32,
    },
    /// Attach memory of the application to a context. spind replies [`Reply::SendMemory`]. The application then sends one byte with the
    /// descriptor of a memory file, and gets the final reply.
    AttachRegion {
        /// Id of the context.
        context: u32,
        /// Host address of the first byte: handlers use it in commands.
        address: u64,
        /// Size of the file, in bytes.
        len: u64,
    },
    /// Detach the region that begins at a host address from a context.
    DetachRegion {
        /// Id of the context.
        context: u32,
        /// Host address of the region's first byte.
        address: u64,
    },
    /// Read NIC memory of a context that was installed over this connection: its image's memories, handler memory, scratchpads. The blob
    /// of the reply holds the bytes.
    ReadMemory {
        /// Id of the context.
        context: u32,
        /// Guest address of the first byte.
        address: u32,
        /// Number of bytes.
        len: u32,
        /// The unit, among those of the context, from 0 on.
        #[serde(default, skip_serializing_if = "is_default")]
        unit: u32,
    },
    /// Write the blob to NIC memory, with the restrictions of `ReadMemory`. Aligned doublewords are written atomically, in ascending
    /// order of address.
    WriteMemory {
        /// Id of the context.
        context: u32,
        /// Guest address of the first byte.
        address: u32,
        /// The unit, among those of the context, from 0 on.
        #[serde(default, skip_serializing_if = "is_default")]
        unit: u32,
    },
    /// Replace the rules of a context. Open messages continue.
    SetRules {
        /// Id of the context.
        context: u32,
        /// Rules, as in [`Install::rules`].
        rules: Vec<String>,
        /// End-of-message predicate, as in [`Install::eom`].
        eom: Option<String>,
    },
    /// Replay a capture on `--nic loopback`. The blob is a pcap whose frames arrive as if from the wire. The blob of the reply is a pcap
    /// of the frames sent.
    Replay,
}

/// Parameters of a context to install.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Install {
    /// Name for display. Usually the file name of the image.
    pub name: String,
    /// Rules in the text form of the matcher. A frame matches if any of them holds.
    pub rules: Vec<String>,
    /// End-of-message predicate in the text form of the matcher. `None`: `always` (each datagram is a message).
    pub eom: Option<String>,
    /// Message key in the text form of the matcher. `None`: the whole flow.
    pub key: Option<String>,
    /// Rule for the packets that are headers of their messages, in the text form of the matcher. `None`: the packet of a message that
    /// arrives first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Packets that arrive before their header, with a rule for headers. They wait as long as the message timeout, or a second.
    #[serde(skip_serializing_if = "is_default")]
    pub early: Early,
    /// The image's handlers. `None`: those that the image declares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handlers: Option<HandlerNames>,
    /// Size of the shared host memory, in bytes. 0: none.
    pub host_mem: u64,
    /// Size of handler memory beyond the image's own, in bytes.
    pub handler_mem: u32,
    /// Size of the scratchpad in each cluster's L1, in bytes.
    pub scratchpad: u32,
    /// Number of bytes of each packet copied to L1. `None`: all.
    pub l1_bytes: Option<u32>,
    /// Instruction limit of a handler. A send counts as about 1000 instructions, a copy by its length. `None`: the daemon's default,
    /// which is not to count them.
    pub instruction_limit: Option<u64>,
    /// Time limit of a handler on its core, in microseconds. `None`: the daemon's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog_us: Option<u64>,
    /// Longest wait of an open message for its next packet, in microseconds. Afterwards the message is ended and its queue is free for
    /// another. Detection adds up to 0.1 s, and proportionally more with `[sizes] queues` above 8192. `None`: no limit, as long as queues
    /// are free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_timeout_us: Option<u64>,
    /// Longest delay of the doorbell while packets arrive, in microseconds: one wake-up of the application then covers several events.
    /// `None`: a wake-up after each batch of packets with events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doorbell_us: Option<u64>,
    /// Machine that the handlers were written for.
    #[serde(skip_serializing_if = "is_default")]
    pub abi: Abi,
    /// Granularity of memory checks.
    #[serde(skip_serializing_if = "is_default")]
    pub checks: Checks,
    /// Tasks that may see data left by earlier ones.
    #[serde(skip_serializing_if = "is_default")]
    pub isolation: Isolation,
    /// Clusters on which tasks may run.
    #[serde(skip_serializing_if = "is_default")]
    pub placement: Placement,
    /// Where the handlers run.
    #[serde(skip_serializing_if = "is_default")]
    pub tier: Tier,
    /// Share of the user's time and packet buffer, relative to the weights of the user's other contexts. `None`: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Policy for packets beyond the context's share of the packet buffer.
    #[serde(skip_serializing_if = "is_default")]
    pub full: Full,
    /// Maximum number of HPUs per cluster that the context's tasks may hold at a time. `None`: 1. A task that waits for memory to change
    /// holds its HPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpus: Option<u32>,
    /// Whether return values of handlers decide on packets: see [`crate::verdict`].
    #[serde(skip_serializing_if = "is_default")]
    pub verdicts: bool,
    /// Id of a context of the same user that this one replaces. New messages belong to this context. Open messages continue with the old
    /// handlers, with a message timeout of at most 10 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u32>,
    /// When the context is removed.
    #[serde(skip_serializing_if = "is_default")]
    pub lifetime: Lifetime,
    /// The unit that runs it, or the first of several. `None`: the one with fewest contexts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<u32>,
    /// Number of units that run it. `None`: one. Several need `abi = "wire"`: handlers of other ABIs know one unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<UnitCount>,
    /// Whether each unit has handler memory and image data of its own, which the application then reads unit by unit. If not, units share
    /// them, and handlers change them by atomics.
    #[serde(skip_serializing_if = "is_default")]
    pub handler_mem_per_unit: bool,
}

/// Number of units that run a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum UnitCount {
    /// This many, at least 1.
    Number(u32),
    /// All units.
    All(AllUnits),
}

/// The word for all units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllUnits {
    /// `all`.
    #[default]
    #[serde(rename = "all")]
    All,
}

impl UnitCount {
    /// All units.
    pub const ALL: Self = Self::All(AllUnits::All);
}

impl core::str::FromStr for UnitCount {
    type Err = BadUnitCount;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" {
            return Ok(Self::ALL);
        }
        text.parse().ok().filter(|&number| number > 0).map(Self::Number).ok_or_else(|| BadUnitCount(String::from(text)))
    }
}

impl fmt::Display for UnitCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::All(_) => f.write_str("all"),
        }
    }
}

/// Text that is not a number of units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUnitCount(String);

impl fmt::Display for BadUnitCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a number of units: give 1 or more, or all", self.0)
    }
}

impl core::error::Error for BadUnitCount {}

/// Omits a field whose value a peer assumes anyway when the field is absent.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Kind of memory on a [`Bill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BillKind {
    /// Shared memory of contexts, and of those that are gone while an application has it.
    HostMemory,
    /// NIC memory of contexts: stacks, packet windows, scratchpads, handler memory, and page tables of its mappings.
    ContextMemory,
    /// Handler images.
    Images,
    /// Machine code, in full to each user who has some.
    Translations,
    /// Payload of requests under way.
    Requests,
}

impl fmt::Display for BillKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostMemory => "host memory",
            Self::ContextMemory => "memory of a context",
            Self::Images => "an image",
            Self::Translations => "machine code",
            Self::Requests => "a request",
        })
    }
}

/// Bytes that a user's contexts and requests may take at most, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bill {
    /// [`BillKind::HostMemory`].
    pub host_memory: u64,
    /// [`BillKind::ContextMemory`].
    pub context_memory: u64,
    /// [`BillKind::Images`].
    pub images: u64,
    /// [`BillKind::Translations`].
    pub translations: u64,
    /// [`BillKind::Requests`].
    pub requests: u64,
}

impl Bill {
    /// The bytes of a kind.
    pub fn of(&mut self, kind: BillKind) -> &mut u64 {
        match kind {
            BillKind::HostMemory => &mut self.host_memory,
            BillKind::ContextMemory => &mut self.context_memory,
            BillKind::Images => &mut self.images,
            BillKind::Translations => &mut self.translations,
            BillKind::Requests => &mut self.requests,
        }
    }

    /// All bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { host_memory, context_memory, images, translations, requests } = self;
        host_memory + context_memory + images + translations + requests
    }
}

/// A user's bill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInfo {
    /// The user.
    pub uid: u32,
    /// What the user's contexts and requests take.
    pub bill: Bill,
    /// Limit of the user in bytes. `None`: none but that of all users.
    pub limit: Option<u64>,
}

/// The bills of users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Users {
    /// Bills of users, by uid: of all for root, else of the user who asks.
    pub users: Vec<UserInfo>,
    /// Limit of all users together in bytes. `None`: none.
    pub limit: Option<u64>,
    /// Bytes that spind itself took before it served users.
    pub own: u64,
}

/// Reply of spind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// Bills of users.
    Users(Users),
    /// Context installed. The descriptor of its host memory is attached, if it has any.
    Installed {
        /// Id of the context.
        context: u32,
        /// Size of host memory, in bytes.
        host_mem: u64,
        /// Address that handlers use for host memory until [`Request::MapHost`] changes it.
        host_address: u64,
        /// Locations of its handlers and handler memory.
        #[serde(default)]
        areas: Areas,
        /// What the user should know: rules that never hold, handlers that are interpreted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// Event ring of the context. Its file descriptor is attached.
    Events {
        /// Size in bytes.
        len: u64,
    },
    /// Host memory. Its file descriptor is attached.
    HostMemory {
        /// Size in bytes.
        len: u64,
        /// Address that handlers use for its first byte.
        address: u64,
    },
    /// Memory can be received: send one byte with its descriptor.
    SendMemory,
    /// Capture replayed. The blob holds the frames sent.
    Replayed(Replayed),
    /// Success, without further data.
    Ok,
    /// The contexts.
    Contexts {
        /// Contexts in order of installation, which is the order of priority.
        contexts: Vec<ContextInfo>,
    },
    /// Counters of the engine, the NIC and each context.
    Stats(Stats),
    /// Capabilities of spind and its machine.
    Capabilities(Box<Capabilities>),
    /// Request refused.
    Error {
        /// Cause, location and remedy.
        message: String,
    },
}

/// Result of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Replayed {
    /// Number of frames that arrived.
    pub arrived: u64,
    /// Number of arrived frames that no context had a rule for.
    pub unmatched: u64,
    /// Number of frames skipped because they are longer than the NIC accepts.
    pub too_long: u64,
    /// Number of frames skipped because they are shorter than an Ethernet header.
    #[serde(default)]
    pub too_short: u64,
    /// Number of frames sent.
    pub sent: u64,
}

/// Range of NIC memory. Empty when the part does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// First address.
    pub address: u32,
    /// Size in bytes.
    pub size: u32,
}

/// Locations of a context's parts in NIC memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Areas {
    /// Header, payload and completion handler.
    pub handlers: [Area; 3],
    /// Handler memory.
    pub handler_mem: Area,
}

/// Where a context's handlers run, if [`Tier::Auto`] or [`Tier::Kernel`] was requested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierInfo {
    /// Whether they run in the kernel's XDP hook.
    pub kernel: bool,
    /// Why they run in user space. Empty if they do not.
    pub reason: String,
}

/// One context, as shown by `list` and `stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextInfo {
    /// Id of the context.
    pub context: u32,
    /// Whether the context belongs to the user who asked. Names identify contexts of one user only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub own: bool,
    /// Whether the context belongs to another user, and an ordinary user asked. Then `context`, `uid`, the weight in `run`, and the
    /// counters of [`PRESSURE`] are as for the owner. All other fields are empty.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hidden: bool,
    /// Name given at install.
    pub name: String,
    /// User id of the owner.
    pub uid: u32,
    /// Rules, as text.
    pub rules: Vec<String>,
    /// End-of-message predicate, as text.
    pub eom: String,
    /// Message key, as text.
    pub key: String,
    /// Rule for headers, as text, and what becomes of packets that arrive before them. `None`: the first packet of a message is its header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<(String, Early)>,
    /// Presence of each handler in the image: header, payload, completion.
    pub handlers: [bool; 3],
    /// Size of host memory, in bytes.
    pub host_mem: u64,
    /// When it is removed.
    #[serde(default)]
    pub lifetime: Lifetime,
    /// First and last unit that run it.
    #[serde(default)]
    pub units: (u32, u32),
    /// Execution parameters of its handlers.
    #[serde(default)]
    pub run: RunInfo,
    /// Why its handlers are interpreted. `None`: they are translated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreted: Option<String>,
    /// Where its handlers run. `None`: user space was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierInfo>,
    /// Non-zero counters by name.
    pub counters: Counters,
    /// In [`Reply::Stats`], if it ran: its latencies, by the names of [`Stats::latencies`], without [`LatencyInfo::ranges`]. Percentiles
    /// are less than an eighth too high.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<LatencyInfo>,
    /// Latest faults, oldest first.
    pub faults: Vec<FaultInfo>,
}

/// Counters of a context that all users may read: how much the context presses on buffers and queues that all share. No other counter is
/// among them, since most rise with each matched packet: who sends packets would learn from them whose rules match.
pub const PRESSURE: [Counter; 6] = [
    Counter::DropShare,
    Counter::DropKilled,
    Counter::DropNoMpq,
    Counter::MessagesEvicted,
    Counter::MessagesKilled,
    Counter::EcnMarked,
];

impl ContextInfo {
    /// The description for another user, who is not root: see [`ContextInfo::hidden`].
    #[must_use]
    pub fn hide(&self) -> Self {
        let is_shown = |name: &str| PRESSURE.iter().any(|counter| counter.name() == name);
        Self {
            context: self.context,
            hidden: true,
            uid: self.uid,
            run: RunInfo { weight: self.run.weight, ..RunInfo::default() },
            counters: self.counters.iter().filter(|(name, _)| is_shown(name)).collect(),
            ..Self::default()
        }
    }

    /// Whether the user who asked may read a counter of this context. Those that are not listed are then 0.
    #[must_use]
    pub fn shows(&self, counter: Counter) -> bool {
        !self.hidden || PRESSURE.contains(&counter)
    }
}

/// Execution parameters of a context's handlers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// Execution engine. The interpreter for an image that could not be translated.
    pub engine: Engine,
    /// Machine that the handlers were written for.
    pub abi: Abi,
    /// Granularity of memory checks.
    pub checks: Checks,
    /// Tasks that may see data left by earlier ones.
    pub isolation: Isolation,
    /// Clusters on which tasks may run.
    pub placement: Placement,
    /// Time limit of a handler, in microseconds.
    pub watchdog_us: u64,
    /// Instruction limit of a handler, if instructions are counted.
    pub instruction_limit: Option<u64>,
    /// Longest wait of an open message for its next packet, in microseconds. `None`: no limit.
    pub message_timeout_us: Option<u64>,
    /// Longest delay of the doorbell, in microseconds.
    pub doorbell_us: Option<u64>,
    /// Share of the user's time and packet buffer, relative to the weights of the user's other contexts.
    pub weight: u32,
    /// Policy for packets beyond the context's share of the packet buffer.
    pub full: Full,
    /// Maximum number of HPUs per cluster that its tasks may hold at a time.
    pub hpus: u32,
    /// Whether its handlers return verdicts.
    pub verdicts: bool,
}

/// Fault, with the image's symbols for its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultInfo {
    /// The fault itself.
    pub fault: Fault,
    /// The unit that it happened in.
    #[serde(default)]
    pub unit: u32,
    /// `header`, `payload` or `completion`.
    pub handler: String,
    /// Symbol and offset of the pc. The handler's symbol when the pc lies in no function.
    pub symbol: String,
    /// Source line of the pc, if the image was built with `-g`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<SourceLine>,
    /// The handler's own line into which [`FaultInfo::line`] was inlined, if that is a line of an SDK header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inlined_at: Option<SourceLine>,
    /// Further information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl FaultInfo {
    /// Symbol and source lines, as far as known: `payload_handler+0x10 (spin_bytes.h:26, inlined at ping.c:12)`.
    #[must_use]
    pub fn place(&self) -> String {
        let Self { symbol, line, inlined_at, .. } = self;
        match (line, inlined_at) {
            (Some(line), Some(own)) => format!("{symbol} ({line}, inlined at {own})"),
            (Some(line), None) => format!("{symbol} ({line})"),
            (None, _) => symbol.clone(),
        }
    }
}

impl fmt::Display for FaultInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, handler, note, .. } = self;
        write!(f, "{handler} handler: {fault} in {}", self.place())?;
        note.iter().try_for_each(|note| write!(f, ": {note}"))
    }
}

/// Position in a handler's source, printed as `file.c:34`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLine {
    /// File name without folders.
    pub file: String,
    /// Line number, from 1.
    pub line: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Capabilities that an application can read before it chooses handlers and sizes: sPIN's NIC limits, and the guarantees of the NIC. They
/// are constant while spind runs, but for limits that a reload of its configuration changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Version of spind.
    pub version: String,
    /// [`VERSION`] of the control protocol.
    pub protocol: u16,
    /// Description of the NIC: interface, mode, queues.
    pub nic: String,
    /// Clusters, HPUs and memories.
    pub machine: MachineInfo,
    /// Number of threads among which the units' clusters are divided.
    pub threads: u32,
    /// Number of units. Each has the machine's clusters.
    pub units: u32,
    /// Longest frame that handlers receive and may send, in bytes from the Ethernet header on, without FCS.
    pub max_frame: u32,
    /// MTU: longest packet behind an Ethernet header, in bytes.
    pub max_payload: u32,
    /// Limits for contexts.
    pub limits: LimitsInfo,
    /// Execution engine for handlers.
    pub engine: String,
    /// Available granularities of memory checks, the best first. Each context chooses one.
    pub checks: Vec<String>,
    /// Available isolation of messages.
    pub isolation: Vec<String>,
    /// Available placements of tasks.
    pub placement: Vec<String>,
    /// Default message rules, for contexts that specify none.
    pub compat: Compat,
    /// Guarantees for packets and handlers.
    pub guarantees: Guarantees,
}

/// Clusters, HPUs and memories of a machine. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineInfo {
    /// Number of clusters of each unit.
    pub clusters: u32,
    /// Number of HPUs in each cluster.
    pub hpus_per_cluster: u32,
    /// Size of each cluster's L1.
    pub l1: u32,
    /// Largest scratchpad of a context. Part of L1.
    pub scratchpad: u32,
    /// Size of L2 for an image's data.
    pub l2_data: u32,
    /// Size of handler memory, for image and context together.
    pub handler_mem: u32,
    /// Size of the L2 packet buffer.
    pub l2_packet: u32,
    /// Size of program memory: code and constants of an image.
    pub program: u32,
    /// Stack size of a task.
    pub stack: u32,
}

/// Limits for contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsInfo {
    /// Maximum number of contexts of all users together.
    pub contexts: u64,
    /// Number of message queues. Bounds the open messages of all contexts and threads together.
    pub queues: u64,
    /// Maximum number of packets that wait for their handlers.
    pub hers: u64,
    /// Maximum host memory of one context, in bytes.
    pub host_mem: u64,
    /// Time limit of a handler, in microseconds.
    pub watchdog_us: u64,
    /// Instruction limit of a handler, if instructions are counted for all contexts.
    pub instruction_limit: Option<u64>,
    /// Maximum size of an image file, in bytes.
    pub image: u64,
    /// Maximum number of open control connections of one user.
    pub connections: u64,
}

/// Guarantees for packets and handlers (PsPIN paper §II: the network's guarantees decide which handlers are possible).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Guarantees {
    /// A message's header handler ends before its payload handlers start. These end before its completion handler starts. The header is
    /// the first packet to arrive, or what the context's rule says.
    pub header_first: bool,
    /// The NIC delivers the packets of a message in the order in which they were sent: a capture, and memory. A network may not: there, the
    /// first packet to arrive need not be the header, unless the context has a rule for headers.
    #[serde(default)]
    pub in_order_delivery: bool,
    /// Payload handlers of a message start in the order in which its packets arrived at the NIC's queue. If false, this holds only for
    /// contexts that are placed `home` or have verdicts.
    pub in_order: bool,
    /// Lost packets are retransmitted.
    pub reliable: bool,
    /// Packets that match no context's rules go to the kernel, as without spind.
    pub unmatched_to_kernel: bool,
    /// A handler can pass its packet to the kernel.
    pub matched_to_kernel: bool,
    /// Frequency of the handlers' cycle counter, in Hz. `None`: the counter counts instructions.
    pub clock_hz: Option<u64>,
}

/// Statistics of spind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Description of the NIC: interface, mode, queues.
    pub nic: String,
    /// Counters of the whole engine, zeros included.
    pub engine: Counters,
    /// Counters of the engine by thread.
    #[serde(default)]
    pub threads: Vec<ThreadInfo>,
    /// Counters of the NIC backend, including frames that the kernel passed and dropped.
    pub nic_counters: Counters,
    /// Latencies of packets and handlers: `total`, `queueing`, `handler`.
    #[serde(default)]
    pub latencies: Vec<LatencyInfo>,
    /// Counters of each context.
    pub contexts: Vec<ContextInfo>,
}

/// Counters of one engine thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadInfo {
    /// The thread's unit.
    pub unit: u32,
    /// First and last cluster of the thread, in its unit.
    pub clusters: (u32, u32),
    /// The core that it runs on, if it has one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// NUMA node of that core.
    pub node: u32,
    /// Counters of the thread, zeros included.
    pub counters: Counters,
}

/// Distribution of a latency since the start, over all threads, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyInfo {
    /// Measured interval. `total`: a packet from arrival to release. `queueing`: a task until its handler starts. `handler`: one run of a
    /// handler.
    pub name: String,
    /// Number of samples. `total` covers every packet, the others a sample.
    pub count: u64,
    /// Sum of all samples.
    pub sum_ns: u64,
    /// Minimum.
    pub min_ns: u64,
    /// Maximum.
    pub max_ns: u64,
    /// Median. Like the other percentiles it is less than 1 % too high.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Histogram: ascending upper bounds, and the number of samples up to each bound. A bound is less than 1 % too high.
    #[serde(skip_serializing_if = "Vec::is_empty")]
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
