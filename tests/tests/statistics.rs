//! Statistics and events for programs: `spinctl` prints JSON that a program indexes, and rates.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use libspin::{Client, Counter, Install};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use spin_nic::pcap::{Packet, write_all};
use spin_tests::{ACTION_TIMEOUT, Spind, binary, image, udp};

fn datagram(port: u16) -> Packet {
    Packet::whole(0, udp(port, b"hello"))
}

/// Starts spind with three contexts: `echo` on port 1, `wild` on port 2, whose handler faults, and `idle`, which gets nothing.
fn start() -> (Spind, Client) {
    let spind = Spind::start(&["--nic", "loopback", "--units", "1"]);
    let mut client = Client::connect(spind.socket()).unwrap();
    for (port, handler, name) in
        [(1, "udp_pingpong", "echo"), (2, "store_outside", "wild"), (3, "udp_pingpong", "idle")]
    {
        let rules = vec![format!("udp dport {port}")];
        client.install(&Install { name: name.into(), rules, ..Install::default() }, &image(handler)).unwrap();
    }
    (spind, client)
}

fn replay(client: &mut Client, ports: &[u16]) {
    client.replay(&write_all(&ports.iter().map(|&port| datagram(port)).collect::<Vec<_>>())).unwrap();
}

fn json_of(spind: &Spind, arguments: &[&str]) -> Value {
    serde_json::from_str(&spind.ctl_ok(arguments)).expect("JSON")
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn statistics_are_found_by_name() {
    let (spind, mut client) = start();
    replay(&mut client, &[1, 2, 1, 9, 1]);
    let stats = json_of(&spind, &["stats", "--json"]);
    let list = client.contexts().unwrap();
    let [echo, wild, idle] = [0, 1, 2].map(|place: usize| format!("/contexts/{}", list[place].context));
    for (path, expected) in [
        ("/engine/rx_packets".to_owned(), json!(5)),
        ("/engine/payload_runs".to_owned(), json!(4)),
        ("/engine/drop_unmatched".to_owned(), json!(1)),
        ("/threads/0/counters/payload_runs".to_owned(), json!(4)),
        ("/latencies/total/count".to_owned(), json!(4)),
        (format!("{echo}/name"), json!("echo")),
        (format!("{echo}/counters/payload_runs"), json!(3)),
        (format!("{echo}/counters/faults"), json!(0)),
        (format!("{echo}/latencies/total/count"), json!(3)),
        (format!("{wild}/counters/faults"), json!(1)),
        (format!("{wild}/faults/0/handler"), json!("payload")),
        (format!("{wild}/latencies/total/count"), json!(1)),
        (format!("{idle}/counters/payload_runs"), json!(0)),
    ] {
        assert_eq!(stats.pointer(&path), Some(&expected), "{path} of {stats:#}");
    }
    assert!(stats["nic_counters"].is_object() && stats["nic"].is_string(), "{stats:#}");
    assert_eq!(stats.pointer(&format!("{idle}/latencies")), None, "it did not run");
    let listed = json_of(&spind, &["list", "--json"]);
    assert_eq!(listed.pointer("/1/counters/faults"), Some(&json!(1)), "{listed:#}");
}

#[test]
fn samples_of_the_engine_are_those_of_its_contexts() {
    let (spind, mut client) = start();
    // Tasks are sampled in turns: at most one in 16 packets.
    (0..200).for_each(|_| replay(&mut client, &[1, 2]));
    let stats = client.stats().unwrap();
    for (kind, engine) in stats.latencies.iter().enumerate() {
        let contexts = stats.contexts.iter().filter_map(|context| context.latencies.get(kind));
        let (count, sum) = contexts.fold((0, 0), |(count, sum), of| (count + of.count, sum + of.sum_ns));
        assert_eq!(count, engine.count, "{}", engine.name);
        // Packets of a poll count with the latency of its last one: in the engine of all contexts, else of the context's own.
        assert!(sum == engine.sum_ns || engine.name == "total", "{}: {sum} and {} ns", engine.name, engine.sum_ns);
    }
    assert_eq!(stats.latencies[0].count, stats.engine.get(Counter::Released));
    let [echo, wild, idle] = [0, 1, 2].map(|place: usize| &stats.contexts[place].latencies);
    assert_eq!((echo[0].count, wild[0].count, idle.len()), (200, 200, 0));
    assert!(echo[0].min_ns <= echo[0].p50_ns && echo[0].p50_ns <= echo[0].p999_ns && echo[0].p999_ns <= echo[0].max_ns);
    let shown = spind.ctl_ok(&["stats"]);
    let of_echo = shown.split("(echo)").nth(1).expect("its section").split("(wild)").next().unwrap_or_default();
    assert!(
        of_echo.contains("\n  latency in ns: ") && of_echo.contains("\n    total                  200 "),
        "{shown}"
    );
}

/// The keys and values of the form before objects.
#[test]
fn the_old_form_is_printed_on_request() {
    let (spind, mut client) = start();
    replay(&mut client, &[1, 2]);
    let old = json_of(&spind, &["stats", "--json=1"]);
    assert_eq!(keys(&old), ["contexts", "engine", "latencies", "nic", "nic_counters", "threads"]);
    let pairs = |value: &Value| serde_json::from_value::<Vec<(String, u64)>>(value.clone()).expect("pairs");
    assert_eq!(pairs(&old["engine"])[0], ("rx_packets".to_owned(), 2));
    assert!(!pairs(&old["nic_counters"]).is_empty());
    assert_eq!(pairs(&old["threads"][0]["counters"]), pairs(&old["engine"]));
    assert_eq!(old["latencies"][0]["name"], "total");
    let context = &old["contexts"][1];
    assert!(pairs(&context["counters"]).contains(&("faults".to_owned(), 1)));
    // Keys may be added: `lifetime` and `units` were.
    let expected = "context counters eom faults handlers host_mem key lifetime name own rules run uid units";
    assert_eq!(keys(context).join(" "), expected);
    let listed = json_of(&spind, &["list", "--json=1"]);
    assert_eq!(&listed[1], context, "a context in `list` is as in `stats`");
}

#[test]
fn events_are_lines_of_json() {
    let (spind, mut client) = start();
    let id = client.contexts().unwrap()[1].context;
    replay(&mut client, &[2, 2]);
    let lines = spind.ctl_ok(&["events", "wild", "--json"]);
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    assert_eq!(events.len(), 2);
    for event in &events {
        assert_eq!((&event["context"], &event["event"], &event["stage"]), (&json!(id), &json!("fault"), &json!(1)));
        assert_eq!(event.pointer("/fault/cause"), Some(&json!("store-access")), "{event}");
        assert!(
            event["symbol"].as_str().is_some_and(|symbol| symbol.contains("+0x")) && event["flow"].is_u64(),
            "{event}"
        );
    }
    let mut following = Running::start(&spind, &["events", "wild", "-f", "--json"]);
    assert_eq!([following.line(), following.line()], [events[0].clone(), events[1].clone()]);
    replay(&mut client, &[2]);
    assert_eq!(following.line()["event"], "fault", "printed as it comes");
    client.remove(id).unwrap();
    let (success, said) = following.end();
    assert!(success && said.contains(&format!("context {id} is gone")), "{said}");
}

#[test]
fn watch_prints_as_many_intervals_as_asked_for() {
    let (spind, mut client) = start();
    replay(&mut client, &[1]);
    let lines = spind.ctl_ok(&["stats", "--watch", "0.01", "--count", "3", "--json"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    assert_eq!(lines.len(), 3);
    for line in lines {
        assert_eq!(line.pointer("/counters/engine/payload_runs"), Some(&json!(1)), "{line}");
        assert_eq!(line.pointer("/rates/engine/payload_runs"), Some(&json!(0.0)), "{line}");
        assert_eq!(line.pointer("/rates/engine/rx_bits"), Some(&json!(0.0)), "{line}");
    }
    let text = spind.ctl_ok(&["stats", "--watch", "0.01", "--count", "2"]);
    let rows = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!((rows("in 0."), rows("engine "), text.contains('\x1b')), (2, 2, false), "{text}");
    let refused = spind.ctl(&["stats", "--watch", "1", "--json=1"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("lists of pairs"));
}

#[test]
fn rates_add_up_to_what_came_and_a_signal_ends_them() {
    let (spind, mut client) = start();
    let id = client.contexts().unwrap()[0].context;
    let mut watch = Running::start(&spind, &["stats", "--watch", "0.01", "--json"]);
    watch.line();
    replay(&mut client, &[1; 7]);
    let number = |line: &Value, path: &str| {
        line.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} of {line}"))
    };
    let [rate_path, count_path] = ["rates", "counters"].map(|tree| format!("/{tree}/contexts/{id}/payload_runs"));
    let (mut packets, mut runs, begun) = (0.0, 0.0, Instant::now());
    // Two intervals more than the one in which the last packet came: they add nothing.
    let mut intervals_left = 3;
    while intervals_left > 0 {
        let line = watch.line();
        let seconds = number(&line, "/seconds");
        packets += number(&line, "/rates/engine/rx_packets") * seconds;
        runs += number(&line, &rate_path) * seconds;
        intervals_left -= u8::from(number(&line, &count_path) >= 7.0);
        assert!(begun.elapsed() < ACTION_TIMEOUT, "{line}");
    }
    assert_eq!((packets.round(), runs.round()), (7.0, 7.0));
    watch.signal(Signal::INT);
    let (success, said) = watch.end();
    assert!(success && said.is_empty(), "{said}");
}

#[test]
fn watch_ends_with_spind() {
    let (mut spind, _client) = start();
    let mut watch = Running::start(&spind, &["stats", "--watch", "0.01", "--json"]);
    watch.line();
    spind.signal(Signal::TERM);
    assert!(spind.wait().0);
    let (success, said) = watch.end();
    assert!(success && said.contains("spind has ended"), "{said}");
}

/// A running spinctl that prints lines of JSON; killed when dropped.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(spind: &Spind, arguments: &[&str]) -> Self {
        let mut command = Command::new(binary("spinctl"));
        command.args(arguments).arg("--socket").arg(spind.socket()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("spinctl runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> Value {
        let line = self.lines.next().expect("a line").expect("text");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Waits for the end. All lines that are left must be complete. Returns whether it was a success, and standard error.
    fn end(&mut self) -> (bool, String) {
        for line in self.lines.by_ref() {
            let line = line.expect("text");
            assert!(serde_json::from_str::<Value>(&line).is_ok(), "{line:?}");
        }
        let said = std::io::read_to_string(self.child.stderr.take().expect("piped")).expect("text");
        (self.child.wait().expect("it ends").success(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
