//! SLMP's sending side. A message is a sequence of UDP datagrams; the first must be acknowledged before the others are
//! sent.
//!
//! * `packet`: the header.
//! * `window`: unacknowledged packets.
//!
//! A packet carries the message id, the offset of its payload, and flags. The first packet carries [`SYN`]; the last
//! carries [`EOM`] and [`SYN`]. With a window, all others carry [`SYN`] too, each is acknowledged, and the last is sent
//! after all others were acknowledged. There is no retransmission: a missing acknowledgement fails the message.

mod packet;
mod window;

use std::env;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::ops::Range;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_recv_buffer_size, socket_recv_buffer_size};

pub use packet::{ACK, EOM, SYN};

use packet::{HEADER, Header};
use window::Window;

/// UDP port of receivers.
pub const PORT: u16 = 9330;
/// Maximum payload in bytes: an Ethernet frame's payload less the headers of IPv4, UDP and SLMP.
pub const MAX_PAYLOAD: usize = 1462;
/// Maximum number of sending threads.
pub const MAX_THREADS: usize = 64;
/// Acknowledgement timeout, unless [`PATIENCE_VARIABLE`] sets another.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Environment variable with the acknowledgement timeout in milliseconds.
pub const PATIENCE_VARIABLE: &str = "FPSPIN_SLMP_TIMEOUT_MS";
/// Bytes of receive buffer for acknowledgements, of which [`MAX_WINDOW`] fit. The kernel counts them twice (socket(7), `SO_RCVBUF`).
const BUFFER: usize = 1 << 20;
/// Bytes that an acknowledgement takes in the receive buffer at most, as the kernel counts them.
const ACKNOWLEDGEMENT: usize = 2 * BUFFER / MAX_WINDOW;
/// Maximum number of unacknowledged packets, if the kernel grants the receive buffer.
pub const MAX_WINDOW: usize = 1024;
/// Interval at which a waiting thread checks whether it still has to wait.
const LOOK: Duration = Duration::from_millis(50);

/// Parameters of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Maximum number of unacknowledged packets. With 0, the sender awaits the acknowledgement of the first packet
    /// only.
    pub window: usize,
    /// Alignment of payload lengths in bytes, except for the last payload.
    pub align: usize,
    /// Minimum time between two packets of a thread.
    pub gap: Duration,
    /// Number of sending threads.
    pub threads: usize,
    /// Acknowledgement timeout.
    pub patience: Duration,
}

/// Reason why a message was not sent, or is not known to have arrived.
#[derive(Debug, thiserror::Error)]
pub enum SlmpError {
    /// An invalid setting.
    #[error("{name} {value}: between {least} and {most}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// Value given.
        value: i64,
        /// Smallest valid value.
        least: i64,
        /// Greatest valid value.
        most: i64,
    },
    /// A message whose length does not fit 32-bit offsets.
    #[error("a message of {0} bytes: at most 4294967295")]
    Long(usize),
    /// A socket error.
    #[error("network: {0}")]
    Io(#[from] io::Error),
    /// No acknowledgement arrived in time.
    #[error("{waiting} packets were not acknowledged within {patience:?}, first of them the one at byte {first}")]
    Silent {
        /// Number of unacknowledged packets.
        waiting: usize,
        /// Lowest offset of these packets.
        first: u32,
        /// Time waited.
        patience: Duration,
    },
}

/// A message that is being sent.
struct Message<'m> {
    sender: &'m Sender,
    socket: UdpSocket,
    id: u32,
    bytes: &'m [u8],
    /// Maximum number of unacknowledged packets; 0: only the first is acknowledged.
    window: usize,
    /// Payload bytes of each packet except the last.
    piece: usize,
    /// Number of packets.
    count: usize,
}

impl Sender {
    /// Makes a sender from C arguments.
    ///
    /// # Errors
    /// [`SlmpError::Setting`].
    pub fn new(window: i32, align: i32, gap_us: i32, threads: i32) -> Result<Self, SlmpError> {
        let within = |name, value: i32, least: i32, most: i32| {
            let (value, least, most) = (i64::from(value), i64::from(least), i64::from(most));
            let good = usize::try_from(value).ok().filter(|_| (least..=most).contains(&value));
            good.ok_or(SlmpError::Setting { name, value, least, most })
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "small constants")]
        let (longest, most_threads) = (MAX_PAYLOAD as i32, MAX_THREADS as i32);
        Ok(Self {
            window: within("wnd_sz", window, 0, i32::MAX)?,
            align: within("align", align, 0, longest)?.max(1),
            gap: Duration::from_micros(within("fc_us", gap_us, 0, i32::MAX)? as u64),
            threads: within("num_threads", threads, 1, most_threads)?,
            patience: patience(env::var(PATIENCE_VARIABLE).ok().as_deref()),
        })
    }

    /// Sends a message to the receiver at `server`.
    ///
    /// # Errors
    /// See [`SlmpError`]; parts of the message may have arrived.
    pub fn send(&self, server: Ipv4Addr, id: u32, bytes: &[u8]) -> Result<(), SlmpError> {
        u32::try_from(bytes.len()).map_err(|_| SlmpError::Long(bytes.len()))?;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(SocketAddrV4::new(server, PORT))?;
        socket.set_read_timeout(Some(LOOK))?;
        let window = self.window.min(acknowledgements_that_fit(&socket)?);
        if window < self.window {
            say_limit(self.window, window);
        }
        let piece = MAX_PAYLOAD / self.align * self.align;
        let count = bytes.len().div_ceil(piece).max(1);
        Message { sender: self, socket, id, bytes, window, piece, count }.send()
    }
}

impl Message<'_> {
    fn send(&self) -> Result<(), SlmpError> {
        let last = self.count - 1;
        if last == 0 {
            return self.alone(0, SYN | EOM);
        }
        self.alone(0, SYN)?;
        self.middle(1..last)?;
        if self.window > 0 {
            return self.alone(last, SYN | EOM);
        }
        self.transmit(last, SYN | EOM)
    }

    /// Sends a packet and waits until it is acknowledged.
    fn alone(&self, number: usize, flags: u16) -> Result<(), SlmpError> {
        let window = Window::new(1);
        window.enter(self.offset(number));
        self.transmit(number, flags)?;
        self.await_all(&window, 1)?;
        self.pause();
        Ok(())
    }

    /// Sends the packets between the first and the last, and waits for the acknowledgements that are due.
    fn middle(&self, numbers: Range<usize>) -> Result<(), SlmpError> {
        let window = (self.window > 0).then(|| Window::new(self.window));
        let threads = self.sender.threads.min(numbers.len());
        thread::scope(|scope| {
            let mut sending = Vec::new();
            for first in numbers.clone().take(threads) {
                let (share, window) = ((first..numbers.end).step_by(threads), window.as_ref());
                sending.push(thread::Builder::new().spawn_scoped(scope, move || self.share(share, window)));
            }
            let acknowledged = match &window {
                // If a thread failed to send, the message has failed and acknowledgements are not awaited.
                Some(window) if sending.iter().all(Result::is_ok) => self.await_all(window, numbers.len()),
                Some(window) => {
                    window.give_up();
                    Ok(())
                }
                None => Ok(()),
            };
            let sent = sending.into_iter().try_for_each(|thread| {
                // A panic of a sending thread counts as a failure to send.
                thread?.join().unwrap_or_else(|_| Err(io::Error::other("a sending thread ended").into()))
            });
            sent.and(acknowledged)
        })
    }

    /// Sends one thread's share of the packets.
    fn share(&self, numbers: impl Iterator<Item = usize>, window: Option<&Window>) -> Result<(), SlmpError> {
        for number in numbers {
            let flags = match window {
                Some(window) if !window.enter(self.offset(number)) => return Ok(()),
                Some(_) => SYN,
                None => 0,
            };
            let sent = self.transmit(number, flags);
            if let (Err(_), Some(window)) = (&sent, window) {
                window.give_up();
            }
            sent?;
            self.pause();
        }
        Ok(())
    }

    fn transmit(&self, number: usize, flags: u16) -> Result<(), SlmpError> {
        let start = number * self.piece;
        let payload = &self.bytes[start..self.bytes.len().min(start + self.piece)];
        let mut datagram = [0; HEADER + MAX_PAYLOAD];
        let header = Header { flags, message: self.id, offset: self.offset(number) };
        datagram[..HEADER].copy_from_slice(&header.encode());
        datagram[HEADER..HEADER + payload.len()].copy_from_slice(payload);
        self.socket.send(&datagram[..HEADER + payload.len()])?;
        Ok(())
    }

    /// Waits until the thread's next packet is due.
    fn pause(&self) {
        if !self.sender.gap.is_zero() {
            thread::sleep(self.sender.gap);
        }
    }

    /// Returns the offset of a packet's payload in the message.
    const fn offset(&self, number: usize) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "the message has fewer bytes")]
        let offset = (number * self.piece) as u32;
        offset
    }

    /// Receives acknowledgements until `count` packets have theirs, none has arrived for too long, or the senders gave
    /// up.
    fn await_all(&self, window: &Window, count: usize) -> Result<(), SlmpError> {
        let patience = self.sender.patience;
        let mut left = count;
        let mut datagram = [0; HEADER];
        while left > 0 && !window.is_given_up() {
            match self.socket.recv(&mut datagram) {
                Ok(length) => {
                    let header = Header::decode(&datagram[..length]).filter(|header| header.acknowledges(self.id));
                    if header.is_some_and(|header| window.leave(header.offset)) {
                        left -= 1;
                        continue;
                    }
                }
                Err(error) if is_pause(&error) => {}
                Err(error) => {
                    window.give_up();
                    return Err(error.into());
                }
            }
            // Checked after each datagram too: unrelated datagrams must not prolong the wait.
            if window.silence() >= patience {
                let (waiting, first) = window.give_up();
                return Err(SlmpError::Silent { waiting, first, patience });
            }
        }
        Ok(())
    }
}

/// Asks for a receive buffer and returns how many acknowledgements fit into the one that the kernel grants: at most `net.core.rmem_max`,
/// which is 212,992 bytes unless set.
fn acknowledgements_that_fit(socket: &UdpSocket) -> io::Result<usize> {
    set_socket_recv_buffer_size(socket, BUFFER)?;
    Ok(socket_recv_buffer_size(socket)? / ACKNOWLEDGEMENT)
}

/// Says, once in a process, that a window is smaller than asked for.
fn say_limit(asked: usize, window: usize) {
    static SAID: Once = Once::new();
    SAID.call_once(|| eprintln!("{}", limit(asked, window)));
}

/// The line that says that a window is smaller than asked for.
fn limit(asked: usize, window: usize) -> String {
    let remedy = if window >= MAX_WINDOW {
        format!("the greatest is {MAX_WINDOW}")
    } else {
        format!("for more, sysctl -w net.core.rmem_max={BUFFER}")
    };
    format!(
        "libfpspin: SLMP window {asked}: acknowledgements of {window} packets fit into the receive buffer; {remedy}"
    )
}

/// Returns the acknowledgement timeout: the environment variable's value, or the default if it is absent or invalid.
fn patience(text: Option<&str>) -> Duration {
    text.and_then(|text| text.parse().ok()).filter(|&ms| ms > 0).map_or(PATIENCE, Duration::from_millis)
}

/// Whether the error means that no datagram has arrived yet.
fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
