//! The units and workers that run a context.

/// Neighbouring units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitRange {
    /// The first one.
    pub first: u32,
    /// Their number, at least 1.
    pub count: u32,
}

impl UnitRange {
    /// One unit.
    #[must_use]
    pub const fn one(unit: u32) -> Self {
        Self { first: unit, count: 1 }
    }

    /// The position of a unit among these, if it is one of them.
    #[must_use]
    pub fn rank(&self, unit: u32) -> Option<u32> {
        unit.checked_sub(self.first).filter(|&rank| rank < self.count)
    }
}

/// Neighbouring workers, by their index in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerRange {
    /// The first one.
    pub first: u16,
    /// Their number, at least 1.
    pub count: u16,
}

impl WorkerRange {
    /// All workers.
    pub const ALL: Self = Self { first: 0, count: u16::MAX };

    /// Whether a worker is one of these.
    #[must_use]
    #[inline]
    pub const fn contains(&self, worker: u16) -> bool {
        worker.wrapping_sub(self.first) < self.count
    }

    /// The worker for messages of this hash. Uses other bits than the choice of the home cluster within a worker.
    #[must_use]
    #[inline]
    pub const fn of_hash(&self, hash: u32) -> u16 {
        self.first + (((hash >> 16) * self.count as u32) >> 16) as u16
    }
}

/// Where a context's packets run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The workers that run the context.
    pub workers: WorkerRange,
    /// Whether the message's key chooses the worker, whatever queue the packet arrives on. FPsPIN's message ids do: packets of several
    /// senders belong to one message.
    pub by_key: bool,
}

impl Home {
    /// Each worker runs the packets that arrive there.
    pub const ANYWHERE: Self = Self { workers: WorkerRange::ALL, by_key: false };

    /// The worker that a packet of this hash is handed to when it arrives at `worker`. `None`: it runs there.
    #[must_use]
    #[inline]
    pub fn handed_to(&self, worker: u16, hash: impl FnOnce() -> u32) -> Option<u16> {
        if !self.by_key && self.workers.contains(worker) {
            return None;
        }
        Some(self.workers.of_hash(hash())).filter(|&to| to != worker)
    }

    /// Whether packets that arrive at `worker` may be handed to others.
    #[must_use]
    pub const fn leaves(&self, worker: u16) -> bool {
        self.by_key || !self.workers.contains(worker)
    }
}

#[cfg(test)]
mod tests {
    use super::{Home, UnitRange, WorkerRange};

    #[test]
    fn a_packet_runs_where_it_arrives_unless_its_context_or_its_key_says_otherwise() {
        let home = Home { workers: WorkerRange { first: 4, count: 4 }, by_key: false };
        for worker in 0..12 {
            let to: Vec<_> = (0..8).map(|part| home.handed_to(worker, || part << 29)).collect();
            if (4..8).contains(&worker) {
                assert_eq!(to, [None; 8]);
            } else {
                assert_eq!(to, [4, 4, 5, 5, 6, 6, 7, 7].map(Some));
            }
            assert_eq!(home.leaves(worker), to[0].is_some());
        }
        let by_key = Home { by_key: true, ..home };
        assert_eq!([0, 1, 2, 3].map(|part| by_key.handed_to(5, || part << 30)), [Some(4), None, Some(6), Some(7)]);
        assert!((0..100).all(|worker| Home::ANYWHERE.handed_to(worker, || 7).is_none()));
    }

    #[test]
    fn ranks_count_from_the_first_unit() {
        let units = UnitRange { first: 3, count: 2 };
        assert_eq!([2, 3, 4, 5].map(|unit| units.rank(unit)), [None, Some(0), Some(1), None]);
    }
}
