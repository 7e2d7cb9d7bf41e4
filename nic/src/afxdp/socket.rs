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
    /// Frames longer than the interface sends.
    pub(super) tx_oversize: u64,
    /// Frames the kernel took and the device would not have: no carrier, or too long for the peer of a veth.
    pub(super) tx_dropped: u64,
    /// Descriptors from the kernel that named no chunk it had. Never seen; their frames are lost.
    pub(super) bad_descriptors: u64,
    /// Flushes that left frames unsent because the kernel refused them for now: busy, down, out of memory.
    pub(super) tx_busy: u64,
}

/// What to do after a sendto.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing: all is sent, or the device takes the rest by itself.
    Rest,
    /// Call again: the kernel made progress and stopped for another reason than want of room.
    Again,
    /// Leave the rest to the next flush.
    Busy,
}

impl Next {
    /// After a sendto that found `before` frames on the transmit ring and left `after`.
    fn of(before: u32, after: u32, refusal: Option<Errno>, zero_copy: bool) -> Self {
        match refusal {
            _ if after == 0 => Self::Rest,
            None if zero_copy => Self::Rest,
            // In copy mode the call sends, and leaves some without a word where there is no queue to send on.
            None => Self::Busy,
            Some(Errno::AGAIN) if after < before && before >= SENT_BY_ONE_CALL => Self::Again,
            refusal if dropped(refusal, zero_copy) => Self::Again,
            Some(_) => Self::Busy,
        }
    }
}

/// Whether sendto stopped because the device dropped a frame: in copy mode EBUSY stands for `NET_XMIT_DROP`, a device
/// without room gives EAGAIN. That frame is done, though the ring may show it only after the next call
/// (`__xsk_generic_xmit`, net/xdp/xsk.c). A driver's own EBUSY, in zero-copy mode, drops nothing.
fn dropped(refusal: Option<Errno>, zero_copy: bool) -> bool {
    refusal == Some(Errno::BUSY) && !zero_copy
}

/// Whether a refusal means that the socket is of no use any more: not bound (the kernel unbinds it when the device goes),
/// no device, no such operation, no socket. All others are of the moment: EAGAIN, EBUSY, ENETDOWN, ENOBUFS, ENOMEM,
/// EINTR, and whatever else a driver's wakeup answers.
fn is_final(refusal: Errno) -> bool {
    matches!(refusal, Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP | Errno::BADF | Errno::NOTSOCK)
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
    /// Longest frame to send.
    max_frame: usize,
    /// Places on the transmit ring that the send under way may still fill.
    places: u32,
    gone: bool,
    counts: Counts,
}

impl Socket {
    /// Takes over what was bound, and lends the kernel chunks to receive into. Frames longer than `max_frame` are not
    /// sent.
    pub(super) fn new(bound: Bound, max_frame: usize) -> Self {
        let Bound { fd, fill, receive, transmit, completion, umem, rx_ring, zero_copy } = bound;
        let (places, gone, counts) = (0, false, Counts::default());
        let mut socket =
            Self { fd, fill, receive, transmit, completion, umem, rx_ring, zero_copy, max_frame, places, gone, counts };
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

    /// How many empty frames there are.
    pub(super) const fn empty(&self) -> usize {
        self.umem.free()
    }

    pub(super) fn allocate(&mut self) -> Option<Frame> {
        self.umem.allocate()
    }

    /// Begins a send of `wanted` frames at the most, and says whether there is room for any. Room that the kernel makes
    /// from here on is for the next send: a frame that finds it must not overtake one that stayed before.
    pub(super) fn begin_send(&mut self, wanted: usize) -> bool {
        self.places = self.transmit.room(u32::try_from(wanted).unwrap_or(u32::MAX));
        self.places > 0
    }

    /// Whether `push` would find a place in this send.
    pub(super) fn has_room(&self) -> bool {
        self.places > 0
    }

    /// Puts a frame of this pool on the transmit ring, in which the caller found room. `flush` sends it.
    pub(super) fn push(&mut self, frame: Frame) {
        if frame.len() < MIN_SEND {
            self.counts.tx_invalid += 1;
            self.umem.recycle(frame);
        } else if frame.len() > self.max_frame {
            self.counts.tx_oversize += 1;
            self.umem.recycle(frame);
        } else if let Some((address, len)) = self.umem.lend_for_transmit(frame) {
            self.transmit.push(Descriptor { address, len, options: 0 });
            self.places = self.places.saturating_sub(1);
            self.counts.sent += 1;
        }
    }

    /// Frames pushed that the kernel has not taken off the transmit ring.
    pub(super) fn pending(&self) -> u32 {
        self.transmit.pending()
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
    /// [`SENT_BY_ONE_CALL`] frames, and ends early at one that the device drops.
    fn kick(&mut self) -> Result<(), Errno> {
        // Each further call is owed to a frame that is done, but for one that shows the ring empty.
        for _ in 0..=self.transmit.pending() {
            let before = self.transmit.pending();
            let refusal = send(&self.fd, &[], SendFlags::DONTWAIT).err();
            self.note(refusal)?;
            self.counts.tx_dropped += u64::from(dropped(refusal, self.zero_copy));
            match Next::of(before, self.transmit.pending(), refusal, self.zero_copy) {
                Next::Rest => break,
                // Completions wait for room in their ring, and the kernel sends nothing whose completion has none.
                Next::Again => self.reap(),
                Next::Busy => {
                    self.counts.tx_busy += 1;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Lets refusals of the moment pass, and takes note when the device is gone.
    fn note(&mut self, refusal: Option<Errno>) -> Result<(), Errno> {
        match refusal.filter(|&errno| is_final(errno)) {
            None => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::{Next, SENT_BY_ONE_CALL, dropped, is_final};
    use rustix::io::Errno;

    #[test]
    fn only_a_socket_of_no_use_ends_the_work() {
        let passing =
            [Errno::AGAIN, Errno::BUSY, Errno::NETDOWN, Errno::NOBUFS, Errno::NOMEM, Errno::INTR, Errno::MSGSIZE];
        assert_eq!(passing.map(is_final), [false; 7]);
        assert_eq!([Errno::NXIO, Errno::NODEV, Errno::OPNOTSUPP, Errno::BADF].map(is_final), [true; 4]);
    }

    #[test]
    fn only_refusals_are_busy() {
        let next = |after, refusal| Next::of(10, after, refusal, true);
        assert_eq!(next(0, None), Next::Rest);
        assert_eq!(next(10, None), Next::Rest, "zero-copy: the driver was woken and sends by itself");
        for errno in [Errno::AGAIN, Errno::BUSY, Errno::NETDOWN, Errno::NOMEM, Errno::NOBUFS, Errno::INTR] {
            assert_eq!(next(10, Some(errno)), Next::Busy, "{errno}");
            assert_eq!(next(0, Some(errno)), Next::Rest, "{errno}: all left nevertheless");
        }
    }

    #[test]
    fn copy_mode_goes_on_after_a_full_batch_and_after_a_dropped_frame() {
        assert_eq!(Next::of(10, 10, None, false), Next::Busy, "nothing is sent, and nothing is said");
        let next = |before, after, refusal| Next::of(before, after, Some(refusal), false);
        assert_eq!(next(100, 100 - SENT_BY_ONE_CALL, Errno::AGAIN), Next::Again);
        assert_eq!(next(100, 100, Errno::AGAIN), Next::Busy, "no progress");
        assert_eq!(next(SENT_BY_ONE_CALL - 1, 3, Errno::AGAIN), Next::Busy, "less than one call sends: no room");
        assert_eq!(next(5, 5, Errno::BUSY), Next::Again, "dropped, not yet shown by the ring");
        assert!(dropped(Some(Errno::BUSY), false) && !dropped(Some(Errno::BUSY), true));
        assert!(!dropped(Some(Errno::AGAIN), false) && !dropped(None, false));
    }
}
