//! Entries and folders that spind does not accept.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libspin::{Client, Install};
use spin_tests::{Killed, Spind, binary, image, wait_until};

use crate::state::{answers, contexts, persistent, start, state};

/// Files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("readable").path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

#[test]
fn damaged_entries_are_named_and_left_and_the_others_are_restored() {
    let image = image("udp_pingpong");
    let spind = start(tempfile::tempdir().expect("a temporary folder"));
    let mut client = Client::connect(spind.socket()).expect("it listens");
    for port in 1..=6 {
        client.install(&persistent(port), &image).expect("installed");
    }
    let parent = spind.kill();
    let folder = state(parent.path());
    let entries = files(&folder);
    assert_eq!(entries.len(), 6);
    let write = |number: usize, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(&entries[number]).expect("readable");
        change(&mut bytes);
        fs::write(&entries[number], bytes).expect("writable");
    };
    write(0, &|bytes| bytes[100] ^= 1);
    write(1, &|bytes| bytes.truncate(1000));
    write(2, &|bytes| bytes.fill(0));
    fs::remove_file(&entries[3]).expect("it is there");
    symlink(&entries[4], &entries[3]).expect("a link");
    fs::copy(&entries[4], folder.join("0000000000-0000000005")).expect("a copy");
    fs::write(folder.join("notes\n"), "mine").expect("written");
    fs::write(folder.join("new-0"), "of a killed spind").expect("written");

    let mut spind = start(parent);
    let mut client = Client::connect(spind.socket()).expect("it listens");
    assert_eq!((answers(&mut client, &[5, 6]), contexts(&mut client).len()), (2, 2));
    for (entry, why) in entries.iter().zip(["digest differs", "cut short", "control protocol", "os error 40"]) {
        let line = spind.logged.lines().find(|line| line.contains(entry.to_str().expect("UTF-8")));
        let line = line.unwrap_or_else(|| panic!("{entry:?} is not in\n{}", spind.logged));
        assert!(line.contains(why), "{why:?}: {line}");
    }
    assert!(spind.logged.contains("another entry has its id") && spind.logged.contains("\"notes\\n\" is no entry"));
    let names = files(&folder);
    assert!(entries.iter().all(|entry| names.contains(entry)) && !names.contains(&folder.join("new-0")));
    // No id of theirs is given to another context.
    assert_eq!(client.install(&persistent(7), &image).expect("installed").id, 7);
    spind.wait_for_log("listening on");
}

#[test]
fn a_refused_entry_is_named_and_its_owner_may_remove_it() {
    let image = image("udp_pingpong");
    let mut spind = start(tempfile::tempdir().expect("a temporary folder"));
    let mut client = Client::connect(spind.socket()).expect("it listens");
    let slow = Install { watchdog_us: Some(9000), ..persistent(1) };
    let id = client.install(&slow, &image).expect("installed").id;
    client.install(&persistent(2), &image).expect("installed");
    let parent = spind.kill();
    let folder = state(parent.path());
    let config = parent.path().join("spind.toml");
    fs::write(&config, format!("nic = 'loopback'\nstate = '{}'\nlimits.watchdog_us = 100\n", folder.display()))
        .expect("written");
    spind = Spind::start_in(parent, &["--config", config.to_str().expect("UTF-8")]);
    assert!(
        spind.logged.contains("persistent context 1 is not restored") && spind.logged.contains("between 1 and 100"),
        "{}",
        spind.logged
    );
    let mut client = Client::connect(spind.socket()).expect("it listens");
    assert_eq!(contexts(&mut client).len(), 1);
    assert_eq!(spind.ctl_ok(&["rm", &id.to_string()]), "removed context 1\n");
    assert!(client.remove(id).is_err(), "it is gone");
    assert_eq!(files(&folder).len(), 1);
}

#[test]
fn a_folder_that_others_may_change_or_have_is_refused() {
    let first = start(tempfile::tempdir().expect("a temporary folder"));
    let folder = state(first.socket().parent().expect("a folder"));
    let refused = |folder: &Path| {
        let socket = tempfile::tempdir().expect("a temporary folder");
        let mut spind = Command::new(binary("spind"));
        spind.args(["--nic", "loopback"]).arg("--state").arg(folder).arg("--socket").arg(socket.path().join("s"));
        let mut spind = Killed(spind.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("spind starts"));
        wait_until(|| spind.0.try_wait().expect("it is our child").is_some());
        let mut said = String::new();
        spind.0.stderr.take().expect("piped").read_to_string(&mut said).expect("UTF-8");
        (spind.0.wait().expect("it has ended").code(), said)
    };
    let (code, said) = refused(&folder);
    assert!(code == Some(69) && said.contains("in use by another spind"), "{code:?} {said}");
    let open = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o750)).expect("it is ours");
    let (code, said) = refused(open.path());
    assert!(code == Some(78) && said.contains("has mode 750") && said.contains("chmod 700"), "{code:?} {said}");
    let (code, said) = refused(Path::new("/nonexistent/state"));
    assert!(code == Some(69) && said.contains("/nonexistent/state") && said.contains("--state DIR"), "{code:?} {said}");
    if spin_tests::can_be_other_users() {
        std::os::unix::fs::chown(open.path(), Some(60_001), None).expect("root may");
        let (code, said) = refused(open.path());
        assert!(code == Some(78) && said.contains("belongs to user 60001"), "{code:?} {said}");
    }
}

#[test]
fn an_install_that_cannot_be_saved_is_refused_and_leaves_nothing() {
    let image = image("udp_pingpong");
    let spind = start(tempfile::tempdir().expect("a temporary folder"));
    let mut client = Client::connect(spind.socket()).expect("it listens");
    let kept = client.install(&persistent(1), &image).expect("installed").id;
    let folder = state(spind.socket().parent().expect("a folder"));
    // A removed folder takes no files, not even root's.
    fs::rename(&folder, folder.with_extension("away")).expect("it is ours");
    fs::remove_dir_all(folder.with_extension("away")).expect("it is ours");
    let refused = client.install(&persistent(2), &image).expect_err("no place for it").to_string();
    assert!(refused.contains("cannot write an entry in state folder"), "{refused}");
    assert_eq!((contexts(&mut client).len(), answers(&mut client, &[1, 2])), (1, 1));
    let refused = client.set_rules(kept, vec!["udp dport 3".into()], None).expect_err("it has no entry").to_string();
    assert!(refused.contains("cannot read an entry"), "{refused}");
    assert_eq!(answers(&mut client, &[1, 3]), 1, "the old rules");
}
