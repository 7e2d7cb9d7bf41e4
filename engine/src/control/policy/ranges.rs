//! Ports that a policy allows.

use std::fmt;
use std::fs;

use spin_matcher::rule::Transport;

/// First port that a process may bind without privileges.
const FIRST_UNPRIVILEGED: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
/// Range from which the kernel takes ports of connections.
const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// A text that names no ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ports {0:?}: expected `unprivileged`, `udp 9000`, `tcp 9000-9999`, or `9000-9999` for both")]
pub struct BadPorts(pub String);

/// Ports as a policy names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRange {
    /// Ports that a process may bind without privileges, and that the kernel does not give to connections.
    Unprivileged,
    /// Ports by number.
    Named {
        /// `None`: TCP and UDP.
        transport: Option<Transport>,
        /// Lowest port.
        first: u16,
        /// Highest port.
        last: u16,
    },
}

impl std::str::FromStr for PortRange {
    type Err = BadPorts;

    fn from_str(text: &str) -> Result<Self, BadPorts> {
        let bad = || BadPorts(text.to_owned());
        let words: Vec<_> = text.split_whitespace().collect();
        let (transport, numbers) = match words[..] {
            ["unprivileged"] => return Ok(Self::Unprivileged),
            ["udp", numbers] => (Some(Transport::Udp), numbers),
            ["tcp", numbers] => (Some(Transport::Tcp), numbers),
            [numbers] => (None, numbers),
            _ => return Err(bad()),
        };
        let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
        let (first, last) = (first.parse().map_err(|_| bad())?, last.parse().map_err(|_| bad())?);
        if first > last { Err(bad()) } else { Ok(Self::Named { transport, first, last }) }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unprivileged => f.write_str("unprivileged"),
            Self::Named { transport, first, last } => {
                match transport {
                    Some(Transport::Udp) => f.write_str("udp ")?,
                    Some(Transport::Tcp) => f.write_str("tcp ")?,
                    None => {}
                }
                if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
            }
        }
    }
}

/// The unprivileged ports of this host, as ranges of first and last port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unprivileged(Vec<(u16, u16)>);

impl Unprivileged {
    /// Reads the kernel's settings for the network namespace of this thread. The kernel's defaults stand for what cannot be read.
    #[must_use]
    pub fn of_host() -> Self {
        let numbers = |file: &str| -> Vec<u16> {
            let text = fs::read_to_string(file).unwrap_or_default();
            text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
        };
        let first = numbers(FIRST_UNPRIVILEGED).first().copied().unwrap_or(1024);
        let ephemeral = match numbers(EPHEMERAL)[..] {
            [first, last] => (first, last),
            _ => (32_768, 60_999),
        };
        Self::new(first, ephemeral)
    }

    /// Ports from `first` on, without those from `ephemeral.0` to `ephemeral.1`.
    #[must_use]
    pub fn new(first: u16, ephemeral: (u16, u16)) -> Self {
        let below = ephemeral.0.checked_sub(1).map(|last| (first, last));
        let above = ephemeral.1.checked_add(1).map(|next| (next.max(first), u16::MAX));
        Self(below.into_iter().chain(above).filter(|(first, last)| first <= last).collect())
    }

    /// Whether all these ports are unprivileged.
    #[must_use]
    pub fn contain(&self, first: u16, last: u16) -> bool {
        self.0.iter().any(|&(lowest, highest)| lowest <= first && last <= highest)
    }
}

impl PortRange {
    /// Whether it has all these ports.
    #[must_use]
    pub fn contains(&self, unprivileged: &Unprivileged, transport: Transport, first: u16, last: u16) -> bool {
        match *self {
            Self::Unprivileged => unprivileged.contain(first, last),
            Self::Named { transport: of, first: lowest, last: highest } => {
                of.is_none_or(|of| of == transport) && lowest <= first && last <= highest
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use spin_matcher::rule::Transport;

    use super::{PortRange, Unprivileged};

    #[test]
    fn ports_as_text() {
        for text in ["unprivileged", "udp 53", "tcp 9000-9999", "9000-9999", "7"] {
            assert_eq!(text.parse::<PortRange>().expect(text).to_string(), text);
        }
        for bad in ["", "udp", "9-8", "udp 70000", "sctp 9", "udp 9 10", "udp -1", "9-"] {
            let refused = bad.parse::<PortRange>().expect_err(bad).to_string();
            assert!(refused.contains("`udp 9000`"), "{refused}");
        }
    }

    #[test]
    fn unprivileged_ports_are_those_that_the_kernel_gives_to_nobody() {
        let usual = Unprivileged::new(1024, (32_768, 60_999));
        let inside = [(1024, 32_767), (9999, 9999), (61_000, 65_535)];
        let outside = [(1023, 1024), (32_767, 32_768), (40_000, 40_000), (60_999, 61_000), (1024, 65_535)];
        assert!(inside.iter().all(|&(first, last)| usual.contain(first, last)));
        assert!(!outside.iter().any(|&(first, last)| usual.contain(first, last)));
        let high = Unprivileged::new(50_000, (32_768, 65_535));
        assert!(!high.contain(50_000, 50_000) && !high.contain(1024, 1024));
        assert!(Unprivileged::new(0, (32_768, 60_999)).contain(0, 80));
        assert!(Unprivileged::new(50_000, (1, 10)).contain(50_000, 65_535));
    }

    #[test]
    fn a_range_is_of_a_protocol_or_of_both() {
        let none = Unprivileged::new(u16::MAX, (0, u16::MAX));
        let contains = |text: &str, transport, first, last| {
            text.parse::<PortRange>().expect("ports").contains(&none, transport, first, last)
        };
        assert!(contains("udp 5-9", Transport::Udp, 5, 9) && contains("5-9", Transport::Tcp, 6, 7));
        assert!(!contains("udp 5-9", Transport::Tcp, 5, 9) && !contains("5-9", Transport::Udp, 4, 5));
        assert!(!contains("unprivileged", Transport::Udp, 9999, 9999));
    }
}
