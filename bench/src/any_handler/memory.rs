//! The cost per packet in memory: an engine with one context, whose packets come from another queue of the same thread. Neither
//! writing the frames nor taking the replies is counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spin_abi::control::{Engine as Kind, Install, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::install::Prepared;
use spin_engine::settings::Limits;
use spin_engine::worker::Worker;
use spin_nic::memory::{MemoryQueue, pair};
use spin_nic::{Frame, Queue, TxQueue};
use spin_pspin::counts::Counts;

use super::context::Context;
use crate::engine::lab::{Failure, SIZES};

/// Packets that arrive between two polls.
const BATCH: usize = 64;
/// Frames of each queue.
const CAPACITY: usize = 1024;
/// A warm-up takes the time of a round divided by this.
const WARM_UP: u32 = 4;
/// Highest instruction limit that is tried.
const MOST_INSTRUCTIONS: u64 = 1 << 24;

/// Cost of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Mean length of the frames.
    pub length: f64,
    /// Nanoseconds on one core.
    pub nanoseconds: f64,
    /// Greatest number of instructions of a handler on one of the frames, as its instruction limit counts them: with the costs of
    /// commands (pspin/src/hpu/command/budget.rs).
    pub instructions: u64,
    /// Bytes that commands sent and copied.
    pub command_bytes: f64,
    /// Frames sent.
    pub sent: f64,
}

impl Context {
    /// Measures frames of each length for some time. For captured frames `lengths` is ignored.
    ///
    /// # Errors
    /// The context cannot be installed, no frame matches its rules, or handlers end with faults.
    pub fn costs(&self, lengths: &[u16], time: Duration) -> Result<Vec<Cost>, Failure> {
        let frames = self.packets.frames(lengths)?;
        frames.iter().map(|frames| self.cost(frames, time)).collect()
    }

    fn cost(&self, frames: &[Vec<u8>], time: Duration) -> Result<Cost, Failure> {
        let mut bench = Bench::new(self, Kind::Jit, self.install.clone())?;
        bench.run(frames, time / WARM_UP)?;
        let before = bench.counts();
        let (spent, packets) = bench.run(frames, time)?;
        let counts = bench.counts();
        let more = |counter| (counts.get(counter) - before.get(counter)) as f64 / packets as f64;
        check(&counts)?;
        Ok(Cost {
            length: frames.iter().map(Vec::len).sum::<usize>() as f64 / frames.len() as f64,
            nanoseconds: spent.as_nanos() as f64 / packets as f64,
            instructions: self.instructions(frames)?,
            command_bytes: more(Counter::TxBytes) + more(Counter::DmaToHostBytes) + more(Counter::DmaFromHostBytes),
            sent: more(Counter::TxPackets),
        })
    }

    /// The lowest instruction limit with which no handler is ended. Limits are exact in the interpreter.
    fn instructions(&self, frames: &[Vec<u8>]) -> Result<u64, Failure> {
        let suffices = |limit: u64| {
            let install = Install { instruction_limit: Some(limit), ..self.install.clone() };
            let mut bench = Bench::new(self, Kind::Interp, install)?;
            bench.once(frames)?;
            Ok::<_, Failure>(bench.counts().get(Counter::Faults) == 0)
        };
        let (mut low, mut high) = (0, 1);
        while !suffices(high)? {
            (low, high) = (high, high * 4);
            if high > MOST_INSTRUCTIONS {
                return Err("a handler takes more than 16 million instructions".into());
            }
        }
        while high - low > 1 {
            let middle = u64::midpoint(low, high);
            if suffices(middle)? {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(high)
    }
}

/// Refuses counts of a run that did not process packets as it should.
fn check(counts: &Counts) -> Result<(), Failure> {
    if counts.get(Counter::Matched) == 0 {
        return Err("no frame matches the rules: choose other frames with --port or --frames".into());
    }
    match counts.get(Counter::Faults) {
        0 => Ok(()),
        faults => {
            Err(format!("{faults} handlers ended with faults: run them under spind and see `spinctl stats`").into())
        }
    }
}

/// An engine and the queue that feeds it.
struct Bench {
    engine: Worker,
    feed: MemoryQueue,
    start: Instant,
    arriving: Vec<Frame>,
    replies: Vec<Frame>,
    /// The next frame of the caller's.
    next: usize,
}

impl Bench {
    fn new(context: &Context, kind: Kind, install: Install) -> Result<Self, Failure> {
        let loader = Arc::new(Loader::new(Machine::PSPIN, kind));
        let (nic, feed) = pair(CAPACITY)?;
        let prepared = Prepared::new(install, &context.image, 0, &loader, &Limits::default())?;
        let mut engine = Worker::new(loader, Box::new(nic), SIZES, Schedule::default(), 0..1)?;
        engine.install(prepared, &Limits::default())?;
        let (arriving, replies) = (Vec::with_capacity(BATCH), Vec::with_capacity(CAPACITY));
        Ok(Self { engine, feed, start: Instant::now(), arriving, replies, next: 0 })
    }

    fn counts(&self) -> Counts {
        self.engine.statistics().counts
    }

    /// Processes packets for some time. Returns the time in the engine, and the number of packets.
    fn run(&mut self, frames: &[Vec<u8>], time: Duration) -> Result<(Duration, u64), Failure> {
        let (begin, before) = (Instant::now(), self.engine.received());
        let mut spent = Duration::ZERO;
        while begin.elapsed() < time {
            self.feed(frames, BATCH)?;
            spent += self.poll()?;
            self.take_replies()?;
        }
        Ok((spent, self.engine.received() - before))
    }

    /// Processes each frame once.
    fn once(&mut self, frames: &[Vec<u8>]) -> Result<(), Failure> {
        while self.next < frames.len() {
            self.feed(frames, BATCH.min(frames.len() - self.next))?;
            while self.engine.has_tasks() || self.engine.received() < self.next as u64 {
                self.poll()?;
                self.take_replies()?;
            }
        }
        Ok(())
    }

    fn feed(&mut self, frames: &[Vec<u8>], count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            let Some(mut frame) = self.feed.allocate() else { break };
            frame.fill(&frames[self.next % frames.len()])?;
            self.next += 1;
            self.arriving.push(frame);
        }
        self.feed.send(&mut self.arriving);
        Ok(())
    }

    /// Polls the engine once. Returns how long it took.
    fn poll(&mut self) -> Result<Duration, Failure> {
        let begin = Instant::now();
        self.engine.poll(|| self.start.elapsed())?;
        Ok(begin.elapsed())
    }

    fn take_replies(&mut self) -> Result<(), Failure> {
        self.feed.receive(&mut self.replies, CAPACITY);
        for reply in self.replies.drain(..) {
            self.feed.recycle(reply);
        }
        self.feed.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Context;
    use crate::any_handler::context::Packets;
    use spin_abi::control::Install;
    use spin_nic::traffic::{Header, Plan};
    use std::net::Ipv4Addr;
    use std::time::Duration;

    fn context(rule: &str) -> Context {
        let image = spin_handlers::image("udp_pingpong", &[]).to_vec();
        let plan = Plan {
            macs: [[2; 6], [4; 6]],
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
            port: 9999,
            lengths: vec![64],
            flows: vec![0, 1, 2],
            header: Header::None,
            run: 1,
        };
        let install = Install { rules: vec![rule.to_owned()], ..Install::default() };
        Context { image, install, packets: Packets::Plan(Box::new(plan)) }
    }

    #[test]
    fn every_packet_is_answered_and_counted() {
        let costs = context("udp dport 9999").costs(&[64, 1000], Duration::from_millis(200)).expect("it runs");
        assert_eq!(costs.iter().map(|cost| cost.length).collect::<Vec<_>>(), [64.0, 1000.0]);
        for cost in &costs {
            assert!(
                (cost.sent - 1.0).abs() < 0.01 && (cost.command_bytes / cost.length - 1.0).abs() < 0.01,
                "{cost:?}"
            );
            assert!(cost.nanoseconds > 1.0, "{cost:?}");
        }
        // The handler swaps addresses, whatever the length.
        assert_eq!(costs[0].instructions, costs[1].instructions);
        // A command counts as 32 instructions, a send as 1000 more.
        assert!((1042..1132).contains(&costs[0].instructions), "{costs:?}");
    }

    #[test]
    fn frames_that_match_nothing_are_said() {
        let error = context("udp dport 9998").costs(&[64], Duration::from_millis(2)).expect_err("refused");
        assert!(error.to_string().contains("no frame matches"), "{error}");
    }
}
