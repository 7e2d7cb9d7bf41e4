//! spind as a service: checks of its configuration, exit codes, and what it reports to the service manager.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use spin_tests::{Spind, binary};

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
    let rules: Vec<_> = (0..300).map(|byte| format!("'ip and payload[{byte}:1] = 1'")).collect();
    let long = context(&folder, "").replace("'udp dport 9999'", &rules.join(", "));
    let (code, _, said) = check(&configuration(&folder, &format!("nic = 'loopback'\n{long}")));
    assert_eq!(code, Some(1), "{said}");
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
