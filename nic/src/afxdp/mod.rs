//! AF_XDP: frames of an interface that match a rule, without the kernel's stack; all others go through it as ever.
//!
//! * [`config`]: what to open, and how.
//! * `interface`: what the kernel says of it.
//! * `map`, `umem`: memory; chunks and who owns each.
//! * `ring`: the rings shared with the kernel.
//! * `bind`, `socket`: one queue of the interface.
//! * [`filter`]: the XDP program; `attach` puts it on the interface.
//!
//! A frame of an interface behaves on the wire as the kernel gave it to the XDP program. Between veth peers that means:
//! the peer's checksums are filled in only with `ethtool -K PEER tx off`, and the tags of its VLAN interfaces are in the
//! frame only with `ethtool -K PEER txvlan off`. Tags that a packet socket or an AF_XDP socket writes are in the frame.

mod attach;
mod bind;
pub mod config;
pub mod filter;
mod interface;
mod map;
mod ring;
mod socket;
mod umem;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use spin_abi::rules::Test;

pub use config::{AfXdpConfig, HugePages, Mode, Queues, ZeroCopy};
pub use filter::{Filter, FilterCounters};

use self::attach::Attached;
use self::interface::Interface;
use self::socket::Socket;
use crate::error::NicError;
use crate::frame::{CAPACITY, CHUNK, Frame};
use crate::queue::Queue;
use crate::wait::{poll, timespec};

/// Ethernet header and two VLAN tags: what a frame has beyond the MTU.
const LINK_HEADER: u32 = 14 + 2 * 4;

/// All chosen queues of an interface as one [`Queue`].
///
/// Frames are received from the queues in turn and leave through the queue whose memory they lie in. Dropping it
/// detaches the program and closes the sockets; so does the kernel when the process is killed.
pub struct AfXdp {
    // Dropped in this order: detached first, so that no frame is taken for a socket that is closing.
    attached: Attached,
    sockets: Vec<Socket>,
    filter: Filter,
    interface: Interface,
    frames_per_queue: u32,
    /// The socket to receive from first, the next time.
    turn: usize,
    foreign_frames: u64,
}

impl AfXdp {
    /// Opens an interface. No frame is taken before [`Queue::set_rules`].
    ///
    /// # Errors
    /// A [`NicError`] that says what to do: no such interface, down, no privileges, another XDP program, a queue in use.
    pub fn open(config: &AfXdpConfig) -> Result<Self, NicError> {
        config.check()?;
        let interface = Interface::find(&config.interface)?;
        check_mtu(&interface, config.mode)?;
        let queues = choose_queues(&interface, &config.queues)?;
        let filter = Filter::load_for(interface.queues)?;
        let attached = attach::attach(filter.program(), &interface, config.mode)?;
        let mut sockets = Vec::with_capacity(queues.len());
        for queue in queues {
            let socket = Socket::new(bind::open(config, &interface, queue)?);
            filter.serve(queue, socket.fd())?;
            sockets.push(socket);
        }
        let frames_per_queue = config.frames_per_queue;
        Ok(Self { attached, sockets, filter, interface, frames_per_queue, turn: 0, foreign_frames: 0 })
    }

    /// Runs the XDP program on one frame and says whether it would be redirected; see [`Filter::test_run`].
    ///
    /// # Errors
    /// When the kernel refuses to run it.
    pub fn test_run(&self, frame: &[u8]) -> Result<bool, NicError> {
        self.filter.test_run(frame)
    }

    /// The socket a frame belongs to.
    fn home(&mut self, frame: &Frame) -> Option<&mut Socket> {
        let pool = frame.pool();
        self.sockets.iter_mut().find(|socket| socket.pool() == pool)
    }
}

/// A frame that does not fit is lost in native mode, or the driver refuses; in generic mode it may be what is wanted.
fn check_mtu(interface: &Interface, mode: Mode) -> Result<(), NicError> {
    let limit = CAPACITY as u32 - LINK_HEADER;
    if mode == Mode::Generic || interface.mtu <= limit {
        return Ok(());
    }
    Err(NicError::Mtu { name: interface.name.clone(), mtu: interface.mtu, limit })
}

fn choose_queues(interface: &Interface, queues: &Queues) -> Result<Vec<u32>, NicError> {
    let count = interface.queues;
    match queues {
        Queues::All => Ok((0..count).collect()),
        Queues::List(list) => match list.iter().find(|&&queue| queue >= count) {
            Some(&queue) => Err(NicError::NoQueue { name: interface.name.clone(), queue, count }),
            None => Ok(list.clone()),
        },
    }
}

impl Queue for AfXdp {
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        let (mut count, sockets) = (0, self.sockets.len());
        for step in 0..sockets {
            if count == max {
                break;
            }
            let turn = (self.turn + step) % sockets;
            count += self.sockets[turn].receive(out, max - count);
        }
        self.turn = (self.turn + 1) % sockets;
        count
    }

    fn allocate(&mut self) -> Option<Frame> {
        self.sockets.iter_mut().find_map(Socket::allocate)
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        // How many find room is known only as they take it; popping from the reversed batch leaves the rest in order.
        batch.reverse();
        let before = batch.len();
        while let Some(frame) = batch.pop() {
            let Some(socket) = self.home(&frame) else {
                self.foreign_frames += 1;
                continue;
            };
            if !socket.has_room() {
                batch.push(frame);
                break;
            }
            socket.push(frame);
        }
        batch.reverse();
        before - batch.len()
    }

    fn recycle(&mut self, frame: Frame) {
        let recycled = match self.home(&frame) {
            Some(socket) => socket.recycle(frame),
            None => false,
        };
        self.foreign_frames += u64::from(!recycled);
    }

    fn flush(&mut self) -> Result<(), NicError> {
        for socket in &mut self.sockets {
            if let Err(errno) = socket.flush() {
                return Err(match socket.gone() {
                    true => NicError::Gone { name: self.interface.name.clone() },
                    false => NicError::system("send or receive on an AF_XDP socket", errno),
                });
            }
        }
        Ok(())
    }

    fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<(), NicError> {
        if self.sockets.iter().all(Socket::is_empty) {
            let sockets = self.sockets.iter().map(|socket| PollFd::from_borrowed_fd(socket.fd(), PollFlags::IN));
            let wake = wake.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let mut fds: Vec<_> = sockets.chain(wake).collect();
            poll(&mut fds, &timespec(timeout))?;
        }
        self.sockets.iter_mut().for_each(Socket::check_gone);
        Ok(())
    }

    fn exhausted(&self) -> bool {
        self.sockets.iter().all(|socket| socket.gone() && socket.is_empty())
    }

    fn set_rules(&mut self, tests: &[Test]) -> Result<(), NicError> {
        self.filter.set_rules(tests)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let filter = self.filter.counters().unwrap_or_default();
        let own = |field: fn(socket::Counts) -> u64| self.sockets.iter().map(|socket| field(socket.counts())).sum();
        let statistics: Vec<_> = self.sockets.iter().map(Socket::statistics).collect();
        let kernel = |field: fn(&rustix::net::xdp::XdpStatistics) -> u64| statistics.iter().map(field).sum();
        vec![
            ("passed_kernel", filter.passed),
            ("passed_kernel_bytes", filter.passed_bytes),
            ("redirected", filter.redirected),
            ("redirected_bytes", filter.redirected_bytes),
            ("unserved", filter.unserved),
            ("rx_frames", own(|counts| counts.received)),
            // In copy mode a frame lost for want of a chunk is in `rx_dropped` and in `rx_fill_empty` (net/xdp/xsk.c).
            ("rx_dropped", kernel(|kernel| kernel.rx_dropped)),
            ("rx_ring_full", kernel(|kernel| kernel.rx_ring_full.unwrap_or(0))),
            ("rx_fill_empty", kernel(|kernel| kernel.rx_fill_ring_empty_descs.unwrap_or(0))),
            ("rx_invalid", kernel(|kernel| kernel.rx_invalid_descs)),
            ("tx_frames", own(|counts| counts.sent)),
            ("tx_busy", own(|counts| counts.tx_busy)),
            ("tx_invalid", own(|counts| counts.tx_invalid)),
            ("tx_invalid_kernel", kernel(|kernel| kernel.tx_invalid_descs)),
            ("bad_descriptors", own(|counts| counts.bad_descriptors)),
            ("foreign_frames", self.foreign_frames),
        ]
    }

    fn describe(&self) -> String {
        let name = &self.interface.name;
        let mode = if self.attached.native { "native" } else { "generic" };
        let copy = if self.sockets.iter().all(Socket::zero_copy) { "zero-copy" } else { "copy" };
        let (count, all) = (self.sockets.len(), self.interface.queues);
        let queues = if count == 1 { "1 queue".to_owned() } else { format!("{count} queues") };
        let of = if count == all as usize { String::new() } else { format!(" of {all}") };
        let pages = if self.sockets.iter().all(Socket::huge_pages) { "huge pages" } else { "small pages" };
        format!("{name}: {mode}, {copy}, {queues}{of}, {} x {CHUNK} B UMEM ({pages})", self.frames_per_queue)
    }
}
