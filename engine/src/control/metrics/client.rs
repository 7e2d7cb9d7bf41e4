//! One connection: a request, an answer, the end. Nothing in it waits, and each step has its time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::http::{self, MAX_REQUEST, Request};

/// For the whole of a request to arrive.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// For the whole of an answer to be taken.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// For the client to hang up after that.
const FAREWELL_TIME: Duration = Duration::from_secs(1);
/// Most bytes read of a client that has its answer.
const FAREWELL_BYTES: usize = 1 << 20;

/// A connection.
pub struct Client {
    socket: OwnedFd,
    step: Step,
    /// By when this step has to be done.
    deadline: Instant,
}

enum Step {
    /// The request's head, as far as it has come.
    Request(Vec<u8>),
    /// It asked for metrics.
    Waiting,
    /// An answer, and how much of it was sent.
    Answer(Arc<[u8]>, usize),
    /// It has its answer. What else it sends is read, up to that many bytes: a connection closed with bytes unread is reset,
    /// and the answer lost.
    Farewell(usize),
    /// Done with, or gone.
    Over,
}

impl Client {
    /// A connection of which nothing was read.
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, step: Step::Request(Vec::new()), deadline: Instant::now() + REQUEST_TIME }
    }

    /// What to wait for on its socket.
    pub const fn interest(&self) -> PollFlags {
        match self.step {
            Step::Request(_) | Step::Farewell(_) => PollFlags::IN,
            Step::Answer(..) => PollFlags::OUT,
            Step::Waiting | Step::Over => PollFlags::empty(),
        }
    }

    /// When its time is over.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether there is more to it at `now`.
    pub fn lives(&self, now: Instant) -> bool {
        // Who waits for values waits as long as these take.
        !matches!(self.step, Step::Over) && (self.waits() || now < self.deadline)
    }

    /// Whether it waits for metrics.
    pub const fn waits(&self) -> bool {
        matches!(self.step, Step::Waiting)
    }

    /// Answers it.
    pub fn answer(&mut self, bytes: Arc<[u8]>) {
        self.step = Step::Answer(bytes, 0);
        self.deadline = Instant::now() + ANSWER_TIME;
    }

    /// Goes on as far as it can without waiting.
    pub fn go_on(&mut self, ready: PollFlags) {
        if ready.is_empty() {
            return;
        }
        let done = match &mut self.step {
            Step::Request(_) => self.read_request(),
            Step::Answer(..) => self.send_answer(),
            Step::Farewell(_) => self.read_farewell(),
            // Ready for what it was not asked: it hung up.
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
            self.step = Step::Farewell(FAREWELL_BYTES);
            self.deadline = Instant::now() + FAREWELL_TIME;
        }
        Ok(())
    }

    fn read_farewell(&mut self) -> Result<(), Errno> {
        let Step::Farewell(room) = &mut self.step else { return Ok(()) };
        *room = room.saturating_sub(receive(&self.socket, &mut [0; 16 << 10])?);
        if *room == 0 { Err(Errno::PIPE) } else { Ok(()) }
    }
}

/// Reads some bytes; none is an error.
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
    use super::{ANSWER_TIME, Client, FAREWELL_BYTES};
    use rustix::event::PollFlags;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::Instant;

    /// A client that asked for metrics, and its own end.
    fn asking() -> (Client, UnixStream) {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let mut client = Client::new(ours.into());
        for byte in b"GET /metrics HTTP/1.1\r\n\r\n" {
            assert!(!client.waits());
            theirs.write_all(&[*byte]).unwrap();
            client.go_on(PollFlags::IN);
        }
        assert!(client.waits());
        (client, theirs)
    }

    #[test]
    fn a_long_answer_leaves_as_fast_as_it_is_taken() {
        let (mut client, mut theirs) = asking();
        let answer: Arc<[u8]> = (0..3 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 3]).collect();
        client.answer(answer.clone());
        theirs.set_nonblocking(true).unwrap();
        let mut taken = Vec::new();
        while taken.len() < answer.len() {
            let before = taken.len();
            client.go_on(client.interest());
            // Ends with all that is there.
            let _ = theirs.read_to_end(&mut taken);
            assert!(taken.len() > before && client.lives(Instant::now()));
        }
        assert!(taken == *answer);
        client.go_on(client.interest());
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "nothing follows");
        drop(theirs);
        client.go_on(PollFlags::IN);
        assert!(!client.lives(Instant::now()), "both have hung up");
    }

    #[test]
    fn who_takes_no_answer_or_goes_on_talking_is_hung_up_on() {
        let (mut client, theirs) = asking();
        client.answer(vec![0; 8 << 20].into());
        client.go_on(PollFlags::OUT);
        client.go_on(PollFlags::OUT);
        assert!(client.lives(Instant::now()) && !client.lives(Instant::now() + ANSWER_TIME));
        drop(theirs);

        let (mut client, mut theirs) = asking();
        client.answer(b"short".as_slice().into());
        client.go_on(PollFlags::OUT);
        let (mut sent, begun) = (0, Instant::now());
        while client.lives(begun) {
            theirs.write_all(&[b'x'; 4096]).unwrap();
            sent += 4096;
            client.go_on(PollFlags::IN);
        }
        assert!(sent >= FAREWELL_BYTES, "{sent}");
    }

    #[test]
    fn who_hangs_up_is_forgotten() {
        let (mut client, theirs) = asking();
        drop(theirs);
        client.go_on(PollFlags::HUP);
        assert!(!client.lives(Instant::now()));
    }
}
