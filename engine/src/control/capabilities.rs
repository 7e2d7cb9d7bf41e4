//! Capabilities that this spind offers to applications: sPIN's NIC limits and guarantees for packets (PsPIN paper
//! §III).

use spin_abi::control::{Capabilities, Checks, Guarantees, Isolation, LimitsInfo, MachineInfo, Placement, VERSION};
use spin_abi::map::{Machine, PACKET_WINDOW, STACK_WINDOW};
use spin_nic::Queue;

use crate::control::config::{Config, Nic, max_image_size};
use crate::cores::units::count_units;
use spin_pspin::hpu::memory::saturate;

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

/// The capabilities of a spind with this configuration that serves `nics`.
#[must_use]
pub fn of(config: &Config, nics: &[Box<dyn Queue>]) -> Capabilities {
    let threads = config.workers.len();
    let kernel = matches!(config.nic, Nic::Interface(_));
    let longest = nics.iter().map(|nic| nic.max_frame() as u64).min().unwrap_or(0);
    let max_frame = saturate(longest).min(PACKET_WINDOW);
    let words = |all: &[&str]| all.iter().map(|&word| word.to_owned()).collect();
    Capabilities {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: VERSION,
        nic: nics.iter().map(|nic| nic.describe()).collect::<Vec<_>>().join("; "),
        machine: machine(&config.machine),
        threads: saturate(threads as u64),
        units: count_units(&config.workers),
        max_frame,
        max_payload: max_frame.saturating_sub(ETHERNET),
        limits: limits(config, threads as u64),
        engine: config.engine.to_string(),
        checks: words(Checks::ALL),
        isolation: words(Isolation::ALL),
        placement: words(Placement::ALL),
        compat: config.compat,
        guarantees: Guarantees {
            header_first: true,
            in_order_delivery: !kernel,
            in_order: threads < 2,
            reliable: false,
            unmatched_to_kernel: kernel,
            matched_to_kernel: kernel,
            clock_hz: None,
        },
    }
}

/// Sets the limits to those of a changed configuration.
pub fn set_limits(capabilities: &mut Capabilities, config: &Config) {
    capabilities.limits = limits(config, capabilities.threads.into());
}

const fn machine(machine: &Machine) -> MachineInfo {
    MachineInfo {
        clusters: machine.clusters,
        hpus_per_cluster: machine.hpus_per_cluster,
        l1: machine.l1_size,
        scratchpad: machine.scratchpad_size(),
        l2_data: machine.l2_data_size,
        handler_mem: machine.handler_mem_size,
        l2_packet: machine.l2_packet_size,
        program: machine.program_size,
        stack: STACK_WINDOW,
    }
}

fn limits(config: &Config, threads: u64) -> LimitsInfo {
    let limits = &config.limits;
    LimitsInfo {
        contexts: limits.contexts as u64,
        queues: threads * u64::from(config.sizes.queues),
        hers: threads * u64::from(config.sizes.hers),
        host_mem: limits.host_mem,
        watchdog_us: limits.watchdog_us,
        instruction_limit: limits.instruction_limit,
        image: max_image_size(&config.machine),
        connections: limits.connections as u64,
    }
}
