//! Input of a handler.

use core::marker::PhantomData;
use core::ptr;
use core::slice;
use core::sync::atomic::AtomicU32;

use crate::command::{Command, issue};
use crate::regs;

const MAX_CLUSTERS: usize = 4;
/// Maximum number of bytes for [`HostMemory::write_now`].
pub const WRITE_NOW_MAX: usize = 32;

/// `task_t` of `spin_task.h`.
#[repr(C)]
#[derive(Debug)]
struct Registers {
    handler_mem: u32,
    handler_mem_size: u32,
    pkt_mem: u32,
    pkt_mem_size: u32,
    scratchpad: [u32; MAX_CLUSTERS],
    scratchpad_size: [u32; MAX_CLUSTERS],
    host_mem_high: u32,
    host_mem_low: u32,
    host_mem_size: u32,
    l2_pkt_mem: u32,
    home_cluster: u32,
    flow_id: u32,
}

/// `handler_args_t` of `spin_task.h`: argument of an entry point.
#[repr(C)]
#[derive(Debug)]
pub struct Arguments {
    task: *const Registers,
    hpu_gid: u32,
    cluster: u32,
    hpu: u32,
}

/// A task: one handler on one packet.
#[derive(Debug)]
pub struct Task<'t> {
    arguments: &'t Arguments,
    registers: &'t Registers,
    /// Borrow of the task's copies of the packet.
    packet: PhantomData<&'t mut [u8]>,
}

impl<'t> Task<'t> {
    /// Returns the task of an entry point's call.
    ///
    /// # Safety
    /// `arguments` is the entry point's argument, and no other `Task` is made of it.
    #[doc(hidden)]
    #[must_use]
    pub unsafe fn new(arguments: &'t Arguments) -> Self {
        // SAFETY: spind writes the registers before the task and does not change them until it ends.
        let registers = unsafe { &*arguments.task };
        Self { arguments, registers, packet: PhantomData }
    }

    /// Returns the packet's copy in L1, Ethernet header first, for reading and parsing.
    pub fn packet(&mut self) -> &mut [u8] {
        let (start, length) = (self.registers.pkt_mem, self.registers.pkt_mem_size);
        // SAFETY: the copy belongs to this task and has this length. `self` stays borrowed as long as the slice, and
        // the two copies do not overlap.
        unsafe { slice::from_raw_parts_mut(pointer(start), length as usize) }
    }

    /// Returns the packet in L2, the buffer of its arrival, which can be sent back without a copy. Its length is that
    /// of the copy in L1.
    pub fn frame(&mut self) -> &mut [u8] {
        let (start, length) = (self.registers.l2_pkt_mem, self.registers.pkt_mem_size);
        // SAFETY: as in `packet`.
        unsafe { slice::from_raw_parts_mut(pointer(start), length as usize) }
    }

    /// Returns the context's handler memory: state kept from packet to packet. Other tasks access it at the same time.
    #[must_use]
    pub fn handler_memory(&self) -> &'t [AtomicU32] {
        // SAFETY: this address range is mapped for the context while one of its tasks runs.
        unsafe { words(self.registers.handler_mem, self.registers.handler_mem_size) }
    }

    /// Returns the context's scratchpad in a cluster's L1. It is empty if the context has none, or if tasks are
    /// confined to their own cluster. Other tasks access it at the same time.
    #[must_use]
    pub fn scratchpad(&self, cluster: u32) -> &'t [AtomicU32] {
        let index = cluster as usize % MAX_CLUSTERS;
        // SAFETY: as in `handler_memory`.
        unsafe { words(self.registers.scratchpad[index], self.registers.scratchpad_size[index]) }
    }

    /// Returns the scratchpad of the message's home cluster, which is the same for all tasks of the message.
    #[must_use]
    pub fn home_scratchpad(&self) -> &'t [AtomicU32] {
        self.scratchpad(self.home_cluster())
    }

    /// Returns the context's host memory.
    #[must_use]
    pub fn host(&self) -> HostMemory {
        let [high, low] = [self.registers.host_mem_high, self.registers.host_mem_low];
        HostMemory { address: u64::from(high) << 32 | u64::from(low), size: self.registers.host_mem_size }
    }

    /// Returns the message's home cluster. Its tasks run there; payload tasks may run elsewhere while its HPUs are
    /// busy.
    #[must_use]
    pub fn home_cluster(&self) -> u32 {
        self.registers.home_cluster
    }

    /// Returns the index of the message's queue. All tasks of the message have the same one; it is reused after the
    /// message has ended.
    #[must_use]
    pub fn flow_id(&self) -> u32 {
        self.registers.flow_id
    }

    /// Returns the HPU's number in the machine, its cluster, and its number in that cluster.
    #[must_use]
    pub fn hpu(&self) -> (u32, u32, u32) {
        (self.arguments.hpu_gid, self.arguments.cluster, self.arguments.hpu)
    }
}

fn pointer<T>(address: u32) -> *mut T {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// Returns the complete words of a memory range.
///
/// # Safety
/// `address` is a multiple of four, and `size` bytes from it are mapped for as long as the task runs.
unsafe fn words<'t>(address: u32, size: u32) -> &'t [AtomicU32] {
    if size < 4 {
        return &[];
    }
    // SAFETY: guaranteed by the caller; atomics allow for concurrent changes.
    unsafe { slice::from_raw_parts(pointer(address), size as usize / 4) }
}

/// The memory that the context shares with its application. The engine checks offsets.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    address: u64,
    size: u32,
}

impl HostMemory {
    /// Returns the size in bytes; 0 for none.
    #[must_use]
    pub fn size(self) -> u32 {
        self.size
    }

    /// Copies bytes of NIC memory to host memory.
    pub fn write(self, offset: u64, from: &[u8]) -> Command {
        self.dma(offset, from.as_ptr().expose_provenance() as u32, from.len(), 1)
    }

    /// Copies words that other tasks also access to host memory.
    pub fn write_words(self, offset: u64, from: &[AtomicU32]) -> Command {
        self.dma(offset, from.as_ptr().expose_provenance() as u32, size_of_val(from), 1)
    }

    /// Copies host memory to NIC memory, and waits for the copy.
    pub fn read(self, offset: u64, to: &mut [u8]) -> crate::Status {
        self.dma(offset, to.as_mut_ptr().expose_provenance() as u32, to.len(), 0).wait()
    }

    /// Copies host memory to words that other tasks also access, and waits for the copy.
    pub fn read_words(self, offset: u64, to: &[AtomicU32]) -> crate::Status {
        self.dma(offset, to.as_ptr().expose_provenance() as u32, size_of_val(to), 0).wait()
    }

    fn dma(self, offset: u64, nic: u32, length: usize, to_host: u32) -> Command {
        let host = self.address.wrapping_add(offset);
        issue(regs::INFO_DMA, &[host as u32, (host >> 32) as u32, nic, length as u32, to_host])
    }

    /// Writes up to [`WRITE_NOW_MAX`] bytes, passed by value, to host memory. `None`: the slice is empty or too long.
    pub fn write_now(self, offset: u64, bytes: &[u8]) -> Option<Command> {
        if bytes.is_empty() || bytes.len() > WRITE_NOW_MAX {
            return None;
        }
        let host = self.address.wrapping_add(offset);
        let mut words = [0; 3 + WRITE_NOW_MAX / 4];
        words[..3].copy_from_slice(&[host as u32, (host >> 32) as u32, (bytes.len() as u32) << 1 | 1]);
        for (word, part) in words[3..].iter_mut().zip(bytes.chunks(4)) {
            let mut four = [0; 4];
            four[..part.len()].copy_from_slice(part);
            *word = u32::from_le_bytes(four);
        }
        Some(issue(regs::INFO_HOST_DIRECT, &words[..3 + bytes.len().div_ceil(4)]))
    }

    /// Writes eight bytes, little-endian, to host memory.
    pub fn write_u64(self, offset: u64, value: u64) -> Command {
        let host = self.address.wrapping_add(offset);
        let words = [host as u32, (host >> 32) as u32, 8 << 1 | 1, value as u32, (value >> 32) as u32];
        issue(regs::INFO_HOST_DIRECT, &words)
    }
}
