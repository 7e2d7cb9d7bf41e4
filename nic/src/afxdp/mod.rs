//! AF_XDP: frames of an interface that match a rule, without the kernel's stack; all others go through it as ever.
//!
//! * [`config`]: what to open, and how.
//! * `interface`: what the kernel says of it.
//! * `umem`: chunks and who owns each.
//! * `ring`: the rings shared with the kernel.
//! * `bind`, `socket`: one queue of the interface.
//! * [`filter`]: the XDP program; `attach` puts it on the interface.
//! * `pass`: handing frames back to the kernel's stack.
//!
//! A frame of an interface behaves on the wire as the kernel gave it to the XDP program. Between veth peers that means:
//! the peer's checksums are filled in only with `ethtool -K PEER tx off`, and the tags of its VLAN interfaces are in the
//! frame only with `ethtool -K PEER txvlan off`. Tags that a packet socket or an AF_XDP socket writes are in the frame.

mod attach;
mod bind;
pub mod config;
pub mod filter;
mod interface;
mod pass;
mod ring;
mod socket;
mod umem;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

pub use config::{AfXdpConfig, HugePages, Mode, Queues, ZeroCopy};
pub use filter::{Filter, FilterCounters};

use self::attach::Attached;
use self::interface::Interface;
use self::pass::Passer;
use self::socket::Socket;
use crate::affinity::made_on;
use crate::error::NicError;
use crate::frame::{CAPACITY, CHUNK, Frame};
use crate::queue::{FEW, Queue};
use crate::steering::Steering;
use crate::wait::{poll, timespec};

/// Ethernet header and two VLAN tags: what a received frame may have beyond the MTU.
const LINK_HEADER: u32 = 14 + 2 * 4;
/// Ethernet header and one VLAN tag, whether there or not: what a sent frame may have beyond the MTU. The kernel's bound
/// where it has one: `__is_skb_forwardable` (include/linux/netdevice.h), which veth applies with the MTU of the receiving
/// end, and `packet_snd` (net/packet/af_packet.c).
const SENT_LINK_HEADER: u32 = 14 + 4;
/// One flush in so many asks whether the device is still there: milliseconds of spinning, and no cost that shows.
const FLUSHES_PER_CHECK: u32 = 1 << 14;

/// All chosen queues of an interface as one [`Queue`].
///
/// Frames are received from the queues in turn and leave through the queue whose memory they lie in. New ones come from
/// the queue received from last, while it has any: so answers leave by one queue, whether copied or sent from the buffer
/// they came in. The longest frame is that of the MTU at opening. Dropping it detaches the program and closes the
/// sockets; so does the kernel when the process is killed.
pub struct AfXdp {
    // Dropped in this order: detached first, so that no frame is taken for a socket that is closing. Where an interface has
    // parts, the last one detaches; what arrives for another one's queues until then goes to the kernel's stack.
    program: Arc<Program>,
    /// It speaks for the program.
    first: bool,
    sockets: Vec<Socket>,
    interface: Interface,
    frames_per_queue: u32,
    max_frame: usize,
    /// The socket to receive from first, the next time.
    turn: usize,
    /// The socket that the last received frame came from.
    latest: usize,
    /// Frames that stay, during `send`; empty otherwise. Kept for its capacity.
    staying: Vec<Frame>,
    passer: Passer,
    flushes: u32,
    foreign_frames: u64,
}

/// The XDP program of an interface, where it is attached.
struct Program {
    attached: Attached,
    filter: Arc<Filter>,
}

impl AfXdp {
    /// Opens an interface. No frame is taken before [`Steering::set_rules`].
    ///
    /// # Errors
    /// A [`NicError`] that says what to do: no such interface, down, no privileges, another XDP program, a queue in use.
    pub fn open(config: &AfXdpConfig) -> Result<Self, NicError> {
        Self::open_parts(config, 1).map(|mut parts| parts.swap_remove(0))
    }

    /// Opens an interface in `parts` (at least one) that share out its queues: each serves its own, on whatever thread. Rules
    /// set through one of them are those of all.
    ///
    /// # Errors
    /// As [`AfXdp::open`]; [`NicError::FewQueues`] when there are fewer queues than parts.
    pub fn open_parts(config: &AfXdpConfig, parts: usize) -> Result<Vec<Self>, NicError> {
        config.check()?;
        let interface = Interface::find(&config.interface)?;
        check_mtu(&interface, config.mode)?;
        let queues = choose_queues(&interface, &config.queues)?;
        let parts = parts.max(1);
        if queues.len() < parts {
            return Err(NicError::FewQueues { name: interface.name, queues: queues.len(), parts });
        }
        let filter = Arc::new(Filter::load_for(interface.queues)?);
        let attached = attach::attach(&filter, &interface, config.mode)?;
        let program = Arc::new(Program { attached, filter });
        let part = |part: usize| {
            let queues = queues.iter().copied().skip(part).step_by(parts);
            let open = || Self::open_part(config, &interface, &program, part == 0, queues.clone());
            match config.cores.get(part) {
                Some(&core) => made_on(core, open),
                None => open(),
            }
        };
        (0..parts).map(part).collect()
    }

    fn open_part(
        config: &AfXdpConfig,
        interface: &Interface,
        program: &Arc<Program>,
        first: bool,
        queues: impl Iterator<Item = u32>,
    ) -> Result<Self, NicError> {
        let max_frame = max_frame(interface.mtu);
        let mut sockets = Vec::new();
        for queue in queues {
            let socket = Socket::new(bind::open(config, interface, queue)?, max_frame);
            program.filter.serve(queue, socket.fd())?;
            sockets.push(socket);
        }
        Ok(Self {
            program: program.clone(),
            first,
            sockets,
            interface: interface.clone(),
            frames_per_queue: config.frames_per_queue,
            max_frame,
            turn: 0,
            latest: 0,
            staying: Vec::new(),
            passer: Passer::new(interface.index, program.attached.native),
            flushes: 0,
            foreign_frames: 0,
        })
    }

    /// Runs the XDP program on one frame and says whether it would be redirected; see [`Filter::test_run`].
    ///
    /// # Errors
    /// When the kernel refuses to run it.
    pub fn test_run(&self, frame: &[u8]) -> Result<bool, NicError> {
        self.program.filter.test_run(frame)
    }

    /// The socket a frame belongs to.
    fn home(&mut self, frame: &Frame) -> Option<&mut Socket> {
        self.sockets.iter_mut().find(|socket| frame.is_of(socket.pool()))
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

/// The longest frame that can be sent with this MTU.
fn max_frame(mtu: u32) -> usize {
    (mtu.saturating_add(SENT_LINK_HEADER) as usize).min(CAPACITY)
}

fn choose_queues(interface: &Interface, queues: &Queues) -> Result<Vec<u32>, NicError> {
    let (count, transmit, name) = (interface.queues, interface.transmit, || interface.name.clone());
    let chosen = match queues {
        Queues::All => (0..count).collect(),
        Queues::List(list) => list.clone(),
    };
    if let Some(&queue) = chosen.iter().find(|&&queue| queue >= count) {
        return Err(NicError::NoQueue { name: name(), queue, count });
    }
    match chosen.iter().find(|&&queue| queue >= transmit) {
        Some(&queue) => Err(NicError::NoTransmitQueue { name: name(), queue, receive: count, transmit }),
        None => Ok(chosen),
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
            let received = self.sockets[turn].receive(out, max - count);
            if received > 0 {
                self.latest = turn;
            }
            count += received;
        }
        self.turn = (self.turn + 1) % sockets;
        count
    }

    fn is_short(&self) -> bool {
        self.sockets.iter().all(|socket| socket.empty() < FEW)
    }

    fn allocate(&mut self) -> Option<Frame> {
        let (latest, sockets) = (self.latest, self.sockets.len());
        (0..sockets).find_map(|step| self.sockets[(latest + step) % sockets].allocate())
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        let before = batch.len();
        let mut room = false;
        for socket in &mut self.sockets {
            room |= socket.begin_send(before);
        }
        if !room {
            return 0;
        }
        let mut staying = std::mem::take(&mut self.staying);
        for frame in batch.drain(..) {
            match self.home(&frame) {
                Some(socket) if socket.has_room() => socket.push(frame),
                Some(_) => staying.push(frame),
                None => self.foreign_frames += 1,
            }
        }
        // No more than were in it: within the capacity of `batch`.
        batch.append(&mut staying);
        self.staying = staying;
        before - batch.len()
    }

    fn max_frame(&self) -> usize {
        self.max_frame
    }

    fn pending(&self) -> usize {
        self.sockets.iter().map(|socket| socket.pending() as usize).sum()
    }

    /// Needs Linux 5.18 and takes frames of at most some 3300 bytes. The calling thread has to be in the network namespace
    /// of the interface.
    fn pass(&mut self, batch: &mut Vec<Frame>) -> usize {
        let mut count = 0;
        for frame in batch.drain(..) {
            if self.sockets.iter().any(|socket| frame.is_of(socket.pool())) {
                count += usize::from(self.passer.pass(&self.program.filter, &frame));
            }
            self.recycle(frame);
        }
        count
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
        // Else a caller that only spins, without a frame to send, would spin for ever on a device that is gone.
        self.flushes = self.flushes.wrapping_add(1);
        if self.flushes.is_multiple_of(FLUSHES_PER_CHECK) {
            self.sockets.iter_mut().for_each(Socket::check_gone);
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

    fn steering(&self) -> Arc<dyn Steering> {
        self.program.filter.clone()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        // What the program counts is the whole interface's.
        let filter =
            if self.first { self.program.filter.counters().unwrap_or_default() } else { FilterCounters::default() };
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
            ("tx_dropped", own(|counts| counts.tx_dropped)),
            ("tx_invalid", own(|counts| counts.tx_invalid)),
            ("tx_oversize", own(|counts| counts.tx_oversize)),
            ("tx_invalid_kernel", kernel(|kernel| kernel.tx_invalid_descs)),
            ("passed", self.passer.passed()),
            ("pass_failed", self.passer.failed()),
            ("bad_descriptors", own(|counts| counts.bad_descriptors)),
            ("foreign_frames", self.foreign_frames),
        ]
    }

    fn describe(&self) -> String {
        let name = &self.interface.name;
        let mode = if self.program.attached.native { "native" } else { "generic" };
        let copy = if self.sockets.iter().all(Socket::zero_copy) { "zero-copy" } else { "copy" };
        let (count, all) = (self.sockets.len(), self.interface.queues);
        let queues = if count == 1 { "1 queue".to_owned() } else { format!("{count} queues") };
        let of = if count == all as usize { String::new() } else { format!(" of {all}") };
        let pages = if self.sockets.iter().all(Socket::huge_pages) { "huge pages" } else { "small pages" };
        format!("{name}: {mode}, {copy}, {queues}{of}, {} x {CHUNK} B UMEM ({pages})", self.frames_per_queue)
    }
}

#[cfg(test)]
mod tests {
    use super::max_frame;
    use crate::frame::CAPACITY;

    #[test]
    fn the_longest_frame_follows_the_mtu_and_fits_a_buffer() {
        assert_eq!(max_frame(1500), 1518);
        assert_eq!(max_frame(CAPACITY as u32 - 18), CAPACITY);
        assert_eq!([9000, u32::MAX].map(max_frame), [CAPACITY; 2]);
    }
}
