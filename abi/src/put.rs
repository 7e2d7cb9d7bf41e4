//! Wire format of RDMA puts. PsPIN leaves the format to the NIC; this one is spind's.
//!
//! A packet has a header of [`HEADER`] bytes and at most [`MTU`] − [`HEADER`] bytes of the put. All numbers are
//! big-endian.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 6 | destination: `02:50` and the number of the node |
//! | 6 | 6 | source: `02:50:00:00:00:00`, this node |
//! | 12 | 2 | [`ETHERTYPE`] |
//! | 14 | 2 | 1 in the put's last packet, else 0 |
//! | 16 | 4 | queue pair |
//! | 20 | 4 | handle of the command, equal in all packets of a put |
//! | 24 | 4 | offset in the put of the packet's first byte |
//! | 28 | 4 | length of the put in bytes |

use core::iter;
use core::ops::Range;

/// Maximum length of a packet, in bytes.
pub const MTU: u32 = 1500;
/// Length of the packet header, in bytes.
pub const HEADER: u32 = 32;
/// EtherType for experiments within a network (IEEE 802, local experimental 1).
pub const ETHERTYPE: u16 = 0x88b5;

/// An RDMA put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// Number of the destination node.
    pub destination: u32,
    /// Queue pair at the destination.
    pub queue_pair: u32,
    /// Handle of the command.
    pub handle: u32,
    /// Length in bytes.
    pub length: u32,
}

impl Put {
    /// Number of packets.
    #[must_use]
    pub const fn packets(&self) -> u32 {
        self.length.div_ceil(MTU - HEADER)
    }

    /// Length of the longest packet, in bytes.
    #[must_use]
    pub const fn longest(&self) -> u32 {
        if self.length < MTU - HEADER { self.length + HEADER } else { MTU }
    }

    /// Splits the put into packets: the header of each, and the range of the put's bytes that follows it.
    pub fn split(self) -> impl Iterator<Item = ([u8; HEADER as usize], Range<u32>)> {
        let first = (self.length > 0).then_some(0);
        let starts = iter::successors(first, move |&start: &u32| {
            start.checked_add(MTU - HEADER).filter(|&next| next < self.length)
        });
        starts.map(move |start| {
            let bytes = start..start.saturating_add(MTU - HEADER).min(self.length);
            (self.header(&bytes), bytes)
        })
    }

    fn header(&self, bytes: &Range<u32>) -> [u8; HEADER as usize] {
        const NODE: [u8; 2] = [0x02, 0x50];
        let mut header = [0; HEADER as usize];
        let last = u16::from(bytes.end == self.length);
        let fields: [&[u8]; 10] = [
            &NODE,
            &self.destination.to_be_bytes(),
            &NODE,
            &[0; 4],
            &ETHERTYPE.to_be_bytes(),
            &last.to_be_bytes(),
            &self.queue_pair.to_be_bytes(),
            &self.handle.to_be_bytes(),
            &bytes.start.to_be_bytes(),
            &self.length.to_be_bytes(),
        ];
        header.iter_mut().zip(fields.into_iter().flatten()).for_each(|(to, from)| *to = *from);
        header
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER, MTU, Put};

    #[test]
    fn packets_have_all_bytes_once_in_order() {
        for length in [0, 1, 1467, 1468, 1469, 2936, 2937, 100_000] {
            let put = Put { destination: 1, queue_pair: 2, handle: 3, length };
            let mut next = 0;
            for (header, bytes) in put.split() {
                assert_eq!(bytes.start, next);
                assert!(!bytes.is_empty() && bytes.len() as u32 + HEADER <= MTU);
                assert_eq!(header[14..16], [0, u8::from(bytes.end == length)]);
                assert_eq!(header[24..28], bytes.start.to_be_bytes());
                next = bytes.end;
            }
            assert_eq!((next, put.split().count()), (length, put.packets() as usize));
            let longest = put.split().map(|(header, bytes)| header.len() + bytes.len()).max();
            assert!(longest.is_none_or(|longest| longest == put.longest() as usize));
        }
    }

    #[test]
    fn the_longest_ends_with_its_last_byte() {
        let longest = Put { destination: 0, queue_pair: 1, handle: 1, length: u32::MAX };
        assert_eq!(longest.split().last().map(|(_, bytes)| bytes.end), Some(u32::MAX));
    }

    #[test]
    fn headers_are_what_the_table_says() {
        let put = Put { destination: 0x0102_0304, queue_pair: 0x0506_0708, handle: 0x090a_0b0c, length: 0x0d0e };
        let (header, _) = put.split().nth(1).expect("a second packet");
        let expected = [
            0x02, 0x50, 1, 2, 3, 4, 0x02, 0x50, 0, 0, 0, 0, 0x88, 0xb5, 0, 0, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0x05,
            0xbc, 0, 0, 13, 14,
        ];
        assert_eq!(header, expected);
    }
}
