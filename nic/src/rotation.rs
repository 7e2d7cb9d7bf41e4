//! A NIC for measuring: the same frames arrive over and over, as fast as they are taken, and what is sent is gone.
#![allow(unsafe_code, reason = "cuts a mapping into chunks, moves frames many at a time")]

use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use crate::counts::Counts;
use crate::error::NicError;
use crate::frame::{CAPACITY, CHUNK, Chunk, Frame, HEADROOM, MIN_SEND, PoolId};
use crate::map::Mapping;
use crate::queue::Queue;
use crate::steering::{Everything, Steering};

/// Frames that arrive in rotation, each again after it was given back: as it is then, and as long as it was at first. In the order in which
/// they were given back, or [always the same](Rotation::in_order).
pub struct Rotation {
    pool: PoolId,
    /// Of each frame.
    len: usize,
    arriving: Ring,
    order: Option<Order>,
    /// Frames for handlers that send copies: of a pool of their own, to tell them apart.
    spare_pool: PoolId,
    spare: Vec<Frame>,
    counts: Counts,
    /// Unmapped only when all its chunks are back; see `drop`.
    memory: ManuallyDrop<Mapping>,
}

impl Rotation {
    /// A rotation of `frames`, each of `len` bytes which are zero beyond those given, with `spare` frames to allocate. Their
    /// memory is in huge pages if there are some to be had.
    ///
    /// # Errors
    /// When one of `frames` is longer than `len`, that is above [`CAPACITY`], or there is no memory.
    pub fn new(frames: &[Vec<u8>], len: usize, spare: usize) -> Result<Self, NicError> {
        let bad = |value: usize| NicError::Config {
            what: "the length of a frame",
            value: value.to_string(),
            must: "at most that of the rotation's, and of a buffer",
        };
        let memory = Mapping::anonymous((frames.len() + spare).max(1) * CHUNK, false);
        let memory = memory.map_err(|errno| NicError::system("map packet buffers", errno))?;
        let (pool, spare_pool) = (PoolId::new(), PoolId::new());
        let frame = |index: usize, pool| {
            // SAFETY: chunk `index` lies within the mapping, which stays as long as one of its frames is out; each is taken
            // once, and initialised to zeroes.
            let chunk = unsafe { Chunk::from_raw(memory.base().add(index * CHUNK)) };
            Frame::mapped(chunk, pool, HEADROOM..HEADROOM)
        };
        let filled = |(index, bytes): (usize, &Vec<u8>)| {
            let mut frame = frame(index, pool).filter(|frame| len <= frame.capacity()).ok_or_else(|| bad(len))?;
            frame.set_len(len).map_err(|_| bad(len))?;
            frame.get_mut(..bytes.len()).ok_or_else(|| bad(bytes.len()))?.copy_from_slice(bytes);
            Ok::<_, NicError>(frame)
        };
        let mut arriving = Ring::with_room_for(frames.len());
        arriving.append(&mut frames.iter().enumerate().map(filled).collect::<Result<_, _>>()?);
        let spare = (0..spare).filter_map(|index| frame(frames.len() + index, spare_pool)).collect();
        let memory = ManuallyDrop::new(memory);
        Ok(Self { pool, len, arriving, order: None, spare_pool, spare, counts: Counts::default(), memory })
    }

    /// The same, of which each frame waits for those before it: where several threads give frames back, these come in any order, and a message
    /// whose last frame has passed another one of it would be two.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        let back = (0..self.arriving.count).map(|_| None).collect();
        self.order = Some(Order { next: 0, back });
        self
    }

    /// Has a frame arrive again.
    #[inline(always)]
    fn arrive(&mut self, frame: Frame) {
        let Some(order) = &mut self.order else { return self.arriving.push(frame) };
        let index = (frame.chunk().addr().get() - self.memory.base().addr().get()) / CHUNK;
        order.back[index] = Some(frame);
        while let Some(next) = order.back[order.next].take() {
            self.arriving.push(next);
            order.next = (order.next + 1) % order.back.len();
        }
    }
}

/// Frames that wait for others.
struct Order {
    /// The one that arrives next, by its chunk.
    next: usize,
    /// Those that are back, by theirs.
    back: Box<[Option<Frame>]>,
}

/// Frames in the order in which they come, in as few instructions as can be: what is measured is what they are for.
struct Ring {
    /// A power of two of them. `count` from `first` on hold a frame, round and round.
    places: Box<[MaybeUninit<Frame>]>,
    /// Place of the first, counted on without end.
    first: usize,
    count: usize,
}

impl Ring {
    fn with_room_for(frames: usize) -> Self {
        let places = Box::new_uninit_slice(frames.next_power_of_two());
        Self { places, first: 0, count: 0 }
    }

    /// The places of `count` frames from number `from` on: up to the ring's end, and from its start.
    fn pieces(&mut self, from: usize, count: usize) -> [&mut [MaybeUninit<Frame>]; 2] {
        assert!(count <= self.places.len());
        let from = from & (self.places.len() - 1);
        let (before, behind) = self.places.split_at_mut(from);
        let straight = count.min(behind.len());
        [&mut behind[..straight], &mut before[..count - straight]]
    }

    /// Puts a frame behind the others.
    ///
    /// # Panics
    /// When there is no room for it.
    #[inline]
    fn push(&mut self, frame: Frame) {
        assert!(self.count < self.places.len(), "all are a rotation's");
        let place = (self.first + self.count) & (self.places.len() - 1);
        self.places[place].write(frame);
        self.count += 1;
    }

    /// Puts frames behind the others, of which there are none afterwards.
    ///
    /// # Panics
    /// When there is no room for so many.
    fn append(&mut self, frames: &mut Vec<Frame>) {
        let (count, from) = (frames.len(), self.first + self.count);
        assert!(count <= self.places.len() - self.count, "all are a rotation's");
        let mut rest = frames.as_ptr();
        // SAFETY: the frames are moved, each once, since the vector has none from here on; the places hold none, since there is room.
        unsafe {
            frames.set_len(0);
            for piece in self.pieces(from, count) {
                ptr::copy_nonoverlapping(rest, piece.as_mut_ptr().cast(), piece.len());
                rest = rest.add(piece.len());
            }
        }
        self.count += count;
    }

    /// Moves the first `count` to `out`.
    ///
    /// # Panics
    /// When there are fewer.
    fn take(&mut self, count: usize, out: &mut Vec<Frame>) {
        assert!(count <= self.count, "there are so many");
        let first = self.first;
        (self.first, self.count) = (first + count, self.count - count);
        out.reserve(count);
        for piece in self.pieces(first, count) {
            // SAFETY: the places hold frames, which are moved, each once, since they do not count any more. The vector has room.
            unsafe {
                ptr::copy_nonoverlapping(piece.as_ptr().cast(), out.as_mut_ptr().add(out.len()), piece.len());
                out.set_len(out.len() + piece.len());
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut left = Vec::new();
        self.take(self.count, &mut left);
    }
}

impl Rotation {
    #[inline(never)]
    fn recycle_spare(&mut self, mut frame: Frame) {
        if !frame.is_of(self.spare_pool) {
            self.counts.foreign_frames += 1;
            return;
        }
        frame.reset_to(0);
        self.spare.push(frame);
    }
}

impl Drop for Rotation {
    fn drop(&mut self) {
        let waiting = self.order.iter().flat_map(|order| &order.back).flatten().count();
        let home = self.arriving.count + waiting + self.spare.len();
        (self.arriving, self.order, self.spare) = (Ring::with_room_for(0), None, Vec::new());
        // A frame that is out may outlive the rotation: its memory stays then.
        if home * CHUNK == self.memory.len() {
            // SAFETY: every chunk's frame was here and is gone; the field is not used again.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

impl Queue for Rotation {
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        let count = max.min(self.arriving.count);
        self.arriving.take(count, out);
        self.counts.received += count as u64;
        count
    }

    fn allocate(&mut self) -> Option<Frame> {
        self.spare.pop()
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.len();
        for frame in batch.iter().filter(|frame| frame.is_of(self.pool) || frame.is_of(self.spare_pool)) {
            let valid = frame.len() >= MIN_SEND;
            self.counts.sent += u64::from(valid);
            self.counts.tx_invalid += u64::from(!valid);
        }
        self.recycle_all(batch);
        count
    }

    fn max_frame(&self) -> usize {
        CAPACITY
    }

    fn pending(&self) -> usize {
        0
    }

    fn pass(&mut self, batch: &mut Vec<Frame>) -> usize {
        let mut count = 0;
        for frame in batch.drain(..) {
            count += usize::from(frame.is_of(self.pool) || frame.is_of(self.spare_pool));
            self.recycle(frame);
        }
        self.counts.passed += count as u64;
        count
    }

    #[inline(always)]
    fn recycle(&mut self, mut frame: Frame) {
        if !frame.is_of(self.pool) {
            return self.recycle_spare(frame);
        }
        frame.reset_to(self.len);
        self.arrive(frame);
    }

    fn recycle_all(&mut self, batch: &mut Vec<Frame>) {
        match Frame::are_of(batch, self.pool, self.len) {
            Some(are_reset) if self.order.is_none() => {
                if !are_reset {
                    batch.iter_mut().for_each(|frame| frame.reset_to(self.len));
                }
                self.arriving.append(batch);
            }
            _ => batch.drain(..).for_each(|frame| self.recycle(frame)),
        }
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

    fn steering(&self) -> Arc<dyn Steering> {
        Arc::new(Everything)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.counts.named()
    }

    fn describe(&self) -> String {
        format!("rotation: {} frames of {} B", self.arriving.count, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::Rotation;
    use crate::queue::Queue;

    #[test]
    fn frames_come_again_in_order_and_as_long_as_they_were() {
        let frames = [vec![1; 20], vec![2; 14], vec![3; 20]];
        let mut queue = Rotation::new(&frames, 20, 1).expect("short frames");
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
            assert_eq!((queue.send(&mut last), queue.pass(&mut passed), passed.len()), (1, 1, 0));
        }
        assert!(queue.counters().contains(&("tx_frames", 4)) && queue.counters().contains(&("passed", 4)));
    }

    #[test]
    fn in_order_frames_wait_for_those_before_them() {
        let frames: Vec<_> = (0..5).map(|byte| vec![byte; 14]).collect();
        let mut queue = Rotation::new(&frames, 14, 0).expect("short frames").in_order();
        let mut out = Vec::new();
        let arrived = |out: &[crate::Frame]| out.iter().map(|frame| frame[0]).collect::<Vec<_>>();
        for _ in 0..3 {
            assert_eq!(queue.receive(&mut out, 8), 5);
            assert_eq!(arrived(&out), [0, 1, 2, 3, 4]);
            queue.recycle(out.remove(1));
            queue.recycle_all(&mut out.split_off(2));
            assert_eq!(queue.receive(&mut Vec::new(), 8), 0, "the first one is out");
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
        let mut queue = Rotation::new(&[vec![1; 20]], 20, 1).expect("a short frame");
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
    fn foreign_frames_are_counted_as_such_alone() {
        let mut other = Rotation::new(&[vec![1; 20]], 20, 0).expect("a short frame");
        let mut queue = Rotation::new(&[vec![1; 20]], 20, 0).expect("a short frame");
        let mut out = Vec::new();
        other.receive(&mut out, 1);
        queue.send(&mut out);
        assert!(queue.counters().contains(&("foreign_frames", 1)) && queue.counters().contains(&("tx_frames", 0)));
    }

    #[test]
    fn a_frame_that_is_out_outlives_its_rotation() {
        let mut queue = Rotation::new(&[vec![7; 20]], 20, 0).expect("a short frame");
        let mut out = Vec::new();
        queue.receive(&mut out, 1);
        drop(queue);
        assert_eq!(*out[0], [7; 20]);
    }

    #[test]
    fn what_is_longer_than_the_rest_is_refused() {
        assert!(Rotation::new(&[vec![1; 21]], 20, 0).is_err());
        assert!(Rotation::new(&[], 5000, 0).is_ok() && Rotation::new(&[vec![]], 5000, 0).is_err());
    }
}
