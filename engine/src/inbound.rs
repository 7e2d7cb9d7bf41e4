//! The NIC inbound engine's matching: which context and message a frame belongs to.

use spin_matcher::{Headers, MessageKey, Table};
use spin_nic::Frame;

use crate::context::Slot;

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
    /// Finds a frame's context and message.
    ///
    /// # Errors
    /// Gives back a frame that belongs to none.
    #[inline]
    pub fn find(&self, frame: Frame) -> Result<Arrival, Frame> {
        let headers = Headers::parse(&frame);
        match self.table.match_frame(&frame, &headers) {
            Some(found) => {
                let slot = self.slots[found.index];
                Ok(Arrival { frame, slot, key: found.key, end_of_message: found.eom })
            }
            None => Err(frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use spin_matcher::{Table, TableEntry};
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
        let found: Vec<_> = received.drain(..).map(|frame| routes.find(frame).map(|found| found.slot).ok()).collect();
        assert_eq!(found, [Some(Slot(7)), Some(Slot(3)), None]);
    }
}
