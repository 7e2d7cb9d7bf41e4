//! The HPU driver page at [`crate::map::DRIVER_BASE`], as byte offsets.
//!
//! `task_t` is this page from [`TASK_FIRST`] to [`TASK_END`]: plain, byte-readable memory with the task's description,
//! which is rewritten for each task. The registers from [`DOORBELL`] on have effects.

/// Address of the handler function.
pub const HANDLER_ADDR: u32 = 0x00;
/// Size of the handler function in bytes.
pub const HANDLER_SIZE: u32 = 0x04;
/// Handler memory address.
pub const HANDLER_MEM_ADDR: u32 = 0x08;
/// Handler memory size.
pub const HANDLER_MEM_SIZE: u32 = 0x0c;
/// Address of the packet in L1.
pub const PACKET_ADDR: u32 = 0x10;
/// Number of bytes copied to L1 (not the wire length).
pub const PACKET_SIZE: u32 = 0x14;
/// Scratchpad address in cluster 0; clusters 1 to 3 follow.
pub const SCRATCHPAD_ADDR: u32 = 0x18;
/// Scratchpad size in cluster 0; clusters 1 to 3 follow.
pub const SCRATCHPAD_SIZE: u32 = 0x28;
/// Host memory address, upper half.
pub const HOST_MEM_HIGH: u32 = 0x38;
/// Host memory address, lower half.
pub const HOST_MEM_LOW: u32 = 0x3c;
/// Host memory size, at most `u32::MAX`.
pub const HOST_MEM_SIZE: u32 = 0x40;
/// Address of the packet in L2.
pub const L2_PACKET_ADDR: u32 = 0x44;
/// Home cluster of the message.
pub const HOME_CLUSTER: u32 = 0x48;
/// Index of the message's MPQ.
pub const FLOW_ID: u32 = 0x4c;
/// Doorbell: a read ends the handler.
pub const DOORBELL: u32 = 0x50;
/// Error register. The runtime writes `mcause` here; the write ends the handler with that error.
pub const ERROR: u32 = 0x54;
/// Command issue. A read issues the command in the command words and returns its handle. The read blocks while
/// [`COMMANDS_IN_FLIGHT`] commands of this HPU are in flight.
pub const COMMAND_ISSUE: u32 = 0x80;
/// Command wait: a write of a handle blocks until that command is complete.
pub const COMMAND_WAIT: u32 = 0x84;
/// Command test: after a write of a handle, a read returns 1 if that command is complete, else 0.
pub const COMMAND_TEST: u32 = 0x88;
/// Command type in bits 2:1, event request in bit 0; see [`crate::command`].
pub const COMMAND_INFO: u32 = 0x8c;
/// Command word 0; words 1 to 10 follow. PsPIN has seven; the paper's 32 B HostDirect needs eleven.
pub const COMMAND_WORDS: u32 = 0x90;
/// Command status, an extension of spind: after a write of a handle, a read returns how that command ended, a
/// [`crate::command::Status`]. It covers the last eight handles; older ones read as [`crate::command::Status::Done`].
pub const COMMAND_STATUS: u32 = 0xbc;

/// Value of [`COMMAND_INFO`]: a copy without an event for the host.
pub const INFO_DMA: u32 = 0;
/// Value of [`COMMAND_INFO`]: a send.
pub const INFO_SEND: u32 = 1 << 1;

/// Number of command words of an HPU.
pub const COMMAND_WORD_COUNT: usize = 11;
/// Maximum number of commands in flight per HPU.
pub const COMMANDS_IN_FLIGHT: usize = 4;
/// First byte of `task_t` in the page.
pub const TASK_FIRST: u32 = HANDLER_MEM_ADDR;
/// One past the last byte of `task_t` in the page.
pub const TASK_END: u32 = DOORBELL;
/// Size of the page's device registers, in bytes.
pub const DRIVER_SIZE: u32 = 0xc0;

/// The front-end of the cluster's DMA engine at [`crate::map::DMA_BASE`], as byte offsets. It copies within NIC memory.
pub mod dma {
    /// Source address, lower half. The upper half follows and is 0.
    pub const SOURCE: u32 = 0x00;
    /// Upper half of the source address.
    pub const SOURCE_HIGH: u32 = 0x04;
    /// Destination address, lower half.
    pub const DESTINATION: u32 = 0x08;
    /// Upper half of the destination address.
    pub const DESTINATION_HIGH: u32 = 0x0c;
    /// Number of bytes to copy.
    pub const BYTES: u32 = 0x10;
    /// Launch: a read starts the copy and returns its id, one more than the previous id.
    pub const LAUNCH: u32 = 0x18;
    /// Id of the last completed copy.
    pub const DONE: u32 = 0x20;
    /// Configuration: stored and ignored.
    pub const CONFIG: u32 = 0x28;
    /// Size of the registers, in bytes.
    pub const SIZE: u32 = 0x2c;
}
