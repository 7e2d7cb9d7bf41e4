//! Real handlers, compiled by `spin-cc`, on the engine in memory.

mod common;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use common::{Kind, Lab, NO_END, ROOT, payload, rule, udp, udp_from};
use spin_abi::command::Direction;
use spin_abi::control::{Checks, Full, Install, Isolation, Schedule};
use spin_abi::counters::Counter;
use spin_abi::events::{DOORBELL, What};
use spin_abi::fault::Cause;
use spin_abi::map::Machine;
use spin_engine::install::{HOST_ADDRESS, InstallError, User};
use spin_engine::settings::Sizes;

/// Runs each of these tests on every execution engine.
macro_rules! on_every_engine {
    ($($test:ident)*) => {
        on_every_engine!(interp Interp, $($test)*);
        on_every_engine!(jit Jit, $($test)*);
        on_every_engine!(check Check, $($test)*);
    };
    ($module:ident $kind:ident, $($test:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::$test(super::Kind::$kind);
                }
            )*
        }
    };
}

on_every_engine! {
    pingpong_answers_each_datagram_from_its_own_buffer
    what_matches_no_context_is_counted_and_not_touched
    every_buffer_comes_back
    sends_of_both_copies_leave_in_order_and_differ
    misbehaving_handlers_are_ended_and_named
    faults_of_an_image_built_with_g_name_the_source_line
    faults_in_inlined_functions_of_the_sdk_name_the_handlers_own_line
    stores_outside_are_faults_wherever_they_go
    one_context_never_reads_what_another_left
    host_memory_by_dma_and_host_direct
    headers_are_kept_for_the_host
    the_host_is_told_of_copies_that_ask_for_it
    puts_are_divided_into_packets
    header_payload_completion_in_order
    removal_drops_what_open_messages_hold
    open_messages_exhaust_queues_and_the_loss_is_counted
    open_messages_of_one_context_do_not_keep_out_another
    when_the_greediest_is_busy_the_next_gives_way
    a_context_alone_ends_its_own_messages_only_when_they_are_old
    messages_that_wait_too_long_end
    commands_count_against_the_limit
    a_send_is_complete_once_its_task_is
    frames_longer_than_the_nic_takes_are_refused
    a_nic_that_keeps_old_rules_does_not_mix_up_contexts
    requests_beyond_the_machine_are_refused
}

fn pingpong_answers_each_datagram_from_its_own_buffer(kind: Kind) {
    let mut lab = Lab::new(kind);
    let id = lab.install("udp_pingpong", "udp dport 9999");
    let requests: Vec<_> = (0..100u8).map(|n| udp_from(2000 + u16::from(n), 9999, &[n; 64])).collect();
    let mut replies = lab.exchange(&requests);
    assert_eq!(replies.len(), 100);
    // Each reply goes to another port. Replies of a batch come cluster by cluster.
    replies.sort_by(|one, other| one[36..38].cmp(&other[36..38]));
    for (request, reply) in requests.iter().zip(&replies) {
        assert_eq!(reply[..6], request[6..12], "to the sender's MAC");
        assert_eq!(reply[6..12], request[..6]);
        assert_eq!(reply[26..30], request[30..34], "from the address asked");
        assert_eq!(reply[34..36], request[36..38], "from the port asked");
        assert_eq!(payload(reply), payload(request));
    }
    assert_eq!(lab.total(Counter::PayloadRuns), 100);
    assert_eq!(lab.total(Counter::TxMoved), 100, "sent without a copy");
    assert_eq!(lab.total(Counter::Messages), 100, "each datagram is a message");
    assert_eq!(lab.total(Counter::Released), 100);
    assert!(lab.faults(id).is_empty());
}

fn what_matches_no_context_is_counted_and_not_touched(kind: Kind) {
    let mut lab = Lab::new(kind);
    lab.install("udp_pingpong", "udp dport 9999");
    assert!(lab.exchange(&[udp(9998, b"no"), vec![0; 14], vec![0; 60]]).is_empty());
    assert_eq!(lab.total(Counter::DropUnmatched), 3);
    assert_eq!(lab.total(Counter::RxPackets), 3);
    assert_eq!(lab.total(Counter::PayloadRuns), 0);
}

fn every_buffer_comes_back(kind: Kind) {
    let mut lab = Lab::with(kind, Machine::FPSPIN, 32);
    for name in ["udp_pingpong", "double_send", "endless_loop", "store_outside"] {
        let (id, _) = lab.install_with(name, Install { instruction_limit: Some(10_000), ..rule("udp dport 9999") });
        for round in 0..200u8 {
            // The memory pair has 32 buffers: a leak would show within the first rounds.
            lab.exchange(&[udp(9999, b"e"), udp(9999, &[round; 100]), udp(1, b"unmatched")]);
        }
        lab.engine.remove(id, ROOT).expect("installed");
    }
    assert_eq!(lab.total(Counter::Matched), 4 * 400);
    assert_eq!(lab.total(Counter::Released), 4 * 400);
}

fn sends_of_both_copies_leave_in_order_and_differ(kind: Kind) {
    let mut lab = Lab::new(kind);
    lab.install("double_send", "udp dport 9999");
    let request = udp(9999, &[0x0f; 20]);
    let replies = lab.exchange(std::slice::from_ref(&request));
    assert_eq!(replies.len(), 2);
    assert_eq!(replies[0], request, "the L2 copy is as it came: writes to the L1 copy do not reach it");
    assert_eq!(replies[1].last(), Some(&0xf0));
    assert_eq!(lab.total(Counter::TxMoved), 0, "whoever waits for a send gets a copy at once");
}

/// Sends one packet to a misbehaving handler and checks that it is ended for `cause`. The next packet of a well-behaved context
/// has to be answered.
fn ends_with(kind: Kind, handler: &str, request: &[u8], cause: Cause) -> (Lab, u32) {
    let mut lab = Lab::new(kind);
    let (bad, _) = lab.install_with(handler, Install { checks: Checks::Exact, ..rule("udp dport 1") });
    lab.install("udp_pingpong", "udp dport 9999");
    let replies = lab.exchange(&[udp(1, request), udp(9999, b"next")]);
    assert_eq!(replies.len(), 1, "{handler}: the next packet is processed");
    let faults = lab.faults(bad);
    assert_eq!(faults.len(), 1, "{handler}");
    assert_eq!(faults[0].fault.cause, cause, "{handler}: {faults:?}");
    assert_eq!(faults[0].handler, "payload");
    assert_eq!(lab.total(Counter::Released), 2, "{handler}: the packet's buffer is released");
    (lab, bad)
}

fn misbehaving_handlers_are_ended_and_named(kind: Kind) {
    let (lab, id) = ends_with(kind, "wild_jump", b"", Cause::InstructionAccess);
    assert_eq!(lab.faults(id)[0].fault.address, 0x2000);
    let (lab, id) = ends_with(kind, "endless_loop", b"", Cause::Watchdog);
    assert!(lab.faults(id)[0].symbol.starts_with("payload_handler"), "{:?}", lab.faults(id));
    ends_with(kind, "illegal", b"", Cause::IllegalInstruction);
    let (lab, id) = ends_with(kind, "null_load", b"", Cause::LoadAccess);
    assert_eq!(lab.faults(id)[0].fault.address, 0);
    let (lab, id) = ends_with(kind, "stack_overflow", b"", Cause::StackOverflow);
    assert!(lab.faults(id)[0].symbol.starts_with("dig"), "{:?}", lab.faults(id));
}

fn faults_of_an_image_built_with_g_name_the_source_line(kind: Kind) {
    let source = spin_handlers::source("null_load");
    let text = std::fs::read_to_string(&source).unwrap();
    let expected = 1 + text.lines().position(|line| line.contains("*(volatile uint32_t *)0")).expect("the load");
    let fault = |arguments: &[&str]| {
        let image = spin_handlers::try_build(&[&source], arguments).unwrap();
        let mut lab = Lab::new(kind);
        let (id, _) = lab.try_install(&image, rule("udp dport 1"), ROOT).unwrap();
        lab.exchange(&[udp(1, b"")]);
        lab.faults(id).pop().expect("a fault")
    };
    for version in ["-g", "-gdwarf-4", "-gdwarf-3"] {
        let fault = fault(&[version]);
        let line = fault.line.as_ref().map(ToString::to_string);
        assert_eq!(line, Some(format!("null_load.c:{expected}")), "{version}: {fault:?}");
        assert!(fault.symbol.starts_with("payload_handler+0x"), "{version}: {fault:?}");
    }
    assert_eq!(fault(&[]).line, None);
}

fn faults_in_inlined_functions_of_the_sdk_name_the_handlers_own_line(kind: Kind) {
    let source = spin_handlers::source("inlined_load");
    let text = std::fs::read_to_string(&source).unwrap();
    let own = 1 + text.lines().position(|line| line.contains("the own line")).expect("the call");
    let image = spin_handlers::try_build(&[&source], &["-g"]).unwrap();
    let mut lab = Lab::new(kind);
    let (id, _) = lab.try_install(&image, rule("udp dport 1"), ROOT).unwrap();
    lab.exchange(&[udp(1, b"")]);
    let fault = lab.faults(id).pop().expect("a fault");
    assert_eq!(fault.fault.cause, Cause::LoadAccess);
    let place = fault.place();
    let expected = format!(", inlined at inlined_load.c:{own})");
    assert!(place.starts_with("payload_handler+0x") && place.contains(" (spin_bytes.h:"), "{place}");
    assert!(place.ends_with(&expected), "{place}");
}

fn stores_outside_are_faults_wherever_they_go(kind: Kind) {
    for choice in [b'e', b'E', b'b', b'n', b's', b'h', b'c', b'w'] {
        ends_with(kind, "store_outside", &[choice], Cause::StoreAccess);
    }
    let mut lab = Lab::new(kind);
    lab.install("store_outside", "udp dport 1");
    assert_eq!(lab.exchange(&[udp(1, b"x")]).len(), 1, "without a bad store it answers");
}

fn one_context_never_reads_what_another_left(kind: Kind) {
    // The counter's image keeps its state. Another context of the same user shares it; another user's does not.
    let image = spin_handlers::build(&spin_handlers::source("counter"));
    let mut lab = Lab::new(kind);
    let (first, _) = lab.try_install(&image, rule("udp dport 1"), User(1000)).unwrap();
    lab.try_install(&image, rule("udp dport 2"), User(1000)).unwrap();
    lab.try_install(&image, rule("udp dport 3"), User(1001)).unwrap();
    let count = |lab: &mut Lab, port| {
        let reply = lab.exchange(&[udp(port, &[0; 8])]).pop().expect("a reply");
        u32::from_be_bytes(*reply.last_chunk().expect("four bytes"))
    };
    assert_eq!(count(&mut lab, 1), 1001);
    assert_eq!(count(&mut lab, 1), 1002);
    assert_eq!(count(&mut lab, 2), 1003, "an image is loaded once for its user");
    assert_eq!(count(&mut lab, 3), 1001, "but not shared between users");
    assert!(matches!(lab.engine.remove(first, User(1001)), Err(InstallError::NotYours { owner: 1000, .. })));
    lab.engine.remove(first, User(1000)).unwrap();
    assert_eq!(count(&mut lab, 2), 1004, "the image stays while a context uses it");
}

fn the_host_is_told_of_copies_that_ask_for_it(kind: Kind) {
    let mut lab = Lab::new(kind);
    let install = Install { host_mem: 4096, ..rule("udp dport 1") };
    let (id, host) = lab.install_with("told", install);
    // An order: the offset, and which copies emit events.
    let order = |offset: u32, told: [u8; 2]| udp(1, &[&offset.to_be_bytes()[..], &told, &[0xee; 30]].concat());
    let len = order(0, [0, 0]).len();
    lab.exchange(&[order(0, [0, 0]), order(64, [1, 0]), order(128, [0, 1]), order(4095, [1, 0])]);
    let [to, from] =
        [(Direction::ToHost, 64, len), (Direction::FromHost, 128, 4)].map(|(direction, offset, length)| What::Copied {
            direction,
            host: HOST_ADDRESS + offset,
            length: u32::try_from(length).expect("a frame"),
        });
    assert_eq!(lab.events(id), [to, from], "what was refused is not told of");
    let host = host.expect("host memory");
    let mut copied = [0; 2];
    host.read(64 + 46, &mut copied).expect("inside");
    assert_eq!(copied, [1, 0], "what is told of is there");
    let event_ring = lab.engine.event_ring(id, ROOT).expect("installed");
    assert!(event_ring.rings(DOORBELL) > 0);
}

#[test]
fn the_application_is_woken_when_its_events_have_waited_long_enough() {
    let mut lab = Lab::new(Kind::Jit);
    let install = Install { host_mem: 4096, doorbell_us: Some(50), ..rule("udp dport 1") };
    let (id, _) = lab.install_with("told", install);
    let event_ring = lab.engine.event_ring(id, ROOT).expect("installed");
    let told = udp(1, &[&[0; 4][..], &[1, 0], &[0xee; 30]].concat());
    for (now, rings) in [(0, 0), (40, 0), (50, 1), (60, 1)] {
        lab.now = Duration::from_micros(now);
        lab.arrive(std::slice::from_ref(&told));
        lab.poll();
        assert_eq!(event_ring.rings(DOORBELL), rings, "at {now} us");
    }
    // No packet arrives on which it could wait.
    lab.poll();
    assert_eq!(event_ring.rings(DOORBELL), 2);
    lab.poll();
    assert_eq!((event_ring.rings(DOORBELL), lab.events(id).len()), (2, 4));
}

fn host_memory_by_dma_and_host_direct(kind: Kind) {
    [1024, 16, 7].into_iter().for_each(|dma_chunk| host_memory_in_pieces(kind, dma_chunk));
}

fn host_memory_in_pieces(kind: Kind, dma_chunk: u32) {
    let sizes = Sizes { dma_chunk, ..Sizes::default() };
    let mut lab = Lab::sized(kind, Machine::PSPIN, 256, sizes, Schedule::default());
    let install = Install { host_mem: 4096, ..rule("udp dport 1") };
    let (id, host) = lab.install_with("dma_probe", install);
    let host = host.expect("host memory");
    let request = udp(1, &[0x55; 64]);
    let reply = lab.exchange(std::slice::from_ref(&request)).pop().expect("a reply");
    // Results: 0 is done, 3, 5 and 4 are bad host addresses, 6 is a bad NIC address, and 7 means that the bytes read back are
    // those written.
    assert_eq!(reply.last_chunk::<8>().unwrap(), &[0, 0, 0, 4, 4, 4, 3, 0]);
    let mut bytes = [0; 16];
    host.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, request[..16]);
    let mut last = [0; 8];
    host.read(4088, &mut last).unwrap();
    assert_eq!(u64::from_le_bytes(last), 0x1122_3344_5566_7788);
    let causes = [
        Counter::CommandErrors,
        Counter::CommandsBadHostAddress,
        Counter::CommandsBadNicAddress,
        Counter::CommandsBadLength,
    ];
    assert_eq!(causes.map(|cause| lab.count(id, cause)), [4, 3, 1, 0]);

    // The application reports where it mapped the region. The handler then uses that address.
    lab.engine.map_host(id, ROOT, 0x7000_0000_0000).unwrap();
    let reply = lab.exchange(&[request]).pop().expect("a reply");
    assert_eq!(reply.last_chunk::<8>().unwrap(), &[0, 0, 0, 4, 4, 4, 3, 0]);
    assert_ne!(HOST_ADDRESS, 0x7000_0000_0000);
}

/// Packets have different lengths. From the first one on, the L1 window is opened for that length.
fn headers_are_kept_for_the_host(kind: Kind) {
    const HEADERS: usize = 42;
    // A part for each cluster.
    const HOST: usize = 4 << 16;
    for (l1_bytes, isolation) in [(None, Isolation::Context), (Some(102), Isolation::Message)] {
        let mut lab = Lab::new(kind);
        let install = Install { host_mem: HOST as u64, l1_bytes, isolation, ..rule("udp dport 1") };
        let (id, host) = lab.install_with("keep_headers", install);
        let host = host.expect("host memory");
        let mut count = 0;
        for lengths in [[18, 59, 20, 60], [18, 18, 18, 18], [61, 18, 100, 1400]] {
            for (from, length) in (10..).zip(lengths) {
                let request = udp_from(from, 1, &vec![length as u8; length]);
                lab.exchange(std::slice::from_ref(&request));
                // A truncated packet is no datagram.
                let kept = l1_bytes.is_none_or(|len| request.len() <= len as usize);
                count += u64::from(kept);
                let mut memory = vec![0; HOST];
                host.read(0, &mut memory).unwrap();
                let places = memory.chunks(64).filter(|place| place[..HEADERS] == request[..HEADERS]);
                assert_eq!(places.count(), usize::from(kept), "{length} bytes from {from}, {l1_bytes:?} in L1");
                assert!(memory.chunks(64).all(|place| place[HEADERS..] == [0; 64 - HEADERS]), "no more than those");
            }
        }
        let counters = [Counter::CommandsDma, Counter::DmaToHostBytes, Counter::CommandErrors, Counter::Released];
        assert_eq!(counters.map(|counter| lab.count(id, counter)), [count, count * HEADERS as u64, 0, 12]);
        assert!(lab.faults(id).is_empty());
    }
}

/// The contents of host memory after batches of packets, and the counters. Each packet is a message. Its payload begins with the
/// given bytes.
fn copied(kind: Kind, handler: &str, batches: &[&[(&[u8], usize)]]) -> (Vec<u8>, [u64; 4]) {
    let mut lab = Lab::new(kind);
    let install = Install { host_mem: 8192, isolation: Isolation::Message, ..rule("udp dport 1") };
    let (id, host) = lab.install_with(handler, install);
    for batch in batches {
        let frames =
            batch.iter().map(|(begins, length)| udp(1, &[begins, &vec![0xa5; length - begins.len()][..]].concat()));
        lab.exchange(&frames.collect::<Vec<_>>());
    }
    assert!(lab.faults(id).is_empty(), "{:?}", lab.faults(id));
    let mut memory = vec![0; 8192];
    host.expect("host memory").read(0, &mut memory).expect("all of it");
    let counters =
        [Counter::CommandsDma, Counter::DmaToHostBytes, Counter::CommandErrors, Counter::CommandsBadNicAddress];
    (memory, counters.map(|counter| lab.count(id, counter)))
}

/// Translated code does not use the command unit for each copy.
#[test]
fn copies_are_the_same_whoever_makes_them() {
    let alike = |handler: &str, batches: &[&[(&[u8], usize)]]| {
        let expected = copied(Kind::Interp, handler, batches);
        for kind in [Kind::Jit, Kind::Check] {
            let found = copied(kind, handler, batches);
            assert_eq!(found.1, expected.1, "{kind:?}: {handler} {batches:?}");
            assert!(found.0 == expected.0, "{kind:?}: {handler} {batches:?}");
        }
        expected
    };
    // Into a window that no task opened.
    let (_, [copies, ..]) = alike("copies_unseen", &[&[(b"", 100)], &[(b"", 100), (b"", 18)], &[(b"", 1400)]]);
    assert_eq!(copies, 8);
    // The packet in between is too short for both copies. The one behind it, in the same batch, is not.
    let long: (&[u8], usize) = (b"l\x50", 1000);
    let (_, [copies, .., outside]) = alike("copies_seen", &[&[long], &[long, (b"l\x50", 20), long], &[(b"l\x09", 30)]]);
    assert_eq!((copies, outside), (8, 2));
    // The next message does not see what one message did.
    let (memory, _) = alike("copies_seen", &[&[(b"n\x01", 20)], &[(b"n\x05", 20), (b"h\x00", 20)]]);
    assert_eq!(memory[4096], 1, "the first handle");
    for others in [7, 8, 9] {
        let (memory, _) = alike("copies_seen", &[&[(b"n\x01", 20)], &[(&[b's', others], 20)]]);
        assert_eq!(memory[4097], 1, "{others}");
    }
}

fn puts_are_divided_into_packets(kind: Kind) {
    let mut lab = Lab::new(kind);
    let install = Install { host_mem: 8192, handler_mem: 8192, ..rule("udp dport 1") };
    let (_, host) = lab.install_with("puts", install);
    let bytes: Vec<u8> = (0..1469_u32).map(|index| (index / 3) as u8).collect();
    host.expect("host memory").write(0, &bytes).unwrap();
    let mut sent = lab.exchange(&[udp(1, &[0; 64])]);
    // Refused commands: bad NIC address, bad host address, bad length.
    let reply = sent.pop().expect("a reply");
    assert_eq!(reply.last_chunk::<6>().unwrap(), &[0, 0, 3, 4, 5, 5]);
    assert_eq!((sent.len(), lab.total(Counter::CommandErrors)), (5, 4));
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [1500, 1500, 32 + 1064, 1500, 33]);
    for packet in &sent {
        assert_eq!(packet[..14], [2, 0x50, 0, 0, 0, 7, 2, 0x50, 0, 0, 0, 0, 0x88, 0xb5]);
        assert_eq!(packet[16..20], [0, 0, 0, 9]);
    }
    assert_eq!(sent.iter().map(|packet| packet[15]).collect::<Vec<_>>(), [0, 0, 1, 0, 1]);
    let together = |packets: &[Vec<u8>]| packets.iter().flat_map(|packet| &packet[32..]).copied().collect::<Vec<_>>();
    assert_eq!(together(&sent[..3]), (0..4000).map(|index| index as u8).collect::<Vec<_>>());
    assert_eq!(together(&sent[3..]), bytes);
    assert_ne!(sent[0][20..24], sent[3][20..24], "another put has another handle");
    // Packets that the NIC does not take are not sent in part.
    lab.longest.store(1499, Relaxed);
    let reply = lab.exchange(&[udp(1, &[0; 64])]);
    assert_eq!(reply.iter().map(|frame| frame.last_chunk::<6>()).collect::<Vec<_>>(), [Some(&[5, 5, 3, 4, 5, 5])]);
}

/// Marks that `three_handlers` left in host memory: the handler, and the packet's last byte.
fn marks(host: &spin_shm::Region, count: u64) -> Vec<(char, u8)> {
    (0..count)
        .map(|at| {
            let mut record = [0; 8];
            host.read(at * 8, &mut record).unwrap();
            (char::from(record[0]), record[7])
        })
        .collect()
}

fn header_payload_completion_in_order(kind: Kind) {
    let mut lab = Lab::new(kind);
    let install = Install { host_mem: 4096, eom: Some("payload[0:1] = 0xee".into()), ..rule("udp dport 1") };
    let (_, host) = lab.install_with("three_handlers", install);
    let host = host.expect("host memory");
    // Two interleaved messages, distinguished by their flow.
    let packet = |flow: u16, first: u8, last: u8| udp_from(flow, 1, &[first, 0, 0, 0, 0, last]);
    lab.exchange(&[packet(7, 0, 1), packet(8, 0, 101), packet(7, 0, 2), packet(8, 0xee, 102), packet(7, 0xee, 3)]);
    let marks = marks(&host, 9);
    let of =
        |range: std::ops::Range<u8>| marks.iter().copied().filter(|mark| range.contains(&mark.1)).collect::<Vec<_>>();
    assert_eq!(of(0..100), [('H', 1), ('P', 1), ('P', 2), ('P', 3), ('C', 3)]);
    assert_eq!(of(100..200), [('H', 101), ('P', 101), ('P', 102), ('C', 102)]);
    assert_eq!(lab.total(Counter::Messages), 2);
}

fn removal_drops_what_open_messages_hold(kind: Kind) {
    let mut lab = Lab::new(kind);
    let install = Install { eom: Some(NO_END.into()), ..rule("udp dport 1") };
    let (id, _) = lab.install_with("three_handlers", install);
    lab.exchange(&[udp(1, b"123456"), udp(1, b"123456")]);
    assert_eq!((lab.total(Counter::PayloadRuns), lab.total(Counter::Messages)), (2, 0));
    lab.engine.remove(id, ROOT).unwrap();
    assert!(matches!(lab.engine.remove(id, ROOT), Err(InstallError::NoSuchContext(_))));
    lab.exchange(&[udp(1, b"123456")]);
    assert_eq!(lab.total(Counter::PayloadRuns), 2, "no handler runs after removal");
    assert_eq!(lab.total(Counter::DropUnmatched), 1);
}

fn open_messages_exhaust_queues_and_the_loss_is_counted(kind: Kind) {
    let mut lab = Lab::new(kind);
    let id = lab.install_with("three_handlers", Install { eom: Some(NO_END.into()), ..rule("udp dport 1") }).0;
    for flow in 0..300 {
        lab.exchange(&[udp_from(1000 + flow, 1, b"123456")]);
    }
    assert_eq!((lab.count(id, Counter::DropNoMpq), lab.total(Counter::DropNoMpq)), (300 - 256, 300 - 256));
    assert_eq!(lab.total(Counter::PayloadRuns), 256);
}

fn open_messages_of_one_context_do_not_keep_out_another(kind: Kind) {
    let mut lab = Lab::new(kind);
    let greedy = lab.install_with("three_handlers", Install { eom: Some(NO_END.into()), ..rule("udp dport 1") }).0;
    lab.install("udp_pingpong", "udp dport 9999");
    for flow in 0..256 {
        lab.exchange(&[udp_from(1000 + flow, 1, b"123456")]);
    }
    let requests: Vec<_> = (0..60).map(|flow| udp_from(1000 + flow, 9999, b"hello")).collect();
    assert_eq!(lab.exchange(&requests).len(), 60, "a burst of new messages finds queues");
    assert_eq!(lab.total(Counter::DropNoMpq), 0);
    let evicted = lab.count(greedy, Counter::MessagesEvicted);
    // The number of messages of the burst that are open at once. Those on the fast path end one by one; queued ones are open
    // together.
    let open = if kind == Kind::Check { 60 } else { 1 };
    assert_eq!(evicted, open);
    // The longest unused messages were evicted. The latest continues as the message it was, without a new header.
    let headers = lab.total(Counter::HeaderRuns);
    lab.exchange(&[udp_from(1255, 1, b"123456")]);
    assert_eq!(lab.total(Counter::HeaderRuns), headers);
    lab.exchange(&[udp_from(1000, 1, b"123456")]);
    assert_eq!(lab.total(Counter::HeaderRuns), headers + 1);
}

fn when_the_greediest_is_busy_the_next_gives_way(kind: Kind) {
    // Packets of several clusters would not come in the order in which they are sent.
    let mut lab = Lab::with(kind, Machine { clusters: 1, ..Machine::PSPIN }, 256);
    let open = |port: u16| Install { eom: Some(NO_END.into()), ..rule(&format!("udp dport {port}")) };
    for port in 1..=5 {
        // With a context that may stall, packets are queued in the order of their arrival.
        let full = if port == 5 { Full::Wait } else { Full::Drop };
        lab.install_with("three_handlers", Install { full, ..open(port) });
    }
    lab.install("udp_pingpong", "udp dport 9999");
    for (port, flows) in [(1, 56), (2, 50), (3, 50), (4, 50), (5, 50)] {
        for flow in 0..flows {
            lab.exchange(&[udp_from(1000 + flow, port, b"123456")]);
        }
    }
    // One batch: every queue of the largest owner has a packet waiting when the newcomer's packets arrive.
    let busy = (0..56).map(|flow| udp_from(1000 + flow, 1, b"123456"));
    let batch: Vec<_> = busy.chain((0..8).map(|flow| udp_from(1000 + flow, 9999, b"hello"))).collect();
    assert_eq!(lab.exchange(&batch).len(), 8);
    assert_eq!((lab.total(Counter::DropNoMpq), lab.total(Counter::MessagesEvicted)), (0, 8));
}

fn a_context_alone_ends_its_own_messages_only_when_they_are_old(kind: Kind) {
    let mut lab = Lab::new(kind);
    lab.install_with("three_handlers", Install { eom: Some(NO_END.into()), ..rule("udp dport 1") });
    for flow in 0..256 {
        lab.exchange(&[udp_from(1000 + flow, 1, b"123456")]);
    }
    lab.now = Duration::from_secs(9);
    lab.exchange(&[udp_from(1000, 1, b"123456"), udp_from(5000, 1, b"123456")]);
    assert_eq!((lab.total(Counter::DropNoMpq), lab.total(Counter::MessagesEvicted)), (1, 0));
    lab.now = Duration::from_secs(11);
    lab.exchange(&[udp_from(5000, 1, b"123456")]);
    assert_eq!((lab.total(Counter::DropNoMpq), lab.total(Counter::MessagesEvicted)), (1, 1));
    let headers = lab.total(Counter::HeaderRuns);
    lab.exchange(&[udp_from(1000, 1, b"123456")]);
    assert_eq!(lab.total(Counter::HeaderRuns), headers, "the one used two seconds ago was not the one to go");
}

fn messages_that_wait_too_long_end(kind: Kind) {
    let mut lab = Lab::new(kind);
    let open = |port: u16, message_timeout_us| Install {
        eom: Some("payload[0:1] = 49".into()),
        message_timeout_us,
        ..rule(&format!("udp dport {port}"))
    };
    let (patient, _) = lab.install_with("three_handlers", open(1, None));
    let (hasty, _) = lab.install_with("three_handlers", open(2, Some(1000)));
    // Polls without a packet, enough to examine every queue.
    let idle = |lab: &mut Lab| (0..64).for_each(|_| drop(lab.exchange(&[])));
    for flow in 0..100 {
        lab.exchange(&[udp_from(1000 + flow, 1, b"0-----"), udp_from(1000 + flow, 2, b"0-----")]);
    }
    lab.now = Duration::from_micros(900);
    lab.exchange(&[udp_from(1000, 2, b"0-----")]);
    idle(&mut lab);
    assert_eq!(lab.count(hasty, Counter::MessagesTimedOut), 0);
    lab.now = Duration::from_micros(1100);
    idle(&mut lab);
    assert_eq!(lab.count(hasty, Counter::MessagesTimedOut), 99, "all but the one with a packet 200 us ago");
    assert_eq!(lab.events(hasty), [What::TimedOut; 99]);
    assert_eq!((lab.count(patient, Counter::MessagesTimedOut), lab.total(Counter::CompletionRuns)), (0, 0));
    // Its next packet begins another message. The message that continued ends normally.
    let headers = lab.total(Counter::HeaderRuns);
    lab.exchange(&[udp_from(1000, 2, b"1-----"), udp_from(1001, 2, b"1-----")]);
    assert_eq!(lab.total(Counter::HeaderRuns) - headers, 1);
    assert_eq!((lab.count(hasty, Counter::Messages), lab.total(Counter::CompletionRuns)), (2, 2));
    // The queues are free again: 256 less the 100 of the patient context.
    for flow in 0..156 {
        lab.exchange(&[udp_from(3000 + flow, 2, b"0-----")]);
    }
    assert_eq!((lab.total(Counter::DropNoMpq), lab.total(Counter::MessagesEvicted)), (0, 0));
}

fn commands_count_against_the_limit(kind: Kind) {
    let limited =
        |host_mem| Install { host_mem, scratchpad: 65536, instruction_limit: Some(100_000), ..rule("udp dport 1") };
    let mut lab = Lab::new(kind);
    let (id, _) = lab.install_with("command_loop", limited(0));
    // A send counts as more than 1000 instructions.
    let sent = lab.exchange(&[udp(1, b"go")]).len();
    assert!((50..100).contains(&sent), "{sent} frames");
    assert_eq!(lab.faults(id)[0].fault.cause, Cause::InstructionLimit);
    let mut lab = Lab::new(kind);
    lab.install_with("command_loop", limited(65536));
    lab.exchange(&[udp(1, b"go")]);
    // 64 KiB count as 8192 instructions. The copy that exceeds the rest of the budget is the last.
    let copies = lab.total(Counter::CommandsDma);
    assert!((12..=13).contains(&copies), "{copies} copies");
}

fn a_send_is_complete_once_its_task_is(kind: Kind) {
    let mut lab = Lab::new(kind);
    let id = lab.install("late_wait", "udp dport 1");
    assert_eq!(lab.exchange(&[udp(1, b"first"), udp(1, b"second")]).len(), 2);
    assert!(lab.faults(id).is_empty(), "{:?}", lab.faults(id));
}

fn frames_longer_than_the_nic_takes_are_refused(kind: Kind) {
    let mut lab = Lab::new(kind);
    lab.longest.store(100, Relaxed);
    lab.install("double_send", "udp dport 1");
    assert_eq!(lab.exchange(&[udp(1, &[0; 58])]).len(), 2);
    assert_eq!(lab.exchange(&[udp(1, &[0; 59])]).len(), 0);
    assert_eq!(lab.total(Counter::CommandErrors), 2);
}

fn a_nic_that_keeps_old_rules_does_not_mix_up_contexts(kind: Kind) {
    let mut lab = Lab::new(kind);
    let first = lab.install("counter", "udp dport 1");
    let second = lab.install("udp_pingpong", "udp dport 9999");
    lab.steering.refuses.store(true, Relaxed);
    lab.engine.remove(first, ROOT).expect("removal never fails for the NIC's sake");
    assert_eq!(lab.exchange(&[udp(1, &[0; 8]), udp(9999, b"hello")]).len(), 1);
    assert_eq!(lab.total(Counter::DropUnmatched), 1);
    let image = spin_handlers::build(&spin_handlers::source("counter"));
    assert!(matches!(lab.try_install(&image, rule("udp dport 2"), ROOT), Err(InstallError::Nic(_))));
    assert_eq!(lab.engine.context_infos().iter().map(|info| info.context).collect::<Vec<_>>(), [second]);
}

fn requests_beyond_the_machine_are_refused(kind: Kind) {
    let image = spin_handlers::build(&spin_handlers::source("udp_pingpong"));
    let mut lab = Lab::new(kind);
    let mut refused = |install: Install| match lab.try_install(&image, install, ROOT) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("accepted"),
    };
    let good = rule("udp dport 1");
    assert!(refused(Install::default()).starts_with("no rule"));
    assert!(refused(rule("udp dport")).starts_with("rule "), "{}", refused(rule("udp dport")));
    assert!(refused(Install { eom: Some("sometimes".into()), ..good.clone() }).starts_with("end of message"));
    assert!(refused(Install { key: Some("nothing".into()), ..good.clone() }).starts_with("message key"));
    assert!(refused(Install { scratchpad: u32::MAX, ..good.clone() }).contains("scratchpad of 4294967295 bytes"));
    assert!(refused(Install { handler_mem: u32::MAX, ..good.clone() }).contains("handler memory of 4294967295 bytes"));
    assert!(refused(Install { host_mem: u64::MAX, ..good.clone() }).contains("host memory of"));
    assert!(refused(Install { instruction_limit: Some(0), ..good.clone() }).contains("instruction limit 0"));
    assert!(refused(Install { name: "x".repeat(65), ..good.clone() }).contains("at most 64 printable"));
    assert!(refused(Install { name: "x\x1b[2J".into(), ..good.clone() }).contains("at most 64 printable"));
    let wordy = Install { rules: vec!["udp and ".repeat(600) + "udp"], ..good.clone() };
    assert!(refused(wordy).contains("bytes together: at most 4096"));
    lab.limits.contexts = 0;
    assert!(matches!(lab.try_install(&image, good, ROOT), Err(InstallError::Full { most: 0, .. })));
}
