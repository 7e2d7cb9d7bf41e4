//! Replays a capture through the loopback NIC, and collects the frames that handlers send. A step replays some frames, so that the NIC's
//! threads and requests to them do not wait for the whole capture.

use std::time::{Duration, Instant};

use spin_abi::control::{MAX_BLOB, Replayed};
use spin_abi::counters::Counter;
use spin_matcher::{Headers, KeySpec};
use spin_nic::frame::MIN_SEND;
use spin_nic::memory::MemoryQueue;
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_nic::{NicError, Queue, TxQueue};

use crate::cores::{Poller, WorkerGroup};

use crate::worker::Worker;

/// Maximum number of frames taken from the far end at once.
const BATCH: usize = 1024;
/// Size of a packet's record header in a capture, in bytes.
const RECORD_HEADER: usize = 16;

/// A capture that is being replayed.
pub struct Replay {
    /// Packets that have not arrived yet.
    packets: std::vec::IntoIter<Packet>,
    /// Capture time of the packet that the engine may still be processing.
    current: Option<u64>,
    sent: Vec<Packet>,
    /// Size of `sent` as a capture, in bytes.
    bytes: usize,
    /// The engine's count of unmatched frames before the replay.
    unmatched: Option<u64>,
    replayed: Replayed,
    /// The key by which frames are divided between queues.
    flow: KeySpec,
}

impl Replay {
    /// Parses a capture.
    ///
    /// # Errors
    /// When it is not a capture.
    pub fn new(capture: &[u8]) -> Result<Self, String> {
        let packets = read_all(capture).map_err(|error| format!("capture: {error}"))?.into_iter();
        let (sent, replayed, flow) = (Vec::new(), Replayed::default(), KeySpec::default());
        Ok(Self { packets, current: None, sent, bytes: 0, unmatched: None, replayed, flow })
    }

    /// Sends frames one by one from `far` to the engine's NIC, each when the engine is done with the previous one. Stops with the first
    /// poll that ends after `most`. Skips frames that are too long for the NIC. Times are counted from `start`. Returns whether the
    /// replay is complete.
    ///
    /// # Errors
    /// More was sent than an answer can hold, or the NIC failed.
    pub fn resume(
        &mut self,
        engine: &mut Worker,
        far: &mut MemoryQueue,
        start: Instant,
        most: Duration,
    ) -> Result<bool, String> {
        self.unmatched.get_or_insert_with(|| unmatched(engine));
        let far = std::slice::from_mut(far);
        self.run(far, most, |far| {
            far[0].flush()?;
            Ok(engine.poll(|| start.elapsed())? > 0 || engine.has_tasks())
        })
    }

    /// Does the same with an engine of several threads, which poll by themselves. `far` has an end for each. As a NIC does, a hash of the
    /// flow chooses the queue of a frame.
    ///
    /// # Errors
    /// See [`Replay::resume`].
    pub fn resume_on(
        &mut self,
        group: &WorkerGroup,
        far: &mut [MemoryQueue],
        start: Instant,
        most: Duration,
    ) -> Result<bool, String> {
        self.unmatched.get_or_insert_with(|| unmatched_on(group));
        let poll = move |engine: &mut Worker| -> Result<bool, NicError> {
            Ok(engine.poll(|| start.elapsed())? > 0 || engine.is_busy())
        };
        let poll_all =
            || -> Result<bool, NicError> { group.all(poll).into_iter().try_fold(false, |any, busy| Ok(any | busy?)) };
        self.run(far, most, |far| {
            far.iter_mut().try_for_each(Queue::flush)?;
            // A packet may pass from a thread that was not asked yet to one that was.
            Ok(poll_all()? || poll_all()?)
        })
    }

    /// Sends frames and collects others, with `poll` in between, which returns whether the engine has work left.
    fn run(
        &mut self,
        far: &mut [MemoryQueue],
        most: Duration,
        mut poll: impl FnMut(&mut [MemoryQueue]) -> Result<bool, NicError>,
    ) -> Result<bool, String> {
        let begun = Instant::now();
        while self.current.is_some() || self.send_next(far)? {
            let is_busy = poll(far).map_err(|error| error.to_string())?;
            let mut sent = 0;
            for far in &mut *far {
                sent += self.collect(far);
            }
            if sent == 0 && !is_busy {
                self.current = None;
            }
            if self.bytes > MAX_BLOB {
                return Err(format!("handlers sent more than the {MAX_BLOB} bytes an answer can hold: replay less"));
            }
            if begun.elapsed() >= most {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends the next frame that is neither too long nor too short. Returns whether there was one.
    fn send_next(&mut self, far: &mut [MemoryQueue]) -> Result<bool, String> {
        for captured in self.packets.by_ref() {
            if captured.data.len() < MIN_SEND {
                self.replayed.too_short += 1;
                continue;
            }
            let queue = self.flow.extract(&captured.data, &Headers::parse(&captured.data)).hash() as usize % far.len();
            let far = &mut far[queue];
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

    /// Collects the frames that the engine sent. Returns how many.
    fn collect(&mut self, far: &mut MemoryQueue) -> usize {
        let mut batch = Vec::new();
        let count = far.receive(&mut batch, BATCH);
        for frame in batch {
            self.bytes += frame.len() + RECORD_HEADER;
            self.sent.push(Packet::whole(self.current.unwrap_or_default(), frame.to_vec()));
            far.recycle(frame);
        }
        count
    }

    /// A capture of the sent frames, and the numbers of frames.
    #[must_use]
    pub fn finish(self, engine: &Worker) -> (Vec<u8>, Replayed) {
        self.finish_with(unmatched(engine))
    }

    /// Does the same with an engine of several threads.
    #[must_use]
    pub fn finish_on(self, group: &WorkerGroup) -> (Vec<u8>, Replayed) {
        self.finish_with(unmatched_on(group))
    }

    fn finish_with(mut self, unmatched: u64) -> (Vec<u8>, Replayed) {
        self.replayed.sent = self.sent.len() as u64;
        self.replayed.unmatched = unmatched - self.unmatched.unwrap_or_default();
        (write_all(&self.sent), self.replayed)
    }
}

fn unmatched(engine: &Worker) -> u64 {
    engine.statistics().counts.get(Counter::DropUnmatched)
}

fn unmatched_on(group: &WorkerGroup) -> u64 {
    group.all(|engine| unmatched(engine)).into_iter().sum()
}
