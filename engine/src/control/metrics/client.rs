//! One connection: a request, an answer, the end. No step blocks, and each has a deadline.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::http::{self, MAX_REQUEST, Request};

/// Longest time for a whole request to arrive.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Longest time for the client to read a whole answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Longest time for the client to close the connection after its answer.
const LINGER_TIME: Duration = Duration::from_secs(1);
/// Maximum number of bytes read from a client after its answer.
const LINGER_BYTES: usize = 1 << 20;

/// A connection.
pub struct Client {
    socket: OwnedFd,
    step: Step,
    /// Deadline of the current step.
    deadline: Instant,
}

enum Step {
    /// The part of the request's head that has arrived.
    Request(Vec<u8>),
    /// The client waits for values.
    Waiting,
    /// An answer, and the number of its bytes already sent.
    Answer(Arc<[u8]>, usize),
    /// The answer was sent. Up to this number of further bytes is read: closing a connection with unread bytes resets it, and the answer
    /// is lost.
    Linger(usize),
    /// Closed by either side.
    Over,
}

impl Client {
    /// A new connection.
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, step: Step::Request(Vec::new()), deadline: Instant::now() + REQUEST_TIME }
    }

    /// Events of the socket to wait for.
    pub const fn interest(&self) -> PollFlags {
        match self.step {
            Step::Request(_) | Step::Linger(_) => PollFlags::IN,
            Step::Answer(..) => PollFlags::OUT,
            Step::Waiting | Step::Over => PollFlags::empty(),
        }
    }

    /// Deadline of the current step.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the connection is still open at `now`.
    pub fn is_open(&self, now: Instant) -> bool {
        // Waiting for values has no deadline.
        !matches!(self.step, Step::Over) && (self.is_waiting() || now < self.deadline)
    }

    /// Whether the client waits for values.
    pub const fn is_waiting(&self) -> bool {
        matches!(self.step, Step::Waiting)
    }

    /// Starts to send an answer.
    pub fn answer(&mut self, bytes: Arc<[u8]>) {
        self.step = Step::Answer(bytes, 0);
        self.deadline = Instant::now() + ANSWER_TIME;
    }

    /// Continues as far as possible without blocking.
    pub fn progress(&mut self, ready: PollFlags) {
        if ready.is_empty() {
            return;
        }
        let done = match &mut self.step {
            Step::Request(_) => self.read_request(),
            Step::Answer(..) => self.send_answer(),
            Step::Linger(_) => self.read_rest(),
            // An event without interest: the client closed the connection.
            Step::Waiting | Step::Over => Err(Errno::PIPE),
        };
        match done {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.step = Step::Over,
        }
    }

    fn read_request(&mut self) -> Result<(), Errno> {
        let Step::Request(head) = &mut self.step else { return Ok(()) };
        let mut bytes = [0; 2048];
        let room = bytes.len().min(MAX_REQUEST - head.len());
        let len = receive(&self.socket, &mut bytes[..room])?;
        let seen = head.len();
        head.extend_from_slice(&bytes[..len]);
        match http::request(head, seen) {
            Request::Partial => {}
            Request::Metrics => {
                self.step = Step::Waiting;
                self.deadline = Instant::now() + ANSWER_TIME;
            }
            Request::Refused(status) => self.answer(http::response(status, status.reason()).into()),
        }
        Ok(())
    }

    fn send_answer(&mut self) -> Result<(), Errno> {
        let Step::Answer(bytes, sent) = &mut self.step else { return Ok(()) };
        *sent += send(&self.socket, &bytes[*sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        if *sent == bytes.len() {
            shutdown(&self.socket, Shutdown::Write)?;
            self.step = Step::Linger(LINGER_BYTES);
            self.deadline = Instant::now() + LINGER_TIME;
        }
        Ok(())
    }

    fn read_rest(&mut self) -> Result<(), Errno> {
        let Step::Linger(room) = &mut self.step else { return Ok(()) };
        *room = room.saturating_sub(receive(&self.socket, &mut [0; 16 << 10])?);
        if *room == 0 { Err(Errno::PIPE) } else { Ok(()) }
    }
}

/// Reads some bytes. The end of the stream is an error.
fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    match recv(socket, bytes, RecvFlags::DONTWAIT)?.0 {
        0 => Err(Errno::PIPE),
        len => Ok(len),
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::{ANSWER_TIME, Client, LINGER_BYTES};
    use rustix::event::PollFlags;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::Instant;

    /// A client that requests metrics, and the client's own end.
    fn asking() -> (Client, UnixStream) {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let mut client = Client::new(ours.into());
        for byte in b"GET /metrics HTTP/1.1\r\n\r\n" {
            assert!(!client.is_waiting());
            theirs.write_all(&[*byte]).unwrap();
            client.progress(PollFlags::IN);
        }
        assert!(client.is_waiting());
        (client, theirs)
    }

    #[test]
    fn a_long_answer_is_sent_as_fast_as_it_is_read() {
        let (mut client, mut theirs) = asking();
        let answer: Arc<[u8]> = (0..3 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 3]).collect();
        client.answer(answer.clone());
        theirs.set_nonblocking(true).unwrap();
        let mut taken = Vec::new();
        while taken.len() < answer.len() {
            let before = taken.len();
            client.progress(client.interest());
            // The read ends when all available bytes are taken.
            let _ = theirs.read_to_end(&mut taken);
            assert!(taken.len() > before && client.is_open(Instant::now()));
        }
        assert!(taken == *answer);
        client.progress(client.interest());
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "nothing follows");
        drop(theirs);
        client.progress(PollFlags::IN);
        assert!(!client.is_open(Instant::now()), "both have hung up");
    }

    #[test]
    fn a_client_that_reads_no_answer_or_keeps_sending_is_closed() {
        let (mut client, theirs) = asking();
        client.answer(vec![0; 8 << 20].into());
        client.progress(PollFlags::OUT);
        client.progress(PollFlags::OUT);
        assert!(client.is_open(Instant::now()) && !client.is_open(Instant::now() + ANSWER_TIME));
        drop(theirs);

        let (mut client, mut theirs) = asking();
        client.answer(b"short".as_slice().into());
        client.progress(PollFlags::OUT);
        let (mut sent, begun) = (0, Instant::now());
        while client.is_open(begun) {
            theirs.write_all(&[b'x'; 4096]).unwrap();
            sent += 4096;
            client.progress(PollFlags::IN);
        }
        assert!(sent >= LINGER_BYTES, "{sent}");
    }

    #[test]
    fn a_client_that_hangs_up_is_removed() {
        let (mut client, theirs) = asking();
        drop(theirs);
        client.progress(PollFlags::HUP);
        assert!(!client.is_open(Instant::now()));
    }
}
