//! Child processes. Closing a received descriptor may block for ever, and so may the end of a process that has it: a
//! FUSE file's owner decides when the close returns. A child process that receives it blocks nobody else.

use core::array;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::panic::catch_unwind;

/// Starts child processes of a process that has one thread.
#[derive(Debug)]
pub struct Forker {
    /// `/proc/self/stat`, open, so that a filter of system calls may refuse to open files.
    stat: File,
}

impl Forker {
    /// Has the kernel reap children of this process: their exit status is lost.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn new() -> io::Result<Self> {
        // SAFETY: without a handler, no code runs at a signal.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        Ok(Self { stat: File::open("/proc/self/stat")? })
    }

    /// Runs `run` in a child process that has the descriptors `kept` and no others. Closes `kept` in this process.
    ///
    /// # Errors
    /// The errors of fork(2); `Unsupported` when this process has several threads.
    pub fn run<const N: usize>(&self, kept: [OwnedFd; N], run: fn([OwnedFd; N])) -> io::Result<()> {
        if self.threads()? != 1 {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "a process with several threads does not fork"));
        }
        // SAFETY: this is the only thread, so no other one holds a lock, or changes memory, when the child's copy is
        // made. The child never returns from here.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let ran = catch_unwind(|| {
                    close_others(&kept);
                    run(kept);
                });
                // SAFETY: ends the process without its destructors: the descriptors of other owners are closed.
                unsafe { libc::_exit(ran.is_err().into()) }
            }
            _ => Ok(()),
        }
    }

    /// Number of threads of this process.
    fn threads(&self) -> io::Result<u32> {
        let mut text = [0; 1024];
        let len = self.stat.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..len]);
        // The name of the program, in parentheses, is the second field; the number is the 20th (proc_pid_stat(5)).
        let number = text.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().nth(17)?.parse().ok());
        number.ok_or_else(|| io::Error::other("/proc/self/stat is not as in proc_pid_stat(5)"))
    }
}

/// Closes all descriptors but `kept`, in a child that uses no others.
fn close_others<const N: usize>(kept: &[OwnedFd; N]) {
    let mut numbers: [u32; N] = array::from_fn(|index| kept[index].as_raw_fd().unsigned_abs());
    numbers.sort_unstable();
    let mut first = 0;
    for number in numbers {
        if first < number {
            close_range(first, number - 1);
        }
        first = number + 1;
    }
    close_range(first, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: the caller is a child that uses none of these descriptors. An error is impossible for such a range in Linux
    // 5.9 and later; before, the child keeps copies of descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}
