//! Memory that applications have descriptors of. It stays as long as they keep these, whatever becomes of its context: so whoever
//! installs and removes again and again could take all there is. So who keeps more of contexts that are gone than he may gets no new. That is
//! looked at when one is asked for: what he has of contexts that are there he keeps when these go, however much it is. So he has no more
//! at a time than that bound and what contexts that are there at the same time may have.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spin_shm::{Region, RegionError};

/// Regions of contexts that are gone, that a user may keep.
const MOST: usize = 16;

/// Why a user gets no descriptor.
#[derive(Debug, thiserror::Error)]
pub enum HandError {
    /// It has too much already.
    #[error(
        "you keep {bytes} bytes of memory of {count} contexts that are gone (at most {MOST}, and {most} bytes): close it first"
    )]
    Kept {
        /// How much.
        bytes: u64,
        /// Of how many.
        count: usize,
        /// How much it may keep.
        most: u64,
    },
    /// The system refuses.
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// By user. A context that is there has its regions too.
#[derive(Debug)]
pub struct Handed {
    regions: Mutex<Vec<(u32, Arc<Region>)>>,
    /// Bytes of contexts that are gone, that a user may keep.
    bytes: u64,
}

impl Handed {
    /// A user may keep `bytes` of contexts that are gone.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self { regions: Mutex::new(Vec::new()), bytes }
    }

    /// A descriptor for a user of a region that its context has.
    ///
    /// # Errors
    /// See [`HandError`].
    pub fn share(&self, user: u32, region: &Arc<Region>) -> Result<OwnedFd, HandError> {
        self.sweep();
        let mut regions = self.lock();
        if !regions.iter().any(|(_, known)| Arc::ptr_eq(known, region)) {
            let (count, bytes) = kept(&regions, user);
            if count >= MOST || bytes > self.bytes {
                return Err(HandError::Kept { bytes, count, most: self.bytes });
            }
            regions.push((user, region.clone()));
        }
        Ok(region.share()?)
    }

    /// Frees what nobody has any more.
    pub fn sweep(&self) {
        // What cannot be told is kept.
        self.lock().retain(|(_, region)| !is_gone(region) || !region.reclaim().unwrap_or(false));
    }

    /// Whether a user keeps some of contexts that are gone.
    pub fn keeps(&self, user: u32) -> bool {
        kept(&self.lock(), user).0 > 0
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u32, Arc<Region>)>> {
        // Every step leaves it whole.
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the context of a region is gone: what nobody else in this process has cannot be handed to anybody any more.
fn is_gone(region: &Arc<Region>) -> bool {
    Arc::strong_count(region) == 1
}

/// Regions of contexts that are gone, that a user has, and bytes.
fn kept(regions: &[(u32, Arc<Region>)], user: u32) -> (usize, u64) {
    let theirs = regions.iter().filter(|(of, region)| *of == user && is_gone(region));
    theirs.fold((0, 0), |(count, bytes), (_, region)| (count + 1, bytes + region.len()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spin_shm::Region;

    use super::{HandError, Handed, MOST};

    fn region(len: u64) -> Arc<Region> {
        Arc::new(Region::create(len).expect("memory"))
    }

    #[test]
    fn who_keeps_much_of_what_is_gone_gets_no_more_until_it_is_let_go() {
        let handed = Handed::new(100 << 12);
        let lives = region(1 << 20);
        let _theirs = handed.share(7, &lives).expect("the first");
        let share = |len: u64| {
            let region = region(len);
            handed.share(7, &region).map(|fd| Region::from_fd(fd, len).expect("a region"))
        };
        let mut kept: Vec<Region> = (0..MOST).map(|_| share(1 << 12).expect("few")).collect();
        kept.iter().for_each(|region| region.write(0, &[1]).expect("within it"));
        let refused = share(1 << 12).expect_err("too many");
        assert!(matches!(refused, HandError::Kept { count: MOST, bytes: 65536, most: 409_600 }), "{refused}");
        handed.share(7, &lives).expect("that it has already");
        handed.share(8, &region(1 << 12)).expect("another's do not count");
        let mut byte = [0];
        assert!(kept.iter().all(|region| region.read(0, &mut byte).is_ok() && byte == [1]), "nothing is lost");
        kept.truncate(3);
        assert!(handed.keeps(7));
        kept.push(share(98 << 12).expect("there is room again"));
        assert!(matches!(share(1 << 12), Err(HandError::Kept { count: 4, .. })), "many bytes");
        drop(kept);
        handed.sweep();
        assert!(!handed.keeps(7) && handed.lock().len() == 1, "what lives is known");
    }
}
