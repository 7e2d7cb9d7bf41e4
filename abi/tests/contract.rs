//! Constants that handlers for PsPIN and FPsPIN were compiled with, checked at compile time.

use spin_abi::map::{self, Machine};
use spin_abi::regs::{self, dma};

macro_rules! same {
    ($($left:expr => $right:expr),* $(,)?) => { $(const _: () = assert!(matches!($left, value if value == $right));)* };
}

// The address map.
same! {
    map::L1_BASE => 0x1000_0000,
    map::L1_STRIDE => 0x0040_0000,
    map::L1_ALIAS => 0x1b00_0000,
    map::PERIPHERALS => 0x1b20_0000,
    map::END_OF_COMPUTATION => 0x1b20_0000,
    map::DMA_BASE => 0x1b20_4400,
    map::PUBLIC_DMA_BASE => 0x1020_1800,
    map::DRIVER_BASE => 0x1b20_5000,
    map::L2_BASE => 0x1c00_0000,
    map::PROGRAM_BASE => 0x1d00_0000,
    map::STDOUT_BASE => 0x1a10_4000,
}
// PsPIN's reserved 1 KiB and its runtime's 16 KiB.
const _: () = assert!(map::L1_DATA >= 0x400 + 0x4000);
// Address of the last HPU: core << 3 | cluster << 7.
const _: () = assert!(map::STDOUT_SIZE > (7 << 3 | 3 << 7));

// The two machines.
same! {
    Machine::PSPIN.clusters => 4,
    Machine::PSPIN.hpus_per_cluster => 8,
    Machine::PSPIN.l1_size => 0x10_0000,
    Machine::PSPIN.handler_mem_base => 0x1c30_0000,
    Machine::PSPIN.handler_mem_size => 0x10_0000,
    Machine::PSPIN.l2_packet_base => 0x1c40_0000,
    Machine::PSPIN.l2_packet_size => 0x40_0000,
    Machine::PSPIN.program_size => 0x8000,
    map::L2_BASE + Machine::PSPIN.l2_data_size => Machine::PSPIN.handler_mem_base,
    Machine::FPSPIN.clusters => 2,
    Machine::FPSPIN.hpus_per_cluster => 8,
    Machine::FPSPIN.l1_size => 0x4_0000,
    map::L2_BASE + Machine::FPSPIN.l2_data_size => 0x1c0c_0000,
    Machine::FPSPIN.handler_mem_base => 0x1c0c_0000,
    Machine::FPSPIN.handler_mem_size => 0x4_0000,
    Machine::FPSPIN.l2_packet_base => 0x1c10_0000,
    Machine::FPSPIN.l2_packet_size => 0x8_0000,
    Machine::FPSPIN.program_size => 0x8000,
}

// The HPU driver page.
same! {
    regs::HANDLER_ADDR => 0x00,
    regs::HANDLER_SIZE => 0x04,
    regs::HANDLER_MEM_ADDR => 0x08,
    regs::HANDLER_MEM_SIZE => 0x0c,
    regs::PACKET_ADDR => 0x10,
    regs::PACKET_SIZE => 0x14,
    regs::SCRATCHPAD_ADDR => 0x18,
    regs::SCRATCHPAD_SIZE => 0x28,
    regs::HOST_MEM_HIGH => 0x38,
    regs::HOST_MEM_LOW => 0x3c,
    regs::HOST_MEM_SIZE => 0x40,
    regs::L2_PACKET_ADDR => 0x44,
    regs::HOME_CLUSTER => 0x48,
    regs::FLOW_ID => 0x4c,
    regs::DOORBELL => 0x50,
    regs::ERROR => 0x54,
    regs::COMMAND_ISSUE => 0x80,
    regs::COMMAND_WAIT => 0x84,
    regs::COMMAND_TEST => 0x88,
    regs::COMMAND_INFO => 0x8c,
    regs::COMMAND_WORDS => 0x90,
    // Words 0 to 6, and words up to 10 for the paper's 32 immediate bytes.
    regs::COMMAND_WORDS + 4 * 6 => 0xa8,
    regs::COMMAND_WORDS + 4 * (regs::COMMAND_WORD_COUNT as u32 - 1) => 0xb8,
    regs::COMMANDS_IN_FLIGHT => 4,
    regs::TASK_FIRST => 0x08,
    regs::TASK_END => 0x50,
}

// The front-end of the cluster's DMA engine.
same! {
    dma::SOURCE => 0x00,
    dma::SOURCE_HIGH => 0x04,
    dma::DESTINATION => 0x08,
    dma::DESTINATION_HIGH => 0x0c,
    dma::BYTES => 0x10,
    dma::LAUNCH => 0x18,
    dma::DONE => 0x20,
    dma::CONFIG => 0x28,
}

/// The compiler has checked everything above.
#[test]
fn the_numbers_are_those_of_the_machines() {
    assert_eq!(map::PERIPHERALS_SIZE, 0x50c0);
}
