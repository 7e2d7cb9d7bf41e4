//! An eventfd for a doorbell, for programs that wait with epoll(7) or in an event loop.
//!
//! A thread of the application sleeps on the doorbell and writes to the eventfd. spind writes to no descriptor that an
//! application holds: each of an application's epoll instances would add to the duration of such a write.
#![allow(unsafe_code, reason = "blocks signals of a thread")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::Region;

/// Bytes of the thread's stack. It runs little but system calls.
const STACK: usize = 64 << 10;

/// An eventfd, non-blocking, that is readable after its doorbell was rung. It is readable from the start, since the doorbell
/// may have been rung before.
#[derive(Debug)]
pub struct EventFd {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
    /// The process of the thread.
    process: u32,
}

/// What the thread uses.
#[derive(Debug)]
struct Bell {
    fd: OwnedFd,
    region: Arc<Region>,
    /// Offset of the doorbell in the region.
    offset: u64,
    ended: AtomicBool,
}

impl Bell {
    fn watch(&self, mut heard: u32) {
        while !self.ended.load(SeqCst) {
            self.region.sleep(self.offset, heard, Duration::MAX);
            let rings = self.region.rings(self.offset);
            if rings != heard {
                heard = rings;
                // EAGAIN after 2^64 - 2 rings without a read: the descriptor is readable then.
                let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
            }
        }
    }
}

impl EventFd {
    /// An eventfd for the doorbell at `offset` of a region.
    ///
    /// # Errors
    /// When the system has no descriptor or no thread.
    pub fn new(region: Arc<Region>, offset: u64) -> io::Result<Self> {
        let fd = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let heard = region.rings(offset);
        let bell = Arc::new(Bell { fd, region, offset, ended: AtomicBool::new(false) });
        let watched = bell.clone();
        let watch = || Builder::new().name("spin-events".into()).stack_size(STACK).spawn(move || watched.watch(heard));
        let thread = without_signals(watch)?;
        Ok(Self { bell, thread: Some(thread), process: std::process::id() })
    }

    /// Makes the descriptor unreadable until the doorbell is rung again, as read(2) does. Look for events after that, not
    /// before.
    pub fn clear(&self) {
        // EAGAIN when it was not readable.
        let _ = rustix::io::read(&self.bell.fd, &mut [0; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.fd.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.bell.fd.as_raw_fd()
    }
}

impl Drop for EventFd {
    fn drop(&mut self) {
        // A child of fork(2) has no such thread.
        if let Some(thread) = self.thread.take().filter(|_| self.process == std::process::id()) {
            self.bell.ended.store(true, SeqCst);
            // This wakes other sleepers too, who look for events and sleep again.
            self.bell.region.ring(self.bell.offset);
            let _ = thread.join();
        }
    }
}

/// Runs a function that starts a thread, which then handles no signals: handlers of the application's signals must not run
/// on a thread that the application does not know.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both sets are this function's own, and are written before they are read. The functions fail only for invalid
    // arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
        started
    }
}

#[cfg(test)]
mod tests {
    use super::EventFd;
    use crate::Region;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::Arc;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(20);

    fn is_readable(event_fd: &EventFd, longest: Duration) -> bool {
        let longest = Timespec::try_from(longest).expect("short");
        poll(&mut [PollFd::new(event_fd, PollFlags::IN)], Some(&longest)).expect("it waits") == 1
    }

    #[test]
    fn each_ring_makes_it_readable() {
        let region = Arc::new(Region::create(64).expect("memory"));
        let event_fd = EventFd::new(region.clone(), 8).expect("a thread");
        assert!(is_readable(&event_fd, Duration::ZERO), "the doorbell may have been rung before");
        for _ in 0..1000 {
            event_fd.clear();
            assert!(!is_readable(&event_fd, Duration::ZERO));
            region.ring(8);
            assert!(is_readable(&event_fd, LONG), "a ring was missed");
        }
    }

    #[test]
    fn several_are_rung_together_and_end_alone() {
        let region = Arc::new(Region::create(64).expect("memory"));
        let all: Vec<_> = (0..8).map(|_| EventFd::new(region.clone(), 8).expect("a thread")).collect();
        all.iter().for_each(EventFd::clear);
        region.ring(8);
        assert!(all.iter().all(|event_fd| is_readable(event_fd, LONG)));
        drop(all);
        assert_eq!(Arc::strong_count(&region), 1, "a thread is left");
    }

    #[test]
    fn its_thread_handles_no_signals() {
        let region = Arc::new(Region::create(64).expect("memory"));
        let event_fd = EventFd::new(region.clone(), 8).expect("a thread");
        // A thread that has written has a name.
        event_fd.clear();
        region.ring(8);
        assert!(is_readable(&event_fd, LONG));
        let name = |task: &std::path::Path| std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        let tasks = std::fs::read_dir("/proc/self/task").expect("there").map(|task| task.expect("there").path());
        let blocked: Vec<_> = tasks
            .filter(|task| name(task) == "spin-events\n")
            .filter_map(|task| std::fs::read_to_string(task.join("status")).ok())
            .map(|status| status.lines().find(|line| line.starts_with("SigBlk:")).unwrap_or_default().to_owned())
            .collect();
        // SIGTERM has the number 15. Threads of other tests may be among them.
        let blocks = |line: &String| u64::from_str_radix(line[7..].trim(), 16).is_ok_and(|set| set >> 14 & 1 == 1);
        assert!(!blocked.is_empty() && blocked.iter().all(blocks), "{blocked:?}");
        drop(event_fd);
    }
}
