//! `stats --watch`: rates in each interval.
//!
//! * `rates`: differences of counters over the measured time.
//! * `table`: rates as text.

mod rates;
mod table;

use std::io::{self, IsTerminal, Write, stdout};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use libspin::{Client, Stats};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::tcgetwinsize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::error::Error;
use rates::Interval;

/// Moves the cursor to the first line and clears the terminal.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

/// Prints rates `count` times, or until a signal or the end of spind.
pub fn watch(spind: &mut Client, every: Duration, count: Option<u64>, json: bool) -> Result<(), Error> {
    let interrupted = signals()?;
    let mut before = Reading::take(spind)?;
    for _ in 0..count.unwrap_or(u64::MAX) {
        match wait(&interrupted, spind, before.at + every)? {
            Woken::InTime => {}
            Woken::Interrupted => break,
            Woken::Ended => {
                eprintln!("spinctl: spind has ended");
                break;
            }
        }
        let now = match Reading::take(spind) {
            Ok(now) => now,
            // It answered before.
            Err(error) => {
                eprintln!("spinctl: spind has ended: {error}");
                break;
            }
        };
        let seconds = (now.at - before.at).as_secs_f64();
        print(&Interval { before: &before.stats, now: &now.stats, seconds }, json)?;
        before = now;
    }
    Ok(())
}

/// All counters at a time.
struct Reading {
    at: Instant,
    stats: Stats,
}

impl Reading {
    fn take(spind: &mut Client) -> Result<Self, libspin::Error> {
        let stats = spind.stats()?;
        Ok(Self { at: Instant::now(), stats })
    }
}

/// A socket that can be read after SIGINT or SIGTERM. A second signal ends the process, should spind not answer.
fn signals() -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, again.clone())?;
        signal_hook::flag::register(signal, again.clone())?;
        pipe::register(signal, write.try_clone()?)?;
    }
    Ok(read)
}

/// Why a wait is over.
enum Woken {
    InTime,
    Interrupted,
    /// spind closed the connection.
    Ended,
}

/// Waits until `end`, or for a signal or the end of spind.
fn wait(interrupted: &UnixStream, spind: &Client, end: Instant) -> io::Result<Woken> {
    loop {
        let mut polled = [PollFd::new(interrupted, PollFlags::IN), PollFd::new(spind, PollFlags::IN)];
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
        match poll(&mut polled, left.as_ref()) {
            Ok(0) => return Ok(Woken::InTime),
            Ok(_) if !polled[0].revents().is_empty() => return Ok(Woken::Interrupted),
            // spind sends nothing unless asked.
            Ok(_) => return Ok(Woken::Ended),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Prints one interval: a line of JSON, or a block of text that replaces the former one on a terminal.
fn print(interval: &Interval<'_>, json: bool) -> io::Result<()> {
    let mut text = Vec::new();
    if json {
        writeln!(text, "{}", interval.to_json())?;
    } else {
        table::block(&mut text, interval)?;
        if stdout().is_terminal() {
            let rows = tcgetwinsize(stdout())?.ws_row;
            text = [CLEAR, first_lines(&text, rows.into())].concat();
        } else {
            writeln!(text)?;
        }
    }
    let mut out = stdout().lock();
    out.write_all(&text)?;
    out.flush()
}

/// The lines that fit a terminal with this many rows; the cursor takes the last one. 0: the size is unknown.
fn first_lines(text: &[u8], rows: usize) -> &[u8] {
    let end = |rows: usize| text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).nth(rows);
    match rows {
        0 => text,
        1 => &[],
        _ => &text[..end(rows - 2).unwrap_or(text.len())],
    }
}

#[cfg(test)]
mod tests {
    use super::first_lines;

    #[test]
    fn a_terminal_shows_the_first_lines() {
        let text = b"1\n2\n3\n";
        let shown = [0, 1, 2, 3, 4, 9].map(|rows| first_lines(text, rows).len());
        assert_eq!(shown, [6, 0, 2, 4, 6, 6]);
    }
}
