//! What spind receives of the bytes that a client sends, against a reading of the same bytes as the protocol describes it.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use spin_abi::control::{MAX_BLOB, MAX_JSON, Request};
use spin_shm::channel::{ChannelError, receive_from_anybody};

/// Maximum length of a request's JSON, as spind sets it.
pub const LONGEST_REQUEST: u32 = 64 << 10;
/// Maximum length of an input: all of it fits the socket's buffer.
pub const LONGEST_INPUT: usize = 48 << 10;

/// What is received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A request and its payload.
    Request(Box<Request>, Vec<u8>),
    /// A request whose payload was not wanted.
    Skipped(Box<Request>),
    /// A document that is no request. Another message may follow.
    NoRequest,
    /// A message that is refused before its document. None can follow.
    Refused,
    /// The connection ended within a message.
    Cut,
}

/// Whether spind wants the payload of a request. The judge decides that by the length alone.
const fn is_wanted(payload: usize) -> bool {
    payload % 3 != 2
}

/// Receives all messages of a client that sends these bytes and closes the connection.
pub fn received(input: &[u8]) -> Vec<Received> {
    let (mut client, spind) = UnixStream::pair().expect("a pair");
    client.write_all(input).expect("it fits the buffer");
    client.shutdown(Shutdown::Write).expect("it is open");
    let mut all = Vec::new();
    loop {
        let begun = match receive_from_anybody::<Request>(&spind, LONGEST_REQUEST) {
            Ok(None) => return all,
            Ok(Some(begun)) => begun,
            Err(ChannelError::Json(_)) => {
                all.push(Received::NoRequest);
                continue;
            }
            Err(ChannelError::Io(_)) => return [all, vec![Received::Cut]].concat(),
            Err(_) => return [all, vec![Received::Refused]].concat(),
        };
        let request = if is_wanted(begun.blob as usize) {
            begun.whole().map(|(request, payload)| Received::Request(Box::new(request), payload))
        } else {
            begun.skip().map(|request| Received::Skipped(Box::new(request)))
        };
        match request {
            Ok(request) => all.push(request),
            Err(_) => return [all, vec![Received::Cut]].concat(),
        }
    }
}

/// The messages in these bytes: each 16 bytes of preamble (magic, version, two bytes, both lengths), document, payload.
pub fn expected(mut bytes: &[u8]) -> Vec<Received> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let Some((preamble, rest)) = bytes.split_at_checked(16) else { return [all, vec![Received::Cut]].concat() };
        let word = |at: usize| preamble[at..at + 4].iter().rev().fold(0, |word, &byte| word << 8 | usize::from(byte));
        let (document, payload) = (word(8), word(12));
        let is_ours = &preamble[..6] == b"sPIN\x01\x00";
        if !is_ours || document > MAX_JSON.min(LONGEST_REQUEST as usize) || payload > MAX_BLOB {
            return [all, vec![Received::Refused]].concat();
        }
        let Some((document, rest)) = rest.split_at_checked(document) else {
            return [all, vec![Received::Cut]].concat();
        };
        let request = serde_json::from_slice::<Request>(document).ok().map(Box::new);
        let Some((payload, rest)) = rest.split_at_checked(payload) else {
            return [all, vec![Received::Cut]].concat();
        };
        all.push(match request {
            None => Received::NoRequest,
            Some(request) if is_wanted(payload.len()) => Received::Request(request, payload.to_vec()),
            Some(request) => Received::Skipped(request),
        });
        bytes = rest;
    }
    all
}

/// Checks that both agree, and that each request is the same after it was sent again. Returns what was received.
pub fn check(input: &[u8]) -> Vec<Received> {
    let input = &input[..input.len().min(LONGEST_INPUT)];
    let received = received(input);
    assert_eq!(received, expected(input));
    for message in &received {
        if let Received::Request(request, _) | Received::Skipped(request) = message {
            let again = serde_json::to_vec(request).expect("requests are documents");
            assert_eq!(serde_json::from_slice::<Request>(&again).expect("a request"), **request);
        }
    }
    received
}
