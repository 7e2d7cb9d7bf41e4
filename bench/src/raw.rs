//! A packet socket that sends and receives complete frames on one interface. Needs CAP_NET_RAW.

use rustix::net::netdevice::name_to_index;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Bytes of the receive buffer that are asked for.
const RECEIVE_BUFFER: usize = 8 << 20;

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

    /// Opens the interface for sending, and for receiving all frames that arrive there, whatever their destination.
    ///
    /// # Errors
    /// As [`PacketSocket::open`].
    pub fn open_both(interface: &str) -> io::Result<Self> {
        // Frames are received from the bind on, which names the protocol: none that arrived on another interface.
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
        let index = name_to_index(&socket, interface)?;
        // The kernel grants no more than net.core.rmem_max.
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        socket.set_nonblocking(true)?;
        receive_all(&socket, index)?;
        socket.bind(&link_address_of(index, libc::ETH_P_ALL)?)?;
        Ok(Self(socket))
    }

    /// Receives a frame. `None`: none has arrived.
    ///
    /// # Errors
    /// The interface is down.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.0).read(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Frames that the kernel dropped since the last call, because the socket's buffer was full.
    ///
    /// # Errors
    /// None, for an open socket.
    #[allow(unsafe_code, reason = "neither socket2 nor rustix has packet(7)'s statistics")]
    pub fn dropped(&self) -> io::Result<u32> {
        // SAFETY: integers, for which zero is a valid value.
        let mut statistics: libc::tpacket_stats = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        let to = (&raw mut statistics).cast();
        // SAFETY: the kernel writes at most `length` bytes, which are the structure's.
        let result = unsafe {
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, to, &raw mut length)
        };
        if result == 0 { Ok(statistics.tp_drops) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// The kernel refused the frame: it is longer than the interface allows, or the interface is down.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.0.send(frame).map(drop)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Has a socket receive frames to all destinations, and none that this host sends.
#[allow(unsafe_code, reason = "neither socket2 nor rustix has packet(7)'s options")]
fn receive_all(socket: &Socket, index: u32) -> io::Result<()> {
    let option = |name, value: *const libc::c_void, length: usize| {
        let length = length as libc::socklen_t;
        // SAFETY: the kernel reads `length` bytes of the value, which lives during the call.
        let result = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, name, value, length) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let yes: libc::c_int = 1;
    option(libc::PACKET_IGNORE_OUTGOING, (&raw const yes).cast(), size_of_val(&yes))?;
    let member = libc::packet_mreq {
        mr_ifindex: i32::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    option(libc::PACKET_ADD_MEMBERSHIP, (&raw const member).cast(), size_of_val(&member))
}

fn link_address(index: u32) -> io::Result<SockAddr> {
    link_address_of(index, 0)
}

/// The address of an interface, for frames of a protocol.
#[allow(unsafe_code, reason = "neither socket2 nor rustix has a type for link-layer addresses")]
fn link_address_of(index: u32, protocol: i32) -> io::Result<SockAddr> {
    let protocol = u16::try_from(protocol).map_err(|_| io::ErrorKind::InvalidInput)?;
    let index = i32::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the closure is given zeroed storage of `sockaddr_storage`'s size and alignment, of which every
    // `sockaddr_ll` is a prefix (packet(7)). It writes fields through that pointer and sets the length to the size of
    // what it wrote.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            let link = storage.cast::<libc::sockaddr_ll>();
            (*link).sll_family = libc::sa_family_t::try_from(libc::AF_PACKET).map_err(io::Error::other)?;
            (*link).sll_ifindex = index;
            (*link).sll_protocol = protocol.to_be();
            *length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).map_err(io::Error::other)?;
            Ok(())
        })?
    };
    Ok(address)
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
