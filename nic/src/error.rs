//! Errors of opening or using a queue: cause, location and remedy.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::pcap::PcapError;

/// An error of a NIC backend, during set-up or control. Lost frames are counted, not reported as errors.
#[derive(Debug, Error)]
pub enum NicError {
    /// No interface of that name in this network namespace.
    #[error("there is no interface {name}; this network namespace has: {}", .existing.join(", "))]
    NoInterface {
        /// The requested name.
        name: String,
        /// The interfaces that exist.
        existing: Vec<String>,
    },
    /// The interface is not up.
    #[error("interface {name} is down; bring it up: ip link set dev {name} up")]
    Down {
        /// The interface.
        name: String,
    },
    /// A frame of the interface does not fit a chunk.
    #[error(
        "interface {name} has MTU {mtu}, its frames would not fit the {limit} B of a buffer; \
         ip link set dev {name} mtu {limit}, or ask for generic mode (--xdp-mode generic), where longer frames of matched flows are dropped"
    )]
    Mtu {
        /// The interface.
        name: String,
        /// MTU of the interface.
        mtu: u32,
        /// The greatest MTU that works.
        limit: u32,
    },
    /// The interface does not have the requested queue.
    #[error("interface {name} has queues 0 to {}, there is no queue {queue}", .count - 1)]
    NoQueue {
        /// The interface.
        name: String,
        /// The requested queue.
        queue: u32,
        /// Number of queues it has.
        count: u32,
    },
    /// The receive queue has no transmit queue of its number: the kernel would accept frames there and never send them.
    #[error(
        "interface {name} has {receive} queues to receive and {transmit} to send, so nothing can be sent on queue {queue}: \
         ethtool -L {name} with as many of each (combined N, or rx N tx N)"
    )]
    NoTransmitQueue {
        /// The interface.
        name: String,
        /// The requested queue.
        queue: u32,
        /// Number of receive queues.
        receive: u32,
        /// Number of transmit queues.
        transmit: u32,
    },
    /// There are fewer queues than threads to serve them.
    #[error(
        "interface {name} has {queues} queues for {parts} threads: raise their number (ethtool -L {name} combined {parts}), \
         or give fewer cores"
    )]
    FewQueues {
        /// The interface.
        name: String,
        /// Number of queues of the interface, or of the configuration.
        queues: usize,
        /// Number of threads.
        parts: usize,
    },
    /// A configuration value is not valid.
    #[error("{what} is {value}: {must}")]
    Config {
        /// The name of the value.
        what: &'static str,
        /// The value.
        value: String,
        /// The allowed values.
        must: &'static str,
    },
    /// The process lacks privileges.
    #[error(
        "no permission to {action}; run as root or with the capabilities CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON \
         and CAP_IPC_LOCK (setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon,cap_ipc_lock=ep, or AmbientCapabilities= in \
         a systemd unit)"
    )]
    Privileges {
        /// The refused action.
        action: &'static str,
    },
    /// The limit of locked memory is too low.
    #[error(
        "the kernel would not lock {bytes} B of packet buffers; raise the limit (ulimit -l unlimited, \
         LimitMEMLOCK=infinity in a systemd unit), or ask for fewer frames per queue"
    )]
    LockedMemory {
        /// Requested bytes.
        bytes: usize,
    },
    /// The kernel has no AF_XDP.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS); Linux 5.15 or later with that option is needed")]
    NoAfXdp,
    /// The kernel refuses the XDP program.
    #[error("the kernel refused the XDP program; Linux 5.15 or later with BPF is needed: {source}")]
    Program {
        /// The error of libbpf.
        source: io::Error,
    },
    /// Another program is attached to the interface.
    #[error(
        "interface {name} already has XDP program {id}, probably of another spind: stop that (pgrep -a spind); a program \
         that was attached by hand goes with: ip link set dev {name} xdp off"
    )]
    AlreadyAttached {
        /// The interface.
        name: String,
        /// The id of that program, 0 when unknown.
        id: u32,
    },
    /// The requested mode does not work on this interface.
    #[error("interface {name} does not take an XDP program in {mode} mode: {source}{hint}")]
    Attach {
        /// The interface.
        name: String,
        /// `native` or `generic`.
        mode: &'static str,
        /// The kernel's answer.
        source: io::Error,
        /// The usual cause and remedy.
        hint: &'static str,
    },
    /// Another socket is bound to the queue.
    #[error("queue {queue} of interface {name} is in use by another AF_XDP socket; stop the program that has it")]
    QueueBusy {
        /// The interface.
        name: String,
        /// The queue.
        queue: u32,
    },
    /// The socket cannot be bound to the queue.
    #[error("cannot bind to queue {queue} of interface {name} ({mode}): {source}")]
    Bind {
        /// The interface.
        name: String,
        /// The queue.
        queue: u32,
        /// The requested copy mode.
        mode: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The device was removed while in use.
    #[error("interface {name} is gone")]
    Gone {
        /// The interface.
        name: String,
    },
    /// The rules are not a well-formed table.
    #[error("these rules cannot be given to the NIC: {0}")]
    Rules(String),
    /// A capture file cannot be read or written.
    #[error("capture file {}: {source}", .path.display())]
    Pcap {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: PcapError,
    },
    /// The kernel refused another action.
    #[error("cannot {action}: {source}")]
    System {
        /// The action.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl NicError {
    /// Wraps an error of the kernel. EPERM and EACCES become [`NicError::Privileges`].
    pub fn system(action: &'static str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        if source.kind() == io::ErrorKind::PermissionDenied {
            return Self::Privileges { action };
        }
        Self::System { action, source }
    }
}
