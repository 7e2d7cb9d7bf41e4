//! Faults that a program keeps in a processor's slot.

use spin_abi::fault::{Cause, Fault};

use super::layout::{FAULT_ENTRY, FAULT_RING, FAULTS};

/// The faults of a slot behind the first `seen`, oldest first, without those that newer ones have overwritten. The caller has the
/// [count](super::layout::Counter::Faults) of them from before it read the slot.
#[must_use]
pub fn after(slot: &[u8], seen: u64, count: u64) -> Vec<Fault> {
    let first = seen.max(count.saturating_sub(FAULTS.into()));
    (first..count).filter_map(|number| fault(slot, number)).collect()
}

fn fault(slot: &[u8], number: u64) -> Option<Fault> {
    let entry = (FAULT_RING as usize) + (number % u64::from(FAULTS)) as usize * FAULT_ENTRY as usize;
    let word = |at: usize| slot.get(entry + at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let code = word(0)?;
    let cause = Cause::ALL.into_iter().find(|cause| cause.code() == code)?;
    Some(Fault { cause, pc: word(4)?, address: word(8)? })
}

#[cfg(test)]
mod tests {
    use spin_abi::fault::{Cause, Fault};

    use super::after;
    use crate::bpf::layout::{Counter, Counters, FAULT_ENTRY, FAULT_RING, SLOT};

    /// A slot with the faults that a program has written, one behind the other.
    fn slot(faults: u32) -> Vec<u8> {
        let mut slot = vec![0; SLOT as usize];
        for number in 0..faults {
            let entry = (FAULT_RING + number % 16 * FAULT_ENTRY) as usize;
            for (at, word) in [(0, Cause::LoadAccess.code()), (4, 0x1d00_0000 + number), (8, number)] {
                slot[entry + at..][..4].copy_from_slice(&u32::to_ne_bytes(word));
            }
        }
        slot[Counter::Faults.offset() as usize..][..8].copy_from_slice(&u64::from(faults).to_ne_bytes());
        slot
    }

    #[test]
    fn the_latest_faults_are_read_once() {
        let fault = |number| Fault { cause: Cause::LoadAccess, pc: 0x1d00_0000 + number, address: number };
        for (faults, seen, expected) in [(0, 0, 0..0), (3, 0, 0..3), (3, 2, 2..3), (3, 3, 3..3), (40, 5, 24..40)] {
            let slot = slot(faults);
            let count = Counters::sum(&slot).get(Counter::Faults);
            assert_eq!(count, u64::from(faults));
            assert_eq!(after(&slot, seen, count), expected.map(fault).collect::<Vec<_>>(), "{faults}, {seen}");
        }
    }
}
