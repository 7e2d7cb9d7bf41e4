//! A context's HPUs. The process runs their handlers one after the other; in virtual time they overlap.

use std::sync::Arc;

use hpu_vm::Exit;
use hpu_vm::jit::{Executor, Limits, Translation};
use hpu_vm::memory::SpaceError;
use spin_abi::control::Isolation;
use spin_abi::fault::{Cause, Fault};
use spin_pspin::hpu::memory::HpuId;
use spin_pspin::hpu::{Hpu, TaskIdentity, TaskSpec};
use spin_pspin::mpq::Stage;

use crate::MACHINE;
use crate::commands::{Issued, Spent, Unit};
use crate::ec::Context;
use crate::host::Host;
use crate::image::CHECKS;
use crate::statistics::Totals;

/// Cycle limit of a handler: 10 ms of virtual time.
pub const LONGEST: u64 = 10_000_000;

/// Executor of a context's tasks.
#[derive(Debug)]
pub struct Runner {
    context: Arc<Context>,
    /// Compiled handlers; `None` if they are interpreted.
    translation: Option<Arc<Translation>>,
    /// HPUs by cluster and number, made on demand.
    hpus: Vec<Option<Hpu>>,
}

/// A task to run.
pub struct Run<'p> {
    /// Handler to run.
    pub stage: Stage,
    /// Identity of the task and its packet.
    pub identity: TaskIdentity,
    /// Home cluster of the message.
    pub home: u32,
    /// Packet of the task.
    pub packet: &'p mut [u8],
    /// Bytes of the packet in L1.
    pub l1_len: usize,
    /// Command budget used before the task was suspended.
    pub spent: Spent,
}

/// Result of running a task.
#[derive(Debug)]
pub struct Ran {
    /// Cycles taken.
    pub cycles: u64,
    /// Commands issued.
    pub issued: Vec<Issued>,
    /// Command budget used in total.
    pub spent: Spent,
    /// Lines printed.
    pub printed: Vec<Box<[u8]>>,
    /// State of the task after the run.
    pub end: RunEnd,
}

/// State of a task after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The handler returned.
    Ended,
    /// The handler may be waiting for others: its HPU resumes it later.
    Waits,
    /// The handler was ended by a fault.
    Fault(Fault),
}

impl Runner {
    /// Compiles the context's handlers. Handlers that cannot be compiled are interpreted, and `host` is told.
    pub fn new(context: Arc<Context>, host: &mut impl Host) -> Self {
        let entries: Vec<u32> = context.handlers.iter().flatten().map(|handler| handler.address).collect();
        let translation = context.image.translation(&entries, |error| {
            host.report(&format!("handlers are interpreted: {error}"));
        });
        let hpus = (0..MACHINE.clusters * MACHINE.hpus_per_cluster).map(|_| None).collect();
        Self { context, translation, hpus }
    }

    /// Makes an HPU if it does not exist.
    ///
    /// # Errors
    /// Memory for the HPU cannot be allocated.
    pub fn make(&mut self, own: HpuId) -> Result<(), SpaceError> {
        let slot = &mut self.hpus[index(own)];
        if slot.is_none() {
            *slot = Some(hpu(&self.context, own)?);
        }
        Ok(())
    }

    /// Frees all HPUs without a suspended task. They are made again on demand.
    pub fn drop_idle(&mut self) {
        let idle = self.hpus.iter_mut().filter(|hpu| hpu.as_ref().is_some_and(Hpu::is_idle));
        idle.for_each(|hpu| *hpu = None);
    }

    /// Runs a task, or resumes the one suspended on the HPU, until it ends or may be waiting. Returns `None` when the
    /// context has no handler for it.
    ///
    /// # Errors
    /// Memory for the HPU cannot be allocated.
    pub fn run<H: Host>(
        &mut self,
        executor: &Executor,
        own: HpuId,
        run: Run<'_>,
        host: &mut H,
        totals: &mut Totals,
        staged: &mut usize,
    ) -> Result<Option<Ran>, SpaceError> {
        let Some(handler) = self.context.handler(run.stage) else { return Ok(None) };
        self.make(own)?;
        let Some(hpu) = &mut self.hpus[index(own)] else { unreachable!("it was made") };
        hpu.set_home(run.home);
        let spec = TaskSpec {
            handler,
            identity: run.identity,
            l1_bytes: run.l1_len,
            image: &self.context.image.image,
            translation: self.translation.as_deref(),
            limits: Limits { time: None, instructions: Some(LONGEST) },
            host: None,
            isolation: Isolation::Context,
        };
        let mut unit = Unit::new(host, totals, staged, run.spent);
        let mut printed = Vec::new();
        let before = hpu.retired();
        let ended = hpu.run(executor, spec, run.packet, &mut unit, &mut |line| printed.push(line.into()));
        let (issued, spent, copying) = unit.finish();
        let end = match ended.exit {
            Exit::Returned | Exit::Finished => RunEnd::Ended,
            Exit::Fault(fault) => RunEnd::Fault(fault),
            Exit::Parked => RunEnd::Waits,
        };
        let cycles = hpu.retired().saturating_sub(before).saturating_add(copying);
        Ok(Some(Ran { cycles, issued, spent, printed, end }))
    }

    /// Abandons the task that is suspended on an HPU.
    pub fn abandon(&mut self, own: HpuId) -> Fault {
        let hpu = self.hpus[index(own)].as_mut();
        let pc = hpu.map_or(0, |hpu| {
            hpu.abandon();
            hpu.pc()
        });
        Fault { cause: Cause::InstructionLimit, pc, address: 0 }
    }

    /// Describes a handler that was ended, as a sentence.
    #[must_use]
    pub fn describe(&self, stage: Stage, msgid: u32, fault: Fault) -> String {
        let image = &self.context.image.image;
        let place = image.symbolize(fault.pc).map(|(name, offset)| format!(" in {name}+{offset:#x}"));
        let own = image.inlined_at(fault.pc).map(|at| format!(", inlined at {}:{}", at.file, at.line));
        let line = image.line(fault.pc);
        let line = line.map(|at| format!(" ({}:{}{})", at.file, at.line, own.unwrap_or_default()));
        let (place, line) = (place.unwrap_or_default(), line.unwrap_or_default());
        format!("{} handler of message {msgid} was ended: {fault}{place}{line}", stage.name())
    }
}

const fn index(own: HpuId) -> usize {
    (own.cluster * MACHINE.hpus_per_cluster + own.hpu) as usize
}

fn hpu(context: &Context, own: HpuId) -> Result<Hpu, SpaceError> {
    let mut hpu = Hpu::with_memory(&MACHINE, own, &context.memory, CHECKS)?;
    let (address, len) = context.host;
    hpu.set_host_at(address, len.into());
    Ok(hpu)
}
