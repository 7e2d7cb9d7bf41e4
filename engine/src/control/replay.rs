//! Frames of a capture that arrive on the loopback NIC, and what is sent meanwhile: some at a time, so that the thread whose NIC it is and
//! those that have something to ask of it do not wait until all are through.

use std::time::{Duration, Instant};

use spin_abi::control::{MAX_BLOB, Replayed};
use spin_abi::counters::Counter;
use spin_nic::frame::MIN_SEND;
use spin_nic::memory::MemoryQueue;
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_nic::{NicError, Queue, TxQueue};

use crate::pipeline::Engine;

/// Frames taken from the far end at once.
const BATCH: usize = 1024;
/// Bytes of a packet's record head in a capture.
const RECORD: usize = 16;

/// A capture that is replayed.
pub struct Replay {
    /// Those that are still to arrive.
    packets: std::vec::IntoIter<Packet>,
    /// When the one arrived, on the capture's clock, that the engine may not be done with.
    current: Option<u64>,
    sent: Vec<Packet>,
    /// Bytes of those, as a capture.
    bytes: usize,
    /// How many frames of others matched nothing before.
    unmatched: Option<u64>,
    replayed: Replayed,
}

impl Replay {
    /// Of a capture's packets.
    ///
    /// # Errors
    /// It is none.
    pub fn new(capture: &[u8]) -> Result<Self, String> {
        let packets = read_all(capture).map_err(|error| format!("capture: {error}"))?.into_iter();
        Ok(Self { packets, current: None, sent: Vec::new(), bytes: 0, unmatched: None, replayed: Replayed::default() })
    }

    /// Lets frames arrive one by one at `far`'s other end, which is the engine's NIC, each when all is done about the one before; for
    /// `most` of the time, and what the turn takes that is under way then. Those that are longer than the NIC takes are left out.
    /// `start` is the moment that times are counted from. Returns whether all is done.
    ///
    /// # Errors
    /// More was sent than an answer can hold, or the NIC failed.
    pub fn go_on(
        &mut self,
        engine: &mut Engine,
        far: &mut MemoryQueue,
        start: Instant,
        most: Duration,
    ) -> Result<bool, String> {
        self.unmatched.get_or_insert_with(|| unmatched(engine));
        let begun = Instant::now();
        while self.current.is_some() || self.next_arrives(far)? {
            self.turn(engine, far, start).map_err(|error| error.to_string())?;
            if self.bytes > MAX_BLOB {
                return Err(format!("handlers sent more than the {MAX_BLOB} bytes an answer can hold: replay less"));
            }
            if begun.elapsed() >= most {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets the next frame arrive that is neither too long nor too short. Returns whether there was one.
    fn next_arrives(&mut self, far: &mut MemoryQueue) -> Result<bool, String> {
        for captured in self.packets.by_ref() {
            if captured.data.len() < MIN_SEND {
                self.replayed.too_short += 1;
                continue;
            }
            let mut frame = far.allocate().ok_or("the loopback NIC has no buffer left")?;
            if frame.fill(&captured.data).is_ok() {
                self.replayed.arrived += 1;
                far.send(&mut vec![frame]);
                self.current = Some(captured.time);
                return Ok(true);
            }
            far.recycle(frame);
            self.replayed.too_long += 1;
        }
        Ok(false)
    }

    /// One turn, and what was sent. When nothing arrives and nothing leaves any more, all is done about the current frame.
    fn turn(&mut self, engine: &mut Engine, far: &mut MemoryQueue, start: Instant) -> Result<(), NicError> {
        far.flush()?;
        let arrived = engine.turn(|| start.elapsed())?;
        let mut batch = Vec::new();
        let left = far.receive(&mut batch, BATCH);
        for frame in batch {
            self.bytes += frame.len() + RECORD;
            self.sent.push(Packet::whole(self.current.unwrap_or_default(), frame.to_vec()));
            far.recycle(frame);
        }
        if arrived == 0 && left == 0 && !engine.has_tasks() {
            self.current = None;
        }
        Ok(())
    }

    /// What was sent, as a capture, and how many frames there were.
    #[must_use]
    pub fn end(mut self, engine: &Engine) -> (Vec<u8>, Replayed) {
        self.replayed.sent = self.sent.len() as u64;
        self.replayed.unmatched = unmatched(engine) - self.unmatched.unwrap_or_default();
        (write_all(&self.sent), self.replayed)
    }
}

fn unmatched(engine: &Engine) -> u64 {
    engine.statistics().counts.get(Counter::DropUnmatched)
}
