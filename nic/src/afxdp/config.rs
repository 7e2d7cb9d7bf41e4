//! The configuration of an interface.

use crate::error::NicError;

/// The receive queues to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Queues {
    /// All queues of the interface. Their number is never changed.
    #[default]
    All,
    /// These queues. Matched frames of other queues stay with the kernel, counted as `unserved`.
    List(Vec<u32>),
}

/// Hook in which the XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver if supported, otherwise generic.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's stack, after skb allocation: works on every interface, slower.
    Generic,
}

/// Whether the driver writes frames directly into the UMEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// If the driver supports it.
    #[default]
    Auto,
    /// Required.
    On,
    /// Always copy.
    Off,
}

/// Whether the UMEM is in huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// If enough are free.
    #[default]
    Auto,
    /// Required.
    On,
    /// Never.
    Off,
}

/// The configuration of an interface. All sizes are per queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// Name of the interface, in the network namespace of the calling thread.
    pub interface: String,
    /// Receive queues to open.
    pub queues: Queues,
    /// Hook of the XDP program.
    pub mode: Mode,
    /// Copy or zero-copy.
    pub zero_copy: ZeroCopy,
    /// Frames of a queue, [`CHUNK`](spin_frame::CHUNK) bytes each. As many as the receive ring has entries are reserved for
    /// receiving, the others are for sending. More than `rx_ring`, at most 2^20. Default 4096.
    pub frames_per_queue: u32,
    /// Entries of the fill and receive rings: a power of two, at most 2^15. Default 2048.
    pub rx_ring: u32,
    /// Entries of the transmit and completion rings: a power of two, at most 2^15. Default 2048.
    pub tx_ring: u32,
    /// Pages of the UMEM.
    pub huge_pages: HugePages,
    /// The cores of the threads that will serve the parts, if known. Buffers and rings are allocated on these cores, which
    /// places them on the NUMA nodes of the cores.
    pub cores: Vec<usize>,
}

impl AfXdpConfig {
    /// The defaults for `interface`.
    #[must_use]
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            queues: Queues::default(),
            mode: Mode::default(),
            zero_copy: ZeroCopy::default(),
            frames_per_queue: 4096,
            rx_ring: 2048,
            tx_ring: 2048,
            huge_pages: HugePages::default(),
            cores: Vec::new(),
        }
    }

    /// Refuses values that no interface supports.
    pub(super) fn check(&self) -> Result<(), NicError> {
        let refuse = |what, value: String, must| Err(NicError::Config { what, value, must });
        for (what, size) in [("the receive ring", self.rx_ring), ("the transmit ring", self.tx_ring)] {
            if !size.is_power_of_two() || size > 1 << 15 {
                return refuse(what, size.to_string(), "a power of two of at most 32768 entries");
            }
        }
        if self.frames_per_queue <= self.rx_ring || self.frames_per_queue > 1 << 20 {
            let must = "more than the receive ring, so that some are left to send, and at most 2^20";
            return refuse("frames per queue", self.frames_per_queue.to_string(), must);
        }
        if self.mode == Mode::Generic && self.zero_copy == ZeroCopy::On {
            return refuse("zero-copy", "on".to_owned(), "off or auto in generic mode, which always copies");
        }
        if let Queues::List(list) = &self.queues {
            let mut sorted = list.clone();
            sorted.sort_unstable();
            sorted.dedup();
            if list.is_empty() || sorted.len() != list.len() {
                return refuse("the list of queues", format!("{list:?}"), "not empty, each queue named once");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{AfXdpConfig, Mode, Queues, ZeroCopy};

    #[test]
    fn invalid_values_are_refused() {
        let good = AfXdpConfig::new("eth0");
        assert!(good.check().is_ok());
        let bad = [
            AfXdpConfig { rx_ring: 1000, ..good.clone() },
            AfXdpConfig { tx_ring: 0, ..good.clone() },
            AfXdpConfig { tx_ring: 1 << 16, ..good.clone() },
            AfXdpConfig { frames_per_queue: 2048, ..good.clone() },
            AfXdpConfig { frames_per_queue: u32::MAX, ..good.clone() },
            AfXdpConfig { mode: Mode::Generic, zero_copy: ZeroCopy::On, ..good.clone() },
            AfXdpConfig { queues: Queues::List(vec![]), ..good.clone() },
            AfXdpConfig { queues: Queues::List(vec![1, 0, 1]), ..good.clone() },
        ];
        for config in bad {
            assert!(config.check().is_err(), "{config:?}");
        }
    }
}
