//! The event ring of an execution context, in memory shared with the application. It reports handlers ended by a fault, messages ended
//! early (PsPIN paper §III-B2 and §III-B3), and copies for which a handler requested an event.
//!
//! The event ring has one page for each cluster of the machine. A thread of the engine writes to the page of its first cluster. A page
//! begins with the total number of events written there, followed by a ring that holds the latest records. All words are little-endian.
//! The doorbell in the first page wakes the application: see [`DOORBELL`].

use serde::Serialize;

use crate::command::Direction;
use crate::fault::{Cause, Fault};

/// Size of a page, in bytes.
pub const PAGE: u64 = 4096;
/// Size of a record, in bytes.
pub const RECORD: usize = 32;
/// Number of records in a page. The count takes the place of the first record.
pub const RECORDS: u64 = PAGE / RECORD as u64 - 1;

/// Offset of the doorbell in the event ring. The first word counts the rings of the doorbell, and is a Linux futex on which the
/// application sleeps. The second word counts the sleepers. New events on any page ring the doorbell.
pub const DOORBELL: u64 = 8;

/// Kind of an event, with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum What {
    /// A fault ended a handler. The watchdog causes such a fault, too.
    Fault {
        /// Stage of the handler: 0 header, 1 payload, 2 completion.
        stage: u32,
        /// Cause, pc and address.
        fault: Fault,
    },
    /// The next packet of an open message did not arrive in time.
    TimedOut,
    /// An open message was ended because another message needed its queue.
    Evicted,
    /// A message was cancelled because the context's share of the packet buffer was full.
    Killed,
    /// A copy that requested an event is done ([`crate::command::Command::Dma`]).
    Copied {
        /// Direction of the copy.
        direction: Direction,
        /// Host address of the first byte.
        host: u64,
        /// Number of bytes.
        length: u32,
    },
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Queue of the message. Handlers know it as the flow id.
    pub flow: u32,
    /// Kind of the event.
    #[serde(flatten)]
    pub what: What,
}

impl Event {
    /// Offset in its page of the record of event `number`, counted from 0.
    #[must_use]
    pub const fn place(number: u64) -> u64 {
        (1 + number % RECORDS) * RECORD as u64
    }

    /// Encodes the record: number + 1 (8 bytes), kind, stage, cause, pc, address, flow. For copies: kind, bytes, 0, lower and upper half
    /// of the host address, flow.
    #[must_use]
    pub fn encode(self, number: u64) -> [u8; RECORD] {
        let words = match self.what {
            What::Fault { stage, fault } => [1, stage, fault.cause.code(), fault.pc, fault.address],
            What::TimedOut => [2, 0, 0, 0, 0],
            What::Evicted => [3, 0, 0, 0, 0],
            What::Killed => [4, 0, 0, 0, 0],
            What::Copied { direction, host, length } => {
                let kind = if direction == Direction::ToHost { 5 } else { 6 };
                [kind, length, 0, (host & 0xffff_ffff) as u32, (host >> 32) as u32]
            }
        };
        let mut record = [0; RECORD];
        record[..8].copy_from_slice(&number.wrapping_add(1).to_le_bytes());
        for (place, word) in record[8..].chunks_exact_mut(4).zip(words.into_iter().chain([self.flow])) {
            place.copy_from_slice(&u32::to_le_bytes(word));
        }
        record
    }

    /// Decodes the record of event `number`. `None` when the record is empty or holds another event.
    #[must_use]
    pub fn decode(record: &[u8; RECORD], number: u64) -> Option<Self> {
        let word = |index: usize| {
            let at = 8 + 4 * index;
            u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
        };
        if record[..8] != number.wrapping_add(1).to_le_bytes() {
            return None;
        }
        let what = match word(0) {
            1 => {
                let cause = Cause::ALL.into_iter().find(|cause| cause.code() == word(2))?;
                What::Fault { stage: word(1), fault: Fault { cause, pc: word(3), address: word(4) } }
            }
            2 => What::TimedOut,
            3 => What::Evicted,
            4 => What::Killed,
            kind @ (5 | 6) => What::Copied {
                direction: if kind == 5 { Direction::ToHost } else { Direction::FromHost },
                host: u64::from(word(4)) << 32 | u64::from(word(3)),
                length: word(1),
            },
            _ => return None,
        };
        Some(Self { flow: word(5), what })
    }
}

impl core::fmt::Display for Event {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.what {
            What::Fault { stage, fault } => {
                let name = ["header", "payload", "completion"].get(stage as usize).unwrap_or(&"unknown");
                write!(f, "flow {}: {name} handler: {fault}", self.flow)
            }
            What::TimedOut => write!(f, "flow {}: message timed out", self.flow),
            What::Evicted => write!(f, "flow {}: message ended, its queue was needed", self.flow),
            What::Killed => write!(f, "flow {}: message given up, the share of the packet buffer was full", self.flow),
            What::Copied { direction, host, length } => {
                let way = if direction == Direction::ToHost { "to" } else { "from" };
                write!(f, "flow {}: {length} bytes copied {way} host address {host:#x}", self.flow)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, RECORD, RECORDS, What};
    use crate::command::Direction;
    use crate::fault::{Cause, Fault};

    #[test]
    fn records_are_read_as_they_are_written() {
        let faults =
            Cause::ALL.map(|cause| What::Fault { stage: 2, fault: Fault { cause, pc: 0x1d00_0010, address: 7 } });
        let copied = [Direction::ToHost, Direction::FromHost].map(|direction| What::Copied {
            direction,
            host: 0x7000_0000_1234,
            length: 96,
        });
        for what in faults.into_iter().chain([What::TimedOut, What::Evicted, What::Killed]).chain(copied) {
            let event = Event { flow: 0x0102_0304, what };
            let record = event.encode(u64::from(u32::MAX) + 5);
            assert_eq!(Event::decode(&record, u64::from(u32::MAX) + 5), Some(event));
            assert_eq!(Event::decode(&record, 5), None);
        }
        assert_eq!(Event::decode(&[0; RECORD], 0), None);
    }

    #[test]
    fn places_follow_the_count_and_come_round() {
        assert_eq!((Event::place(0), Event::place(RECORDS - 1), Event::place(RECORDS)), (32, 4064, 32));
    }
}
