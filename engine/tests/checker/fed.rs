//! The queue of a worker that is fed by a distributor on the same thread.

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spin_engine::cores::packet_channel::ChannelQueue;
use spin_engine::cores::receive_only::ReceiveOnly;
use spin_nic::frame::TxClosed;
use spin_nic::{FlowSteering, Frame, NicError, Queue, TxQueue};

use crate::round::tick;

/// The distributor, which the test and the queue share.
#[derive(Clone)]
pub struct SharedReceiver {
    receiver: Arc<Mutex<ReceiveOnly>>,
    now: Arc<AtomicU64>,
}

impl SharedReceiver {
    pub fn new(receiver: ReceiveOnly, now: Arc<AtomicU64>) -> Self {
        Self { receiver: Arc::new(Mutex::new(receiver)), now }
    }

    pub fn lock(&self) -> MutexGuard<'_, ReceiveOnly> {
        // A thread that panicked has failed the test already.
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn poll(&self) {
        self.lock().poll(|| tick(&self.now)).expect("memory does not fail");
    }
}

/// The queue of a packet channel. A handler that waits for a frame to send has the distributor poll, as a thread of its own
/// would.
pub struct FedQueue {
    pub queue: ChannelQueue,
    pub receiver: SharedReceiver,
}

impl TxQueue for FedQueue {
    fn allocate(&mut self) -> Option<Frame> {
        self.queue.allocate()
    }

    fn low_on_buffers(&self) -> bool {
        self.queue.low_on_buffers()
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.queue.send(batch)
    }

    fn max_frame(&self) -> usize {
        self.queue.max_frame()
    }

    fn recycle(&mut self, frame: Frame) {
        self.queue.recycle(frame);
    }

    fn recycle_all(&mut self, batch: &mut Vec<Frame>) {
        self.queue.recycle_all(batch);
    }

    fn flush_tx(&mut self) -> Result<(), TxClosed> {
        self.queue.flush_tx()?;
        self.receiver.poll();
        Ok(())
    }
}

impl Queue for FedQueue {
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        self.queue.receive(out, max)
    }

    fn pending(&self) -> usize {
        self.queue.pending()
    }

    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.queue.pass_to_kernel(batch)
    }

    fn flush(&mut self) -> Result<(), NicError> {
        self.queue.flush()
    }

    fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<(), NicError> {
        self.queue.wait(wake, timeout)
    }

    fn exhausted(&self) -> bool {
        self.queue.exhausted()
    }

    fn steering(&self) -> Arc<dyn FlowSteering> {
        self.queue.steering()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.queue.counters()
    }

    fn describe(&self) -> String {
        self.queue.describe()
    }
}
