//! The generic driver: messages, traces, two contexts, and results that are identical in every run.

use crate::build::{Link, Ran, Workshop};

/// Runs the generic driver with `handlers`, which follow its options: payload, header, completion.
fn run(options: &[&str], handlers: &[&str]) -> Ran {
    let workshop = Workshop::new();
    let program = workshop.program("examples/generic_driver.c", Link::Shared);
    let image = workshop.handlers("clang");
    let image = image.to_str().expect("UTF-8");
    let arguments = [options, &[image], handlers].concat();
    workshop.run(&program, &arguments)
}

fn ok(options: &[&str], handlers: &[&str]) -> Ran {
    let ran = run(options, handlers);
    assert!(ran.success && ran.err.is_empty(), "{ran:?}");
    ran
}

/// Words that handlers sent to the host: the first byte of each write.
fn first_bytes(ran: &Ran) -> Vec<u32> {
    let lines = ran.after("host write ");
    lines.iter().map(|line| line.rsplit(' ').next().and_then(|byte| byte.parse().ok()).expect("a byte")).collect()
}

#[test]
fn by_default_one_message_of_32_packets_comes_back() {
    let ran = ok(&[], &["echo_ph"]);
    assert_eq!(ran.after("sent "), ["1024 bytes, first 84"; 32]);
    assert_eq!(ran.after("released "), ["32"]);
    let mut users: Vec<u32> = ran
        .after("packet ")
        .iter()
        .map(|line| line.split(':').next().and_then(|user| user.parse().ok()).expect("a number"))
        .collect();
    users.sort_unstable();
    assert_eq!(users, (0..32).collect::<Vec<_>>(), "each packet once");
}

#[test]
fn arrivals_follow_the_delays() {
    let arrivals = |options: &[&str]| -> Vec<u64> {
        let ran = ok(options, &["count_ph"]);
        let arrival = |line: &&str| line.split(' ').nth(2).and_then(|time| time.parse().ok()).expect("a time");
        let mut arrivals: Vec<u64> = ran.after("packet ").iter().map(arrival).collect();
        arrivals.sort_unstable();
        arrivals
    };
    // 128 bytes take two cycles.
    assert_eq!(
        arrivals(&["-m", "2", "-p", "3", "-s", "128", "-d", "5", "-l", "100"]),
        [0, 7000, 14_000, 116_000, 123_000, 130_000]
    );
    assert_eq!(arrivals(&["-p", "3", "-s", "64", "-d", "0"]), [0, 1000, 2000]);
}

#[test]
fn the_statistics_are_all_there() {
    let ran = ok(&["-m", "4", "-p", "8", "-s", "256"], &["echo_ph"]);
    let (_, block) = ran.out.split_once("###### Statistics ######\n").expect("statistics");
    let blocks: Vec<&str> = block.split("----------------------------------------\n").collect();
    let starts = ["Times are virtual", "NIC outbound engine:\n", "PCIe Slave:\n", "PCIe Master:\n", ""];
    assert_eq!(blocks.len(), starts.len(), "{block}");
    for (block, start) in blocks.iter().zip(starts) {
        assert!(block.starts_with(start), "{block}");
    }
    assert!(blocks[0].contains("NIC inbound engine:\n\tPackets: 32; Bytes: 8192\n\tAvg packet length: 256.000 B\n"));
    for part in ["\tFeedback throughput: ", "\tPacket latency: avg: ", "\tHER stalls: 0\n"] {
        assert!(blocks[0].contains(part), "{}", blocks[0]);
    }
    assert!(blocks[1].contains("\tCommands: 32; Packets: 32; Bytes: 8192\n"), "{}", blocks[1]);
}

#[test]
fn two_runs_are_equal_to_the_byte() {
    let options = ["-m", "40", "-p", "20", "-s", "700", "-d", "0", "-l", "0"];
    let handlers = ["count_ph", "count_hh", "count_th"];
    let (first, second) = (ok(&options, &handlers), ok(&options, &handlers));
    assert_eq!(first.after("released "), ["800"]);
    assert_eq!(first, second);
}

/// The header handler runs first and the completion handler last, and all handlers of a message see its flow.
#[test]
fn handlers_of_a_message_run_in_order() {
    // Handlers send the counter's lowest byte first.
    let ran = ok(&["-p", "100", "-s", "64", "-d", "0"], &["count_ph", "count_hh", "count_th"]);
    assert_eq!(first_bytes(&ran), (0..102).collect::<Vec<_>>());
    assert_eq!(ran.after("released "), ["100"]);
}

#[test]
fn contexts_count_on_scratchpads_of_their_own() {
    // Messages 0 to 7 alternate between the contexts; messages 0 and 4 of the first count on cluster 0, and so on.
    let ran = ok(&["-m", "8", "-p", "4", "-s", "64", "-l", "5000"], &["count_ph"]);
    let expected: Vec<u32> = (0..8).flat_map(|message| (0..4).map(move |packet| message / 4 * 4 + packet)).collect();
    assert_eq!(first_bytes(&ran), expected);
}

#[test]
fn a_trace_says_sources_sizes_gaps_messages_and_ends() {
    let workshop = Workshop::new();
    let program = workshop.program("examples/generic_driver.c", Link::Shared);
    let image = workshop.handlers("clang");
    let run = |trace: &str| {
        let trace = workshop.file("trace", trace.as_bytes());
        workshop.run(&program, &["-t".as_ref(), trace.as_os_str(), image.as_os_str(), "echo_ph".as_ref()])
    };
    let ran = run("2 5 200\n0 1 64 10 1 0\n1 0 128 0 2 1\n0 1 0 500 0 0\n0 1 200 0 1 1\n1 0 64 0 3 1\n");
    assert!(ran.success, "{ran:?}");
    assert_eq!(ran.after("sent "), ["64", "128", "64", "200"].map(|len| format!("{len} bytes, first 84")));
    // Sorted, since messages overtake each other.
    let mut arrivals: Vec<&str> =
        ran.after("packet ").iter().map(|line| line.split(' ').nth(2).expect("a time")).collect();
    arrivals.sort_by_key(|time| time.parse::<u64>().expect("a number"));
    // 64 B take 1 cycle, then 10 to wait; 128 B take 2, then 500; 200 B take 4.
    assert_eq!(arrivals, ["0", "11000", "513000", "517000"]);
    for wrong in
        ["", "1 1", "1 1 5000\n0 0 64 0 0 1", "1 2 64\n0 0 64 0 0 1", "1 1 64\n7 0 64 0 0 1", "1 1 64\n0 0 65 0 0 1"]
    {
        assert_eq!(run(wrong).code, Some(1), "{wrong:?}");
    }
}

/// While the home cluster is full, a message's tasks run on other clusters. Handlers are told the home cluster.
#[test]
fn tasks_overflow_to_other_clusters() {
    let workshop = Workshop::new();
    let program = workshop.program("examples/generic_driver.c", Link::Shared);
    let image = workshop.handlers("clang");
    let image = image.to_str().expect("UTF-8");
    let ran = workshop.run(&program, &["-m", "1", "-p", "100", "-s", "64", "-d", "0", image, "home_ph"]);
    assert!(ran.success, "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().filter(|line| line.ends_with("] home 0")).collect();
    assert_eq!(lines.len(), 100);
    assert_eq!(lines[..2], ["[0.0] home 0", "[0.1] home 0"], "the home cluster's idle HPUs, in order");
    for cluster in 0..4 {
        for hpu in 0..8 {
            assert!(lines.contains(&&*format!("[{cluster}.{hpu}] home 0")), "cluster {cluster}, HPU {hpu}");
        }
    }
}

/// Packets that arrive faster than handlers process them are held back, and all are processed.
#[test]
fn more_packets_than_there_is_room_for_are_held_back() {
    let ran = ok(&["-m", "6", "-p", "1000", "-s", "1024", "-d", "0", "-l", "0"], &["slow_ph"]);
    assert_eq!(ran.after("released "), ["6000"]);
    let stalls = ran.after("\tHER stalls: ");
    assert!(stalls[0].parse::<u64>().expect("a number") > 0, "{stalls:?}");
}
