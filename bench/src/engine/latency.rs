//! Unloaded latency: one packet at a time through an otherwise idle engine.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use spin_nic::frame::TxClosed;
use spin_nic::{FlowSteering, Frame, NicError, Queue, SyntheticSource, TxQueue};

use super::clock;
use super::cores::on_first;
use super::lab::{Failure, Lab, Setting};

/// Warm-up packets per counted packet, which train caches and branch predictors.
const WARM_UP: u64 = 4;

/// Latencies of a round in nanoseconds, without the cost of the measurement's clock readings. They include the engine's
/// own readings of its clock.
#[derive(Clone, Copy, Debug)]
pub struct Unloaded {
    /// Median latency.
    pub median: f64,
    /// 99th percentile of the latency.
    pub p99: f64,
    /// Subtracted cost: two readings of the clock less one.
    pub clock: f64,
}

impl Setting {
    /// Sends `packets` packets through an idle engine, each after the previous one has left it.
    ///
    /// # Errors
    /// As [`Setting::round`].
    pub fn unloaded(&self, packets: u64) -> Result<Unloaded, Failure> {
        // Runs on a thread of its own, since a thread has at most one executor.
        on_first(|| self.one_by_one(packets))
    }

    fn one_by_one(&self, packets: u64) -> Result<Unloaded, Failure> {
        let spent = Arc::new(AtomicU64::new(0));
        let part = self.prepare(1)?.remove(0);
        let timed = |rotation| Box::new(Timed { rotation, handed: Instant::now(), spent: spent.clone() }) as Box<_>;
        let mut lab = Lab::with(self, part, 0..1, timed)?;
        for _ in 0..packets / WARM_UP {
            lab.poll()?;
        }
        let mut times = Vec::with_capacity(usize::try_from(packets)?);
        for _ in 0..packets {
            if lab.poll()? != 1 {
                return Err("a packet was not taken in by the turn it arrived in".into());
            }
            times.push(spent.swap(u64::MAX, Relaxed));
        }
        lab.verify()?;
        if times.contains(&u64::MAX) {
            return Err("a packet was not released by the turn it arrived in".into());
        }
        times.sort_unstable();
        let clock = clock::cost().as_nanos() as f64;
        let quantile = |permille: usize| times[(times.len() - 1) * permille / 1000] as f64 - clock;
        Ok(Unloaded { median: quantile(500), p99: quantile(990), clock })
    }
}

/// A NIC that receives one frame at a time and measures the time from its receipt by the engine to its release.
struct Timed {
    rotation: SyntheticSource,
    handed: Instant,
    /// Time of the last frame in nanoseconds.
    spent: Arc<AtomicU64>,
}

impl TxQueue for Timed {
    fn recycle(&mut self, frame: Frame) {
        self.rotation.recycle(frame);
        let spent = self.handed.elapsed();
        self.spent.store(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    fn allocate(&mut self) -> Option<Frame> {
        self.rotation.allocate()
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.rotation.send(batch)
    }

    fn max_frame(&self) -> usize {
        self.rotation.max_frame()
    }

    fn flush_tx(&mut self) -> Result<(), TxClosed> {
        self.flush().map_err(|_| TxClosed)
    }
}

impl Queue for Timed {
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        let count = self.rotation.receive(out, max.min(1));
        self.handed = Instant::now();
        count
    }

    fn pending(&self) -> usize {
        self.rotation.pending()
    }

    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.rotation.pass_to_kernel(batch)
    }

    fn flush(&mut self) -> Result<(), NicError> {
        self.rotation.flush()
    }

    fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<(), NicError> {
        self.rotation.wait(wake, timeout)
    }

    fn exhausted(&self) -> bool {
        self.rotation.exhausted()
    }

    fn steering(&self) -> Arc<dyn FlowSteering> {
        self.rotation.steering()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.rotation.counters()
    }

    fn describe(&self) -> String {
        self.rotation.describe()
    }
}
