//! Rounds: the variants run alternately on all packets, and their results are compared with the expected ones.

use super::command::{Copies, Send};
use super::reference::{Commands, Expected};
use super::runner::Runner;
use super::work::{PACKETS, Work};
use std::time::{Duration, Instant};

/// Number of times a round goes through all packets. The last one is timed: by then caches and branch predictors are
/// warm, as in a NIC under continuous load.
pub const LAPS: usize = 2;

/// Packets that are placed and then run together. They stay in the second-level cache in between, and the clock is read
/// rarely enough not to affect the figures.
pub const BATCH: usize = 256;

/// Reason why a round is invalid.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A handler did not return.
    #[error("{0}")]
    Ended(String),
    /// More sends than the log can hold.
    #[error("too many sends in packets {0} and following")]
    TooManySends(usize),
    /// The sends differ from the expected ones.
    #[error("the sends of packets {packet} and following differ: {found:?} where there should be {expected:?}")]
    Sends {
        /// First packet of the batch.
        packet: usize,
        /// First wrong send; `None`: a send is missing.
        found: Option<Send>,
        /// Expected send; `None`: none is expected.
        expected: Option<Send>,
    },
    /// The copies to host memory differ from the expected ones.
    #[error("packets {packet} and following copied {found:?} to host memory, not {expected:?}")]
    Copies {
        /// First packet of the batch.
        packet: usize,
        /// Copies found.
        found: Copies,
        /// Copies expected.
        expected: Copies,
    },
    /// Memory contents differ from the expected ones.
    #[error("the {0} differ from what they should be")]
    Memory(&'static str),
}

/// Runs a round of one variant: all laps, from the work's initial state. Returns nanoseconds per packet.
///
/// # Errors
/// The results differ from the expected ones.
pub fn round(work: &Work, runner: &mut dyn Runner, expected: &mut Expected) -> Result<f64, Failure> {
    runner.memory().reset(work);
    runner.publish_state();
    let mut spent = Duration::ZERO;
    for (number, commands) in expected.commands.iter().enumerate() {
        let first = number * BATCH % PACKETS;
        let packets = first..first + BATCH;
        runner.place(work, packets.clone());
        runner.log().clear();
        let start = Instant::now();
        runner.run(packets).map_err(Failure::Ended)?;
        let elapsed = start.elapsed();
        if number * BATCH >= (LAPS - 1) * PACKETS {
            spent += elapsed;
        }
        compare(runner, first, commands)?;
    }
    runner.collect();
    match runner.memory().difference(&expected.memory.parts()) {
        Some(part) => Err(Failure::Memory(part)),
        None => Ok(spent.as_secs_f64() * 1e9 / PACKETS as f64),
    }
}

fn compare(runner: &mut dyn Runner, packet: usize, commands: &Commands) -> Result<(), Failure> {
    let (base, log, expected) = (runner.packets_base(), runner.log(), commands.copies);
    if log.copies != expected {
        return Err(Failure::Copies { packet, found: log.copies, expected });
    }
    let (sends, expected) = (log.sends().ok_or(Failure::TooManySends(packet))?, &commands.sends);
    for at in 0..sends.len().max(expected.len()) {
        let (found, expected) = (sends.get(at).map(|send| send.relative(base)), expected.get(at).copied());
        if found != expected {
            return Err(Failure::Sends { packet, found, expected });
        }
    }
    Ok(())
}
