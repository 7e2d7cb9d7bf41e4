//! What spind's processes give up: privileges, identity, system calls. docs/users.md has the table of threads.
//!
//! * `filter`: filters of system calls.

mod filter;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;

use nix::unistd::{Gid, Uid, User, setgroups, setresgid, setresuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities, set_no_new_privs,
};

pub use filter::{confine_descriptor_process, confine_hook_process, confine_loader, confine_packet_threads};

/// User id of `nobody` (the kernel's default for user ids that it cannot represent, linux/highuid.h).
const NOBODY: u32 = 65_534;
/// Capabilities that opening an interface needs.
const OPENING: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW).union(CapabilitySet::BPF);
/// Capabilities of the loader process: new rule maps, sockets of users, ports that an administrator opened.
const LOADER: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::CHOWN).union(CapabilitySet::NET_BIND_SERVICE);
/// Capabilities of the hook process: XDP programs with pointer arithmetic, and their maps.
const HOOK: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::PERFMON);

/// Whether the process has the capabilities for opening an interface.
#[must_use]
pub fn may_serve_interface() -> bool {
    let effective = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    // CAP_SYS_ADMIN includes CAP_BPF.
    let implied =
        if effective.contains(CapabilitySet::SYS_ADMIN) { CapabilitySet::BPF } else { CapabilitySet::empty() };
    (effective | implied).contains(OPENING)
}

/// No program that this process or its children start gains privileges. Call this before any thread is started.
///
/// # Errors
/// When the kernel refuses.
pub fn gain_none() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}

/// Drops all capabilities of the loader process that it does not need. Call this before any thread is started.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_those_of_loader() -> io::Result<()> {
    keep(LOADER)
}

/// Drops all capabilities of the hook process that it does not need. Call this before any thread is started.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_those_of_hook_process() -> io::Result<()> {
    keep(HOOK)
}

/// Makes a root process one of `account`. Keeps the capability for real-time priority, until [`drop_all`], and no other. Call this
/// before any thread is started.
///
/// # Errors
/// When the kernel refuses.
pub fn become_user(account: &Account) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        set_keep_capabilities(true)?;
        setgroups(&[])?;
        setresgid(account.gid, account.gid, account.gid)?;
        setresuid(account.uid, account.uid, account.uid)?;
        set_keep_capabilities(false)?;
    }
    keep(CapabilitySet::SYS_NICE)
}

/// Drops all capabilities of this thread, and of those that it starts.
///
/// # Errors
/// When the kernel refuses.
pub fn drop_all() -> io::Result<()> {
    keep(CapabilitySet::empty())
}

fn keep(kept: CapabilitySet) -> io::Result<()> {
    let permitted = capabilities(None)?.permitted & kept;
    let sets = CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

/// The account that spind runs as, once its NIC is open, when root starts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    uid: Uid,
    gid: Gid,
}

impl Account {
    /// Names of accounts to take, the first that exists: spind's own, and the one that has no files.
    const DEFAULTS: [&str; 2] = ["spind", "nobody"];

    /// The user id.
    #[must_use]
    pub const fn uid(&self) -> u32 {
        self.uid.as_raw()
    }

    /// Whether other programs run as this account, too, and it owns no files: the kernel's overflow user.
    #[must_use]
    pub const fn is_nobody(&self) -> bool {
        self.uid() == NOBODY
    }

    /// Makes the account the owner of an open file.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn own(&self, file: &OwnedFd) -> io::Result<()> {
        Ok(nix::unistd::fchown(file, Some(self.uid), Some(self.gid))?)
    }

    /// The account of this name, or the default. `None` when there is none.
    #[must_use]
    pub fn find(name: Option<&str>) -> Option<Self> {
        let known = |name: &str| User::from_name(name).ok().flatten();
        let user = match name {
            Some(name) => known(name),
            None => Self::DEFAULTS.into_iter().find_map(known),
        };
        user.map(|user| Self { uid: user.uid, gid: user.gid })
    }
}

/// The ids, as the command line of another process of spind has them: `UID:GID`.
impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl FromStr for Account {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let ids = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
        let (uid, gid) = ids.ok_or_else(|| io::Error::other(format!("{text:?} is not UID:GID")))?;
        Ok(Self { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) })
    }
}

#[cfg(test)]
mod tests {
    use super::Account;

    #[test]
    fn an_account_passes_through_a_command_line() {
        let account: Account = "65534:65533".parse().expect("two ids");
        assert_eq!(
            (account.uid.as_raw(), account.gid.as_raw(), account.to_string().as_str()),
            (65534, 65533, "65534:65533")
        );
        assert!(["", "1", "1:", "-1:1", "1:1:1"].iter().all(|text| text.parse::<Account>().is_err()));
    }
}
