//! What to open, and how.

use crate::error::NicError;

/// Which receive queues of the interface to take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Queues {
    /// Each one the interface has. Their number is never changed.
    #[default]
    All,
    /// These; matched frames that arrive on others stay with the kernel, counted as `unserved`.
    List(Vec<u32>),
}

/// Where the XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver when it can, else generic.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's stack, after an skb was made: works on every interface, slower.
    Generic,
}

/// Whether the driver writes frames straight into our buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// When the driver can.
    #[default]
    Auto,
    /// Or fail.
    On,
    /// Copy, always.
    Off,
}

/// Whether buffers lie in huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// When enough are free.
    #[default]
    Auto,
    /// Or fail.
    On,
    /// Never.
    Off,
}

/// How to open an interface. All sizes are per queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// Name of the interface, in the network namespace of the calling thread.
    pub interface: String,
    /// Receive queues to take.
    pub queues: Queues,
    /// Where the XDP program runs.
    pub mode: Mode,
    /// Copy or zero-copy.
    pub zero_copy: ZeroCopy,
    /// Frames of a queue, [`crate::frame::CHUNK`] bytes each: those to receive into, to send from and in the caller's
    /// hands. A receive ring's worth is kept for receiving, the others are left to send from. More than the receive
    /// ring, at most 2^20. Default 4096.
    pub frames_per_queue: u32,
    /// Entries of the fill and receive rings: a power of two, at most 2^15. Default 2048.
    pub rx_ring: u32,
    /// Entries of the transmit and completion rings: a power of two, at most 2^15. Default 2048.
    pub tx_ring: u32,
    /// Pages of the buffers.
    pub huge_pages: HugePages,
    /// Core of the thread that each part will be served by, if that is known: buffers and rings are made there, so that they are
    /// in the memory next to it.
    pub cores: Vec<usize>,
}

impl AfXdpConfig {
    /// All defaults for `interface`.
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

    /// Refuses values that cannot work, whatever the interface.
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
    fn impossible_values_are_refused() {
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
