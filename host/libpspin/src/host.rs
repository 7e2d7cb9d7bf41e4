//! The program, as the simulation sees it: what its callbacks are told.

use crate::time::Picos;

/// When things happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The inbound engine took it.
    pub nic_arrival: Picos,
    /// It was in L2, and waited for its handlers from then on.
    pub pspin_arrival: Picos,
    /// It was released.
    pub feedback: Picos,
}

/// A program's access to NIC memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `spin_nicmem_write`.
    Write,
    /// `spin_nicmem_read`.
    Read,
}

/// The program.
pub trait Host {
    /// A packet leaves.
    fn send(&mut self, packet: &mut [u8]);

    /// Bytes for host memory: at most 64 at a time.
    fn write(&mut self, address: u64, data: &mut [u8]);

    /// Bytes of host memory that a handler waits for; they are zero.
    fn read(&mut self, address: u64, data: &mut [u8]);

    /// A packet is released.
    fn released(&mut self, user: u64, times: Times);

    /// An access of the program's own is complete.
    fn accessed(&mut self, access: Access, user: usize);

    /// A handler printed a line.
    fn print(&mut self, line: &[u8]);

    /// Something went wrong that nobody waits to be told.
    fn report(&mut self, problem: &str);
}
