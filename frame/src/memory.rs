//! A pair of connected ports in memory: each receives what the other sends.
//!
//! Each port may be used by a thread of its own. A frame belongs to the port that allocated it. It reaches the peer
//! through one single-producer ring and returns through another. A port therefore never runs out of frames because
//! packets flow in one direction only.

use std::num::NonZeroUsize;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::frame::{CHUNK, Frame, MIN_SEND, PoolId};
use crate::heap_pool::HeapPool;
use crate::tx_queue::{TxClosed, TxQueue};

/// Numbers of frames since the port was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Received frames.
    pub received: u64,
    /// Sent frames.
    pub sent: u64,
    /// Frames not sent because they are shorter than [`MIN_SEND`].
    pub tx_invalid: u64,
    /// Frames dropped because they belong to another pool.
    pub foreign_frames: u64,
}

/// One port of a pair; see [`memory_pair`].
#[derive(Debug)]
pub struct MemoryPort {
    pool: HeapPool,
    peer: PoolId,
    incoming: Consumer<Frame>,
    outgoing: Producer<Frame>,
    /// Frames of this port that the peer recycled.
    returned: Consumer<Frame>,
    /// Frames of the peer on their way back. As large as the peer's pool, so it is never full.
    returning: Producer<Frame>,
    counts: PortCounts,
}

/// Two connected ports with `capacity` frames each. The rings between them hold as many.
#[must_use]
pub fn memory_pair(capacity: NonZeroUsize) -> (MemoryPort, MemoryPort) {
    let capacity = capacity.get();
    let (pool_a, pool_b) = (HeapPool::new(capacity), HeapPool::new(capacity));
    let (id_a, id_b) = (pool_a.id(), pool_b.id());
    let (to_b, from_a) = RingBuffer::new(capacity);
    let (to_a, from_b) = RingBuffer::new(capacity);
    let (return_to_b, returned_by_a) = RingBuffer::new(capacity);
    let (return_to_a, returned_by_b) = RingBuffer::new(capacity);
    let counts = PortCounts::default();
    let (incoming, outgoing, returned, returning) = (from_b, to_b, returned_by_b, return_to_b);
    let a = MemoryPort { pool: pool_a, peer: id_b, incoming, outgoing, returned, returning, counts };
    let (incoming, outgoing, returned, returning) = (from_a, to_a, returned_by_a, return_to_a);
    let b = MemoryPort { pool: pool_b, peer: id_a, incoming, outgoing, returned, returning, counts };
    (a, b)
}

impl MemoryPort {
    /// Appends at most `max` received frames to `out`. Returns how many.
    #[inline]
    pub fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        let before = out.len();
        out.extend((0..max).map_while(|_| self.incoming.pop().ok()));
        let count = out.len() - before;
        self.counts.received += count as u64;
        count
    }

    /// Whether no received frame is waiting.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.incoming.is_empty()
    }

    /// Whether the peer was dropped. A ring that is empty after this returned `true` stays empty.
    #[inline]
    #[must_use]
    pub fn peer_is_gone(&self) -> bool {
        self.incoming.is_abandoned()
    }

    /// Whether a frame belongs to this port or its peer.
    #[inline]
    #[must_use]
    pub fn accepts(&self, frame: &Frame) -> bool {
        self.pool.owns(frame) || frame.belongs_to(self.peer)
    }

    /// Frees the frames that the peer recycled.
    #[inline]
    pub fn reclaim(&mut self) {
        while let Ok(frame) = self.returned.pop() {
            // The peer returns only frames of this port.
            let _ = self.pool.recycle(frame);
        }
    }

    /// Number of frames of each port.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.outgoing.buffer().capacity()
    }

    /// The counters.
    #[must_use]
    pub const fn counts(&self) -> PortCounts {
        self.counts
    }

    fn reject(&mut self, frame: Frame) {
        self.counts.tx_invalid += u64::from(self.accepts(&frame));
        self.recycle(frame);
    }
}

impl TxQueue for MemoryPort {
    #[inline]
    fn allocate(&mut self) -> Option<Frame> {
        if self.pool.is_empty() {
            self.reclaim();
        }
        self.pool.allocate()
    }

    #[inline]
    fn low_on_buffers(&self) -> bool {
        self.pool.is_low()
    }

    #[inline]
    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        // Recycle frames to a peer that is gone: it takes none, so they would fill the ring.
        let gone = self.outgoing.is_abandoned();
        let count = if gone { batch.len() } else { batch.len().min(self.outgoing.slots()) };
        for frame in batch.drain(..count) {
            if !self.accepts(&frame) || frame.len() < MIN_SEND {
                self.reject(frame);
            } else if gone {
                self.recycle(frame);
            } else if self.outgoing.push(frame).is_ok() {
                self.counts.sent += 1;
            }
        }
        count
    }

    /// The capacity of a heap frame.
    #[inline]
    fn max_frame(&self) -> usize {
        CHUNK
    }

    #[inline]
    fn recycle(&mut self, frame: Frame) {
        let Err(frame) = self.pool.recycle(frame) else { return };
        if frame.belongs_to(self.peer) {
            // Never full, see the field.
            let _ = self.returning.push(frame);
        } else {
            self.counts.foreign_frames += 1;
        }
    }

    #[inline]
    fn flush_tx(&mut self) -> Result<(), TxClosed> {
        self.reclaim();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::{MemoryPort, memory_pair};
    use crate::frame::{CHUNK, Frame};
    use crate::tx_queue::TxQueue;

    fn pair(capacity: usize) -> (MemoryPort, MemoryPort) {
        memory_pair(NonZeroUsize::new(capacity).expect("not 0"))
    }

    fn frame(port: &mut MemoryPort, bytes: &[u8]) -> Frame {
        let mut frame = port.allocate().expect("a free frame");
        frame.fill(bytes).expect("fits");
        frame
    }

    #[test]
    fn frames_cross_and_come_back() {
        let (mut a, mut b) = pair(2);
        let mut out = Vec::new();
        // More rounds than either pool has frames: frames must return although traffic goes one way only.
        for round in 0..10_u8 {
            let mut batch = vec![frame(&mut a, &[round; 60]), frame(&mut a, &[round; 61])];
            assert!(a.allocate().is_none(), "both frames are in use");
            assert_eq!((a.send(&mut batch), batch.len()), (2, 0));
            assert_eq!(b.receive(&mut out, 8), 2);
            assert_eq!((&*out[0], &*out[1]), (&[round; 60][..], &[round; 61][..]));
            b.recycle_all(&mut out);
            a.flush_tx().expect("open");
        }
        assert_eq!((a.counts().sent, b.counts().received), (20, 20));
    }

    #[test]
    fn the_longest_frame_crosses_and_outlives_its_port() {
        let (mut a, mut b) = pair(1);
        assert_eq!(a.max_frame(), CHUNK);
        let mut batch = vec![frame(&mut a, &[7; CHUNK])];
        a.send(&mut batch);
        drop(a);
        assert_eq!((b.receive(&mut batch, 1), batch[0].len()), (1, CHUNK));
    }

    #[test]
    fn a_received_frame_can_be_sent_back() {
        let (mut a, mut b) = pair(1);
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
    fn foreign_and_short_frames_are_counted_not_sent() {
        let (mut a, mut b) = pair(2);
        let (mut stranger, _other) = pair(2);
        let mut batch = vec![frame(&mut stranger, &[1; 60]), frame(&mut a, &[2; 13])];
        assert_eq!((a.send(&mut batch), batch.len()), (2, 0));
        assert_eq!(b.receive(&mut Vec::new(), 8), 0);
        assert_eq!((a.counts().foreign_frames, a.counts().tx_invalid), (1, 1));
        let foreign = frame(&mut stranger, &[1; 60]);
        a.recycle(foreign);
        assert_eq!(a.counts().foreign_frames, 2);
        assert!(a.allocate().is_some() && a.allocate().is_some() && a.allocate().is_none());
    }

    #[test]
    fn a_port_without_peer_sends_nothing_and_keeps_its_frames() {
        let (mut a, b) = pair(1);
        assert!(!a.peer_is_gone());
        drop(b);
        assert!(a.peer_is_gone() && a.is_empty());
        let mut batch = vec![frame(&mut a, &[1; 60])];
        assert_eq!((a.send(&mut batch), a.counts().sent), (1, 0));
        assert!(a.allocate().is_some());
    }
}
