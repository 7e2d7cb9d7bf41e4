//! Capture files: classic pcap with Ethernet frames (draft-ietf-opsawg-pcap), either byte order, micro- or
//! nanoseconds.

/// Why a file was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a capture, or pcapng.
    #[error("not a classic pcap file (pcapng? `tcpdump -w` writes the classic form)")]
    Magic,
    /// Not Ethernet.
    #[error("link type {0}: only captures of Ethernet (1) are read")]
    LinkType(u32),
    /// The file ends within a record.
    #[error("the capture ends within its record number {0}")]
    CutShort(usize),
    /// The capture has only part of a frame.
    #[error("record number {0} holds only part of its frame: capture with `tcpdump -s 0`")]
    Snapped(usize),
}

const HEADER: usize = 24;
const RECORD: usize = 16;

/// The frames of a capture, in order.
///
/// # Errors
/// See [`Error`].
pub fn read(file: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let (header, mut rest) = file.split_at_checked(HEADER).ok_or(Error::Magic)?;
    let word: fn([u8; 4]) -> u32 = match header[..4] {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => u32::from_le_bytes,
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => u32::from_be_bytes,
        _ => return Err(Error::Magic),
    };
    let at = |bytes: &[u8], at: usize| word([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    match at(header, 20) & 0xffff {
        1 => {}
        other => return Err(Error::LinkType(other)),
    }
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let number = frames.len() + 1;
        let (record, behind) = rest.split_at_checked(RECORD).ok_or(Error::CutShort(number))?;
        let (captured, original) = (at(record, 8), at(record, 12));
        let captured_bytes = usize::try_from(captured).map_err(|_| Error::CutShort(number))?;
        let (frame, behind) = behind.split_at_checked(captured_bytes).ok_or(Error::CutShort(number))?;
        if captured < original {
            return Err(Error::Snapped(number));
        }
        frames.push(frame);
        rest = behind;
    }
    Ok(frames)
}

/// A capture of these frames, all at time zero.
#[must_use]
pub fn write<'a>(frames: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4_u32.to_le_bytes());
    file.extend([2, 0, 4, 0]); // version 2.4
    file.extend([0; 8]);
    file.extend(262_144_u32.to_le_bytes()); // longest record, tcpdump's default
    file.extend(1_u32.to_le_bytes());
    for frame in frames {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX).to_le_bytes();
        file.extend([0; 8]);
        file.extend(length);
        file.extend(length);
        file.extend(frame);
    }
    file
}

#[cfg(test)]
mod tests {
    use super::{Error, read, write};

    #[test]
    fn round_trip_and_every_truncation() {
        let frames: [&[u8]; 3] = [&[1, 2, 3], &[], &[9; 100]];
        let file = write(frames);
        assert_eq!(read(&file).unwrap(), frames);
        let ends = [24, 24 + 19, 24 + 19 + 16, file.len()];
        for length in 0..file.len() {
            assert_eq!(read(&file[..length]).is_ok(), ends.contains(&length), "{length}");
        }
    }

    #[test]
    fn strangers_are_refused() {
        let mut file = write([[1u8, 2].as_slice()]);
        file[20] = 113;
        assert_eq!(read(&file), Err(Error::LinkType(113)));
        file[20] = 1;
        file[24 + 12] = 3;
        assert_eq!(read(&file), Err(Error::Snapped(1)));
        file[0] = 0x0a;
        assert_eq!(read(&file), Err(Error::Magic));
    }
}
