//! The NIC inbound engine's first half: receiving, and which context and message a frame belongs to.

use spin_abi::counters::Counter;
use spin_matcher::{MessageKey, Table};
use spin_nic::{Frame, Queue};

use crate::context::Slot;
use crate::counts::Counts;

/// Frames taken from the NIC at once.
pub const BATCH: usize = 64;
/// How many frames ahead the next one's headers are asked for: far enough for memory to answer, near enough to be there
/// still.
const AHEAD: usize = 8;

/// A frame on its way to its message's queue.
#[derive(Debug)]
pub struct Arrival {
    /// The frame.
    pub frame: Frame,
    /// Its context.
    pub slot: Slot,
    /// Its message, among the context's.
    pub key: MessageKey,
    /// It is its message's last.
    pub end_of_message: bool,
}

/// Where frames go: compiled rules, and the contexts they lead to.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// What the NIC is told, and what decides here.
    pub table: Table,
    /// By place in the table, which is the order of priority.
    pub slots: Vec<Slot>,
}

impl Routes {
    /// A frame's context, and whether it is its message's last; `None` if it belongs to none. `key` becomes its message's.
    #[inline]
    pub fn find(&self, frame: &[u8], key: &mut MessageKey) -> Option<(Slot, bool)> {
        let (index, end_of_message) = self.table.find(frame, key)?;
        Some((self.slots[index], end_of_message))
    }
}

/// Frames that were received and are yet to be matched.
#[derive(Debug)]
pub struct Inbound {
    /// Last ones first.
    frames: Vec<Frame>,
}

impl Default for Inbound {
    fn default() -> Self {
        Self { frames: Vec::with_capacity(BATCH) }
    }
}

impl Inbound {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Takes a batch of at most `most` frames from the NIC, when there is none left. Returns how many there are.
    #[inline]
    pub fn receive(&mut self, nic: &mut dyn Queue, most: usize, counts: &mut Counts) -> usize {
        let arrived = nic.receive(&mut self.frames, most);
        self.frames.iter().take(AHEAD).for_each(Frame::prefetch);
        self.frames.reverse();
        counts.add(Counter::RxPackets, arrived as u64);
        counts.add(Counter::RxBytes, self.frames.iter().map(|frame| frame.len() as u64).sum());
        arrived
    }

    /// The next one.
    #[inline]
    pub fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        if let Some(later) = self.frames.len().checked_sub(AHEAD).and_then(|index| self.frames.get(index)) {
            later.prefetch();
        }
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use spin_matcher::{MessageKey, Table, TableEntry};
    use spin_nic::{Queue, Rotation};

    use super::Routes;
    use crate::context::Slot;

    #[test]
    fn frames_go_to_the_slot_at_their_rule_s_place() {
        let entry = |rule: &str| TableEntry { rules: rule.parse().expect("a rule"), ..TableEntry::default() };
        let table = Table::new(&[entry("frame[14:1] = 1"), entry("frame[14:1] = 2")]).expect("few tests");
        let routes = Routes { table, slots: vec![Slot(7), Slot(3)] };
        let frames: Vec<_> = (1..4).map(|number| [vec![0; 14], vec![number; 46]].concat()).collect();
        let mut received = Vec::new();
        Rotation::new(&frames, 60, 0).expect("short frames").receive(&mut received, 3);
        let mut key = MessageKey::default();
        let found: Vec<_> = received.iter().map(|frame| routes.find(frame, &mut key).map(|(slot, _)| slot)).collect();
        assert_eq!(found, [Some(Slot(7)), Some(Slot(3)), None]);
    }
}
