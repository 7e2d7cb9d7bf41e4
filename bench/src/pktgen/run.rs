//! Sends packets when they are due, and receives them, for a time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use spin_nic::NicError;
use spin_nic::traffic::{Hook, LiveSender};

use super::clock::{SECOND, now};
use super::port::{BATCH, Port, PortError};
use super::schedule::Schedule;
use super::source::Source;
use super::tally::{Counts, Latency, Tally};

/// After this time without an arrival the sink has seen all packets.
const QUIET: u64 = SECOND / 10;
/// Longest wait for the last packets.
const LONGEST_DRAIN: u64 = 2 * SECOND;
/// Shorter waits are spent polling, since a sleep ends late by about this much.
const SHORTEST_SLEEP: u64 = 200_000;
/// Frames of one call of the kernel's generator. A call takes about 25 ms more than its frames, to set up and release
/// their memory.
const LIVE_BURST: u32 = 1 << 20;

/// What sends.
pub enum Transmitter {
    /// User space.
    Port(Box<dyn Port>),
    /// The kernel.
    Live(LiveSender),
}

/// What receives.
pub enum Sink {
    /// Nothing.
    None,
    /// The sending port.
    Same,
    /// Another port.
    Port(Box<dyn Port>),
    /// A program that only counts.
    Count(Hook),
}

impl Sink {
    /// Packets that a counting program has counted.
    fn counted(&self) -> Result<u64, NicError> {
        match self {
            Self::Count(hook) => hook.counts().map(|[packets, _]| packets),
            Self::None | Self::Same | Self::Port(_) => Ok(0),
        }
    }
}

/// Sends from a source to a sink.
pub struct Link {
    /// What sends.
    pub transmitter: Transmitter,
    /// What receives.
    pub sink: Sink,
    /// The packets.
    pub source: Source,
    /// Frames of a call of the kernel's generator, if chosen.
    pub burst: Option<u32>,
}

/// When a run ends, whichever is first.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Its length in nanoseconds.
    pub time: u64,
    /// Number of packets.
    pub packets: u64,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Report {
    /// Length in seconds, without the wait for the last packets.
    pub seconds: f64,
    /// Packets sent per second.
    pub sent_rate: f64,
    /// Frames that the sending interface refused.
    pub refused: u64,
    /// Packets received per second. Missing without a sink.
    pub received_rate: Option<f64>,
    /// Counts. Missing without a sink.
    pub counts: Option<Counts>,
    /// Latency. Missing if no signature was read.
    pub latency: Option<Latency>,
    /// Arrived packets that this program did not take in time: part of the lost.
    pub missed: u64,
}

/// What has happened so far in a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Seconds since the start.
    pub seconds: f64,
    /// Packets sent.
    pub sent: u64,
    /// Packets received.
    pub received: u64,
}

impl Link {
    /// Sends packets by a schedule until a limit is reached or `progress`, called about every second, returns false.
    ///
    /// # Errors
    /// An error of a backend.
    pub fn run(
        &mut self,
        schedule: &Schedule,
        limits: Limits,
        progress: impl FnMut(Progress) -> bool,
    ) -> Result<Report, PortError> {
        let before = Before {
            sent: self.sent()?,
            refused: self.refused()?,
            counted: self.sink.counted()?,
            missed: self.missed()?,
        };
        let mut tally = Tally::starting_at(self.sequence()?);
        let start = now();
        let mut reporter = Reporter { start, next: start + SECOND, counted: before.counted, progress };
        match &self.transmitter {
            Transmitter::Port(_) => self.send_from_port(schedule, limits, &mut tally, &mut reporter)?,
            Transmitter::Live(_) => self.send_live(schedule, limits, &mut tally, &mut reporter)?,
        }
        let seconds = (now() - start) as f64 / SECOND as f64;
        self.drain(&mut tally)?;
        self.report(&tally, &before, seconds)
    }

    /// Sends and receives by turns.
    fn send_from_port(
        &mut self,
        schedule: &Schedule,
        limits: Limits,
        tally: &mut Tally,
        reporter: &mut Reporter<impl FnMut(Progress) -> bool>,
    ) -> Result<(), PortError> {
        let (start, mut sent) = (reporter.start, 0);
        let mut time = start;
        while time - start < limits.time && sent < limits.packets {
            let due = due(schedule, sent, time - start, (limits.packets - sent).min(BATCH as u64));
            if due > 0 {
                sent += self.send(due as usize, schedule, sent, start)?;
            }
            let received = self.receive(tally)?;
            time = now();
            if due == 0 && received == 0 && matches!(self.sink, Sink::None | Sink::Count(_)) {
                rest(schedule.due(sent).map_or(0, |due| (start + due).saturating_sub(time)));
            }
            if !reporter.goes_on(time, sent, tally, &self.sink)? {
                break;
            }
        }
        Ok(())
    }

    /// Sends `count` packets, of which the first is number `first` of the run. Returns how many were made.
    fn send(&mut self, count: usize, schedule: &Schedule, first: u64, start: u64) -> Result<u64, PortError> {
        let Transmitter::Port(port) = &mut self.transmitter else { return Ok(0) };
        let (mut packet, at_once, source) = (first, now(), &mut self.source);
        let made = port.send(count, &mut |buffer| {
            let due = schedule.due(packet).map_or(at_once, |due| start + due);
            packet += 1;
            source.write(due, buffer)
        })?;
        Ok(made as u64)
    }

    /// A second thread has the kernel send, this one receives.
    fn send_live(
        &mut self,
        schedule: &Schedule,
        limits: Limits,
        tally: &mut Tally,
        reporter: &mut Reporter<impl FnMut(Progress) -> bool>,
    ) -> Result<(), PortError> {
        let Self { transmitter, sink, source, burst } = self;
        let Transmitter::Live(live) = transmitter else { return Ok(()) };
        let (sent, stop, burst) = (&AtomicU64::new(0), &AtomicBool::new(false), burst.unwrap_or(LIVE_BURST));
        thread::scope(|scope| {
            let start = reporter.start;
            let sender = scope.spawn(move || send_bursts(live, schedule, limits, start, burst, sent, stop));
            while !sender.is_finished() {
                let received = match sink {
                    Sink::Port(port) => receive(&mut **port, source, tally)?,
                    Sink::None | Sink::Same | Sink::Count(_) => 0,
                };
                if received == 0 {
                    rest(if matches!(sink, Sink::Port(_)) { 0 } else { SECOND / 1000 });
                }
                if !stop.load(Relaxed) && !reporter.goes_on(now(), sent.load(Relaxed), tally, sink)? {
                    stop.store(true, Relaxed);
                }
            }
            sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(PortError::from)
        })
    }

    fn receive(&mut self, tally: &mut Tally) -> Result<usize, PortError> {
        match (&mut self.sink, &mut self.transmitter) {
            (Sink::Port(port), _) | (Sink::Same, Transmitter::Port(port)) => receive(&mut **port, &self.source, tally),
            _ => Ok(0),
        }
    }

    /// Sends what remains, and waits until nothing more arrives.
    fn drain(&mut self, tally: &mut Tally) -> Result<(), PortError> {
        let start = now();
        let (mut last, mut counted) = (start, self.sink.counted()?);
        loop {
            let unsent = match &mut self.transmitter {
                Transmitter::Port(port) => port.flush()?,
                Transmitter::Live(_) => 0,
            };
            let received = self.receive(tally)?;
            let time = now();
            if received > 0 || unsent > 0 {
                last = time;
            } else {
                thread::sleep(Duration::from_millis(1));
                let seen = self.sink.counted()?;
                if seen != counted {
                    (last, counted) = (time, seen);
                }
            }
            if time - last > QUIET || time - start > LONGEST_DRAIN {
                return Ok(());
            }
        }
    }

    fn report(&mut self, tally: &Tally, before: &Before, seconds: f64) -> Result<Report, PortError> {
        let (sent, refused) = (self.sent()? - before.sent, self.refused()? - before.refused);
        let missed = self.missed()? - before.missed;
        let counts = match self.sink {
            Sink::None => None,
            Sink::Same | Sink::Port(_) => Some(tally.counts(sent)),
            Sink::Count(_) => {
                let received = self.sink.counted()? - before.counted;
                Some(Counts { received, lost: sent.saturating_sub(received), ..tally.counts(sent) })
            }
        };
        Ok(Report {
            seconds,
            sent_rate: sent as f64 / seconds,
            refused,
            received_rate: counts.map(|counts| counts.received as f64 / seconds),
            counts,
            latency: tally.latency(),
            missed,
        })
    }

    /// Packets sent in all runs: those that a live sender's interface accepted.
    fn sent(&self) -> Result<u64, NicError> {
        match &self.transmitter {
            Transmitter::Port(_) => Ok(self.source.written()),
            Transmitter::Live(live) => live.sent().map(|sent| sent.accepted),
        }
    }

    /// Sequence number of the next packet.
    fn sequence(&self) -> Result<u64, NicError> {
        match &self.transmitter {
            Transmitter::Port(_) => Ok(self.source.written()),
            Transmitter::Live(live) => live.sent().map(|sent| sent.written),
        }
    }

    fn refused(&self) -> Result<u64, NicError> {
        match &self.transmitter {
            Transmitter::Port(_) => Ok(0),
            Transmitter::Live(live) => live.sent().map(|sent| sent.refused),
        }
    }

    fn missed(&mut self) -> Result<u64, PortError> {
        match (&mut self.sink, &mut self.transmitter) {
            (Sink::Port(port), _) | (Sink::Same, Transmitter::Port(port)) => port.missed(),
            _ => Ok(0),
        }
    }
}

/// Has the kernel send bursts when they are due.
fn send_bursts(
    live: &mut LiveSender,
    schedule: &Schedule,
    limits: Limits,
    start: u64,
    burst: u32,
    sent: &AtomicU64,
    stop: &AtomicBool,
) -> Result<(), NicError> {
    let mut total = 0;
    while total < limits.packets && now() - start < limits.time && !stop.load(Relaxed) {
        let due = schedule.due(total).map_or(0, |due| start + due);
        rest(due.saturating_sub(now()));
        if now() >= due {
            let count = (limits.packets - total).min(burst.into());
            // At most `burst`.
            live.send(count as u32)?;
            total += count;
            sent.store(total, Relaxed);
        }
    }
    Ok(())
}

/// Counts packets that have arrived at a port. Returns the number of frames.
fn receive(port: &mut dyn Port, source: &Source, tally: &mut Tally) -> Result<usize, PortError> {
    port.receive(&mut |frame| {
        if let Some(signature) = source.signature(frame) {
            tally.add(signature.sequence, now().saturating_sub(signature.due));
        }
    })
}

/// Reports about every second.
struct Reporter<P> {
    start: u64,
    next: u64,
    /// Counted by the sink before the run.
    counted: u64,
    progress: P,
}

impl<P: FnMut(Progress) -> bool> Reporter<P> {
    /// Returns whether the run goes on.
    fn goes_on(&mut self, time: u64, sent: u64, tally: &Tally, sink: &Sink) -> Result<bool, NicError> {
        if time < self.next {
            return Ok(true);
        }
        self.next += SECOND;
        let seconds = (time - self.start) as f64 / SECOND as f64;
        let received = tally.received() + sink.counted()? - self.counted;
        Ok((self.progress)(Progress { seconds, sent, received }))
    }
}

/// Totals at the start of a run.
struct Before {
    sent: u64,
    refused: u64,
    counted: u64,
    missed: u64,
}

/// Number of packets that are due, at most `most`.
fn due(schedule: &Schedule, sent: u64, elapsed: u64, most: u64) -> u64 {
    let is_due = |packet| schedule.due(packet).is_none_or(|due| due <= elapsed);
    let mut count = 0;
    while count < most && is_due(sent + count) {
        count += 1;
    }
    count
}

/// Waits for some nanoseconds, or a little less.
fn rest(nanoseconds: u64) {
    if nanoseconds > SHORTEST_SLEEP {
        thread::sleep(Duration::from_nanos(nanoseconds - SHORTEST_SLEEP));
    } else {
        std::hint::spin_loop();
    }
}
