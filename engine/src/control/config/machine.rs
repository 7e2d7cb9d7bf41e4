//! The section `[machine]`: sizes that replace those of the preset's machine.

use serde::Deserialize;
use spin_abi::control::MAX_BLOB;
use spin_abi::map::{Machine, MachineError};
use spin_abi::units::optional_size;

/// Room for the parts of an image that are not loaded: symbols, line tables, debug information, in bytes. Images of the SDK, also in
/// Rust, have a tenth of that.
const UNLOADED_BYTES: u64 = 8 << 20;
/// Numbers of clusters and HPUs, and addresses and sizes of memories, in bytes. The preset supplies absent values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachineSizes {
    /// Number of clusters, 1 to 4.
    pub clusters: Option<u32>,
    /// Number of HPUs in each cluster, 1 to 8.
    pub hpus_per_cluster: Option<u32>,
    /// Size of one cluster's L1: stacks and packet windows of its HPUs, then scratchpads. At most 2 MiB.
    #[serde(deserialize_with = "optional_size")]
    pub l1_size: Option<u32>,
    /// Size of L2 for images' `.data` and `.bss`.
    #[serde(deserialize_with = "optional_size")]
    pub l2_data_size: Option<u32>,
    /// First address of handler memory. Images are linked for it.
    #[serde(deserialize_with = "optional_size")]
    pub handler_mem_base: Option<u32>,
    /// Size of handler memory: `.l2_handler_data` of an image and the memory that its context requested.
    #[serde(deserialize_with = "optional_size")]
    pub handler_mem_size: Option<u32>,
    /// First address of the L2 packet buffer. Handlers are told the address, so it may lie anywhere in L2.
    #[serde(deserialize_with = "optional_size")]
    pub l2_packet_base: Option<u32>,
    /// Size of the L2 packet buffer, with a window of 4 KiB for each HPU.
    #[serde(deserialize_with = "optional_size")]
    pub l2_packet_size: Option<u32>,
    /// Size of program memory, at most 1 MiB. It bounds the cost of translating an image.
    #[serde(deserialize_with = "optional_size")]
    pub program_size: Option<u32>,
}

impl MachineSizes {
    /// The preset with these sizes in place of its own.
    ///
    /// # Errors
    /// See [`MachineError`].
    pub fn over(&self, preset: Machine) -> Result<Machine, MachineError> {
        let machine = Machine {
            clusters: self.clusters.unwrap_or(preset.clusters),
            hpus_per_cluster: self.hpus_per_cluster.unwrap_or(preset.hpus_per_cluster),
            l1_size: self.l1_size.unwrap_or(preset.l1_size),
            l2_data_size: self.l2_data_size.unwrap_or(preset.l2_data_size),
            handler_mem_base: self.handler_mem_base.unwrap_or(preset.handler_mem_base),
            handler_mem_size: self.handler_mem_size.unwrap_or(preset.handler_mem_size),
            l2_packet_base: self.l2_packet_base.unwrap_or(preset.l2_packet_base),
            l2_packet_size: self.l2_packet_size.unwrap_or(preset.l2_packet_size),
            program_size: self.program_size.unwrap_or(preset.program_size),
        };
        machine.check()?;
        Ok(machine)
    }
}

/// Maximum size of an image: the machine's memories for it, and [`UNLOADED_BYTES`].
pub(crate) fn max_image_size(machine: &Machine) -> u64 {
    let &Machine { l1_size, l2_data_size, handler_mem_size, program_size, .. } = machine;
    let memories = [l1_size, l2_data_size, handler_mem_size, program_size].map(u64::from);
    (memories.iter().sum::<u64>() + UNLOADED_BYTES).min(MAX_BLOB as u64)
}
