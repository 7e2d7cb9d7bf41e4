//! The log's lines about changes of contexts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use libspin::{Client, Install};
use spin_nic::pcap::{Packet, write_all};
use spin_tests::{ACTION_TIMEOUT, Killed, binary, image, udp, wait_until};

use crate::client::rule;

/// A context prints more lines than spind queues, while nobody reads the log. Later changes are logged all the same.
#[test]
fn what_handlers_print_hides_no_change() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("talks.c");
    let text =
        "#include <spin.h>\nvoid payload_handler(handler_args_t *args) { (void)args; spin_puts(\"again\\n\"); }\n";
    fs::write(&source, text).unwrap();
    let socket = folder.path().join("spind.sock");
    let mut command = Command::new(binary("spind"));
    command.args(["--nic", "loopback", "--socket"]).arg(&socket).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut spind = Killed(command.spawn().expect("spind starts"));
    wait_until(|| Client::connect(&socket).is_ok_and(|mut client| client.contexts().is_ok()));
    let mut client = Client::connect(&socket).unwrap();
    client.install(&rule("udp dport 9001"), &spin_handlers::build(&source)).unwrap();
    client.replay(&write_all(&vec![Packet::whole(0, udp(9001, b"x")); 8000])).unwrap();
    let echo = image("udp_pingpong");
    let changed: Vec<u32> = (0..20)
        .map(|number| {
            let named = Install { name: format!("late{number}"), ..rule("udp dport 9002") };
            let id = client.install(&named, &echo).unwrap().id;
            client.remove(id).unwrap();
            id
        })
        .collect();
    let (lines, log) = mpsc::channel();
    let stderr = BufReader::new(spind.0.stderr.take().expect("piped"));
    std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
    let mut logged = String::new();
    let last = format!("removed context {}", changed[19]);
    while !logged.contains(&last) {
        logged += &log.recv_timeout(ACTION_TIMEOUT).unwrap_or_else(|_| panic!("{last:?} was not logged"));
        logged.push('\n');
    }
    for (number, id) in changed.iter().enumerate() {
        for line in [
            format!("installed \"late{number}\" for udp dport 9002 as context {id}\n"),
            format!("removed context {id}\n"),
        ] {
            assert!(logged.contains(&line), "{line:?} is not logged");
        }
    }
    assert!(logged.contains("lines of the log were lost"), "this test filled the queue");
}
