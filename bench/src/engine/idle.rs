//! Latency of a packet after a pause, by the idle mode of the engine's thread. A client sends a packet through memory
//! to the thread and polls for the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use spin_abi::control::Schedule;
use spin_engine::cores::{PollThread, SharedConfig, WorkerLinks};
use spin_engine::settings::{Idle, Limits, Sizes};
use spin_nic::memory::{MemoryQueue, pair};
use spin_nic::{Queue, TxQueue};

use super::case::Case;
use super::lab::{Failure, Setting};

/// Idle modes and their names in rows.
pub const MODES: [(Idle, &str); 3] = [(Idle::Spin, "spin"), (Idle::Adaptive, "adaptive"), (Idle::Sleep, "sleep")];
/// Pauses: within an adaptive thread's polling period (including the duration of the client's own sleep), and beyond
/// it.
pub const PAUSES: [(Duration, &str); 2] =
    [(Duration::from_micros(20), "after-20us"), (Duration::from_millis(5), "after-5ms")];
/// Answer timeout; no answer takes that long.
const PATIENCE: Duration = Duration::from_secs(10);

impl Setting {
    /// Returns the median nanoseconds from sending to the answer of `packets` packets, each after a pause.
    ///
    /// # Errors
    /// The engine cannot be started, or does not answer.
    pub fn after_pauses(&self, idle: Idle, pause: Duration, packets: u64) -> Result<f64, Failure> {
        let common = SharedConfig {
            loader: self.loader.clone(),
            sizes: Sizes::default(),
            schedule: Schedule::default(),
            idle,
            go: Arc::new(AtomicBool::new(true)),
            stop: Arc::default(),
            start: Instant::now(),
            ended: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
        };
        let (near, mut far) = pair(64)?;
        let worker = PollThread::start_engine(common.clone(), WorkerLinks::from_nic(Box::new(near))?, 0..1, None)?;
        let part = self.prepare(1)?.remove(0);
        worker.ask(move |engine| engine.install(part, &Limits::default())).ok_or("the thread ended")??;
        let times = (0..packets).map(|number| {
            thread::sleep(pause);
            exchange(&mut far, &self.case, number)
        });
        let times = times.collect::<Result<Vec<_>, _>>();
        common.stop.store(true, Relaxed);
        worker.join()?;
        let mut times = times?;
        times.sort_unstable();
        Ok(times[times.len() / 2].as_nanos() as f64)
    }
}

/// Sends a packet and returns the time until its answer.
fn exchange(far: &mut MemoryQueue, case: &Case, number: u64) -> Result<Duration, Failure> {
    let bytes = case.frames().nth(number as usize % 16).ok_or("a case without frames")?;
    let mut frame = far.allocate().ok_or("frames do not come back")?;
    frame.fill(&bytes)?;
    let mut batch = vec![frame];
    let start = Instant::now();
    far.send(&mut batch);
    far.flush()?;
    loop {
        far.receive(&mut batch, 1);
        let time = start.elapsed();
        if let Some(answer) = batch.pop() {
            far.recycle(answer);
            return Ok(time);
        }
        if time > PATIENCE {
            return Err("no answer".into());
        }
    }
}
