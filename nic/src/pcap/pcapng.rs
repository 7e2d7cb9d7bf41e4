//! Reads pcapng (draft-ietf-opsawg-pcapng): section header, interface description, enhanced and simple packet blocks.
//! Skips other blocks.

use std::io::Read;

use super::source::{ByteOrder, Source};
use super::types::{ETHERNET, MAX_BLOCK, MAX_PACKET, Packet, PcapError};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Option of an interface description: ticks per second.
const OPTION_RESOLUTION: u16 = 9;
/// Type and length before a block's body, length after it.
const BLOCK_OVERHEAD: usize = 12;

struct Interface {
    link: u32,
    /// Maximum number of bytes captured of a packet. 0: no limit.
    snap_len: u32,
    ticks_per_second: u64,
}

/// The state of a pcapng file between blocks.
pub(super) struct Pcapng {
    order: ByteOrder,
    interfaces: Vec<Interface>,
    body: Vec<u8>,
}

impl Pcapng {
    /// The first word of the file, equal in both byte orders.
    pub(super) const MAGIC: u32 = SECTION;

    /// Reads the first section header. The caller has read its type.
    pub(super) fn new<R: Read>(source: &mut Source<R>) -> Result<Self, PcapError> {
        let mut pcapng = Self { order: ByteOrder::Little, interfaces: Vec::new(), body: Vec::new() };
        pcapng.section(source, 0)?;
        Ok(pcapng)
    }

    /// Reads blocks until one is a packet. `false` at the end of the file.
    pub(super) fn next<R: Read>(&mut self, source: &mut Source<R>, packet: &mut Packet) -> Result<bool, PcapError> {
        loop {
            let at = source.position;
            let mut kind = [0; 4];
            if !source.fill(&mut kind, at)? {
                return Ok(false);
            }
            let kind = self.order.u32(&kind, 0);
            if kind == SECTION {
                self.section(source, at)?;
                continue;
            }
            self.block(source, at)?;
            match kind {
                INTERFACE => self.interface(at)?,
                ENHANCED_PACKET => {
                    self.enhanced_packet(at, packet)?;
                    return Ok(true);
                }
                SIMPLE_PACKET => {
                    self.simple_packet(at, packet)?;
                    return Ok(true);
                }
                _ => {}
            }
        }
    }

    /// Reads a section header: its byte order, then the rest. A section numbers its interfaces from 0.
    fn section<R: Read>(&mut self, source: &mut Source<R>, at: u64) -> Result<(), PcapError> {
        let mut head = [0; 8];
        source.fill(&mut head, at)?;
        self.order = match ByteOrder::Little.u32(&head, 4) {
            BYTE_ORDER_MAGIC => ByteOrder::Little,
            other if other.swap_bytes() == BYTE_ORDER_MAGIC => ByteOrder::Big,
            _ => return Err(PcapError::Broken { at, what: "no byte-order magic in the section header" }),
        };
        let body = self.body_length(self.order.u32(&head, 0), at)?;
        // The byte-order magic is the first word of the body.
        let rest = body.checked_sub(4).ok_or(PcapError::Broken { at, what: "section header too short" })?;
        self.read_body(source, rest, body, at)?;
        if self.body.len() < 12 {
            return Err(PcapError::Broken { at, what: "section header too short" });
        }
        let version = (self.order.u16(&self.body, 0), self.order.u16(&self.body, 2));
        if version.0 != 1 {
            return Err(PcapError::Version(version.0, version.1));
        }
        self.interfaces.clear();
        Ok(())
    }

    /// Reads the body of a block, whose type is read, into `self.body`.
    fn block<R: Read>(&mut self, source: &mut Source<R>, at: u64) -> Result<(), PcapError> {
        let mut length = [0; 4];
        source.fill(&mut length, at)?;
        let body = self.body_length(self.order.u32(&length, 0), at)?;
        self.read_body(source, body, body, at)
    }

    fn body_length(&self, total: u32, at: u64) -> Result<usize, PcapError> {
        let total_length = total as usize;
        if total_length > MAX_BLOCK {
            return Err(PcapError::TooLong { at, len: total.into(), max: MAX_BLOCK });
        }
        match total_length.checked_sub(BLOCK_OVERHEAD) {
            Some(body) if body % 4 == 0 => Ok(body),
            _ => Err(PcapError::Broken { at, what: "block length is below 12 or no multiple of 4" }),
        }
    }

    /// Reads the last `rest` bytes of a body of `body` bytes, and the second length, which must equal the first.
    fn read_body<R: Read>(
        &mut self,
        source: &mut Source<R>,
        rest: usize,
        body: usize,
        at: u64,
    ) -> Result<(), PcapError> {
        self.body.resize(rest, 0);
        source.fill(&mut self.body, at)?;
        let mut trailer = [0; 4];
        source.fill(&mut trailer, at)?;
        if self.order.u32(&trailer, 0) as usize != body + BLOCK_OVERHEAD {
            return Err(PcapError::Broken { at, what: "the block's two lengths differ" });
        }
        Ok(())
    }

    fn interface(&mut self, at: u64) -> Result<(), PcapError> {
        if self.body.len() < 8 {
            return Err(PcapError::Broken { at, what: "interface description too short" });
        }
        let interface = Interface {
            link: self.order.u16(&self.body, 0).into(),
            snap_len: self.order.u32(&self.body, 4),
            ticks_per_second: self.resolution(at)?,
        };
        self.interfaces.push(interface);
        Ok(())
    }

    /// Finds the clock resolution in the options of an interface description. The default is a microsecond.
    fn resolution(&self, at: u64) -> Result<u64, PcapError> {
        let mut options = &self.body[8..];
        while options.len() >= 4 {
            let (code, len) = (self.order.u16(options, 0), usize::from(self.order.u16(options, 2)));
            let value = options.get(4..4 + len).ok_or(PcapError::Broken { at, what: "option too long" })?;
            if code == OPTION_RESOLUTION {
                return ticks_per_second(value).ok_or(PcapError::Broken { at, what: "impossible clock resolution" });
            }
            // Values are padded to four bytes. The last padding may be missing.
            options = options.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
            if code == 0 {
                break;
            }
        }
        Ok(1_000_000)
    }

    fn ethernet(&self, number: u32, at: u64) -> Result<&Interface, PcapError> {
        let interface = self.interfaces.get(number as usize);
        let interface = interface.ok_or(PcapError::Broken { at, what: "packet of an interface not described" })?;
        if interface.link != ETHERNET {
            return Err(PcapError::LinkType(interface.link));
        }
        Ok(interface)
    }

    fn enhanced_packet(&self, at: u64, packet: &mut Packet) -> Result<(), PcapError> {
        if self.body.len() < 20 {
            return Err(PcapError::Broken { at, what: "packet block too short" });
        }
        let [number, high, low, len, wire_len] = [0, 4, 8, 12, 16].map(|offset| self.order.u32(&self.body, offset));
        let interface = self.ethernet(number, at)?;
        let ticks = u128::from(high) << 32 | u128::from(low);
        // Ticks are below 2^64, so the product is below 2^94. Times past the year 2554 become the largest value.
        let time = ticks * 1_000_000_000 / u128::from(interface.ticks_per_second);
        packet.time = u64::try_from(time).unwrap_or(u64::MAX);
        packet.wire_len = wire_len;
        self.copy(20, len, at, packet)
    }

    /// A simple packet has no time and no captured length. The latter is the wire length, limited by the interface.
    fn simple_packet(&self, at: u64, packet: &mut Packet) -> Result<(), PcapError> {
        if self.body.len() < 4 {
            return Err(PcapError::Broken { at, what: "packet block too short" });
        }
        let wire_len = self.order.u32(&self.body, 0);
        let limit = self.ethernet(0, at)?.snap_len;
        packet.time = 0;
        packet.wire_len = wire_len;
        self.copy(4, if limit == 0 { wire_len } else { wire_len.min(limit) }, at, packet)
    }

    fn copy(&self, start: usize, len: u32, at: u64, packet: &mut Packet) -> Result<(), PcapError> {
        if len as usize > MAX_PACKET {
            return Err(PcapError::TooLong { at, len: len.into(), max: MAX_PACKET });
        }
        let data = self.body.get(start..start + len as usize);
        let data = data.ok_or(PcapError::Broken { at, what: "packet longer than its block" })?;
        packet.data.clear();
        packet.data.extend_from_slice(data);
        Ok(())
    }
}

/// The first byte of the option is a negative power of 10, or of 2 when its top bit is set.
fn ticks_per_second(option: &[u8]) -> Option<u64> {
    let &exponent = option.first()?;
    if exponent & 0x80 == 0 { 10_u64.checked_pow(exponent.into()) } else { 1_u64.checked_shl((exponent & 0x7f).into()) }
}

#[cfg(test)]
mod tests {
    use crate::pcap::{Packet, PcapError, read_all};

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32 + 12).to_be_bytes();
        [&kind.to_be_bytes(), &length[..], body, &length].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// Big-endian: a section, an Ethernet interface with nanoseconds, an unknown block.
    fn head() -> Vec<u8> {
        let section = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1 << 16, u32::MAX, u32::MAX]));
        let interface = block(1, &words(&[1 << 16, 2, 9 << 16 | 1, 9 << 24, 0]));
        [section, interface, block(5, b"skip")].concat()
    }

    #[test]
    fn packets_of_both_kinds() {
        let enhanced = block(6, &[words(&[0, 1, 2, 3, 3]), b"abc\0".to_vec()].concat());
        let simple = block(3, &[words(&[5]), b"de\0\0".to_vec()].concat());
        let packets = read_all(&[head(), enhanced, simple].concat()).expect("a good capture");
        let first = Packet { time: (1 << 32) + 2, wire_len: 3, data: b"abc".to_vec() };
        let second = Packet { time: 0, wire_len: 5, data: b"de".to_vec() };
        assert_eq!(packets, [first, second]);
    }

    #[test]
    fn broken_blocks_are_refused() {
        let after_head = |tail: Vec<u8>| read_all(&[head(), tail].concat());
        let mut differing = block(5, b"skip");
        differing[15] = 0;
        let broken = [
            block(6, &words(&[1, 0, 0, 0, 0])),
            block(6, &words(&[0, 0, 0, 1, 1])),
            block(6, &words(&[0, 0])),
            block(3, &[]),
            block(1, &words(&[1 << 16, 0, 9 << 16 | 1, 200 << 24])),
            block(1, &words(&[1 << 16, 0, 9 << 16 | 64])),
            words(&[5, 13, 0, 0]),
            words(&[5, 8]),
            words(&[0x0a0d_0d0a, 28, 7]),
            differing,
        ];
        for (number, tail) in broken.into_iter().enumerate() {
            let result = after_head(tail);
            // 200 means 2^72 ticks per second, which overflows.
            assert!(matches!(result, Err(PcapError::Broken { .. })), "case {number}: {result:?}");
        }
        assert!(matches!(after_head(words(&[5, u32::MAX - 3])), Err(PcapError::TooLong { .. })));
    }

    #[test]
    fn every_truncation_ends_without_panic() {
        let whole = [head(), block(6, &[words(&[0, 1, 2, 3, 3]), b"abc\0".to_vec()].concat())].concat();
        let between: Vec<_> = (0..whole.len()).filter(|&len| read_all(&whole[..len]).is_ok()).collect();
        // Only at the end of a block.
        assert_eq!(between, [28, 60, 76]);
    }
}
