//! Packets and accesses that a program adds. Callbacks add some during a run, so the inbox is separate from the
//! simulation.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ec::Context;
use crate::host::Access;

/// An added packet.
#[derive(Debug)]
pub struct Added {
    /// Context of the packet.
    pub context: Arc<Context>,
    /// Message of the packet.
    pub msgid: u32,
    /// Bytes of the packet.
    pub bytes: Vec<u8>,
    /// Number of bytes copied to L1.
    pub l1_len: usize,
    /// Whether the packet is the last of its message.
    pub eom: bool,
    /// Cycles until the next packet.
    pub wait_cycles: u32,
    /// Program-defined value.
    pub user: u64,
}

/// Entries that were added and not yet taken.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Packets in order.
    pub packets: VecDeque<Added>,
    /// Accesses to NIC memory that were made and are not complete: kind, length in bytes, and the program's value.
    pub accesses: VecDeque<(Access, usize, usize)>,
    /// Whether the packet stream has ended.
    pub eos: bool,
}

/// Inbox shared by the program and the simulation.
#[derive(Debug, Default)]
pub struct Inbox(Mutex<Waiting>);

impl Inbox {
    /// Adds packets, unless the stream has ended; returns whether it did.
    #[must_use]
    pub fn add(&self, packets: impl IntoIterator<Item = Added>) -> bool {
        self.change(|waiting| {
            if !waiting.eos {
                waiting.packets.extend(packets);
            }
            !waiting.eos
        })
    }

    /// Records an access of `len` bytes.
    pub fn access(&self, access: Access, len: usize, user: usize) {
        self.change(|waiting| waiting.accesses.push_back((access, len, user)));
    }

    /// Marks the end of the packet stream.
    pub fn end(&self) {
        self.change(|waiting| waiting.eos = true);
    }

    /// Runs a function on the waiting entries.
    pub fn change<R>(&self, change: impl FnOnce(&mut Waiting) -> R) -> R {
        // The entries are consistent after every step, so poisoning is ignored.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
