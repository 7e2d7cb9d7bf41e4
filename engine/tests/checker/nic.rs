//! A NIC with endless packets that tracks each of its frames.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use spin_nic::frame::CHUNK;
use spin_nic::frame::TxClosed;
use spin_nic::steering::AcceptAll;
use spin_nic::{FlowSteering, Frame, NicError, Queue, SyntheticSource, TxQueue};

use crate::judge::Judge;
use crate::traffic::{Arrival, Traffic};

/// Maximum number of frames that leave between two flushes.
const RING: usize = 48;

/// The place of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Home,
    /// The engine has it as the packet of this instance; 0 is an unmatched packet.
    Arrived(u32),
    /// The engine has it for filling.
    Lent,
}

/// Totals of frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub arrived: u64,
    /// Unmatched frames among these.
    pub foreign: u64,
    pub recycled: u64,
    pub passed: u64,
    /// Frames sent as they arrived, and other ones.
    pub moved: u64,
    pub copied: u64,
}

/// The state of the NIC.
pub struct Inside {
    pool: SyntheticSource,
    /// Address of the lowest frame's chunk.
    base: usize,
    places: Vec<Place>,
    traffic: Traffic,
    pub judge: Judge,
    pub totals: Totals,
    rng: Rng,
    bytes: Vec<u8>,
    /// The number of frames in the transmit ring.
    ring: usize,
    /// Whether no more packets arrive.
    pub closed: bool,
    /// Whether packets are copied to other frames before they run.
    pub handed: bool,
}

impl Inside {
    fn new(traffic: Traffic, judge: Judge, seed: u64, frames: usize) -> Self {
        let mut pool = SyntheticSource::new(&[], 0, frames).expect("memory");
        let all: Vec<Frame> = std::iter::from_fn(|| pool.allocate()).collect();
        let base = all.iter().map(|frame| frame.as_ptr().addr() / CHUNK).min().expect("some frames");
        all.into_iter().for_each(|frame| pool.recycle(frame));
        Self {
            pool,
            base,
            places: vec![Place::Home; frames],
            traffic,
            judge,
            totals: Totals::default(),
            rng: Rng::with_seed(seed),
            bytes: Vec::new(),
            ring: 0,
            closed: false,
            handed: false,
        }
    }

    /// The number of frames that the engine has.
    pub fn out(&self) -> usize {
        self.places.iter().filter(|&&place| place != Place::Home).count()
    }

    fn place(&mut self, frame: &Frame) -> &mut Place {
        &mut self.places[frame.as_ptr().addr() / CHUNK - self.base]
    }

    fn take(&mut self, place: Place) -> Option<Frame> {
        let frame = self.pool.allocate()?;
        let before = std::mem::replace(self.place(&frame), place);
        assert_eq!(before, Place::Home, "a frame in two places");
        Some(frame)
    }

    /// Takes a frame back, and returns its previous place.
    fn back(&mut self, frame: Frame) -> Place {
        let place = std::mem::replace(self.place(&frame), Place::Home);
        assert_ne!(place, Place::Home, "a frame that came back came back again");
        self.pool.recycle(frame);
        place
    }

    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        let max = if self.rng.bool() { max } else { self.rng.usize(..=max) };
        let count = if self.closed || self.rng.u8(..20) == 0 { 0 } else { max };
        for _ in 0..count {
            let arrival = self.traffic.next(&mut self.bytes);
            let instance = if let Arrival::Packet(order) = arrival { order.instance } else { 0 };
            let mut frame = self.take(Place::Arrived(instance)).expect("more frames than the engine has room for");
            frame.fill(&self.bytes).expect("short packets");
            out.push(frame);
            match arrival {
                Arrival::Packet(order) => self.judge.received(order),
                Arrival::Foreign => self.totals.foreign += 1,
            }
        }
        self.totals.arrived += count as u64;
        count
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.len().min(RING - self.ring);
        self.ring += count;
        for frame in batch.drain(..count) {
            match *self.place(&frame) {
                Place::Arrived(instance) => {
                    self.judge.moved(&frame, instance);
                    self.totals.moved += 1;
                }
                _ => {
                    self.judge.copied(&frame);
                    self.totals.copied += 1;
                }
            }
            self.back(frame);
        }
        count
    }

    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.len();
        for frame in batch.drain(..) {
            let place = self.back(frame);
            // A packet that was handed over is passed in the frame that it was copied to.
            let is_packet = matches!(place, Place::Arrived(1..)) || self.handed && place == Place::Lent;
            assert!(is_packet, "the kernel got what it has no use for: {place:?}");
        }
        self.totals.passed += count as u64;
        count
    }
}

/// The engine's handle of the NIC; the test has another one.
#[derive(Clone)]
pub struct Nic(Arc<Mutex<Inside>>);

impl Nic {
    /// A NIC with `frames` frames.
    pub fn new(traffic: Traffic, judge: Judge, seed: u64, frames: usize) -> Self {
        Self(Arc::new(Mutex::new(Inside::new(traffic, judge, seed, frames))))
    }

    pub fn inside(&self) -> MutexGuard<'_, Inside> {
        // A thread that panicked has failed the test already.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TxQueue for Nic {
    fn allocate(&mut self) -> Option<Frame> {
        self.inside().take(Place::Lent)
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.inside().send(batch)
    }

    fn max_frame(&self) -> usize {
        self.inside().pool.max_frame()
    }

    fn recycle(&mut self, frame: Frame) {
        let mut inside = self.inside();
        if matches!(inside.back(frame), Place::Arrived(_)) {
            inside.totals.recycled += 1;
        }
    }

    fn flush_tx(&mut self) -> Result<(), TxClosed> {
        self.flush().map_err(|_| TxClosed)
    }
}

impl Queue for Nic {
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        self.inside().receive(out, max)
    }

    fn pending(&self) -> usize {
        0
    }

    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize {
        self.inside().pass_to_kernel(batch)
    }

    fn flush(&mut self) -> Result<(), NicError> {
        self.inside().ring = 0;
        Ok(())
    }

    fn wait(&mut self, _: Option<BorrowedFd<'_>>, _: Duration) -> Result<(), NicError> {
        Ok(())
    }

    fn exhausted(&self) -> bool {
        false
    }

    fn steering(&self) -> Arc<dyn FlowSteering> {
        Arc::new(AcceptAll)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn describe(&self) -> String {
        "packets without end".into()
    }
}
