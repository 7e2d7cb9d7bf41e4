//! A pool of frames on the heap.

use crate::frame::{Frame, PoolId};
use crate::tx_queue::LOW_WATERMARK;

/// Frames of [`CHUNK`](crate::CHUNK) bytes on the heap.
#[derive(Debug)]
pub struct HeapPool {
    id: PoolId,
    free: Vec<Frame>,
}

impl HeapPool {
    /// A pool of `count` frames, all free.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let id = PoolId::new();
        Self { id, free: (0..count).map(|_| Frame::heap(id)).collect() }
    }

    /// Takes an empty frame. `None` when all frames are in use.
    #[inline]
    pub fn allocate(&mut self) -> Option<Frame> {
        self.free.pop()
    }

    /// Returns a frame to the pool.
    ///
    /// # Errors
    /// The frame itself when it belongs to another pool.
    #[inline]
    pub fn recycle(&mut self, mut frame: Frame) -> Result<(), Frame> {
        if !self.owns(&frame) {
            return Err(frame);
        }
        frame.reset();
        self.free.push(frame);
        Ok(())
    }

    /// Whether a frame belongs to this pool.
    #[inline]
    #[must_use]
    pub fn owns(&self, frame: &Frame) -> bool {
        frame.belongs_to(self.id)
    }

    /// Whether fewer than [`LOW_WATERMARK`] frames are free.
    #[inline]
    #[must_use]
    pub const fn is_low(&self) -> bool {
        self.free.len() < LOW_WATERMARK
    }

    /// Whether no frame is free.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// The identity of this pool.
    pub(crate) const fn id(&self) -> PoolId {
        self.id
    }
}

#[cfg(test)]
mod tests {
    use super::HeapPool;
    use crate::frame::CHUNK;

    #[test]
    fn frames_come_back_empty() {
        let mut pool = HeapPool::new(1);
        let mut frame = pool.allocate().expect("a free frame");
        assert!(pool.is_empty() && pool.allocate().is_none() && pool.owns(&frame));
        frame.fill(&[7; 60]).expect("fits");
        frame.trim(10, 20).expect("within");
        pool.recycle(frame).expect("its own frame");
        let frame = pool.allocate().expect("free again");
        assert_eq!((frame.len(), frame.capacity()), (0, CHUNK));
    }

    #[test]
    fn foreign_frames_are_refused() {
        let (mut ours, mut theirs) = (HeapPool::new(1), HeapPool::new(1));
        let frame = theirs.allocate().expect("a free frame");
        let frame = ours.recycle(frame).expect_err("a frame of the other pool");
        assert!(theirs.recycle(frame).is_ok());
    }

    #[test]
    fn a_frame_outlives_its_pool() {
        let mut pool = HeapPool::new(1);
        let mut frame = pool.allocate().expect("a free frame");
        drop(pool);
        frame.fill(&[5; CHUNK]).expect("fits");
        assert!(frame.iter().all(|&byte| byte == 5));
    }
}
