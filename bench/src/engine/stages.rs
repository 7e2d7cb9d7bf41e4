//! Cost of each stage of a poll. The engine's own parts are called as in a poll, but a whole batch passes one stage
//! before the next. The clock is therefore read once per batch and stage, never per packet. The difference between the
//! whole poll and the sum of the stages is due to counters, the scheduler, clocks and latencies. It may be negative,
//! since the processor overlaps the stages that a poll interleaves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hpu_vm::jit::{self, Executor, Options, Translation};
use spin_abi::control::{Isolation, Placement};
use spin_abi::map::PACKET_WINDOW;
use spin_engine::ingress::rx_batch::{BATCH, RoutingTable, RxBatch};
use spin_engine::message::messages::Messages;
use spin_engine::settings::Limits;
use spin_matcher::{Table, TableEntry};
use spin_nic::{Frame, Queue};
use spin_pspin::counts::Counts;
use spin_pspin::hpu::command::{Access, CommandBudget, Commands, Outbound};
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::hpu::memory::{ContextMemory, ContextSizes, HpuId};
use spin_pspin::hpu::send_rights::SendRights;
use spin_pspin::hpu::{Hpu, TaskIdentity, TaskSpec};
use spin_pspin::ids::{Handler, MessageRef, Packet, Slot};
use spin_pspin::mpq::{MessageParams, MpqId, Mpqs, Stage};

use super::case::Case;
use super::clock;
use super::cores::on_first;
use super::lab::{Failure, SIZES, Setting};

/// The stages in order, named as in rows.
pub const STAGES: [&str; 6] =
    ["stage:receive", "stage:match", "stage:message", "stage:run", "stage:feedback", "stage:send"];
/// Variant name of the difference between the whole poll and the stages.
pub const OTHER: &str = "stage:other";
const HOME: HpuId = HpuId { cluster: 0, hpu: 0 };
const SLOT: Slot = Slot(0);

impl Setting {
    /// Returns nanoseconds per packet of each of the [`STAGES`], over at least `packets` packets after a warm-up of the
    /// same length. The case must have a payload handler only, which sends nothing.
    ///
    /// # Errors
    /// The context cannot be made, or a packet is not processed as the case requires.
    pub fn stages(&self, packets: u64) -> Result<[f64; STAGES.len()], Failure> {
        // Runs on a thread of its own, since a thread has at most one executor.
        let round = || {
            let mut bench = Bench::new(self)?;
            bench.round(packets)?;
            bench.round(packets)
        };
        on_first(round)
    }
}

/// The parts of an engine with one context that has a payload handler.
struct Bench {
    nic: Box<dyn Queue>,
    routes: RoutingTable,
    messages: Messages,
    mpqs: Mpqs<MessageRef, Packet>,
    hpu: Hpu,
    executor: Executor,
    image: Arc<LoadedImage>,
    translation: Option<Arc<Translation>>,
    handler: Handler,
    limits: jit::Limits,
    counts: Counts,
    admitted: u64,
    inbound: RxBatch,
    passing: Vec<Passing>,
    outbound: Outbound,
}

impl Bench {
    fn new(setting: &Setting) -> Result<Self, Failure> {
        let Setting { case, loader, image, .. } = setting;
        let machine = &loader.machine;
        let image = loader.load(image, 0)?;
        let address = image.image.handler(Stage::Payload.kind()).ok_or("there is no payload handler")?;
        let handler = Handler { address, size: image.image.symbol_size(Stage::Payload.kind().symbol()).unwrap_or(0) };
        let sizes = ContextSizes { hpus: 1, handler: 0, scratchpad: 64 << 10 };
        let memory = ContextMemory::new(machine, image.image.handler_mem_end(), sizes)?;
        let (placement, checks) = (Placement::Home, hpu_vm::Checks::Page);
        let options = Options { checks, atomics: jit::Atomics::Home, described: true, ..Options::default() };
        let mut messages = Messages::new(SIZES.queues, SIZES.queues);
        messages.add_context(SLOT, 0, false);
        let blank = MessageParams::payload_only(MessageRef { slot: SLOT, home: 0, message: 0, flow: None });
        let mut mpqs = Mpqs::new(SIZES.queues, SIZES.hers, blank);
        mpqs.add_owner(SLOT.0);
        Ok(Self {
            nic: Box::new(setting.rotation()?),
            routes: routes(case)?,
            messages,
            mpqs,
            hpu: Hpu::new(machine, HOME, &image.memory, &memory, placement, checks)?,
            executor: Executor::new()?,
            translation: loader.translate(&image, &image.entries.handlers, options, "").ok(),
            image,
            handler,
            limits: jit::Limits { time: Some(Limits::default().watchdog_us), instructions: None },
            counts: Counts::default(),
            admitted: 0,
            inbound: RxBatch::default(),
            passing: Vec::with_capacity(BATCH),
            outbound: Outbound::with_capacity(BATCH, BATCH, 1024),
        })
    }

    fn round(&mut self, packets: u64) -> Result<[f64; STAGES.len()], Failure> {
        let mut spent = [Duration::ZERO; STAGES.len()];
        let (mut done, mut batches) = (0, 0);
        while done < packets {
            done += self.batch(&mut spent)? as u64;
            batches += 1;
        }
        let clock = clock::cost() * batches;
        Ok(spent.map(|spent| spent.saturating_sub(clock).as_nanos() as f64 / done as f64))
    }

    /// Passes a batch through all stages. Returns its number of packets.
    fn batch(&mut self, spent: &mut [Duration; STAGES.len()]) -> Result<usize, Failure> {
        let start = Instant::now();
        let mut last = start;
        let mut lap = |stage: usize| {
            let now = Instant::now();
            spent[stage] += now - last;
            last = now;
        };
        let count = self.inbound.fetch(&mut *self.nic, BATCH);
        lap(0);
        self.inbound.find(&self.routes, |_, _| 0);
        lap(1);
        self.find_messages(self.admitted)?;
        lap(2);
        let returned = self.run();
        lap(3);
        self.complete_task();
        lap(4);
        self.outbound.flush(&mut *self.nic);
        self.nic.flush()?;
        lap(5);
        if count == 0 || returned != count {
            return Err(format!("{returned} handlers returned of {count} packets of a batch").into());
        }
        Ok(count)
    }

    /// Finds the messages of a case in which no packet waits.
    fn find_messages(&mut self, now: u64) -> Result<(), Failure> {
        while let Some((frame, found)) = self.inbound.take() {
            let (SLOT, last) = (found.owner, found.end_of_message) else {
                return Err("a frame is nobody's".into());
            };
            let mpq = self.messages.queue(SLOT, &found.key, now).ok_or("there is no queue")?;
            self.admitted += 1;
            let context = MessageRef { slot: SLOT, home: 0, message: self.admitted, flow: None };
            let params = MessageParams::payload_only(context);
            let binding = self.mpqs.try_inline(mpq, last, || params).ok_or("a packet would have to wait")?;
            self.passing.push(Passing { frame, mpq, message: binding.message, last });
        }
        Ok(())
    }

    /// Runs the handlers, and returns the number of those that returned.
    fn run(&mut self) -> usize {
        let spec = TaskSpec {
            handler: self.handler,
            identity: TaskIdentity { flow: 0, message: 0 },
            l1_bytes: PACKET_WINDOW as usize,
            image: &self.image.image,
            translation: self.translation.as_deref(),
            limits: self.limits,
            host: None,
            isolation: Isolation::Context,
        };
        let (nic, outbound, passing) = (&mut *self.nic, &mut self.outbound, &mut self.passing);
        let access = Access { host: None, send: &SendRights::Raw };
        let mut commands = Commands::new(nic, outbound, access, &mut self.counts, None, true, CommandBudget::FULL);
        self.hpu.with_run(&self.executor, &spec, &mut commands, &mut |_| {}, |row| {
            let ended = passing.iter_mut().map(|Passing { frame, mpq, message, .. }| {
                row.commands().begin(true);
                row.run_and_finish(TaskIdentity { flow: mpq.0, message: *message }, frame)
            });
            ended.filter(|&returned| returned).count()
        })
    }

    fn complete_task(&mut self) {
        for Passing { frame, mpq, last, .. } in self.passing.drain(..) {
            self.outbound.recycle.push(frame);
            if last {
                self.mpqs.begin_inline(mpq, true);
                if self.mpqs.complete(mpq, Stage::Payload, None).idle {
                    self.messages.release(mpq);
                }
            }
        }
    }
}

/// A packet whose task runs at once.
struct Passing {
    frame: Frame,
    mpq: MpqId,
    message: u64,
    /// Whether the packet is the last of its message.
    last: bool,
}

fn routes(case: &Case) -> Result<RoutingTable, Failure> {
    let entry = TableEntry { rules: Case::rule().parse()?, eom: case.eom().parse()?, ..TableEntry::default() };
    Ok(RoutingTable { table: Table::new(&[entry])?.into(), slots: vec![SLOT], ..RoutingTable::default() })
}
