//! One AF_XDP socket: a queue of an interface, its four rings and its chunks.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt::{socket_error, xdp_statistics};
use rustix::net::xdp::XdpStatistics;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use spin_frame::{Frame, MIN_SEND, PoolId};

use super::bind::Bound;
use super::ring::{Consumer, Descriptor, Producer};
use super::umem::Umem;

/// Maximum number of frames that one sendto sends in copy mode: `TX_BATCH_SIZE`, net/xdp/xsk.c.
const TX_BATCH_SIZE: u32 = 32;

/// The counters of a socket that the kernel does not keep.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) tx_invalid: u64,
    /// Frames longer than the interface can send.
    pub(super) tx_oversize: u64,
    /// Frames that the kernel took and the device dropped: no carrier, or too long for the peer of a veth.
    pub(super) tx_dropped: u64,
    /// Descriptors from the kernel that named a chunk it did not have. Never observed; their frames are lost.
    pub(super) bad_descriptors: u64,
    /// Flushes that left frames unsent because the device was busy or down, or the kernel out of memory.
    pub(super) tx_busy: u64,
}

/// Next action after a sendto that was to start transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KickResult {
    /// Nothing: all is sent, or the device sends the rest by itself.
    Done,
    /// Call again: the kernel made progress, and stopped for another reason than a full device queue.
    Retry,
    /// Leave the rest to the next flush.
    Busy,
}

impl KickResult {
    /// The result of a sendto that found `before` frames on the transmit ring and left `after`.
    fn of(before: u32, after: u32, error: Option<Errno>, zero_copy: bool) -> Self {
        match error {
            _ if after == 0 => Self::Done,
            None if zero_copy => Self::Done,
            // In copy mode the call itself sends. Without a transmit queue it leaves frames and returns no error.
            None => Self::Busy,
            Some(Errno::AGAIN) if after < before && before >= TX_BATCH_SIZE => Self::Retry,
            error if dropped(error, zero_copy) => Self::Retry,
            Some(_) => Self::Busy,
        }
    }
}

/// Whether sendto stopped because the device dropped a frame. In copy mode EBUSY means `NET_XMIT_DROP`, and a full device
/// queue gives EAGAIN. The dropped frame has left, but the ring may show it only after the next call
/// (`__xsk_generic_xmit`, net/xdp/xsk.c). In zero-copy mode EBUSY comes from the driver, which drops nothing.
fn dropped(error: Option<Errno>, zero_copy: bool) -> bool {
    error == Some(Errno::BUSY) && !zero_copy
}

/// Whether an error is permanent: not bound (the kernel unbinds the socket when it removes the device), no device, no such
/// operation, no socket. All others are temporary: EAGAIN, EBUSY, ENETDOWN, ENOBUFS, ENOMEM, EINTR, and any other result
/// of the driver's wakeup.
fn is_permanent(error: Errno) -> bool {
    matches!(error, Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP | Errno::BADF | Errno::NOTSOCK)
}

/// A bound socket.
pub(super) struct Socket {
    // Drop order: the socket is closed before its chunks are unmapped.
    fd: OwnedFd,
    fill: Producer<u64>,
    receive: Consumer<Descriptor>,
    transmit: Producer<Descriptor>,
    completion: Consumer<u64>,
    umem: Umem,
    rx_ring: u32,
    zero_copy: bool,
    /// The longest frame to send.
    max_frame: usize,
    /// Free entries of the transmit ring that the current `send` may still use.
    tx_room: u32,
    gone: bool,
    counts: Counts,
}

impl Socket {
    /// Makes a socket of a bound descriptor, and posts chunks for receiving. Frames longer than `max_frame` are not sent.
    pub(super) fn new(bound: Bound, max_frame: usize) -> Self {
        let Bound { fd, fill, receive, transmit, completion, umem, rx_ring, zero_copy } = bound;
        let (tx_room, gone, counts) = (0, false, Counts::default());
        let mut socket = Self {
            fd,
            fill,
            receive,
            transmit,
            completion,
            umem,
            rx_ring,
            zero_copy,
            max_frame,
            tx_room,
            gone,
            counts,
        };
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

    /// Whether the device was removed.
    pub(super) fn gone(&self) -> bool {
        self.gone
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether no received frame is waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.receive.is_empty()
    }

    /// The counters of the kernel. Zeros when it does not give them.
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

    /// Appends at most `max` received frames to `out`. Returns how many.
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

    /// Number of free frames.
    pub(super) const fn free(&self) -> usize {
        self.umem.free()
    }

    pub(super) fn allocate(&mut self) -> Option<Frame> {
        self.umem.allocate()
    }

    /// Begins a send of at most `wanted` frames. Returns whether the transmit ring has room. Room that the kernel makes later is left to
    /// the next send: a frame that used it would overtake one that found the ring full.
    pub(super) fn begin_send(&mut self, wanted: usize) -> bool {
        self.tx_room = self.transmit.room(u32::try_from(wanted).unwrap_or(u32::MAX));
        self.tx_room > 0
    }

    /// Whether the current send has room for a frame.
    pub(super) fn has_room(&self) -> bool {
        self.tx_room > 0
    }

    /// Puts a frame of this pool on the transmit ring. The caller has checked the room. `flush` sends the frame.
    pub(super) fn push(&mut self, frame: Frame) {
        if frame.len() < MIN_SEND {
            self.counts.tx_invalid += 1;
            self.umem.recycle(frame);
        } else if frame.len() > self.max_frame {
            self.counts.tx_oversize += 1;
            self.umem.recycle(frame);
        } else if let Some((address, len)) = self.umem.post_tx(frame) {
            self.transmit.push(Descriptor { address, len, options: 0 });
            self.tx_room = self.tx_room.saturating_sub(1);
            self.counts.sent += 1;
        }
    }

    /// Number of frames on the transmit ring that the kernel has not taken off.
    pub(super) fn pending(&self) -> u32 {
        self.transmit.pending()
    }

    pub(super) fn recycle(&mut self, frame: Frame) -> bool {
        self.umem.recycle(frame)
    }

    /// Sends, frees completed frames, posts free ones for receiving.
    ///
    /// # Errors
    /// The errno when the socket is permanently unusable.
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
    /// [`TX_BATCH_SIZE`] frames, and ends early at one that the device drops.
    fn kick(&mut self) -> Result<(), Errno> {
        // Each further call follows a frame that has left, except one call that shows the empty ring.
        for _ in 0..=self.transmit.pending() {
            let before = self.transmit.pending();
            let error = send(&self.fd, &[], SendFlags::DONTWAIT).err();
            self.note(error)?;
            self.counts.tx_dropped += u64::from(dropped(error, self.zero_copy));
            match KickResult::of(before, self.transmit.pending(), error, self.zero_copy) {
                KickResult::Done => break,
                // The kernel sends no frame without room for its completion, so make room.
                KickResult::Retry => self.reap(),
                KickResult::Busy => {
                    self.counts.tx_busy += 1;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Ignores temporary errors, and records that the device is gone.
    fn note(&mut self, error: Option<Errno>) -> Result<(), Errno> {
        match error.filter(|&errno| is_permanent(errno)) {
            None => Ok(()),
            Some(errno) => {
                self.gone |= matches!(errno, Errno::NXIO | Errno::NODEV);
                Err(errno)
            }
        }
    }

    /// Checks whether the device was removed while nothing was sent: the kernel leaves ENETDOWN on the socket.
    pub(super) fn check_gone(&mut self) {
        if let Ok(Err(Errno::NETDOWN)) = socket_error(&self.fd) {
            self.gone = true;
        }
    }

    /// Frees the frames whose transmission has completed.
    fn reap(&mut self) {
        while let Some(address) = self.completion.pop() {
            if !self.umem.complete_tx(address) {
                self.counts.bad_descriptors += 1;
            }
        }
        self.completion.release();
    }

    /// Posts free chunks for receiving, in all at most as many as the receive ring has entries. Every received frame then
    /// has an entry in that ring, and the other chunks stay free for sending, however much arrives.
    fn refill(&mut self) {
        let wanted = self.rx_ring.saturating_sub(self.umem.rx_posted());
        for _ in 0..wanted.min(self.fill.room(wanted)) {
            let Some(address) = self.umem.post_rx() else { break };
            self.fill.push(address);
        }
        self.fill.publish();
    }
}

#[cfg(test)]
mod tests {
    use super::{KickResult, TX_BATCH_SIZE, dropped, is_permanent};
    use rustix::io::Errno;

    #[test]
    fn only_permanent_errors_end_the_work() {
        let temporary =
            [Errno::AGAIN, Errno::BUSY, Errno::NETDOWN, Errno::NOBUFS, Errno::NOMEM, Errno::INTR, Errno::MSGSIZE];
        assert_eq!(temporary.map(is_permanent), [false; 7]);
        assert_eq!([Errno::NXIO, Errno::NODEV, Errno::OPNOTSUPP, Errno::BADF].map(is_permanent), [true; 4]);
    }

    #[test]
    fn only_errors_are_busy() {
        let kick = |after, error| KickResult::of(10, after, error, true);
        assert_eq!(kick(0, None), KickResult::Done);
        assert_eq!(kick(10, None), KickResult::Done, "zero-copy: the driver was woken and sends by itself");
        for errno in [Errno::AGAIN, Errno::BUSY, Errno::NETDOWN, Errno::NOMEM, Errno::NOBUFS, Errno::INTR] {
            assert_eq!(kick(10, Some(errno)), KickResult::Busy, "{errno}");
            assert_eq!(kick(0, Some(errno)), KickResult::Done, "{errno}: all left nevertheless");
        }
    }

    #[test]
    fn copy_mode_retries_after_a_full_batch_and_after_a_dropped_frame() {
        assert_eq!(KickResult::of(10, 10, None, false), KickResult::Busy, "nothing is sent, and no error is returned");
        let kick = |before, after, error| KickResult::of(before, after, Some(error), false);
        assert_eq!(kick(100, 100 - TX_BATCH_SIZE, Errno::AGAIN), KickResult::Retry);
        assert_eq!(kick(100, 100, Errno::AGAIN), KickResult::Busy, "no progress");
        assert_eq!(kick(TX_BATCH_SIZE - 1, 3, Errno::AGAIN), KickResult::Busy, "fewer than one call sends: no room");
        assert_eq!(kick(5, 5, Errno::BUSY), KickResult::Retry, "dropped, not yet shown by the ring");
        assert!(dropped(Some(Errno::BUSY), false) && !dropped(Some(Errno::BUSY), true));
        assert!(!dropped(Some(Errno::AGAIN), false) && !dropped(None, false));
    }
}
