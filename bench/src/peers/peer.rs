//! The programs that echo UDP datagrams.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::lab::{ADDRESSES, CORES, Lab, LabError, PORT, output};

/// Longest wait for a program to start or stop.
const START: Duration = Duration::from_secs(20);

/// Whose program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// spind with a handler.
    Ours,
    /// A program to compare with.
    Peer,
}

/// A program that echoes UDP datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// spind with `udp_pingpong`, in an idle mode.
    Spind(&'static str),
    /// spind that may run handlers in the kernel.
    SpindInHook,
    /// A bare AF_XDP socket that polls.
    AfXdpPolling,
    /// A bare AF_XDP socket that sleeps in the kernel.
    AfXdpBlocking,
    /// An XDP program that returns XDP_TX.
    XdpTx,
    /// DPDK's testpmd with a driver.
    Testpmd(&'static str),
    /// A UDP socket that waits in `recvfrom`.
    Socket,
    /// A UDP socket that polls.
    SocketPolling,
}

/// All programs but those of the hook, in the order of a round.
pub const ALL: [Peer; 10] = [
    Peer::Spind("spin"),
    Peer::AfXdpPolling,
    Peer::Testpmd("af_xdp"),
    Peer::Testpmd("af_packet"),
    Peer::XdpTx,
    Peer::Spind("adaptive"),
    Peer::AfXdpBlocking,
    Peer::Spind("sleep"),
    Peer::Socket,
    Peer::SocketPolling,
];

impl Peer {
    /// Name in tables and results.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Spind(idle) => format!("spind, idle {idle}"),
            Self::SpindInHook => "spind, in the hook".to_owned(),
            Self::AfXdpPolling => "bare AF_XDP, polling".to_owned(),
            Self::AfXdpBlocking => "bare AF_XDP, blocking".to_owned(),
            Self::XdpTx => "kernel XDP_TX".to_owned(),
            Self::Testpmd(driver) => format!("testpmd net_{driver}"),
            Self::Socket => "kernel UDP socket, blocking".to_owned(),
            Self::SocketPolling => "kernel UDP socket, polling".to_owned(),
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn kind(self) -> Kind {
        if matches!(self, Self::Spind(_) | Self::SpindInHook) { Kind::Ours } else { Kind::Peer }
    }

    /// Whether it sleeps when idle: then only its latency after pauses is of interest.
    #[must_use]
    pub fn sleeps(self) -> bool {
        matches!(self, Self::Spind("adaptive" | "sleep") | Self::AfXdpBlocking | Self::Socket)
    }

    /// Whether it receives from the kernel's stack: then the wire needs another program that accepts live frames.
    fn uses_stack(self) -> bool {
        matches!(self, Self::Testpmd("af_packet") | Self::Socket | Self::SocketPolling)
    }

    /// Why it cannot run here, if so.
    #[must_use]
    pub fn missing(self) -> Option<&'static str> {
        let installed = || Command::new("dpdk-testpmd").arg("--version").output().is_ok();
        (matches!(self, Self::Testpmd(_)) && !installed()).then_some("apt install dpdk-dev librte-net-af-xdp23")
    }

    /// Starts it with an echo, and waits until it is ready. `folder` takes its files, for spind its socket `spind.sock`.
    ///
    /// # Errors
    /// The program does not start.
    pub fn start(self, lab: &Lab, folder: &Path, image: &Path) -> Result<Running, LabError> {
        let running = self.start_empty(lab, folder)?;
        if let Self::Spind(_) = self {
            let rule = ["--rule".to_owned(), format!("udp dport {PORT}")];
            install(lab, &folder.join("spind.sock"), image, &rule)?;
        }
        Ok(running)
    }

    /// Starts it without a handler.
    ///
    /// # Errors
    /// The program does not start.
    pub fn start_empty(self, lab: &Lab, folder: &Path) -> Result<Running, LabError> {
        let server = lab.server_link();
        let log = folder.join("peer.log");
        let socket = folder.join("spind.sock");
        let core = CORES[1];
        let spind =
            || format!("{} --iface {server} --socket {} --cores {core}", lab.program("spind"), socket.display());
        let (command, ready) = match self {
            Self::Spind(idle) => (format!("{} --idle {idle}", spind()), ""),
            Self::SpindInHook => {
                let config = folder.join("spind.toml");
                fs::write(&config, "kernel_tier = true\n")?;
                (format!("{} --config {}", spind(), config.display()), "")
            }
            Self::AfXdpPolling => (format!("{} {server} --port {PORT}", lab.program("spin-xdp-echo")), "echo on"),
            Self::AfXdpBlocking => {
                (format!("{} {server} --port {PORT} --block", lab.program("spin-xdp-echo")), "echo on")
            }
            Self::XdpTx => (format!("{} reflect {server}", lab.program("spin-pktgen")), "attached to"),
            Self::Testpmd(driver) => (testpmd(driver, server), "Press enter to exit"),
            Self::Socket => {
                (format!("{} udp-echo --listen {}:{PORT}", lab.program("spin-traffic"), ADDRESSES[1]), "listening")
            }
            Self::SocketPolling => (
                format!("{} udp-echo --listen {}:{PORT} --poll", lab.program("spin-traffic"), ADDRESSES[1]),
                "listening",
            ),
        };
        let mut running = Running { children: Vec::new(), log };
        if self.uses_stack() {
            running.spawn(&mut lab.server(&format!("{} accept {server}", lab.program("spin-pktgen"))))?;
        }
        running.spawn(&mut match self {
            // It pins its own thread; its other threads go where there is room.
            Self::Spind(_) | Self::SpindInHook => lab.server_unpinned(&command),
            _ => lab.server(&command),
        })?;
        running.wait(&self.name(), |running| match self {
            Self::Spind(_) | Self::SpindInHook => socket.exists(),
            _ => running.said().contains(ready),
        })
    }
}

/// Installs an image with these options.
///
/// # Errors
/// spind refuses it.
pub fn install(lab: &Lab, socket: &Path, image: &Path, options: &[String]) -> Result<(), LabError> {
    let mut spinctl = Command::new(lab.program("spinctl"));
    spinctl.arg("--socket").arg(socket).arg("install").arg(image).args(options);
    output(&mut spinctl).map(drop)
}

/// testpmd on the core of the program: its first thread waits for input, its second one forwards.
fn testpmd(driver: &str, server: &str) -> String {
    let core = CORES[1];
    format!(
        "stdbuf -o0 dpdk-testpmd --lcores 0@{core},1@{core} --no-huge -m 512 --no-shconf --no-pci --no-telemetry \
         --vdev net_{driver}0,iface={server} -- --forward-mode=macswap --nb-cores=1 --total-num-mbufs=16384"
    )
}

/// A running program. Dropping it stops it.
pub struct Running {
    children: Vec<Child>,
    log: PathBuf,
}

impl Running {
    /// Has the server's end count and drop the load. `folder` takes the log.
    ///
    /// # Errors
    /// The program does not start.
    pub fn count(lab: &Lab, folder: &Path) -> Result<Self, LabError> {
        let mut running = Self { children: Vec::new(), log: folder.join("count.log") };
        running.spawn(&mut lab.server(&format!("{} count {}", lab.program("spin-pktgen"), lab.server_link())))?;
        running.wait("spin-pktgen count", |running| running.said().contains("attached to"))
    }

    /// Waits until a program is ready.
    fn wait(mut self, name: &str, is_ready: impl Fn(&Self) -> bool) -> Result<Self, LabError> {
        let begin = Instant::now();
        while !is_ready(&self) {
            if begin.elapsed() > START || self.has_ended()? {
                let said = self.said();
                let last = said.lines().rev().take(4).collect::<Vec<_>>();
                return Err(LabError::Start(name.to_owned(), last.into_iter().rev().collect::<Vec<_>>().join("; ")));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(self)
    }

    fn spawn(&mut self, command: &mut Command) -> Result<(), LabError> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        // testpmd ends at the end of its input.
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        self.children.push(command.spawn()?);
        Ok(())
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn has_ended(&mut self) -> Result<bool, LabError> {
        let ended = self.children.last_mut().map(Child::try_wait).transpose()?;
        Ok(ended.flatten().is_some())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            drop(child.stdin.take());
            let _ = kill_process(Pid::from_child(child), Signal::INT);
            let begin = Instant::now();
            while matches!(child.try_wait(), Ok(None)) {
                if begin.elapsed() > START {
                    let _ = child.kill();
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        let _ = fs::remove_file(&self.log);
    }
}
