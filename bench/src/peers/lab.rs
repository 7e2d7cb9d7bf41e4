//! Two namespaces joined by a veth: the load is in one, the program in the other.

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use spin_nic::affinity::pin;

use crate::counters;
use crate::pktgen::port::PortError;

/// Names of the interfaces of the load and the program, on the lab's own veth.
const LINKS: [&str; 2] = ["client", "server"];
/// Addresses of the load and the program.
pub const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// MAC addresses of the load and the program, on the lab's own veth.
pub const MACS: [&str; 2] = ["02:00:00:00:00:01", SERVER_MAC];
/// MAC address of the program.
pub const SERVER_MAC: &str = "02:00:00:00:00:02";
/// Port of the echo.
pub const PORT: u16 = 9999;
/// Cores of the load, with the interrupts of the wire, and of the program.
pub const CORES: [usize; 2] = [1, 0];

/// Error of setting up or running something.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A command failed.
    #[error("{command}: {said}")]
    Command {
        /// The command.
        command: String,
        /// Its errors.
        said: String,
    },
    /// A program did not start.
    #[error("{0} does not start: {1}")]
    Start(String, String),
    /// A program answered nothing.
    #[error("no packet came back: {0}")]
    Silent(String),
    /// A file or process.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The socket of a measurement.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Too few packets ran in the hook.
    #[error("{0} of {1} packets ran in the hook")]
    NotInHook(u64, u64),
    /// Counters of spind.
    #[error(transparent)]
    Counters(#[from] counters::Error),
    /// A program printed something unexpected.
    #[error("unexpected output: {0}: {1}")]
    Output(serde_json::Error, String),
}

/// The two ends of a wire.
pub struct Lab {
    // Removed on drop. None: the wire is the user's, in this namespace.
    namespaces: Option<Namespaces>,
    links: [String; 2],
    programs: PathBuf,
}

/// Two namespaces. Dropping them removes them.
struct Namespaces([String; 2]);

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", namespace]).stderr(Stdio::null()).status();
        }
    }
}

impl Lab {
    /// Makes the namespaces and the veth. Needs root.
    ///
    /// # Errors
    /// A command failed.
    pub fn new() -> Result<Self, LabError> {
        let id = std::process::id();
        let namespaces = Namespaces(["c", "s"].map(|side| format!("spin-bench-{id}-{side}")));
        let [client, server] = &namespaces.0;
        for namespace in &namespaces.0 {
            run(&format!("ip netns add {namespace}"))?;
            for scope in ["all", "default"] {
                run(&format!("ip netns exec {namespace} sysctl -qw net.ipv6.conf.{scope}.disable_ipv6=1"))?;
            }
        }
        let queues = "numtxqueues 1 numrxqueues 1";
        run(&format!(
            "ip -n {client} link add {} address {} {queues} type veth peer name {} netns {server} address {} {queues}",
            LINKS[0], MACS[0], LINKS[1], MACS[1]
        ))?;
        for (side, link) in LINKS.iter().enumerate() {
            let namespace = &namespaces.0[side];
            run(&format!(
                "ip netns exec {namespace} ethtool -K {link} tx off txvlan off rxvlan off tso off gso off gro off"
            ))?;
            run(&format!("ip -n {namespace} addr add {}/24 dev {link}", ADDRESSES[side]))?;
            run(&format!("ip -n {namespace} link set {link} up"))?;
            run(&format!("ip -n {namespace} link set lo up"))?;
            let (address, mac) = (ADDRESSES[1 - side], MACS[1 - side]);
            run(&format!("ip -n {namespace} neigh replace {address} lladdr {mac} dev {link} nud permanent"))?;
        }
        Ok(Self { namespaces: Some(namespaces), links: LINKS.map(str::to_owned), programs: programs()? })
    }

    /// Uses two interfaces of this host that are connected: that of the load, and that of the program.
    ///
    /// # Errors
    /// The folder of this program is unknown.
    pub fn on(links: [String; 2]) -> Result<Self, LabError> {
        Ok(Self { namespaces: None, links, programs: programs()? })
    }

    /// The interface of the load.
    #[must_use]
    pub fn client_link(&self) -> &str {
        &self.links[0]
    }

    /// The interface of the program.
    #[must_use]
    pub fn server_link(&self) -> &str {
        &self.links[1]
    }

    /// Runs something on a thread at the side of the load, on its core.
    ///
    /// # Errors
    /// The thread cannot enter the namespace.
    ///
    /// # Panics
    /// `work` panicked.
    pub fn at_client<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R, LabError> {
        let enter = || {
            if let Some(Namespaces([client, _])) = &self.namespaces {
                let namespace = File::open(format!("/run/netns/{client}"))?;
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(io::Error::from)?;
            }
            pin(CORES[0]).map_err(io::Error::other)?;
            Ok(work())
        };
        thread::scope(|scope| scope.spawn(enter).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// A program of this project.
    #[must_use]
    pub fn program(&self, name: &str) -> String {
        self.programs.join(name).display().to_string()
    }

    /// A command at the side of the load.
    #[must_use]
    pub fn client(&self, command: &str) -> Command {
        self.command(0, command)
    }

    /// A command at the side of the program.
    #[must_use]
    pub fn server(&self, command: &str) -> Command {
        self.command(1, command)
    }

    /// A command at the side of the program, on any core.
    #[must_use]
    pub fn server_unpinned(&self, command: &str) -> Command {
        self.enter(1, command)
    }

    /// A command on the core of its side.
    fn command(&self, side: usize, text: &str) -> Command {
        self.enter(side, &format!("taskset -c {} {text}", CORES[side]))
    }

    fn enter(&self, side: usize, text: &str) -> Command {
        let inside = self.namespaces.as_ref().map(|namespaces| format!("ip netns exec {} {text}", namespaces.0[side]));
        let mut words = inside.as_deref().unwrap_or(text).split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::null());
        command
    }
}

/// The folder of this program and its siblings.
fn programs() -> io::Result<PathBuf> {
    Ok(env::current_exe()?.parent().map(PathBuf::from).unwrap_or_default())
}

/// Runs a command that must succeed. Returns its output.
///
/// # Errors
/// The command failed.
pub fn run(text: &str) -> Result<String, LabError> {
    let mut words = text.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    output(&mut command)
}

/// Runs a command that must succeed. Returns its output.
///
/// # Errors
/// The command failed.
pub fn output(command: &mut Command) -> Result<String, LabError> {
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(LabError::Command { command: format!("{command:?}"), said });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
