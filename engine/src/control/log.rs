//! The log. Once packet threads run, a separate thread writes lines to standard error, so that packets never wait for the reader of the
//! log. Lines beyond a limit are dropped and counted. Lines about changes of contexts have a limit of their own: a context that prints
//! much cannot hide who changed what.

use std::io::{self, Write, stderr};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

use super::audit;

/// Maximum number of lines of one kind that wait to be written.
const CAPACITY: usize = 4096;

/// Kinds of lines, each with a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Changes of contexts: see [`audit`].
    Audit,
    /// Everything else, such as lines that handlers print.
    Other,
}

/// Lines of one kind that wait to be written.
#[derive(Debug)]
struct Count {
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

impl Count {
    const fn new() -> Self {
        Self { waiting: AtomicUsize::new(0), dropped: AtomicU64::new(0) }
    }

    /// Counts a new line. Returns whether there is room for it.
    fn add(&self) -> bool {
        let has_room = self.waiting.fetch_add(1, Relaxed) < CAPACITY;
        if !has_room {
            self.waiting.fetch_sub(1, Relaxed);
            self.dropped.fetch_add(1, Relaxed);
        }
        has_room
    }
}

/// A queue of lines for standard error.
#[derive(Debug)]
pub struct Log {
    /// The queue, once its writing thread runs. `audit` and `other` limit its length.
    lines: OnceLock<Sender<(Kind, Vec<u8>)>>,
    audit: Count,
    other: Count,
}

/// The log of the process.
pub static LOG: Log = Log::new();

impl Log {
    const fn new() -> Self {
        Self { lines: OnceLock::new(), audit: Count::new(), other: Count::new() }
    }

    /// Starts the writing thread. From then on, logging does not block.
    ///
    /// # Errors
    /// When the system provides no thread.
    pub fn start_thread(&'static self) -> io::Result<()> {
        let (sender, lines) = channel();
        thread::Builder::new().name("log".into()).spawn(move || self.write_all_of(&lines, &mut stderr()))?;
        // On a second call the first sender stays, and the new thread ends at once.
        let _ = self.lines.set(sender);
        Ok(())
    }

    fn write_all_of(&self, lines: &Receiver<(Kind, Vec<u8>)>, to: &mut impl Write) {
        for (kind, line) in lines {
            // An error here cannot be reported anywhere.
            let _ = to.write_all(&line);
            self.count(kind).waiting.fetch_sub(1, Relaxed);
            for (kind, what) in [(Kind::Audit, "lines about changes of contexts"), (Kind::Other, "lines of the log")] {
                let dropped = self.count(kind).dropped.swap(0, Relaxed);
                if dropped > 0 {
                    let _ = writeln!(to, "{dropped} {what} were lost: they came faster than they were read");
                }
            }
        }
    }

    /// Waits until all lines are written, at most for `longest`.
    pub fn finish(&self, longest: Duration) {
        let begun = Instant::now();
        let waits = || [&self.audit, &self.other].iter().any(|count| count.waiting.load(Relaxed) > 0);
        while waits() && begun.elapsed() < longest {
            thread::sleep(Duration::from_millis(1));
        }
    }

    const fn count(&self, kind: Kind) -> &Count {
        match kind {
            Kind::Audit => &self.audit,
            Kind::Other => &self.other,
        }
    }

    /// Writes text of several lines: the reason why spind ends.
    pub fn write_text(&self, text: &str) {
        self.queue(Kind::Other, text.as_bytes().to_vec());
    }

    /// Queues a line, or writes it at once before the writing thread runs.
    fn queue(&self, kind: Kind, line: Vec<u8>) {
        let Some(lines) = self.lines.get() else {
            // An error here cannot be reported anywhere.
            let _ = stderr().write_all(&line);
            return;
        };
        // The writing thread never ends, so the line is sent.
        if self.count(kind).add() && lines.send((kind, line)).is_err() {
            self.count(kind).waiting.fetch_sub(1, Relaxed);
        }
    }
}

/// An event as one line, whatever texts it contains. Escape sequences are left: those for colours are needed, and tracing-subscriber
/// removes those of messages.
fn one_line(event: &[u8]) -> Vec<u8> {
    let event = String::from_utf8_lossy(event);
    let mut line = String::with_capacity(event.len() + 1);
    for letter in event.trim_end_matches('\n').chars() {
        if letter.is_control() && letter != '\x1b' {
            line.extend(letter.escape_debug());
        } else {
            line.push(letter);
        }
    }
    line.push('\n');
    line.into_bytes()
}

/// Writes events of one kind.
#[derive(Debug)]
pub struct LineWriter<'l> {
    log: &'l Log,
    kind: Kind,
}

impl Write for LineWriter<'_> {
    /// Queues a whole event.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.log.queue(self.kind, one_line(event));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'l> MakeWriter<'l> for &'static Log {
    type Writer = LineWriter<'l>;

    fn make_writer(&'l self) -> LineWriter<'l> {
        LineWriter { log: self, kind: Kind::Other }
    }

    fn make_writer_for(&'l self, event: &Metadata<'_>) -> LineWriter<'l> {
        let kind = if event.target() == audit::TARGET { Kind::Audit } else { Kind::Other };
        LineWriter { log: self, kind }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc::channel;

    use tracing_subscriber::fmt::MakeWriter;

    use super::{CAPACITY, Kind, Log, one_line};

    #[test]
    fn an_event_is_one_line() {
        let line = |event: &str| String::from_utf8(one_line(event.as_bytes())).expect("UTF-8");
        assert_eq!(line("INFO serving lo\n"), "INFO serving lo\n");
        assert_eq!(line("a\nINFO user 0 removed context 1\r\n"), "a\\nINFO user 0 removed context 1\\r\n");
        assert_eq!(line("\u{1b}[32mINFO\u{1b}[0m \u{9b}2J\u{8}"), "\u{1b}[32mINFO\u{1b}[0m \\u{9b}2J\\u{8}\n");
        assert_eq!(one_line(b"\xff\n"), "\u{fffd}\n".as_bytes());
    }

    /// Lines that nobody reads while they come.
    #[test]
    fn lines_of_one_kind_are_not_lost_because_of_another() {
        let log: &'static Log = Box::leak(Box::new(Log::new()));
        let (sender, lines) = channel();
        log.lines.set(sender).expect("the first");
        let mut prints = log.make_writer();
        for number in 0..2 * CAPACITY {
            prints.write_all(b"print\n").expect("no error is reported");
            if number % 100 == 0 {
                log.queue(Kind::Audit, format!("change {number}\n").into_bytes());
            }
        }
        for _ in 0..CAPACITY {
            log.queue(Kind::Audit, b"change\n".to_vec());
        }
        // The queue ends here, so that its thread would end.
        let rest: Vec<_> = lines.try_iter().collect();
        let (again, queue) = channel();
        rest.into_iter().for_each(|line| again.send(line).expect("it is there"));
        drop(again);
        let mut written = Vec::new();
        log.write_all_of(&queue, &mut written);
        let text = String::from_utf8(written).expect("ASCII");
        for number in (0..2 * CAPACITY).step_by(100) {
            assert!(text.contains(&format!("change {number}\n")), "change {number} is lost");
        }
        assert_eq!(text.lines().filter(|line| *line == "print").count(), CAPACITY);
        assert!(text.contains(&format!("{CAPACITY} lines of the log were lost")), "counted");
        let early = 2 * CAPACITY / 100 + 1;
        assert!(text.contains(&format!("{early} lines about changes of contexts were lost")), "counted apart");
        log.finish(std::time::Duration::ZERO);
        assert!([Kind::Audit, Kind::Other].map(|kind| log.count(kind).add()).into_iter().all(|room| room));
    }
}
