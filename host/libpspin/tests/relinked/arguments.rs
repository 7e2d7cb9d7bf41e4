//! Invalid arguments and files are refused and reported, without other effects.

use crate::build::{Link, Workshop};

#[test]
fn what_nobody_should_pass_is_refused() {
    let workshop = Workshop::new();
    let program = workshop.program("tests/relinked/programs/abuse.c", Link::Shared);
    let image = workshop.handlers("clang");
    let bytes = std::fs::read(&image).unwrap();
    let mut arguments = vec![image];
    // Files that are neither an image nor a trace. An empty file is missing here: it is a valid trace without packets.
    for (name, content) in [
        ("text", &b"no such thing"[..]),
        ("cut", &bytes[..bytes.len() / 2]),
        ("header", &bytes[..52]),
        ("numbers", b"1,2,3\n4,5,6\n"),
        ("zeroes", &[0; 4096]),
        ("early", b"0,0,0,0,0,0,0,0,0,4000,64,1,0"),
        ("long", b"0,0,0,0,0,0,0,0,0,4294967295,64,1,0"),
    ] {
        arguments.push(workshop.file(name, content));
    }
    let ran = workshop.run(&program, &arguments);
    assert!(ran.success, "{ran:?}");
    assert!(ran.out.contains("calls as they should be"), "{ran:?}");
    assert!(ran.err.lines().all(|line| line.starts_with("libpspin: ")), "{}", ran.err);
    for told in [
        "pspinsim_run: pspinsim_init was not called",
        "pspinsim_init: configuration: network_G is -1",
        "pspinsim_init: configuration: max_pkt_size is 0",
        "pspinsim_init: the simulation is initialised already",
        "pspinsim_packet_add: ec is NULL",
        "pspinsim_packet_add: a packet of 4097 bytes: 1 to 4096",
        "pspinsim_packet_add: execution context: ph_addr is 0x00000001",
        "no function \"no_such_handler\"",
        "pspinsim_run: all packets are through, and no more can come",
    ] {
        assert!(ran.err.contains(told), "{told}\n{}", ran.err);
    }
}

/// Tests a name that the image does not have, and an image that does not exist.
#[test]
fn names_that_are_not_there_are_told() {
    let workshop = Workshop::new();
    let program = workshop.program("examples/generic_driver.c", Link::Shared);
    let image = workshop.handlers("clang");
    let ran = workshop.run(&program, &[image.as_os_str(), "echo_ph".as_ref(), "-".as_ref(), "nothing".as_ref()]);
    assert!(ran.success, "an unknown name is told, and no more: {ran:?}");
    assert!(ran.err.contains("no function \"nothing\": the handler stays as it was"), "{}", ran.err);
    let ran = workshop.run(&program, &["/nowhere", "echo_ph"]);
    assert_eq!((ran.code, ran.err.contains("/nowhere: cannot be read")), (Some(1), true), "{ran:?}");
}
