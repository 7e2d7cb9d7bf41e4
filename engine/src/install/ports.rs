//! Ports that contexts of ordinary users take, and the sockets that hold them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spin_matcher::rule::Transport;

/// A port of a transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// TCP or UDP.
    pub transport: Transport,
    /// The number.
    pub number: u16,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.transport {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        };
        write!(f, "{name} port {}", self.number)
    }
}

/// Reason why a user gets no port.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A context of another user has it.
    #[error("{port} is taken by a context of user {owner}")]
    Context {
        /// The port.
        port: Port,
        /// The user of the context.
        owner: u32,
    },
    /// A socket of another user has it.
    #[error("{port} is in use by a socket of user {owner}")]
    Socket {
        /// The port.
        port: Port,
        /// The user of the socket.
        owner: u32,
    },
    /// The user's contexts, or those of all users, have the maximum number of ports.
    #[error("{port} is one more than the {most} ports that contexts of {of} may have (ulimit -n of spind bounds them)")]
    TooMany {
        /// The port.
        port: Port,
        /// Maximum number.
        most: usize,
        /// Whose contexts.
        of: &'static str,
    },
    /// The system refuses to hold it.
    #[error("{port} cannot be held: {source}")]
    System {
        /// The port.
        port: Port,
        /// Error of the system.
        source: io::Error,
    },
}

/// Opens sockets that hold ports.
pub trait HoldPort: Send + Sync {
    /// A bound socket of the user, so that no other one takes the port. `None`: a socket of the user has the port already, or the NIC
    /// has no host.
    ///
    /// # Errors
    /// [`PortError::Socket`], [`PortError::System`].
    fn hold(&self, port: Port, uid: u32) -> Result<Option<OwnedFd>, PortError>;
}

/// Who has a port.
struct Holder {
    uid: u32,
    /// Number of leases.
    leases: usize,
    _socket: Option<OwnedFd>,
}

/// Ports that are held.
#[derive(Default)]
struct Held {
    ports: HashMap<(u8, u16), Holder>,
    /// Number of ports of each user who has some.
    users: HashMap<u32, usize>,
}

/// The ports that contexts have.
pub struct Ports {
    held: Mutex<Held>,
    sockets: Arc<dyn HoldPort>,
    /// Maximum number of ports of all users. A user may have half of them.
    most: usize,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ports({})", self.lock().ports.len())
    }
}

fn key(port: Port) -> (u8, u16) {
    (port.transport.protocol().get(), port.number)
}

impl Ports {
    /// No port is taken. `sockets` holds those that will be, at most `most`.
    #[must_use]
    pub fn new(sockets: Arc<dyn HoldPort>, most: usize) -> Self {
        Self { held: Mutex::default(), sockets, most }
    }

    /// Takes ports for a context of a user. Contexts of one user may share a port.
    ///
    /// # Errors
    /// See [`PortError`]. No port is taken then.
    pub fn lease(self: &Arc<Self>, uid: u32, ports: impl IntoIterator<Item = Port>) -> Result<PortLease, PortError> {
        // Dropped on an error, it frees what was taken.
        let mut lease = PortLease { of: self.clone(), ports: Vec::new() };
        for port in ports {
            self.take(uid, port)?;
            lease.ports.push(port);
        }
        Ok(lease)
    }

    fn take(&self, uid: u32, port: Port) -> Result<(), PortError> {
        let mut held = self.lock();
        match held.ports.get_mut(&key(port)) {
            Some(holder) if holder.uid == uid => holder.leases += 1,
            Some(holder) => return Err(PortError::Context { port, owner: holder.uid }),
            None => {
                self.check_count(&held, uid, port)?;
                let _socket = self.sockets.hold(port, uid)?;
                held.ports.insert(key(port), Holder { uid, leases: 1, _socket });
                *held.users.entry(uid).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Checks that a user's contexts may have one more port.
    fn check_count(&self, held: &Held, uid: u32, port: Port) -> Result<(), PortError> {
        let (all, each) = (self.most, self.most / 2);
        if held.ports.len() >= all {
            return Err(PortError::TooMany { port, most: all, of: "all users" });
        }
        if held.users.get(&uid).is_some_and(|&own| own >= each) {
            return Err(PortError::TooMany { port, most: each, of: "one user" });
        }
        Ok(())
    }

    fn free(&self, port: Port) {
        let mut held = self.lock();
        let Some(holder) = held.ports.get_mut(&key(port)) else { return };
        holder.leases -= 1;
        if holder.leases > 0 {
            return;
        }
        let uid = holder.uid;
        held.ports.remove(&key(port));
        if let Entry::Occupied(mut own) = held.users.entry(uid) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // The maps are consistent after every step, even if a thread panics.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ports of a context, free again when it is dropped.
#[derive(Debug)]
pub struct PortLease {
    of: Arc<Ports>,
    ports: Vec<Port>,
}

impl Drop for PortLease {
    fn drop(&mut self) {
        self.ports.iter().for_each(|&port| self.of.free(port));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use spin_matcher::rule::Transport;

    use super::{HoldPort, Port, PortError, Ports};

    /// Refuses port 7, which a socket of user 3 has.
    struct Sockets;

    impl HoldPort for Sockets {
        fn hold(&self, port: Port, _: u32) -> Result<Option<OwnedFd>, PortError> {
            if port.number == 7 { Err(PortError::Socket { port, owner: 3 }) } else { Ok(None) }
        }
    }

    fn udp(number: u16) -> Port {
        Port { transport: Transport::Udp, number }
    }

    #[test]
    fn a_port_is_one_users_until_the_last_lease_ends() {
        let ports = Arc::new(Ports::new(Arc::new(Sockets), 100));
        let first = ports.lease(1, [udp(8), udp(9)]).expect("free");
        let second = ports.lease(1, [udp(9)]).expect("the user's own");
        let refused = || ports.lease(2, [udp(10), udp(9)]).expect_err("taken").to_string();
        assert_eq!(refused(), "UDP port 9 is taken by a context of user 1");
        drop(first);
        refused();
        assert_eq!(ports.lock().ports.len(), 1, "a refused lease keeps nothing");
        drop(second);
        let other = ports.lease(2, [udp(9)]).expect("free again");
        let tcp = Port { transport: Transport::Tcp, number: 9 };
        assert!(ports.lease(1, [tcp]).is_ok(), "another protocol's");
        let refused = ports.lease(1, [udp(11), udp(7)]).expect_err("a socket has it").to_string();
        assert_eq!(refused, "UDP port 7 is in use by a socket of user 3");
        drop(other);
        assert!(ports.lock().ports.is_empty() && ports.lock().users.is_empty());
    }

    #[test]
    fn a_user_has_at_most_half_of_all_ports() {
        let ports = Arc::new(Ports::new(Arc::new(Sockets), 4));
        let range = |first: u16, count| (first..first + count).map(udp);
        let refused = ports.lease(1, range(10, 3)).expect_err("three of four").to_string();
        assert!(refused.starts_with("UDP port 12 is one more than the 2 ports that contexts of one user"), "{refused}");
        let users = [1, 2].map(|uid| ports.lease(uid, range(10 * uid as u16, 2)).expect("half for each"));
        let refused = ports.lease(3, range(30, 1)).expect_err("five of four").to_string();
        assert!(refused.contains("the 4 ports that contexts of all users"), "{refused}");
        drop(users);
        ports.lease(3, range(30, 1)).expect("there is room again");
    }
}
