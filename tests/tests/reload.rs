//! SIGHUP: spind reads its configuration again, and changes only what the file changes.

#[path = "../../nic/tests/common/mod.rs"]
mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use common::{LINK, Link, root, within};
use libspin::{Client, Install};
use rustix::process::Signal;
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_tests::{Spind, as_user, can_be_other_users, udp};

/// An ordinary user.
const ALICE: u32 = 1101;
/// Offset of a UDP datagram's destination port and payload in a frame of IPv4 without options.
const PORTS: usize = 34;
const PAYLOAD: usize = 42;

/// An image whose handler answers each datagram with a payload that begins with `mark`.
fn image(mark: char) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("answer.c");
    let handler =
        "spin_packet p; if (!spin_parse_udp_l2(args, &p)) return; spin_swap_addresses(&p); spin_swap_ports(p.l4);";
    let text = format!("{handler} p.payload[0] = '{mark}'; spin_udp_write_checksum(&p); spin_send_reply(&p);");
    let text = format!("#include <spin.h>\nvoid payload_handler(handler_args_t *args) {{ {text} }}\n");
    fs::write(&source, text).expect("written");
    spin_handlers::try_build(&[&source], &[]).expect("it compiles")
}

/// A section of the configuration with a context for a port, whose image has its name.
fn context(folder: &Path, name: &str, port: u16) -> String {
    let image = folder.join(name).with_extension("elf");
    format!("[[context]]\nname = '{name}'\nimage = '{}'\nrules = ['udp dport {port}']\n", image.display())
}

/// Replays datagrams to these ports. Returns port and first byte of the payload of each answer.
fn answers(client: &mut Client, ports: &[u16]) -> Vec<(u16, char)> {
    let frames: Vec<_> = ports.iter().map(|&port| Packet::whole(0, udp(port, b"?"))).collect();
    let sent = read_all(&client.replay(&write_all(&frames)).expect("loopback replays")).expect("a capture");
    let answer = |packet: Packet| {
        let port = u16::from_be_bytes([packet.data[PORTS], packet.data[PORTS + 1]]);
        (port, char::from(packet.data[PAYLOAD]))
    };
    sent.into_iter().map(answer).collect()
}

/// Names and ids of all contexts.
fn contexts(client: &mut Client) -> Vec<(String, u32)> {
    let mut all: Vec<_> =
        client.contexts().expect("a list").into_iter().map(|info| (info.name, info.context)).collect();
    all.sort();
    all
}

#[test]
fn a_reload_under_load_changes_what_the_file_changes_and_loses_no_packet() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path().to_owned();
    let config = at.join("spind.toml");
    let [one, two] = ['1', '2'].map(image);
    ["stays", "changes", "goes", "comes"]
        .iter()
        .for_each(|name| fs::write(at.join(format!("{name}.elf")), &one).expect("written"));
    let head = "nic = 'loopback'\n";
    let first = [context(&at, "stays", 1), context(&at, "changes", 2), context(&at, "goes", 3)].concat();
    fs::write(&config, format!("{head}{first}")).expect("written");
    let mut spind = Spind::start_in(folder, &["--config", config.to_str().expect("UTF-8")]);
    let mut client = Client::connect(spind.socket()).expect("it listens");
    let application = Install { name: "application".into(), rules: vec!["udp dport 5".into()], ..Install::default() };
    client.install(&application, &one).expect("installs");
    let before = contexts(&mut client);
    assert_eq!(answers(&mut client, &[1, 2, 3, 4, 5]), [(1, '1'), (2, '1'), (3, '1'), (5, '1')]);

    let stop = AtomicBool::new(false);
    let socket = spind.socket();
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut client = Client::connect(socket).expect("it listens");
            let ports: Vec<u16> = [1, 2].into_iter().cycle().take(200).collect();
            let (mut sent, mut answered) = (0, [0; 2]);
            while !stop.load(Relaxed) {
                sent += ports.len() / 2;
                for (port, mark) in answers(&mut client, &ports) {
                    assert!(port == 2 || mark == '1', "the context that stays keeps its handlers");
                    answered[usize::from(port) - 1] += 1;
                }
            }
            (sent, answered)
        });
        // A failed assertion of this thread would otherwise leave the other one running.
        let _stop = StopAtEnd(&stop);
        let second = [context(&at, "stays", 1), context(&at, "changes", 2), context(&at, "comes", 4)].concat();
        fs::write(at.join("changes.elf"), &two).expect("written");
        fs::write(&config, format!("{head}{second}")).expect("written");
        spind.signal(Signal::HUP);
        spind.wait_for_log("configuration read again: contexts: 1 stay, 1 replaced, 1 new, 1 removed, 0 refused");
        let after = contexts(&mut client);
        let id = |all: &[(String, u32)], name: &str| all.iter().find(|(other, _)| other == name).map(|(_, id)| *id);
        for name in ["stays", "application"] {
            assert_eq!(id(&after, name), id(&before, name), "{name}");
        }
        assert!(id(&after, "changes") > id(&before, "changes") && id(&after, "goes").is_none(), "{after:?}");
        assert_eq!(answers(&mut client, &[1, 2, 3, 4, 5]), [(1, '1'), (2, '2'), (4, '1'), (5, '1')]);

        // Whatever a broken file changes beside its errors, nothing is applied.
        let broken = second.replace("dport 1'", "dprt 1'") + "[[context]]\nimage = '/nonexistent'\nrules = ['udp']\n";
        fs::write(at.join("comes.elf"), &two).expect("written");
        fs::write(&config, format!("{head}[limits]\nconnections = 0\n{broken}")).expect("written");
        spind.signal(Signal::HUP);
        spind.wait_for_log("configuration refused, nothing changed: 3 errors");
        assert!(spind.logged.contains("limits.connections is 0"), "{}", spind.logged);
        fs::write(&config, format!("{head}[limits]\ncontexts = 100\n{broken}")).expect("written");
        spind.signal(Signal::HUP);
        spind.wait_for_log("configuration refused, nothing changed: 2 errors");
        assert!(
            spind.logged.contains("context 1 (stays)") && spind.logged.contains("context 4 (nonexistent)"),
            "{}",
            spind.logged
        );
        assert_eq!(contexts(&mut client), after);
        assert_eq!(answers(&mut client, &[1, 2, 3, 4, 5]), [(1, '1'), (2, '2'), (4, '1'), (5, '1')]);
        assert_eq!(client.capabilities().expect("told").limits.contexts, 1024);

        stop.store(true, Relaxed);
        let (sent, answered) = load.join().expect("no panic");
        assert!(sent > 0 && answered == [sent; 2], "{answered:?} of {sent}");
    });
}

/// Ends the load when dropped.
struct StopAtEnd<'s>(&'s AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn limits_take_effect_and_settings_that_need_a_restart_are_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path().to_owned();
    let config = at.join("spind.toml");
    fs::write(at.join("a.elf"), image('1')).expect("written");
    fs::write(&config, format!("nic = 'loopback'\n{}", context(&at, "a", 1))).expect("written");
    let mut spind = Spind::start_in(folder, &["--config", config.to_str().expect("UTF-8")]);
    let mut client = Client::connect(spind.socket()).expect("it listens");
    let before = contexts(&mut client);
    let other = "iface = 'lo'\nidle = 'spin'\nmetrics = '127.0.0.1:1'\nengine = 'interp'\n[sizes]\nhers = 7\n";
    let limits = "[limits]\ncontexts = 2\nwatchdog_us = 5\nhost_mem = 4096\nmemory = '1G'\n";
    fs::write(&config, format!("{other}{limits}{}", context(&at, "a", 1))).expect("written");
    spind.signal(Signal::HUP);
    spind.wait_for_log("contexts: 1 stay, 0 replaced, 0 new, 0 removed, 0 refused");
    let named = "a restart is needed for changes of: iface or nic, engine, metrics, idle, sizes, limits.memory;";
    spind.wait_for_log(named);
    let told = client.capabilities().expect("told");
    assert_eq!(
        (told.limits.contexts, told.limits.watchdog_us, told.limits.hers),
        (2, 5, 1024),
        "on the open connection"
    );
    assert_eq!(told.engine, "jit");
    let install = Install { rules: vec!["udp dport 2".into()], ..Install::default() };
    let large = Install { host_mem: 8192, ..install.clone() };
    let refused = client.install(&large, &image('1')).expect_err("over the limit").to_string();
    assert!(refused.contains("host memory of 8192 bytes: at most 4096"), "{refused}");
    client.install(&install, &image('1')).expect("installs");
    let refused = client.install(&install, &image('1')).expect_err("two are there").to_string();
    assert!(refused.contains("all 2 contexts are in use"), "{refused}");

    // A context that finds no room stays as it is, and is tried again at the next signal.
    let keys = context(&at, "a", 1) + "watchdog_us = 5\n";
    fs::write(&config, format!("nic = 'loopback'\n{limits}{keys}")).expect("written");
    spind.signal(Signal::HUP);
    spind.wait_for_log("context a is not installed: all 2 contexts are in use");
    spind.wait_for_log("0 stay, 0 replaced, 0 new, 0 removed, 1 refused");
    assert_eq!(contexts(&mut client).last(), before.last());
    // Limits that a context of the file exceeds are refused, although the context did not change.
    let limits = limits.replace("contexts = 2", "contexts = 4");
    fs::write(&config, format!("nic = 'loopback'\n{limits}{keys}")).expect("written");
    spind.signal(Signal::HUP);
    spind.wait_for_log("0 stay, 1 replaced");
    fs::write(&config, format!("nic = 'loopback'\n[limits]\nwatchdog_us = 4\n{keys}")).expect("written");
    spind.signal(Signal::HUP);
    spind.wait_for_log("time limit in microseconds 5: between 1 and 4");
    // A context of the file that somebody removed is installed again.
    let newest = contexts(&mut client).pop().expect("a context").1;
    client.remove(newest).expect("an administrator may");
    fs::write(&config, format!("nic = 'loopback'\n{keys}")).expect("written");
    spind.signal(Signal::HUP);
    spind.wait_for_log("0 stay, 0 replaced, 1 new");
    assert!(contexts(&mut client).last() > before.last());
}

#[test]
fn a_policy_holds_for_connections_that_are_open() {
    if !can_be_other_users() {
        spin_testing::skip("becoming another user needs root");
        return;
    }
    let mut spind = Spind::start_for_all_users(&["--nic", "loopback"]);
    let config = spind.socket().with_file_name("all-users.toml");
    let socket = spind.socket();
    let mut client = as_user(ALICE, || Client::connect(socket)).expect("all users may connect");
    let install = Install { rules: vec!["icmp echo".into()], ..Install::default() };
    let mut installs = || client.install(&install, &image('1')).map(drop).map_err(|error| error.to_string());
    let refused = installs().expect_err("by default");
    assert!(refused.contains("not allowed"), "{refused}");
    let mut reload = |lines: &str| {
        fs::write(&config, format!("socket_mode = '0666'\n{lines}")).expect("written");
        spind.signal(Signal::HUP);
        spind.wait_for_log("configuration read again");
        spind.logged.clear();
    };
    reload(&format!("[policy.user.{ALICE}]\nrules = ['icmp echo']\n"));
    installs().expect("allowed now");
    reload("");
    installs().expect_err("no longer");
}

/// After start-up, spind is another user, and reads the files as that user.
#[test]
fn an_interface_is_served_on_while_a_file_is_not_readable_for_the_account() {
    if !root() {
        return;
    }
    let link = Link::new(1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let set_mode =
        |mode| fs::set_permissions(folder.path().join("a.elf"), fs::Permissions::from_mode(mode)).expect("chmod");
    fs::write(folder.path().join("a.elf"), image('1')).expect("written");
    set_mode(0o600);
    let lines = context(folder.path(), "a", 1);
    let mut spind = within(&link.near, || Spind::start_configured(&lines, &["--iface", LINK]));
    spind.wait_for_log("SIGHUP will be refused while");
    spind.signal(Signal::HUP);
    spind.wait_for_log("a.elf: cannot be read: Permission denied");
    assert!(spind.ctl_ok(&["list"]).contains("udp dport 1"));
    set_mode(0o644);
    let config = spind.socket().with_file_name("all-users.toml");
    fs::write(&config, format!("socket_mode = '0666'\n{}", context(folder.path(), "a", 2))).expect("written");
    spind.signal(Signal::HUP);
    spind.wait_for_log("0 stay, 1 replaced, 0 new, 0 removed");
    assert!(spind.ctl_ok(&["list"]).contains("udp dport 2"));
    // The account is no administrator, although the policy was read with its user id.
    let status = fs::read_to_string(format!("/proc/{}/status", spind.pid())).expect("it runs");
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("user ids");
    let account = uids.split_whitespace().next().and_then(|uid| uid.parse().ok()).expect("a number");
    let socket = spind.socket();
    let mut client = as_user(account, || Client::connect(socket)).expect("all users may connect");
    let any = Install { rules: vec!["any".into()], ..Install::default() };
    let refused = client.install(&any, &image('1')).expect_err("by the policy").to_string();
    assert!(refused.contains("not allowed"), "{refused}");
}
