//! What a handler's return value decides, in contexts that ask for it: the return codes of sPIN (Hoefler et al., SC'17) in
//! one numbering for all three handlers. Handlers of PsPIN return nothing.

/// What a handler returned, in a0.
///
/// A header handler decides on the whole message, before any payload handler runs; a payload handler on its packet, and
/// with a drop on all that follows; a completion handler only on whether the message stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Verdict {
    /// Done: the packet was dealt with. Of a header handler: go on as usual.
    Success = 0,
    /// As if there were no handlers: the kernel gets the message, or the payload handler's packet, unchanged.
    Proceed = 1,
    /// Run the payload handlers.
    ProcessData = 2,
    /// The same, and the message stays open after its last packet.
    ProcessDataPending = 3,
    /// Discard the rest of the message; it counts as dropped bytes. Of a header handler that is all of it. No further handler
    /// runs, the completion handler neither.
    Drop = 4,
    /// The same, and the message stays open after its last packet.
    DropPending = 5,
    /// As [`Verdict::Success`], and the message stays open after its last packet.
    SuccessPending = 6,
}

/// What becomes of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// They are the handlers'.
    Process,
    /// They are the kernel's.
    Pass,
    /// They are discarded and counted.
    Discard,
}

impl Verdict {
    /// Every verdict, in the order of the codes.
    pub const ALL: [Self; 7] = [
        Self::Success,
        Self::Proceed,
        Self::ProcessData,
        Self::ProcessDataPending,
        Self::Drop,
        Self::DropPending,
        Self::SuccessPending,
    ];

    /// What a handler returns for it.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The verdict that a handler returned; `None` for a value that is none.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }

    /// What becomes of the packets it is about.
    #[must_use]
    pub const fn fate(self) -> Fate {
        match self {
            Self::Success | Self::ProcessData | Self::ProcessDataPending | Self::SuccessPending => Fate::Process,
            Self::Proceed => Fate::Pass,
            Self::Drop | Self::DropPending => Fate::Discard,
        }
    }

    /// Whether the message is to stay open after its next last packet: what arrives under its key later is still part of it, so
    /// that payload handlers run on it without a header handler, up to another last packet.
    #[must_use]
    pub const fn stays_open(self) -> bool {
        matches!(self, Self::ProcessDataPending | Self::DropPending | Self::SuccessPending)
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, Verdict};

    #[test]
    fn codes_are_read_as_they_are_written() {
        for verdict in Verdict::ALL {
            assert_eq!(Verdict::from_code(verdict.code()), Some(verdict));
        }
        for code in [7, 8, u32::MAX] {
            assert_eq!(Verdict::from_code(code), None);
        }
    }

    #[test]
    fn what_each_code_means() {
        let meanings = [0, 1, 2, 3, 4, 5, 6].map(|code| {
            let verdict = Verdict::from_code(code).expect("a verdict");
            (verdict.fate(), verdict.stays_open())
        });
        let expected = [
            (Fate::Process, false),
            (Fate::Pass, false),
            (Fate::Process, false),
            (Fate::Process, true),
            (Fate::Discard, false),
            (Fate::Discard, true),
            (Fate::Process, true),
        ];
        assert_eq!(meanings, expected);
    }
}
