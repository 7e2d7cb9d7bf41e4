//! A packet socket that sends complete frames from one interface. Needs CAP_NET_RAW.

use rustix::net::netdevice::name_to_index;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;

/// An open packet socket.
pub struct PacketSocket(Socket);

impl PacketSocket {
    /// Opens the interface for sending.
    ///
    /// # Errors
    /// The interface does not exist, or the permission is missing.
    pub fn open(interface: &str) -> io::Result<Self> {
        // Protocol 0, here and in the address: the socket receives nothing, so its receive buffer does not fill.
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
        let index = name_to_index(&socket, interface)?;
        socket.bind(&link_address(index)?)?;
        Ok(Self(socket))
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// The kernel refused the frame: it is longer than the interface allows, or the interface is down.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.0.send(frame).map(drop)
    }
}

#[allow(unsafe_code, reason = "neither socket2 nor rustix has a type for link-layer addresses")]
fn link_address(index: u32) -> io::Result<SockAddr> {
    let index = i32::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the closure is given zeroed storage of `sockaddr_storage`'s size and alignment, of which every
    // `sockaddr_ll` is a prefix (packet(7)). It writes fields through that pointer and sets the length to the size of
    // what it wrote.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            let link = storage.cast::<libc::sockaddr_ll>();
            (*link).sll_family = libc::sa_family_t::try_from(libc::AF_PACKET).map_err(io::Error::other)?;
            (*link).sll_ifindex = index;
            *length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).map_err(io::Error::other)?;
            Ok(())
        })?
    };
    Ok(address)
}

/// Returns an interface's MAC address.
///
/// # Errors
/// The interface does not exist in this network namespace, or has no MAC address.
pub fn mac(interface: &str) -> io::Result<[u8; 6]> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/address"))?;
    parse_mac(text.trim()).ok_or_else(|| io::Error::other(format!("{interface} has no MAC address")))
}

/// Parses a MAC address such as `02:00:00:00:00:01`.
#[must_use]
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok());
    let mut mac = [0; 6];
    for byte in &mut mac {
        *byte = bytes.next()??;
    }
    bytes.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::{PacketSocket, parse_mac};

    #[test]
    fn mac_addresses() {
        assert_eq!(parse_mac("02:00:00:0a:00:ff"), Some([2, 0, 0, 10, 0, 255]));
        for bad in ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "02:00:00:00:00:100", "x"] {
            assert_eq!(parse_mac(bad), None, "{bad}");
        }
    }

    #[test]
    fn no_such_interface() {
        assert!(PacketSocket::open("no-such-if").is_err());
    }
}
