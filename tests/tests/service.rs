//! spind as a service: checks of its configuration, exit codes, and what it reports to the service manager.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use libspin::{Client, Install};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use rustix::process::Signal;
use spin_tests::{ACTION_TIMEOUT, Spind, binary};

/// A folder with an image `reply.elf`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("reply.elf"), spin_handlers::image("udp_pingpong", &[])).expect("written");
    folder
}

/// Writes a configuration.
fn configuration(folder: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("spind.toml");
    fs::write(&path, text).expect("written");
    path
}

/// A section of the configuration with a context, and more keys of it.
fn context(folder: &tempfile::TempDir, keys: &str) -> String {
    format!(
        "[[context]]\nimage = '{}'\nrules = ['udp dport 9999']\n{keys}\n",
        folder.path().join("reply.elf").display()
    )
}

fn run(arguments: &[&str]) -> Output {
    Command::new(binary("spind")).args(arguments).output().expect("spind starts")
}

fn check(file: &Path) -> (Option<i32>, String, String) {
    let output = run(&["--check", "--config", file.to_str().expect("UTF-8")]);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_configuration_is_checked_whole_without_opening_its_interface() {
    let folder = folder();
    // No interface has this name, so an attempt to open one would fail.
    let fine = configuration(&folder, &format!("iface = 'nosuch0'\n{}", context(&folder, "")));
    assert_eq!(check(&fine), (Some(0), format!("{}: fine\n", fine.display()), String::new()));

    let mut contexts = context(&folder, "abi = 'pspin'") + &context(&folder, "name = 'a'\neom = 'nonsense'");
    contexts += &context(&folder, "name = 'a'");
    contexts += "[[context]]\nimage = '/nonexistent'\nrules = ['udp dprt 1']\n";
    let values = "iface = 'nosuch0'\n[limits]\nconnections = 0\n[policy.user.nosuchuser]\nrules = ['x']\n";
    let (code, printed, said) = check(&configuration(&folder, &format!("{values}{contexts}")));
    assert_eq!((code, printed), (Some(1), String::new()));
    let image = folder.path().join("reply.elf");
    let image = image.display();
    let expected = [
        "limits.connections is 0: no application could have any, so give at least 1".to_owned(),
        "policy.user.nosuchuser.rules: rule 1".to_owned(),
        "policy.user.nosuchuser: no user has this name".to_owned(),
        format!("context 1 (reply), image {image}: handler image: it was built for abi wire"),
        format!("context 2 (a), image {image}: end of message: column 1"),
        format!("context 3 (a), image {image}: context 2 has the same name: give it another `name`"),
        "context 4 (nonexistent), image /nonexistent: cannot be read".to_owned(),
    ];
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{said}");
    for expected in expected {
        let line = format!("spind: configuration {}: {expected}", folder.path().join("spind.toml").display());
        assert!(lines.iter().any(|other| other.starts_with(&line)), "{line}\nin\n{said}");
    }

    let (code, _, said) = check(&configuration(&folder, "ifacce = 'a'\n[sizes]\nqueues = 'many'\n"));
    let places = ["line 1: ifacce: unknown field", "line 3: sizes.queues: invalid type"];
    assert!(code == Some(1) && places.iter().all(|place| said.contains(place)), "{said}");
    // Each context's rules fit, and all of them do not.
    let rules: Vec<_> = (0..40).map(|byte| format!("'payload[{byte}:1] = 1'")).collect();
    let many = |name| context(&folder, &format!("name = '{name}'")).replace("'udp dport 9999'", &rules.join(", "));
    let all: String = ('a'..='z').map(many).collect();
    let (code, _, said) = check(&configuration(&folder, &format!("nic = 'loopback'\n{all}")));
    assert!(code == Some(1) && said.lines().count() == 1 && said.contains("rules of all contexts together:"), "{said}");
    let two = context(&folder, "name = 'a'") + &context(&folder, "name = 'b'");
    let (_, _, said) = check(&configuration(&folder, &format!("nic = 'loopback'\nlimits.contexts = 1\n{two}")));
    assert!(said.contains("2 contexts, and limits.contexts is 1"), "{said}");
}

/// Exit codes after which systemd starts spind no more: those of the unit.
fn prevented() -> Vec<i32> {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/spind.service");
    let unit = fs::read_to_string(unit).expect("the unit");
    let codes = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
    codes.expect("the unit names codes").split(' ').map(|code| code.parse().expect("a number")).collect()
}

#[test]
fn exit_codes_say_whether_a_restart_is_of_use() {
    let folder = folder();
    let socket = folder.path().join("s");
    let socket = socket.to_str().expect("UTF-8");
    let code = |arguments: &[&str]| {
        let output = run(&[arguments, &["--socket", socket]].concat());
        output.status.code().unwrap_or_else(|| panic!("{arguments:?}: {output:?}"))
    };
    let with = |text: &str| code(&["--config", configuration(&folder, text).to_str().expect("UTF-8")]);
    let usage = [code(&["--ifacce", "lo"]), code(&["--cores", "x"]), code(&["--check"])];
    let level = Command::new(binary("spind")).env("SPIND_LOG", "loud").output().expect("spind starts");
    let configuration = [
        code(&[]),
        code(&["--config", "/nonexistent"]),
        with("nonsense"),
        with("nic = 'loopback'\nlocal_share = 101"),
        with("nic = 'loopback'\n[[context]]\nimage = '/nonexistent'\nrules = ['udp']"),
        with(&format!("nic = 'loopback'\n{}", context(&folder, "abi = 'pspin'"))),
    ];
    assert_eq!((usage, level.status.code(), configuration), ([64; 3], Some(64), [78; 6]));
    assert!([64, 77, 78].iter().all(|code| prevented().contains(code)), "{:?}", prevented());

    let other = Spind::start(&["--nic", "loopback"]);
    let taken = run(&["--nic", "loopback", "--socket", other.socket().to_str().expect("UTF-8")]).status.code();
    let missing = code(&["--nic", "pcap:/nonexistent,/tmp/x"]);
    assert_eq!([taken, Some(missing)], [Some(69); 2]);
    assert!(!prevented().contains(&69) && !prevented().contains(&71), "these may pass by themselves");
    assert_eq!([run(&["--help"]).status.code(), run(&["--version"]).status.code()], [Some(0); 2]);
}

/// A service manager: a socket that spind sends messages to.
struct Manager(UnixDatagram);

impl Manager {
    fn at(path: &Path) -> Self {
        Self(UnixDatagram::bind(path).expect("a free path"))
    }

    /// The next message. `None` when none comes in time.
    fn next(&self, timeout: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(timeout)).expect("a timeout");
        let mut message = [0; 1024];
        let length = self.0.recv(&mut message).ok()?;
        Some(String::from_utf8(message[..length].to_vec()).expect("UTF-8"))
    }

    /// Waits for a message. Returns those before it.
    fn wait_for(&self, wanted: &str) -> Vec<String> {
        let (begun, mut before) = (Instant::now(), Vec::new());
        loop {
            assert!(begun.elapsed() < ACTION_TIMEOUT, "no {wanted}: {before:?}");
            match self.next(ACTION_TIMEOUT) {
                Some(message) if message == wanted => return before,
                Some(message) => before.push(message),
                None => panic!("no {wanted}: {before:?}"),
            }
        }
    }
}

/// The thread of a process that runs handlers.
fn packet_thread(process: u32) -> Pid {
    let tasks =
        fs::read_dir(format!("/proc/{process}/task")).expect("it runs").filter_map(|entry| Some(entry.ok()?.path()));
    let named = |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("cluster"));
    let task = tasks.into_iter().find(named).expect("a packet thread");
    Pid::from_raw(task.file_name().and_then(|id| id.to_str()?.parse().ok()).expect("an id"))
}

#[test]
fn the_service_manager_is_told_of_state_and_liveness() {
    // Building takes longer than the manager waits.
    let _ = binary("spind");
    let folder = folder();
    let config = configuration(&folder, &format!("nic = 'loopback'\n{}", context(&folder, "")));
    let config = config.to_str().expect("UTF-8").to_owned();
    let path = folder.path().join("notify");
    let manager = Manager::at(&path);
    // spind listens as soon as the manager is told that it is ready, with all contexts.
    let socket = folder.path().join("spind.sock");
    let ready = thread::spawn(move || {
        let status = manager.wait_for("READY=1");
        let contexts = Client::connect(socket).expect("it listens").contexts().expect("it answers");
        (manager, status, contexts.len())
    });
    let variable = format!("NOTIFY_SOCKET={}", path.display());
    let mut spind = Spind::start_with(folder, &[&variable, "WATCHDOG_USEC=100000"], &["--config", &config]);
    let (manager, status, contexts) = ready.join().expect("no panic");
    assert_eq!((status, contexts), (vec!["STATUS=loopback, run-to-completion, 1 context".to_owned()], 1));

    for _ in 0..3 {
        assert_eq!(manager.wait_for("WATCHDOG=1"), [""; 0]);
    }
    // While a packet thread does not answer, there is no sign of life. Some may be unread, and one under way.
    let thread = packet_thread(spind.pid());
    ptrace::attach(thread).expect("it is a thread of a child");
    waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it stops");
    while manager.next(Duration::from_millis(1)).is_some() {}
    let quiet = Duration::from_millis(500);
    let last = std::iter::from_fn(|| manager.next(quiet)).take(10).count();
    // A process whose thread is attached cannot be ended.
    ptrace::detach(thread, None).expect("it continues");
    assert!(last <= 1, "{last} signs of life of a thread that is stopped");
    manager.wait_for("WATCHDOG=1");

    let mut client = Client::connect(spind.socket()).expect("it listens");
    let install = Install { rules: vec!["udp dport 1".into()], ..Install::default() };
    let id = client.install(&install, &spin_handlers::image("udp_pingpong", &[])).expect("installs").id;
    manager.wait_for("STATUS=loopback, run-to-completion, 2 contexts");
    client.remove(id).expect("it is ours");
    manager.wait_for("STATUS=loopback, run-to-completion, 1 context");
    for text in ["nic = 'loopback'", "nonsense"] {
        fs::write(&config, text).expect("written");
        spind.signal(Signal::HUP);
        let reloading = || manager.next(ACTION_TIMEOUT).expect("a message");
        let reloading = std::iter::repeat_with(reloading).find(|message| message != "WATCHDOG=1").expect("a message");
        let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").and_then(|time| time.parse::<u64>().ok());
        assert!(time.is_some_and(|time| time > 0), "{reloading}");
        let refused = text == "nonsense";
        let status = if refused { "STATUS=configuration refused, nothing changed: 1 errors" } else { "READY=1" };
        manager.wait_for(status);
        manager.wait_for(if refused { "READY=1" } else { "STATUS=loopback, run-to-completion, 0 contexts" });
    }
    spind.signal(Signal::TERM);
    let before = manager.wait_for("STOPPING=1");
    assert!(before.iter().all(|message| message == "WATCHDOG=1"), "{before:?}");
    assert!(spind.wait().0);
}
