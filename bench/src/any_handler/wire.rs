//! Rates and round trips on a wire, through a spind that the lab starts.

use std::process::Command;
use std::time::Duration;

use spin_nic::traffic::Pattern;

use crate::counters::counter;
use crate::engine::lab::Failure;
use crate::peers::lab::output;
use crate::pktgen::clock::SECOND;
use crate::pktgen::ping::{Rhythm, ping};
use crate::pktgen::port::{PortError, XdpPort};
use crate::pktgen::run::{Limits, Link, Sink, Transmitter};
use crate::pktgen::schedule::Schedule;
use crate::pktgen::search::{Found, Rules, Trial, search};
use crate::pktgen::source::Source;
use crate::pktgen::tally::Latency;

/// Rates between which the search looks, in packets per second.
const BOUNDS: [f64; 2] = [1e4, 3e6];
/// Length of a trial in seconds.
const TRIAL: f64 = 0.25;
/// Round trips that are measured.
const ROUND_TRIPS: u64 = 5000;
/// Round trips that show whether the handler replies.
const FIRST_TRIPS: u64 = 5;

/// Figures on a wire.
#[derive(Clone, Copy, Debug)]
pub struct OnWire {
    /// Highest rate without loss.
    pub rate: Found,
    /// Round trips. Missing if the handler does not reply.
    pub round_trip: Option<Latency>,
}

/// Measures the context `name` of a spind at the other end of the wire, with frames of `pattern` on the interface `link`. `stats` prints
/// spind's counters as JSON.
///
/// # Errors
/// The interface cannot be used, or spind does not answer.
pub fn measure(link: &str, pattern: Pattern, name: &str, stats: impl Fn() -> Command) -> Result<OnWire, Failure> {
    let port = Box::new(XdpPort::open(link, pattern.plan().port)?);
    let source = Source::Pattern(Box::new(pattern));
    let mut link = Link { transmitter: Transmitter::Port(port), sink: Sink::None, source, burst: None };
    let round_trip = round_trips(&mut link)?;
    let rules = Rules { bounds: BOUNDS, precision: 0.01, tolerance: 0.0, seconds: TRIAL, trials: 3 };
    let rate = search(&rules, |rate, seconds| {
        let before = processed(&mut stats(), name)?;
        let limits = Limits { time: (seconds * SECOND as f64) as u64, packets: u64::MAX };
        let report = link.run(&Schedule::of(Some(rate)), limits, |_| true)?;
        let sent = (report.sent_rate * report.seconds).round() as u64;
        let lost = sent.saturating_sub(processed(&mut stats(), name)? - before);
        Ok::<_, Failure>(Trial { sent, lost, reached: report.sent_rate })
    })?;
    Ok(OnWire { rate, round_trip })
}

fn round_trips(link: &mut Link) -> Result<Option<Latency>, PortError> {
    let Transmitter::Port(port) = &mut link.transmitter else { return Ok(None) };
    let rhythm =
        |packets| Rhythm { packets, pause: Duration::ZERO, timeout: Duration::from_millis(100), any_reply: true };
    if ping(&mut **port, &mut link.source, rhythm(FIRST_TRIPS))?.latency.is_none() {
        return Ok(None);
    }
    Ok(ping(&mut **port, &mut link.source, rhythm(ROUND_TRIPS))?.latency)
}

/// Number of packets of a context that handlers have processed.
fn processed(stats: &mut Command, name: &str) -> Result<u64, Failure> {
    Ok(counter(&output(stats)?, Some(name), "released")?)
}
