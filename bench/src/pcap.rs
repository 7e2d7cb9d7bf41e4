//! The frames of a capture file; truncated frames are refused.

use spin_nic::pcap::{PcapError, read_all};

/// Reason why a capture was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is damaged or of another format.
    #[error(transparent)]
    File(#[from] PcapError),
    /// The capture contains a truncated frame.
    #[error("record number {0} holds only part of its frame: capture with `tcpdump -s 0`")]
    Snapped(usize),
}

/// Returns the frames of a capture in order.
///
/// # Errors
/// See [`Error`].
pub fn read(file: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let whole = |(number, packet): (usize, spin_nic::pcap::Packet)| {
        if packet.data.len() == packet.wire_len as usize { Ok(packet.data) } else { Err(Error::Snapped(number)) }
    };
    (1..).zip(read_all(file)?).map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::{Error, read};
    use spin_nic::pcap::{Packet, PcapError, write_all};

    #[test]
    fn round_trip_and_every_truncation() {
        let frames = [vec![1, 2, 3], vec![], vec![9; 100]];
        let file = write_all(&frames.clone().map(|data| Packet::whole(0, data)));
        assert_eq!(read(&file).unwrap(), frames);
        let ends = [24, 24 + 19, 24 + 19 + 16, file.len()];
        for length in 0..file.len() {
            assert_eq!(read(&file[..length]).is_ok(), ends.contains(&length), "{length}");
        }
    }

    #[test]
    fn strangers_are_refused() {
        let mut file = write_all(&[Packet::whole(0, vec![1, 2])]);
        file[20] = 113;
        assert!(matches!(read(&file), Err(Error::File(PcapError::LinkType(113)))));
        file[20] = 1;
        file[24 + 12] = 3;
        assert!(matches!(read(&file), Err(Error::Snapped(1))));
        file[0] = 0x0a;
        assert!(matches!(read(&file), Err(Error::File(PcapError::Magic(_)))));
    }
}
