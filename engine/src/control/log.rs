//! The log. Once packet threads run, a separate thread writes lines to standard error, so that packets never wait for the reader of the
//! log. Lines beyond the queue's capacity are dropped and counted.

use std::io::{self, Write, stderr};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of lines that wait to be written.
const CAPACITY: usize = 4096;

/// A queue of lines for standard error.
#[derive(Debug)]
pub struct Log {
    /// The queue, once its writing thread runs.
    lines: OnceLock<SyncSender<Vec<u8>>>,
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

/// The log of the process.
pub static LOG: Log = Log { lines: OnceLock::new(), waiting: AtomicUsize::new(0), dropped: AtomicU64::new(0) };

impl Log {
    /// Starts the writing thread. From then on, logging does not block.
    ///
    /// # Errors
    /// When the system provides no thread.
    pub fn start_thread(&'static self) -> io::Result<()> {
        let (sender, lines) = sync_channel(CAPACITY);
        thread::Builder::new().name("log".into()).spawn(move || self.write_all_of(&lines))?;
        // On a second call the first sender stays, and the new thread ends at once.
        let _ = self.lines.set(sender);
        Ok(())
    }

    fn write_all_of(&self, lines: &Receiver<Vec<u8>>) {
        for line in lines {
            // An error here cannot be reported anywhere.
            let _ = stderr().write_all(&line);
            self.waiting.fetch_sub(1, Relaxed);
            let dropped = self.dropped.swap(0, Relaxed);
            if dropped > 0 {
                let _ =
                    writeln!(stderr(), "{dropped} lines of the log were lost: they came faster than they were read");
            }
        }
    }

    /// Waits until all lines are written, at most for `longest`.
    pub fn finish(&self, longest: Duration) {
        let begun = Instant::now();
        while self.waiting.load(Relaxed) > 0 && begun.elapsed() < longest {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Write for &Log {
    /// Queues a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(lines) = self.lines.get() else { return stderr().write(line) };
        self.waiting.fetch_add(1, Relaxed);
        if lines.try_send(line.to_vec()).is_err() {
            self.waiting.fetch_sub(1, Relaxed);
            self.dropped.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
