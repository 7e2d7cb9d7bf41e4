//! SLMP's sending side: a message as UDP datagrams, the first of which is acknowledged before the others are sent.
//!
//! * `packet`: the header.
//! * `window`: packets that wait for their acknowledgement.
//!
//! A packet has the message's id, the place of its payload in the message, and flags. The first carries [`SYN`]; with a window, so
//! do all others, and each is acknowledged; the last carries [`EOM`] and [`SYN`] and is sent when all others are acknowledged.
//! Nothing is sent again: what is not acknowledged in time fails the message.

mod packet;
mod window;

use std::env;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::ops::Range;
use std::thread;
use std::time::Duration;

pub use packet::{ACK, EOM, SYN};

use packet::{HEADER, Header};
use window::Window;

/// UDP port of receivers.
pub const PORT: u16 = 9330;
/// Longest payload: what fits Ethernet with the headers of IPv4, UDP and SLMP.
pub const MAX_PAYLOAD: usize = 1462;
/// Most threads that send.
pub const MAX_THREADS: usize = 64;
/// How long an acknowledgement may take, unless [`PATIENCE_VARIABLE`] says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Environment variable that says so in milliseconds.
pub const PATIENCE_VARIABLE: &str = "FPSPIN_SLMP_TIMEOUT_MS";
/// How often a thread that waits looks whether it still has to.
const LOOK: Duration = Duration::from_millis(50);

/// How messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Packets that may wait for their acknowledgement; 0: none but the first is acknowledged.
    pub window: usize,
    /// Lengths of payloads are multiples of this, but the last one's.
    pub align: usize,
    /// Time between two packets of a thread, at least.
    pub gap: Duration,
    /// Threads that send.
    pub threads: usize,
    /// How long an acknowledgement may take.
    pub patience: Duration,
}

/// Why a message was not sent, or is not known to have arrived.
#[derive(Debug, thiserror::Error)]
pub enum SlmpError {
    /// A setting that means nothing.
    #[error("{name} {value}: between {least} and {most}")]
    Setting {
        /// Which.
        name: &'static str,
        /// What it is.
        value: i64,
        /// Least that there can be.
        least: i64,
        /// Most that there can be.
        most: i64,
    },
    /// Offsets have 32 bits.
    #[error("a message of {0} bytes: at most 4294967295")]
    Long(usize),
    /// The network.
    #[error("network: {0}")]
    Io(#[from] io::Error),
    /// Nobody acknowledged.
    #[error("{waiting} packets were not acknowledged within {patience:?}, first of them the one at byte {first}")]
    Silent {
        /// Packets that were sent and not acknowledged.
        waiting: usize,
        /// Least offset of them.
        first: u32,
        /// How long was waited.
        patience: Duration,
    },
}

/// A message on its way.
struct Message<'m> {
    sender: &'m Sender,
    socket: UdpSocket,
    id: u32,
    bytes: &'m [u8],
    /// Bytes of each payload but the last.
    piece: usize,
    /// Packets.
    count: usize,
}

impl Sender {
    /// One that sends in this way, if there is such a way.
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
        let piece = MAX_PAYLOAD / self.align * self.align;
        let count = bytes.len().div_ceil(piece).max(1);
        Message { sender: self, socket, id, bytes, piece, count }.send()
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
        if self.sender.window > 0 {
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

    /// Sends packets that are neither the first nor the last, and waits until all that are to be acknowledged are.
    fn middle(&self, numbers: Range<usize>) -> Result<(), SlmpError> {
        let Sender { window: size, threads, .. } = *self.sender;
        let window = (size > 0).then(|| Window::new(size));
        let threads = threads.min(numbers.len());
        thread::scope(|scope| {
            let mut sending = Vec::new();
            for first in numbers.clone().take(threads) {
                let (share, window) = ((first..numbers.end).step_by(threads), window.as_ref());
                sending.push(thread::Builder::new().spawn_scoped(scope, move || self.share(share, window)));
            }
            let acknowledged = match &window {
                // Without all of its threads a message is not waited for.
                Some(window) if sending.iter().all(Result::is_ok) => self.await_all(window, numbers.len()),
                Some(window) => {
                    window.give_up();
                    Ok(())
                }
                None => Ok(()),
            };
            let sent = sending.into_iter().try_for_each(|thread| {
                // A thread that panics is taken for one that failed to send.
                thread?.join().unwrap_or_else(|_| Err(io::Error::other("a sending thread ended").into()))
            });
            sent.and(acknowledged)
        })
    }

    /// Sends one thread's part of the packets.
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

    /// Keeps the distance to a thread's next packet.
    fn pause(&self) {
        if !self.sender.gap.is_zero() {
            thread::sleep(self.sender.gap);
        }
    }

    /// Where in the message a packet's payload belongs.
    const fn offset(&self, number: usize) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "the message has fewer bytes")]
        let offset = (number * self.piece) as u32;
        offset
    }

    /// Takes acknowledgements until `count` packets have theirs, or none has come for too long, or the senders gave up.
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
            // Also where others' datagrams keep coming.
            if window.silence() >= patience {
                let (waiting, first) = window.give_up();
                return Err(SlmpError::Silent { waiting, first, patience });
            }
        }
        Ok(())
    }
}

/// How long an acknowledgement may take, as the environment variable says or, if it says nothing of use, as ever.
fn patience(text: Option<&str>) -> Duration {
    text.and_then(|text| text.parse().ok()).filter(|&ms| ms > 0).map_or(PATIENCE, Duration::from_millis)
}

/// Nothing has come yet.
fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
