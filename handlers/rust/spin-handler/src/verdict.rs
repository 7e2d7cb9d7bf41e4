//! Verdicts: what a handler's return value decides, in a context that asks for it (`spinctl install --verdicts`).

/// A header handler decides on the whole message; a payload handler on its packet, and with a drop on all that follow; a completion
/// handler only on whether the message stays open: what arrives under its key later is still part of it, and no header handler runs,
/// up to another last packet. The numbers are those of `spin_verdict.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// Dealt with; of a header handler: go on as usual.
    Success = 0,
    /// The kernel gets it unchanged, as if there were no handlers.
    Proceed = 1,
    /// Run the payload handlers.
    ProcessData = 2,
    /// The same, and the message stays open after its last packet.
    ProcessDataPending = 3,
    /// Discard the rest of the message; no further handler runs.
    Drop = 4,
    /// The same, and the message stays open.
    DropPending = 5,
    /// Dealt with, and the message stays open.
    SuccessPending = 6,
}

/// Whether a handler returns verdicts.
#[doc(hidden)]
pub const fn returned<O: Outcome>(_: fn(&mut crate::Task<'_>) -> O) -> u32 {
    O::VERDICTS
}

/// What a handler may return.
pub trait Outcome {
    /// 1 if it says anything, else 0.
    const VERDICTS: u32;

    /// The number that spind gets.
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
