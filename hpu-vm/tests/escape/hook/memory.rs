//! Memory of an attacker in the hook: the frame and the maps, with canaries around everything that is the attacker's.

use hpu_vm::bpf::Layout;
use hpu_vm::bpf::layout::{self, Description, Maps, Range};
use hpu_vm::bpf::queue;
use hpu_vm::{Checks, RegionKind};
use spin_abi::map::{PAGE, STACK_WINDOW, TASK_BLOCK};
use spin_abi::regs;

use crate::attack::FILL;
use crate::guest::{CODE, DATA_LEN, HANDLER_MEM_LEN, MACHINE, OWN, PACKET, SCRATCHPAD_LEN};

/// Loop iterations that an attacker may take.
const BUDGET: u64 = 5000;
/// Content of canaries.
pub const CANARY: u8 = 0xc5;
/// Bytes of canaries before and behind each memory.
const MARGIN: u32 = 64;
/// Host address of the attacker's host memory.
pub const HOST_BASE: u64 = 0x1_0000_1000;
/// Bytes of host memory.
pub const HOST_LEN: u32 = 256;

/// Memory that all processors share, in a map of its own.
#[derive(Clone, PartialEq, Eq)]
pub struct Shared {
    base: u32,
    /// Bytes that handlers may access.
    len: u32,
    writable: bool,
    /// Canaries, the bytes, canaries to the end of the page and beyond.
    pub(super) bytes: Vec<u8>,
}

impl Shared {
    fn new(base: u32, content: &[u8], writable: bool, checks: Checks) -> Self {
        let exact = u32::try_from(content.len()).expect("short");
        let whole = exact.next_multiple_of(PAGE);
        let len = if checks == Checks::Page { whole } else { exact };
        let mut bytes = vec![CANARY; (MARGIN + whole + MARGIN) as usize];
        let start = MARGIN as usize;
        bytes[start..start + len as usize].fill(FILL);
        bytes[start..start + content.len()].copy_from_slice(content);
        Self { base, len, writable, bytes }
    }

    /// The bytes that handlers may access.
    fn own(&mut self) -> &mut [u8] {
        &mut self.bytes[MARGIN as usize..(MARGIN + self.len) as usize]
    }
}

/// A part of the memory that an attacker may access.
pub struct Part<'m> {
    pub kind: RegionKind,
    pub base: u32,
    pub bytes: &'m mut [u8],
    pub writable: bool,
}

/// Frame and maps.
#[derive(Clone, PartialEq, Eq)]
pub struct Memory {
    pub frame: Vec<u8>,
    pub configuration: Vec<u8>,
    pub slots: Vec<u8>,
    pub shared: Vec<Shared>,
    /// The queue for commands, then canaries.
    pub queue: Vec<u8>,
}

impl Memory {
    /// Memory before an attempt, with the attacker's code.
    pub fn new(code: &[u8], checks: Checks, processors: u32) -> Self {
        let mut configuration = vec![0; Maps::CONFIGURATION_SIZE as usize];
        configuration[..8].copy_from_slice(&BUDGET.to_ne_bytes());
        let content = |len: u32| vec![FILL; len as usize];
        let shared = vec![
            Shared::new(MACHINE.scratchpad_base(OWN.cluster), &content(SCRATCHPAD_LEN), true, checks),
            Shared::new(OWN.data, &content(DATA_LEN), true, checks),
            Shared::new(OWN.handler_mem, &content(HANDLER_MEM_LEN), true, checks),
            Shared::new(CODE, code, false, checks),
        ];
        let mut queue = vec![0; (processors * queue::PART) as usize];
        queue.resize(queue.len() + MARGIN as usize, CANARY);
        let frame = content(PACKET);
        let mut memory = Self { frame, configuration, slots: Vec::new(), shared, queue };
        memory.slots = memory.layout(processors).slots(&DESCRIPTION);
        memory.slots.chunks_exact_mut(layout::SLOT as usize).for_each(fill_slot);
        memory
    }

    /// The memory's addresses.
    pub fn layout(&self, processors: u32) -> Layout {
        let ranges = self.shared.iter().zip(Maps::MEMORY..);
        let ranges =
            ranges.map(|(&Shared { base, len, writable, .. }, map)| Range { base, len, writable, map, offset: MARGIN });
        let ranges: Vec<Range> = ranges.collect();
        let queue = Maps::MEMORY + u32::try_from(ranges.len()).expect("few");
        Layout {
            machine: MACHINE,
            hpu: (OWN.cluster, OWN.hpu),
            first_hpu: 0,
            first_flow: 0,
            processors,
            ranges,
            host_queue: Some(queue),
            own_task: false,
            replies: None,
        }
    }

    /// Bytes of the shared memories and of the queue, in the order of their maps.
    pub fn maps(&self) -> impl Iterator<Item = &[u8]> {
        self.shared.iter().map(|shared| shared.bytes.as_slice()).chain([self.queue.as_slice()])
    }

    /// As [`Memory::maps`].
    #[allow(dead_code, reason = "the kernel's test replaces them")]
    pub fn maps_mut(&mut self) -> impl Iterator<Item = &mut Vec<u8>> {
        self.shared.iter_mut().map(|shared| &mut shared.bytes).chain([&mut self.queue])
    }

    /// The slot of a processor.
    pub fn slot(&mut self, processor: u32) -> &mut [u8] {
        self.slots.chunks_exact_mut(layout::SLOT as usize).nth(processor as usize).expect("a slot")
    }

    /// What an attacker on a processor may access. The first three are stack, packet in L1 and packet in L2.
    pub fn parts(&mut self, processor: u32) -> Vec<Part<'_>> {
        let slot = self.slots.chunks_exact_mut(layout::SLOT as usize).nth(processor as usize).expect("a slot");
        let (stack, rest) = slot.split_at_mut(STACK_WINDOW as usize);
        let l1 = MACHINE.l1_packet_base(OWN.cluster, OWN.hpu);
        let part = |kind, base, bytes, writable| Part { kind, base, bytes, writable };
        let mut parts = vec![
            part(RegionKind::Stack, OWN.stack_end() - STACK_WINDOW, stack, true),
            part(RegionKind::Packet, l1, &mut rest[..PACKET as usize], true),
            part(RegionKind::L2Packet, OWN.l2_packet(), &mut self.frame, true),
        ];
        for shared in &mut self.shared {
            let (base, writable) = (shared.base, shared.writable);
            let kind = if writable { RegionKind::Data } else { RegionKind::Code };
            parts.push(part(kind, base, shared.own(), writable));
        }
        parts
    }
}

/// What task registers say.
const DESCRIPTION: Description = Description {
    handler_mem: (OWN.handler_mem, HANDLER_MEM_LEN),
    scratchpads: [(0, 0), (MACHINE.scratchpad_base(OWN.cluster), SCRATCHPAD_LEN), (0, 0), (0, 0)],
    host: (HOST_BASE, HOST_LEN),
    unit: [0; 2],
};

/// Fills the attacker's part of a slot, and puts canaries everywhere else. Counters are zero.
fn fill_slot(slot: &mut [u8]) {
    let task = (STACK_WINDOW - TASK_BLOCK) as usize;
    slot[..task].fill(FILL);
    let size = task + (regs::PACKET_SIZE - regs::TASK_FIRST) as usize;
    slot[size..size + 4].copy_from_slice(&PACKET.to_le_bytes());
    let thread_pointer = slot[layout::THREAD_POINTER as usize..][..4].to_vec();
    slot[STACK_WINDOW as usize..layout::COUNTERS as usize].fill(CANARY);
    slot[counters_end()..].fill(CANARY);
    slot[layout::THREAD_POINTER as usize..][..4].copy_from_slice(&thread_pointer);
}

/// Offset in a slot of the end of the counters.
pub const fn counters_end() -> usize {
    (layout::COUNTERS + 8 * layout::Counter::COUNT) as usize
}
