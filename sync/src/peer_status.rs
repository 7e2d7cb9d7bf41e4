//! Status that a thread publishes, so that others share tasks with it and none ends before the last task was shared.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};

/// Status of a thread, written by that thread and read by all others, on a cache line of its own.
///
/// A thread sends its last task before it calls [`PeerStatus::stop_lending`]. A reader that checks [`PeerStatus::lends`] first and the
/// channel afterwards has therefore seen every task.
#[derive(Debug)]
#[repr(align(64))]
pub struct PeerStatus {
    idle: AtomicBool,
    lends: AtomicBool,
}

impl Default for PeerStatus {
    fn default() -> Self {
        Self { idle: AtomicBool::new(false), lends: AtomicBool::new(true) }
    }
}

impl PeerStatus {
    /// Whether the thread has no work of its own. This is a hint: a busy thread also runs a task that is sent to it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Relaxed)
    }

    /// Publishes whether the thread has no work of its own.
    pub fn set_idle(&self, idle: bool) {
        self.idle.store(idle, Ordering::Relaxed);
    }

    /// Whether the thread may still send tasks to others.
    #[must_use]
    pub fn lends(&self) -> bool {
        self.lends.load(Ordering::Acquire)
    }

    /// Publishes that the thread sends no more tasks.
    pub fn stop_lending(&self) {
        self.lends.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::PeerStatus;

    #[test]
    fn its_thread_alone_writes_its_line() {
        spin_testing::assert_lines!(PeerStatus { idle: "its thread", lends: "its thread" });
    }
}
