//! What queues without a kernel below them count.

/// Frames since opening.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) tx_invalid: u64,
    pub(crate) passed: u64,
    pub(crate) foreign_frames: u64,
}

impl Counts {
    /// As [`crate::Queue::counters`] names them.
    pub(crate) fn named(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("rx_frames", self.received),
            ("tx_frames", self.sent),
            ("tx_invalid", self.tx_invalid),
            ("passed", self.passed),
            ("foreign_frames", self.foreign_frames),
        ]
    }
}
