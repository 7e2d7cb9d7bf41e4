//! Addresses of an interface.

use std::io;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use spin_nic::NicError;
use spin_nic::afxdp::mac_address;
use spin_pspin::hpu::send_rights::HostAddresses;

/// Reads the addresses of an interface.
///
/// # Errors
/// No such interface, or the kernel refuses.
pub fn addresses(interface: &str) -> Result<HostAddresses, NicError> {
    let mac = mac_address(interface)?;
    let action = "read the addresses of the interface";
    let all = getifaddrs().map_err(|errno| NicError::system(action, io::Error::from(errno)))?;
    let ip = all.filter(|entry| entry.interface_name == interface).filter_map(|entry| {
        let address = entry.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
    });
    Ok(HostAddresses { mac, ip: ip.collect() })
}
