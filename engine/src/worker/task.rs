//! The inputs of a task, and its identity.

use spin_abi::counters::Counter;
use spin_abi::verdict::{Fate, Verdict};
use spin_pspin::counts::Counts;
use spin_pspin::hpu::command::Access;
use spin_pspin::hpu::{Hpus, TaskIdentity, TaskSpec};
use spin_pspin::ids::{Handler, MessageRef, Packet};
use spin_pspin::mpq::{Stage, Task};

use crate::context::event_ring::EventRing;
use crate::context::{Context, ContextLabel, ContextLog, LINES_PRINTED, Matching, Program};
use crate::message::flow_numbers::FlowNumbers;

/// The parts of a context that a task uses, borrowed one by one.
pub(crate) struct Parts<'c> {
    pub(crate) spec: TaskSpec<'c>,
    pub(crate) hpus: &'c mut Hpus,
    pub(crate) access: Access<'c>,
    pub(crate) counts: &'c mut Counts,
    pub(crate) events: &'c mut EventRing,
    pub(crate) printer: Printer<'c>,
}

#[inline]
pub(crate) fn parts(context: &mut Context, handler: Handler, about: TaskIdentity) -> Parts<'_> {
    let Context {
        hpus,
        host,
        matching: Matching { send, .. },
        counts,
        run,
        id,
        label: ContextLabel { name, .. },
        log: ContextLog { lines_left, .. },
        program,
        ..
    } = context;
    let Program { image, translation, l1_bytes, limits, .. } = program;
    let events = &mut context.event_ring;
    let spec = TaskSpec {
        handler,
        identity: about,
        l1_bytes: *l1_bytes,
        image: &image.image,
        translation: translation.as_deref().ok(),
        limits: *limits,
        host: host.bytes(),
        isolation: run.isolation,
    };
    let access = Access { host: Some(host), send };
    Parts { spec, hpus, access, counts, events, printer: Printer { id: *id, name, lines_left } }
}

/// The message of a task, on a worker with these numbers of queues.
#[inline]
pub(crate) const fn about(task: &Task<MessageRef, Packet>, flows: &FlowNumbers) -> TaskIdentity {
    TaskIdentity { flow: flows.message(&task.context, task.mpq), message: task.context.message }
}

/// Whether a verdict leaves the message as it would be without verdicts.
#[inline]
pub(crate) fn processes(code: u32) -> bool {
    Verdict::from_code(code).is_some_and(|verdict| verdict.fate() == Fate::Process && !verdict.stays_open())
}

/// The number of tasks run and buffers released.
#[derive(Clone, Copy, Default)]
pub(crate) struct Progress {
    /// The number of tasks that ran.
    pub(crate) tasks: u32,
    /// The number of packet buffers that were released.
    pub(crate) released: u64,
}

pub(crate) const fn started(stage: Stage) -> Counter {
    match stage {
        Stage::Header => Counter::HeaderRuns,
        Stage::Payload => Counter::PayloadRuns,
        Stage::Completion => Counter::CompletionRuns,
    }
}

/// The log for lines that a context's handlers print.
pub(crate) struct Printer<'c> {
    id: u32,
    name: &'c str,
    lines_left: &'c mut u32,
}

impl Printer<'_> {
    /// Prints a line to the log, as long as the context has lines left.
    pub(crate) fn print(&mut self, line: &[u8]) {
        let Self { id, name, lines_left } = self;
        match **lines_left {
            0 => return,
            1 => tracing::warn!("context {id} ({name}) has printed {LINES_PRINTED} lines; no more are shown"),
            _ => tracing::info!("context {id} ({name}): {}", String::from_utf8_lossy(line).escape_debug()),
        }
        **lines_left -= 1;
    }
}
