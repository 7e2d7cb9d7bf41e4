//! Counter names of the queues without a kernel below them.

use spin_frame::PortCounts;

/// The counters as [`crate::Queue::counters`] names them. `passed`: frames given to [`crate::Queue::pass_to_kernel`].
pub(crate) fn named(counts: PortCounts, passed: u64) -> Vec<(&'static str, u64)> {
    vec![
        ("rx_frames", counts.received),
        ("tx_frames", counts.sent),
        ("tx_invalid", counts.tx_invalid),
        ("passed", passed),
        ("foreign_frames", counts.foreign_frames),
    ]
}
