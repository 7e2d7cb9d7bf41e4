//! Texts of images cannot forge lines of the log, or control a terminal.

use std::fs;

use libspin::Client;
use spin_nic::pcap::{Packet, write_all};
use spin_tests::{Spind, udp};

use crate::client::rule;

/// A function's name in the image, and bytes of the same length that take its place.
const NAME: &str = "faulting_function_with_a_long_name_";
const FORGED: &str = "\nINFO user 0 removed\r\u{1b}[2Jcontext 77";

#[test]
fn names_in_an_image_and_prints_of_handlers_forge_nothing() {
    assert_eq!(NAME.len(), FORGED.len());
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("forges.c");
    let text = format!(
        "#include <spin.h>\n\
        __attribute__((noinline)) int {NAME}(volatile int *at) {{ return *at; }}\n\
        void payload_handler(handler_args_t *args) {{\n\
            (void)args;\n\
            spin_puts(\"print\\r\\x1b[2J\\n\");\n\
            if ({NAME}((volatile int *)16)) spin_puts(\"no\\n\");\n\
        }}\n"
    );
    fs::write(&source, text).unwrap();
    let mut image = spin_handlers::build(&source);
    let at = image.windows(NAME.len()).position(|bytes| bytes == NAME.as_bytes()).expect("the symbol's name");
    image[at..at + NAME.len()].copy_from_slice(FORGED.as_bytes());
    let mut spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    client.install(&rule("udp dport 9001"), &image).unwrap();
    client.replay(&write_all(&[Packet::whole(0, udp(9001, b"x"))])).unwrap();
    spind.wait_for_log("fault 1 in payload handler");
    assert!(spind.logged.contains(r"print\r\u{1b}[2J"), "{}", spind.logged);
    let symbols = client.contexts().unwrap().into_iter().flat_map(|context| context.faults).map(|fault| fault.symbol);
    let symbols: Vec<_> = symbols.collect();
    // Other clients than spinctl print them, too.
    assert!(!symbols.is_empty() && !symbols.concat().contains(char::is_control), "{symbols:?}");
    for text in [spind.logged.clone(), spind.ctl_ok(&["stats"]), spind.ctl_ok(&["events", "1"])] {
        let forged = text.lines().any(|line| line.starts_with("INFO"));
        assert!(!forged && !text.contains(['\u{1b}', '\r']), "{text:?}");
    }
}
