//! The section `[policy]` of the configuration.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What ordinary users may match and send, and their share. Keys that a user or group does not give come from the section itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Section {
    /// Ports that contexts may take, see [`Keys::ports`].
    pub ports: Option<Vec<String>>,
    /// Rules, see [`Keys::rules`].
    pub rules: Option<Vec<String>>,
    /// Frames that handlers may send, see [`Keys::send`].
    pub send: Option<Send>,
    /// Weight, see [`Keys::weight`].
    pub weight: Option<u32>,
    /// Kernel tier, see [`Keys::kernel_tier`].
    pub kernel_tier: Option<bool>,
    /// Keys of users, by name or number.
    pub user: BTreeMap<String, Keys>,
    /// Keys of groups, by name or number.
    pub group: BTreeMap<String, Keys>,
}

/// What a user, or the users of a group, may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Keys {
    /// Destination ports of the host that contexts may take: `unprivileged` (the default), or numbers such as `udp 53`. A rule has to
    /// name its port. The port must not be another user's.
    pub ports: Option<Vec<String>>,
    /// Rules: contexts may take all packets that one of them matches. Default: none.
    pub rules: Option<Vec<String>>,
    /// Frames that handlers may send. Default: `reply`.
    pub send: Option<Send>,
    /// Share of time and packet buffer, relative to other users: 1 to 1000. Default: 1.
    pub weight: Option<u32>,
    /// Whether handlers may run in the kernel's XDP hook, if the daemon's kernel tier is on. Default: false.
    pub kernel_tier: Option<bool>,
}

/// Frames that handlers may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Send {
    /// From the host's addresses and an allowed port, to the sender of the packet that is handled.
    #[default]
    Reply,
    /// From the host's addresses and an allowed port, to anybody.
    Own,
    /// Any.
    Raw,
}
