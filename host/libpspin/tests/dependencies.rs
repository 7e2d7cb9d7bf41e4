//! C programs that link the library must need neither a NIC nor the daemon.

use std::process::Command;

/// Packages of the NIC, the daemon and the engine, on which the library must not depend.
const ABSENT: [&str; 8] =
    ["spin-engine", "spin-nic", "spin-sync", "libbpf-rs", "libbpf-sys", "clap", "toml", "signal-hook"];

#[test]
fn no_nic_and_no_daemon() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let options = ["tree", "-p", "libpspin", "-e", "normal", "--locked", "--offline", "--prefix", "none"];
    let tree = Command::new(cargo).args(options).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).expect("text");
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"spin-pspin"), "the tree is that of the library: {tree}");
    for package in ABSENT {
        assert!(!names.contains(&package), "libpspin depends on {package}:\n{tree}");
    }
}
