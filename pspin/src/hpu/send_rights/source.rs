//! The host in whose name handlers send.

use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The host, as far as handlers may send in its name.
#[derive(Clone, Debug, Default)]
pub struct SendSource {
    /// Addresses of the host. `None` for captures: then the destination of the packet that is handled is the host.
    pub host: Option<HostAddresses>,
    /// Source ports of TCP, besides the port to which the host got the packet that is handled.
    pub tcp: Vec<RangeInclusive<u16>>,
    /// Source ports of UDP, besides the port to which the host got the packet that is handled.
    pub udp: Vec<RangeInclusive<u16>>,
    /// Whether ICMP echo over IPv4 may be sent.
    pub icmp: bool,
    /// Whether `ICMPv6` echo may be sent.
    pub icmp6: bool,
}

/// Addresses of a host at one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// IP addresses.
    pub ip: Vec<IpAddr>,
}
