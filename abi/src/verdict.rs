//! Verdicts: return values of handlers that decide on packets, in contexts with verdicts. They are the return codes of sPIN (Hoefler et
//! al., SC'17), in one numbering for all three handlers, but for [`Verdict::Pass`]: sPIN's PROCEED leaves the packet as it arrived.
//! Handlers of PsPIN return nothing.

/// Return value of a handler, in a0.
///
/// The verdict of a header handler applies to the whole message, before any payload handler runs. The verdict of a payload handler
/// applies to its packet, a drop also to all later ones. The verdict of a completion handler decides only whether the message stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Verdict {
    /// The packet is done. From a header handler: continue normally.
    Success = 0,
    /// The kernel gets the message, or the payload handler's packet, with what handlers wrote to it in L2.
    Pass = 1,
    /// Run the payload handlers.
    ProcessData = 2,
    /// As [`Verdict::ProcessData`], and the message stays open after its last packet.
    ProcessDataPending = 3,
    /// Discard the rest of the message, or all of it if a header handler returns this. Its bytes count as dropped. No further handler
    /// runs, not even the completion handler.
    Drop = 4,
    /// As [`Verdict::Drop`], and the message stays open after its last packet.
    DropPending = 5,
    /// As [`Verdict::Success`], and the message stays open after its last packet.
    SuccessPending = 6,
}

/// Fate of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Packets go to the handlers.
    Process,
    /// Packets go to the kernel.
    Pass,
    /// Packets are discarded and counted.
    Discard,
}

impl Verdict {
    /// All verdicts, in the order of their codes.
    pub const ALL: [Self; 7] = [
        Self::Success,
        Self::Pass,
        Self::ProcessData,
        Self::ProcessDataPending,
        Self::Drop,
        Self::DropPending,
        Self::SuccessPending,
    ];

    /// Return value of the verdict.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Verdict of a return value. `None` for an invalid value.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }

    /// Fate of the packets that the verdict applies to.
    #[must_use]
    pub const fn fate(self) -> Fate {
        match self {
            Self::Success | Self::ProcessData | Self::ProcessDataPending | Self::SuccessPending => Fate::Process,
            Self::Pass => Fate::Pass,
            Self::Drop | Self::DropPending => Fate::Discard,
        }
    }

    /// Whether the message stays open after its next last packet. Later packets with its key then still belong to it: payload handlers
    /// run on them without a header handler, up to the next last packet.
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
