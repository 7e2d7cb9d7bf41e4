//! A synthetic NIC for benchmarks: the same frames arrive again and again, as fast as they are taken. Sent frames vanish.
#![allow(unsafe_code, reason = "cuts a mapping into chunks, moves frames in bulk")]

use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use spin_frame::{CAPACITY, CHUNK, Chunk, Frame, HEADROOM, MIN_SEND, PoolId, PortCounts, TxClosed, TxQueue};

use crate::counts::named;
use crate::error::NicError;
use crate::map::Mapping;
use crate::queue::Queue;
use crate::steering::{AcceptAll, FlowSteering};

/// A fixed set of frames. A frame arrives again after it was returned, with the bytes it has then and its first length. The
/// frames arrive in the order in which they were returned, or [always in the same order](SyntheticSource::in_order).
pub struct SyntheticSource {
    pool: PoolId,
    /// Length of each frame.
    len: usize,
    arriving: Ring,
    order: Option<Order>,
    /// Pool of the frames to allocate, to tell them from the arriving ones.
    spare_pool: PoolId,
    spare: Vec<Frame>,
    counts: PortCounts,
    passed: u64,
    /// Unmapped only when all its chunks are back; see `drop`.
    memory: ManuallyDrop<Mapping>,
}

impl SyntheticSource {
    /// A source of `frames`, zero-padded to `len` bytes, and `spare` frames to allocate. The memory is in huge pages if the
    /// kernel has some.
    ///
    /// # Errors
    /// When one of `frames` is longer than `len`, `len` is above [`CAPACITY`], or there is no memory.
    pub fn new(frames: &[Vec<u8>], len: usize, spare: usize) -> Result<Self, NicError> {
        let bad = |value: usize| NicError::Config {
            what: "the length of a frame",
            value: value.to_string(),
            must: "at most that of the source's frames, and of a buffer",
        };
        let memory = Mapping::anonymous((frames.len() + spare).max(1) * CHUNK, false);
        let memory = memory.map_err(|errno| NicError::system("map packet buffers", errno))?;
        let (pool, spare_pool) = (PoolId::new(), PoolId::new());
        let frame = |index: usize, pool| {
            // SAFETY: chunk `index` lies within the mapping, which stays while one of its frames is in use. Each chunk is
            // taken once, is zeroed, and belongs to a pool of this source.
            let chunk = unsafe { Chunk::from_raw(memory.base().add(index * CHUNK), pool) };
            Frame::mapped(chunk, HEADROOM..HEADROOM)
        };
        let filled = |(index, bytes): (usize, &Vec<u8>)| {
            let mut frame = frame(index, pool).filter(|frame| len <= frame.capacity()).ok_or_else(|| bad(len))?;
            frame.set_len(len).map_err(|_| bad(len))?;
            frame.get_mut(..bytes.len()).ok_or_else(|| bad(bytes.len()))?.copy_from_slice(bytes);
            Ok::<_, NicError>(frame)
        };
        let mut arriving = Ring::with_capacity(frames.len());
        arriving.append(&mut frames.iter().enumerate().map(filled).collect::<Result<_, _>>()?);
        let spare = (0..spare).filter_map(|index| frame(frames.len() + index, spare_pool)).collect();
        let (counts, memory) = (PortCounts::default(), ManuallyDrop::new(memory));
        Ok(Self { pool, len, arriving, order: None, spare_pool, spare, counts, passed: 0, memory })
    }

    /// Makes each frame wait for those before it. Several threads return frames in any order. Without this, a
    /// last frame that overtakes another frame of its message would split the message in two.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        let returned = (0..self.arriving.count).map(|_| None).collect();
        self.order = Some(Order { next: 0, returned });
        self
    }

    /// Lets a frame arrive again.
    #[inline(always)]
    fn arrive(&mut self, frame: Frame) {
        let Some(order) = &mut self.order else { return self.arriving.push(frame) };
        let index = (frame.chunk_address().addr().get() - self.memory.base().addr().get()) / CHUNK;
        order.returned[index] = Some(frame);
        while let Some(next) = order.returned[order.next].take() {
            self.arriving.push(next);
            order.next = (order.next + 1) % order.returned.len();
        }
    }

    fn owns(&self, frame: &Frame) -> bool {
        frame.belongs_to(self.pool) || frame.belongs_to(self.spare_pool)
    }

    #[inline(never)]
    fn recycle_spare(&mut self, mut frame: Frame) {
        if !frame.belongs_to(self.spare_pool) {
            self.counts.foreign_frames += 1;
            return;
        }
        frame.reset_to(0);
        self.spare.push(frame);
    }
}

/// Returned frames that wait for earlier ones.
struct Order {
    /// Chunk index of the frame that arrives next.
    next: usize,
    /// Returned frames, by chunk index.
    returned: Box<[Option<Frame>]>,
}

/// A FIFO of frames, in as few instructions as possible: its cost is part of what a benchmark measures.
struct Ring {
    /// A power of two of slots. `count` slots from `first` on hold a frame, with wrap-around.
    slots: Box<[MaybeUninit<Frame>]>,
    /// Number of the first frame; runs freely, the low bits are the slot.
    first: usize,
    count: usize,
}

impl Ring {
    fn with_capacity(frames: usize) -> Self {
        let slots = Box::new_uninit_slice(frames.next_power_of_two());
        Self { slots, first: 0, count: 0 }
    }

    /// The slots of `count` frames from number `from` on: up to the end of the ring, and from its start.
    fn pieces(&mut self, from: usize, count: usize) -> [&mut [MaybeUninit<Frame>]; 2] {
        assert!(count <= self.slots.len());
        let from = from & (self.slots.len() - 1);
        let (before, behind) = self.slots.split_at_mut(from);
        let contiguous = count.min(behind.len());
        [&mut behind[..contiguous], &mut before[..count - contiguous]]
    }

    /// Appends a frame.
    ///
    /// # Panics
    /// When the ring is full.
    #[inline]
    fn push(&mut self, frame: Frame) {
        assert!(self.count < self.slots.len(), "the ring has a slot for each frame of the source");
        let slot = (self.first + self.count) & (self.slots.len() - 1);
        self.slots[slot].write(frame);
        self.count += 1;
    }

    /// Appends all `frames`, and empties the vector.
    ///
    /// # Panics
    /// When the ring has too few free slots.
    fn append(&mut self, frames: &mut Vec<Frame>) {
        let (count, from) = (frames.len(), self.first + self.count);
        assert!(count <= self.slots.len() - self.count, "the ring has a slot for each frame of the source");
        let mut source = frames.as_ptr();
        // SAFETY: each frame moves once, because the vector is empty from here on. The slots are free, as asserted.
        unsafe {
            frames.set_len(0);
            for piece in self.pieces(from, count) {
                ptr::copy_nonoverlapping(source, piece.as_mut_ptr().cast(), piece.len());
                source = source.add(piece.len());
            }
        }
        self.count += count;
    }

    /// Moves the first `count` frames to `out`.
    ///
    /// # Panics
    /// When there are fewer.
    fn take(&mut self, count: usize, out: &mut Vec<Frame>) {
        assert!(count <= self.count, "the ring holds that many frames");
        let first = self.first;
        (self.first, self.count) = (first + count, self.count - count);
        out.reserve(count);
        for piece in self.pieces(first, count) {
            // SAFETY: the slots hold frames. Each frame moves once, because the slots are free from here on. The vector has
            // the capacity.
            unsafe {
                ptr::copy_nonoverlapping(piece.as_ptr().cast(), out.as_mut_ptr().add(out.len()), piece.len());
                out.set_len(out.len() + piece.len());
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut frames = Vec::new();
        self.take(self.count, &mut frames);
    }
}

impl Drop for SyntheticSource {
    fn drop(&mut self) {
        let waiting = self.order.iter().flat_map(|order| &order.returned).flatten().count();
        let present = self.arriving.count + waiting + self.spare.len();
        (self.arriving, self.order, self.spare) = (Ring::with_capacity(0), None, Vec::new());
        // A frame in use may outlive the source. Its memory must then stay.
        if present * CHUNK == self.memory.len() {
            // SAFETY: the frame of every chunk was here and is dropped. The field is not used again.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

impl TxQueue for SyntheticSource {
    fn allocate(&mut self) -> Option<Frame> {
        self.spare.pop()
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.len();
        for frame in batch.iter() {
            let (own, valid) = (self.owns(frame), frame.len() >= MIN_SEND);
            self.counts.sent += u64::from(own && valid);
            self.counts.tx_invalid += u64::from(own && !valid);
        }
        self.recycle_all(batch);
        count
    }

    fn max_frame(&self) -> usize {
        CAPACITY
    }

    #[inline(always)]
    fn recycle(&mut self, mut frame: Frame) {
        if !frame.belongs_to(self.pool) {
            return self.recycle_spare(frame);
        }
        frame.reset_to(self.len);
        self.arrive(frame);
    }

    fn recycle_all(&mut self, batch: &mut Vec<Frame>) {
        match Frame::all_reset(batch, self.pool, self.len) {
            Some(all_reset) if self.order.is_none() => {
                if !all_reset {
                    batch.iter_mut().for_each(|frame| frame.reset_to(self.len));
                }
                self.arriving.append(batch);
            }
            _ => batch.drain(..).for_each(|frame| self.recycle(frame)),
        }
    }

    fn flush_tx(&mut self) -> Result<(), TxClosed> {
        Ok(())
    }
}

impl Queue for SyntheticSource {
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        let count = max.min(self.arriving.count);
        self.arriving.take(count, out);
        self.counts.received += count as u64;
        count
    }

    fn pending(&self) -> usize {
        0
    }

    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.iter().filter(|frame| self.owns(frame)).count();
        self.recycle_all(batch);
        self.passed += count as u64;
        count
    }

    fn flush(&mut self) -> Result<(), NicError> {
        Ok(())
    }

    fn wait(&mut self, _: Option<BorrowedFd<'_>>, _: Duration) -> Result<(), NicError> {
        Ok(())
    }

    fn exhausted(&self) -> bool {
        false
    }

    fn steering(&self) -> Arc<dyn FlowSteering> {
        Arc::new(AcceptAll)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        named(self.counts, self.passed)
    }

    fn describe(&self) -> String {
        format!("synthetic: {} frames of {} B", self.arriving.count, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::SyntheticSource;
    use crate::queue::Queue;
    use spin_frame::{Frame, TxQueue};

    #[test]
    fn frames_arrive_again_in_order_with_their_first_length() {
        let frames = [vec![1; 20], vec![2; 14], vec![3; 20]];
        let mut queue = SyntheticSource::new(&frames, 20, 1).expect("short frames");
        let mut out = Vec::new();
        for _ in 0..4 {
            assert_eq!(queue.receive(&mut out, 8), 3);
            assert_eq!(queue.receive(&mut out, 8), 0, "all are in use");
            assert_eq!(
                out.iter().map(|frame| (frame[0], frame.len())).collect::<Vec<_>>(),
                [(1, 20), (2, 20), (3, 20)]
            );
            out[1].trim(0, 14).expect("within");
            let mut last = out.split_off(1);
            queue.recycle(out.remove(0));
            let mut passed = last.split_off(1);
            assert_eq!((queue.send(&mut last), queue.pass_to_kernel(&mut passed), passed.len()), (1, 1, 0));
        }
        assert!(queue.counters().contains(&("tx_frames", 4)) && queue.counters().contains(&("passed", 4)));
    }

    #[test]
    fn in_order_frames_wait_for_those_before_them() {
        let frames: Vec<_> = (0..5).map(|byte| vec![byte; 14]).collect();
        let mut queue = SyntheticSource::new(&frames, 14, 0).expect("short frames").in_order();
        let mut out = Vec::new();
        let arrived = |out: &[Frame]| out.iter().map(|frame| frame[0]).collect::<Vec<_>>();
        for _ in 0..3 {
            assert_eq!(queue.receive(&mut out, 8), 5);
            assert_eq!(arrived(&out), [0, 1, 2, 3, 4]);
            queue.recycle(out.remove(1));
            queue.recycle_all(&mut out.split_off(2));
            assert_eq!(queue.receive(&mut Vec::new(), 8), 0, "the first one is in use");
            queue.recycle(out.remove(0));
            let mut again = Vec::new();
            queue.receive(&mut again, 8);
            assert_eq!(arrived(&again), [0, 1]);
            again.append(&mut out);
            queue.recycle_all(&mut again);
            assert_eq!(queue.receive(&mut again, 2), 2);
            assert_eq!(arrived(&again), [2, 3]);
            assert_eq!(queue.receive(&mut again, 1), 1);
            queue.recycle_all(&mut again);
        }
    }

    #[test]
    fn spare_frames_do_not_arrive() {
        let mut queue = SyntheticSource::new(&[vec![1; 20]], 20, 1).expect("a short frame");
        let mut copy = queue.allocate().expect("the spare frame");
        assert!(queue.allocate().is_none());
        copy.fill(&[9; 20]).expect("fits");
        queue.send(&mut vec![copy]);
        let mut out = Vec::new();
        assert_eq!(queue.receive(&mut out, 8), 1);
        assert_eq!(out[0][0], 1);
        assert!(queue.allocate().is_some());
    }

    #[test]
    fn foreign_frames_are_not_counted_as_sent() {
        let mut other = SyntheticSource::new(&[vec![1; 20]], 20, 0).expect("a short frame");
        let mut queue = SyntheticSource::new(&[vec![1; 20]], 20, 0).expect("a short frame");
        let mut out = Vec::new();
        other.receive(&mut out, 1);
        queue.send(&mut out);
        assert!(queue.counters().contains(&("foreign_frames", 1)) && queue.counters().contains(&("tx_frames", 0)));
    }

    #[test]
    fn a_frame_in_use_outlives_its_source() {
        let mut queue = SyntheticSource::new(&[vec![7; 20]], 20, 0).expect("a short frame");
        let mut out = Vec::new();
        queue.receive(&mut out, 1);
        drop(queue);
        assert_eq!(*out[0], [7; 20]);
    }

    #[test]
    fn frames_that_are_too_long_are_refused() {
        assert!(SyntheticSource::new(&[vec![1; 21]], 20, 0).is_err());
        assert!(SyntheticSource::new(&[], 5000, 0).is_ok() && SyntheticSource::new(&[vec![]], 5000, 0).is_err());
    }
}
