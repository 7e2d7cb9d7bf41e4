//! Names of contexts: each user has names of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use libspin::{Install, Lifetime};
use spin_abi::control::{Reply, Request};
use spin_tests::{Spind, binary, image};

use crate::client::{ALICE, BOB, ROOT, ask, connect, install, may_run, rule};

/// Runs a copy of spinctl as a user. Returns its output, or its error.
fn spinctl(program: &Path, spind: &Spind, uid: u32, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments).arg("--socket").arg(spind.socket()).uid(uid).gid(uid);
    let output = command.output().expect("spinctl runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("spinctl prints UTF-8");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn a_name_stands_for_a_context_of_the_user_who_gives_it() {
    if !may_run() {
        return;
    }
    let spind = Spind::start_for_all_users(&["--nic", "loopback"]);
    // The folder of the socket is one that all users may enter, the folder of the programs may not be.
    let folder = spind.socket().parent().expect("a folder").to_owned();
    let (program, handlers) = (folder.join("spinctl"), folder.join("echo.elf"));
    fs::copy(binary("spinctl"), &program).unwrap();
    let echo = image("udp_pingpong");
    fs::write(&handlers, &echo).unwrap();
    fs::set_permissions(&handlers, fs::Permissions::from_mode(0o644)).unwrap();
    let [root, alice, bob] = [ROOT, ALICE, BOB].map(|uid| connect(&spind, uid));
    let named =
        |port: u32| Install { name: "echo".into(), lifetime: Lifetime::Daemon, ..rule(&format!("udp dport {port}")) };
    let hers = install(&alice, named(9001), &echo);
    let ctl = |uid: u32, arguments: &[&str]| spinctl(&program, &spind, uid, arguments);
    let replace = ["install", "--replace", "echo", handlers.to_str().unwrap(), "--rule", "udp dport 9002"];
    for arguments in [&["rm", "echo"][..], &["events", "echo"], &["dump", "echo"], &replace] {
        let error = ctl(BOB, arguments).unwrap_err();
        assert!(error.contains("no context \"echo\" is installed"), "{arguments:?}: {error}");
    }
    let his = install(&bob, named(9002), &echo);
    assert_eq!(
        ctl(ROOT, &["rm", "echo"]).unwrap_err(),
        format!("spinctl: 2 contexts are named \"echo\"; name one by its id ({hers}, {his})\n")
    );
    let roots = install(&root, named(9003), &echo);
    assert_eq!(ctl(ROOT, &["rm", "echo"]).unwrap(), format!("removed context {roots}\n"));
    let new = roots + 1;
    assert_eq!(ctl(BOB, &replace).unwrap(), format!("installed context {new} in place of {his}\n"));
    assert_eq!(ctl(BOB, &["rm", "echo"]).unwrap(), format!("removed context {new}\n"));
    let Reply::Contexts { contexts } = ask(&root, &Request::List, &[]) else { panic!("a list") };
    assert_eq!(contexts.iter().map(|context| context.context).collect::<Vec<_>>(), [hers]);
    assert!(
        ctl(BOB, &["list"]).unwrap().contains(&format!("{hers:>4}  -                 {ALICE}")),
        "without its name"
    );
    assert_eq!(ctl(ROOT, &["rm", "echo"]).unwrap(), format!("removed context {hers}\n"));
}
