//! Runs the real programs in tests.
#![forbid(unsafe_code)]

pub mod c_programs;
mod client;
mod python;
mod units;
mod users;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub use client::{Killed, image, udp, wait_until};
pub use python::Python;
pub use users::{as_user, can_be_other_users};

/// Maximum wait for any action of a program.
pub const ACTION_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the folder of the workspace's programs and libraries, built from the current sources. Examples are in its
/// subfolder `examples`.
///
/// # Panics
/// When the workspace does not build.
#[must_use]
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace");
        let test = std::env::current_exe().expect("a test is a program");
        // target/<profile>/deps/<test>
        let profile = test.ancestors().nth(2).expect("tests lie two folders below their profile's");
        let mut cargo = Command::new(env!("CARGO"));
        // Examples are built too: with the same features of all dependencies as for tests, nothing is compiled twice.
        cargo.current_dir(root).args(["build", "--workspace", "--bins", "--lib", "--examples", "--quiet", "--locked"]);
        cargo.env("CARGO_TARGET_DIR", profile.parent().expect("a profile's folder is in target/"));
        cargo.args(profile.ends_with("release").then_some("--release"));
        assert!(cargo.status().expect("cargo starts").success(), "the workspace's programs build");
        profile.to_owned()
    })
}

/// Returns the path of one of the workspace's programs.
///
/// # Panics
/// When the workspace does not build.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    built().join(name)
}

/// A running spind with a control socket in a folder of its own; killed when dropped.
pub struct Spind {
    child: Child,
    folder: tempfile::TempDir,
    log: Receiver<String>,
    /// Log output so far.
    pub logged: String,
}

impl Spind {
    /// Starts spind and waits until it listens.
    ///
    /// # Panics
    /// When spind does not listen in time.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().expect("a temporary folder"), arguments)
    }

    /// Starts spind with a control socket that all users of this host may open.
    ///
    /// # Panics
    /// When spind does not listen in time.
    #[must_use]
    pub fn start_for_all_users(arguments: &[&str]) -> Self {
        Self::start_configured("", arguments)
    }

    /// Starts spind for all users of the host, with more lines of configuration.
    ///
    /// # Panics
    /// When spind does not listen in time.
    #[must_use]
    pub fn start_configured(lines: &str, arguments: &[&str]) -> Self {
        let folder = users::open_folder();
        let config = folder.path().join("all-users.toml");
        std::fs::write(&config, format!("socket_mode = '0666'\n{lines}")).expect("a temporary folder takes files");
        let config = config.to_str().expect("temporary paths are UTF-8").to_owned();
        Self::start_in(folder, &[&["--config", &config], arguments].concat())
    }

    /// Starts spind with the socket in a given folder.
    ///
    /// # Panics
    /// When spind does not listen in time.
    #[must_use]
    pub fn start_in(folder: tempfile::TempDir, arguments: &[&str]) -> Self {
        Self::start_with(folder, &[], arguments)
    }

    /// Starts spind with the socket in a given folder, and with variables of the environment such as `SPIND_LOG=debug`.
    ///
    /// # Panics
    /// When spind does not listen in time.
    #[must_use]
    pub fn start_with(folder: tempfile::TempDir, variables: &[&str], arguments: &[&str]) -> Self {
        let units = units::options(folder.path(), arguments);
        // `nohup` ignores SIGHUP for its children; the default handling is restored, so that the signal ends spind.
        let mut child = Command::new("env")
            .arg("--default-signal=HUP")
            .args(variables)
            .arg(binary("spind"))
            .args(arguments)
            .args(units)
            .arg("--socket")
            .arg(folder.path().join("spind.sock"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("spind starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (lines, log) = channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
        let mut spind = Self { child, folder, log, logged: String::new() };
        spind.wait_for_log("listening on");
        spind
    }

    /// Returns the path of the control socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("spind.sock")
    }

    /// Sends a signal to spind.
    ///
    /// # Panics
    /// When spind has ended.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("process ids are positive");
        kill_process(pid, signal).expect("it runs");
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the id of the process that spind has started with this argument.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn child(&self, argument: &str) -> u32 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs");
        // Threads of connections may have ended.
        let children = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
        let ids: Vec<u32> = children
            .flat_map(|ids| ids.split_whitespace().map(|id| id.parse().expect("ids")).collect::<Vec<_>>())
            .collect();
        let is_it = |id: &&u32| {
            let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
            line.split('\0').nth(1) == Some(argument)
        };
        *ids.iter().find(is_it).unwrap_or_else(|| panic!("{argument} among {ids:?}"))
    }

    /// Waits until a line with `text` is logged.
    ///
    /// # Panics
    /// When that takes too long; the message contains the log.
    pub fn wait_for_log(&mut self, text: &str) {
        let deadline = Instant::now() + ACTION_TIMEOUT;
        while !self.logged.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.log.recv_timeout(left) else { panic!("spind did not log {text:?}:\n{}", self.logged) };
            self.logged += &line;
            self.logged.push('\n');
        }
    }

    /// Runs spinctl against this spind.
    ///
    /// # Panics
    /// When spinctl cannot be started.
    pub fn ctl(&self, arguments: &[&str]) -> Output {
        Command::new(binary("spinctl"))
            .args(arguments)
            .arg("--socket")
            .arg(self.socket())
            .output()
            .expect("spinctl runs")
    }

    /// Runs spinctl and returns its output.
    ///
    /// # Panics
    /// When spinctl fails.
    pub fn ctl_ok(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(output.status.success(), "spinctl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("spinctl prints UTF-8")
    }

    /// Kills spind with SIGKILL and returns the folder of its socket.
    ///
    /// # Panics
    /// When spind has ended already.
    #[must_use]
    pub fn kill(mut self) -> tempfile::TempDir {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        std::mem::replace(&mut self.folder, tempfile::tempdir().expect("a temporary folder"))
    }

    /// Waits for spind's exit and returns whether it was a success, and its output.
    ///
    /// # Panics
    /// When spind does not exit in time.
    pub fn wait(&mut self) -> (bool, String) {
        let deadline = Instant::now() + ACTION_TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(Instant::now() < deadline, "spind did not end:\n{}", self.logged);
            thread::sleep(Duration::from_millis(5));
        };
        let mut printed = String::new();
        let stdout = self.child.stdout.as_mut().expect("piped");
        stdout.read_to_string(&mut printed).expect("spind prints UTF-8");
        (status.success(), printed)
    }
}

impl Drop for Spind {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
