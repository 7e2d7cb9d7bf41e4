//! Writes pcap: little-endian, nanoseconds, Ethernet.

use std::io::{self, Write};

use super::types::{ETHERNET, MAX_PACKET, Packet};

/// Writes a capture packet by packet.
pub struct Writer<W: Write> {
    inner: W,
}

impl<W: Write> Writer<W> {
    /// Writes the header of a capture.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(mut inner: W) -> io::Result<Self> {
        let head = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, MAX_PACKET as u32, ETHERNET];
        inner.write_all(&head.map(u32::to_le_bytes).concat())?;
        Ok(Self { inner })
    }

    /// Appends a packet of `wire_len` bytes that begins with `data`, at `time` ns since 1970. Times beyond the 2^32 seconds
    /// of the format become its last second.
    ///
    /// # Errors
    /// When it cannot be written, or `data` is longer than [`MAX_PACKET`].
    pub fn write(&mut self, time: u64, wire_len: u32, data: &[u8]) -> io::Result<()> {
        let len = u32::try_from(data.len()).ok().filter(|&len| len as usize <= MAX_PACKET);
        let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "packet too long for a capture"))?;
        let seconds = u32::try_from(time / 1_000_000_000).unwrap_or(u32::MAX);
        let mut header = [0; 16];
        let words = [seconds, (time % 1_000_000_000) as u32, len, wire_len];
        for (bytes, word) in header.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        self.inner.write_all(&header)?;
        self.inner.write_all(data)
    }

    /// Writes buffered bytes out.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A whole capture as bytes. Packets longer than [`MAX_PACKET`] are truncated to it.
#[must_use]
pub fn write_all(packets: &[Packet]) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to a vector cannot fail, and the writer takes packets of these lengths.
    let Ok(mut writer) = Writer::new(&mut bytes) else { return Vec::new() };
    for packet in packets {
        let data = &packet.data[..packet.data.len().min(MAX_PACKET)];
        let _ = writer.write(packet.time, packet.wire_len, data);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{Packet, Writer, write_all};
    use crate::pcap::{MAX_PACKET, read_all};

    #[test]
    fn layout() {
        let bytes = write_all(&[Packet::whole(3_000_000_004, vec![0xab])]);
        let head = "4d3cb2a1 02000400 00000000 00000000 00000400 01000000";
        let record = "03000000 04000000 01000000 01000000 ab";
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, format!("{head}{record}").replace(' ', ""));
    }

    #[test]
    fn too_long_is_refused_or_cut() {
        let long = vec![1; MAX_PACKET + 1];
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes).expect("to memory");
        assert!(writer.write(0, 0, &long).is_err());
        let packets = read_all(&write_all(&[Packet::whole(0, long)])).expect("own output");
        assert_eq!((packets[0].data.len(), packets[0].wire_len as usize), (MAX_PACKET, MAX_PACKET + 1));
    }
}
