//! Virtual-time accounts of the [scheduler](crate::sched::scheduler), for users and for contexts.

/// Maximum weight of a user or of a context.
pub const MOST_WEIGHT: u32 = 1000;

/// A virtual-time account.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchedEntity {
    pub(super) weight: u32,
    /// Virtual time: the cost of its tasks, times [`MOST_WEIGHT`], divided by its weight.
    pub(super) vruntime: u64,
    /// The number of its latest pick.
    pub(super) picked: u64,
}

impl SchedEntity {
    /// An account that begins at the virtual time `now`.
    pub(super) const fn new(weight: u32, now: u64) -> Self {
        Self { weight, vruntime: now, picked: 0 }
    }

    /// The start tag: the virtual time, at least `least`, and the number of the latest pick.
    #[inline]
    pub(super) fn start_tag(&self, least: u64) -> (u64, u64) {
        (self.vruntime.max(least), self.picked)
    }

    /// Adds a cost to the account.
    #[inline]
    pub(super) fn add(&mut self, cost: u64) {
        let share = cost.saturating_mul(MOST_WEIGHT.into()) / u64::from(self.weight);
        self.vruntime = self.vruntime.saturating_add(share);
    }
}
