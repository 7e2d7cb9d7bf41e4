//! Bytes of a capture file, and integers in its byte order.

use std::io::{ErrorKind, Read};

use super::types::PcapError;

/// The byte order of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The 16-bit integer at `at`. The caller has checked the length of `bytes`.
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let word = [bytes[at], bytes[at + 1]];
        if self == Self::Little { u16::from_le_bytes(word) } else { u16::from_be_bytes(word) }
    }

    /// The 32-bit integer at `at`. The caller has checked the length of `bytes`.
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self == Self::Little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) }
    }
}

/// A reader that counts the bytes read.
pub(super) struct Source<R> {
    inner: R,
    /// Bytes read.
    pub(super) position: u64,
}

impl<R: Read> Source<R> {
    /// Starts at the beginning of a file.
    pub(super) const fn new(inner: R) -> Self {
        Self { inner, position: 0 }
    }

    /// Fills `buffer`. `false` when the file ends here, before the first byte.
    ///
    /// # Errors
    /// When the file ends inside the record that begins at `record`, or cannot be read.
    pub(super) fn fill(&mut self, buffer: &mut [u8], record: u64) -> Result<bool, PcapError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.inner.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 && self.position == record => return Ok(false),
                Ok(0) => return Err(PcapError::Truncated { at: record }),
                Ok(count) => {
                    filled += count;
                    self.position += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}
