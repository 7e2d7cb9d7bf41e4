//! Verdicts: return values of handlers in a context installed with `spinctl install --verdicts`.

/// A handler's decision. A header handler decides on the whole message. A payload handler decides on its packet; a drop
/// applies to all following packets too. A completion handler only decides whether the message stays open. Later
/// packets with the key of an open message belong to it, without another header handler, up to the next last packet.
/// The numbers are those of `spin_verdict.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// The packet is processed; from a header handler: continue as usual.
    Success = 0,
    /// The kernel gets the packet, with what handlers wrote to it in L2.
    Pass = 1,
    /// Run the payload handlers.
    ProcessData = 2,
    /// Run the payload handlers, and keep the message open after its last packet.
    ProcessDataPending = 3,
    /// Discard the rest of the message; no further handler runs.
    Drop = 4,
    /// Discard the rest of the message and run no further handler, but keep the message open.
    DropPending = 5,
    /// The packet is processed, and the message stays open.
    SuccessPending = 6,
}

impl Verdict {
    /// Former name of [`Verdict::Pass`]. sPIN's return code PROCEED leaves the packet as it arrived.
    #[deprecated(note = "use Verdict::Pass")]
    #[allow(non_upper_case_globals)]
    pub const Proceed: Self = Self::Pass;
}

/// Returns whether a handler returns verdicts: 1 or 0.
#[doc(hidden)]
pub const fn returned<O: Outcome>(_: fn(&mut crate::Task<'_>) -> O) -> u32 {
    O::VERDICTS
}

/// A return type of handlers.
pub trait Outcome {
    /// 1 if the type carries a verdict, else 0.
    const VERDICTS: u32;

    /// Returns the number passed to spind.
    fn code(self) -> u32;
}

impl Outcome for () {
    const VERDICTS: u32 = 0;

    fn code(self) -> u32 {
        Verdict::Success.code()
    }
}

impl Outcome for Verdict {
    const VERDICTS: u32 = 1;

    fn code(self) -> u32 {
        self as u32
    }
}
