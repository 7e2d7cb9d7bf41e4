//! Value types that the modules of the core and other crates share.

use std::time::Duration;

use spin_frame::Frame;

use crate::mpq::Owned;

/// Place of a context in the engine, reused after removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub u32);

impl Slot {
    /// No context's.
    pub const NOBODY: Self = Self(u32::MAX);
}

/// A handler function in its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handler {
    /// Its first instruction.
    pub address: u32,
    /// Its bytes, 0 when the image does not tell.
    pub size: u32,
}

/// A moment in units of 64 ns, on a clock that comes round after 208 days: packets wait for as long as handlers do, which is for the
/// watchdog to bound. It takes no more room in a packet than there is beside what else is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed(2))]
pub struct Timestamp {
    low: u32,
    high: u16,
}

impl Timestamp {
    const SHIFT: u32 = 6;
    const BITS: u32 = 48;

    /// The moment `time` after some fixed one.
    #[must_use]
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "comes round")]
    pub const fn at(time: Duration) -> Self {
        let units = (time.as_nanos() >> Self::SHIFT) as u64;
        Self { low: units as u32, high: (units >> 32) as u16 }
    }

    const fn units(self) -> u64 {
        (self.high as u64) << 32 | self.low as u64
    }

    /// How long before `now` it was.
    #[must_use]
    pub const fn before(self, now: Duration) -> Duration {
        let units = Self::at(now).units().wrapping_sub(self.units()) & ((1 << Self::BITS) - 1);
        Duration::from_nanos(units << Self::SHIFT)
    }
}

/// What a message is bound to from its first packet to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRef {
    /// Its context.
    pub slot: Slot,
    /// The cluster whose L1 its handlers share.
    pub home: u32,
    /// Its number among all messages.
    pub message: u64,
}

/// A frame that is queued with its message.
#[derive(Debug)]
pub struct Packet {
    /// The frame.
    pub frame: Frame,
    /// When it arrived.
    pub arrived: Timestamp,
    /// Where it goes by its handler's verdict, if not back to the NIC.
    pub drop_reason: Option<DropReason>,
    /// Its headers are as PsPIN's handlers have them.
    pub in_pspin_view: bool,
}

impl Packet {
    /// One of which nothing is known yet.
    #[inline]
    #[must_use]
    pub const fn new(frame: Frame, arrived: Timestamp) -> Self {
        Self { frame, arrived, drop_reason: None, in_pspin_view: false }
    }
}

/// Where the packets of a message go that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// There was no room for it.
    NoRoom,
    /// A handler did not want it.
    Dropped,
    /// A handler left it to the kernel.
    Passed,
}

impl Owned for MessageRef {
    fn owner(&self) -> u32 {
        self.slot.0
    }
}

/// When a batch arrived.
#[derive(Clone, Copy)]
pub struct BatchTime {
    /// In nanoseconds.
    pub time: u64,
    /// As packets carry it.
    pub timestamp: Timestamp,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Packet;
    use super::Timestamp;

    #[test]
    fn tells_times_across_the_end_of_its_clock() {
        for start in [0, 1 << 38, (1 << 38) - 64, (1 << 54) - 64, u64::MAX / 2] {
            let start = Duration::from_nanos(start & !63);
            for passed in [0, 64, 6400, 60_000_000_000, 3_600_000_000_000].map(Duration::from_nanos) {
                assert_eq!(Timestamp::at(start).before(start + passed), passed);
            }
        }
    }

    #[test]
    fn a_packet_is_no_larger_for_it() {
        assert_eq!(size_of::<Packet>(), size_of::<spin_frame::Frame>() + 8);
    }
}
