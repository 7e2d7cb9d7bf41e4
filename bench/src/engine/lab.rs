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
use spin_engine::control::policy::Policy;
use spin_engine::control::policy::host::Host;
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

/// Reason why a measurement is invalid.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Limits of open messages and of waiting packets.
pub(crate) const SIZES: Sizes = Sizes { queues: 1 << 14, hers: 1024, dma_chunk: 1024 };
/// Spare frames for handlers that send copies.
const SPARE: usize = 512;
/// Number of portions into which the work is divided for each thread.
const PORTIONS: u64 = 512;

/// Reads the image of a handler from a folder.
pub(super) fn read(images: &Path, name: &str) -> Result<Vec<u8>, Failure> {
    let path = images.join(name).with_extension("elf");
    std::fs::read(&path).map_err(|error| format!("{}: {error}; `make bench-engine` builds it", path.display()).into())
}

/// Returns the number of payload handlers that an engine has run.
pub(super) fn runs(engine: &Worker) -> u64 {
    engine.statistics().counts.get(Counter::PayloadRuns)
}

/// State shared by all threads of a case's engine.
pub struct Setting {
    pub(super) case: Case,
    pub(super) loader: Arc<Loader>,
    pub(super) image: Vec<u8>,
}

impl Setting {
    /// Reads the case's handlers from `images`; the engine `kind` runs them.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn new(case: Case, images: &Path, kind: Kind) -> Result<Self, Failure> {
        Ok(Self { case, loader: Arc::new(Loader::new(Machine::PSPIN, kind)), image: read(images, case.image)? })
    }

    /// Returns a NIC that rotates through the case's frames.
    pub(super) fn rotation(&self) -> Result<SyntheticSource, Failure> {
        let frames: Vec<_> = self.case.frames().collect();
        Ok(SyntheticSource::new(&frames, self.case.size, SPARE)?)
    }

    /// Prepares the case's context for `threads` threads with one cluster each.
    pub(super) fn prepare(&self, threads: u32) -> Result<Vec<Prepared>, Failure> {
        let install = Install {
            rules: vec![Case::rule()],
            eom: Some(self.case.eom().to_owned()),
            host_mem: self.case.host_mem,
            scratchpad: 64 << 10,
            placement: Placement::Home,
            ..Install::default()
        };
        let uid = self.case.uid;
        let grant = Policy::default().grant(uid, uid, &Host::Absent);
        let whole = Prepared::for_user(install, &self.image, &grant, &self.loader, &Limits::default())?;
        let mut parts = vec![whole];
        for cluster in 1..threads {
            let rest = parts.last_mut().map(|part| part.split_off(cluster));
            parts.extend(rest);
        }
        Ok(parts)
    }

    /// Runs `threads` engines in parallel, each on its own thread and cluster with its own endless frames, for
    /// `packets` packets per engine on average. A warm-up round is not counted. The split between the engines is
    /// dynamic: one that is preempted does less, as on a NIC with more packets than all of them can process. Returns
    /// the time from the first begin to the last end, in nanoseconds per packet of all engines.
    ///
    /// # Errors
    /// The context cannot be installed, the engine fails, or a packet was not processed as the case requires.
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

/// Takes a portion of the remaining work, or the rest; `false` when nothing remains.
fn take_some(left: &AtomicU64, portion: u64) -> bool {
    left.try_update(Relaxed, Relaxed, |left| (left > 0).then(|| left.saturating_sub(portion))).is_ok()
}

impl Setting {
    /// Measures one receiving thread and one thread that runs the handlers of one cluster: a round of `packets` after a
    /// warm-up round. Returns nanoseconds per packet.
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

    /// Measures as [`Setting::receive_only`] does, but the receiving thread also runs the handlers of another cluster,
    /// with a local share of 75 %.
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
        // The other thread ends with this one.
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

    /// Runs `feed` while a second thread runs the handlers of a cluster whose packets arrive by a channel. `feed` gets
    /// the routes to that cluster. Returns the result of `feed`.
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
            // An error here means that the other thread has ended; its own result tells why.
            let spent = told.recv().map_err(Failure::from).and_then(feed);
            cores::end(handlers)?;
            spent
        })
    }

    /// Runs a round of `packets` on one thread with `clusters` clusters, after a warm-up round. Returns nanoseconds per
    /// packet.
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

    /// Runs at least `packets` packets through an engine on this thread, after `warm_up` others. Returns the increase
    /// of the figure `watched` during the counted packets.
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

/// Returns nanoseconds per packet of the second of two rounds of `packets`. `poll` returns the number of packets
/// received so far.
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

/// Counts of a run through an engine.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// Number of packets.
    pub packets: u64,
    /// Number of engine polls.
    pub polls: u64,
    /// Increase of the watched figure.
    pub watched: u64,
}

/// An engine and its NIC.
pub(super) struct Lab {
    case: Case,
    engine: Worker,
    /// Start of the engine's clock.
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

    /// Makes an engine whose NIC rotates through the case's frames.
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

    /// Polls until at least `packets` packets were processed. Returns nanoseconds per packet.
    pub(super) fn round(&mut self, packets: u64) -> Result<f64, Failure> {
        let before = self.packets;
        let start = Instant::now();
        while self.packets - before < packets {
            self.poll()?;
        }
        Ok(start.elapsed().as_nanos() as f64 / (self.packets - before) as f64)
    }

    /// Polls the engine once. Returns the number of packets received.
    pub(super) fn poll(&mut self) -> Result<usize, Failure> {
        let taken = self.engine.poll(|| self.start.elapsed())?;
        self.packets += taken as u64;
        Ok(taken)
    }

    /// Polls until no packet is left. Returns the counters.
    fn finish(&mut self) -> Result<Counts, Failure> {
        while !self.engine.is_finished() || self.engine.has_tasks() {
            self.poll()?;
        }
        Ok(self.engine.statistics().counts)
    }

    /// Checks that every packet was processed as the case requires and none was lost; the error names the counter that
    /// differs.
    pub(super) fn verify(&self) -> Result<(), String> {
        self.case.verify(&self.engine.statistics().counts, self.packets)
    }
}

impl Case {
    /// Checks the counters of one or several threads, added up.
    fn verify(&self, counts: &Counts, packets: u64) -> Result<(), String> {
        let expect = |counter: Counter, expected: u64, slack: u64| {
            let found = counts.get(counter);
            if found.abs_diff(expected) <= slack {
                Ok(())
            } else {
                Err(format!("{}: {found} where there should be {expected}", counter.name()))
            }
        };
        // Checked first, since other deviations follow from faults.
        expect(Counter::Faults, 0, 0)?;
        for &counter in self.per_packet {
            expect(counter, packets, 0)?;
        }
        for &counter in self.per_message {
            // Messages that are open at the end have begun but not ended.
            let ended = packets / u64::from(self.packets.unwrap_or(1));
            expect(counter, ended, self.flows.into())?;
        }
        Ok(())
    }
}
