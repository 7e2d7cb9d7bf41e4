//! Makes an AF_XDP socket and binds it to a queue.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::{self, Errno};
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size,
    set_xdp_umem_reg, xdp_mmap_offsets, xdp_options,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use spin_frame::CHUNK;

use super::config::{AfXdpConfig, ZeroCopy};
use super::interface::Interface;
use super::ring::{Consumer, Descriptor, Producer};
use super::umem::Umem;
use crate::error::NicError;

/// Longest wait for a busy queue: the kernel releases a queue with a delay after its socket is closed.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// The parts of a bound socket.
pub(super) struct Bound {
    pub(super) fd: OwnedFd,
    pub(super) fill: Producer<u64>,
    pub(super) receive: Consumer<Descriptor>,
    pub(super) transmit: Producer<Descriptor>,
    pub(super) completion: Consumer<u64>,
    pub(super) umem: Umem,
    /// Entries of the fill ring, and of the receive ring.
    pub(super) rx_ring: u32,
    pub(super) zero_copy: bool,
}

/// Makes a socket with its own chunks and binds it to `queue` of `interface`.
pub(super) fn open(config: &AfXdpConfig, interface: &Interface, queue: u32) -> Result<Bound, NicError> {
    let fd = socket()?;
    let umem = Umem::new(config.frames_per_queue, config.huge_pages)?;
    register(&fd, &umem)?;
    let ring_error = |errno| NicError::system("set up the rings of an AF_XDP socket", errno);
    size_rings(&fd, config).map_err(ring_error)?;
    let layout = xdp_mmap_offsets(&fd).map_err(ring_error)?;
    let (rx, tx, borrowed) = (config.rx_ring, config.tx_ring, fd.as_fd());
    let fill = Producer::map(borrowed, XDP_UMEM_PGOFF_FILL_RING, &layout.fr, rx).map_err(ring_error)?;
    let receive = Consumer::map(borrowed, XDP_PGOFF_RX_RING, &layout.rx, rx).map_err(ring_error)?;
    let transmit = Producer::map(borrowed, XDP_PGOFF_TX_RING, &layout.tx, tx).map_err(ring_error)?;
    let completion = Consumer::map(borrowed, XDP_UMEM_PGOFF_COMPLETION_RING, &layout.cr, tx).map_err(ring_error)?;
    bind_with_retry(fd.as_fd(), config.zero_copy, interface, queue)?;
    let zero_copy = xdp_options(&fd).is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY));
    Ok(Bound { fd, fill, receive, transmit, completion, umem, rx_ring: rx, zero_copy })
}

fn socket() -> Result<OwnedFd, NicError> {
    socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).map_err(|errno| match errno {
        Errno::AFNOSUPPORT => NicError::NoAfXdp,
        errno => NicError::system("open an AF_XDP socket", errno),
    })
}

fn register(fd: &OwnedFd, umem: &Umem) -> Result<(), NicError> {
    let registration = XdpUmemReg {
        addr: umem.address(),
        len: umem.len() as u64,
        chunk_size: CHUNK as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    set_xdp_umem_reg(fd, registration).map_err(|errno| match errno {
        // For users without CAP_IPC_LOCK these pages count against RLIMIT_MEMLOCK (net/xdp/xdp_umem.c).
        Errno::NOBUFS => NicError::LockedMemory { bytes: umem.len() },
        errno => NicError::system("register packet buffers with the kernel", errno),
    })
}

fn size_rings(fd: &OwnedFd, config: &AfXdpConfig) -> io::Result<()> {
    set_xdp_umem_fill_ring_size(fd, config.rx_ring)?;
    set_xdp_rx_ring_size(fd, config.rx_ring)?;
    set_xdp_tx_ring_size(fd, config.tx_ring)?;
    set_xdp_umem_completion_ring_size(fd, config.tx_ring)
}

fn bind_with_retry(fd: BorrowedFd<'_>, zero_copy: ZeroCopy, interface: &Interface, queue: u32) -> Result<(), NicError> {
    // Without a flag the kernel chooses zero-copy if the driver supports it, otherwise copy.
    let (copy, mode) = match zero_copy {
        ZeroCopy::Auto => (SocketAddrXdpFlags::empty(), "copy or zero-copy"),
        ZeroCopy::On => (SocketAddrXdpFlags::XDP_ZEROCOPY, "zero-copy"),
        ZeroCopy::Off => (SocketAddrXdpFlags::XDP_COPY, "copy"),
    };
    let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP | copy;
    let address = SocketAddrXdp::new(flags, interface.index, queue);
    let begin = Instant::now();
    loop {
        match bind(fd, &address) {
            Ok(()) => return Ok(()),
            Err(Errno::BUSY) if begin.elapsed() < BUSY_TIMEOUT => sleep(Duration::from_millis(20)),
            Err(Errno::BUSY) => return Err(NicError::QueueBusy { name: interface.name.clone(), queue }),
            Err(errno) => {
                return Err(NicError::Bind { name: interface.name.clone(), queue, mode, source: errno.into() });
            }
        }
    }
}
