//! Memory that applications have descriptors of. It stays as long as they keep these, whatever becomes of its context: so whoever
//! installs and removes again and again could take all there is. What a user may keep of contexts that are gone is bounded, and the
//! oldest of it is emptied for what is new.

use std::sync::{Arc, Mutex, PoisonError};

use spin_shm::Region;

/// Regions of contexts that are gone, that a user may keep.
const MOST: usize = 16;

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

    /// A user is about to get the descriptor of a region that its context has.
    pub fn note(&self, user: u32, region: &Arc<Region>) {
        // Every step leaves it whole.
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        if !regions.iter().any(|(_, known)| Arc::ptr_eq(known, region)) {
            regions.push((user, region.clone()));
        }
        let (mut count, mut bytes) = (0, 0);
        // The newest first. One that nobody else in this process has cannot be handed to anybody any more.
        for index in (0..regions.len()).rev() {
            let (of, region) = &regions[index];
            if *of != user || Arc::strong_count(region) > 1 {
                continue;
            }
            (count, bytes) = (count + 1, bytes + region.len());
            if count > MOST || bytes > self.bytes {
                region.empty();
                regions.remove(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spin_shm::Region;

    use super::{Handed, MOST};

    fn region(len: u64) -> Arc<Region> {
        let region = Region::create(len).expect("memory");
        region.write(0, &[1]).expect("within it");
        Arc::new(region)
    }

    /// What an application has of it.
    fn other(region: &Region) -> Region {
        let fd = region.fd().try_clone_to_owned().expect("a descriptor");
        Region::from_fd(fd, region.len()).expect("the same memory")
    }

    fn is_there(region: &Region) -> bool {
        let mut byte = [0];
        region.read(0, &mut byte).expect("within it");
        byte == [1]
    }

    #[test]
    fn the_oldest_of_what_is_gone_is_emptied() {
        let handed = Handed::new(100 << 12);
        let lives = region(1 << 20);
        handed.note(7, &lives);
        let kept: Vec<Region> = (0..20)
            .map(|_| {
                let region = region(1 << 12);
                handed.note(7, &region);
                other(&region)
            })
            .collect();
        // The last one was there when it was noted.
        let there: Vec<bool> = kept.iter().map(is_there).collect();
        assert_eq!(there, (0..20).map(|index| index >= 20 - 1 - MOST).collect::<Vec<_>>());
        assert!(is_there(&lives), "its context is there");
        // Another's do not count, and are not touched.
        let theirs = region(90 << 12);
        handed.note(8, &theirs);
        let (others, gone) = (other(&theirs), theirs);
        drop(gone);
        let large = region(99 << 12);
        handed.note(7, &large);
        let (last, gone) = (other(&large), large);
        drop(gone);
        handed.note(7, &lives);
        assert!(
            is_there(&last) && is_there(&kept[19]) && !is_there(&kept[18]) && is_there(&others) && is_there(&lives)
        );
        // Noted again it counts once.
        (0..100).for_each(|_| handed.note(7, &lives));
        assert!(is_there(&last) && is_there(&kept[19]));
    }
}
