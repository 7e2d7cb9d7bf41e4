//! Parts of tests that act as clients of spind.

use std::process::Child;
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;

use crate::ACTION_TIMEOUT;

/// Interval between two checks of a condition.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// A process that is killed at the end of the test.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Builds the image of one of the shipped handlers, or of those for tests.
///
/// # Panics
/// When the handler does not compile.
#[must_use]
pub fn image(handler: &str) -> Vec<u8> {
    spin_handlers::build(&spin_handlers::source(handler))
}

/// A datagram to `port`.
///
/// # Panics
/// When the payload is longer than a datagram.
#[must_use]
pub fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(1234, port);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).expect("a vector takes all");
    frame
}

/// Waits until a condition holds, with a time limit.
///
/// # Panics
/// When it does not hold in time.
#[track_caller]
pub fn wait_until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + ACTION_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "it did not come to pass");
        std::thread::sleep(CHECK_INTERVAL);
    }
}
