//! A batch of tasks with one handler on one HPU. Their common state is set up once.

use hpu_vm::Exit;
use hpu_vm::jit::BoundSlot;

use super::command::CommandUnit;
use super::driver::Driver;
use super::task::{TaskIdentity, TaskSpec};
use super::windows::Windows;

/// An HPU that is bound to one handler and runs tasks of it.
pub struct HpuRun<'r, 'b, 'd, C> {
    pub(super) bound: &'r mut BoundSlot<'b, Driver<'d, C>>,
    pub(super) windows: &'r mut Windows,
    pub(super) spec: &'r TaskSpec<'r>,
    pub(super) parked: &'r mut bool,
}

impl<C: CommandUnit> HpuRun<'_, '_, '_, C> {
    /// Runs a task to its end, or until it parks, which makes it the last of the batch. Returns whether the handler
    /// returned. If not, see [`HpuRun::exit`].
    #[inline(always)]
    pub fn run_and_finish(&mut self, identity: TaskIdentity, packet: &mut [u8]) -> bool {
        let returned = self.run_task(identity, packet);
        self.finish(returned);
        returned
    }

    /// [`run_and_finish`](HpuRun::run_and_finish) without the second part: call [`HpuRun::finish`], unless the handler
    /// returned and [had no effects](HpuRun::had_no_effects).
    #[inline(always)]
    pub fn run_task(&mut self, identity: TaskIdentity, packet: &mut [u8]) -> bool {
        self.windows.isolate(self.bound, self.spec, identity);
        let changed = self.windows.fit(self.bound, self.spec, identity, packet);
        self.bound.run_task(&self.windows.block, changed, Some(packet))
    }

    /// Whether a handler that returned has issued no command and printed nothing.
    #[inline(always)]
    pub fn had_no_effects(&mut self) -> bool {
        self.bound.device().had_no_effects()
    }

    /// Finishes a task.
    #[inline]
    pub fn finish(&mut self, returned: bool) {
        if returned {
            self.bound.device().finish();
        } else {
            self.finish_or_park();
        }
    }

    /// Finishes a task whose handler did not return.
    #[cold]
    fn finish_or_park(&mut self) {
        if self.bound.exit() == Exit::Parked {
            *self.parked = true;
        } else {
            self.bound.device().finish();
        }
    }

    /// Exit of the last task whose handler did not [return](HpuRun::run_and_finish).
    #[must_use]
    #[inline]
    pub const fn exit(&self) -> Exit {
        self.bound.exit()
    }

    /// Bytes of a packet that its task is likely to read: see [`BoundSlot::likely_accessed`].
    #[must_use]
    #[inline]
    pub fn looked_at(&self) -> usize {
        self.bound.likely_accessed(self.spec.l1_bytes)
    }

    /// The command unit, between two tasks.
    #[inline]
    pub const fn commands(&mut self) -> &mut C {
        self.bound.device().commands()
    }

    /// Return value of the last task's handler: see [`Hpu::result`](super::Hpu::result).
    #[must_use]
    #[inline]
    pub const fn result(&self) -> u32 {
        self.bound.result()
    }
}
