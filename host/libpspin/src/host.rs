//! The program's callbacks, as seen by the simulation.

use crate::time::Picos;

/// Times of a packet's stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Time when the inbound engine took the packet.
    pub nic_arrival: Picos,
    /// Time when the packet was in L2 and began to wait for its handlers.
    pub pspin_arrival: Picos,
    /// Time when the packet was released.
    pub feedback: Picos,
}

/// Kind of a program's access to NIC memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `spin_nicmem_write`.
    Write,
    /// `spin_nicmem_read`.
    Read,
}

/// The C program, called by the simulation.
pub trait Host {
    /// Sends a packet.
    fn send(&mut self, packet: &mut [u8]);

    /// Writes bytes to host memory, at most 64 per call.
    fn write(&mut self, address: u64, data: &mut [u8]);

    /// Reads host memory for a waiting handler; `data` is zeroed before the call.
    fn read(&mut self, address: u64, data: &mut [u8]);

    /// Reports a released packet.
    fn released(&mut self, user: u64, times: Times);

    /// Reports that an access of the program to NIC memory is complete.
    fn accessed(&mut self, access: Access, user: usize);

    /// Prints a handler's line.
    fn print(&mut self, line: &[u8]);

    /// Reports an error that no caller can receive.
    fn report(&mut self, problem: &str);
}
