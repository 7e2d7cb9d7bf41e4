//! The numbers by which handlers know queues, `flow_id`. Handlers index memory of their context by them, and all threads of a unit share
//! that memory. So no two queues of a unit have the same number.

use std::ops::Range;

use spin_abi::map::PSPIN_QUEUES;
use spin_pspin::ids::MessageRef;
use spin_pspin::mpq::MpqId;

/// The numbers of a worker's queues. Workers divide PsPIN's numbers by their clusters; each further queue has a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowNumbers {
    /// The number of queues that have one of PsPIN's numbers.
    pspin: u32,
    /// The number of the first queue.
    first: u32,
    /// The number of a further queue, less its index.
    further: u32,
    /// Packet mode: the numbers of each cluster.
    packet_flows: u32,
}

impl FlowNumbers {
    /// The numbers of a worker with `queues` queues and these clusters of a unit, which has `of`.
    pub(crate) const fn new(queues: u32, clusters: &Range<u32>, of: u32) -> Self {
        let (first, end) = (PSPIN_QUEUES * clusters.start / of, PSPIN_QUEUES * clusters.end / of);
        let share = end - first;
        let pspin = if queues < share { queues } else { share };
        Self { pspin, first, further: PSPIN_QUEUES + clusters.start * queues - pspin, packet_flows: PSPIN_QUEUES / of }
    }

    /// One more than the highest number of a unit with `clusters` clusters, whose workers have `queues` queues each.
    pub(crate) const fn end(queues: u32, clusters: u32) -> u32 {
        PSPIN_QUEUES + clusters * queues
    }

    /// The number of queues that have one of PsPIN's numbers. They come first.
    pub(crate) const fn pspin(&self) -> u32 {
        self.pspin
    }

    /// The number of a queue.
    #[inline(always)]
    pub(crate) const fn queue(&self, mpq: MpqId) -> u32 {
        mpq.0 + if mpq.0 < self.pspin { self.first } else { self.further }
    }

    /// The number of a message in a queue. In packet mode, that of a packet: one of its home cluster's, so that no other thread has it.
    #[inline(always)]
    pub(crate) const fn message(&self, message: &MessageRef, mpq: MpqId) -> u32 {
        match message.flow {
            Some(flow) => message.home() * self.packet_flows + ((flow as u32 * self.packet_flows) >> 8),
            None => self.queue(mpq),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use spin_pspin::mpq::MpqId;

    use super::{FlowNumbers, PSPIN_QUEUES};

    #[test]
    fn no_number_is_used_twice_in_a_unit() {
        for (of, queues) in (1..=4).flat_map(|of| [1, 40, 64, 100, 256, 1000].map(|queues| (of, queues))) {
            for threads in 1..=of {
                let share = |thread: u32| of * thread / threads;
                let mut seen = HashSet::new();
                let mut pspin = 0;
                for clusters in (0..threads).map(|thread| share(thread)..share(thread + 1)) {
                    let numbers = FlowNumbers::new(queues, &clusters, of);
                    for mpq in 0..queues {
                        let number = numbers.queue(MpqId(mpq));
                        assert!(seen.insert(number), "{clusters:?} of {of}, {queues} queues: {number} again");
                        assert!(number < FlowNumbers::end(queues, of));
                        assert_eq!(number < PSPIN_QUEUES, mpq < numbers.pspin());
                    }
                    pspin += numbers.pspin();
                }
                assert_eq!(pspin, PSPIN_QUEUES.min(threads * queues).min(pspin));
                assert!(threads > 1 || pspin == PSPIN_QUEUES.min(queues), "one thread has all of them");
            }
        }
    }
}
