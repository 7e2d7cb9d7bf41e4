//! The log's way out: once there are threads that serve packets, lines go to standard error by a thread of their own, so that nobody's packets
//! wait for who reads the log, nor for who does not. What there is no room for is lost, and counted.

use std::io::{self, Write, stderr};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Lines that may wait.
const ROOM: usize = 4096;

/// Lines on their way to standard error.
#[derive(Debug)]
pub struct Log {
    /// Those that wait, once there is a thread for them.
    lines: OnceLock<SyncSender<Vec<u8>>>,
    waiting: AtomicUsize,
    lost: AtomicU64,
}

/// The process's.
pub static LOG: Log = Log { lines: OnceLock::new(), waiting: AtomicUsize::new(0), lost: AtomicU64::new(0) };

impl Log {
    /// From here on nobody who logs waits.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn set_apart(&'static self) -> io::Result<()> {
        let (sender, lines) = sync_channel(ROOM);
        thread::Builder::new().name("log".into()).spawn(move || self.write_all_of(&lines))?;
        // A second one ends at once, as the first sender stays.
        let _ = self.lines.set(sender);
        Ok(())
    }

    fn write_all_of(&self, lines: &Receiver<Vec<u8>>) {
        for line in lines {
            // Who does not want to read it will not be told.
            let _ = stderr().write_all(&line);
            self.waiting.fetch_sub(1, Relaxed);
            let lost = self.lost.swap(0, Relaxed);
            if lost > 0 {
                let _ = writeln!(stderr(), "{lost} lines of the log were lost: they came faster than they were read");
            }
        }
    }

    /// Waits until all is written, but no longer than that.
    pub fn finish(&self, longest: Duration) {
        let begun = Instant::now();
        while self.waiting.load(Relaxed) > 0 && begun.elapsed() < longest {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Write for &Log {
    /// Takes a line, whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(lines) = self.lines.get() else { return stderr().write(line) };
        self.waiting.fetch_add(1, Relaxed);
        if lines.try_send(line.to_vec()).is_err() {
            self.waiting.fetch_sub(1, Relaxed);
            self.lost.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
