//! Pending events in the order of their times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::time::Picos;

/// An event and its time. A sequence number orders events of the same time by insertion.
#[derive(Debug)]
struct Foreseen<E> {
    at: Picos,
    number: u64,
    event: E,
}

impl<E> Ord for Foreseen<E> {
    /// Reverses the order, since the heap returns its greatest element first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Foreseen<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Foreseen<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Foreseen<E> {}

/// Queue of pending events.
#[derive(Debug)]
pub struct Events<E> {
    heap: BinaryHeap<Foreseen<E>>,
    number: u64,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), number: 0 }
    }
}

impl<E> Events<E> {
    /// Schedules an event.
    pub fn add(&mut self, at: Picos, event: E) {
        self.number += 1;
        self.heap.push(Foreseen { at, number: self.number, event });
    }

    /// Takes the next event before `end`.
    pub fn next(&mut self, end: Picos) -> Option<(Picos, E)> {
        // With `end` at `Picos::MAX`, events at the last moment are included.
        let next = self.heap.peek().is_some_and(|next| next.at < end || end == Picos::MAX);
        if next { self.heap.pop().map(|next| (next.at, next.event)) } else { None }
    }

    /// Whether no event is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Events;

    #[test]
    fn events_happen_in_order_of_time_and_then_as_they_were_foreseen() {
        let mut events = Events::default();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (u64::MAX, 'e')] {
            events.add(at, event);
        }
        let mut before = |end| std::iter::from_fn(|| events.next(end)).map(|(_, event)| event).collect::<String>();
        assert_eq!([before(3), before(5), before(6)], ["", "ab", "cd"]);
        assert_eq!([before(u64::MAX - 1), before(u64::MAX)], ["", "e"], "the last moment comes too");
        assert!(events.is_empty());
    }
}
