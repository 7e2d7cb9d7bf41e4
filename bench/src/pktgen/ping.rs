//! Round trips of one packet at a time.

use std::hint::spin_loop;
use std::thread;
use std::time::Duration;

use super::clock::now;
use super::port::{Port, PortError};
use super::run::Report;
use super::source::Source;
use super::tally::Tally;

/// How packets follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// Number of packets.
    pub packets: u64,
    /// From the arrival of a reply to the next packet.
    pub pause: Duration,
    /// Longest wait for a reply.
    pub timeout: Duration,
    /// Take any frame for the reply, since the program changes signatures.
    pub any_reply: bool,
}

/// Sends packets, each after the reply to the previous one. Polls for replies.
///
/// # Errors
/// An error of the port.
pub fn ping(port: &mut dyn Port, source: &mut Source, rhythm: Rhythm) -> Result<Report, PortError> {
    let first = source.written();
    let mut tally = Tally::starting_at(first);
    let start = now();
    for sequence in first..first + rhythm.packets {
        let mut sent = now();
        while port.send(1, &mut |buffer| {
            sent = now();
            source.write(sent, buffer)
        })? == 0
        {
            spin_loop();
        }
        let mut answered = false;
        while !answered && now() - sent < rhythm.timeout.as_nanos() as u64 {
            port.receive(&mut |frame| {
                if rhythm.any_reply {
                    answered = true;
                    tally.add(sequence, now().saturating_sub(sent));
                } else if let Some(signature) = source.signature(frame) {
                    answered |= signature.sequence == sequence;
                    tally.add(signature.sequence, now().saturating_sub(signature.due));
                }
            })?;
        }
        if !rhythm.pause.is_zero() {
            thread::sleep(rhythm.pause);
        }
    }
    let seconds = (now() - start) as f64 / 1e9;
    let counts = tally.counts(rhythm.packets);
    Ok(Report {
        seconds,
        sent_rate: rhythm.packets as f64 / seconds,
        refused: 0,
        received_rate: Some(counts.received as f64 / seconds),
        counts: Some(counts),
        latency: tally.latency(),
        missed: port.missed()?,
    })
}
