//! Drops capabilities that spind no longer needs once its NIC is open.

use std::fmt;

use rustix::io;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

/// Capabilities that serving an interface needs: new rule maps for the XDP program, and sockets that are already open.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW).union(CapabilitySet::BPF);

/// Capabilities that serving an interface needs and the process does not have.
#[derive(Debug)]
pub struct Missing(CapabilitySet);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
            (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
            (CapabilitySet::BPF, "CAP_BPF"),
        ];
        let missing: Vec<_> = names.iter().filter(|(set, _)| self.0.contains(*set)).map(|(_, name)| *name).collect();
        write!(
            f,
            "no {}: serving an interface needs CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON and CAP_IPC_LOCK. Run spind as root \
             or by deploy/spind.service. `--nic loopback` and `--nic pcap:IN,OUT` need no privileges",
            missing.join(", no ")
        )
    }
}

/// Checks the capabilities for serving an interface.
///
/// # Errors
/// The missing ones.
pub fn check_interface() -> Result<(), Missing> {
    let effective = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    // CAP_SYS_ADMIN includes CAP_BPF.
    let implied =
        if effective.contains(CapabilitySet::SYS_ADMIN) { CapabilitySet::BPF } else { CapabilitySet::empty() };
    let missing = KEPT - (effective | implied);
    if missing.is_empty() { Ok(()) } else { Err(Missing(missing)) }
}

/// Drops all other capabilities, also for programs that spind might start. Capabilities belong to threads: call this before any other
/// thread is started.
///
/// # Errors
/// When the kernel refuses.
pub fn drop_unneeded() -> io::Result<()> {
    let now = capabilities(None)?;
    let (effective, permitted) = (now.effective & KEPT, now.permitted & KEPT);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })?;
    set_no_new_privs(true)
}
