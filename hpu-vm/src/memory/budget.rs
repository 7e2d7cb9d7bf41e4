//! Budget for guests of the mappings that Linux allows a process (`vm.max_map_count`). A process at that limit is
//! refused every further mapping, including those of the allocator and of new threads.

use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::SpaceError;

/// What Linux allows unless it is told otherwise.
const USUAL: usize = 65_530;
/// Those left to everything else: threads' stacks, packet buffers, translations, host memory, the allocator.
const OTHERS: usize = 4096;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// How many there are for guests.
fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let set = std::fs::read_to_string("/proc/sys/vm/max_map_count");
        let allowed = set.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL);
        allowed.saturating_sub(OTHERS)
    })
}

/// Mappings that somebody has, or is about to make.
#[derive(Debug)]
pub(super) struct Mappings(AtomicUsize);

impl Mappings {
    /// Takes so many.
    ///
    /// # Errors
    /// [`SpaceError::Mappings`].
    pub(super) fn take(count: usize) -> Result<Self, SpaceError> {
        let taken = Self(AtomicUsize::new(0));
        taken.add(count)?;
        Ok(taken)
    }

    /// Takes so many more.
    ///
    /// # Errors
    /// As [`Mappings::take`].
    pub(super) fn add(&self, count: usize) -> Result<(), SpaceError> {
        let limit = limit();
        let room = |taken: usize| taken.checked_add(count).filter(|&taken| taken <= limit);
        TAKEN.fetch_update(Relaxed, Relaxed, room).map_err(|_| SpaceError::Mappings(limit))?;
        self.0.fetch_add(count, Relaxed);
        Ok(())
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        TAKEN.fetch_sub(*self.0.get_mut(), Relaxed);
    }
}
