//! Drops capabilities that spind no longer needs once its NIC is open.

use rustix::io;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

/// Capabilities that serving an interface needs: new rule maps for the XDP program, and sockets that are already open.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW).union(CapabilitySet::BPF);

/// Whether the process has the capabilities for serving an interface.
#[must_use]
pub fn may_serve_interface() -> bool {
    let effective = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    // CAP_SYS_ADMIN includes CAP_BPF.
    let implied =
        if effective.contains(CapabilitySet::SYS_ADMIN) { CapabilitySet::BPF } else { CapabilitySet::empty() };
    (effective | implied).contains(KEPT)
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
