//! The examples of docs/protocol.md, byte by byte, against a real spind.

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::Value;
use spin_nic::pcap::{Packet, write_all};
use spin_shm::{Region, send_with_fds};
use spin_tests::{ACTION_TIMEOUT, Spind, udp};

const DOCUMENT: &str = include_str!("../../docs/protocol.md");
/// What the example writes to handler memory.
const BYTES: [u8; 8] = *b"12345678";

/// An example of the document: the words behind its opening fence, and its text.
struct Example {
    words: Vec<&'static str>,
    text: &'static str,
}

fn examples() -> Vec<Example> {
    let blocks = DOCUMENT.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    blocks.map(|(words, text)| Example { words: words.split(' ').collect(), text }).collect()
}

/// A message as the document describes it.
fn message(version: u16, json: &str, blob: &[u8]) -> Vec<u8> {
    let mut bytes = b"sPIN".to_vec();
    bytes.extend(u32::from(version).to_le_bytes());
    bytes.extend(u32::try_from(json.len()).expect("short").to_le_bytes());
    bytes.extend(u32::try_from(blob.len()).expect("short").to_le_bytes());
    [&bytes, json.as_bytes(), blob].concat()
}

/// A reply: document, blob, and whether a descriptor came along.
fn reply(stream: &mut UnixStream) -> (Value, Vec<u8>, bool) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut preamble = [0; 16];
    let got = recvmsg(&*stream, &mut [IoSliceMut::new(&mut preamble)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
    let got = got.expect("a reply").bytes;
    stream.read_exact(&mut preamble[got..]).expect("a preamble");
    let fds = ancillary.drain().map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<OwnedFd>>().len(),
        _ => 0,
    });
    let has_fd = fds.sum::<usize>() > 0;
    assert_eq!(preamble[..8], *b"sPIN\x01\0\0\0");
    let length = |at: usize| u32::from_le_bytes(preamble[at..at + 4].try_into().expect("4 bytes")) as usize;
    let (mut json, mut blob) = (vec![0; length(8)], vec![0; length(12)]);
    stream.read_exact(&mut json).expect("a document");
    stream.read_exact(&mut blob).expect("a blob");
    (serde_json::from_slice(&json).expect("JSON"), blob, has_fd)
}

/// Whether a reply has all that the document shows.
fn shows(documented: &Value, actual: &Value) -> bool {
    match (documented, actual) {
        (Value::String(any), _) if any == "..." => true,
        (Value::Object(keys), Value::Object(actual)) => {
            keys.iter().all(|(key, value)| actual.get(key).is_some_and(|actual| shows(value, actual)))
        }
        (Value::Array(items), Value::Array(actual)) => {
            items.len() == actual.len() && items.iter().zip(actual).all(|(item, actual)| shows(item, actual))
        }
        _ => documented == actual,
    }
}

fn datagram(port: u16) -> Packet {
    Packet::whole(0, udp(port, b"hello"))
}

fn blob(words: &[&str]) -> Vec<u8> {
    match words.iter().find_map(|word| word.strip_prefix("blob=")) {
        None => Vec::new(),
        Some("image") => spin_handlers::image("udp_pingpong", &[]).to_vec(),
        Some("capture") => write_all(&[datagram(9999), datagram(80)]),
        Some("bytes") => BYTES.to_vec(),
        Some(other) => panic!("blob={other}"),
    }
}

fn connect(spind: &Spind) -> UnixStream {
    let stream = UnixStream::connect(spind.socket()).expect("it listens");
    stream.set_read_timeout(Some(ACTION_TIMEOUT)).expect("a timeout");
    stream
}

#[test]
fn the_examples_of_the_document_are_what_spind_says() {
    let spind = Spind::start(&["--nic", "loopback", "--units", "1"]);
    let mut stream = connect(&spind);
    let examples = examples();
    let mut json = examples.iter().filter(|example| example.words[0] == "json");
    let mut shown = Vec::new();
    while let (Some(request), Some(expected)) = (json.next(), json.next()) {
        assert_eq!((request.words[1], expected.words[1]), ("request", "reply"), "{}", request.text);
        let sent: Value = serde_json::from_str(request.text).expect(request.text);
        shown.push(sent["request"].as_str().expect("a name").to_owned());
        stream.write_all(&message(1, request.text, &blob(&request.words))).expect("sent");
        let (body, blob, has_fd) = reply(&mut stream);
        let documented: Value = serde_json::from_str(expected.text).expect(expected.text);
        assert!(shows(&documented, &body), "{}\n{body:#}", request.text);
        let has = |word| expected.words.contains(&word);
        assert_eq!((!blob.is_empty(), has_fd), (has("blob"), has("fd")), "{}", request.text);
        if has("memory") {
            let region = Region::create(4096).expect("memory");
            send_with_fds(&stream, &[0], &[region.fd()]).expect("spind takes it");
            let expected = json.next().expect("a second reply");
            assert_eq!(expected.words, ["json", "reply"]);
            let documented: Value = serde_json::from_str(expected.text).expect(expected.text);
            assert_eq!(reply(&mut stream), (documented, Vec::new(), false));
        }
        if sent["request"] == "read-memory" {
            assert_eq!(blob, BYTES);
        }
    }
    // spind names all requests that it knows.
    stream.write_all(&message(1, r#"{"request": "?"}"#, &[])).expect("sent");
    let (body, ..) = reply(&mut stream);
    let known = body["message"].as_str().and_then(|text| text.split_once("expected one of ")).expect("names").1;
    let known: Vec<_> = known.split('`').skip(1).step_by(2).collect();
    assert_eq!(known.len(), 15, "{known:?}");
    for name in known {
        assert!(shown.iter().any(|other| other == name), "{name} is in no example");
    }
}

#[test]
fn preambles_are_as_documented() {
    let spind = Spind::start(&["--nic", "loopback", "--units", "1"]);
    let hex = examples().into_iter().find(|example| example.words == ["hex"]).expect("a preamble");
    let bytes = hex.text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal"));
    let list = r#"{"request":"list"}"#;
    let whole: Vec<u8> = bytes.chain(list.bytes()).collect();
    assert_eq!(whole, message(1, list, &[]));
    let mut stream = connect(&spind);
    stream.write_all(&whole).expect("sent");
    assert_eq!(reply(&mut stream).0["reply"], "contexts");
    // Another version is told which one spind speaks, and a request that is too long how long it may be. Both connections end.
    let long = "x".repeat((64 << 10) + 1);
    for (sent, said) in [
        (message(2, list, &[]), "control protocol 2, this is 1"),
        (message(1, &long, &[])[..16].to_vec(), "at most 65536"),
    ] {
        let mut stream = connect(&spind);
        stream.write_all(&sent).expect("sent");
        let (body, ..) = reply(&mut stream);
        assert!(body["reply"] == "error" && body["message"].as_str().is_some_and(|text| text.contains(said)), "{body}");
        // A reset is an end, too: bytes that spind did not read were left.
        assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    }
}
