//! The units that run a context, as its handlers see them. A unit is a PsPIN unit: clusters, HPUs and message queues of its own.

use crate::map::TASK_BLOCK;
use crate::regs::{TASK_END, TASK_FIRST};

/// Offset in the task block, behind the task registers, of two words about units: see [`UnitIndex::words`].
pub const UNIT_WORDS: u32 = TASK_END - TASK_FIRST;
const _: () = assert!(UNIT_WORDS + 8 + crate::map::HANDLER_ARGS == TASK_BLOCK);

/// Bits of [`UnitIndex::hpus`] in its word.
const HPU_BITS: u32 = 8;

/// A unit among those that run a context. The unit with number `n` has `hpu_gid` from `n * hpus` and `flow_id` from `n * flows` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitIndex {
    /// Its number, from 0 on.
    pub number: u32,
    /// Number of units that run the context.
    pub units: u32,
    /// Number of HPUs of a unit, below 256.
    pub hpus: u32,
    /// Number of flow ids of a unit, below 2^24.
    pub flows: u32,
}

impl UnitIndex {
    /// The two words: number in the lower half and number of units in the upper half; number of HPUs in the lowest byte and number of
    /// flow ids above it.
    #[must_use]
    pub const fn words(self) -> [u32; 2] {
        [self.number | self.units << 16, self.hpus | self.flows << HPU_BITS]
    }

    /// The first `hpu_gid` of the unit.
    #[must_use]
    pub const fn first_hpu(self) -> u32 {
        self.number * self.hpus
    }

    /// The first `flow_id` of the unit.
    #[must_use]
    pub const fn first_flow(self) -> u32 {
        self.number * self.flows
    }
}
