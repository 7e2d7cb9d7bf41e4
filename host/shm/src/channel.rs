//! Control messages on a Unix stream: preamble, JSON, blob, at most one descriptor (see [`spin_abi::control`]).
//!
//! Neither end trusts its peer. Lengths are checked against the protocol's limits before memory is allocated, memory
//! grows only as bytes arrive, and unrequested descriptors are closed.

use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::retry_on_intr;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use spin_abi::control::{MAX_BLOB, MAX_JSON, Preamble, PreambleError};

use crate::fds::{Received, recv_with_fds, send_with_fds};

/// A received message.
#[derive(Debug)]
pub struct Message<T> {
    /// The decoded JSON document.
    pub body: T,
    /// Bytes after the document.
    pub blob: Vec<u8>,
    /// Descriptor sent with the message.
    pub fd: Option<OwnedFd>,
}

/// Reason why a message could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The socket failed.
    #[error("control socket: {0}")]
    Io(#[from] io::Error),
    /// The peer uses another protocol or another version.
    #[error(transparent)]
    Preamble(#[from] PreambleError),
    /// The document is not one that the protocol allows here.
    #[error("control message not understood: {0}")]
    Json(#[from] serde_json::Error),
    /// The message is longer than the peer may send.
    #[error("control message of {0} bytes of JSON: at most {1}")]
    Long(u32, u32),
    /// Nothing of the message was sent; the connection remains usable.
    #[error("{0}")]
    Unsent(String),
}

/// Sends one message.
///
/// # Errors
/// See [`ChannelError`].
pub fn send<T: Serialize>(
    stream: &UnixStream,
    body: &T,
    blob: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> Result<(), ChannelError> {
    let json = serde_json::to_vec(body)?;
    if json.len() > MAX_JSON || blob.len() > MAX_BLOB {
        let (json, blob) = (json.len(), blob.len());
        return Err(ChannelError::Unsent(format!(
            "control message too long: {json} bytes of JSON (limit {MAX_JSON}), {blob} bytes of blob (limit {MAX_BLOB})"
        )));
    }
    #[allow(clippy::cast_possible_truncation, reason = "both limits are far below u32::MAX")]
    let preamble = Preamble { json: json.len() as u32, blob: blob.len() as u32 }.encode();
    let sent = send_with_fds(stream, &preamble, fd.as_slice());
    let sent = sent.map_err(|error| match fd {
        // One possible cause is too many descriptors in flight (ETOOMANYREFS).
        Some(_) => ChannelError::Unsent(format!("cannot send a descriptor: {error}")),
        None => error.into(),
    })?;
    let mut writer = stream;
    writer.write_all(&preamble[sent..])?;
    writer.write_all(&json)?;
    writer.write_all(blob)?;
    Ok(())
}

/// Maximum time between two parts of a message.
const PAUSE: Duration = Duration::from_secs(10);

/// Receives one message; `None` when the peer closed the connection between messages. The wait for the first byte is
/// unlimited; for each further read it is ten seconds.
///
/// # Errors
/// See [`ChannelError`].
pub fn receive<T: DeserializeOwned>(stream: &UnixStream) -> Result<Option<Message<T>>, ChannelError> {
    let mut bytes = [0; Preamble::LEN];
    let Received { len, mut fds, .. } = recv_with_fds(stream, &mut bytes, 1)?;
    let Some(begun) = begin(stream, bytes, len, u32::MAX)? else { return Ok(None) };
    let (body, blob) = begun.whole()?;
    Ok(Some(Message { body, blob, fd: fds.pop() }))
}

/// [Receives](receive) a message that is probably an `A`, and otherwise a `B`. The documents of long messages are read faster this way than
/// as an enum that begins with a tag.
///
/// # Errors
/// See [`ChannelError`].
pub fn receive_either<A: DeserializeOwned, B: DeserializeOwned>(
    stream: &UnixStream,
) -> Result<Option<Message<Result<A, B>>>, ChannelError> {
    let Some(Message { body, blob, fd }) = receive::<Box<RawValue>>(stream)? else { return Ok(None) };
    let body = match serde_json::from_str(body.get()) {
        Ok(body) => Ok(body),
        Err(_) => Err(serde_json::from_str(body.get())?),
    };
    Ok(Some(Message { body, blob, fd }))
}

/// A message whose blob must still be [read](Self::whole) or [skipped](Self::skip).
#[derive(Debug)]
pub struct Begun<'s, T> {
    /// The decoded JSON document.
    pub body: T,
    /// Length of the blob in bytes.
    pub blob: u32,
    stream: &'s UnixStream,
}

impl<T> Begun<'_, T> {
    /// Reads the blob.
    ///
    /// # Errors
    /// See [`ChannelError`].
    pub fn whole(self) -> Result<(T, Vec<u8>), ChannelError> {
        let blob = read_exactly(self.stream, self.blob)?;
        self.stream.set_read_timeout(None)?;
        Ok((self.body, blob))
    }

    /// Reads and discards the blob, so that another message can follow.
    ///
    /// # Errors
    /// See [`ChannelError`].
    pub fn skip(self) -> Result<T, ChannelError> {
        skip(self.stream, self.blob)?;
        Ok(self.body)
    }
}

/// Receives a message up to its blob from an untrusted peer that may send at most `json` bytes of JSON and no
/// descriptors. A message with an invalid document is read to its end, so that another can follow. The kernel drops
/// descriptors sent along, if [`take_no_fds`](crate::take_no_fds) did not reject them. Closing a descriptor here
/// instead could block for ever: a FUSE file's owner decides when the close returns.
///
/// # Errors
/// See [`ChannelError`].
pub fn receive_from_anybody<T: DeserializeOwned>(
    stream: &UnixStream,
    json: u32,
) -> Result<Option<Begun<'_, T>>, ChannelError> {
    let mut bytes = [0; Preamble::LEN];
    let len = retry_on_intr(|| rustix::io::read(stream, &mut bytes)).map_err(io::Error::from)?;
    begin(stream, bytes, len, json)
}

/// Reads the part before the blob of a message, of which `got` bytes have arrived.
fn begin<T: DeserializeOwned>(
    stream: &UnixStream,
    mut bytes: [u8; Preamble::LEN],
    got: usize,
    json: u32,
) -> Result<Option<Begun<'_, T>>, ChannelError> {
    if got == 0 {
        return Ok(None);
    }
    stream.set_read_timeout(Some(PAUSE))?;
    let mut reader = stream;
    reader.read_exact(&mut bytes[got..])?;
    let preamble = Preamble::decode(&bytes)?;
    if preamble.json > json {
        return Err(ChannelError::Long(preamble.json, json));
    }
    let json = read_exactly(stream, preamble.json)?;
    match serde_json::from_slice(&json) {
        Ok(body) => Ok(Some(Begun { body, blob: preamble.blob, stream })),
        Err(error) => {
            skip(stream, preamble.blob)?;
            Err(error.into())
        }
    }
}

/// Reads and discards the `len` bytes at the end of a message.
fn skip(stream: &UnixStream, len: u32) -> io::Result<()> {
    let read = io::copy(&mut stream.take(u64::from(len)), &mut io::sink())?;
    stream.set_read_timeout(None)?;
    if read == u64::from(len) { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads `len` bytes into memory that grows as they arrive. A large announced length therefore allocates nothing.
fn read_exactly(stream: &UnixStream, len: u32) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let got = stream.take(u64::from(len)).read_to_end(&mut bytes)?;
    if got == len as usize { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::{ChannelError, receive, receive_from_anybody, send};
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_message_arrives_whole_with_its_descriptor() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let blob = vec![7; 3 << 20];
        let sender = std::thread::spawn(move || {
            let file = std::fs::File::open("/dev/null").unwrap();
            send(&ours, &("hello", 1), &blob, Some(file.as_fd())).unwrap();
            send(&ours, &("again", 2), &[], None).unwrap();
        });
        let first = receive::<(String, u32)>(&theirs).unwrap().unwrap();
        assert_eq!((first.body, first.blob.len()), (("hello".into(), 1), 3 << 20));
        assert!(first.fd.is_some());
        let second = receive::<(String, u32)>(&theirs).unwrap().unwrap();
        assert_eq!((second.body, second.fd.is_some()), (("again".into(), 2), false));
        sender.join().unwrap();
        assert!(receive::<(String, u32)>(&theirs).unwrap().is_none(), "closed between messages");
    }

    #[test]
    fn who_wants_no_descriptor_gets_none() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (watched, passed) = UnixStream::pair().unwrap();
        send(&ours, &1, b"blob", Some(passed.as_fd())).unwrap();
        drop(passed);
        let begun = receive_from_anybody::<u32>(&theirs, 64).unwrap().unwrap();
        assert_eq!((begun.blob, begun.whole().unwrap()), (4, (1, b"blob".to_vec())));
        let mut byte = [0];
        assert_eq!((&watched).read(&mut byte).unwrap(), 0, "nobody has it any more");
        send(&ours, &"x".repeat(100), &[], None).unwrap();
        assert!(matches!(receive_from_anybody::<String>(&theirs, 64), Err(ChannelError::Long(102, 64))));
    }

    #[test]
    fn what_is_not_wanted_keeps_nothing_from_following() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sender = std::thread::spawn(move || {
            send(&ours, &1, &vec![7; 3 << 20], None).unwrap();
            send(&ours, &"no number", &vec![7; 3 << 20], None).unwrap();
            send(&ours, &2, b"wanted", None).unwrap();
        });
        let begun = || receive_from_anybody::<u32>(&theirs, 64).map(|begun| begun.unwrap());
        assert_eq!(begun().unwrap().skip().unwrap(), 1);
        assert!(matches!(begun(), Err(ChannelError::Json(_))));
        assert_eq!(begun().unwrap().whole().unwrap(), (2, b"wanted".to_vec()));
        sender.join().unwrap();
    }

    #[test]
    fn nonsense_is_refused() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&[0; 16]).unwrap();
        assert!(matches!(receive::<u32>(&theirs), Err(ChannelError::Preamble(_))));
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&spin_abi::control::Preamble { json: 100, blob: 0 }.encode()).unwrap();
        ours.write_all(b"{}").unwrap();
        drop(ours);
        assert!(matches!(receive::<u32>(&theirs), Err(ChannelError::Io(_))), "cut short");
    }
}
