//! Messages between spind and its loader process, over [`spin_shm::channel`].

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use spin_abi::rules::RuleSet;

use crate::control::socket_file::SocketPath;

/// A request of spind.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Set tables of rules from now on in the map that comes with this.
    TableMap,
    /// Set exact keys from now on in the map that comes with this, which follows [`Request::TableMap`].
    KeyMap,
    /// Set handlers' programs from now on in the map that comes with this.
    HookMap,
    /// Set rules.
    SetRules(RuleSet),
    /// Have the XDP program call the program that comes with this.
    SetHook {
        /// Its index in the map of programs.
        index: u32,
    },
    /// Have the XDP program call no program with this index.
    ClearHook {
        /// The index in the map of programs.
        index: u32,
    },
    /// Open a socket of a user that is bound to a port of all addresses. The reply carries it.
    HoldPort {
        /// TCP, else UDP.
        tcp: bool,
        /// The port.
        number: u16,
        /// The user.
        uid: u32,
    },
    /// Read the addresses of an interface.
    Addresses {
        /// Its name.
        interface: String,
    },
    /// Remove a socket when spind has ended.
    Keep(SocketPath),
    /// Remove a socket now.
    Remove(SocketPath),
}

/// A reply of the loader process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// Done. A descriptor may be attached.
    Done,
    /// Addresses of an interface.
    Addresses {
        /// MAC address.
        mac: [u8; 6],
        /// IP addresses.
        ip: Vec<IpAddr>,
    },
    /// Refused.
    Refused {
        /// Error number of the system, if there is one.
        errno: Option<i32>,
        /// The reason.
        reason: String,
    },
}
