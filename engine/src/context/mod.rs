//! An execution context: handlers, the memory they share, the host memory they may reach, and what became of them.

pub(crate) mod contexts;
pub mod event_ring;
pub mod image_error;
pub mod loader;
pub mod nic_memory;
pub(crate) mod niceness;
pub(crate) mod packet_rules;
pub mod translator;

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use hpu_vm::jit::{self, Options, Translation};
use spin_abi::control::{Abi, ContextInfo, Engine, FaultInfo, Full, Placement, RunInfo, SourceLine};
use spin_abi::counters::Counter;
use spin_abi::fault::Fault;
use spin_matcher::TableEntry;
use spin_pspin::counts::Counts;
use spin_pspin::host_memory::HostMemory;
use spin_pspin::hpu::Hpus;
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::hpu::memory::HpuId;
use spin_pspin::ids::{Handler, Slot};
use spin_pspin::mpq::Stage;

use crate::context::event_ring::EventRing;
use crate::sched::stall_credit::StallCredit;

/// Faults kept per context.
const FAULTS_KEPT: usize = 16;

/// Lines a context's handlers may print; the rest is dropped, so that no tenant floods the log.
pub const LINES_PRINTED: u32 = 10_000;

/// Recognises a file by its length and a hash that is keyed anew in each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    len: usize,
    hash: u64,
}

impl FileId {
    /// The file's id in this run.
    #[must_use]
    pub fn of(file: &[u8]) -> Self {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self { len: file.len(), hash: KEY.hash_one(file) }
    }
}

/// What a context matches, in words.
#[derive(Debug)]
pub struct Texts {
    /// Each rule.
    pub rules: Vec<String>,
    /// End of message.
    pub eom: String,
    /// Message key.
    pub key: String,
}

impl Texts {
    /// Those of an entry of the table.
    #[must_use]
    pub fn of(entry: &TableEntry) -> Self {
        Self {
            rules: entry.rules.rules.iter().map(ToString::to_string).collect(),
            eom: entry.eom.to_string(),
            key: entry.key.to_string(),
        }
    }
}

/// A context's part of the packet buffer, in HERs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// All of it.
    pub hers: u32,
    /// What it may hold without more ado: see [`Full`].
    pub soft_limit: u32,
}

impl Share {
    /// The part of `hers` HERs that `weight` is of `weights`.
    #[must_use]
    pub fn new(hers: u32, weight: u32, weights: u64, full: Full) -> Self {
        let part = u64::from(hers) * u64::from(weight) / weights.max(1);
        // Less than `hers`, which fits.
        let hers = u32::try_from(part).unwrap_or(u32::MAX).max(1);
        let soft_limit = if full == Full::Mark { hers / 2 } else { hers };
        Self { hers, soft_limit }
    }
}

/// Which packets a context takes.
#[derive(Debug)]
pub struct Matching {
    /// Rules, end of message, key.
    pub entry: TableEntry,
    /// The same, as users read it.
    pub texts: Texts,
}

impl Matching {
    /// That of an entry of the table.
    #[must_use]
    pub fn of(entry: TableEntry) -> Self {
        Self { texts: Texts::of(&entry), entry }
    }
}

/// What runs a context's tasks.
#[derive(Debug)]
pub struct Program {
    /// The image.
    pub image: Arc<LoadedImage>,
    /// Its translation; `None`: it is interpreted.
    pub translation: Option<Arc<Translation>>,
    /// Options of the translation, also of the next one.
    pub options: Options,
    /// Header, payload and completion handler.
    pub handlers: [Option<Handler>; 3],
    /// Bytes of a packet to copy to L1.
    pub l1_bytes: usize,
    /// How long a handler may run.
    pub limits: jit::Limits,
}

/// How a context takes another one's place, or gives way to one.
#[derive(Debug, Default)]
pub struct Replacement {
    /// The context that it replaces, as long as that has open messages.
    pub predecessor: Option<Slot>,
    /// The context that it could not replace and gave way to. Frames that were matched to it belong to that one.
    pub falls_back_to: Option<Slot>,
    /// It was replaced, and ends with its last message.
    pub draining: bool,
    /// If retired: number of frames that the engine has taken in once none of those to come can be its own.
    pub drain_mark: u64,
    /// If retired: when its open messages are ended.
    pub drain_deadline: Duration,
}

/// What a context's application reads of its handlers' errors and output.
#[derive(Debug)]
pub struct ContextLog {
    /// Latest faults, oldest first.
    pub faults: VecDeque<FaultInfo>,
    /// Lines that handlers may still print.
    pub lines_left: u32,
}

impl Default for ContextLog {
    fn default() -> Self {
        Self { faults: VecDeque::new(), lines_left: LINES_PRINTED }
    }
}

/// An installed context.
#[derive(Debug)]
pub struct Context {
    /// Id that users know; never reused.
    pub id: u32,
    /// Name for people.
    pub name: String,
    /// User it belongs to.
    pub uid: u32,
    /// Which packets it takes.
    pub matching: Matching,
    /// Its handlers.
    pub program: Program,
    /// Its HPUs on the worker's clusters, with the memory its tasks see.
    pub hpus: Hpus,
    /// Host memory, if it asked for some.
    pub host: Option<HostMemory>,
    /// How long an open message may wait for its next packet.
    pub message_timeout: Option<Duration>,
    /// Its part of the packet buffer.
    pub share: Share,
    /// Whether others may have to wait when that is full.
    pub stall_credit: StallCredit,
    /// How its handlers run, as asked for.
    pub run: RunInfo,
    /// Its counters.
    pub counts: Counts,
    /// What it replaces, or what replaces it.
    pub replacement: Replacement,
    /// Where its application is told of errors.
    pub event_ring: EventRing,
    /// Its faults and output.
    pub log: ContextLog,
}

impl Context {
    /// The handler for a stage, if the image has it.
    #[must_use]
    pub const fn handler(&self, stage: Stage) -> Option<Handler> {
        self.program.handlers[stage as usize]
    }

    /// Whether tasks on an HPU run in a row. Views of packets differ from one to the next, and so do comparisons and names of
    /// messages.
    #[inline]
    pub(crate) fn runs_in_a_row(&mut self, hpu: HpuId) -> bool {
        self.is_plain() && !self.hpus.get(hpu).is_shadowed()
    }

    /// Whether its handlers see packets as they are, and messages by the queues that these are in.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.run.abi != Abi::Pspin && !self.matching.entry.key.is_fpspin()
    }

    /// Whether its payload tasks may run on other threads. Packets that go on to the kernel stay in order. Tasks that the shadow
    /// interpreter checks would differ by what other tasks of the context do at the same time.
    pub(crate) fn overflows(&self) -> bool {
        self.run.placement == Placement::Any && !self.run.verdicts && self.run.engine != Engine::Check
    }

    /// A payload task of a message whose home is another cluster is about to run on an HPU.
    pub(crate) fn begin_away(&mut self, hpu: HpuId, home: u32) {
        self.counts.add(Counter::Overflowed, u64::from(self.handler(Stage::Payload).is_some()));
        self.hpus.get(hpu).set_home(home);
    }

    /// It has ended, or waits there.
    pub(crate) fn end_away(&mut self, hpu: HpuId) {
        self.hpus.get(hpu).set_home(hpu.cluster);
    }

    /// Its description, as users read it.
    pub(crate) fn info(&self) -> ContextInfo {
        ContextInfo {
            context: self.id,
            name: self.name.clone(),
            uid: self.uid,
            rules: self.matching.texts.rules.clone(),
            eom: self.matching.texts.eom.clone(),
            key: self.matching.texts.key.clone(),
            handlers: self.program.handlers.map(|handler| handler.is_some()),
            host_mem: self.host.as_ref().map_or(0, |host| host.region.len()),
            run: self.run_info(),
            counters: self.counts.named().filter(|(_, value)| *value > 0).collect(),
            faults: self.log.faults.iter().cloned().collect(),
        }
    }

    /// How its handlers are run now.
    #[must_use]
    pub fn run_info(&self) -> RunInfo {
        let engine = if self.program.translation.is_some() { self.run.engine } else { Engine::Interp };
        RunInfo { engine, ..self.run }
    }

    /// Tells handlers where host memory is.
    pub fn describe_host(&mut self) {
        if let Some(host) = &self.host {
            self.hpus.set_host(host);
        }
    }

    /// Notes a fault, which is counted already. A pc outside the code is in no function: then the handler that went
    /// astray is named.
    pub fn record_fault(&mut self, stage: Stage, fault: Fault, note: Option<String>) {
        let image = &self.program.image.image;
        if self.log.faults.len() == FAULTS_KEPT {
            self.log.faults.pop_front();
        }
        let symbol = self.place(stage, Some(fault.pc));
        let line = image.line(fault.pc).map(|at| SourceLine { file: at.file.to_owned(), line: at.line });
        let info = FaultInfo { fault, handler: stage.name().to_owned(), symbol, line, note };
        let faults = self.counts.get(Counter::Faults);
        if is_logged(faults) {
            tracing::warn!("context {} ({}): fault {faults} in {info}", self.id, self.name);
        }
        self.log.faults.push_back(info);
    }

    /// Notes a packet that is lost since no queue is left for its message. Returns how many were, if that is to be logged.
    pub fn record_no_queue(&mut self) -> Option<u64> {
        self.counts.add(Counter::DropNoMpq, 1);
        Some(self.counts.get(Counter::DropNoMpq)).filter(|&lost| is_logged(lost))
    }

    /// The function that `pc` lies in, as "name+0x10"; that of the stage's handler when it is not known.
    pub fn place(&self, stage: Stage, pc: Option<u32>) -> String {
        let known = pc.and_then(|pc| self.program.image.image.symbolize(pc));
        known.map_or_else(|| stage.kind().symbol().to_owned(), |(name, offset)| format!("{name}+{offset:#x}"))
    }
}

/// Of what happens often, the first, the tenth, the hundredth: no handler and no packet can fill the log.
fn is_logged(count: u64) -> bool {
    count.checked_ilog10().is_some_and(|digits| count == 10_u64.pow(digits))
}
