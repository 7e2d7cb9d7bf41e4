//! How many packets are worth taking at a time, when the frames for what their tasks send come from this thread itself, between two turns: a
//! task finds no more than there are at hand.

use spin_nic::Queue;

use crate::handover::FRESH;

/// Frames that the tasks of a packet asked for, of late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fanout {
    /// At the most; it is forgotten by and by.
    most: usize,
    /// That there were when the turn began.
    at_hand: Option<usize>,
}

impl Default for Fanout {
    /// Nothing is known yet.
    fn default() -> Self {
        Self { most: FRESH, at_hand: None }
    }
}

impl Fanout {
    /// A turn begins. Returns for how many packets there are frames enough: none, until others are given up waiting for.
    pub(crate) fn begin(&mut self, nic: &dyn Queue) -> usize {
        self.at_hand = nic.at_hand();
        match self.at_hand.map(|frames| frames / self.most) {
            None => usize::MAX,
            Some(0) => usize::from(self.most == 1),
            Some(packets) => packets,
        }
    }

    /// The turn took so many packets in.
    pub(crate) fn end(&mut self, nic: &dyn Queue, taken: usize) {
        let Some((before, after)) = self.at_hand.zip(nic.at_hand()) else { return };
        let each = before.saturating_sub(after).div_ceil(taken.max(1));
        self.most = each.max(self.most - self.most.div_ceil(8)).max(1);
    }
}

#[cfg(test)]
mod tests {
    use spin_nic::memory::pair;
    use spin_nic::{Bell, Queue};

    use super::Fanout;
    use crate::handover::{FRESH, lane};

    #[test]
    fn as_many_packets_are_taken_as_there_are_frames_for() {
        let bell = Bell::new().expect("an event");
        let (mut nic, _far) = pair(1024).expect("frames");
        let (mut lane, _arrivals, mut queue) = lane(1024, 2048, bell.clone(), bell);
        let mut fanout = Fanout::default();
        assert_eq!(fanout.begin(&queue), 0, "there is none");
        fanout.end(&queue, 0);
        let mut turn = |copies: usize, most: usize| {
            lane.hand_over(|| nic.allocate());
            let packets = fanout.begin(&queue).min(most);
            let mut used: Vec<_> = std::iter::from_fn(|| queue.allocate()).take(copies * packets).collect();
            let found = used.len();
            queue.recycle_all(&mut used);
            queue.flush().expect("a lane does not fail");
            lane.take_back(|frame, _| nic.recycle(frame));
            fanout.end(&queue, packets);
            (packets, found)
        };
        assert_eq!(turn(3, 128), (1, 3));
        let turns: Vec<_> = (0..100).map(|_| turn(3, 128)).collect();
        assert!(turns.iter().all(|&(packets, found)| found == 3 * packets), "{turns:?}");
        assert_eq!(turns[99], (FRESH / 3, FRESH / 3 * 3));
    }
}
