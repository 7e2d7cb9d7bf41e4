//! Quota for shared memory that applications keep after its context is gone. A region lives as long as an application has a descriptor of
//! it, so a user who installs and removes contexts repeatedly could take all memory. A user who keeps more than the quota of such regions
//! gets no new descriptor.
//!
//! The quota is checked only when a descriptor is requested: when contexts go, their user keeps their regions, however large. A user
//! therefore never has more than the quota plus the memory of contexts that exist at one time.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spin_shm::{Region, RegionError};

/// Maximum number of regions of removed contexts that a user may keep.
const MAX_KEPT: usize = 16;

/// Reason why a user gets no descriptor.
#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    /// The user is over the quota.
    #[error(
        "you keep {bytes} bytes of memory of {count} contexts that are gone (at most {MAX_KEPT}, and {most} bytes): close it first"
    )]
    Kept {
        /// Bytes that the user keeps.
        bytes: u64,
        /// Number of regions that the user keeps.
        count: usize,
        /// Maximum number of bytes that the user may keep.
        most: u64,
    },
    /// The system refuses.
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// Shared memory by user, of existing and of removed contexts.
#[derive(Debug, Default)]
pub struct SharedMemoryQuota {
    regions: Mutex<Vec<(u32, Arc<Region>)>>,
}

impl SharedMemoryQuota {
    /// A descriptor of a region for the user of its context, who may keep at most `most` bytes of removed contexts.
    ///
    /// # Errors
    /// See [`QuotaError`].
    pub fn share(&self, user: u32, region: &Arc<Region>, most: u64) -> Result<OwnedFd, QuotaError> {
        self.sweep();
        let mut regions = self.lock();
        if !regions.iter().any(|(_, known)| Arc::ptr_eq(known, region)) {
            let (count, bytes) = kept(&regions, user);
            if count >= MAX_KEPT || bytes > most {
                return Err(QuotaError::Kept { bytes, count, most });
            }
            regions.push((user, region.clone()));
        }
        Ok(region.share()?)
    }

    /// Frees regions that no application holds.
    pub fn sweep(&self) {
        // Keep a region if the kernel gives no answer.
        self.lock().retain(|(_, region)| !is_gone(region) || !region.reclaim().unwrap_or(false));
    }

    /// Whether a user keeps regions of removed contexts.
    pub fn keeps(&self, user: u32) -> bool {
        kept(&self.lock(), user).0 > 0
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u32, Arc<Region>)>> {
        // The list is consistent after every step, even if a thread panics.
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the context of a region is gone: without another reference in this process, no further descriptor can be made.
fn is_gone(region: &Arc<Region>) -> bool {
    Arc::strong_count(region) == 1
}

/// Number and bytes of regions of removed contexts that a user keeps.
fn kept(regions: &[(u32, Arc<Region>)], user: u32) -> (usize, u64) {
    let theirs = regions.iter().filter(|(of, region)| *of == user && is_gone(region));
    theirs.fold((0, 0), |(count, bytes), (_, region)| (count + 1, bytes + region.len()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spin_shm::Region;

    use super::{MAX_KEPT, QuotaError, SharedMemoryQuota};

    /// Bytes that a user may keep.
    const MOST: u64 = 100 << 12;

    fn region(len: u64) -> Arc<Region> {
        Arc::new(Region::create(len).expect("memory"))
    }

    #[test]
    fn a_user_over_the_quota_gets_no_descriptor_until_some_are_closed() {
        let quota = SharedMemoryQuota::default();
        let lives = region(1 << 20);
        let _theirs = quota.share(7, &lives, MOST).expect("the first");
        let share = |len: u64| {
            let region = region(len);
            quota.share(7, &region, MOST).map(|fd| Region::from_fd(fd, len).expect("a region"))
        };
        let mut kept: Vec<Region> = (0..MAX_KEPT).map(|_| share(1 << 12).expect("few")).collect();
        kept.iter().for_each(|region| region.write(0, &[1]).expect("within it"));
        let refused = share(1 << 12).expect_err("too many");
        assert!(matches!(refused, QuotaError::Kept { count: MAX_KEPT, bytes: 65536, most: 409_600 }), "{refused}");
        quota.share(7, &lives, MOST).expect("that it has already");
        quota.share(8, &region(1 << 12), MOST).expect("another's do not count");
        let mut byte = [0];
        assert!(kept.iter().all(|region| region.read(0, &mut byte).is_ok() && byte == [1]), "nothing is lost");
        kept.truncate(3);
        assert!(quota.keeps(7));
        kept.push(share(98 << 12).expect("there is room again"));
        assert!(matches!(share(1 << 12), Err(QuotaError::Kept { count: 4, .. })), "many bytes");
        drop(kept);
        quota.sweep();
        assert!(!quota.keeps(7) && quota.lock().len() == 1, "what lives is known");
    }
}
