//! Refusals by the policy, and errors in it.

use spin_matcher::ListError;

use super::ranges::BadPorts;
use crate::install::ports::PortError;
use crate::sched::scheduler::MOST_WEIGHT;

/// Reason why a section `[policy]` is refused.
#[derive(Debug, thiserror::Error)]
pub enum SectionError {
    /// Not ports.
    #[error("{line}: {source}")]
    Ports {
        /// The line.
        line: String,
        /// The cause.
        source: BadPorts,
    },
    /// Not rules.
    #[error("{line}: {source}")]
    Rules {
        /// The line.
        line: String,
        /// The cause.
        source: ListError,
    },
    /// A weight out of its bounds.
    #[error("{line} is {weight}: give 1 to {MOST_WEIGHT}")]
    Weight {
        /// The line.
        line: String,
        /// The weight.
        weight: u32,
    },
    /// No such user or group.
    #[error("{line}: no {kind} has this name or number on this host")]
    Nobody {
        /// The line.
        line: String,
        /// User or group.
        kind: &'static str,
    },
}

/// Reason why the policy refuses rules.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The policy allows no packet of the rule.
    #[error(
        "rule `{rule}`: not allowed. Name a TCP or UDP destination port of {ports_line} ({ports}); \
         an administrator allows other packets with rules = [\"{rule}\"] in [policy.user.{user}]"
    )]
    Rule {
        /// The rule.
        rule: String,
        /// The line that gives the ports.
        ports_line: String,
        /// The ports.
        ports: String,
        /// The user.
        user: u32,
    },
    /// A rule names more ports than a context may take.
    #[error("rule `{rule}`: more than {most} ports for a context: split it, or have an administrator allow it")]
    ManyPorts {
        /// The rule.
        rule: String,
        /// Maximum number.
        most: usize,
    },
    /// The rule is for packets to another host.
    #[error(
        "rule `{0}`: no packet for an address of this host matches it (`ip addr` shows the addresses of the interface)"
    )]
    OtherHost(String),
    /// The port is not free.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The addresses of the interface are unknown.
    #[error("addresses of the interface: {0}")]
    Addresses(#[from] std::io::Error),
}
