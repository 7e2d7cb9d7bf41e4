//! Messages between spind and its hook process, over [`spin_shm::channel`].

use std::time::Duration;

use hpu_vm::bpf::layout::{Range, ReplySource};
use hpu_vm::bpf::{Layout, Options};
use serde::{Deserialize, Serialize};
use spin_abi::map::Machine;

/// A map of the hook process. Tokens are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MapToken(pub(super) u64);

/// Form of a program. The kernel's verifier accepts some programs in one form and not in another: see [`Options`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// [`Options::opaque`].
    pub opaque: bool,
    /// [`Options::forgetful`].
    pub forgetful: bool,
}

/// Facts about a program that the kernel has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFacts {
    /// Number of guest instructions, including copies of inlined functions.
    pub guest_instructions: usize,
    /// Number of eBPF instructions.
    pub instructions: usize,
    /// Number of instructions that the verifier processed.
    pub processed: Option<u32>,
    /// Its form.
    pub variant: Variant,
    /// How long the kernel took for this form.
    pub load_time: Duration,
}

/// A request of spind.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Make an array map with one value that can be mapped. The reply carries it.
    MakeMap {
        /// Its name, as tools show it.
        name: String,
        /// Size of the value in bytes.
        len: u32,
    },
    /// Use the map of AF_XDP sockets that comes with this.
    AddSockets,
    /// Close maps. Programs and mappings keep those that they use.
    FreeMaps {
        /// The maps.
        tokens: Vec<MapToken>,
    },
    /// Translate and load a handler of the image in the blob. The reply carries the program.
    Load(LoadMessage),
}

/// A handler to load.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LoadMessage {
    /// Its name, as tools show it.
    pub(super) name: String,
    pub(super) handler: HandlerKind,
    pub(super) layout: LayoutMessage,
    pub(super) options: OptionsMessage,
    /// Maps by [`MapIndex`](hpu_vm::bpf::insn::MapIndex).
    pub(super) maps: Vec<MapToken>,
}

/// Kind of a handler that can be loaded.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum HandlerKind {
    /// The payload handler.
    Payload,
}

/// [`Options`] without the program's [`Variant`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct OptionsMessage {
    copies_packet: bool,
    decides: bool,
    sockets: Option<u32>,
}

impl From<Options> for OptionsMessage {
    fn from(options: Options) -> Self {
        let Options { opaque: _, forgetful: _, copies_packet, decides, sockets } = options;
        Self { copies_packet, decides, sockets }
    }
}

impl OptionsMessage {
    /// The options of a program in this form.
    pub(super) const fn with(self, Variant { opaque, forgetful }: Variant) -> Options {
        let Self { copies_packet, decides, sockets } = self;
        Options { opaque, forgetful, copies_packet, decides, sockets }
    }
}

/// A [`Layout`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LayoutMessage {
    machine: Machine,
    hpu: (u32, u32),
    first_hpu: u32,
    first_flow: u32,
    processors: u32,
    ranges: Vec<RangeMessage>,
    host_queue: Option<u32>,
    own_task: bool,
    replies: Option<ReplyMessage>,
}

/// A [`ReplySource`].
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ReplyMessage {
    mac: [u8; 6],
    addresses: Vec<[u8; 4]>,
}

impl From<&Layout> for LayoutMessage {
    fn from(layout: &Layout) -> Self {
        let Layout { machine, hpu, first_hpu, first_flow, processors, ranges, host_queue, own_task, replies } = layout;
        Self {
            machine: *machine,
            hpu: *hpu,
            first_hpu: *first_hpu,
            first_flow: *first_flow,
            processors: *processors,
            ranges: ranges.iter().copied().map(RangeMessage::from).collect(),
            host_queue: *host_queue,
            own_task: *own_task,
            replies: replies.clone().map(|ReplySource { mac, addresses }| ReplyMessage { mac, addresses }),
        }
    }
}

impl From<LayoutMessage> for Layout {
    fn from(message: LayoutMessage) -> Self {
        let LayoutMessage { machine, hpu, first_hpu, first_flow, processors, ranges, host_queue, own_task, replies } =
            message;
        let ranges = ranges.into_iter().map(Range::from).collect();
        let replies = replies.map(|ReplyMessage { mac, addresses }| ReplySource { mac, addresses });
        Self { machine, hpu, first_hpu, first_flow, processors, ranges, host_queue, own_task, replies }
    }
}

/// A [`Range`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct RangeMessage {
    base: u32,
    len: u32,
    writable: bool,
    map: u32,
    offset: u32,
}

impl From<Range> for RangeMessage {
    fn from(Range { base, len, writable, map, offset }: Range) -> Self {
        Self { base, len, writable, map, offset }
    }
}

impl From<RangeMessage> for Range {
    fn from(RangeMessage { base, len, writable, map, offset }: RangeMessage) -> Self {
        Self { base, len, writable, map, offset }
    }
}

/// A reply of the hook process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// Done.
    Done,
    /// A map, whose descriptor may be attached.
    Map(MapToken),
    /// A loaded program, whose descriptor is attached.
    Loaded(ProgramFacts),
    /// The handler cannot run in the hook, for this reason.
    NotEligible(String),
    /// The kernel refused the program, for this reason.
    NotAccepted(String),
    /// The request cannot be carried out, for this reason.
    Refused(String),
}
