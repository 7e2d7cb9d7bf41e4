//! A device whose commands are waited for.

use std::task::Poll;

use hpu_vm::{Device, Trap, View};

/// Takes every access, and has who waits do so this often each time.
pub struct Waits {
    times: u32,
    left: u32,
}

impl Waits {
    pub const fn new(times: u32) -> Self {
        Self { times, left: times }
    }
}

impl Device for Waits {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Ok(0)
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Ok(())
    }

    fn wait(&mut self, _: &mut View<'_>, _: u32) -> Poll<Result<(), Trap>> {
        match self.left.checked_sub(1) {
            None => {
                self.left = self.times;
                Poll::Ready(Ok(()))
            }
            Some(less) => {
                self.left = less;
                Poll::Pending
            }
        }
    }
}
