//! Ways to wait for samples.

use std::hint::spin_loop;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use libspin::Events;
use rustix::event::epoll;
use rustix::io::Errno;
use spin_shm::Region;

use super::Failure;
use super::signal::{Signals, now};

/// Longest wait for a sample: the measurement has failed then.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Writes to an eventfd.
pub(super) fn write(fd: &OwnedFd) -> Result<(), Failure> {
    Ok(rustix::io::write(fd, &1u64.to_ne_bytes()).map(drop)?)
}

/// Reads host memory until its first word is the number of the sample.
pub(super) fn memory(signals: &Signals, host: &Region) -> Result<(), Failure> {
    signals.ready();
    for number in 1..=signals.samples {
        let mut word = [0; 4];
        while u32::from_le_bytes(word) != number {
            spin_loop();
            host.read(0, &mut word)?;
        }
        signals.take(now());
    }
    Ok(())
}

/// Sleeps on the doorbell.
pub(super) fn doorbell(signals: &Signals, mut events: Events) -> Result<(), Failure> {
    signals.ready();
    for _ in 0..signals.samples {
        if !events.wait(LONGEST_WAIT) {
            signals.fail();
            return Err("no event arrived".into());
        }
        let at = now();
        // Before the next sample, whose event is not to be dropped.
        events.by_ref().for_each(drop);
        signals.take(at);
    }
    Ok(())
}

/// Waits for the events' descriptor in epoll.
pub(super) fn epoll(signals: &Signals, mut events: Events) -> Result<(), Failure> {
    let event_fd = events.eventfd()?;
    event_fd.clear();
    epoll_each(signals, &event_fd, || {
        event_fd.clear();
        events.by_ref().count() > 0
    })
}

/// Waits for an eventfd in epoll.
pub(super) fn epoll_bare(signals: &Signals, fd: &OwnedFd) -> Result<(), Failure> {
    epoll_each(signals, fd, || !matches!(rustix::io::read(fd, &mut [0; 8]), Err(Errno::AGAIN)))
}

/// Waits until a descriptor is readable, for each sample. `is_there` says whether the sample is there, and makes the descriptor
/// unreadable.
fn epoll_each(signals: &Signals, fd: impl AsFd, mut is_there: impl FnMut() -> bool) -> Result<(), Failure> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    signals.ready();
    let longest = rustix::time::Timespec::try_from(LONGEST_WAIT)?;
    for _ in 0..signals.samples {
        loop {
            let mut ready = Vec::with_capacity(1);
            let count = epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), Some(&longest))?;
            let at = now();
            if count == 0 {
                signals.fail();
                return Err("no event arrived".into());
            }
            if is_there() {
                signals.take(at);
                break;
            }
        }
    }
    Ok(())
}
