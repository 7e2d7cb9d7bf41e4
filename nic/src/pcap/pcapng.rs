//! Reading pcapng (draft-ietf-opsawg-pcapng): section header, interface description, enhanced and simple packet blocks.
//! Other blocks are skipped.

use std::io::Read;

use super::reader::{Order, Source};
use super::{ETHERNET, MAX_BLOCK, MAX_PACKET, Packet, PcapError};

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
    /// Most bytes captured of a packet, 0 for no limit.
    snap_len: u32,
    ticks_per_second: u64,
}

/// State of a pcapng file between blocks.
pub(super) struct Pcapng {
    order: Order,
    interfaces: Vec<Interface>,
    body: Vec<u8>,
}

impl Pcapng {
    /// First word of the file, the same in both byte orders.
    pub(super) const MAGIC: u32 = SECTION;

    /// Reads the first section header; its type is read already.
    pub(super) fn new<R: Read>(source: &mut Source<R>) -> Result<Self, PcapError> {
        let mut pcapng = Self { order: Order::Little, interfaces: Vec::new(), body: Vec::new() };
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

    /// A section: its byte order, then the rest of its header. Interfaces are counted anew.
    fn section<R: Read>(&mut self, source: &mut Source<R>, at: u64) -> Result<(), PcapError> {
        let mut head = [0; 8];
        source.fill(&mut head, at)?;
        self.order = match Order::Little.u32(&head, 4) {
            BYTE_ORDER_MAGIC => Order::Little,
            other if other.swap_bytes() == BYTE_ORDER_MAGIC => Order::Big,
            _ => return Err(PcapError::Broken { at, what: "no byte-order magic in the section header" }),
        };
        let body = self.body_length(self.order.u32(&head, 0), at)?;
        // The byte-order magic is the body's first word.
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

    /// A block whose type is read: leaves its body in `self.body`.
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

    /// Reads the `rest` bytes of a body of `body` bytes, then the second length, which must equal the first.
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

    /// Walks the options of an interface description for its clock; a microsecond when it has none.
    fn resolution(&self, at: u64) -> Result<u64, PcapError> {
        let mut options = &self.body[8..];
        while options.len() >= 4 {
            let (code, len) = (self.order.u16(options, 0), usize::from(self.order.u16(options, 2)));
            let value = options.get(4..4 + len).ok_or(PcapError::Broken { at, what: "option too long" })?;
            if code == OPTION_RESOLUTION {
                return ticks_per_second(value).ok_or(PcapError::Broken { at, what: "impossible clock resolution" });
            }
            // Values are padded to four bytes; the last padding may be missing.
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
        // Ticks are below 2^64, so the product is below 2^94; times past 2554 are cut to it.
        let time = ticks * 1_000_000_000 / u128::from(interface.ticks_per_second);
        packet.time = u64::try_from(time).unwrap_or(u64::MAX);
        packet.wire_len = wire_len;
        self.copy(20, len, at, packet)
    }

    /// No time and no captured length: that is the lesser of the wire's and the interface's limit.
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

/// The first byte of the option: a negative power of 10, or of 2 when its top bit is set.
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
            // 200 = 2^72 ticks a second; shifting that far is refused like the rest.
            assert!(matches!(result, Err(PcapError::Broken { .. })), "case {number}: {result:?}");
        }
        assert!(matches!(after_head(words(&[5, u32::MAX - 3])), Err(PcapError::TooLong { .. })));
    }

    #[test]
    fn every_truncation_ends_without_panic() {
        let whole = [head(), block(6, &[words(&[0, 1, 2, 3, 3]), b"abc\0".to_vec()].concat())].concat();
        let between: Vec<_> = (0..whole.len()).filter(|&len| read_all(&whole[..len]).is_ok()).collect();
        // Only where a block ends.
        assert_eq!(between, [28, 60, 76]);
    }
}
