//! The program's configuration in C layout, and the checked settings made from it.

use std::ffi::c_char;
use std::mem::{offset_of, size_of};

use spin_abi::map::{L1_BASE, L1_STRIDE};

use crate::MACHINE;

/// `NUM_CLUSTERS`.
pub const NUM_CLUSTERS: u32 = MACHINE.clusters;
/// `NUM_CORES`: HPUs per cluster.
pub const NUM_CORES: u32 = MACHINE.hpus_per_cluster;
/// `C_MSGID_WIDTH`.
pub const MSGID_WIDTH: u32 = 10;
/// `PCIE_START_ADDR`.
pub const PCIE_START: u64 = 0x1000_0000_0000_0000;
/// Names and values in `spin_hw_conf.h`, for a comparison with the header.
pub const CONSTANTS: [(&str, u64); 21] = [
    ("NUM_CLUSTERS", NUM_CLUSTERS as u64),
    ("NUM_CORES", NUM_CORES as u64),
    ("C_MSGID_WIDTH", MSGID_WIDTH as u64),
    ("PCIE_START_ADDR", PCIE_START),
    ("L1_CLUSTER_BASE", L1_BASE as u64),
    ("L1_CLUSTER_STRIDE", L1_STRIDE as u64),
    ("L1_SIZE", MACHINE.l1_size as u64),
    ("L1_CLUSTER_ACTUAL_MEM_SIZE", MACHINE.l1_size as u64),
    ("L1_RUNTIME_OFFSET", 0x400),
    ("L1_RUNTIME_SIZE", 0x4000),
    ("L1_PKT_BUFF_OFFSET", (MACHINE.l1_packet_base(0, 0) - L1_BASE) as u64),
    ("L1_PKT_BUFF_SIZE", crate::dispatch::L1_PACKETS as u64),
    ("L1_SCRATCHPAD_SIZE", MACHINE.scratchpad_size() as u64),
    ("L1_SCRATCHPAD_OFFSET", (MACHINE.scratchpad_base(0) - L1_BASE) as u64),
    ("L2_HND_BUFF_START", MACHINE.handler_mem_base as u64),
    ("L2_HND_BUFF_SIZE", MACHINE.handler_mem_size as u64),
    ("L2_PKT_BUFF_START", MACHINE.l2_packet_base as u64),
    ("L2_PKT_BUFF_SIZE", MACHINE.l2_packet_size as u64),
    ("PROG_MEM_START", spin_abi::map::PROGRAM_BASE as u64),
    ("PROG_MEM_SIZE", MACHINE.program_size as u64),
    ("MAX_PKT_BYTES", crate::MAX_PACKET as u64),
];

/// `ni_conf_t`: AXI buffer depths of the inbound engine.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NiConf {
    /// Write address channel.
    pub axi_aw_buffer: u32,
    /// Write data channel.
    pub axi_w_buffer: u32,
    /// Write response channel.
    pub axi_b_buffer: u32,
}

/// `no_conf_t`: the outbound engine.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NoConf {
    /// Read address channel.
    pub axi_ar_buffer: u32,
    /// Read data channel.
    pub axi_r_buffer: u32,
    /// Network time per byte in nanoseconds.
    pub network_g: f64,
    /// Maximum packet length in bytes.
    pub max_pkt_size: u32,
    /// Maximum number of packets waiting for the network.
    pub max_network_queue_len: u32,
}

/// `pcie_slv_conf_t`: the host's bus.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PcieSlvConf {
    /// Write address channel.
    pub axi_aw_buffer: u32,
    /// Write data channel.
    pub axi_w_buffer: u32,
    /// Read address channel.
    pub axi_ar_buffer: u32,
    /// Write response channel.
    pub axi_b_buffer: u32,
    /// Read data channel.
    pub axi_r_buffer: u32,
    /// Latency in nanoseconds.
    pub pcie_l: u32,
    /// Time per byte in nanoseconds.
    pub pcie_g: f64,
}

/// `pspin_conf_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Conf {
    /// Path of SLM files; accepted and ignored.
    pub slm_files_path: *const c_char,
    /// Configuration of the inbound engine.
    pub ni_conf: NiConf,
    /// Configuration of the outbound engine.
    pub no_conf: NoConf,
    /// Configuration of the host's bus.
    pub pcie_slv_conf: PcieSlvConf,
}

const _: () = {
    assert!(size_of::<NiConf>() == 12 && size_of::<NoConf>() == 24 && size_of::<PcieSlvConf>() == 32);
    assert!(offset_of!(NoConf, network_g) == 8 && offset_of!(NoConf, max_network_queue_len) == 20);
    assert!(offset_of!(PcieSlvConf, pcie_l) == 20 && offset_of!(PcieSlvConf, pcie_g) == 24);
    assert!(offset_of!(Conf, ni_conf) == 8 && offset_of!(Conf, no_conf) == 24);
    assert!(offset_of!(Conf, pcie_slv_conf) == 48 && size_of::<Conf>() == 80);
};

impl Default for Conf {
    fn default() -> Self {
        let buffer = 32;
        Self {
            slm_files_path: std::ptr::null(),
            ni_conf: NiConf { axi_aw_buffer: buffer, axi_w_buffer: buffer, axi_b_buffer: buffer },
            no_conf: NoConf {
                axi_ar_buffer: buffer,
                axi_r_buffer: buffer,
                network_g: 0.0,
                max_pkt_size: 2048,
                max_network_queue_len: 32,
            },
            pcie_slv_conf: PcieSlvConf {
                axi_aw_buffer: buffer,
                axi_w_buffer: buffer,
                axi_ar_buffer: buffer,
                axi_b_buffer: buffer,
                axi_r_buffer: buffer,
                pcie_l: 2,
                pcie_g: 0.014_782,
            },
        }
    }
}

/// The modelled part of the configuration, checked. AXI buffer depths are not modelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Network time per byte in nanoseconds.
    pub network_g: f64,
    /// Maximum length of a sent packet in bytes; not 0.
    pub max_packet: usize,
    /// Maximum number of packets waiting for the network; not 0.
    pub network_queue: usize,
    /// Host bus time per byte in nanoseconds.
    pub pcie_g: f64,
    /// Host bus latency in nanoseconds.
    pub pcie_l: u32,
}

/// Reason why a configuration is refused.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ConfError {
    /// A time per byte that is not a valid number.
    #[error("{name} is {value}: nanoseconds for a byte are between 0 and {SLOWEST}")]
    Gap {
        /// Name of the field.
        name: &'static str,
        /// Value of the field.
        value: f64,
    },
    /// A size of zero.
    #[error("{0} is 0")]
    Zero(&'static str),
}

/// Greatest time per byte in nanoseconds: one byte per millisecond.
const SLOWEST: f64 = 1e6;

impl TryFrom<&Conf> for Settings {
    type Error = ConfError;

    fn try_from(conf: &Conf) -> Result<Self, ConfError> {
        let Conf { no_conf, pcie_slv_conf, .. } = conf;
        for (name, value) in [("network_G", no_conf.network_g), ("pcie_G", pcie_slv_conf.pcie_g)] {
            if !(0.0..=SLOWEST).contains(&value) {
                return Err(ConfError::Gap { name, value });
            }
        }
        for (name, value) in
            [("max_pkt_size", no_conf.max_pkt_size), ("max_network_queue_len", no_conf.max_network_queue_len)]
        {
            if value == 0 {
                return Err(ConfError::Zero(name));
            }
        }
        Ok(Self {
            network_g: no_conf.network_g,
            max_packet: no_conf.max_pkt_size as usize,
            network_queue: no_conf.max_network_queue_len as usize,
            pcie_g: pcie_slv_conf.pcie_g,
            pcie_l: pcie_slv_conf.pcie_l,
        })
    }
}

impl Default for Settings {
    fn default() -> Self {
        let NoConf { network_g, max_pkt_size, max_network_queue_len, .. } = Conf::default().no_conf;
        let PcieSlvConf { pcie_g, pcie_l, .. } = Conf::default().pcie_slv_conf;
        Self {
            network_g,
            max_packet: max_pkt_size as usize,
            network_queue: max_network_queue_len as usize,
            pcie_g,
            pcie_l,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Conf, ConfError, Settings};

    #[test]
    fn defaults_are_pspin_s() {
        let settings = Settings::try_from(&Conf::default()).expect("they are legal");
        assert_eq!(settings, Settings::default());
        let expected = Settings { network_g: 0.0, max_packet: 2048, network_queue: 32, pcie_g: 0.014_782, pcie_l: 2 };
        assert_eq!(settings, expected);
    }

    #[test]
    fn nonsense_is_refused() {
        let with = |change: fn(&mut Conf)| {
            let mut conf = Conf::default();
            change(&mut conf);
            Settings::try_from(&conf)
        };
        for gap in [f64::NAN, -1.0, f64::INFINITY] {
            let mut conf = Conf::default();
            conf.no_conf.network_g = gap;
            assert!(matches!(Settings::try_from(&conf), Err(ConfError::Gap { name: "network_G", .. })));
        }
        assert!(matches!(with(|conf| conf.pcie_slv_conf.pcie_g = 1e7), Err(ConfError::Gap { name: "pcie_G", .. })));
        assert_eq!(with(|conf| conf.no_conf.max_pkt_size = 0), Err(ConfError::Zero("max_pkt_size")));
        assert_eq!(with(|conf| conf.no_conf.max_network_queue_len = 0), Err(ConfError::Zero("max_network_queue_len")));
    }
}
