//! Two namespaces joined by a veth: the load is in one, the program in the other.

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Name of the interface of the load.
pub const CLIENT: &str = "client";
/// Name of the interface of the program.
pub const SERVER: &str = "server";
/// Addresses of the load and the program.
pub const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// MAC addresses of the load and the program.
pub const MACS: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
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
    /// A file or process.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A program printed something unexpected.
    #[error("unexpected output: {0}: {1}")]
    Output(serde_json::Error, String),
}

/// The namespaces. Dropping it removes them.
pub struct Lab {
    namespaces: [String; 2],
    programs: PathBuf,
}

impl Lab {
    /// Makes the namespaces and the veth. Needs root.
    ///
    /// # Errors
    /// A command failed.
    pub fn new() -> Result<Self, LabError> {
        let programs = env::current_exe()?.parent().map(PathBuf::from).unwrap_or_default();
        let id = std::process::id();
        let namespaces = ["c", "s"].map(|side| format!("spin-bench-{id}-{side}"));
        let lab = Self { namespaces, programs };
        let [client, server] = &lab.namespaces;
        for namespace in &lab.namespaces {
            run(&format!("ip netns add {namespace}"))?;
            for scope in ["all", "default"] {
                run(&format!("ip netns exec {namespace} sysctl -qw net.ipv6.conf.{scope}.disable_ipv6=1"))?;
            }
        }
        let queues = "numtxqueues 1 numrxqueues 1";
        run(&format!(
            "ip -n {client} link add {CLIENT} address {} {queues} type veth peer name {SERVER} netns {server} address {} {queues}",
            MACS[0], MACS[1]
        ))?;
        for (side, link) in [CLIENT, SERVER].iter().enumerate() {
            let namespace = &lab.namespaces[side];
            run(&format!(
                "ip netns exec {namespace} ethtool -K {link} tx off txvlan off rxvlan off tso off gso off gro off"
            ))?;
            run(&format!("ip -n {namespace} addr add {}/24 dev {link}", ADDRESSES[side]))?;
            run(&format!("ip -n {namespace} link set {link} up"))?;
            run(&format!("ip -n {namespace} link set lo up"))?;
            let (address, mac) = (ADDRESSES[1 - side], MACS[1 - side]);
            run(&format!("ip -n {namespace} neigh replace {address} lladdr {mac} dev {link} nud permanent"))?;
        }
        Ok(lab)
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
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespaces[side]]).args(text.split_whitespace()).stdin(Stdio::null());
        command
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            let _ = Command::new("ip").args(["netns", "del", namespace]).stderr(Stdio::null()).status();
        }
    }
}

/// Runs a command that must succeed. Returns its output.
///
/// # Errors
/// It failed.
pub fn run(text: &str) -> Result<String, LabError> {
    let mut words = text.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    output(&mut command)
}

/// Runs a command that must succeed. Returns its output.
///
/// # Errors
/// It failed.
pub fn output(command: &mut Command) -> Result<String, LabError> {
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(LabError::Command { command: format!("{command:?}"), said });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
