//! Budget of the process for guests: address spaces, and memory mappings. A process at its limit of mappings is refused
//! every further one, including those of the allocator and of new threads.

use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use rustix::process::{Resource, getrlimit};

use super::error::{GuestUsage, SpaceError};

/// Default of `vm.max_map_count`.
const USUAL_MAPPINGS: usize = 65_530;
/// Mappings left to everything else: threads' stacks, packet buffers, translations, host memory, the allocator.
const OTHER_MAPPINGS: usize = 4096;
/// Addresses of a process: 47 bits.
const ADDRESSES: u64 = 1 << 47;
/// log2 of the addresses that a space takes, without its guards.
const SPACE_BITS: u32 = 32;

static SPACES: AtomicUsize = AtomicUsize::new(0);
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);
/// 0: limited by the process's addresses only.
static MAX_SPACES: AtomicUsize = AtomicUsize::new(0);

impl GuestUsage {
    fn current() -> Self {
        Self { spaces: SPACES.load(Relaxed), mappings: MAPPINGS.load(Relaxed) }
    }

    /// Maximum for guests: a quarter of the process's addresses is left to everything else.
    fn limit() -> Self {
        static LIMIT: OnceLock<GuestUsage> = OnceLock::new();
        let limit = *LIMIT.get_or_init(|| {
            let addresses = getrlimit(Resource::As).current.unwrap_or(u64::MAX).min(ADDRESSES);
            let setting = std::fs::read_to_string("/proc/sys/vm/max_map_count");
            let mappings = setting.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL_MAPPINGS);
            // At most 2^15.
            let spaces = ((addresses / 4 * 3) >> SPACE_BITS) as usize;
            Self { spaces, mappings: mappings.saturating_sub(OTHER_MAPPINGS) }
        });
        match MAX_SPACES.load(Relaxed) {
            0 => limit,
            spaces => Self { spaces, ..limit },
        }
    }
}

/// Sets the maximum number of spaces of the process. Existing ones stay.
pub fn set_max_spaces(max: usize) {
    MAX_SPACES.store(max, Relaxed);
}

/// Adds to a sum, up to a limit.
fn take(sum: &AtomicUsize, count: usize, limit: usize) -> Result<(), SpaceError> {
    let room = |used: usize| used.checked_add(count).filter(|&used| used <= limit);
    let full = |_| SpaceError::Full { used: GuestUsage::current(), limit: GuestUsage::limit() };
    sum.fetch_update(Relaxed, Relaxed, room).map(drop).map_err(full)
}

/// Permit for one of the process's spaces.
#[derive(Debug)]
pub(super) struct SpacePermit(());

impl SpacePermit {
    /// # Errors
    /// [`SpaceError::Full`].
    pub(super) fn take() -> Result<Self, SpaceError> {
        take(&SPACES, 1, GuestUsage::limit().spaces).map(|()| Self(()))
    }
}

impl Drop for SpacePermit {
    fn drop(&mut self) {
        SPACES.fetch_sub(1, Relaxed);
    }
}

/// A number of mappings that exist or are about to be made.
#[derive(Debug)]
pub(super) struct Mappings(AtomicUsize);

impl Mappings {
    /// Takes `count` mappings.
    ///
    /// # Errors
    /// [`SpaceError::Full`].
    pub(super) fn take(count: usize) -> Result<Self, SpaceError> {
        let taken = Self(AtomicUsize::new(0));
        taken.add(count)?;
        Ok(taken)
    }

    /// Takes `count` more mappings.
    ///
    /// # Errors
    /// As [`Mappings::take`].
    pub(super) fn add(&self, count: usize) -> Result<(), SpaceError> {
        take(&MAPPINGS, count, GuestUsage::limit().mappings)?;
        self.0.fetch_add(count, Relaxed);
        Ok(())
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        MAPPINGS.fetch_sub(*self.0.get_mut(), Relaxed);
    }
}
