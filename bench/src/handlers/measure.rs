//! Rounds: every variant runs on all packets, turn by turn, and what it did is compared with what must come of it.

use super::command::{Copies, Send};
use super::reference::{Commands, Expected};
use super::runner::Runner;
use super::work::{PACKETS, Work};
use std::time::{Duration, Instant};

/// Times a round goes through all packets. The last one is timed: by then caches and branch predictors know the state, as
/// in a NIC that has been at it for a while.
pub const LAPS: usize = 2;

/// Packets that are placed, then run, at once. They stay in the second-level cache in between, and the clock is read
/// seldom enough not to show.
pub const BATCH: usize = 256;

/// Why a round counts for nothing.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A handler did not return.
    #[error("{0}")]
    Ended(String),
    /// More sends than the log remembers.
    #[error("too many sends in packets {0} and following")]
    TooManySends(usize),
    /// Other sends than expected.
    #[error("the sends of packets {packet} and following differ: {found:?} where there should be {expected:?}")]
    Sends {
        /// First packet of the batch.
        packet: usize,
        /// The first one that is wrong; `None`: missing.
        found: Option<Send>,
        /// What it should be; `None`: there should be none.
        expected: Option<Send>,
    },
    /// Other copies to host memory than expected.
    #[error("packets {packet} and following copied {found:?} to host memory, not {expected:?}")]
    Copies {
        /// First packet of the batch.
        packet: usize,
        /// What was copied.
        found: Copies,
        /// What should have been.
        expected: Copies,
    },
    /// Other bytes than expected.
    #[error("the {0} differ from what they should be")]
    Memory(&'static str),
}

/// A round of one variant: all laps, from the state the work begins with. Nanoseconds per packet.
///
/// # Errors
/// It did anything else than expected.
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
