//! Reads pcap (draft-ietf-opsawg-pcap). `pcapng` reads the other format.

use std::io::Read;

use super::pcapng::Pcapng;
use super::source::{ByteOrder, Source};
use super::types::{ETHERNET, MAX_PACKET, Packet, PcapError};

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const RECORD_HEADER: usize = 16;

enum Format {
    Pcap { order: ByteOrder, nanoseconds_per_tick: u64 },
    Pcapng(Pcapng),
}

/// Reads a capture packet by packet.
pub struct Reader<R> {
    source: Source<R>,
    format: Format,
}

impl<R: Read> Reader<R> {
    /// Reads the header of a capture.
    ///
    /// # Errors
    /// When it is not a capture of a known format, or cannot be read.
    pub fn new(inner: R) -> Result<Self, PcapError> {
        let mut source = Source::new(inner);
        let mut magic = [0; 4];
        if !source.fill(&mut magic, 0)? {
            return Err(PcapError::Truncated { at: 0 });
        }
        let (little, big) = (u32::from_le_bytes(magic), u32::from_be_bytes(magic));
        let format = match (little, big) {
            (MICROSECONDS, _) => pcap_header(&mut source, ByteOrder::Little, 1000)?,
            (NANOSECONDS, _) => pcap_header(&mut source, ByteOrder::Little, 1)?,
            (_, MICROSECONDS) => pcap_header(&mut source, ByteOrder::Big, 1000)?,
            (_, NANOSECONDS) => pcap_header(&mut source, ByteOrder::Big, 1)?,
            (Pcapng::MAGIC, _) => Format::Pcapng(Pcapng::new(&mut source)?),
            _ => return Err(PcapError::Magic(big)),
        };
        Ok(Self { source, format })
    }

    /// Reads the next packet into `packet`, whose buffer is reused. `false` at the end of the file.
    ///
    /// # Errors
    /// When the file is broken, truncated or cannot be read. The reader cannot continue after an error.
    pub fn next(&mut self, packet: &mut Packet) -> Result<bool, PcapError> {
        match &mut self.format {
            Format::Pcap { order, nanoseconds_per_tick } => {
                pcap_record(&mut self.source, *order, *nanoseconds_per_tick, packet)
            }
            Format::Pcapng(pcapng) => pcapng.next(&mut self.source, packet),
        }
    }
}

/// The 20 bytes after the magic number: version, two unused words, the longest packet, the link type.
fn pcap_header<R: Read>(
    source: &mut Source<R>,
    order: ByteOrder,
    nanoseconds_per_tick: u64,
) -> Result<Format, PcapError> {
    let mut header = [0; 20];
    source.fill(&mut header, 0)?;
    let version = (order.u16(&header, 0), order.u16(&header, 2));
    if version != (2, 4) {
        return Err(PcapError::Version(version.0, version.1));
    }
    // The upper bits describe a frame check sequence at the end of each packet.
    match order.u32(&header, 16) {
        link if link & 0xffff != ETHERNET => Err(PcapError::LinkType(link & 0xffff)),
        link if link & 0x0400_0000 != 0 && link >> 28 != 0 => Err(PcapError::Broken {
            at: 20,
            what: "its packets end in a frame check sequence, which is not understood",
        }),
        _ => Ok(Format::Pcap { order, nanoseconds_per_tick }),
    }
}

fn pcap_record<R: Read>(
    source: &mut Source<R>,
    order: ByteOrder,
    nanoseconds_per_tick: u64,
    packet: &mut Packet,
) -> Result<bool, PcapError> {
    let at = source.position;
    let mut header = [0; RECORD_HEADER];
    if !source.fill(&mut header, at)? {
        return Ok(false);
    }
    let [seconds, fraction, len, wire_len] = [0, 4, 8, 12].map(|offset| order.u32(&header, offset));
    if len as usize > MAX_PACKET {
        return Err(PcapError::TooLong { at, len: len.into(), max: MAX_PACKET });
    }
    // 2^32 s and 2^32 us are below 2^63 ns.
    packet.time = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * nanoseconds_per_tick;
    packet.wire_len = wire_len;
    packet.data.resize(len as usize, 0);
    source.fill(&mut packet.data, at)?;
    Ok(true)
}

/// All packets of a capture held in memory.
///
/// # Errors
/// When any part of it is broken.
pub fn read_all(bytes: &[u8]) -> Result<Vec<Packet>, PcapError> {
    let mut reader = Reader::new(bytes)?;
    let mut packets = Vec::new();
    let mut packet = Packet::default();
    while reader.next(&mut packet)? {
        packets.push(packet.clone());
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::{MICROSECONDS, NANOSECONDS, read_all};
    use crate::pcap::{Packet, PcapError, write_all};
    use proptest::prelude::{ProptestConfig, any, prop, prop_assert_eq, proptest};

    /// A capture of one packet of 3 bytes at 5 s and 7 ticks. `word` and `half` encode the integers.
    fn capture(magic: u32, word: fn(u32) -> [u8; 4], half: fn(u16) -> [u8; 2]) -> Vec<u8> {
        let mut bytes = word(magic).to_vec();
        bytes.extend([half(2), half(4)].concat());
        bytes.extend([0, 0, 65535, 1, 5, 7, 3, 9].map(word).concat());
        bytes.extend(b"abc");
        bytes
    }

    #[test]
    fn both_orders_and_both_resolutions() {
        for (magic, nanoseconds) in [(MICROSECONDS, 7000), (NANOSECONDS, 7)] {
            let expected = Packet { time: 5_000_000_000 + nanoseconds, wire_len: 9, data: b"abc".to_vec() };
            for bytes in
                [capture(magic, u32::to_le_bytes, u16::to_le_bytes), capture(magic, u32::to_be_bytes, u16::to_be_bytes)]
            {
                assert_eq!(read_all(&bytes).expect("a good capture"), std::slice::from_ref(&expected));
            }
        }
    }

    #[test]
    fn every_truncation_is_an_error_but_those_between_records() {
        let bytes = capture(MICROSECONDS, u32::to_le_bytes, u16::to_le_bytes);
        for len in 0..bytes.len() {
            match read_all(&bytes[..len]) {
                Ok(packets) => assert!(len == 24 && packets.is_empty(), "cut at {len}: {packets:?}"),
                Err(PcapError::Truncated { at }) => assert_eq!(at, if len < 24 { 0 } else { 24 }),
                Err(other) => panic!("cut at {len}: {other}"),
            }
        }
    }

    #[test]
    fn giant_lengths_other_links_and_versions_are_refused() {
        let good = capture(MICROSECONDS, u32::to_le_bytes, u16::to_le_bytes);
        let with = |at: usize, word: u32| {
            let mut bytes = good.clone();
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            read_all(&bytes)
        };
        assert!(matches!(with(32, u32::MAX), Err(PcapError::TooLong { at: 24, len: 0xffff_ffff, .. })));
        assert!(matches!(with(32, 262_144), Err(PcapError::Truncated { at: 24 })));
        assert!(matches!(with(20, 113), Err(PcapError::LinkType(113))));
        assert!(matches!(with(4, 3), Err(PcapError::Version(3, 0))));
        assert!(matches!(with(0, 0x1234_5678), Err(PcapError::Magic(0x7856_3412))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn written_packets_are_read(packets in prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 0..200)), 0..8)) {
            let packets: Vec<_> = packets.into_iter().map(|(time, data)| Packet::whole(u64::from(time) << 20, data)).collect();
            let bytes = write_all(&packets);
            prop_assert_eq!(read_all(&bytes).expect("own output"), packets);
        }

        #[test]
        fn no_bytes_panic(magic in prop::sample::select(vec![0xa1b2_c3d4_u32, 0x4d3c_b2a1, 0x0a0d_0d0a]), tail in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = magic.to_be_bytes().to_vec();
            bytes.extend(tail);
            // Both outcomes are right. A panic or a huge allocation is not.
            let _ = read_all(&bytes);
        }
    }
}
