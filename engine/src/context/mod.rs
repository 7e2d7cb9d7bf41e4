//! An execution context: handlers, the memory they share, the host memory they may access, and their counters and faults.

pub(crate) mod contexts;
pub mod event_ring;
pub mod header_rule;
pub mod image_error;
pub mod loader;
pub mod nic_memory;
pub(crate) mod niceness;
pub(crate) mod packet_rules;
pub mod perf_map;
pub mod translator;

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use hpu_vm::Line;
use hpu_vm::jit::{self, Options, Translation};
use spin_abi::control::{
    Abi, ContextInfo, Engine, FaultInfo, Full, Lifetime, Placement, RunInfo, SourceLine, TierInfo,
};
use spin_abi::counter_values::Counters;
use spin_abi::counters::Counter;
use spin_abi::fault::Fault;
use spin_abi::printable::printable;
use spin_abi::rules::Target;
use spin_matcher::table::CompiledEntry;
use spin_matcher::{Eom, TableEntry};
use spin_pspin::counts::Counts;
use spin_pspin::host_memory::HostMemory;
use spin_pspin::hpu::Hpus;
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::hpu::memory::HpuId;
use spin_pspin::hpu::send_rights::SendRights;
use spin_pspin::ids::{Handler, Slot};
use spin_pspin::mpq::Stage;

use crate::context::event_ring::EventRing;
use crate::context::header_rule::HeaderRule;
use crate::hook::Hook;
use crate::install::ledger::Charge;
use crate::install::ports::PortLease;
use crate::install::{Home, UnitRange};
use crate::sched::stall_credit::StallCredit;
use crate::sched::weights::{ContextWeight, Part};

/// Faults kept per context.
const FAULTS_KEPT: usize = 16;

/// Maximum number of characters shown of a name in an image. The reply to `list` with all faults of all contexts has to fit a message.
const MAX_SYMBOL: usize = 200;

/// Maximum number of lines that a context's handlers may print. Further lines are dropped, so that no tenant floods the log.
pub const LINES_PRINTED: u32 = 10_000;

/// Identifies a file by its length and a hash with a random key per run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    len: usize,
    hash: u64,
}

impl FileId {
    /// The id of a file in this run.
    #[must_use]
    pub fn of(file: &[u8]) -> Self {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self { len: file.len(), hash: KEY.hash_one(file) }
    }
}

/// The rules of a context as text.
#[derive(Debug)]
pub struct Texts {
    /// The rules.
    pub rules: Vec<String>,
    /// The end-of-message predicate.
    pub eom: String,
    /// The message key.
    pub key: String,
}

impl Texts {
    /// The texts of a table entry.
    #[must_use]
    pub fn of(entry: &TableEntry) -> Self {
        let rules = entry.rules.rules.iter().map(ToString::to_string).collect();
        Self { rules, eom: entry.eom.to_string(), key: entry.key.to_string() }
    }
}

/// A context's share of the packet buffer, in HERs, and of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The full share.
    pub hers: u32,
    /// The limit above which the `--full` policy applies: see [`Full`].
    pub soft_limit: u32,
    /// The credit for stalling reception when that share is used up.
    pub stall_credit: StallCredit,
}

impl Share {
    /// Sets the share of `hers` HERs to a part.
    pub fn set_part(&mut self, hers: u32, part: Part, full: Full) {
        // The share is at most `hers`, which fits.
        self.hers = u32::try_from(part.of(hers.into())).unwrap_or(u32::MAX).max(1);
        self.soft_limit = if full == Full::Mark { self.hers / 2 } else { self.hers };
    }
}

/// The packets that a context takes.
#[derive(Debug)]
pub struct Matching {
    /// Rules, end-of-message predicate and key.
    pub entry: Arc<CompiledEntry>,
    /// Which packets are headers. `None`: those that arrive first.
    pub header: Option<HeaderRule>,
    /// The entry as text for users.
    texts: Arc<Texts>,
    /// Ports that are the context's while it has this entry.
    pub ports: Option<Arc<PortLease>>,
    /// Frames that the context's handlers may send while it has this entry.
    pub send: SendRights,
    /// The workers that run them.
    pub home: Home,
}

impl Matching {
    /// The matching of a table entry, which is given with its texts.
    #[must_use]
    pub fn of(
        (entry, texts): (Arc<CompiledEntry>, Arc<Texts>),
        header: Option<HeaderRule>,
        ports: Option<Arc<PortLease>>,
        send: SendRights,
        home: Home,
    ) -> Self {
        Self { texts, entry, header, ports, send, home }
    }

    /// Whether no packet ends a message: packet mode.
    #[must_use]
    #[inline]
    pub fn is_per_packet(&self) -> bool {
        self.entry.entry().eom == Eom::Never
    }
}

/// Why handlers are interpreted, for users.
pub type Interpreted = Arc<str>;

/// The program of a context's tasks.
#[derive(Clone, Debug)]
pub struct Program {
    /// The handler image.
    pub image: Arc<LoadedImage>,
    /// The translation, or the reason why handlers are interpreted.
    pub translation: Result<Arc<Translation>, Interpreted>,
    /// Options of the translation, and of later ones.
    pub options: Options,
    /// Header, payload and completion handler.
    pub handlers: [Option<Handler>; 3],
    /// Bytes of each packet to copy to L1.
    pub l1_bytes: usize,
    /// Limits on the run time of a handler.
    pub limits: jit::Limits,
    /// The payload handler's program in the XDP hook, if it runs there.
    pub hook: Option<Arc<Hook>>,
    /// Its memory, and that of the context, on the user's bill.
    pub charges: Arc<[Arc<Charge>]>,
}

impl Program {
    /// Where a NIC's filter sends the context's frames.
    #[must_use]
    pub fn target(&self) -> Target {
        self.hook.as_ref().map_or(Target::UserSpace, |hook| hook.target())
    }
}

/// The state of a replacement of one context by another.
#[derive(Debug, Default)]
pub struct Replacement {
    /// The context that it replaces, as long as that one has open messages.
    pub predecessor: Option<Slot>,
    /// The context that gets its frames after its installation was rolled back: the one that it was to replace.
    pub falls_back_to: Option<Slot>,
    /// Whether it was replaced, and ends with its last message.
    pub draining: bool,
    /// While draining: the worker's number of processed frames from which on no further frame can belong to it.
    pub drain_mark: u64,
    /// While draining: the number of rounds of visits to other workers' channels after which none hands over a packet of it.
    pub drain_round: Option<u64>,
    /// While draining: the time when its open messages are ended.
    pub drain_deadline: Duration,
}

/// Faults and output of a context's handlers, for its application.
#[derive(Debug)]
pub struct ContextLog {
    /// The latest faults, oldest first.
    pub faults: VecDeque<FaultInfo>,
    /// The number of lines that handlers may still print.
    pub lines_left: u32,
}

impl Default for ContextLog {
    fn default() -> Self {
        Self { faults: VecDeque::new(), lines_left: LINES_PRINTED }
    }
}

/// What describes a context to users, and does not concern its packets.
#[derive(Debug)]
pub struct ContextLabel {
    /// The name.
    pub name: String,
    /// When it is removed.
    pub lifetime: Lifetime,
    /// Where its handlers run. `None`: user space was requested.
    pub tier: Option<TierInfo>,
    /// The units that run it.
    pub units: UnitRange,
}

/// What one thread has counted of a context.
#[derive(Debug)]
pub struct ContextPart {
    /// The id of the context.
    pub id: u32,
    /// Counters that are not zero.
    pub counters: Counters,
    /// The latest faults, oldest first.
    pub faults: Vec<FaultInfo>,
}

/// An installed context.
#[derive(Debug)]
pub struct Context {
    /// The id that users see. Ids are never reused.
    pub id: u32,
    /// What was decided at install, for users.
    pub label: ContextLabel,
    /// The user that it belongs to, and the weights of their shares. The user's is equal for all contexts of the user.
    pub weights: ContextWeight,
    /// The packets that it takes.
    pub matching: Matching,
    /// The handlers.
    pub program: Program,
    /// HPUs on the worker's clusters, with the memory that tasks see. None if it does not [run here](Context::runs_here).
    pub hpus: Hpus,
    /// Host memory.
    pub host: HostMemory,
    /// Maximum time for which an open message may wait for its next packet.
    pub message_timeout: Option<Duration>,
    /// The share of the packet buffer.
    pub share: Share,
    /// Whether packets of it that arrived here were for another worker.
    pub is_handed_over: bool,
    /// The requested options of its handlers.
    pub run: RunInfo,
    /// Counters.
    pub counts: Counts,
    /// The context that it replaces, or that replaces it.
    pub replacement: Replacement,
    /// The event ring for its application.
    pub event_ring: EventRing,
    /// Faults and output of its handlers.
    pub log: ContextLog,
}

impl Context {
    /// The handler for a stage, if the image has it.
    #[must_use]
    pub const fn handler(&self, stage: Stage) -> Option<Handler> {
        self.program.handlers[stage as usize]
    }

    /// Whether this worker runs it. Otherwise its packets are handed to one that does.
    pub(crate) const fn runs_here(&self) -> bool {
        !self.hpus.is_empty()
    }

    /// Whether its counters may be other than zero here. Reading those of all contexts takes long.
    pub(crate) const fn may_have_counts(&self) -> bool {
        self.runs_here() || self.is_handed_over
    }

    /// Whether its packets may stall reception when it has no room: it has `--full wait`, and credit.
    pub(crate) fn may_stall(&self) -> bool {
        self.run.full == Full::Wait && self.share.stall_credit.is_available()
    }

    /// Whether messages of the context may time out.
    pub(crate) const fn may_time_out(&self) -> bool {
        self.runs_here() && (self.message_timeout.is_some() || self.matching.header.is_some())
    }

    /// Whether tasks on an HPU run in batches. PsPIN's packet views and FPsPIN's message ids differ from task to task, and so do
    /// checks by the shadow interpreter.
    #[inline]
    pub(crate) fn runs_in_a_row(&mut self, hpu: HpuId) -> bool {
        self.is_plain() && !self.hpus.get(hpu).is_shadowed()
    }

    /// Whether handlers see packets unchanged, and messages by the numbers of their queues.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.run.abi != Abi::Pspin && !self.matching.entry.entry().key.is_fpspin()
    }

    /// Whether payload tasks may run on other threads. With verdicts they may not, since packets for the kernel have to stay in
    /// order. With the shadow interpreter they may not either: its results would depend on concurrent tasks of the context.
    pub(crate) fn overflows(&self) -> bool {
        self.run.placement == Placement::Any && !self.run.verdicts && self.run.engine != Engine::Check
    }

    /// Prepares an HPU for a payload task of a message whose home is another cluster.
    pub(crate) fn begin_away(&mut self, hpu: HpuId, home: u32) {
        self.counts.add(Counter::Overflowed, u64::from(self.handler(Stage::Payload).is_some()));
        self.hpus.get(hpu).set_home(home);
    }

    /// Resets the HPU after that task has ended or parked.
    pub(crate) fn end_away(&mut self, hpu: HpuId) {
        self.hpus.get(hpu).set_home(hpu.cluster);
    }

    /// What this thread has counted; `None`: nothing.
    pub(crate) fn part(&self) -> Option<ContextPart> {
        if !self.may_have_counts() || self.counts.is_zero() && self.log.faults.is_empty() {
            return None;
        }
        let counters = self.counts.named().filter(|(_, value)| *value > 0).collect();
        Some(ContextPart { id: self.id, counters, faults: self.log.faults.iter().cloned().collect() })
    }

    /// The description for users.
    pub(crate) fn info(&self) -> ContextInfo {
        let texts = &self.matching.texts;
        ContextInfo {
            context: self.id,
            // Depends on the user who asks.
            own: false,
            hidden: false,
            name: self.label.name.clone(),
            uid: self.weights.uid,
            rules: texts.rules.clone(),
            eom: texts.eom.clone(),
            key: texts.key.clone(),
            header: self.matching.header.as_ref().map(|rule| (rule.text.clone(), rule.early)),
            handlers: self.program.handlers.map(|handler| handler.is_some()),
            host_mem: self.host.own().map_or(0, |(region, _)| region.len()),
            lifetime: self.label.lifetime,
            units: (self.label.units.first, self.label.units.first + self.label.units.count - 1),
            run: self.run_info(),
            interpreted: self.program.translation.as_ref().err().map(ToString::to_string),
            tier: self.label.tier.clone(),
            counters: self.counts.named().filter(|(_, value)| *value > 0).collect(),
            // The control thread adds those of all threads.
            latencies: Vec::new(),
            faults: self.log.faults.iter().cloned().collect(),
        }
    }

    /// The options of its handlers. Without a translation, the engine is the interpreter.
    #[must_use]
    pub fn run_info(&self) -> RunInfo {
        let engine = if self.program.translation.is_ok() { self.run.engine } else { Engine::Interp };
        RunInfo { engine, ..self.run }
    }

    /// Records a fault in a unit, the one with this `number` from 1 on. A pc outside the code is in no function. The record then has the name of the
    /// handler that ran.
    pub fn record_fault(&mut self, unit: u32, stage: Stage, fault: Fault, note: Option<String>, number: u64) {
        let image = &self.program.image.image;
        if self.log.faults.len() == FAULTS_KEPT {
            self.log.faults.pop_front();
        }
        let symbol = self.place(stage, Some(fault.pc));
        let source = |at: Line<'_>| SourceLine { file: printable(at.file, MAX_SYMBOL), line: at.line };
        let line = image.line(fault.pc).map(source);
        let inlined_at = image.inlined_at(fault.pc).map(source);
        let info = FaultInfo { fault, unit, handler: stage.name().to_owned(), symbol, line, inlined_at, note };
        if is_logged(number) {
            tracing::warn!("context {} ({}): fault {number} in {info}", self.id, self.label.name);
        }
        self.log.faults.push_back(info);
    }

    /// Counts a packet that is lost because no queue is left for its message. Returns the count if it is to be logged.
    pub fn record_no_queue(&mut self) -> Option<u64> {
        self.counts.add(Counter::DropNoMpq, 1);
        Some(self.counts.get(Counter::DropNoMpq)).filter(|&lost| is_logged(lost))
    }

    /// The location of `pc`, as "name+0x10". If that is unknown, the name of the stage's handler.
    pub fn place(&self, stage: Stage, pc: Option<u32>) -> String {
        let known = pc.and_then(|pc| self.program.image.image.symbolize(pc));
        let shown = |(name, offset): (&str, u32)| format!("{}+{offset:#x}", printable(name, MAX_SYMBOL));
        known.map_or_else(|| stage.kind().symbol().to_owned(), shown)
    }
}

/// Whether to log an event: the first, the tenth, the hundredth and so on. Handlers and packets thus cannot flood the log.
fn is_logged(count: u64) -> bool {
    count.checked_ilog10().is_some_and(|digits| count == 10_u64.pow(digits))
}
