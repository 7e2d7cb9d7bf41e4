//! Options of a translation. The kernel's verifier accepts some programs in one form and not in another.

use super::insn::MapIndex;

/// How the packet in L1 is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L1Packet {
    /// The packet in L1 is the frame itself, which handlers read there only before they write to L2.
    InPlace,
    /// A copy in the slot.
    Copied,
}

/// Options of a translation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether the verifier knows no constants that are in registers. It then finds sooner that two ways to a point are
    /// alike.
    pub opaque: bool,
    /// Whether the verifier knows nothing of guest registers where a loop begins again. It then finds all iterations alike.
    pub forgetful: bool,
    /// Whether the packet in L1 is always a copy.
    pub copies_packet: bool,
    /// Whether a0 of a handler that returns decides on the packet: a [`Verdict`](spin_abi::verdict::Verdict).
    pub decides: bool,
    /// Map of AF_XDP sockets by queue, for packets that go to user space; without it they go to the kernel.
    pub sockets: Option<MapIndex>,
}
