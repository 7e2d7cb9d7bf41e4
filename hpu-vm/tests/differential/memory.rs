//! The memory of a program: the windows of one HPU, at the addresses the engine gives them, but small.

use hpu_vm::{Checks, Memory, Range, RegionKind, View};
use spin_abi::map::{L1_ALIAS, L2_BASE, Machine, PAGE, PROGRAM_BASE};
use spin_abi::regs;

use crate::random::Random;

/// The machine the programs are loaded for.
pub const MACHINE: Machine = Machine::PSPIN;
/// Where the program runs: not the first cluster, so that its alias window is no identity.
pub const CLUSTER: u32 = 1;
/// HPU in the cluster; its windows touch those of no other region.
pub const HPU: u32 = 3;
/// Where code begins.
pub const CODE: u32 = PROGRAM_BASE;
/// Code apart from the rest.
pub const FAR_CODE: u32 = PROGRAM_BASE + 0x6000;
/// Jump tables and constants.
pub const TABLES: u32 = PROGRAM_BASE + 0x4000;
/// Bytes of tables.
pub const TABLES_LEN: u32 = 0x404;
/// Where a Linux program leaves its registers.
pub const REGISTERS: u32 = L2_BASE + 0x5000;
/// Bytes of handler memory.
const HANDLER_MEM_LEN: u32 = 0x802;
/// Bytes at the stack's upper end that hold task registers and arguments.
const ARGUMENTS: u32 = 96;
/// Bytes of `handler_args_t`.
const ARGS: u32 = 16;

/// A range and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub kind: RegionKind,
    pub base: u32,
    /// Bytes that belong to it; `bytes` goes on to the end of the last page.
    pub len: u32,
    pub writable: bool,
    pub bytes: Vec<u8>,
}

impl Block {
    /// A block that begins with `bytes`.
    pub fn new(kind: RegionKind, base: u32, mut bytes: Vec<u8>, writable: bool) -> Self {
        let len = u32::try_from(bytes.len()).unwrap();
        bytes.resize(len.next_multiple_of(PAGE) as usize, 0);
        Self { kind, base, len, writable, bytes }
    }

    /// Bytes that may be touched.
    pub fn reach(&self, checks: Checks) -> u32 {
        match checks {
            Checks::Exact => self.len,
            Checks::Page => u32::try_from(self.bytes.len()).unwrap(),
        }
    }

    /// Its address in the alias window, if it has one there.
    pub fn alias(&self) -> Option<u32> {
        let offset = self.base.wrapping_sub(MACHINE.l1_base(CLUSTER));
        (offset < MACHINE.l1_size).then_some(L1_ALIAS.wrapping_add(offset))
    }
}

/// The view of `blocks`, in which page checks are exact checks of whole pages.
pub fn view(blocks: &mut [Block], checks: Checks) -> View<'_> {
    let mut view = View::new();
    view.set_l1_alias(MACHINE.l1_base(CLUSTER), MACHINE.l1_size);
    view.set_task_alias(task());
    for block in blocks {
        let reach = block.reach(checks) as usize;
        let bytes = &mut block.bytes[..reach];
        let memory = if block.writable { Memory::ReadWrite(bytes) } else { Memory::ReadOnly(bytes) };
        view.push(Range { kind: block.kind, base: block.base, memory }).expect("blocks are disjoint");
    }
    view
}

/// The blocks of a handler beside its code and tables.
pub fn handler_blocks(random: &mut Random, checks: Checks) -> Vec<Block> {
    let (other, own) = (MACHINE.scratchpad_base(0), MACHINE.scratchpad_base(CLUSTER));
    let packet_len = random.below(1500);
    let packet = filled(random, packet_len);
    // Exact checks tell two ranges apart even where one ends and the other begins.
    let (data_len, second) = match checks {
        Checks::Exact => (PAGE, L2_BASE + PAGE),
        Checks::Page => (PAGE - 0x123, L2_BASE + 3 * PAGE),
    };
    vec![
        Block::new(RegionKind::Data, L2_BASE, filled(random, data_len), true),
        Block::new(RegionKind::Data, second, filled(random, 0x3f), true),
        Block::new(RegionKind::HandlerMemory, MACHINE.handler_mem_base, filled(random, HANDLER_MEM_LEN), true),
        Block::new(RegionKind::Packet, MACHINE.l1_packet_base(CLUSTER, HPU), packet.clone(), true),
        Block::new(RegionKind::L2Packet, MACHINE.l2_packet_window(CLUSTER, HPU), packet, true),
        Block::new(RegionKind::Scratchpad, own, filled(random, PAGE + 0x204), true),
        Block::new(RegionKind::Scratchpad, other, filled(random, 0x100), true),
        Block::new(RegionKind::Stack, MACHINE.stack_base(CLUSTER, HPU), stack(packet_len), true),
    ]
    .into_iter()
    .filter(|block| block.len != 0)
    .collect()
}

/// The blocks of a Linux program: what an ELF file can bring along. The stack is handler memory.
pub fn linux_blocks(random: &mut Random) -> Vec<Block> {
    vec![
        Block::new(RegionKind::Data, L2_BASE, filled(random, 2 * PAGE), true),
        Block::new(RegionKind::Data, REGISTERS, vec![0; 128], true),
        Block::new(RegionKind::HandlerMemory, MACHINE.handler_mem_base, vec![0; 2 * PAGE as usize], true),
    ]
}

/// Where `handler_args_t` lies.
pub fn arguments() -> u32 {
    MACHINE.stack_base(CLUSTER, HPU) + PAGE - ARGS
}

/// Where the task registers lie, and the stack pointer starts.
pub fn task() -> u32 {
    MACHINE.stack_base(CLUSTER, HPU) + PAGE - ARGUMENTS
}

/// A stack with task registers, of which the programs use those that are addresses, and arguments on top.
fn stack(packet_len: u32) -> Vec<u8> {
    let mut bytes = vec![0; PAGE as usize];
    let registers = [
        (regs::HANDLER_MEM_ADDR, MACHINE.handler_mem_base),
        (regs::HANDLER_MEM_SIZE, HANDLER_MEM_LEN),
        (regs::PACKET_ADDR, MACHINE.l1_packet_base(CLUSTER, HPU)),
        (regs::PACKET_SIZE, packet_len),
        (regs::SCRATCHPAD_ADDR, MACHINE.scratchpad_base(0)),
        (regs::SCRATCHPAD_ADDR + 4 * CLUSTER, MACHINE.scratchpad_base(CLUSTER)),
        (regs::L2_PACKET_ADDR, MACHINE.l2_packet_window(CLUSTER, HPU)),
        (regs::HOME_CLUSTER, CLUSTER),
    ];
    for (register, value) in registers {
        put_words(&mut bytes[(PAGE - ARGUMENTS + register - regs::TASK_FIRST) as usize..], &[value]);
    }
    let args = [task(), CLUSTER * MACHINE.hpus_per_cluster + HPU, CLUSTER, HPU];
    put_words(&mut bytes[(PAGE - ARGS) as usize..], &args);
    bytes
}

/// `len` bytes, among them words of the kind that arithmetic has trouble with.
fn filled(random: &mut Random, len: u32) -> Vec<u8> {
    let words = (0..len.div_ceil(4)).map(|_| random.value());
    let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    bytes.truncate(len as usize);
    bytes
}

/// Writes `words` to the start of `bytes`.
pub fn put_words(bytes: &mut [u8], words: &[u32]) {
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}
