//! Packet frames, and code that needs only frames.
//!
//! * [`Frame`]: the bytes of one packet, with one owner.
//! * [`HeapPool`]: a pool of frames on the heap.
//! * [`TxQueue`]: the transmit side of a NIC, as the command unit uses it.
//! * [`MemoryPort`]: one of two connected ends in memory.
//! * [`prefetch()`], [`prefetch_in`], [`prefetch_all`], [`prefetch_to_write`]: prefetch instructions.
//!
//! This crate makes no system calls and knows no NIC. Crates that run handlers without a NIC depend on it alone.
//!
//! `unsafe` is in `frame` (the bytes of a frame) and `prefetch` (the instructions).

mod frame;
mod heap_pool;
mod memory;
mod prefetch;
mod tx_queue;

pub use frame::{CAPACITY, CHUNK, Chunk, Frame, FrameRangeError, HEADROOM, MIN_SEND, PoolId, SPARE};
pub use heap_pool::HeapPool;
pub use memory::{MemoryPort, PortCounts, memory_pair};
pub use prefetch::{prefetch, prefetch_all, prefetch_in, prefetch_to_write};
pub use tx_queue::{LOW_WATERMARK, TxClosed, TxQueue};
