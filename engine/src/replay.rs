//! Frames of a capture that arrive on the loopback NIC, and what is sent meanwhile.

use std::time::Instant;

use spin_abi::control::{MAX_BLOB, Replayed};
use spin_abi::counters::Counter;
use spin_nic::memory::MemoryQueue;
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_nic::{NicError, Queue};

use crate::pipeline::Engine;

/// Frames taken from the far end at once.
const BATCH: usize = 1024;
/// Bytes of a packet's record head in a capture.
const RECORD: usize = 16;

/// Lets the frames of a capture arrive at `far`'s other end, which is the engine's NIC, and returns what was sent, as a
/// capture, and how many there were. Those that are longer than the NIC takes are left out. `start` is the moment that times are
/// counted from.
///
/// # Errors
/// The capture is not one, or too long.
pub fn replay(
    engine: &mut Engine,
    far: &mut MemoryQueue,
    capture: &[u8],
    start: Instant,
) -> Result<(Vec<u8>, Replayed), String> {
    let packets = read_all(capture).map_err(|error| format!("capture: {error}"))?;
    let mut sent = Vec::new();
    let (mut bytes, mut replayed) = (0, Replayed::default());
    let unmatched = |engine: &Engine| engine.statistics().counts.get(Counter::DropUnmatched);
    let before = unmatched(engine);
    for captured in packets {
        let mut frame = far.allocate().ok_or("the loopback NIC has no buffer left")?;
        if frame.fill(&captured.data).is_err() {
            far.recycle(frame);
            replayed.too_long += 1;
            continue;
        }
        replayed.arrived += 1;
        far.send(&mut vec![frame]);
        for reply in settle(engine, far, start).map_err(|error| error.to_string())? {
            bytes += reply.len() + RECORD;
            sent.push(Packet::whole(captured.time, reply));
        }
        if bytes > MAX_BLOB {
            return Err(format!("handlers sent more than the {MAX_BLOB} bytes an answer can hold: replay less"));
        }
    }
    (replayed.sent, replayed.unmatched) = (sent.len() as u64, unmatched(engine) - before);
    Ok((write_all(&sent), replayed))
}

/// Turns until nothing arrives and nothing leaves any more; returns what was sent.
fn settle(engine: &mut Engine, far: &mut MemoryQueue, start: Instant) -> Result<Vec<Vec<u8>>, NicError> {
    let mut sent = Vec::new();
    let mut batch = Vec::new();
    loop {
        far.flush()?;
        let arrived = engine.turn(|| start.elapsed())?;
        let left = far.receive(&mut batch, BATCH);
        for frame in batch.drain(..) {
            sent.push(frame.to_vec());
            far.recycle(frame);
        }
        if arrived == 0 && left == 0 && !engine.has_tasks() {
            return Ok(sent);
        }
    }
}
