//! Frames on their way through a direction of a relay.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::settings::Rate;

/// When a frame leaves, its number, and its bytes.
type Waiting = (Duration, u64, Box<[u8]>);

/// Frames, and the times when they leave. Times count from any fixed moment.
#[derive(Debug)]
pub struct Queue {
    rate: Option<Rate>,
    limit: usize,
    /// The next frame to leave is on top. Of equal times, the one that came first.
    frames: BinaryHeap<Reverse<Waiting>>,
    arrived: u64,
    /// Time when the last frame in order leaves. Those behind it leave later.
    last: Duration,
    /// Time when the wire is free.
    free: Duration,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(rate: Option<Rate>, limit: usize) -> Self {
        Self { rate, limit, frames: BinaryHeap::new(), arrived: 0, last: Duration::ZERO, free: Duration::ZERO }
    }

    /// Adds a frame that arrives at `now` and is delayed. With `overtakes` it may leave before earlier ones. Returns whether there was room.
    pub fn add(&mut self, now: Duration, frame: Box<[u8]>, delay: Duration, overtakes: bool) -> bool {
        if self.frames.len() >= self.limit {
            return false;
        }
        let due = now + delay;
        let due = if overtakes { due } else { due.max(self.last) };
        if !overtakes {
            self.last = due;
        }
        self.arrived += 1;
        self.frames.push(Reverse((due, self.arrived, frame)));
        true
    }

    /// Time when the next frame leaves.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        self.frames.peek().map(|Reverse((due, ..))| (*due).max(self.free))
    }

    /// Takes a frame that leaves at `now` or has left before. Its bits occupy the wire for their time.
    pub fn take(&mut self, now: Duration) -> Option<Box<[u8]>> {
        let start = self.next().filter(|&due| due <= now)?;
        let Reverse((.., frame)) = self.frames.pop()?;
        if let Some(rate) = self.rate {
            self.free = start + rate.time_of(frame.len());
        }
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Queue, Rate};

    const MS: Duration = Duration::from_millis(1);

    fn frame(number: u8) -> Box<[u8]> {
        vec![number; 125].into()
    }

    /// Numbers of frames, and milliseconds at which they leave.
    fn left(queue: &mut Queue) -> Vec<(u8, u128)> {
        std::iter::from_fn(|| {
            let due = queue.next()?;
            assert!(queue.take(due - Duration::from_nanos(1)).is_none(), "not before its time");
            Some((queue.take(due).expect("it is due")[0], due.as_millis()))
        })
        .collect()
    }

    #[test]
    fn frames_keep_their_order_unless_they_overtake() {
        let mut queue = Queue::new(None, 10);
        for (number, arrival, delay, overtakes) in
            [(1, 0, 10, false), (2, 1, 4, false), (3, 2, 0, true), (4, 3, 10, false), (5, 10, 0, false)]
        {
            assert!(queue.add(MS * arrival, frame(number), MS * delay, overtakes));
        }
        assert_eq!(left(&mut queue), [(3, 2), (1, 10), (2, 10), (4, 13), (5, 13)]);
    }

    #[test]
    fn a_rate_spaces_frames_and_a_full_queue_refuses() {
        // 125 bytes take a millisecond.
        let mut queue = Queue::new(Some(Rate(1_000_000)), 3);
        let taken: Vec<_> = (1..=5).map(|number| queue.add(MS, frame(number), Duration::ZERO, false)).collect();
        assert_eq!(taken, [true, true, true, false, false]);
        assert_eq!(left(&mut queue), [(1, 1), (2, 2), (3, 3)]);
        assert!(queue.add(MS * 9, frame(6), Duration::ZERO, false));
        assert_eq!(left(&mut queue), [(6, 9)], "an idle wire saves nothing up");
    }
}
