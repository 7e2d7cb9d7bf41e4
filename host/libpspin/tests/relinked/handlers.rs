//! The environment of handlers, and the outcome of faulty ones.

use std::path::Path;

use crate::build::{Link, Ran, Workshop};

/// Runs a program that prints the words that handlers sent to the host.
fn told(workshop: &Workshop, arguments: &[&str], compiler: &str) -> Ran {
    let program = workshop.program("tests/relinked/programs/words.c", Link::Shared);
    let image = workshop.handlers(compiler);
    let arguments = [&[image.to_str().expect("UTF-8")], arguments].concat();
    workshop.run(&program, &arguments)
}

fn words(ran: &Ran) -> Vec<(u64, u64)> {
    let word = |line: &&str| {
        let (at, value) = line.split_once(' ')?;
        Some((at.parse().ok()?, u64::from_str_radix(value, 16).ok()?))
    };
    ran.after("word ").iter().map(|line| word(line).expect("a word")).collect()
}

fn ok(arguments: &[&str]) -> Ran {
    let ran = told(&Workshop::new(), arguments, "clang");
    assert!(ran.success && ran.err.is_empty(), "{ran:?}");
    ran
}

/// The flow is the lower 8 bits of the message id.
#[test]
fn the_flow_is_the_message_s_queue() {
    for (msgid, flow) in [("0", 0), ("255", 255), ("256", 0), ("1023", 255), ("4294967295", 255), ("4660", 0x34)] {
        let ran = ok(&["count_ph", msgid]);
        assert_eq!(words(&ran), [(0, 2 << 56 | flow << 32)], "{msgid}");
    }
}

/// The second context's scratchpads begin 409,600 bytes after the first one's.
#[test]
fn tasks_are_told_where_everything_is() {
    for compiler in ["clang", "gcc"] {
        let ran = told(&Workshop::new(), &["where_ph", "2", "3"], compiler);
        assert!(ran.success, "{ran:?}");
        let mut expected = Vec::new();
        for (number, msgid) in [(0_u64, 2_u64), (1, 3)] {
            expected.push((0, (0x1c30_0000 + number * 0x8_0000) << 32 | 0x8_0000));
            for cluster in 0..4 {
                let scratchpad = 0x1001_5000 + cluster * 0x40_0000 + number * 409_600;
                expected.push((1 + cluster, scratchpad << 32 | 409_600));
            }
            expected.push((5, msgid << 48 | msgid << 32 | 100));
            expected.push((6, 0x4000_0000));
        }
        assert_eq!(words(&ran), expected);
    }
}

/// Both contexts write the first and the last word of all their memories, and find their own values again.
#[test]
fn contexts_do_not_share_memory() {
    let ran = ok(&["keep_ph", "0", "1", "4", "5"]);
    let words = words(&ran);
    let of_packet = |number: usize| words[5 * number..][..5].iter().map(|(_, word)| *word).collect::<Vec<_>>();
    // The machine has one handler memory, so the first context's begins at an address where the image has its own.
    assert_eq!(of_packet(0), [0, 0, 0, 0, 11 << 32]);
    assert_eq!(of_packet(1), [0; 5], "what the first left is not there");
    // The program numbers its packets; the handler adds one.
    assert_eq!(of_packet(2), [0x1_0000_0001; 5]);
    assert_eq!(of_packet(3), [0x2_0000_0002; 5]);
}

fn ended(handler: &str) -> Ran {
    let ran = told(&Workshop::new(), &[handler, "0", "1"], "clang");
    assert!(ran.success, "{ran:?}");
    assert_eq!(ran.after("released "), ["0", "1"], "the messages are complete");
    ran
}

#[test]
fn other_contexts_memory_is_out_of_reach() {
    let ran = ended("spy_ph");
    assert_eq!(words(&ran), []);
    assert!(
        ran.err.contains("payload handler of message 0 was ended: load outside its memory (pc 0x1d00"),
        "{}",
        ran.err
    );
    let address = 0x1001_5000 + 409_600;
    assert!(ran.err.contains(&format!("address {address:#010x}) in spy_ph+0x")), "{}", ran.err);
    assert!(ran.out.contains("\nHandlers ended by faults: 2; commands not carried out: 0\n"), "{}", ran.out);
}

#[test]
fn a_fault_is_told_with_its_place() {
    let ran = ended("null_ph");
    let lines: Vec<_> = ran.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ran.err);
    assert!(lines[1].starts_with("libpspin: payload handler of message 1 was ended: store outside its memory"));
    assert!(lines[1].contains("in null_ph+0x") && lines[1].contains("handlers.c:"), "{}", lines[1]);
}

#[test]
fn a_handler_that_never_ends_is_ended() {
    let ran = ended("endless_ph");
    assert!(ran.err.contains("message 0 was ended: ran over its instruction limit"), "{}", ran.err);
    assert!(ran.err.contains("in endless_ph+0x"), "{}", ran.err);
}

/// Handlers that wait for each other all complete; the program releases them from its callback.
#[test]
fn handlers_wait_for_each_other_and_for_the_program() {
    let workshop = Workshop::new();
    let program = workshop.program("tests/relinked/programs/meeting.c", Link::Shared);
    for compiler in ["clang", "gcc"] {
        let image = workshop.handlers(compiler);
        let ran = workshop.run(&program, &[image]);
        assert!(ran.success && ran.err.is_empty(), "{ran:?}");
        assert_eq!(ran.out.lines().next(), Some("met 1 told 8 released 8"));
    }
}

#[test]
fn who_waits_in_vain_is_ended() {
    let ran = ended("locked_ph");
    assert!(ran.err.contains("message 0 was ended: ran over its instruction limit"), "{}", ran.err);
    assert!(ran.err.contains(" in spin_lock_lock+0x") || ran.err.contains(" in locked_ph+0x"), "{}", ran.err);
}

#[test]
fn locks_are_locks() {
    let workshop = Workshop::new();
    let program = workshop.program("examples/generic_driver.c", Link::Shared);
    let image = workshop.handlers("clang");
    let image = image.to_str().expect("UTF-8");
    let options = ["-m", "1", "-p", "200", "-s", "64", "-d", "0"];
    let ran = workshop.run(&program, &[&options[..], &[image, "lock_ph"]].concat());
    assert!(ran.success && ran.err.is_empty(), "{ran:?}");
    let counts: Vec<u32> = ran.after("host write ").iter().map(|line| last_number(line)).collect();
    assert_eq!(counts, (0..200).collect::<Vec<_>>());
}

fn last_number(line: &str) -> u32 {
    line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// The bytes sent are bounded, however many commands a handler issues.
#[test]
fn a_flood_of_commands_is_refused() {
    let ran = ended("flood_ph");
    assert!(ran.err.contains("ran over its instruction limit"), "{}", ran.err);
    let sent: usize = ran.after("sent ").iter().map(|line| line.parse::<usize>().expect("a length")).sum();
    assert_eq!(sent, 2 * (16 << 20), "as much as a task may");
    assert!(!ran.out.contains("commands not carried out: 0\n"), "{}", ran.out);
}

#[test]
fn sends_are_cut_and_come_from_l2_too() {
    let ran = ok(&["halves_ph", "7"]);
    assert_eq!(ran.after("sent "), ["50", "50"]);
    let workshop = Workshop::new();
    let ran = told(&workshop, &["-s", "4096", "halves_ph", "7"], "clang");
    assert_eq!(ran.after("sent "), ["2048", "2048"]);
    let ran = told(&workshop, &["-s", "4096", "-m", "1500", "halves_ph", "7"], "clang");
    assert_eq!(ran.after("sent "), ["1500", "548", "1500", "548"], "no packet is longer than max_pkt_size");
}

#[test]
fn puts_are_divided_into_packets() {
    let ran = ok(&["put_ph", "7"]);
    assert_eq!(ran.after("sent "), ["1500", "1500", "96"]);
}

#[test]
fn lines_that_handlers_print_are_the_program_s() {
    // Code of this size is interpreted, which may be reported.
    let ran = told(&Workshop::new(), &["print_ph", "9", "6"], "clang");
    assert!(ran.success, "{ran:?}");
    assert_eq!(ran.after("[1.0] "), ["flow 9"]);
    assert_eq!(ran.after("[2.0] "), ["flow 6"]);
}

/// The image is initialised once, its data exist once for all contexts, and programs can access them.
#[test]
fn an_image_s_data_are_there_once() {
    let ran = ok(&["data_ph", "0", "1"]);
    assert_eq!(words(&ran), [(0, 1 << 32 | 22), (0, 1 << 32 | 23)]);
}

/// A trace in the library's format. Its program names no image; the environment variable does.
#[test]
fn traces_are_read() {
    let workshop = Workshop::new();
    let image = workshop.handlers("clang");
    let program = workshop.program("tests/relinked/programs/trace.c", Link::Shared);
    let ph = symbol(&image, "echo_ph");
    let line = |msgid: u32, len: u32, xfer: u32, eom: u32, wait: u32| {
        format!("{msgid},0,0,{ph},4096,0,0,{},4096,{len},{xfer},{eom},{wait}\n", 0x1c30_0000)
    };
    let trace = workshop
        .file("packets.txt", [line(1, 100, 100, 0, 7), line(1, 40, 20, 1, 0), line(2, 1, 1, 1, 0)].concat().as_bytes());
    let data = workshop.file("data", &(0..141).collect::<Vec<u8>>());
    let run = |name: Option<&Path>| {
        let mut command = std::process::Command::new(&program);
        command.arg(&trace).arg(&data).envs(name.map(|path| ("PSPIN_IMAGE", path)));
        let output = command.output().expect("it starts");
        (output.status.success(), [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8")))
    };
    let (success, [out, err]) = run(Some(&image));
    assert!(success && err.is_empty(), "{out}{err}");
    // The handler inverts byte 28 of packets that are long enough.
    let sent: Vec<_> = out.lines().filter_map(|line| line.strip_prefix("sent ")).collect();
    assert_eq!(sent, ["100 0 227", "20 100 0", "1 140 0"]);
    let (success, [_, err]) = run(None);
    assert!(!success && err.contains("line 1: execution context: no image is loaded"), "{err}");
}

/// Returns the address of a function.
fn symbol(image: &Path, name: &str) -> u32 {
    let elf = std::fs::read(image).expect("an image");
    let image = hpu_vm::Image::load(&elf, &pspin::MACHINE).expect("an image");
    image.symbol(name).expect("it has that function")
}
