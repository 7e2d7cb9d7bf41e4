//! `spind --perf-map` names translated handlers in `/tmp/perf-PID.map`. No root and no `perf` needed.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use libspin::{Client, Install};
use spin_tests::{Spind, image};

/// The map of a process; removed when dropped, since spind leaves it.
struct Map(PathBuf);

impl Map {
    fn of(spind: &Spind) -> Self {
        Self(format!("/tmp/perf-{}.map", spind.pid()).into())
    }

    /// Host addresses and names.
    fn lines(&self) -> Vec<(Range<u64>, String)> {
        let text = fs::read_to_string(&self.0).expect("spind wrote it");
        let parse = |line: &str| {
            let parts: Vec<_> = line.splitn(3, ' ').collect();
            let [start, size, name] = parts[..] else { panic!("three parts: {line:?}") };
            (number(start)..number(start) + number(size), name.to_owned())
        };
        text.lines().map(parse).collect()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn number(text: &str) -> u64 {
    u64::from_str_radix(text, 16).expect("hexadecimal")
}

/// The executable mappings of a process.
fn executable(pid: u32) -> Vec<Range<u64>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let (start, end) = words.next()?.split_once('-')?;
        words.next().is_some_and(|rights| rights.contains('x')).then(|| number(start)..number(end))
    };
    maps.lines().filter_map(parse).collect()
}

fn install(client: &mut Client, name: &str, handler: &str) -> u32 {
    let install = Install { name: name.into(), rules: vec!["udp dport 9999".into()], ..Install::default() };
    client.install(&install, &image(handler)).expect("it installs").id
}

#[test]
fn handlers_are_named_where_their_code_is() {
    let spind = Spind::start_configured("perf_map = true\n", &["--nic", "loopback"]);
    let map = Map::of(&spind);
    assert_eq!(map.lines(), [], "nothing is translated");
    let mode = fs::metadata(&map.0).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = Client::connect(spind.socket()).expect("spind is up");
    let first = install(&mut client, "reply to 9999", "udp_pingpong");
    let lines = map.lines();
    let names: Vec<_> = lines.iter().map(|(_, name)| name.as_str()).collect();
    assert!(names.contains(&"reply to 9999:payload_handler"), "{names:?}");
    let code = executable(spind.pid());
    for (range, name) in &lines {
        let is_inside = |code: &Range<u64>| code.start <= range.start && range.end <= code.end;
        assert!(!range.is_empty() && code.iter().any(is_inside), "{name} at {range:x?}: {code:x?}");
    }
    install(&mut client, "the same code", "udp_pingpong");
    assert_eq!(map.lines(), lines, "it was translated already");
    client.remove(first).expect("it is removed");
    assert_eq!(map.lines(), lines, "profiles that were recorded before need them");
}

#[test]
fn new_code_at_the_addresses_of_removed_code_takes_its_lines() {
    let spind = Spind::start(&["--nic", "loopback", "--perf-map"]);
    let map = Map::of(&spind);
    let mut client = Client::connect(spind.socket()).expect("spind is up");
    let first = install(&mut client, "first", "udp_pingpong");
    client.remove(first).expect("it is removed");
    install(&mut client, "second", "icmp_echo");
    install(&mut client, "third", "endless_loop");
    let mut lines = map.lines();
    assert!(!lines.iter().any(|(_, name)| name.starts_with("first:")), "memory of code is reused: {lines:x?}");
    assert!(lines.iter().any(|(_, name)| name.starts_with("second:")), "{lines:x?}");
    assert!(lines.iter().any(|(_, name)| name.starts_with("third:")), "{lines:x?}");
    lines.sort_by_key(|(range, _)| range.start);
    assert!(lines.windows(2).all(|two| two[0].0.end <= two[1].0.start), "each address has one name: {lines:x?}");
}

#[test]
fn there_is_no_map_without_the_option() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).expect("spind is up");
    install(&mut client, "quiet", "udp_pingpong");
    assert!(!Map::of(&spind).0.exists());
}
