//! The interface of every way to run the handlers.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::work::{Step, Work};

/// A way to run the handlers on the packets of one [`Work`].
pub trait Variant {
    /// Zeroes handler memory.
    fn reset(&mut self);

    /// Runs a handler.
    ///
    /// # Errors
    /// The handler did not return; the text tells how it ended.
    fn run(&mut self, step: Step) -> Result<(), String>;

    /// Returns the contents of handler memory.
    fn state(&mut self) -> Vec<u8>;
}

/// Time that this thread was on a processor: other programs on the machine do not count.
#[must_use]
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or_default();
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// Runs all packets from zeroed memory. Returns the processor time and the contents of handler memory.
///
/// # Errors
/// A handler did not return.
pub fn run(variant: &mut dyn Variant, work: &Work) -> Result<(Duration, Vec<u8>), String> {
    variant.reset();
    let begin = processor_time();
    work.tasks().try_for_each(|step| variant.run(step))?;
    Ok((processor_time() - begin, variant.state()))
}
