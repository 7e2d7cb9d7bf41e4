//! The packets to send: frames of a pattern, or those of a capture, repeated.

use spin_nic::traffic::{Pattern, Signature};

/// Where packets come from.
pub enum Source {
    /// Frames with signatures.
    Pattern(Box<Pattern>),
    /// Captured frames, unchanged.
    Capture {
        /// At least one.
        frames: Vec<Vec<u8>>,
        /// Number of frames written so far.
        written: u64,
    },
}

impl Source {
    /// Number of packets written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        match self {
            Self::Pattern(pattern) => pattern.written(),
            Self::Capture { written, .. } => *written,
        }
    }

    /// Writes the next packet, which is due at that time. Returns its length. Frames longer than the buffer are cut.
    pub fn write(&mut self, due: u64, buffer: &mut [u8]) -> usize {
        match self {
            Self::Pattern(pattern) => pattern.write(due, buffer),
            Self::Capture { frames, written } => {
                let frame = &frames[(*written % frames.len() as u64) as usize];
                let len = frame.len().min(buffer.len());
                buffer[..len].copy_from_slice(&frame[..len]);
                *written += 1;
                len
            }
        }
    }

    /// The signature of a received frame. `None` when it is not of this run, or frames have no signatures.
    #[must_use]
    pub fn signature(&self, frame: &[u8]) -> Option<Signature> {
        match self {
            Self::Pattern(pattern) => pattern.signature(frame),
            Self::Capture { .. } => None,
        }
    }
}
