//! Addresses at which shared regions are entered.
//!
//! Large images call from region to region thousands of times per packet. A binary search of all addresses took two
//! fifths of that time, mostly for branches that were not predicted.

/// An address at which a shared region is entered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(super) pc: u32,
    /// Index of the region.
    pub(crate) region: u32,
    /// Value of [`State::resume`](super::State::resume) to enter it there.
    pub(crate) resume: u32,
}

/// Buckets per point, on average at least: most buckets hold one point or none.
const SPREAD: usize = 4;

/// Points in buckets of adjacent addresses.
#[derive(Debug, Default)]
pub(super) struct EntryPoints {
    /// Ascending addresses.
    points: Vec<Point>,
    /// By bucket, the index of its first point; then their number.
    starts: Vec<u32>,
    /// Address at which the first bucket begins.
    first: u32,
    /// Logarithm of a bucket's number of addresses.
    shift: u32,
}

impl EntryPoints {
    pub(super) fn new(mut points: Vec<Point>) -> Self {
        points.sort_unstable_by_key(|point| point.pc);
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return Self::default() };
        let (first, span) = (first.pc, last.pc - first.pc);
        let fits = |shift: &u32| (span >> shift) as usize <= points.len() * SPREAD;
        // With the largest shift there are two buckets at most.
        let shift = (1..31).find(fits).unwrap_or(31);
        // A translation has fewer points than a u32 has numbers.
        let before = |bucket: u32| points.partition_point(|point| (point.pc - first) >> shift < bucket) as u32;
        let starts = (0..=(span >> shift) + 1).map(before).collect();
        Self { points, starts, first, shift }
    }

    /// First address at which a region is entered.
    pub(super) fn first_of(&self, region: usize) -> Option<u32> {
        self.points.iter().find(|point| point.region as usize == region).map(|point| point.pc)
    }

    /// The point at `pc`.
    pub(super) fn find(&self, pc: u32) -> Option<Point> {
        let bucket = (pc.checked_sub(self.first)? >> self.shift) as usize;
        let (&start, &end) = (self.starts.get(bucket)?, self.starts.get(bucket + 1)?);
        let near = self.points.get(start as usize..end as usize)?;
        let index = near.binary_search_by_key(&pc, |point| point.pc).ok()?;
        near.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::{EntryPoints, Point};

    #[test]
    fn every_point_is_found_and_nothing_else() {
        let near: Vec<u32> = (0..100).map(|number| 0x1d00_0000 + number * number * 2).collect();
        let sets = [vec![], vec![0x1000], vec![0, u32::MAX - 1], vec![2, 4, 6, 8, 0x8000_0000], near];
        for set in sets {
            let point = |(number, &pc): (u32, &u32)| Point { pc, region: number, resume: 1 };
            let mut shuffled: Vec<Point> = (0..).zip(&set).map(point).collect();
            shuffled.reverse();
            let points = EntryPoints::new(shuffled);
            for (number, &pc) in (0_u32..).zip(&set) {
                assert_eq!(points.find(pc).map(|point| point.region), Some(number), "{pc:#x}");
            }
            let others = set.iter().flat_map(|pc| [pc.wrapping_sub(2), pc.wrapping_add(2)]).chain([0, u32::MAX]);
            for pc in others.filter(|pc| !set.contains(pc)) {
                assert!(points.find(pc).is_none(), "{pc:#x}");
            }
        }
    }
}
