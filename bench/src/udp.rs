//! A UDP client that checks every reply byte for byte, and an echo server on the kernel's sockets for comparison.

use crate::content;
use crate::outcome::{Outcome, RoundTrips};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Maximum UDP payload over IPv4 in bytes.
pub const MAX_SIZE: usize = 65507;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Address of the server.
    pub to: SocketAddr,
    /// Number of datagrams to send.
    pub count: u64,
    /// Size of each datagram in bytes, [`content::MIN_SIZE`] to [`MAX_SIZE`].
    pub size: usize,
    /// Maximum number of unanswered datagrams; 1 is ping-pong.
    pub window: usize,
    /// Time after which a datagram counts as lost.
    pub timeout: Duration,
    /// Minimum time between two sends; zero for none.
    pub interval: Duration,
    /// Seed of the content.
    pub seed: u64,
}

/// Reason why a run has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The size is out of range.
    #[error("size {0}: between {min} and {MAX_SIZE} bytes are possible", min = content::MIN_SIZE)]
    Size(usize),
    /// A window of zero sends nothing.
    #[error("a window of 0 sends nothing: 1 is ping-pong")]
    Window,
    /// A socket error.
    #[error("UDP socket to {to}: {source}")]
    Socket {
        /// Address of the peer.
        to: SocketAddr,
        /// Cause.
        source: io::Error,
    },
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Unsent,
    Pending(Instant),
    Answered,
    Lost,
}

struct Run<'a> {
    plan: &'a Plan,
    socket: UdpSocket,
    states: Vec<State>,
    /// Sequence numbers in sending order; answered ones stay until they reach the front.
    order: VecDeque<u64>,
    pending: usize,
    times: RoundTrips,
    outcome: Outcome,
    expected: Vec<u8>,
}

/// Sends the datagrams and waits for their replies; each wait is bounded by the plan's timeout.
///
/// # Errors
/// See [`Error`].
pub fn run(plan: &Plan) -> Result<Outcome, Error> {
    if !(content::MIN_SIZE..=MAX_SIZE).contains(&plan.size) {
        return Err(Error::Size(plan.size));
    }
    if plan.window == 0 {
        return Err(Error::Window);
    }
    let failed = |source| Error::Socket { to: plan.to, source };
    let mut run = Run::new(plan).map_err(failed)?;
    run.all().map_err(failed)?;
    run.outcome.set_times(&run.times);
    Ok(run.outcome)
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan) -> io::Result<Self> {
        let any: SocketAddr = if plan.to.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(any)?;
        socket.connect(plan.to)?;
        let states = usize::try_from(plan.count).map_err(|_| ErrorKind::InvalidInput)?;
        Ok(Self {
            plan,
            socket,
            states: vec![State::Unsent; states],
            order: VecDeque::new(),
            pending: 0,
            times: RoundTrips::default(),
            outcome: Outcome { name: format!("udp {} B", plan.size), ..Outcome::default() },
            expected: vec![0; plan.size],
        })
    }

    fn all(&mut self) -> io::Result<()> {
        let mut next_send = Instant::now();
        let mut buffer = vec![0; MAX_SIZE];
        while self.outcome.sent < self.plan.count || self.pending > 0 {
            let now = Instant::now();
            self.expire(now);
            let may_send = self.outcome.sent < self.plan.count && self.pending < self.plan.window;
            if may_send && now >= next_send {
                self.send()?;
                next_send = now + self.plan.interval;
                continue;
            }
            let wait = if may_send { next_send - now } else { self.plan.timeout };
            self.receive(&mut buffer, wait)?;
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        let sequence = self.outcome.sent;
        content::datagram(&mut self.expected, self.plan.seed, sequence);
        let now = Instant::now();
        match self.socket.send(&self.expected) {
            Ok(_) => {}
            // A pending ICMP error: this datagram was not sent and will count as lost.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
        self.states[index(sequence)] = State::Pending(now);
        self.order.push_back(sequence);
        self.pending += 1;
        self.outcome.sent += 1;
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<()> {
        // A timeout of zero would mean no timeout.
        self.socket.set_read_timeout(Some(wait.max(Duration::from_micros(1))))?;
        match self.socket.recv(buffer) {
            Ok(length) => self.reply(&buffer[..length], Instant::now()),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::ConnectionRefused => {
                }
                _ => return Err(error),
            },
        }
        Ok(())
    }

    fn reply(&mut self, reply: &[u8], now: Instant) {
        let Some(sequence) = content::sequence(reply).filter(|sequence| *sequence < self.outcome.sent) else {
            self.outcome.wrong += 1;
            return;
        };
        content::datagram(&mut self.expected, self.plan.seed, sequence);
        if reply != self.expected {
            self.outcome.wrong += 1;
            return;
        }
        let state = &mut self.states[index(sequence)];
        match *state {
            State::Pending(sent) => {
                *state = State::Answered;
                self.pending -= 1;
                self.outcome.answered += 1;
                self.times.record(now - sent);
            }
            State::Answered => self.outcome.duplicate += 1,
            State::Lost | State::Unsent => self.outcome.late += 1,
        }
    }

    /// Counts datagrams that have exceeded the timeout as lost.
    fn expire(&mut self, now: Instant) {
        while let Some(sequence) = self.order.front().copied() {
            let state = &mut self.states[index(sequence)];
            if let State::Pending(sent) = *state {
                if now - sent < self.plan.timeout {
                    return;
                }
                *state = State::Lost;
                self.pending -= 1;
                self.outcome.lost += 1;
            }
            self.order.pop_front();
        }
    }
}

/// Converts a sequence number; it is below the count, which fits.
fn index(sequence: u64) -> usize {
    #[allow(clippy::cast_possible_truncation, reason = "below the length of a Vec")]
    let index = sequence as usize;
    index
}

/// Sends every datagram back to its sender through the kernel's sockets. Polls a socket that does not block. Returns only when
/// the socket fails.
///
/// # Errors
/// The socket's error.
pub fn echo(socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = vec![0; MAX_SIZE];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => match socket.send_to(&buffer[..length], from) {
                // A full send buffer loses the reply.
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                Ok(_) | Err(_) => {}
            },
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Interrupted | ErrorKind::ConnectionRefused | ErrorKind::WouldBlock
                ) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, Plan, run};
    use std::net::{SocketAddr, UdpSocket};
    use std::time::Duration;

    /// Starts a server that passes each datagram to `answer`, until its socket receives nothing for ten seconds.
    fn server(answer: impl Fn(usize, &UdpSocket, &mut [u8], SocketAddr) + Send + 'static) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            let mut number = 0;
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                answer(number, &socket, &mut buffer[..length], from);
                number += 1;
            }
        });
        address
    }

    fn plan(to: SocketAddr) -> Plan {
        let timeout = Duration::from_secs(1);
        Plan { to, count: 20, size: 100, window: 1, timeout, interval: Duration::ZERO, seed: 5 }
    }

    #[test]
    fn an_echo_answers_all() {
        let to = server(|_, socket, bytes, from| drop(socket.send_to(bytes, from)));
        for (window, size) in [(1, 8), (7, 1472)] {
            let outcome = run(&Plan { window, size, timeout: Duration::from_secs(10), ..plan(to) }).unwrap();
            assert!(outcome.all_answered() && outcome.p99_us >= outcome.p50_us, "{outcome:?}");
        }
    }

    #[test]
    fn wrong_duplicate_lost_and_short_replies_are_told_apart() {
        let to = server(|number, socket, bytes, from| {
            match number {
                3 => *bytes.last_mut().unwrap() ^= 1,
                5 => drop(socket.send_to(bytes, from)),
                7 => return,
                9 => return drop(socket.send_to(&bytes[..99], from)),
                _ => {}
            }
            drop(socket.send_to(bytes, from));
        });
        let outcome = run(&plan(to)).unwrap();
        assert_eq!((outcome.sent, outcome.answered, outcome.lost), (20, 17, 3), "{outcome:?}");
        assert_eq!((outcome.wrong, outcome.duplicate, outcome.late), (2, 1, 0), "{outcome:?}");
    }

    #[test]
    fn silence_is_lost_and_bounded() {
        let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
        let quiet = Plan { count: 3, timeout: Duration::from_millis(20), ..plan(nobody.local_addr().unwrap()) };
        assert!(run(&quiet).unwrap().none_answered());
        let closed = nobody.local_addr().unwrap();
        drop(nobody);
        assert!(run(&Plan { to: closed, ..quiet }).unwrap().none_answered());
    }

    #[test]
    fn senseless_plans_are_refused() {
        let to = "127.0.0.1:9".parse().unwrap();
        assert!(matches!(run(&Plan { size: 7, ..plan(to) }), Err(Error::Size(7))));
        assert!(matches!(run(&Plan { window: 0, ..plan(to) }), Err(Error::Window)));
    }
}
