//! One AF_XDP socket: a queue of an interface, its four rings and its chunks.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt::{socket_error, xdp_statistics};
use rustix::net::xdp::XdpStatistics;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::bind::Bound;
use super::ring::{Consumer, Descriptor, Producer};
use super::umem::Umem;
use crate::frame::{Frame, MIN_SEND, PoolId};

/// Frames that one sendto sends in copy mode: `TX_BATCH_SIZE`, net/xdp/xsk.c.
const SENT_BY_ONE_CALL: u32 = 32;

/// Own counters of a socket; the kernel keeps others.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) tx_invalid: u64,
    /// Descriptors from the kernel that named no chunk it had. Never seen; their frames are lost.
    pub(super) bad_descriptors: u64,
    /// Flushes that left frames unsent because the device was busy or down.
    pub(super) tx_busy: u64,
}

/// A bound socket.
pub(super) struct Socket {
    // Dropped in this order: the socket is closed before its chunks are unmapped.
    fd: OwnedFd,
    fill: Producer<u64>,
    receive: Consumer<Descriptor>,
    transmit: Producer<Descriptor>,
    completion: Consumer<u64>,
    umem: Umem,
    rx_ring: u32,
    zero_copy: bool,
    gone: bool,
    counts: Counts,
}

impl Socket {
    /// Takes over what was bound, and lends the kernel chunks to receive into.
    pub(super) fn new(bound: Bound) -> Self {
        let Bound { fd, fill, receive, transmit, completion, umem, rx_ring, zero_copy } = bound;
        let counts = Counts::default();
        let mut socket =
            Self { fd, fill, receive, transmit, completion, umem, rx_ring, zero_copy, gone: false, counts };
        socket.refill();
        socket
    }

    pub(super) fn pool(&self) -> PoolId {
        self.umem.pool()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn zero_copy(&self) -> bool {
        self.zero_copy
    }

    pub(super) fn huge_pages(&self) -> bool {
        self.umem.huge()
    }

    /// The device was removed.
    pub(super) fn gone(&self) -> bool {
        self.gone
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether a frame can be taken right now.
    pub(super) fn is_empty(&self) -> bool {
        self.receive.is_empty()
    }

    /// The kernel's counters; zeros when it will not tell.
    pub(super) fn statistics(&self) -> XdpStatistics {
        xdp_statistics(&self.fd).unwrap_or(XdpStatistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: None,
            rx_fill_ring_empty_descs: None,
            tx_ring_empty_descs: None,
        })
    }

    pub(super) fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        let before = out.len();
        while out.len() - before < max {
            let Some(descriptor) = self.receive.pop() else { break };
            match self.umem.received(descriptor.address, descriptor.len) {
                Some(frame) => out.push(frame),
                None => self.counts.bad_descriptors += 1,
            }
        }
        self.receive.release();
        let count = out.len() - before;
        self.counts.received += count as u64;
        count
    }

    pub(super) fn allocate(&mut self) -> Option<Frame> {
        self.umem.allocate()
    }

    /// Whether `push` would find a place.
    pub(super) fn has_room(&mut self) -> bool {
        self.transmit.room(1) > 0
    }

    /// Puts a frame of this pool on the transmit ring, in which the caller found room. `flush` sends it.
    pub(super) fn push(&mut self, frame: Frame) {
        if frame.len() < MIN_SEND {
            self.counts.tx_invalid += 1;
            self.umem.recycle(frame);
        } else if let Some((address, len)) = self.umem.lend_for_transmit(frame) {
            self.transmit.push(Descriptor { address, len, options: 0 });
            self.counts.sent += 1;
        }
    }

    pub(super) fn recycle(&mut self, frame: Frame) -> bool {
        self.umem.recycle(frame)
    }

    /// Sends, takes completed frames back, lends free ones to receive into.
    ///
    /// # Errors
    /// The errno when the socket is of no use any more.
    pub(super) fn flush(&mut self) -> Result<(), Errno> {
        self.transmit.publish();
        self.reap();
        if self.transmit.pending() > 0 && self.transmit.needs_wakeup() {
            self.kick()?;
            self.reap();
        }
        self.refill();
        if self.fill.needs_wakeup() {
            self.note(recv(&self.fd, &mut [0; 0], RecvFlags::DONTWAIT).err())?;
        }
        Ok(())
    }

    /// Calls sendto until the ring is empty or the kernel makes no progress: in copy mode one call sends at most
    /// [`SENT_BY_ONE_CALL`].
    fn kick(&mut self) -> Result<(), Errno> {
        loop {
            let before = self.transmit.pending();
            let refusal = send(&self.fd, &[], SendFlags::DONTWAIT).err();
            self.note(refusal)?;
            let after = self.transmit.pending();
            if after == 0 {
                return Ok(());
            }
            if after >= before || refusal.is_none_or(|errno| errno != Errno::AGAIN) || before < SENT_BY_ONE_CALL {
                self.counts.tx_busy += 1;
                return Ok(());
            }
            // Completions wait for room in their ring, and the kernel sends nothing whose completion has none.
            self.reap();
        }
    }

    /// Sorts refusals: busy, out of buffers and down pass; a device that is gone does not.
    fn note(&mut self, refusal: Option<Errno>) -> Result<(), Errno> {
        match refusal {
            None | Some(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR | Errno::NETDOWN) => Ok(()),
            Some(errno) => {
                self.gone |= matches!(errno, Errno::NXIO | Errno::NODEV);
                Err(errno)
            }
        }
    }

    /// Notices that the device was removed while nothing was sent: the kernel leaves ENETDOWN on the socket.
    pub(super) fn check_gone(&mut self) {
        if let Ok(Err(Errno::NETDOWN)) = socket_error(&self.fd) {
            self.gone = true;
        }
    }

    fn reap(&mut self) {
        while let Some(address) = self.completion.pop() {
            if !self.umem.transmitted(address) {
                self.counts.bad_descriptors += 1;
            }
        }
        self.completion.release();
    }

    /// Lends free chunks to receive into, at most a receive ring's worth in all: so every frame the kernel takes has a
    /// place in that ring, and however much arrives, the other chunks stay for sending.
    fn refill(&mut self) {
        let wanted = self.rx_ring.saturating_sub(self.umem.lent_for_receive());
        for _ in 0..wanted.min(self.fill.room(wanted)) {
            let Some(address) = self.umem.lend_for_receive() else { break };
            self.fill.push(address);
        }
        self.fill.publish();
    }
}
