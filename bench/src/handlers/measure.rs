//! Rounds: every variant runs on all packets, turn by turn, and what it did is compared with what must come of it.

use super::command::Command;
use super::reference::Expected;
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
    /// More commands than the log remembers.
    #[error("too many commands in packets {0} and following")]
    TooManyCommands(usize),
    /// Other commands than expected.
    #[error("the commands of packets {packet} and following differ: {found:?} where there should be {expected:?}")]
    Commands {
        /// First packet of the batch.
        packet: usize,
        /// The first command that is wrong; `None`: missing.
        found: Option<Command>,
        /// What it should be; `None`: there should be none.
        expected: Option<Command>,
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

fn compare(runner: &mut dyn Runner, packet: usize, expected: &[Command]) -> Result<(), Failure> {
    let bases = runner.bases();
    let commands = runner.log().commands().ok_or(Failure::TooManyCommands(packet))?;
    for at in 0..commands.len().max(expected.len()) {
        let (found, expected) = (commands.get(at).map(|command| command.relative(bases)), expected.get(at).copied());
        if found != expected {
            return Err(Failure::Commands { packet, found, expected });
        }
    }
    Ok(())
}
