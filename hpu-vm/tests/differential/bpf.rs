//! Handlers as eBPF programs, run by the machine in user space or by the kernel.

use std::collections::BTreeMap;
use std::fmt;

use hpu_vm::bpf::layout::{self, Maps, Outcome as End, Range, Record};
use hpu_vm::bpf::machine::MapMemory;
use hpu_vm::bpf::{Layout, Machine, Options, Program as Translated, Source};
use hpu_vm::{Exit, RegionKind};
use spin_abi::fault::{Cause, Fault};

use crate::device::Access;
use crate::engine::{Engine, Oracle, Outcome};
use crate::memory::{Block, CLUSTER, HPU, MACHINE};
use crate::program::Program;

/// Loop iterations that a program may take. Those that take more are endless.
const BUDGET: u64 = 100_000;
/// Instructions that a program may execute.
const LIMIT: u64 = 50_000_000;

/// What became of programs.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub compared: u64,
    /// By reason: why programs were not translated, or left the hook.
    pub others: BTreeMap<String, u64>,
}

impl Counts {
    /// Adds another thread's.
    pub fn add(&mut self, other: &Self) {
        self.compared += other.compared;
        for (reason, count) in &other.others {
            *self.others.entry(reason.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} compared", self.compared)?;
        self.others.iter().try_for_each(|(reason, count)| write!(f, ", {reason} {count}"))
    }
}

/// Runs translated handlers.
pub trait Runner {
    /// Number of processors that one may run on.
    fn processors(&self) -> u32 {
        1
    }

    /// Runs one on `memory`, which has the maps in the order of their indices, and the slot of one processor. Returns
    /// the action.
    ///
    /// # Errors
    /// Why it cannot be run.
    fn run(&mut self, translated: &Translated, memory: &mut Memory) -> Result<u32, String>;
}

/// The machine in user space.
#[derive(Default)]
pub struct InMachine;

impl Runner for InMachine {
    fn run(&mut self, translated: &Translated, memory: &mut Memory) -> Result<u32, String> {
        let mut maps = vec![MapMemory::Constants(&memory.configuration), MapMemory::Value(&mut memory.slots)];
        maps.extend(memory.shared.iter_mut().map(|(_, bytes)| MapMemory::Value(bytes)));
        let mut machine = Machine::new(&mut memory.frame, maps);
        let action = machine.run(translated.insns(), LIMIT);
        Ok(action.unwrap_or_else(|error| panic!("{error}")))
    }
}

/// Handlers as eBPF programs. Those that only user space can run have the oracle's outcome, and are counted.
#[derive(Default)]
pub struct Bpf<R>(pub Counts, pub R);

impl<R: Runner> Engine for Bpf<R> {
    fn counts(&self, _: u64) -> bool {
        false
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn run(&mut self, program: &Program) -> Outcome {
        match run(&mut self.1, program) {
            Ok(outcome) => {
                self.0.compared += 1;
                outcome
            }
            Err(reason) => {
                *self.0.others.entry(reason).or_default() += 1;
                Oracle.run(program)
            }
        }
    }
}

/// Runs a program as translated.
///
/// # Errors
/// Why only user space can run it.
fn run(runner: &mut impl Runner, program: &Program) -> Result<Outcome, String> {
    let taken = program.image.addresses_taken();
    let source = Source { code: program.image.code(), entry: program.start.entry, taken: &taken };
    let layout = layout(program, runner.processors());
    let options = Options { copies_packet: true, opaque: program.seed.is_multiple_of(3), ..Options::default() };
    let translated = Translated::new(source, &layout, options).map_err(|reason| kind(&reason.to_string()))?;
    let mut memory = Memory::new(program);
    let action = runner.run(&translated, &mut memory)?;
    let record = Record::read(&memory.slots, 0).expect("a record");
    assert!(matches!(action, 1..=3), "seed {}: action {action}", program.seed);
    let fault = |cause: u32| Cause::ALL.into_iter().find(|known| known.code() == cause).expect("a cause");
    let exit = match record.outcome {
        End::Returned => Exit::Returned,
        End::Finished => Exit::Finished,
        End::Faulted(cause) => Exit::Fault(Fault { cause: fault(cause), pc: record.pc, address: record.address }),
        End::Left(reason) => return Err(format!("{reason:?}")),
    };
    let result = (exit == Exit::Returned).then_some(record.result);
    let log = own_accesses(program, exit);
    Ok(Outcome { exit, state: None, result, retired: None, blocks: memory.blocks(program), log })
}

/// The device accesses that the program makes itself: waits when there is nothing to wait for, and those that end it.
fn own_accesses(program: &Program, exit: Exit) -> Vec<Access> {
    let mut log = Oracle.run(program).log;
    let ends = match exit {
        Exit::Finished => true,
        Exit::Fault(fault) => matches!(fault.cause, Cause::Reported | Cause::DeviceAccess),
        _ => false,
    };
    let last = log.len().saturating_sub(1);
    let mut index = 0..;
    log.retain(|access| {
        let is_last = index.next() == Some(last);
        matches!(access, Access::Wait { .. }) || is_last && ends
    });
    log
}

/// A reason without its address.
fn kind(reason: &str) -> String {
    reason.split(" (").next().unwrap_or(reason).to_owned()
}

/// Whether all processors share a block.
fn is_shared(block: &Block) -> bool {
    !matches!(block.kind, RegionKind::Stack | RegionKind::Packet | RegionKind::L2Packet)
}

fn layout(program: &Program, processors: u32) -> Layout {
    let shared = program.blocks.iter().filter(|block| is_shared(block));
    let ranges = shared.zip(Maps::MEMORY..).map(|(block, map)| Range {
        base: block.base,
        len: block.reach(program.checks),
        writable: block.writable,
        map,
        offset: 0,
    });
    Layout {
        machine: MACHINE,
        hpu: (CLUSTER, HPU),
        first_hpu: 0,
        first_flow: 0,
        processors,
        ranges: ranges.collect(),
        host_queue: None,
        own_task: true,
        replies: None,
    }
}

/// Frame and maps of a program.
pub struct Memory {
    pub frame: Vec<u8>,
    pub configuration: Vec<u8>,
    pub slots: Vec<u8>,
    /// By block that is shared, its index and bytes.
    pub shared: Vec<(usize, Vec<u8>)>,
}

impl Memory {
    fn new(program: &Program) -> Self {
        let mut configuration = vec![0; Maps::CONFIGURATION_SIZE as usize];
        configuration[..8].copy_from_slice(&BUDGET.to_ne_bytes());
        let mut memory =
            Self { frame: Vec::new(), configuration, slots: vec![0; layout::SLOT as usize], shared: Vec::new() };
        memory.slots[layout::ALLOWANCE as usize..][..8].copy_from_slice(&layout::UNLIMITED.to_ne_bytes());
        for (index, block) in program.blocks.iter().enumerate() {
            match block.kind {
                RegionKind::Stack => memory.slots[..block.bytes.len()].copy_from_slice(&block.bytes),
                RegionKind::Packet => memory.l1_packet().copy_from_slice(&block.bytes),
                RegionKind::L2Packet => memory.frame = block.bytes[..block.reach(program.checks) as usize].to_vec(),
                _ => memory.shared.push((index, block.bytes.clone())),
            }
        }
        memory
    }

    fn l1_packet(&mut self) -> &mut [u8] {
        &mut self.slots[layout::L1_PACKET as usize..layout::RECORD as usize]
    }

    /// The memory as it is now.
    fn blocks(mut self, program: &Program) -> Vec<Block> {
        let mut blocks = program.blocks.clone();
        for (index, bytes) in std::mem::take(&mut self.shared) {
            blocks[index].bytes = bytes;
        }
        for block in &mut blocks {
            let len = block.bytes.len();
            match block.kind {
                RegionKind::Stack => block.bytes.copy_from_slice(&self.slots[..len]),
                RegionKind::Packet => block.bytes.copy_from_slice(self.l1_packet()),
                RegionKind::L2Packet => block.bytes[..self.frame.len()].copy_from_slice(&self.frame),
                _ => {}
            }
        }
        blocks
    }
}
