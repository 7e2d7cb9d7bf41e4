//! The NIC to serve.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::error::ConfigError;

/// The NIC to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nic {
    /// AF_XDP on an interface.
    Interface(String),
    /// A pair of ports in memory. Frames arrive by `spinctl replay`.
    Loopback,
    /// Two capture files: frames come from one, replies go to the other.
    Pcap {
        /// Capture to receive from. spind stops at its end.
        input: PathBuf,
        /// Capture to write.
        output: PathBuf,
    },
}

impl fmt::Display for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => f.write_str(name),
            Self::Loopback => f.write_str("loopback"),
            Self::Pcap { input, output } => write!(f, "pcap:{},{}", input.display(), output.display()),
        }
    }
}

impl FromStr for Nic {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let bad = || ConfigError::BadNic(text.to_owned());
        if text == "loopback" {
            return Ok(Self::Loopback);
        }
        match text.strip_prefix("pcap:").ok_or_else(bad)?.split_once(',') {
            Some((input, output)) if !input.is_empty() && !output.is_empty() => {
                Ok(Self::Pcap { input: input.into(), output: output.into() })
            }
            _ => Err(bad()),
        }
    }
}
