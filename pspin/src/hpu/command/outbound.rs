//! Frames on their way to the NIC.

use spin_abi::command::Status;
use spin_abi::counters::Counter;
use spin_frame::{Frame, TxQueue};

use crate::counts::Counts;

/// Frames that go to the NIC in batches.
#[derive(Debug)]
pub struct Outbound {
    /// Frames to send, at the end of the poll iteration.
    pub transmit: Vec<Frame>,
    /// Frames to return to the pool, at the end of a batch of tasks.
    pub recycle: Vec<Frame>,
    /// Buffer for copies between NIC and host memory.
    chunk: Box<[u8]>,
}

impl Outbound {
    /// `transmit` and `recycle` are capacities in frames; `chunk` is the size of the copy buffer in bytes.
    ///
    /// # Panics
    /// When `chunk` is 0.
    #[must_use]
    pub fn with_capacity(transmit: usize, recycle: usize, chunk: u32) -> Self {
        assert!(chunk > 0, "a copy needs a buffer");
        let chunk = vec![0; chunk as usize].into();
        Self { transmit: Vec::with_capacity(transmit), recycle: Vec::with_capacity(recycle), chunk }
    }

    /// Moves the frames to the NIC. Frames without room in its ring stay.
    #[inline]
    pub fn flush(&mut self, nic: &mut dyn TxQueue) {
        nic.recycle_all(&mut self.recycle);
        nic.send(&mut self.transmit);
    }

    /// Stages a frame of a send command and counts it.
    #[inline]
    pub(super) fn stage(&mut self, counts: &mut Counts, frame: Frame) {
        counts.add(Counter::CommandsSend, 1);
        counts.add(Counter::TxPackets, 1);
        counts.add(Counter::TxBytes, frame.len() as u64);
        self.transmit.push(frame);
    }

    /// Whether `len` bytes fit into the copy buffer. Such a copy moves all bytes or none.
    pub(super) fn is_one_chunk(&self, len: u32) -> bool {
        (1..=self.chunk.len()).contains(&(len as usize))
    }

    /// Copies `len` bytes by way of the copy buffer: either side may change during the copy. `copy` gets the number of
    /// bytes done and the buffer for the next ones.
    ///
    /// # Errors
    /// The errors of `copy`.
    pub(super) fn copy_in_chunks(
        &mut self,
        len: u32,
        mut copy: impl FnMut(u32, &mut [u8]) -> Result<(), Status>,
    ) -> Result<(), Status> {
        (0..len).step_by(self.chunk.len()).try_for_each(|done| {
            let size = self.chunk.len().min((len - done) as usize);
            copy(done, &mut self.chunk[..size])
        })
    }
}
