//! A pair of connected queues in memory: each receives what the other sends. Needs no NIC and no root.
//!
//! Each queue may be used by a thread of its own. [`MemoryPort`] moves the frames; this module adds the wake-up of a
//! thread that waits for them.

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use spin_frame::{Frame, MemoryPort, TxClosed, TxQueue, memory_pair};

use crate::counts::named;
use crate::error::NicError;
use crate::queue::Queue;
use crate::steering::{AcceptAll, FlowSteering};
use crate::wait::{poll, timespec};
use crate::wakeup::Wakeup;

/// One queue of a pair; see [`pair`].
pub struct MemoryQueue {
    port: MemoryPort,
    passed: u64,
    wakeup: Arc<Wakeup>,
    /// Dropped last: the peer must wake when the rings are already abandoned.
    peer_wakeup: PeerWakeup,
}

/// The wake-up of the peer, which is notified a last time on drop.
struct PeerWakeup(Arc<Wakeup>);

impl Drop for PeerWakeup {
    fn drop(&mut self) {
        self.0.notify();
    }
}

/// Two connected queues with `capacity` frames each. The rings between them hold as many.
///
/// # Errors
/// When `capacity` is 0 or the kernel gives no eventfd.
pub fn pair(capacity: usize) -> Result<(MemoryQueue, MemoryQueue), NicError> {
    let refused = || {
        let must = "at least 1";
        NicError::Config { what: "the capacity of a memory queue", value: "0".to_owned(), must }
    };
    let (port_a, port_b) = memory_pair(NonZeroUsize::new(capacity).ok_or_else(refused)?);
    let (wakeup_a, wakeup_b) = (Wakeup::new()?, Wakeup::new()?);
    let queue =
        |port, wakeup, peer_wakeup| MemoryQueue { port, passed: 0, wakeup, peer_wakeup: PeerWakeup(peer_wakeup) };
    Ok((queue(port_a, Arc::clone(&wakeup_a), Arc::clone(&wakeup_b)), queue(port_b, wakeup_b, wakeup_a)))
}

impl TxQueue for MemoryQueue {
    fn allocate(&mut self) -> Option<Frame> {
        self.port.allocate()
    }

    fn low_on_buffers(&self) -> bool {
        self.port.low_on_buffers()
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = self.port.send(batch);
        self.peer_wakeup.0.notify();
        count
    }

    fn max_frame(&self) -> usize {
        self.port.max_frame()
    }

    fn recycle(&mut self, frame: Frame) {
        self.port.recycle(frame);
    }

    fn flush_tx(&mut self) -> Result<(), TxClosed> {
        self.port.flush_tx()
    }
}

impl Queue for MemoryQueue {
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        self.port.receive(out, max)
    }

    /// Always 0: sent frames belong to the peer already, and outlive this queue.
    fn pending(&self) -> usize {
        0
    }

    /// Counts and recycles the frames, because there is no kernel.
    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.iter().filter(|frame| self.port.accepts(frame)).count();
        self.recycle_all(batch);
        self.passed += count as u64;
        count
    }

    fn flush(&mut self) -> Result<(), NicError> {
        self.port.reclaim();
        Ok(())
    }

    fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<(), NicError> {
        self.wakeup.sleep(|wakeup| {
            if !self.port.is_empty() || self.port.peer_is_gone() {
                return Ok(());
            }
            let fds = [Some(wakeup), wake].into_iter().flatten();
            let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            poll(&mut fds, &timespec(timeout))
        })
    }

    fn exhausted(&self) -> bool {
        // Check in this order: a peer that is gone pushes no frame, so an empty ring stays empty.
        self.port.peer_is_gone() && self.port.is_empty()
    }

    fn steering(&self) -> Arc<dyn FlowSteering> {
        Arc::new(AcceptAll)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        named(self.port.counts(), self.passed)
    }

    fn describe(&self) -> String {
        format!("memory: one end of a pair, {} frames a direction", self.port.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryQueue, pair};
    use crate::queue::Queue;
    use spin_frame::{CHUNK, Frame, TxQueue};
    use std::thread;
    use std::time::{Duration, Instant};

    const TIMEOUT: Duration = Duration::from_secs(20);

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
    fn frames_cross_and_come_back() {
        let (mut a, mut b) = pair(2).expect("a pair");
        let mut out = Vec::new();
        // More rounds than either pool has frames: frames must return although traffic goes one way only.
        for round in 0..10_u8 {
            let mut batch = vec![frame(&mut a, &[round; 60]), frame(&mut a, &[round; 61])];
            assert!(a.allocate().is_none(), "both frames are in use");
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
        assert_eq!(a.allocate().expect("free again").len(), 0);
    }

    #[test]
    fn frames_without_room_stay_in_order() {
        let (mut a, mut b) = pair(4).expect("a pair");
        let mut batch: Vec<_> = (0..3).filter_map(|number| numbered(&mut a, number)).collect();
        a.send(&mut batch);
        let mut out = Vec::new();
        b.receive(&mut out, 2);
        // Frame 2 takes one slot. `b` returns both others by sending, so `a` has four frames and three slots.
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
        let foreign = frame(&mut stranger, &[1; 60]);
        a.recycle(foreign);
        assert_eq!(counter(&mut a, "foreign_frames"), 2);
        assert!(a.allocate().is_some() && a.allocate().is_some() && a.allocate().is_none());
    }

    #[test]
    fn passed_frames_come_back() {
        let (mut a, mut b) = pair(2).expect("a pair");
        let (mut stranger, _other) = pair(1).expect("a pair");
        for _ in 0..3 {
            let mut batch = vec![frame(&mut a, &[1; 60]), frame(&mut a, &[2; 61])];
            a.send(&mut batch);
            b.receive(&mut batch, 8);
            assert_eq!((b.pass_to_kernel(&mut batch), batch.len()), (2, 0));
            a.flush().expect("flush");
        }
        let mut batch = vec![frame(&mut b, &[1; 60]), frame(&mut stranger, &[1; 60])];
        assert_eq!((b.pass_to_kernel(&mut batch), batch.len()), (1, 0));
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
    fn a_frame_a_wake_and_a_timeout_end_a_wait() {
        let (mut a, mut b) = pair(2).expect("a pair");
        b.wait(None, Duration::from_millis(1)).expect("times out");
        let (wake, ring) = rustix::pipe::pipe().expect("a pipe");
        rustix::io::write(&ring, b"x").expect("written");
        let begin = Instant::now();
        b.wait(Some(std::os::fd::AsFd::as_fd(&wake)), TIMEOUT).expect("woken");
        assert!(begin.elapsed() < TIMEOUT, "the wake descriptor was not watched");
        let sleeper = thread::spawn(move || {
            let begin = Instant::now();
            let mut out = Vec::new();
            while b.receive(&mut out, 1) == 0 && begin.elapsed() < TIMEOUT {
                b.wait(None, TIMEOUT).expect("waits");
            }
            (out.len(), begin.elapsed())
        });
        let mut batch = vec![frame(&mut a, &[1; 60])];
        a.send(&mut batch);
        let (count, slept) = sleeper.join().expect("no panic");
        assert_eq!(count, 1);
        assert!(slept < TIMEOUT, "slept through the frame");
    }

    #[test]
    fn a_sleeper_is_woken_when_its_peer_is_dropped() {
        let (a, mut b) = pair(2).expect("a pair");
        let sleeper = thread::spawn(move || {
            let begin = Instant::now();
            while !b.exhausted() && begin.elapsed() < TIMEOUT {
                b.wait(None, TIMEOUT).expect("waits");
            }
            begin.elapsed()
        });
        drop(a);
        assert!(sleeper.join().expect("no panic") < TIMEOUT, "slept on though the peer was gone");
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
            assert!(begin.elapsed() < TIMEOUT * 3, "stuck at {expected}");
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
