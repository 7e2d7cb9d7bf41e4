//! Tests with several units: the environment variable `SPIN_UNITS` has their number.

use std::fs;
use std::path::Path;

/// Options that choose cores.
const CHOICES: [&str; 4] = ["--cores", "--mode", "--units", "--topology"];

/// Further options for a spind with these arguments: a core for each unit, of a machine that is described in the folder. None if
/// `SPIN_UNITS` is not set, the arguments choose cores, or the NIC has one queue.
pub(crate) fn options(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let units = spin_testing::from_environment("SPIN_UNITS", 0);
    let has_queues = arguments.contains(&"--iface") || arguments.windows(2).any(|pair| pair == ["--nic", "loopback"]);
    if units == 0 || !has_queues || arguments.iter().any(|argument| CHOICES.contains(argument)) {
        return Vec::new();
    }
    let (path, last) = (folder.join("machine.toml"), units - 1);
    fs::write(&path, format!("nodes = ['0-{last}']")).expect("a temporary folder takes files");
    let path = path.to_str().expect("temporary paths are UTF-8");
    ["--cores", &format!("0-{last}"), "--units", &units.to_string(), "--topology", path].map(str::to_owned).into()
}
