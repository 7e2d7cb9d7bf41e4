//! Memory of a handler in the hook: guest addresses, and where the bytes are.

use spin_abi::map::{HANDLER_ARGS, Machine, PACKET_WINDOW, STACK_WINDOW, TASK_BLOCK};
use spin_abi::regs;
use spin_abi::unit::UNIT_WORDS;

use super::insn::MapIndex;

/// Bytes of the array map at [`Maps::SLOTS`] for each processor.
pub const SLOT: u32 = 3 * 4096;
/// Offset in a slot of the packet's copy in L1. The stack window is before it.
pub const L1_PACKET: u32 = STACK_WINDOW;
/// Offset in a slot of the [`Record`].
pub const RECORD: u32 = L1_PACKET + PACKET_WINDOW;
/// Offset in a slot of the [`Counters`].
pub const COUNTERS: u32 = RECORD + 64;
/// Offset in a slot of the initial value of tp, 4 bytes.
pub const THREAD_POINTER: u32 = COUNTERS + 256;
/// Offset in a slot of 8 bytes that user space writes: packets go to user space once [`Counter::Charged`] has reached this. So the program
/// and user space write to different words.
pub const ALLOWANCE: u32 = THREAD_POINTER + 8;
/// Offset in a slot of the headers of the received frame, where [`Layout::replies`] is set: as far as they tell from whom it is, and to
/// whom.
pub const RECEIVED: u32 = ALLOWANCE + 8;
/// Offsets in a slot of the task registers with the upper and the lower half of the address of host memory.
pub const HOST_REGISTERS: [u32; 2] = [
    STACK_WINDOW - TASK_BLOCK + regs::HOST_MEM_HIGH - regs::TASK_FIRST,
    STACK_WINDOW - TASK_BLOCK + regs::HOST_MEM_LOW - regs::TASK_FIRST,
];
/// An allowance that is never reached.
pub const UNLIMITED: u64 = u64::MAX;
/// What a packet is charged besides its handler's loop iterations.
pub const PACKET_CHARGE: u32 = 5;
/// Offset in a slot of the latest [`FAULTS`] faults.
pub const FAULT_RING: u32 = THREAD_POINTER + 64;
/// Number of faults that a slot keeps: fault n is in entry n modulo this.
pub const FAULTS: u32 = 16;
/// Size of an entry: cause, address of the instruction, data address, unused.
pub const FAULT_ENTRY: u32 = 16;

const _: () = assert!(RECORD + Record::SIZE <= COUNTERS && COUNTERS + 8 * Counter::COUNT <= THREAD_POINTER);
const _: () = assert!(RECEIVED + 42 <= FAULT_RING);
const _: () = assert!(FAULT_RING + FAULTS * FAULT_ENTRY <= SLOT);

/// Counters of a processor since its slot was made, 8 bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Counter {
    /// Packets whose handler ended in the hook.
    Runs,
    /// Frames sent.
    Sent,
    /// Bytes of them.
    SentBytes,
    /// Handlers that were ended by a fault.
    Faults,
    /// Packets that went to user space.
    Left,
    /// Packets that user space should have had, but whose handler had already written.
    Lost,
    /// Loop iterations, and [`PACKET_CHARGE`] for each packet whose handler began.
    Charged,
    /// Packets that a verdict passed to the kernel.
    Passed,
    /// Packets that a verdict discarded.
    Discarded,
    /// Bytes of them.
    DiscardedBytes,
    /// Return values that are no verdict.
    BadVerdicts,
    /// Commands that were issued.
    Commands,
    /// Packets that went to user space because the allowance was used up.
    Held,
    /// Sends of frames that are no answers, of handlers that may send only these.
    Forbidden,
    /// Of [`Discarded`](Self::Discarded): packets that a verdict passed to the kernel after their addresses or ports were changed, which
    /// such handlers may not do.
    PassForbidden,
}

impl Counter {
    /// Number of counters.
    pub const COUNT: u32 = Self::PassForbidden as u32 + 1;

    /// Offset in a slot.
    #[must_use]
    pub const fn offset(self) -> u32 {
        COUNTERS + 8 * self as u32
    }
}

/// Counters of one or several processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters([u64; Counter::COUNT as usize]);

impl Counters {
    /// Number of bytes in a slot, from [`COUNTERS`] on.
    pub const SIZE: u32 = 8 * Counter::COUNT;

    /// The counters of a slot: [`Self::SIZE`] bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut counters = Self::default();
        for (counter, bytes) in counters.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *counter = bytes.try_into().map_or(0, u64::from_ne_bytes);
        }
        counters
    }

    /// Adds the counters of another processor.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (counter, other) in self.0.iter_mut().zip(other.0) {
            *counter = counter.wrapping_add(other);
        }
        self
    }

    /// Sums the counters of all slots.
    #[must_use]
    pub fn sum(slots: &[u8]) -> Self {
        let of_slot = |slot: &[u8]| Self::from_bytes(&slot[COUNTERS as usize..]);
        slots.chunks_exact(SLOT as usize).map(of_slot).fold(Self::default(), |sum, other| sum.plus(&other))
    }

    /// The value of a counter.
    #[must_use]
    pub const fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }
}

/// How a handler ended on a packet, as the program writes it to its slot: words at these offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// How the handler ended.
    pub outcome: Outcome,
    /// Address of the instruction that ended it, if it did not return.
    pub pc: u32,
    /// Second value of the outcome: see [`Outcome`].
    pub address: u32,
    /// Loop iterations that are left of the budget.
    pub budget: u64,
    /// Length of the frame to send; 0 when there is none.
    pub sent: u32,
    /// a0 of a handler that returned.
    pub result: u32,
}

impl Record {
    /// Offset of the outcome's code.
    pub const OUTCOME: u32 = 0;
    /// Offset of the cause.
    pub const CAUSE: u32 = 4;
    /// Offset of the instruction's address.
    pub const PC: u32 = 8;
    /// Offset of the data address.
    pub const ADDRESS: u32 = 12;
    /// Offset of the rest of the budget, 8 bytes.
    pub const BUDGET: u32 = 16;
    /// Offset of the sent length.
    pub const SENT: u32 = 24;
    /// Offset of a0.
    pub const RESULT: u32 = 28;
    /// Size in bytes.
    pub const SIZE: u32 = 32;

    /// Reads the record of a processor from the map of slots. `None` when it has no such slot, or no valid outcome.
    #[must_use]
    pub fn read(slots: &[u8], processor: u32) -> Option<Self> {
        let start = (processor * SLOT + RECORD) as usize;
        let bytes = slots.get(start..start + Self::SIZE as usize)?;
        let word = |at: u32| {
            let [a, b, c, d] = *bytes[at as usize..].first_chunk().unwrap_or(&[0; 4]);
            u32::from_ne_bytes([a, b, c, d])
        };
        let budget = bytes[Self::BUDGET as usize..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Some(Self {
            outcome: Outcome::from_codes(word(Self::OUTCOME), word(Self::CAUSE))?,
            pc: word(Self::PC),
            address: word(Self::ADDRESS),
            budget,
            sent: word(Self::SENT),
            result: word(Self::RESULT),
        })
    }
}

/// How a handler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler returned.
    Returned,
    /// The handler read the doorbell.
    Finished,
    /// The handler was ended: code of the [cause](spin_abi::fault::Cause).
    Faulted(u32),
    /// The handler did what only user space can do.
    Left(Reason),
}

impl Outcome {
    pub(super) const RETURNED: u32 = 1;
    pub(super) const FINISHED: u32 = 2;
    pub(super) const FAULTED: u32 = 3;
    pub(super) const LEFT: u32 = 4;

    fn from_codes(outcome: u32, cause: u32) -> Option<Self> {
        Some(match outcome {
            Self::RETURNED => Self::Returned,
            Self::FINISHED => Self::Finished,
            Self::FAULTED => Self::Faulted(cause),
            Self::LEFT => Self::Left(Reason::ALL.into_iter().find(|reason| *reason as u32 == cause)?),
            _ => return None,
        })
    }
}

/// What only user space can do, found while a handler ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Reason {
    /// The frame is larger than a packet window.
    FrameSize = 1,
    /// The processor has no slot.
    NoSlot = 2,
    /// An access to the handler's memory by a pointer that was expected to point elsewhere.
    UnexpectedPointer = 3,
    /// An access by an alias of L1 or of the task registers.
    Alias = 4,
    /// An access to a device by a computed address.
    Device = 5,
    /// A jump to an address that is not among the expected ones.
    Jump = 6,
    /// A command that user space executes.
    Command = 7,
    /// The frame could not be changed to the length of the send.
    Length = 8,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::FrameSize,
        Self::NoSlot,
        Self::UnexpectedPointer,
        Self::Alias,
        Self::Device,
        Self::Jump,
        Self::Command,
        Self::Length,
    ];
}

/// Maps of a program, by their indices.
#[derive(Clone, Copy, Debug)]
pub struct Maps;

impl Maps {
    /// The configuration: an array with one value of [`Maps::CONFIGURATION_SIZE`] bytes.
    pub const CONFIGURATION: MapIndex = 0;
    /// Slots: an array with one value of [`SLOT`] bytes per processor.
    pub const SLOTS: MapIndex = 1;
    /// First map of the handler's memory.
    pub const MEMORY: MapIndex = 2;
    /// Size of the configuration's value, in bytes.
    pub const CONFIGURATION_SIZE: u32 = 16;
    /// Offset of the budget in the configuration: loop iterations, 8 bytes.
    pub const BUDGET: u32 = 0;
    /// Offset of 8 bytes that are zero, which the verifier does not know.
    pub const ZERO: u32 = 8;
}

/// Memory of a handler that all processors share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Guest address of the first byte.
    pub base: u32,
    /// Number of bytes.
    pub len: u32,
    /// Whether handlers may write to it.
    pub writable: bool,
    /// The array map with the bytes.
    pub map: MapIndex,
    /// Offset of the first byte in the map's value.
    pub offset: u32,
}

impl Range {
    /// Whether an address lies in the range.
    pub(super) const fn contains(&self, address: u32) -> bool {
        address.wrapping_sub(self.base) < self.len
    }

    /// Offset in the map's value of `len` bytes at `address`, if they lie in the range.
    pub(super) fn offset_of(&self, address: u32, len: u32) -> Option<u32> {
        let at = address.checked_sub(self.base)?;
        (self.len >= len && at <= self.len - len).then(|| self.offset + at)
    }
}

/// Content of the task registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Address and size of handler memory.
    pub handler_mem: (u32, u32),
    /// Address and size of the scratchpads by cluster.
    pub scratchpads: [(u32, u32); Machine::MAX_CLUSTERS as usize],
    /// Address and size of host memory.
    pub host: (u64, u32),
    /// What says which unit the handlers are in: [`UnitIndex::words`](spin_abi::unit::UnitIndex::words).
    pub unit: [u32; 2],
}

/// The host in whose name handlers answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplySource {
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// IPv4 addresses of the host.
    pub addresses: Vec<[u8; 4]>,
}

/// Memory and identity of a handler in the hook. All processors have the same stack and packet addresses.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The machine.
    pub machine: Machine,
    /// Cluster and HPU whose windows' addresses are used.
    pub hpu: (u32, u32),
    /// Number of the first HPU that processors are in each cluster: those before it are user space's.
    pub first_hpu: u32,
    /// The `flow_id` of handlers on HPU 0: those before it are user space's, unless the handlers' ABI has none beyond.
    pub first_flow: u32,
    /// Number of processors with a slot. Each has an HPU of its own.
    pub processors: u32,
    /// Memory that all processors share.
    pub ranges: Vec<Range>,
    /// The map of the [queue](super::queue) for commands, if the context has host memory.
    pub host_queue: Option<MapIndex>,
    /// Whether handlers may write to their task registers and arguments. If not, [`Layout::slots`] has their content, and
    /// the program writes only the packet's size.
    pub own_task: bool,
    /// The host, if handlers may only answer packets to it. Packets that they may not answer go to user space. `None`: they may send any
    /// frame.
    pub replies: Option<ReplySource>,
}

impl Layout {
    /// Number of processors that have an HPU of their own.
    #[must_use]
    pub const fn max_processors(&self) -> u32 {
        self.machine.clusters * self.machine.hpus_per_cluster.saturating_sub(self.first_hpu)
    }

    /// Content of the map of slots. Processor n is HPU `first_hpu + n / C` of cluster n mod C, if there are C clusters.
    #[must_use]
    pub fn slots(&self, description: &Description) -> Vec<u8> {
        (0..self.processors).flat_map(|processor| self.slot(description, processor)).collect()
    }

    /// The number that handlers on a processor have as `flow_id`.
    #[must_use]
    pub const fn flow_id(&self, processor: u32) -> u32 {
        self.first_flow + self.hpu_gid(processor)
    }

    /// The number that handlers on a processor have as `hpu_gid`.
    const fn hpu_gid(&self, processor: u32) -> u32 {
        let (cluster, hpu) = self.place(processor);
        cluster * self.machine.hpus_per_cluster + hpu
    }

    /// Cluster and HPU of a processor.
    const fn place(&self, processor: u32) -> (u32, u32) {
        (processor % self.machine.clusters, self.first_hpu + processor / self.machine.clusters)
    }

    fn slot(&self, description: &Description, processor: u32) -> Vec<u8> {
        let (cluster, hpu) = self.place(processor);
        let gid = self.hpu_gid(processor);
        let mut slot = vec![0; SLOT as usize];
        let mut put = |address: u32, value: u32| {
            let at = (address - self.stack()) as usize;
            slot[at..at + 4].copy_from_slice(&value.to_le_bytes());
        };
        let [high, low] = [description.host.0 >> 32, description.host.0].map(|word| (word & 0xffff_ffff) as u32);
        let registers = [
            (regs::HANDLER_MEM_ADDR, description.handler_mem.0),
            (regs::HANDLER_MEM_SIZE, description.handler_mem.1),
            (regs::PACKET_ADDR, self.l1_packet()),
            (regs::HOST_MEM_HIGH, high),
            (regs::HOST_MEM_LOW, low),
            (regs::HOST_MEM_SIZE, description.host.1),
            (regs::L2_PACKET_ADDR, self.l2_packet()),
            (regs::HOME_CLUSTER, cluster),
            (regs::FLOW_ID, self.flow_id(processor)),
        ];
        registers.into_iter().for_each(|(register, value)| put(self.task() + register - regs::TASK_FIRST, value));
        for (index, (base, size)) in (0..).zip(description.scratchpads) {
            put(self.task() + regs::SCRATCHPAD_ADDR + 4 * index - regs::TASK_FIRST, base);
            put(self.task() + regs::SCRATCHPAD_SIZE + 4 * index - regs::TASK_FIRST, size);
        }
        for (word, value) in (0..).zip(description.unit) {
            put(self.task() + UNIT_WORDS + 4 * word, value);
        }
        for (word, value) in (0..).zip([self.task(), gid, cluster, hpu]) {
            put(self.arguments() + 4 * word, value);
        }
        put(self.stack() + THREAD_POINTER, cluster << 5 | hpu);
        slot[ALLOWANCE as usize..][..8].copy_from_slice(&UNLIMITED.to_ne_bytes());
        slot
    }

    /// Base of the stack window.
    pub(super) const fn stack(&self) -> u32 {
        self.machine.stack_base(self.hpu.0, self.hpu.1)
    }

    /// Initial stack pointer, where the task registers begin.
    pub(super) const fn task(&self) -> u32 {
        self.stack() + STACK_WINDOW - TASK_BLOCK
    }

    /// Address of `handler_args_t`.
    pub(super) const fn arguments(&self) -> u32 {
        self.stack() + STACK_WINDOW - HANDLER_ARGS
    }

    /// Base of the packet in L1.
    pub(super) const fn l1_packet(&self) -> u32 {
        self.machine.l1_packet_base(self.hpu.0, self.hpu.1)
    }

    /// Base of the packet in L2.
    pub(super) const fn l2_packet(&self) -> u32 {
        self.machine.l2_packet_window(self.hpu.0, self.hpu.1)
    }
}
