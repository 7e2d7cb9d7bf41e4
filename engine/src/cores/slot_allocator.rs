//! Ids and slots of contexts.

use crate::install::ContextHandle;
use spin_pspin::ids::Slot;

/// Allocates ids and slots of contexts. All threads have to agree on them, but a replaced context leaves each thread at a
/// different time.
#[derive(Debug, Default)]
pub struct SlotAllocator {
    /// The id of the context installed last.
    last: u32,
    /// Whether a thread had a context in a slot at the last update, by slot.
    taken: Vec<bool>,
}

impl SlotAllocator {
    /// Allocates a new id, and a slot that is free on all threads.
    pub fn next(&mut self) -> ContextHandle {
        self.last += 1;
        self.with_id(self.last)
    }

    /// Lets new ids begin behind `last`.
    pub fn reserve_ids(&mut self, last: u32) {
        self.last = self.last.max(last);
    }

    /// Allocates a slot that is free on all threads, for the context `id` of an earlier run.
    pub fn with_id(&mut self, id: u32) -> ContextHandle {
        let index = self.taken.iter().position(|taken| !taken).unwrap_or_else(|| {
            self.taken.push(false);
            self.taken.len() - 1
        });
        self.taken[index] = true;
        #[allow(clippy::cast_possible_truncation, reason = "bounded by limits.contexts and the table's tests")]
        ContextHandle { id, slot: Slot(index as u32) }
    }

    /// Frees a slot that no thread has used.
    pub fn give_back(&mut self, slot: Slot) {
        self.taken.get_mut(slot.0 as usize).into_iter().for_each(|taken| *taken = false);
    }

    /// Records which slots each thread uses.
    pub fn update(&mut self, threads: &[Vec<bool>]) {
        let slots = threads.iter().map(Vec::len).max().unwrap_or(0);
        let taken = |slot| threads.iter().any(|taken| taken.get(slot).is_some_and(|taken| *taken));
        self.taken = (0..slots).map(taken).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::SlotAllocator;

    #[test]
    fn a_slot_is_free_when_it_is_free_on_all_threads() {
        let mut allocator = SlotAllocator::default();
        let slots = |allocator: &mut SlotAllocator, count: usize| -> Vec<u32> {
            (0..count).map(|_| allocator.next().slot.0).collect()
        };
        assert_eq!(slots(&mut allocator, 3), [0, 1, 2]);
        // A replaced context has left one of two threads.
        allocator.update(&[vec![false, true, true], vec![true, true, true]]);
        assert_eq!(slots(&mut allocator, 1), [3]);
        allocator.update(&[vec![false, true], vec![false, true, false, true]]);
        assert_eq!(slots(&mut allocator, 3), [0, 2, 4]);
        assert_eq!(allocator.last, 7, "ids are never used again");
        allocator.reserve_ids(20);
        let restored = allocator.with_id(9);
        assert_eq!((restored.id, allocator.next().id), (9, 21), "a restored context has an id of its own");
        allocator.reserve_ids(5);
        assert_eq!(allocator.next().id, 22);
    }
}
