//! spind's own description over the loopback NIC: machine, capabilities, metrics.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use libspin::{Client, Counter, Install, What};
use rustix::process::Signal;
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_tests::{Spind, image, udp};

const PORT: u16 = 9999;

fn install(client: &mut Client, handler: &str, name: &str) {
    let rules = vec![format!("udp dport {PORT}")];
    client.install(&Install { name: name.into(), rules, ..Install::default() }, &image(handler)).expect("installs");
}

/// Returns the number of answers to `count` datagrams.
fn answers(client: &mut Client, count: usize) -> usize {
    let frames: Vec<_> = (0..count).map(|_| Packet::whole(0, udp(PORT, b"hello"))).collect();
    read_all(&client.replay(&write_all(&frames)).expect("loopback replays")).expect("spind writes captures").len()
}

#[test]
fn handlers_run_on_a_machine_of_other_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("spind.toml");
    let sizes =
        "[machine]\nhpus_per_cluster = 8\nl1_size = 0x1_5000\nl2_packet_base = 0x1cff_1000\nl2_packet_size = 0xf000\n";
    fs::write(&config, format!("nic = 'loopback'\n{sizes}")).unwrap();
    let options = ["--config", config.to_str().unwrap(), "--clusters", "3", "--hpus-per-cluster", "5"];
    let spind = Spind::start(&options);
    let mut client = Client::connect(spind.socket()).unwrap();
    install(&mut client, "udp_pingpong", "");
    assert_eq!(answers(&mut client, 64), 64);
    let scratchpad = Install { rules: vec!["any".into()], scratchpad: 0x6001, ..Install::default() };
    let refused = client.install(&scratchpad, &image("udp_pingpong")).unwrap_err().to_string();
    assert!(
        refused.contains("scratchpad") && refused.contains("24576"),
        "84 KiB less images' data and five HPUs' windows: {refused}"
    );
}

/// The paper's 4 MiB of handler memory, used by an image linked for that size.
#[test]
fn an_image_is_linked_for_a_map_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (config, map) = (folder.path().join("spind.toml"), folder.path().join("paper.ld"));
    let sizes = "[machine]\nhandler_mem_size = 0x40_0000\nl2_packet_base = 0x1c70_0000\n";
    fs::write(&config, format!("nic = 'loopback'\n{sizes}")).unwrap();
    let preset = spin_handlers::folder().join("sdk/link/pspin.ld");
    let paper = fs::read_to_string(preset).unwrap().replace("LENGTH = 1M", "LENGTH = 4M");
    fs::write(&map, paper).unwrap();
    let source = folder.path().join("large.c");
    let text = "SPIN_HANDLER_DATA char all[3 << 20]; void payload_handler(handler_args_t *args) { (void)args; all[sizeof all - 1]++; }";
    fs::write(&source, format!("#include <spin.h>\n{text}\n")).unwrap();
    let image = spin_handlers::try_build(&[&source], &["--preset", map.to_str().unwrap()]).unwrap();

    let spind = Spind::start(&["--config", config.to_str().unwrap()]);
    let mut client = Client::connect(spind.socket()).unwrap();
    let any = Install { rules: vec!["any".into()], ..Install::default() };
    client.install(&any, &image).unwrap();
    assert_eq!(answers(&mut client, 1), 0);
    let context = &client.contexts().unwrap()[0];
    assert_eq!(context.faults, [], "its last byte is there");
    assert_eq!(context.counters.get(Counter::PayloadRuns), 1, "{:?}", context.counters);

    let other = Spind::start(&["--nic", "loopback"]);
    let refused = Client::connect(other.socket()).unwrap().install(&any, &image).unwrap_err().to_string();
    assert!(refused.contains("handler memory (0x1c300000, 1048576 bytes)"), "{refused}");
}

#[test]
fn capabilities_are_those_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("spind.toml");
    let sizes = "[sizes]\nqueues = 99\n[limits]\ncontexts = 7\nwatchdog_us = 3000\n";
    fs::write(&config, format!("nic = 'loopback'\npreset = 'fpspin'\n{sizes}")).unwrap();
    let spind = Spind::start(&["--config", config.to_str().unwrap(), "--clusters", "1", "--engine", "interp"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    let all = client.capabilities().unwrap();
    assert_eq!((all.machine.clusters, all.machine.hpus_per_cluster, all.threads), (1, 8, 1));
    assert_eq!((all.machine.l1, all.machine.scratchpad), (256 << 10, 172 << 10), "20 KiB are for the data of images");
    assert_eq!((all.limits.queues, all.limits.contexts, all.limits.watchdog_us), (99, 7, 3000));
    assert_eq!((all.engine.as_str(), all.protocol), ("interp", spin_abi::control::VERSION));
    assert_eq!(all.max_payload + 14, all.max_frame);
    assert!(all.guarantees.header_first && !all.guarantees.unmatched_to_kernel, "there is no kernel below loopback");
    // The reported limits are enforced.
    for (scratchpad, fits) in [(all.machine.scratchpad, true), (all.machine.scratchpad + 1, false)] {
        let install = Install { rules: vec!["any".into()], scratchpad, ..Install::default() };
        assert_eq!(client.install(&install, &image("udp_pingpong")).is_ok(), fits);
    }
    let shown = spind.ctl_ok(&["capabilities"]);
    for row in ["machine                1 clusters x 8 HPUs, on 1 thread(s)", "checks                 page, exact"] {
        assert!(shown.contains(row), "{row:?} in\n{shown}");
    }
    let json = spind.ctl_ok(&["capabilities", "--json"]);
    assert!(json.contains("\"max_frame\": "), "{json}");
}

#[test]
fn an_application_sleeps_until_it_is_told_of_a_copy() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    let install = Install { host_mem: 4096, doorbell_us: Some(100), rules: vec!["any".into()], ..Install::default() };
    let context = client.install(&install, &image("told")).unwrap();
    let (id, host) = (context.id, context.host.unwrap().address());
    let mut events = client.events(id).unwrap();
    assert!(!events.wait(Duration::from_millis(20)), "nothing happened");
    let sleeper = thread::spawn(move || {
        let begun = Instant::now();
        let mut copies = 0;
        while copies < 100 && events.wait(Duration::from_secs(20)) {
            copies += (&mut events).filter(|event| matches!(event.what, What::Copied { length: 60.., .. })).count();
        }
        (copies as u64 + events.lost(), begun.elapsed())
    });
    let mut order = [0; 30];
    order[4] = 1;
    for _ in 0..100 {
        client.replay(&write_all(&[Packet::whole(0, udp(PORT, &order))])).unwrap();
    }
    let (copies, slept) = sleeper.join().unwrap();
    assert_eq!(copies, 100);
    assert!(slept < Duration::from_secs(20), "slept through the last one");
    let shown = spind.ctl_ok(&["events", &id.to_string()]);
    assert!(shown.contains(&format!("flow 0: 72 bytes copied to host address {host:#x}")), "{shown}");
    assert!(spind.ctl_ok(&["list"]).contains("doorbell: 100 us"));
}

#[test]
fn latencies_are_told_while_it_runs_and_at_its_end() {
    let mut spind = Spind::start(&["--nic", "loopback"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    assert!(!spind.ctl_ok(&["stats"]).contains("latency"), "nothing was measured");
    install(&mut client, "udp_pingpong", "");
    assert_eq!(answers(&mut client, 100), 100);
    let stats = client.stats().unwrap();
    let total = stats.latencies.iter().find(|latency| latency.name == "total").unwrap();
    assert_eq!(total.count, 100);
    assert!(total.min_ns > 0 && total.min_ns <= total.p50_ns && total.p50_ns <= total.p99_ns);
    assert!(total.p99_ns <= total.p999_ns && total.p999_ns <= total.max_ns);
    let shown = spind.ctl_ok(&["stats"]);
    assert!(shown.contains("p99.9") && shown.contains("\n  total                  100 "), "{shown}");
    spind.signal(Signal::TERM);
    let (_, printed) = spind.wait();
    let line =
        format!("\tPacket latency: p50: {} ns; p99: {} ns; p99.9: {} ns", total.p50_ns, total.p99_ns, total.p999_ns);
    assert!(printed.contains(&line), "{line:?} in\n{printed}");
}

#[test]
fn counters_are_read_no_oftener_than_they_should() {
    let spind = Spind::start(&["--nic", "loopback"]);
    let begun = Instant::now();
    thread::scope(|scope| {
        for asker in 0..4 {
            let mut client = Client::connect(spind.socket()).unwrap();
            scope.spawn(move || {
                for _ in 0..15 {
                    // Requests of two kinds arrive together and are answered together.
                    if asker == 0 {
                        assert!(client.contexts().unwrap().is_empty());
                    } else {
                        assert!(client.stats().unwrap().contexts.is_empty());
                    }
                }
            });
        }
    });
    assert!(begun.elapsed() >= Duration::from_millis(14 * 10));
}
