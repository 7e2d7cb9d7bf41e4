//! The 32-bit guest address map (PsPIN paper §III-A; FPsPIN's preset differs in sizes).
//!
//! Addresses of code, `.data`, `.l2_handler_data` and devices are fixed by the image, so they are constants of the machine. Handlers
//! learn the addresses of packet, scratchpads and stack from their arguments and `sp`. These windows are page-aligned within their
//! region, so that an engine can map each of them separately.

mod check;

pub use check::MachineError;
use serde::{Deserialize, Serialize};

/// Alignment of windows: a host page, in bytes.
pub const PAGE: u32 = 4096;

/// Base of cluster 0's L1; cluster `c` starts [`L1_STRIDE`]` * c` above it.
pub const L1_BASE: u32 = 0x1000_0000;
/// Distance between the L1 memories of two clusters.
pub const L1_STRIDE: u32 = 0x0040_0000;
/// Alias of the L1 of the cluster that a handler runs on.
pub const L1_ALIAS: u32 = 0x1b00_0000;
/// First address of a cluster's devices, which end with the last register of the driver page.
pub const PERIPHERALS: u32 = 0x1b20_0000;
/// Size of a cluster's devices, in bytes.
pub const PERIPHERALS_SIZE: u32 = DRIVER_BASE + crate::regs::DRIVER_SIZE - PERIPHERALS;
/// Register that ends the task when a 1 is stored there.
pub const END_OF_COMPUTATION: u32 = PERIPHERALS;
/// Front-end of the cluster's DMA engine, see [`crate::regs::dma`].
pub const DMA_BASE: u32 = 0x1b20_4400;
/// Front-end of cluster 0's DMA engine where all clusters reach it. That of cluster `c` is [`L1_STRIDE`]` * c` above it.
pub const PUBLIC_DMA_BASE: u32 = 0x1020_1800;
/// Bits of an address in which [`PUBLIC_DMA_BASE`] differs between clusters.
pub const PUBLIC_DMA_CLUSTERS: u32 = (Machine::MAX_CLUSTERS - 1) * L1_STRIDE;
/// HPU driver page, see [`crate::regs`].
pub const DRIVER_BASE: u32 = 0x1b20_5000;
/// Stdout device: a byte stored here is printed.
pub const STDOUT_BASE: u32 = 0x1a10_4000;
/// Size of the stdout device. FPsPIN adds `core << 3 | cluster << 7` to the base.
pub const STDOUT_SIZE: u32 = 0x1000;
/// L2: `.data` and `.bss` of the image.
pub const L2_BASE: u32 = 0x1c00_0000;
/// Program memory: `.text` and `.rodata`.
pub const PROGRAM_BASE: u32 = 0x1d00_0000;
/// Maximum size of program memory, in bytes. It bounds the cost of translating an image.
pub const PROGRAM_MOST: u32 = 1 << 20;
/// Return address of a handler in `ra`. Returning there ends the handler. Nothing is ever mapped at this address.
pub const RETURN_ADDRESS: u32 = 0xffff_fffc;

/// Stack window of one HPU slot, in bytes.
pub const STACK_WINDOW: u32 = PAGE;
/// Packet window of one HPU slot in L1 and in L2, in bytes. The largest frame that a handler can receive.
pub const PACKET_WINDOW: u32 = PAGE;
/// Size of the task block at the top of a stack window: task registers, then `handler_args_t`, in bytes. The stack pointer starts below
/// it.
pub const TASK_BLOCK: u32 = 96;
/// Message queues of a PsPIN unit (PsPIN paper §III-B1). Handlers that were written for PsPIN know no higher `flow_id`.
pub const PSPIN_QUEUES: u32 = 256;
/// Size of `handler_args_t`, in bytes: task, HPU's global id, cluster, HPU.
pub const HANDLER_ARGS: u32 = 16;
/// Size of the area at the start of each L1 for images (`.data_tiny_l1`): PsPIN's reserved 1 KiB and its runtime's 16 KiB, in whole
/// pages.
pub const L1_DATA: u32 = 0x5000;
/// Offset in L1 of HPU 0's stack window.
pub const L1_STACKS: u32 = L1_DATA;

// The engines lie behind the largest L1 (see [`Machine::check`]).
const _: () =
    assert!(PUBLIC_DMA_BASE & PUBLIC_DMA_CLUSTERS == 0 && PUBLIC_DMA_BASE - L1_BASE >= PERIPHERALS - L1_ALIAS);

/// Cluster and register of an address of a DMA engine that all clusters reach.
#[must_use]
pub const fn public_dma(address: u32) -> Option<(u32, u32)> {
    let register = (address & !PUBLIC_DMA_CLUSTERS).wrapping_sub(PUBLIC_DMA_BASE);
    if register < crate::regs::dma::SIZE { Some(((address & PUBLIC_DMA_CLUSTERS) / L1_STRIDE, register)) } else { None }
}

/// Sizes and addresses that differ between machines. A machine with configured sizes has to be [checked](Machine::check).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Number of clusters, 1 to [`Machine::MAX_CLUSTERS`].
    pub clusters: u32,
    /// Number of HPUs per cluster, 1 to [`Machine::MAX_HPUS`].
    pub hpus_per_cluster: u32,
    /// Size of one cluster's L1, in bytes.
    pub l1_size: u32,
    /// Size of L2 for `.data` and `.bss` from [`L2_BASE`], in bytes.
    pub l2_data_size: u32,
    /// Base of handler memory (`.l2_handler_data`, then the memory that the context requested).
    pub handler_mem_base: u32,
    /// Size of handler memory, in bytes.
    pub handler_mem_size: u32,
    /// Base of the L2 packet buffer.
    pub l2_packet_base: u32,
    /// Size of the L2 packet buffer, in bytes.
    pub l2_packet_size: u32,
    /// Size of program memory from [`PROGRAM_BASE`], in bytes.
    pub program_size: u32,
}

impl Machine {
    /// Maximum number of clusters: the task registers have room for four clusters' scratchpads.
    pub const MAX_CLUSTERS: u32 = 4;
    /// Maximum number of HPUs in a cluster.
    pub const MAX_HPUS: u32 = 8;

    /// PsPIN: 4 clusters of 8 HPUs, 1 MiB of L1 each.
    pub const PSPIN: Self = Self {
        clusters: 4,
        hpus_per_cluster: 8,
        l1_size: 0x10_0000,
        l2_data_size: 0x30_0000,
        handler_mem_base: 0x1c30_0000,
        handler_mem_size: 0x10_0000,
        l2_packet_base: 0x1c40_0000,
        l2_packet_size: 0x40_0000,
        program_size: 0x8000,
    };

    /// FPsPIN: 2 clusters of 8 HPUs, 256 KiB of L1 each.
    pub const FPSPIN: Self = Self {
        clusters: 2,
        hpus_per_cluster: 8,
        l1_size: 0x4_0000,
        l2_data_size: 0xc_0000,
        handler_mem_base: 0x1c0c_0000,
        handler_mem_size: 0x4_0000,
        l2_packet_base: 0x1c10_0000,
        l2_packet_size: 0x8_0000,
        program_size: 0x8000,
    };

    /// Number of HPUs of all clusters together.
    #[must_use]
    pub const fn hpus(&self) -> u32 {
        self.clusters * self.hpus_per_cluster
    }

    /// Base of cluster `cluster`'s L1.
    #[must_use]
    pub const fn l1_base(&self, cluster: u32) -> u32 {
        L1_BASE + cluster * L1_STRIDE
    }

    /// Base of the stack window of one HPU slot; the stack pointer starts at its upper end.
    #[must_use]
    pub const fn stack_base(&self, cluster: u32, hpu: u32) -> u32 {
        self.l1_base(cluster) + L1_STACKS + hpu * STACK_WINDOW
    }

    /// Base of the L1 packet window of one HPU slot.
    #[must_use]
    pub const fn l1_packet_base(&self, cluster: u32, hpu: u32) -> u32 {
        self.l1_base(cluster) + L1_STACKS + self.hpus_per_cluster * STACK_WINDOW + hpu * PACKET_WINDOW
    }

    /// Base of the L2 packet window of one HPU slot.
    #[must_use]
    pub const fn l2_packet_window(&self, cluster: u32, hpu: u32) -> u32 {
        self.l2_packet_base + (cluster * self.hpus_per_cluster + hpu) * PACKET_WINDOW
    }

    /// Base of the scratchpad area of `cluster`: all of L1 above the images' data, stacks and packet windows.
    #[must_use]
    pub const fn scratchpad_base(&self, cluster: u32) -> u32 {
        self.l1_base(cluster) + self.scratchpad_offset()
    }

    /// Size of the scratchpad area of one cluster, in bytes.
    #[must_use]
    pub const fn scratchpad_size(&self) -> u32 {
        self.l1_size - self.scratchpad_offset()
    }

    const fn scratchpad_offset(&self) -> u32 {
        L1_STACKS + self.hpus_per_cluster * (STACK_WINDOW + PACKET_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::Machine;

    #[test]
    fn windows_of_a_cluster_do_not_overlap_and_stay_in_l1() {
        for machine in [Machine::PSPIN, Machine::FPSPIN] {
            for cluster in 0..machine.clusters {
                let last = machine.hpus_per_cluster - 1;
                assert_eq!(machine.stack_base(cluster, 0), machine.l1_base(cluster) + super::L1_DATA);
                assert_eq!(machine.stack_base(cluster, last) + super::STACK_WINDOW, machine.l1_packet_base(cluster, 0));
                assert_eq!(
                    machine.l1_packet_base(cluster, last) + super::PACKET_WINDOW,
                    machine.scratchpad_base(cluster)
                );
                assert_eq!(
                    machine.scratchpad_base(cluster) + machine.scratchpad_size(),
                    machine.l1_base(cluster) + machine.l1_size
                );
            }
        }
    }

    #[test]
    fn l2_regions_are_disjoint() {
        for m in [Machine::PSPIN, Machine::FPSPIN] {
            assert!(super::L2_BASE + m.l2_data_size <= m.handler_mem_base);
            assert!(m.handler_mem_base + m.handler_mem_size <= m.l2_packet_base);
            assert!(m.l2_packet_base + m.l2_packet_size <= super::PROGRAM_BASE);
            assert!(m.l2_packet_window(m.clusters - 1, m.hpus_per_cluster - 1) < m.l2_packet_base + m.l2_packet_size);
        }
    }
}
