//! Waiting for descriptors, with a timeout.

use std::time::Duration;

use rustix::event::{PollFd, Timespec};
use rustix::io::Errno;

use crate::error::NicError;

/// `timeout` as the kernel takes it. A value that is too large becomes the largest.
pub(crate) fn timespec(timeout: Duration) -> Timespec {
    let tv_sec = timeout.as_secs().try_into().unwrap_or(i32::MAX.into());
    Timespec { tv_sec, tv_nsec: timeout.subsec_nanos().into() }
}

/// poll(2). A signal ends the wait.
pub(crate) fn poll(fds: &mut [PollFd<'_>], timeout: &Timespec) -> Result<(), NicError> {
    match rustix::event::poll(fds, Some(timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(NicError::system("wait for frames", errno)),
    }
}
