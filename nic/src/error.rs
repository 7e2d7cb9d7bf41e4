//! Why a queue could not be opened or used: what was wrong, where, and what to do.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::pcap::PcapError;

/// An error of a NIC backend. Set-up and control only: frames that are lost are counted, not reported.
#[derive(Debug, Error)]
pub enum NicError {
    /// No interface of that name in this network namespace.
    #[error("there is no interface {name}; this network namespace has: {}", .existing.join(", "))]
    NoInterface {
        /// The name asked for.
        name: String,
        /// The interfaces there are.
        existing: Vec<String>,
    },
    /// The interface is not up.
    #[error("interface {name} is down; bring it up: ip link set dev {name} up")]
    Down {
        /// The interface.
        name: String,
    },
    /// A frame of the interface does not fit a frame of ours.
    #[error(
        "interface {name} has MTU {mtu}, its frames would not fit the {limit} B of a buffer; \
         ip link set dev {name} mtu {limit}, or ask for generic mode (--xdp-mode generic), where longer frames of matched flows are dropped"
    )]
    Mtu {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: u32,
        /// The greatest MTU that works.
        limit: u32,
    },
    /// A queue asked for that the interface does not have.
    #[error("interface {name} has queues 0 to {}, there is no queue {queue}", .count - 1)]
    NoQueue {
        /// The interface.
        name: String,
        /// The queue asked for.
        queue: u32,
        /// Queues it has.
        count: u32,
    },
    /// A receive queue without a transmit queue of its number: the kernel takes what is to be sent there, and never sends it.
    #[error(
        "interface {name} has {receive} queues to receive and {transmit} to send, so nothing can be sent on queue {queue}: \
         ethtool -L {name} with as many of each (combined N, or rx N tx N)"
    )]
    NoTransmitQueue {
        /// The interface.
        name: String,
        /// The queue asked for.
        queue: u32,
        /// Receive queues it has.
        receive: u32,
        /// Transmit queues.
        transmit: u32,
    },
    /// Fewer queues than threads that are to serve them.
    #[error(
        "interface {name} has {queues} queues for {parts} threads: raise their number (ethtool -L {name} combined {parts}), \
         or give fewer cores"
    )]
    FewQueues {
        /// The interface.
        name: String,
        /// Queues there are, or were asked for.
        queues: usize,
        /// Threads.
        parts: usize,
    },
    /// A configuration value that cannot work.
    #[error("{what} is {value}: {must}")]
    Config {
        /// Which value.
        what: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        must: &'static str,
    },
    /// The process may not do this.
    #[error(
        "no permission to {action}; run as root or with the capabilities CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON \
         and CAP_IPC_LOCK (setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon,cap_ipc_lock=ep, or AmbientCapabilities= in \
         a systemd unit)"
    )]
    Privileges {
        /// What was refused.
        action: &'static str,
    },
    /// Locked memory is limited.
    #[error(
        "the kernel would not lock {bytes} B of packet buffers; raise the limit (ulimit -l unlimited, \
         LimitMEMLOCK=infinity in a systemd unit), or ask for fewer frames per queue"
    )]
    LockedMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The kernel has no AF_XDP.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS); Linux 5.15 or later with that option is needed")]
    NoAfXdp,
    /// The kernel does not take the XDP program.
    #[error("the kernel refused the XDP program; Linux 5.15 or later with BPF is needed: {source}")]
    Program {
        /// libbpf's word for it.
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
        /// The other program's id, 0 when it is not known.
        id: u32,
    },
    /// The mode asked for does not work on this interface.
    #[error("interface {name} does not take an XDP program in {mode} mode: {source}{hint}")]
    Attach {
        /// The interface.
        name: String,
        /// `native` or `generic`.
        mode: &'static str,
        /// The kernel's answer.
        source: io::Error,
        /// What that answer usually means.
        hint: &'static str,
    },
    /// Another socket has the queue.
    #[error("queue {queue} of interface {name} is in use by another AF_XDP socket; stop the program that has it")]
    QueueBusy {
        /// The interface.
        name: String,
        /// The queue.
        queue: u32,
    },
    /// The queue could not be bound.
    #[error("cannot bind to queue {queue} of interface {name} ({mode}): {source}")]
    Bind {
        /// The interface.
        name: String,
        /// The queue.
        queue: u32,
        /// Zero-copy was demanded, or not.
        mode: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The device went away while in use.
    #[error("interface {name} is gone")]
    Gone {
        /// The interface.
        name: String,
    },
    /// Rules that no table can hold.
    #[error("these rules cannot be given to the NIC: {0}")]
    Rules(String),
    /// A capture file that cannot be read or written.
    #[error("capture file {}: {source}", .path.display())]
    Pcap {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: PcapError,
    },
    /// Anything else that the kernel refused.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl NicError {
    /// Wraps a refusal of the kernel, naming missing privileges as such.
    pub fn system(action: &'static str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        if source.kind() == io::ErrorKind::PermissionDenied {
            return Self::Privileges { action };
        }
        Self::System { action, source }
    }
}
