//! Metrics over HTTP: every line is well-formed, the values equal those of `spinctl stats`, and no client delays
//! another.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use libspin::{Client, Counter, Install};
use rustix::process::Signal;
use spin_nic::pcap::{Packet, write_all};
use spin_tests::{ACTION_TIMEOUT, Spind, image, udp};

/// Samples by name and labels.
type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

fn serving() -> (Spind, SocketAddr) {
    let spind = Spind::start(&["--nic", "loopback", "--metrics", "127.0.0.1:0"]);
    let (_, rest) = spind.logged.split_once("metrics on http://").expect("it says where");
    let address = rest.split('/').next().and_then(|address| address.parse().ok()).expect("an address");
    (spind, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(ACTION_TIMEOUT)).expect("a timeout is taken");
    stream
}

/// Sends `request` and returns the complete answer.
fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(request).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";

/// Returns an answer's body, and checks it against the announced length.
fn body(answer: &str) -> &str {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}, {} B", body.len());
    body
}

fn is_name(text: &str) -> bool {
    let word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') && text.chars().all(word)
}

/// Parses `{name="value",...}` and returns the labels and the rest.
fn labels(text: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    let Some(mut rest) = text.strip_prefix('{') else { return (labels, text) };
    loop {
        let (name, quoted) = rest.split_once("=\"").expect("a label");
        assert!(is_name(name), "{name:?}");
        let (mut value, mut letters) = (String::new(), quoted.char_indices());
        let end = loop {
            match letters.next().expect("a closing quote") {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match letters.next().expect("an escaped letter").1 {
                    'n' => '\n',
                    letter @ ('\\' | '"') => letter,
                    other => panic!("{other:?} is not escaped"),
                }),
                (_, letter) => value.push(letter),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "{name} twice");
        match quoted[end..].split_at_checked(1).expect("more") {
            ("}", after) => return (labels, after),
            (",", after) => rest = after,
            other => panic!("{other:?}"),
        }
    }
}

/// Parses the text format strictly: HELP, TYPE and all samples of a family are adjacent, and no family and no sample
/// appears twice.
fn parse(text: &str) -> Samples {
    assert!(text.ends_with('\n'));
    let (mut families, mut samples) = (BTreeSet::new(), Samples::new());
    let mut family: (&str, Option<&str>) = ("", None);
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, _) = help.split_once(' ').expect("a name and a text");
            assert!(is_name(name) && families.insert(name), "{line}");
            family = (name, None);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a type");
            assert_eq!(family, (name, None), "{line}");
            assert!(["counter", "gauge", "histogram", "summary"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            family.1 = Some(kind);
        } else {
            let end = line.find(['{', ' ']).expect("a value");
            let (name, (labels, value)) = (&line[..end], labels(&line[end..]));
            let suffix = name.strip_prefix(family.0).unwrap_or_else(|| panic!("{line} of {family:?}"));
            let suffixes: &[&str] = match family.1 {
                Some("histogram") => &["_bucket", "_sum", "_count"],
                Some("summary") => &["", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&suffix), "{line} of {family:?}");
            let value = value.strip_prefix(' ').and_then(|value| value.parse().ok()).expect("one number");
            assert!(samples.insert((name.to_owned(), labels), value).is_none(), "{line} twice");
        }
    }
    samples
}

fn hello(port: u16) -> Packet {
    Packet::whole(0, udp(port, b"hello"))
}

const NAME: &str = r#"ping "\ {pong}"#;

/// Makes a client with two contexts that processed some packets, and one that did not.
fn work(spind: &Spind) -> Client {
    let mut client = Client::connect(spind.socket()).unwrap();
    for (port, handler, name) in [(1, "udp_pingpong", NAME), (2, "store_outside", ""), (3, "udp_pingpong", NAME)] {
        let image = image(handler);
        let rules = vec![format!("udp dport {port}")];
        client.install(&Install { name: name.into(), rules, ..Install::default() }, &image).unwrap();
    }
    client.replay(&write_all(&[1, 2, 1, 9, 1].map(hello))).unwrap();
    client
}

#[test]
fn every_line_is_well_formed_and_every_counter_is_there() {
    let (spind, address) = serving();
    let mut client = work(&spind);
    let samples = parse(body(&ask(address, GET)));
    let stats = client.stats().unwrap();
    let sum = |name: &str, label: (&str, &str)| {
        let has = |labels: &BTreeMap<String, String>| {
            label.0.is_empty() || labels.get(label.0).is_some_and(|known| known == label.1)
        };
        let found: Vec<f64> = samples
            .iter()
            .filter(|((known, labels), _)| known == name && has(labels))
            .map(|(_, value)| *value)
            .collect();
        assert!(!found.is_empty(), "no {name} {label:?}");
        found.iter().sum::<f64>()
    };
    assert_eq!(stats.engine.get(Counter::RxPackets), 5, "{:?}", stats.engine);
    for (name, value) in stats.engine.iter() {
        assert_eq!(sum(&format!("spind_engine_{name}_total"), ("clusters", "0-3")), value as f64, "{name}");
    }
    for (name, value) in stats.nic_counters.iter() {
        assert!(libspin::nic_meaning(name).is_some(), "nobody knows what {name} counts");
        assert_eq!(sum(&format!("spind_nic_{name}_total"), ("", "")), value as f64, "{name}");
    }
    assert_eq!(stats.contexts.len(), 3);
    for context in &stats.contexts {
        let id = context.context.to_string();
        for (name, value) in context.counters.iter() {
            assert_eq!(sum(&format!("spind_context_{name}_total"), ("context", &id)), value as f64, "{name} of {id}");
        }
        // The summaries of a context: those of its own latencies.
        for latency in &context.latencies {
            let of = |quantile: Option<&str>| {
                let labels = [("context", id.as_str()), ("name", &context.name), ("kind", &latency.name)];
                let labels = labels.into_iter().chain(quantile.map(|quantile| ("quantile", quantile)));
                labels.map(|(label, value)| (label.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>()
            };
            assert_eq!(samples[&("spind_context_latency_seconds_count".into(), of(None))], latency.count as f64);
            let p99 = samples[&("spind_context_latency_seconds".into(), of(Some("0.99")))];
            assert!((p99 * 1e9 - latency.p99_ns as f64).abs() < 0.5, "{p99} s, {} ns", latency.p99_ns);
        }
    }
    let measured: Vec<_> = stats.contexts.iter().map(|context| context.latencies.len()).collect();
    assert_eq!(measured, [3, 3, 0], "those that ran have total, queueing and handler");
    assert_eq!(sum("spind_context_payload_runs_total", ("context", "3")), 0.0, "it had nothing to do");
    assert_eq!(sum("spind_context_payload_runs_total", ("name", NAME)), 3.0);
    let labels = |kind: &str, end: Option<&str>| {
        let end = end.map(|end| ("le".to_owned(), end.to_owned()));
        [("kind".to_owned(), kind.to_owned())].into_iter().chain(end).collect::<BTreeMap<_, _>>()
    };
    for latency in &stats.latencies {
        let count = samples[&("spind_latency_seconds_count".into(), labels(&latency.name, None))];
        assert_eq!(count, latency.count as f64);
        assert_eq!(samples[&("spind_latency_seconds_bucket".into(), labels(&latency.name, Some("+Inf")))], count);
        let mut buckets: Vec<(f64, f64)> = samples
            .iter()
            .filter(|((name, labels), _)| name == "spind_latency_seconds_bucket" && labels["kind"] == latency.name)
            .map(|((_, labels), value)| (labels["le"].parse().expect("a number, +Inf too"), *value))
            .collect();
        buckets.sort_by(|one, other| one.partial_cmp(other).expect("numbers"));
        assert!(buckets.is_sorted_by_key(|(_, count)| *count), "cumulative: {buckets:?}");
    }
}

#[test]
fn only_get_metrics_is_answered() {
    let (_spind, address) = serving();
    let cases: [(&[u8], &str); 6] = [
        (b"GET / HTTP/1.1\r\n\r\n", "404 "),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", "405 "),
        (b"GET /metrics HTTP/3\r\n\r\n", "400 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", "400 "),
        (&[b'A'; 8 << 10], "431 "),
        (&[b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 64 << 10]].concat(), "431 "),
    ];
    for (request, status) in cases {
        let answer = ask(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
    body(&ask(address, b"GET /metrics HTTP/1.0\n\n"));
}

#[test]
fn hostile_clients_hold_up_nobody() {
    let (spind, address) = serving();
    let mut client = work(&spind);
    // More connections than are served at a time: silent ones, ones that stop halfway, ones that never read their
    // answer, and noise.
    let mut held = Vec::new();
    for round in 0..300 {
        let mut stream = connect(address);
        let sent = match round % 4 {
            0 => Ok(()),
            1 => stream.write_all(b"GET /metr"),
            2 => stream.write_all(GET),
            _ => stream.write_all(&[0xff; 3000]),
        };
        // Surplus connections are closed by spind.
        if let Err(error) = sent {
            assert!(matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset), "{error}");
        }
        held.push(stream);
        if round % 50 == 49 {
            parse(body(&ask(address, GET)));
        }
    }
    assert_eq!(client.contexts().unwrap().len(), 3, "spind serves on");
    drop(held);
    parse(body(&ask(address, GET)));
}

#[test]
fn over_a_unix_socket_that_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    let mut spind = Spind::start(&["--nic", "loopback", "--metrics", &format!("unix:{}", path.display())]);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o660);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(ACTION_TIMEOUT)).unwrap();
    stream.write_all(GET).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(parse(body(&answer)).contains_key(&("spind_contexts".into(), BTreeMap::new())));
    spind.signal(Signal::TERM);
    assert!(spind.wait().0);
    assert!(!path.exists());
}
