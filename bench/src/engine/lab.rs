//! An engine in memory with the context of one case.

use std::error::Error;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use spin_abi::control::{Engine as Kind, Install, Placement, Schedule};
use spin_abi::counters::Counter;
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::cores::Poller;
use spin_engine::cores::packet_channel::{ChannelQueue, PacketRx};
use spin_engine::cores::packet_channels::PacketChannels;
use spin_engine::cores::receive_only::ReceiveOnly;
use spin_engine::ingress::rx_batch::RoutingTable;
use spin_engine::install::Prepared;
use spin_engine::settings::{Limits, Sizes};
use spin_engine::worker::Worker;
use spin_nic::{NicError, Queue, SyntheticSource, TxQueue, Wakeup};
use spin_pspin::counts::Counts;

use super::case::Case;
use super::cores;

/// Why a case counts for nothing.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Open messages, and packets that wait, at a time.
pub(super) const SIZES: Sizes = Sizes { queues: 1 << 14, hers: 1024, dma_chunk: 1024 };
/// Spare frames, for handlers that send copies.
const SPARE: usize = 512;
/// Portions of what is left to do that each of several threads would take if all did as much.
const PORTIONS: u64 = 512;

/// The image of a handler in a folder.
pub(super) fn read(images: &Path, name: &str) -> Result<Vec<u8>, Failure> {
    let path = images.join(name).with_extension("elf");
    std::fs::read(&path).map_err(|error| format!("{}: {error}; `make bench-engine` builds it", path.display()).into())
}

/// Payload handlers that an engine has run.
pub(super) fn runs(engine: &Worker) -> u64 {
    engine.statistics().counts.get(Counter::PayloadRuns)
}

/// What all threads of a case's engine have in common.
pub struct Setting {
    pub(super) case: Case,
    pub(super) loader: Arc<Loader>,
    pub(super) image: Vec<u8>,
}

impl Setting {
    /// The case's handlers, which are in `images`, to be run with the engine `kind`.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn new(case: Case, images: &Path, kind: Kind) -> Result<Self, Failure> {
        Ok(Self { case, loader: Arc::new(Loader::new(Machine::PSPIN, kind)), image: read(images, case.image)? })
    }

    /// The case's frames, in rotation.
    pub(super) fn rotation(&self) -> Result<SyntheticSource, Failure> {
        let frames: Vec<_> = self.case.frames().collect();
        Ok(SyntheticSource::new(&frames, self.case.size, SPARE)?)
    }

    /// The case's context, for `threads` threads with a cluster each.
    pub(super) fn prepare(&self, threads: u32) -> Result<Vec<Prepared>, Failure> {
        let install = Install {
            rules: vec![Case::rule()],
            eom: Some(self.case.eom().to_owned()),
            host_mem: self.case.host_mem,
            scratchpad: 64 << 10,
            placement: Placement::Home,
            ..Install::default()
        };
        let whole = Prepared::new(install, &self.image, 0, &self.loader, &Limits::default())?;
        let mut parts = vec![whole];
        for cluster in 1..threads {
            let rest = parts.last_mut().map(|part| part.split_off(cluster));
            parts.extend(rest);
        }
        Ok(parts)
    }

    /// So many engines, each on a thread and a cluster of its own with its own frames, which never run out, do `packets` for each of them at the
    /// same time, after a round that is not counted. Which of them does how many is not said: one that is kept from its core does less, as on a
    /// NIC that has more packets than all of them can take. Nanoseconds per packet of all of them: from the first one's begin to the last one's
    /// end, over all packets.
    ///
    /// # Errors
    /// The context cannot be installed, the engine fails, or a packet was not processed by what the case has for it.
    pub fn round(&self, threads: u32, packets: u64) -> Result<f64, Failure> {
        let (barrier, left) = (Barrier::new(threads as usize), AtomicU64::new(packets * u64::from(threads)));
        let portion = packets.div_ceil(PORTIONS);
        let work = |(cluster, part)| {
            let mut lab = Lab::new(self, part, cluster..cluster + 1);
            let warm = lab.as_mut().map_or(Ok(0.0), |lab| lab.round(packets));
            barrier.wait();
            let mut lab = lab?;
            warm?;
            let (begin, before) = (Instant::now(), lab.packets);
            while take_some(&left, portion) {
                lab.round(portion)?;
            }
            let (end, packets) = (Instant::now(), lab.packets - before);
            lab.verify()?;
            Ok((begin, end, packets))
        };
        let times: Vec<Result<(Instant, Instant, u64), Failure>> = thread::scope(|scope| {
            let parts = (0..threads).zip(self.prepare(threads)?);
            let started: Vec<_> = parts.map(|part| cores::start(scope, part.0 as usize, move || work(part))).collect();
            Ok::<_, Failure>(started.into_iter().map(cores::end).collect())
        })?;
        let times = times.into_iter().collect::<Result<Vec<_>, _>>()?;
        let begin = times.iter().map(|time| time.0).min().ok_or("no thread")?;
        let end = times.iter().map(|time| time.1).max().ok_or("no thread")?;
        let all: u64 = times.iter().map(|time| time.2).sum();
        Ok((end - begin).as_nanos() as f64 / all as f64)
    }
}

/// Takes a portion of what is left to do, or the rest; `false` when there is nothing.
fn take_some(left: &AtomicU64, portion: u64) -> bool {
    left.try_update(Relaxed, Relaxed, |left| (left > 0).then(|| left.saturating_sub(portion))).is_ok()
}

impl Setting {
    /// One thread receives, another runs the handlers of one cluster: a round of `packets`, after one that is not counted. Nanoseconds per
    /// packet.
    ///
    /// # Errors
    /// As [`Setting::round`].
    pub fn receive_only(&self, packets: u64) -> Result<f64, Failure> {
        let nic = Box::new(self.rotation()?.in_order());
        let (mut receiver, mut ends) = ReceiveOnly::new(nic, 1, SIZES.hers)?;
        self.feeding(ends.remove(0), self.prepare(1)?.remove(0), 0, move |routes| {
            receiver.set_routes(routes);
            let start = Instant::now();
            let spent = second_round(packets, || {
                receiver.poll(|| start.elapsed())?;
                Ok(receiver.received())
            })?;
            receiver.close();
            while receiver.backlog() > 0 {
                receiver.poll(|| start.elapsed())?;
            }
            Ok(spent)
        })
    }

    /// The same, where the receiving thread runs the handlers of another cluster: its local share is 75 %.
    ///
    /// # Errors
    /// As [`Setting::round`].
    pub fn pipeline(&self, packets: u64) -> Result<f64, Failure> {
        let nic = Box::new(self.rotation()?.in_order());
        let (channels, mut ends) = PacketChannels::with_local_share(
            nic.max_frame(),
            &Wakeup::new().map_err(NicError::from)?,
            1,
            SIZES.hers,
            75,
        )?;
        let mut parts = self.prepare(2)?;
        let engine = Worker::new(self.loader.clone(), nic, SIZES, Schedule::default(), 0..1)?;
        let mut lab = Lab::of(self.case, engine.with_local_share(channels));
        lab.engine.link(parts.remove(0), &Limits::default())?;
        // The other thread ends with it.
        self.feeding(ends.remove(0), parts.remove(0), 1, move |routes| {
            lab.engine.set_distribution(routes);
            let spent = second_round(packets, || {
                lab.poll()?;
                Ok(lab.engine.received())
            })?;
            lab.engine.close();
            while lab.engine.is_busy() {
                lab.poll()?;
            }
            lab.verify()?;
            Ok(spent)
        })
    }

    /// What `feed` returns while a thread runs the handlers of a cluster whose packets come by a channel. It is told where to lead them.
    fn feeding(
        &self,
        (arrivals, queue): (PacketRx, ChannelQueue),
        part: Prepared,
        cluster: u32,
        feed: impl FnOnce(RoutingTable) -> Result<f64, Failure>,
    ) -> Result<f64, Failure> {
        let (tell, told) = channel();
        let handlers = move || {
            let clusters = cluster..cluster + 1;
            let engine = Worker::new(self.loader.clone(), Box::new(queue), SIZES, Schedule::default(), clusters)?;
            let mut engine = engine.fed_by(arrivals);
            engine.link(part, &Limits::default())?;
            tell.send(engine.routes())?;
            let mut lab = Lab::of(self.case, engine);
            lab.finish()?;
            Ok::<_, Failure>(lab.verify()?)
        };
        thread::scope(|scope| {
            let handlers = cores::start(scope, 1, handlers);
            // Whose end is the other thread's.
            let spent = told.recv().map_err(Failure::from).and_then(feed);
            cores::end(handlers)?;
            spent
        })
    }

    /// A round of `packets` on one thread that has so many clusters, after one that is not counted. Nanoseconds per packet.
    ///
    /// # Errors
    /// As [`Setting::round`].
    pub fn one_thread(&self, clusters: u32, packets: u64) -> Result<f64, Failure> {
        let mut lab = Lab::new(self, self.prepare(1)?.remove(0), 0..clusters)?;
        lab.round(packets)?;
        let spent = lab.round(packets)?;
        lab.verify()?;
        Ok(spent)
    }

    /// Sends `packets` packets or a few more through an engine on this thread, after `warm_up` others, and tells by how much
    /// `watched` went up meanwhile.
    ///
    /// # Errors
    /// As [`Setting::round`].
    pub fn watched(&self, warm_up: u64, packets: u64, watched: impl Fn() -> u64) -> Result<Passed, Failure> {
        let mut lab = Lab::new(self, self.prepare(1)?.remove(0), 0..1)?;
        lab.round(warm_up)?;
        let (warm, before) = (lab.packets, watched());
        let mut polls = 0;
        while lab.packets - warm < packets {
            lab.poll()?;
            polls += 1;
        }
        let passed = Passed { packets: lab.packets - warm, polls, watched: watched() - before };
        lab.verify()?;
        Ok(passed)
    }
}

/// Nanoseconds per packet of the second of two rounds of `packets`, made of turns of somebody who tells how many he has received so far.
fn second_round(packets: u64, mut poll: impl FnMut() -> Result<u64, Failure>) -> Result<f64, Failure> {
    let mut received = 0;
    let mut round = || {
        let (start, before) = (Instant::now(), received);
        while received - before < packets {
            received = poll()?;
        }
        Ok(start.elapsed().as_nanos() as f64 / (received - before) as f64)
    };
    round()?;
    round()
}

/// What went through an engine.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// Packets.
    pub packets: u64,
    /// Turns of the engine that it took.
    pub polls: u64,
    /// By how much the figure that was watched went up.
    pub watched: u64,
}

/// An engine and its NIC.
pub(super) struct Lab {
    case: Case,
    engine: Worker,
    /// When its clock began.
    start: Instant,
    packets: u64,
}

impl Lab {
    fn of(case: Case, engine: Worker) -> Self {
        Self { case, engine, start: Instant::now(), packets: 0 }
    }

    fn new(setting: &Setting, part: Prepared, clusters: Range<u32>) -> Result<Self, Failure> {
        Self::with(setting, part, clusters, |nic| Box::new(nic))
    }

    /// With a NIC made of the rotation of the case's frames.
    pub(super) fn with(
        setting: &Setting,
        part: Prepared,
        clusters: Range<u32>,
        nic: impl FnOnce(SyntheticSource) -> Box<dyn Queue>,
    ) -> Result<Self, Failure> {
        let Setting { case, loader, .. } = setting;
        let nic = nic(setting.rotation()?);
        let mut engine = Worker::new(loader.clone(), nic, SIZES, Schedule::default(), clusters)?;
        engine.install(part, &Limits::default())?;
        Ok(Self::of(*case, engine))
    }

    /// Turns until `packets` packets or a few more have been through. Nanoseconds per packet.
    pub(super) fn round(&mut self, packets: u64) -> Result<f64, Failure> {
        let before = self.packets;
        let start = Instant::now();
        while self.packets - before < packets {
            self.poll()?;
        }
        Ok(start.elapsed().as_nanos() as f64 / (self.packets - before) as f64)
    }

    /// A turn of the engine. How many packets it took in.
    pub(super) fn poll(&mut self) -> Result<usize, Failure> {
        let taken = self.engine.poll(|| self.start.elapsed())?;
        self.packets += taken as u64;
        Ok(taken)
    }

    /// Turns until nothing comes any more. What was counted.
    fn finish(&mut self) -> Result<Counts, Failure> {
        while !self.engine.is_finished() || self.engine.has_tasks() {
            self.poll()?;
        }
        Ok(self.engine.statistics().counts)
    }

    /// Whether every packet was processed by what the case has for it, and none was lost; else which counter says otherwise.
    pub(super) fn verify(&self) -> Result<(), String> {
        self.case.verify(&self.engine.statistics().counts, self.packets)
    }
}

impl Case {
    /// The same of what several threads have counted.
    fn verify(&self, counts: &Counts, packets: u64) -> Result<(), String> {
        let expect = |counter: Counter, expected: u64, slack: u64| {
            let found = counts.get(counter);
            if found.abs_diff(expected) <= slack {
                Ok(())
            } else {
                Err(format!("{}: {found} where there should be {expected}", counter.name()))
            }
        };
        // First: others follow from it.
        expect(Counter::Faults, 0, 0)?;
        for &counter in self.per_packet {
            expect(counter, packets, 0)?;
        }
        for &counter in self.per_message {
            // Those that are open now may have begun and not ended.
            let ended = packets / u64::from(self.packets.unwrap_or(1));
            expect(counter, ended, self.flows.into())?;
        }
        Ok(())
    }
}
