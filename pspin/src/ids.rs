//! Value types that the modules of the core and other crates share.

use std::time::Duration;

use spin_frame::Frame;

use crate::mpq::Owned;

/// Index of a context in the engine, reused after removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub u32);

impl Slot {
    /// No context.
    pub const NOBODY: Self = Self(u32::MAX);
}

/// A handler function in its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handler {
    /// Address of the first instruction.
    pub address: u32,
    /// Size in bytes. 0 when the image does not have the handler.
    pub size: u32,
}

/// Arrival time of a packet: 48 bits in units of 64 ns. The clock wraps after 208 days; the watchdog bounds the time a packet
/// waits. With 6 bytes the type fits into the padding of [`Packet`], which does not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed(2))]
pub struct Timestamp {
    low: u32,
    high: u16,
}

impl Timestamp {
    const SHIFT: u32 = 6;
    const BITS: u32 = 48;

    /// Timestamp of `time`, measured from a fixed point.
    #[must_use]
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the clock wraps")]
    pub const fn at(time: Duration) -> Self {
        let units = (time.as_nanos() >> Self::SHIFT) as u64;
        Self { low: units as u32, high: (units >> 32) as u16 }
    }

    #[inline]
    const fn units(self) -> u64 {
        (self.high as u64) << 32 | self.low as u64
    }

    /// Time from this timestamp to `now`.
    #[must_use]
    #[inline]
    pub const fn before(self, now: Duration) -> Duration {
        let units = Self::at(now).units().wrapping_sub(self.units()) & ((1 << Self::BITS) - 1);
        Duration::from_nanos(units << Self::SHIFT)
    }
}

/// Reference to a message: its context, its home cluster and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRef {
    /// The context.
    pub slot: Slot,
    /// Home cluster: its handlers share the L1 of this cluster.
    pub home: u16,
    /// The flow of a packet in packet mode, which is a message of its own. `None`: handlers know the message by its queue.
    pub flow: Option<u8>,
    /// Sequence number among all messages.
    pub message: u64,
}

impl MessageRef {
    /// The home cluster.
    #[must_use]
    #[inline]
    pub const fn home(&self) -> u32 {
        self.home as u32
    }
}

/// A packet in the queue of its message.
#[derive(Debug)]
pub struct Packet {
    /// The frame.
    pub frame: Frame,
    /// Arrival time.
    pub arrived: Timestamp,
    /// Reason why the packet is dropped or passed on, by its handler's verdict. `None`: its frame returns to the NIC.
    pub drop_reason: Option<DropReason>,
    /// Whether the headers are in PsPIN's view: see [`ip_view`](crate::hpu::ip_view).
    pub in_pspin_view: bool,
}

impl Packet {
    /// A packet that has just arrived.
    #[inline]
    #[must_use]
    pub const fn new(frame: Frame, arrived: Timestamp) -> Self {
        Self { frame, arrived, drop_reason: None, in_pspin_view: false }
    }
}

/// Reason why packets of a message are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// There was no room for the message.
    NoRoom,
    /// A handler dropped it.
    Dropped,
    /// A handler passed it to the kernel.
    Passed,
}

impl Owned for MessageRef {
    #[inline]
    fn owner(&self) -> u32 {
        self.slot.0
    }
}

/// Time at which a batch arrived.
#[derive(Clone, Copy)]
pub struct BatchTime {
    /// In nanoseconds.
    pub time: u64,
    /// The time in the form that packets carry.
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
        assert_eq!(size_of::<super::MessageRef>(), 16);
    }
}
