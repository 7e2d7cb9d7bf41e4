//! An execution context's descriptor in host memory: what its application is told of handlers that were ended, messages that were
//! (PsPIN paper §III-B2 and §III-B3), and copies that a handler wanted it to be told of.
//!
//! The descriptor has a page for each of the machine's clusters; a thread of the engine writes to that of its first cluster. A page
//! begins with the number of events that were ever written there, and holds the latest of them in a ring of records. All
//! words are little-endian. The application is woken by a doorbell in the first page: see [`DOORBELL`].

use crate::command::Direction;
use crate::fault::{Cause, Fault};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Bytes of a record.
pub const RECORD: usize = 32;
/// Records of a page; the first place is taken by the count.
pub const RECORDS: u64 = PAGE / RECORD as u64 - 1;

/// Offset in the descriptor of its doorbell: a word that counts how often it was rung, and one that counts who sleeps on the first
/// as on a futex of Linux. It is rung when there are new events, on whichever page.
pub const DOORBELL: u64 = 8;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A handler was ended by a fault; the watchdog's is one.
    Fault {
        /// Which handler: 0 header, 1 payload, 2 completion.
        stage: u32,
        /// Cause, pc and address.
        fault: Fault,
    },
    /// The next packet of an open message did not come in time.
    TimedOut,
    /// An open message was ended because another one needed its queue.
    Evicted,
    /// A message was given up because the context's share of the packet buffer was full.
    Killed,
    /// A copy is done that was to be told of ([`crate::command::Command::Dma`]).
    Copied {
        /// Which way.
        direction: Direction,
        /// Host address of its first byte.
        host: u64,
        /// Bytes.
        length: u32,
    },
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Queue of the message, which its handlers know as the flow id.
    pub flow: u32,
    /// What happened.
    pub what: What,
}

impl Event {
    /// Where the record of the event with a number, from 0, begins in its page.
    #[must_use]
    pub const fn place(number: u64) -> u64 {
        (1 + number % RECORDS) * RECORD as u64
    }

    /// The record: number + 1 (8 bytes), kind, stage, cause, pc, address, flow. Of copies: kind, bytes, 0, lower and upper half of
    /// the host address, flow.
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

    /// Reads the record of the event with a number; `None` when it is another one's, or none.
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
