//! Sockets that hold ports for contexts.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::fs::{Uid, fchown};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use spin_matcher::rule::Transport;

use super::owners::owners;
use crate::install::ports::{Port, PortError};

/// Decides on a port from the attempt to open a socket for it. `None`: the user has a socket there.
///
/// # Errors
/// [`PortError::Socket`], [`PortError::System`].
pub fn judge(port: Port, uid: u32, opened: io::Result<OwnedFd>) -> Result<Option<OwnedFd>, PortError> {
    let source = match opened {
        Ok(socket) => return Ok(Some(socket)),
        Err(error) => error,
    };
    if source.raw_os_error() != Some(Errno::ADDRINUSE.raw_os_error()) {
        return Err(PortError::System { port, source });
    }
    let owners = owners(port);
    match owners.iter().find(|&&owner| owner != uid) {
        Some(&owner) => Err(PortError::Socket { port, owner }),
        None if owners.is_empty() => Err(PortError::System { port, source }),
        None => Ok(None),
    }
}

/// Opens a socket of a user that is bound to a port of all addresses. It shares the port with no other socket.
///
/// # Errors
/// The errors of socket(2) and bind(2).
pub fn open(port: Port, uid: u32) -> io::Result<OwnedFd> {
    let socket = match bound(AddressFamily::INET6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, port.number)), port) {
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {
            bound(AddressFamily::INET, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port.number)), port)
        }
        socket => socket,
    }?;
    // Tools show the socket as the user's. Without CAP_CHOWN it stays spind's, and holds the port as well.
    if let Err(error) = fchown(&socket, Some(Uid::from_raw(uid)), None) {
        tracing::debug!("the socket of {port} stays spind's: {error}");
    }
    Ok(socket)
}

fn bound(family: AddressFamily, address: SocketAddr, port: Port) -> Result<OwnedFd, Errno> {
    let kind = match port.transport {
        Transport::Tcp => SocketType::STREAM,
        Transport::Udp => SocketType::DGRAM,
    };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    if family == AddressFamily::INET6 {
        rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
    }
    bind(&socket, &address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::OwnedFd;

    use spin_matcher::rule::Transport;

    use super::{judge, open, owners};
    use crate::install::ports::{Port, PortError};

    fn hold(port: Port, uid: u32) -> Result<Option<OwnedFd>, PortError> {
        judge(port, uid, open(port, uid))
    }

    /// A port that is free, most likely.
    fn free_port() -> u16 {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.local_addr().expect("bound").port()
    }

    #[test]
    fn a_held_port_is_the_users_and_nobody_else_gets_it() {
        let own = rustix::process::getuid().as_raw();
        let user = if own == 0 { 4711 } else { own };
        for transport in [Transport::Tcp, Transport::Udp] {
            let port = Port { transport, number: free_port() };
            let socket = hold(port, user).expect("free").expect("a socket");
            let other = hold(port, user + 1).expect_err("taken").to_string();
            // The kernel's table of TCP sockets shows none that is bound and does not listen.
            if transport == Transport::Udp {
                assert_eq!(owners(port), [user]);
                assert_eq!(other, format!("{port} is in use by a socket of user {user}"));
            }
            drop(socket);
            assert!(hold(port, user).expect("free again").is_some());
        }
    }

    #[test]
    fn a_port_of_the_users_own_socket_needs_no_other() {
        let own = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        let port = Port { transport: Transport::Udp, number: own.local_addr().expect("bound").port() };
        let uid = rustix::process::getuid().as_raw();
        assert!(hold(port, uid).expect("the user's own").is_none());
        assert!(matches!(hold(port, uid + 1), Err(PortError::Socket { owner, .. }) if owner == uid));
    }
}
