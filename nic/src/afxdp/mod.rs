//! AF_XDP: takes the frames of an interface that match a rule. All others go through the kernel's stack.
//!
//! * [`config`]: the configuration of an interface.
//! * `interface`: the properties that the kernel reports.
//! * `umem`: the chunks and their owners.
//! * `ring`: the rings shared with the kernel.
//! * `bind`, `socket`: one queue of the interface.
//! * [`filter`]: the XDP program; `attach` puts it on the interface. [`rule_maps`]: the rules in its maps.
//! * `kernel_pass`: returns frames to the kernel's stack.
//!
//! A frame is the bytes that the kernel gave to the XDP program. On veth this needs two settings on the peer.
//! Without `ethtool -K PEER tx off` checksums are not filled in. Without `ethtool -K PEER txvlan off` the tags of
//! VLAN interfaces are missing. Tags that a packet socket or an AF_XDP socket writes are always in the frame.

pub(crate) mod attach;
mod bind;
pub mod config;
pub mod filter;
pub(crate) mod interface;
mod kernel_pass;
mod ring;
pub mod rule_maps;
mod socket;
mod umem;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::net::xdp::XdpStatistics;
use spin_abi::rules::Target;
use spin_frame::{CAPACITY, CHUNK, Frame, LOW_WATERMARK, TxClosed, TxQueue};

pub use config::{AfXdpConfig, HugePages, Mode, Queues, ZeroCopy};
pub use filter::{Filter, FilterCounters};
pub use interface::mac_address;
pub use rule_maps::RuleMaps;

use self::attach::Attached;
use self::interface::Interface;
use self::kernel_pass::KernelPass;
use self::socket::Socket;
use crate::affinity::alloc_on_core;
use crate::error::NicError;
use crate::queue::Queue;
use crate::steering::FlowSteering;
use crate::wait::{poll, timespec};

/// Bytes of a received frame beyond the MTU: Ethernet header and two VLAN tags.
const RX_LINK_HEADER: u32 = 14 + 2 * 4;
/// Bytes that a sent frame may have beyond the MTU: Ethernet header and one VLAN tag, present or not. The kernel's own
/// bound, where it has one: `__is_skb_forwardable` (include/linux/netdevice.h), which veth applies with the MTU of the
/// receiving end, and `packet_snd` (net/packet/af_packet.c).
const TX_LINK_HEADER: u32 = 14 + 4;
/// One flush in this many checks whether the device still exists: every few milliseconds of polling, at no visible cost.
const FLUSHES_PER_CHECK: u32 = 1 << 14;

/// All chosen queues of an interface as one [`Queue`].
///
/// Receives from the queues round-robin. A frame leaves through the queue whose UMEM holds it. `allocate` prefers the queue
/// of the last received frame, so replies leave by that queue, whether copied or sent from the buffer they arrived in. The
/// MTU at opening bounds the longest frame. Dropping this detaches the program and closes the sockets; the kernel does so
/// when the process is killed.
pub struct AfXdp {
    // Drop order: the program is detached first, so that it redirects no frame to a closing socket. Where an interface has
    // parts, the last one detaches. Until then the kernel's stack gets the frames of queues that are closed already.
    program: Arc<Program>,
    /// Whether this part reports the counters of the program.
    reports_program: bool,
    sockets: Vec<Socket>,
    interface: Interface,
    frames_per_queue: u32,
    max_frame: usize,
    /// The socket that the next `receive` begins with.
    next_rx: usize,
    /// The socket of the last received frame.
    last_rx: usize,
    /// Scratch space of `send`: the frames without room. Empty between calls, kept for its capacity.
    unsent: Vec<Frame>,
    kernel_pass: KernelPass,
    flushes: u32,
    foreign_frames: u64,
}

/// The attached XDP program of an interface.
struct Program {
    attached: Attached,
    filter: Arc<Filter>,
}

impl AfXdp {
    /// Opens an interface. The XDP program redirects no frame before [`FlowSteering::set_rules`].
    ///
    /// # Errors
    /// A [`NicError`] that says what to do: no such interface, down, no privileges, another XDP program, a queue in use.
    pub fn open(config: &AfXdpConfig) -> Result<Self, NicError> {
        Self::open_parts(config, 1).map(|mut parts| parts.swap_remove(0))
    }

    /// Opens an interface in `parts` (at least one), for as many threads. Each part serves some of the queues. Rules set
    /// through one part apply to all.
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
                Some(&core) => alloc_on_core(core, open),
                None => open(),
            }
        };
        (0..parts).map(part).collect()
    }

    fn open_part(
        config: &AfXdpConfig,
        interface: &Interface,
        program: &Arc<Program>,
        reports_program: bool,
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
            reports_program,
            sockets,
            interface: interface.clone(),
            frames_per_queue: config.frames_per_queue,
            max_frame,
            next_rx: 0,
            last_rx: 0,
            unsent: Vec::new(),
            kernel_pass: KernelPass::new(interface.index, program.attached.native),
            flushes: 0,
            foreign_frames: 0,
        })
    }

    /// Runs the XDP program on one frame, and returns where the frame would go; see [`Filter::test_run`].
    ///
    /// # Errors
    /// When the kernel refuses to run it.
    pub fn test_run(&self, frame: &[u8]) -> Result<Option<Target>, NicError> {
        self.program.filter.test_run(frame)
    }

    /// The XDP program.
    #[must_use]
    pub fn filter(&self) -> &Arc<Filter> {
        &self.program.filter
    }

    /// The socket that a frame belongs to.
    fn socket_of(&mut self, frame: &Frame) -> Option<&mut Socket> {
        self.sockets.iter_mut().find(|socket| frame.belongs_to(socket.pool()))
    }
}

/// Refuses an MTU whose frames do not fit a chunk. In native mode such frames would be lost, or the driver refuses the
/// program. Generic mode may be chosen for exactly this MTU.
fn check_mtu(interface: &Interface, mode: Mode) -> Result<(), NicError> {
    let limit = CAPACITY as u32 - RX_LINK_HEADER;
    if mode == Mode::Generic || interface.mtu <= limit {
        return Ok(());
    }
    Err(NicError::Mtu { name: interface.name.clone(), mtu: interface.mtu, limit })
}

/// The longest frame that can be sent with an MTU.
fn max_frame(mtu: u32) -> usize {
    (mtu.saturating_add(TX_LINK_HEADER) as usize).min(CAPACITY)
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

impl TxQueue for AfXdp {
    fn allocate(&mut self) -> Option<Frame> {
        let (last_rx, sockets) = (self.last_rx, self.sockets.len());
        (0..sockets).find_map(|step| self.sockets[(last_rx + step) % sockets].allocate())
    }

    fn low_on_buffers(&self) -> bool {
        self.sockets.iter().all(|socket| socket.free() < LOW_WATERMARK)
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
        let mut unsent = std::mem::take(&mut self.unsent);
        for frame in batch.drain(..) {
            match self.socket_of(&frame) {
                Some(socket) if socket.has_room() => socket.push(frame),
                Some(_) => unsent.push(frame),
                None => self.foreign_frames += 1,
            }
        }
        // Does not allocate: all of these were in `batch`.
        batch.append(&mut unsent);
        self.unsent = unsent;
        before - batch.len()
    }

    fn max_frame(&self) -> usize {
        self.max_frame
    }

    fn recycle(&mut self, frame: Frame) {
        let recycled = match self.socket_of(&frame) {
            Some(socket) => socket.recycle(frame),
            None => false,
        };
        self.foreign_frames += u64::from(!recycled);
    }

    /// A later [`Queue::flush`] reports the error: it is permanent.
    fn flush_tx(&mut self) -> Result<(), TxClosed> {
        self.flush().map_err(|_| TxClosed)
    }
}

impl Queue for AfXdp {
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        let (mut count, sockets) = (0, self.sockets.len());
        for step in 0..sockets {
            if count == max {
                break;
            }
            let index = (self.next_rx + step) % sockets;
            let received = self.sockets[index].receive(out, max - count);
            if received > 0 {
                self.last_rx = index;
            }
            count += received;
        }
        self.next_rx = (self.next_rx + 1) % sockets;
        count
    }

    fn pending(&self) -> usize {
        self.sockets.iter().map(|socket| socket.pending() as usize).sum()
    }

    /// Needs Linux 5.18, and takes frames of at most about 3300 bytes. The calling thread must be in the network namespace of
    /// the interface.
    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize {
        let mut count = 0;
        for frame in batch.drain(..) {
            if self.sockets.iter().any(|socket| frame.belongs_to(socket.pool())) {
                count += usize::from(self.kernel_pass.pass(&self.program.filter, &frame));
            }
            self.recycle(frame);
        }
        count
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
        // Otherwise a caller that polls and sends nothing would never notice that the device is gone.
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

    fn steering(&self) -> Arc<dyn FlowSteering> {
        self.program.filter.clone()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        // The counters of the program are those of the whole interface.
        let filter = if self.reports_program {
            self.program.filter.counters().unwrap_or_default()
        } else {
            FilterCounters::default()
        };
        let own = |field: fn(socket::Counts) -> u64| self.sockets.iter().map(|socket| field(socket.counts())).sum();
        let statistics: Vec<_> = self.sockets.iter().map(Socket::statistics).collect();
        let kernel = |field: fn(&XdpStatistics) -> u64| statistics.iter().map(field).sum();
        vec![
            ("passed_kernel", filter.passed),
            ("passed_kernel_bytes", filter.passed_bytes),
            ("redirected", filter.redirected),
            ("redirected_bytes", filter.redirected_bytes),
            ("unserved", filter.unserved),
            ("called", filter.called),
            ("rx_frames", own(|counts| counts.received)),
            // In copy mode both `rx_dropped` and `rx_fill_empty` count a frame that found no chunk (net/xdp/xsk.c).
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
            ("passed", self.kernel_pass.passed()),
            ("pass_failed", self.kernel_pass.failed()),
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
    use spin_frame::CAPACITY;

    #[test]
    fn the_longest_frame_follows_the_mtu_and_fits_a_buffer() {
        assert_eq!(max_frame(1500), 1518);
        assert_eq!(max_frame(CAPACITY as u32 - 18), CAPACITY);
        assert_eq!([9000, u32::MAX].map(max_frame), [CAPACITY; 2]);
    }
}
