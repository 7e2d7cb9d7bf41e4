//! The loop of a relay: frames go from each of two interfaces to the other, impaired.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::decision::{Decision, Direction, Flip};
use super::queue::Queue;
use super::settings::Settings;
use crate::raw::PacketSocket;

/// Longest frame that is relayed. Frames merged by offloads may have this length.
const MAX_FRAME: usize = 1 << 16;
/// Frames received from one interface before the other is looked at.
const BATCH: usize = 64;
/// Longest wait, after which `stop` is asked again.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Frames of a direction, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that arrived.
    pub received: u64,
    /// Frames that left, with second copies.
    pub sent: u64,
    /// Frames that were lost as asked for.
    pub lost: u64,
    /// Frames that left twice.
    pub twice: u64,
    /// Frames with an inverted bit.
    pub corrupted: u64,
    /// Frames that were marked "congestion experienced".
    pub marked: u64,
    /// Frames that overtook others.
    pub overtaking: u64,
    /// Frames for which the queue had no room.
    pub overflowed: u64,
    /// Frames that the outgoing interface refused.
    pub refused: u64,
    /// Frames that the kernel dropped before the relay received them.
    pub missed: u64,
}

/// One direction.
struct Path {
    direction: Direction,
    queue: Queue,
    counts: Counts,
}

/// A relay between two interfaces.
pub struct Relay<'l> {
    settings: Settings,
    sockets: [PacketSocket; 2],
    paths: [Path; 2],
    names: [String; 2],
    log: Option<&'l mut dyn Write>,
}

impl<'l> Relay<'l> {
    /// Opens both interfaces. The log gets a line for each frame that arrives: direction, number, bytes, and what happens to it.
    ///
    /// # Errors
    /// As [`PacketSocket::open_both`], with the interface's name.
    pub fn open(interfaces: [&str; 2], settings: Settings, log: Option<&'l mut dyn Write>) -> io::Result<Self> {
        let open = |name: &str| {
            PacketSocket::open_both(name).map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
        };
        let [one, other] = interfaces;
        let path =
            |direction| Path { direction, queue: Queue::new(settings.rate, settings.limit), counts: Counts::default() };
        Ok(Self {
            settings,
            sockets: [open(one)?, open(other)?],
            paths: [path(Direction::Forth), path(Direction::Back)],
            names: [format!("{one}>{other}"), format!("{other}>{one}")],
            log,
        })
    }

    /// Relays frames until `stop` holds. Frames on their way then are dropped. Returns the counts of both directions.
    ///
    /// # Errors
    /// An interface went away, or the log cannot be written.
    pub fn run(mut self, stop: impl Fn() -> bool) -> io::Result<[Counts; 2]> {
        let start = Instant::now();
        let mut buffer = vec![0; MAX_FRAME];
        while !stop() {
            for from in 0..2 {
                self.receive(from, &mut buffer, || start.elapsed())?;
                self.send_due(from, start.elapsed());
            }
            if let Some(log) = &mut self.log {
                log.flush()?;
            }
            self.wait(start.elapsed())?;
        }
        let missed = self.sockets.each_ref().map(PacketSocket::dropped);
        let [mut forth, mut back] = self.paths.map(|path| path.counts);
        let [one, other] = missed;
        (forth.missed, back.missed) = (one?.into(), other?.into());
        Ok([forth, back])
    }

    /// Receives frames of an interface, and decides on them.
    fn receive(&mut self, from: usize, buffer: &mut [u8], now: impl Fn() -> Duration) -> io::Result<()> {
        for _ in 0..BATCH {
            let Some(len) = self.sockets[from].receive(buffer)? else { break };
            let Path { direction, queue, counts } = &mut self.paths[from];
            counts.received += 1;
            let decision = Decision::on(&self.settings, *direction, counts.received, len);
            let mut frame: Box<[u8]> = buffer[..len].into();
            let mut outcome = decision;
            // Only packets of ECN-capable senders are marked.
            outcome.mark = !decision.lost && decision.mark && spin_engine::ingress::ecn::mark(&mut frame);
            if let Some(log) = &mut self.log {
                writeln!(log, "{} {} {len} {outcome}", self.names[from], counts.received)?;
            }
            if decision.lost {
                counts.lost += 1;
                continue;
            }
            if let Some(Flip { byte, bit }) = decision.flip {
                frame[byte] ^= 1 << bit;
            }
            counts.marked += u64::from(outcome.mark);
            counts.corrupted += u64::from(decision.flip.is_some());
            counts.twice += u64::from(decision.twice);
            counts.overtaking += u64::from(decision.overtakes);
            let now = now();
            let copies = if decision.twice { 2 } else { 1 };
            for _ in 0..copies {
                counts.overflowed += u64::from(!queue.add(now, frame.clone(), decision.delay, decision.overtakes));
            }
        }
        Ok(())
    }

    /// Sends the frames that are due.
    fn send_due(&mut self, from: usize, now: Duration) {
        let Path { queue, counts, .. } = &mut self.paths[from];
        while let Some(frame) = queue.take(now) {
            match self.sockets[1 - from].send(&frame) {
                Ok(()) => counts.sent += 1,
                Err(_) => counts.refused += 1,
            }
        }
    }

    /// Waits until a frame arrives or is due.
    fn wait(&self, now: Duration) -> io::Result<()> {
        let due = self.paths.iter().filter_map(|path| path.queue.next()).min();
        let wait = due.map_or(LONGEST_WAIT, |due| due.saturating_sub(now).min(LONGEST_WAIT));
        let timeout = Timespec::try_from(wait).map_err(io::Error::other)?;
        let mut sockets = self.sockets.each_ref().map(|socket| PollFd::new(socket, PollFlags::IN));
        match poll(&mut sockets, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
