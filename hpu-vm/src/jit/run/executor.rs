//! Threads that run tasks.

use std::time::Duration;

use super::bound_slot::{BoundSlot, bind};
use super::slot::Slot;
use super::task::Task;
use crate::device::Device;
use crate::interp::Exit;
use crate::trap::{self, TrapError, Watchdog};

/// A thread that runs tasks.
#[derive(Debug)]
pub struct Executor {
    watchdog: Watchdog,
}

impl Executor {
    /// Prepares this thread.
    ///
    /// # Errors
    /// See [`TrapError`]: a thread has at most one executor at a time.
    pub fn new() -> Result<Self, TrapError> {
        Ok(Self { watchdog: Watchdog::new()? })
    }

    /// Starts the monitor thread, which checks the tasks of all threads against their time limits. Returns whether it
    /// runs. [`Executor::new`] also starts it; call this earlier in a process that drops `CAP_SYS_NICE`. Without the
    /// monitor, each thread uses a timer.
    #[must_use]
    pub fn start_monitor() -> bool {
        trap::has_monitor()
    }

    /// Checks other threads' tasks against their time limits, for machines without a spare core for the monitor. A
    /// thread calls this between two tasks, and again after the returned time or some microseconds later. Without these
    /// calls the limits are enforced too, but at a cost of 3 % of one thread's time.
    #[must_use]
    pub fn poll_peers(&self) -> Duration {
        Duration::from_nanos(self.watchdog.poll_peers())
    }

    /// Marks this thread as sleeping: other threads must not rely on its [checks](Executor::poll_peers).
    pub fn mark_idle(&self) {
        self.watchdog.stop_polling();
    }

    /// Binds `slot` to `task` and `device`, and calls `run`, which executes any number of such tasks.
    #[inline]
    pub fn bind<D: Device, R>(
        &self,
        slot: &mut Slot,
        task: &Task<'_>,
        device: &mut D,
        run: impl FnOnce(&mut BoundSlot<'_, D>) -> R,
    ) -> R {
        bind(self.watchdog.watch(), slot, task, device, run)
    }

    /// Runs one task: see [`BoundSlot::run`].
    #[inline]
    pub fn run<D: Device>(&self, slot: &mut Slot, packet: &mut [u8], task: &Task<'_>, device: &mut D) -> Exit {
        self.bind(slot, task, device, |bound| bound.run(packet))
    }

    /// Resumes a parked task: see [`BoundSlot::resume`].
    pub fn resume<D: Device>(&self, slot: &mut Slot, packet: &mut [u8], task: &Task<'_>, device: &mut D) -> Exit {
        self.bind(slot, task, device, |bound| bound.resume(packet))
    }
}
