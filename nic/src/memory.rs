//! A pair of connected ends in plain memory: what one sends, the other receives. Needs no NIC and no root.
//!
//! Each end may live in its own thread. A frame belongs to the end that allocated it: it travels to the peer through
//! one single-producer ring and comes home through another, so the frames of an end never run out because traffic
//! goes one way only.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::{PollFd, PollFlags};

use crate::bell::Bell;
use crate::counts::Counts;
use crate::error::NicError;
use crate::frame::{CHUNK, Frame, MIN_SEND, PoolId};
use crate::queue::{FEW, Queue};
use crate::steering::{Everything, Steering};
use crate::wait::{poll, timespec};

/// One end of a pair; see [`pair`].
pub struct MemoryQueue {
    pool: PoolId,
    peer: PoolId,
    free: Vec<Frame>,
    incoming: Consumer<Frame>,
    outgoing: Producer<Frame>,
    /// Own frames that the peer gave back.
    homecoming: Consumer<Frame>,
    /// The peer's frames on their way home. As large as the peer's pool, so it is never full.
    returning: Producer<Frame>,
    bell: Arc<Bell>,
    counts: Counts,
    /// Last, so that the peer is woken when the rings are already abandoned.
    peer_bell: PeerBell,
}

/// The peer's bell; rings a last time when dropped.
struct PeerBell(Arc<Bell>);

impl Drop for PeerBell {
    fn drop(&mut self) {
        self.0.ring();
    }
}

/// Two connected ends with `capacity` frames each; the rings between them hold as many.
///
/// # Errors
/// When `capacity` is 0 or the kernel gives no eventfd.
pub fn pair(capacity: usize) -> Result<(MemoryQueue, MemoryQueue), NicError> {
    if capacity == 0 {
        let must = "at least 1";
        return Err(NicError::Config { what: "the capacity of a memory queue", value: "0".to_owned(), must });
    }
    let (pool_a, pool_b) = (PoolId::new(), PoolId::new());
    let (bell_a, bell_b) = (Bell::new()?, Bell::new()?);
    let (to_b, from_a) = RingBuffer::new(capacity);
    let (to_a, from_b) = RingBuffer::new(capacity);
    let (home_to_b, home_from_a) = RingBuffer::new(capacity);
    let (home_to_a, home_from_b) = RingBuffer::new(capacity);
    let a = MemoryQueue {
        pool: pool_a,
        peer: pool_b,
        free: frames(pool_a, capacity),
        incoming: from_b,
        outgoing: to_b,
        homecoming: home_from_b,
        returning: home_to_b,
        bell: Arc::clone(&bell_a),
        counts: Counts::default(),
        peer_bell: PeerBell(Arc::clone(&bell_b)),
    };
    let b = MemoryQueue {
        pool: pool_b,
        peer: pool_a,
        free: frames(pool_b, capacity),
        incoming: from_a,
        outgoing: to_a,
        homecoming: home_from_a,
        returning: home_to_a,
        bell: bell_b,
        counts: Counts::default(),
        peer_bell: PeerBell(bell_a),
    };
    Ok((a, b))
}

fn frames(pool: PoolId, count: usize) -> Vec<Frame> {
    (0..count).map(|_| Frame::heap(pool)).collect()
}

impl MemoryQueue {
    fn sendable(&self, frame: &Frame) -> bool {
        (frame.is_of(self.pool) || frame.is_of(self.peer)) && frame.len() >= MIN_SEND
    }

    fn refuse(&mut self, frame: Frame) {
        if frame.is_of(self.pool) || frame.is_of(self.peer) {
            self.counts.tx_invalid += 1;
        }
        self.recycle(frame);
    }

    fn bring_home(&mut self) {
        while let Ok(mut frame) = self.homecoming.pop() {
            frame.reset();
            self.free.push(frame);
        }
    }
}

impl Queue for MemoryQueue {
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        let before = out.len();
        out.extend((0..max).map_while(|_| self.incoming.pop().ok()));
        let count = out.len() - before;
        self.counts.received += count as u64;
        count
    }

    fn is_short(&self) -> bool {
        self.free.len() < FEW
    }

    fn allocate(&mut self) -> Option<Frame> {
        if self.free.is_empty() {
            self.bring_home();
        }
        self.free.pop()
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        // Nobody takes what is sent to a peer that is gone; its frames would else pile up here.
        let gone = self.outgoing.is_abandoned();
        let count = if gone { batch.len() } else { batch.len().min(self.outgoing.slots()) };
        for frame in batch.drain(..count) {
            if !self.sendable(&frame) {
                self.refuse(frame);
            } else if gone {
                self.recycle(frame);
            } else if self.outgoing.push(frame).is_ok() {
                self.counts.sent += 1;
            }
        }
        self.peer_bell.0.ring();
        count
    }

    /// No frame is longer: the ends of a pair have heap frames only.
    fn max_frame(&self) -> usize {
        CHUNK
    }

    /// What was sent is the peer's already, and outlives this end.
    fn pending(&self) -> usize {
        0
    }

    /// There is no kernel here.
    fn pass(&mut self, batch: &mut Vec<Frame>) -> usize {
        let mut count = 0;
        for frame in batch.drain(..) {
            count += usize::from(frame.is_of(self.pool) || frame.is_of(self.peer));
            self.recycle(frame);
        }
        self.counts.passed += count as u64;
        count
    }

    fn recycle(&mut self, mut frame: Frame) {
        if frame.is_of(self.pool) {
            frame.reset();
            self.free.push(frame);
        } else if frame.is_of(self.peer) {
            // Never full, see the field.
            let _ = self.returning.push(frame);
        } else {
            self.counts.foreign_frames += 1;
        }
    }

    fn flush(&mut self) -> Result<(), NicError> {
        self.bring_home();
        Ok(())
    }

    fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<(), NicError> {
        self.bell.sleep(|bell| {
            if !self.incoming.is_empty() || self.incoming.is_abandoned() {
                return Ok(());
            }
            let fds = [Some(bell), wake].into_iter().flatten();
            let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            poll(&mut fds, &timespec(timeout))
        })
    }

    fn exhausted(&self) -> bool {
        // In this order: a peer that is gone pushes no more, so an empty ring stays empty.
        self.incoming.is_abandoned() && self.incoming.is_empty()
    }

    fn steering(&self) -> Arc<dyn Steering> {
        Arc::new(Everything)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.counts.named()
    }

    fn describe(&self) -> String {
        format!("memory: one end of a pair, {} frames a direction", self.outgoing.buffer().capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryQueue, pair};
    use crate::frame::{CHUNK, Frame};
    use crate::queue::Queue;
    use std::thread;
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(20);

    fn frame(queue: &mut MemoryQueue, bytes: &[u8]) -> Frame {
        let mut frame = queue.allocate().expect("a free frame");
        frame.fill(bytes).expect("fits");
        frame
    }

    fn numbered(queue: &mut MemoryQueue, number: u64) -> Option<Frame> {
        let mut frame = queue.allocate()?;
        frame.set_len(64).expect("fits");
        frame[..8].copy_from_slice(&number.to_le_bytes());
        Some(frame)
    }

    fn counter(queue: &mut MemoryQueue, name: &str) -> u64 {
        queue.counters().into_iter().find(|(known, _)| *known == name).expect("a known counter").1
    }

    #[test]
    fn frames_cross_and_come_home() {
        let (mut a, mut b) = pair(2).expect("a pair");
        let mut out = Vec::new();
        // More rounds than either pool has frames: they must come home though traffic goes one way only.
        for round in 0..10_u8 {
            let mut batch = vec![frame(&mut a, &[round; 60]), frame(&mut a, &[round; 61])];
            assert!(a.allocate().is_none(), "both frames are out");
            assert_eq!((a.send(&mut batch), batch.len()), (2, 0));
            assert_eq!(b.receive(&mut out, 8), 2);
            assert_eq!((&*out[0], &*out[1]), (&[round; 60][..], &[round; 61][..]));
            out.drain(..).for_each(|frame| b.recycle(frame));
            a.flush().expect("flush");
        }
        assert_eq!((counter(&mut a, "tx_frames"), counter(&mut b, "rx_frames")), (20, 20));
    }

    #[test]
    fn the_longest_frame_crosses_and_nothing_is_pending() {
        let (mut a, mut b) = pair(1).expect("a pair");
        assert_eq!(a.max_frame(), CHUNK);
        let mut batch = vec![frame(&mut a, &[7; CHUNK])];
        a.send(&mut batch);
        assert_eq!(a.pending(), 0);
        drop(a);
        assert_eq!((b.receive(&mut batch, 1), batch[0].len()), (1, CHUNK));
    }

    #[test]
    fn a_received_frame_can_be_sent_back() {
        let (mut a, mut b) = pair(1).expect("a pair");
        let mut batch = vec![frame(&mut a, &[1; 60])];
        a.send(&mut batch);
        let mut out = Vec::new();
        b.receive(&mut out, 1);
        out[0][0] = 9;
        out[0].trim(0, 20).expect("within");
        assert_eq!(b.send(&mut out), 1);
        a.receive(&mut out, 1);
        assert_eq!(&out[0][..2], &[9, 1]);
        assert_eq!(out[0].len(), 20);
        a.recycle(out.remove(0));
        assert_eq!(a.allocate().expect("home again").len(), 0);
    }

    #[test]
    fn what_does_not_fit_stays_in_order() {
        let (mut a, mut b) = pair(4).expect("a pair");
        let mut batch: Vec<_> = (0..3).filter_map(|number| numbered(&mut a, number)).collect();
        a.send(&mut batch);
        let mut out = Vec::new();
        b.receive(&mut out, 2);
        // One place is taken by frame 2; b returns both others by sending, so a has four frames and three places.
        b.send(&mut out);
        a.receive(&mut batch, 2);
        batch.extend(numbered(&mut a, 3));
        batch.push(frame_of_peer(&mut b, &mut a));
        assert_eq!((a.send(&mut batch), batch.len()), (3, 1));
        b.receive(&mut out, 8);
        let numbers: Vec<u8> = out.iter().map(|frame| frame[0]).collect();
        assert_eq!(numbers, [2, 0, 1, 3]);
        assert_eq!((a.send(&mut batch), batch.len()), (1, 0));
    }

    /// A frame of `from` that `to` holds.
    fn frame_of_peer(from: &mut MemoryQueue, to: &mut MemoryQueue) -> Frame {
        let mut batch = vec![frame(from, &[0xee; 60])];
        from.send(&mut batch);
        to.receive(&mut batch, 1);
        batch.remove(0)
    }

    #[test]
    fn foreign_and_short_frames_are_counted_not_sent() {
        let (mut a, mut b) = pair(2).expect("a pair");
        let (mut stranger, _other) = pair(2).expect("a pair");
        let mut batch = vec![frame(&mut stranger, &[1; 60]), frame(&mut a, &[2; 13])];
        assert_eq!((a.send(&mut batch), batch.len()), (2, 0));
        let mut out = Vec::new();
        assert_eq!(b.receive(&mut out, 8), 0);
        assert_eq!((counter(&mut a, "foreign_frames"), counter(&mut a, "tx_invalid")), (1, 1));
        let lost = frame(&mut stranger, &[1; 60]);
        a.recycle(lost);
        assert_eq!(counter(&mut a, "foreign_frames"), 2);
        assert!(a.allocate().is_some() && a.allocate().is_some() && a.allocate().is_none());
    }

    #[test]
    fn passed_frames_come_home() {
        let (mut a, mut b) = pair(2).expect("a pair");
        let (mut stranger, _other) = pair(1).expect("a pair");
        for _ in 0..3 {
            let mut batch = vec![frame(&mut a, &[1; 60]), frame(&mut a, &[2; 61])];
            a.send(&mut batch);
            b.receive(&mut batch, 8);
            assert_eq!((b.pass(&mut batch), batch.len()), (2, 0));
            a.flush().expect("flush");
        }
        let mut batch = vec![frame(&mut b, &[1; 60]), frame(&mut stranger, &[1; 60])];
        assert_eq!((b.pass(&mut batch), batch.len()), (1, 0));
        assert_eq!((counter(&mut b, "passed"), counter(&mut b, "foreign_frames")), (7, 1));
        assert!(b.allocate().is_some() && b.allocate().is_some());
    }

    #[test]
    fn exhausted_when_the_peer_is_gone_and_its_frames_are_taken() {
        let (mut a, mut b) = pair(2).expect("a pair");
        let mut batch = vec![frame(&mut a, &[1; 60])];
        a.send(&mut batch);
        assert!(!b.exhausted());
        drop(a);
        assert!(!b.exhausted());
        let mut out = Vec::new();
        assert_eq!(b.receive(&mut out, 8), 1);
        assert!(b.exhausted());
        batch.push(frame(&mut b, &[1; 60]));
        assert_eq!(b.send(&mut batch), 1);
        assert_eq!(counter(&mut b, "tx_frames"), 0);
    }

    #[test]
    fn waiting_ends_by_a_frame_by_a_wake_and_by_time() {
        let (mut a, mut b) = pair(2).expect("a pair");
        b.wait(None, Duration::from_millis(1)).expect("times out");
        let (wake, ring) = rustix::pipe::pipe().expect("a pipe");
        rustix::io::write(&ring, b"x").expect("written");
        let begin = Instant::now();
        b.wait(Some(std::os::fd::AsFd::as_fd(&wake)), LONG).expect("woken");
        assert!(begin.elapsed() < LONG, "the wake descriptor was not watched");
        let sleeper = thread::spawn(move || {
            let begin = Instant::now();
            let mut out = Vec::new();
            while b.receive(&mut out, 1) == 0 && begin.elapsed() < LONG {
                b.wait(None, LONG).expect("waits");
            }
            (out.len(), begin.elapsed())
        });
        let mut batch = vec![frame(&mut a, &[1; 60])];
        a.send(&mut batch);
        let (count, slept) = sleeper.join().expect("no panic");
        assert_eq!(count, 1);
        assert!(slept < LONG, "slept through the frame");
    }

    #[test]
    fn a_sleeper_is_woken_when_its_peer_goes() {
        let (a, mut b) = pair(2).expect("a pair");
        let sleeper = thread::spawn(move || {
            let begin = Instant::now();
            while !b.exhausted() && begin.elapsed() < LONG {
                b.wait(None, LONG).expect("waits");
            }
            begin.elapsed()
        });
        drop(a);
        assert!(sleeper.join().expect("no panic") < LONG, "slept on though the peer was gone");
    }

    #[test]
    fn two_threads_lose_and_reorder_nothing() {
        const COUNT: u64 = 20_000;
        let (mut a, mut b) = pair(32).expect("a pair");
        let echo = thread::spawn(move || {
            let mut batch = Vec::with_capacity(64);
            while !b.exhausted() {
                b.receive(&mut batch, 16);
                b.send(&mut batch);
                b.flush().expect("flush");
                thread::yield_now();
            }
        });
        let (mut sent, mut expected) = (0, 0);
        let (mut batch, mut out) = (Vec::new(), Vec::new());
        let begin = Instant::now();
        while expected < COUNT {
            assert!(begin.elapsed() < LONG * 3, "stuck at {expected}");
            while sent < COUNT && batch.len() < 8 {
                let Some(frame) = numbered(&mut a, sent) else { break };
                batch.push(frame);
                sent += 1;
            }
            a.send(&mut batch);
            a.receive(&mut out, 16);
            for frame in out.drain(..) {
                assert_eq!(frame[..8], expected.to_le_bytes());
                expected += 1;
                a.recycle(frame);
            }
            thread::yield_now();
        }
        drop(a);
        echo.join().expect("no panic");
    }
}
