//! Contexts whose handlers run in the kernel's XDP hook: their memory, their program, and what it counts.
//!
//! * [`memory`]: guest addresses of the program's maps.
//! * [`counts`]: counters and faults of a program, as the engine's.

pub mod counts;
pub mod memory;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, fence};

use hpu_vm::bpf::layout::{ALLOWANCE, COUNTERS, Counters, HOST_REGISTERS, SLOT};
use hpu_vm::bpf::queue::HostCommand;
use hpu_vm::bpf::{Layout, Options, faults, queue};
use hpu_vm::memory::{Region, SpaceError};
use spin_abi::fault::Fault;
use spin_abi::rules::{MAX_PROGRAMS, Target};

use self::counts::HookCounts;

/// Loop iterations per microsecond of a handler's time limit, and of a user's share. Assumes 0.1 µs for an iteration, as with a
/// cache miss in each.
pub const CHARGE_PER_MICROSECOND: u64 = 10;
/// Longest time of a handler in the hook, in microseconds: the processor does nothing else meanwhile.
const MAX_TIME: u64 = 2_000;

/// Loop iterations that a handler with a time limit in microseconds may take.
#[must_use]
pub const fn budget(watchdog_us: u64) -> u64 {
    CHARGE_PER_MICROSECOND * if watchdog_us < MAX_TIME { watchdog_us } else { MAX_TIME }
}

/// Why a handler does not run in the hook, for users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

impl Refusal {
    /// The refusal that an error is.
    pub fn of(error: &impl ToString) -> Self {
        Self(error.to_string())
    }
}

impl From<SpaceError> for Refusal {
    fn from(error: SpaceError) -> Self {
        Self::of(&error)
    }
}

/// Loads programs, with privileges that the engine does not have.
pub trait Programs: fmt::Debug + Send + Sync {
    /// Number of processors that packets may be received on.
    fn processors(&self) -> u32;

    /// Makes memory of `len` bytes that programs can access, all zero.
    ///
    /// # Errors
    /// Why there is none.
    fn region(&self, len: usize) -> Result<Arc<Region>, Refusal>;

    /// Translates and loads the payload handler of an image. `maps` are the memory by map index. `name`: that of the context.
    ///
    /// # Errors
    /// Why the handler cannot run in the hook.
    fn load(
        &self,
        name: &str,
        image: &[u8],
        layout: &Layout,
        options: Options,
        maps: &[&Arc<Region>],
    ) -> Result<LoadedProgram, Refusal>;

    /// A place in the filter's table that no program has.
    fn take_index(&self) -> Option<u16>;

    /// Gives a place back that has no program.
    fn free_index(&self, index: u16);

    /// Has packets of a place go to a program.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn set(&self, index: u16, program: BorrowedFd<'_>) -> Result<(), Refusal>;

    /// Has packets of a place go to user space.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn clear(&self, index: u16) -> Result<(), Refusal>;
}

/// A program in the kernel.
#[derive(Debug)]
pub struct LoadedProgram(pub OwnedFd);

/// A fault of a program, with the number that its handler had as `flow_id`.
pub type HookFault = (u32, Fault);

/// A command for host memory, with the number that its handler had as `flow_id`.
pub type HookCommand = (u32, HostCommand);

/// The program of a context. It exists as long as the context on any thread.
#[derive(Debug)]
pub struct Hook {
    programs: Arc<dyn Programs>,
    index: u16,
    loaded: LoadedProgram,
    /// What each processor needs for itself, and counts.
    slots: Arc<Region>,
    /// The number that handlers on each processor have as `flow_id`.
    flow_ids: Box<[u32]>,
    /// Commands for host memory, if the context has some.
    queue: Option<Arc<Region>>,
    /// Whether rules in the kernel may still lead to its place.
    keeps_place: AtomicBool,
}

impl Hook {
    /// A loaded program, whose packets still go to user space.
    ///
    /// # Errors
    /// When there are as many programs as there can be.
    pub fn new(
        programs: Arc<dyn Programs>,
        loaded: LoadedProgram,
        slots: Arc<Region>,
        queue: Option<Arc<Region>>,
        layout: &Layout,
    ) -> Result<Self, Refusal> {
        let index = programs.take_index();
        let index =
            index.ok_or_else(|| Refusal(format!("{MAX_PROGRAMS} handlers run in the hook, the most possible")))?;
        let flow_ids = (0..layout.processors).map(|processor| layout.flow_id(processor)).collect();
        Ok(Self { programs, index, loaded, slots, flow_ids, queue, keeps_place: AtomicBool::new(false) })
    }

    /// The target of the context's rules.
    #[must_use]
    pub const fn target(&self) -> Target {
        Target::Program(self.index)
    }

    /// Has the context's packets go to the program.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn activate(&self) -> Result<(), Refusal> {
        self.programs.set(self.index, self.loaded.0.as_fd())
    }

    /// Has the context's packets go to user space. Packets that are in the program end there.
    pub fn deactivate(&self) {
        if let Err(refusal) = self.programs.clear(self.index) {
            tracing::warn!("a handler stays in the hook: {refusal}");
        }
    }

    /// Never gives its place to another program: rules in the kernel may still lead there.
    pub fn keep_place(&self) {
        self.keeps_place.store(true, Relaxed);
    }

    /// Whether handlers may issue commands for host memory.
    #[must_use]
    pub const fn has_queue(&self) -> bool {
        self.queue.is_some()
    }

    /// Takes the commands for host memory that wait, in the order of each processor.
    #[must_use]
    pub fn take_commands(&self) -> Vec<HookCommand> {
        let Some(queue) = &self.queue else { return Vec::new() };
        let mut commands = Vec::new();
        for (part, flow) in (0..).step_by(queue::PART as usize).zip(&self.flow_ids) {
            commands.extend(take_commands(queue, part).into_iter().map(|command| (*flow, command)));
        }
        commands
    }

    /// Tells handlers the host address of host memory.
    pub fn set_host(&self, address: u64) {
        for start in self.slot_starts() {
            for (at, word) in HOST_REGISTERS.into_iter().zip([address >> 32, address]) {
                let word = (word & 0xffff_ffff) as u32;
                let written = self.slots.write(start + at as usize, &word.to_le_bytes());
                debug_assert!(written.is_some(), "each processor has a slot");
            }
        }
    }

    /// What it has counted on each processor.
    #[must_use]
    pub fn usage(&self) -> Vec<Counters> {
        let of = |start| {
            let mut bytes = [0; Counters::SIZE as usize];
            let read = self.slots.read(start + COUNTERS as usize, &mut bytes);
            debug_assert!(read.is_some(), "each processor has a slot");
            Counters::from_bytes(&bytes)
        };
        self.slot_starts().map(of).collect()
    }

    /// Has packets on a processor go to user space once the charge there has reached `up_to`.
    pub fn allow(&self, processor: usize, up_to: u64) {
        let start = processor * SLOT as usize;
        let written = self.slots.write(start + ALLOWANCE as usize, &up_to.to_ne_bytes());
        debug_assert!(written.is_some(), "each processor has a slot");
    }

    /// The faults on a processor behind the first `seen` of `count`, with the number that the handler had as `flow_id`.
    #[must_use]
    pub fn faults(&self, processor: usize, seen: u64, count: u64) -> Vec<HookFault> {
        let mut slot = vec![0; SLOT as usize];
        let read = self.slots.read(processor * SLOT as usize, &mut slot);
        debug_assert!(read.is_some(), "each processor has a slot");
        let flow = self.flow_ids.get(processor).copied().unwrap_or(0);
        faults::after(&slot, seen, count).into_iter().map(|fault| (flow, fault)).collect()
    }

    fn slot_starts(&self) -> impl Iterator<Item = usize> {
        (0..self.slots.len()).step_by(SLOT as usize)
    }

    /// What it has counted on all processors.
    #[must_use]
    pub fn counts(&self) -> HookCounts {
        HookCounts::sum(&self.usage())
    }
}

/// Takes the commands from a processor's part of a queue. The program writes only behind those that were taken.
fn take_commands(queue: &Region, part: usize) -> Vec<HostCommand> {
    let word = |at: u32| {
        let mut bytes = [0; 8];
        let read = queue.read(part + at as usize, &mut bytes);
        debug_assert!(read.is_some(), "each processor has a part");
        u64::from_ne_bytes(bytes)
    };
    let (written, first) = (word(queue::WRITTEN), word(queue::READ));
    if written == first {
        return Vec::new();
    }
    // The entries were written before the number.
    fence(Acquire);
    let mut commands = Vec::new();
    // The numbers are the program's: there are never more entries than there is room for.
    for number in first..written.min(first.saturating_add(queue::ENTRIES.into())) {
        let mut entry = [0; queue::ENTRY as usize];
        let at = queue::FIRST + (number % u64::from(queue::ENTRIES)) as u32 * queue::ENTRY;
        let read = queue.read(part + at as usize, &mut entry);
        debug_assert!(read.is_some(), "each processor has a part");
        commands.extend(HostCommand::decode(&entry));
    }
    fence(Release);
    let taken = queue.write(part + queue::READ as usize, &written.to_ne_bytes());
    debug_assert!(taken.is_some(), "each processor has a part");
    commands
}

impl Drop for Hook {
    fn drop(&mut self) {
        // Nobody else uses the place: the context is gone.
        self.deactivate();
        if !*self.keeps_place.get_mut() {
            self.programs.free_index(self.index);
        }
    }
}
