//! An engine in the last of eight units, whose packets arrive at the worker of the first.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use spin_abi::control::Schedule;
use spin_engine::context::loader::Loader;
use spin_engine::cores::hand_over::HandOver;
use spin_engine::ingress::rx_batch::RoutingTable;
use spin_engine::install::{Home, WorkerRange};
use spin_engine::settings::Sizes;
use spin_engine::worker::Worker;
use spin_nic::frame::TxClosed;
use spin_nic::{FlowSteering, Frame, NicError, Queue, TxQueue, Wakeup};
use spin_pspin::counts::Counts;

use crate::nic::Nic;

const UNITS: u16 = 8;

/// The worker at which packets arrive.
pub struct Front {
    worker: Worker,
    open: Arc<AtomicBool>,
    /// The channels of the workers between the first and the last.
    _others: Vec<HandOver>,
}

impl Front {
    /// The worker with the NIC, and the channels of the engine's worker.
    pub fn new(loader: &Arc<Loader>, nic: Nic, sizes: Sizes) -> (Self, HandOver) {
        let wakeups: Vec<_> = (0..UNITS).map(|_| Wakeup::new().expect("an event")).collect();
        let mut others = HandOver::of(&wakeups);
        let (last, first) = (others.pop().expect("several"), others.remove(0));
        let open = Arc::<AtomicBool>::default();
        let nic = Gated { nic, open: open.clone() };
        let worker = Worker::new(loader.clone(), Box::new(nic), sizes, Schedule::default(), 0..1).expect("a timer");
        (Self { worker: worker.with_hand_over(first), open, _others: others }, last)
    }

    /// Makes the engine's worker that of the last unit.
    pub fn last(engine: Worker, hand_over: HandOver) -> Worker {
        engine.in_unit(UNITS - 1, u32::from(UNITS) - 1).with_hand_over(hand_over)
    }

    /// Sets the routes of frames from here on.
    pub fn set_routes(&mut self, engine: &mut Worker, routes: RoutingTable) {
        let slots = routes.slots.iter().map(|slot| slot.0 + 1).max().unwrap_or(0);
        let home = Home { workers: WorkerRange { first: UNITS - 1, count: 1 }, by_key: false };
        let routes = RoutingTable { homes: vec![home; slots as usize].into(), ..routes };
        self.worker.set_distribution(routes.clone());
        engine.set_distribution(routes);
    }

    /// Receives packets once the engine has copied all others, so that none is lost on the way.
    pub fn poll(&mut self, now: Duration) {
        self.open.store(self.worker.backlog() == 0, Relaxed);
        self.worker.poll(|| now).expect("memory does not fail");
    }

    pub fn backlog(&self) -> usize {
        self.worker.backlog()
    }

    pub fn counts(&self) -> Counts {
        self.worker.statistics().counts
    }
}

/// A NIC at which packets arrive only while it is open.
pub struct Gated {
    pub nic: Nic,
    pub open: Arc<AtomicBool>,
}

impl TxQueue for Gated {
    fn allocate(&mut self) -> Option<Frame> {
        self.nic.allocate()
    }

    fn low_on_buffers(&self) -> bool {
        self.nic.low_on_buffers()
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.nic.send(batch)
    }

    fn max_frame(&self) -> usize {
        self.nic.max_frame()
    }

    fn recycle(&mut self, frame: Frame) {
        self.nic.recycle(frame);
    }

    fn flush_tx(&mut self) -> Result<(), TxClosed> {
        self.nic.flush_tx()
    }
}

impl Queue for Gated {
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        if self.open.load(Relaxed) { self.nic.receive(out, max) } else { 0 }
    }

    fn pending(&self) -> usize {
        self.nic.pending()
    }

    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.nic.pass_to_kernel(batch)
    }

    fn flush(&mut self) -> Result<(), NicError> {
        self.nic.flush()
    }

    fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<(), NicError> {
        self.nic.wait(wake, timeout)
    }

    fn exhausted(&self) -> bool {
        self.nic.exhausted()
    }

    fn steering(&self) -> Arc<dyn FlowSteering> {
        self.nic.steering()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.nic.counters()
    }

    fn describe(&self) -> String {
        self.nic.describe()
    }
}
