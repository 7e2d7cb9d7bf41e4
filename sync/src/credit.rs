//! A channel between two threads, bounded by credit.
//!
//! ```text
//! sender --items---> receiver
//!        --refills-> receiver     empty items, which it may use or leave
//!        <-returns-- receiver     each item and each used refill again
//! ```
//! The sender counts the items in flight. It never sends more than fit, so no ring is ever full.

use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::ring::{Consumer, Producer, RingBuffer, next_slots, send_all, take};
use crate::wakeup::Wakeup;

/// The sender's end: sends items `A` and refills `F`, and gets returns `B`.
#[derive(Debug)]
pub struct CreditTx<A, F, B> {
    items: Producer<A>,
    /// Items to send, one batch at a time.
    pub staged: Vec<A>,
    refills: Producer<F>,
    returns: Consumer<B>,
    /// Remaining credit: number of items that may still be sent.
    credit: usize,
    /// Maximum number of items in flight, and maximum number of refills among them.
    size: usize,
    max_refills: usize,
    receiver: Arc<Wakeup>,
}

/// The receiver's end for items.
#[derive(Debug)]
pub struct CreditRx<A> {
    ring: Consumer<A>,
    wakeup: Arc<Wakeup>,
}

/// The receiver's end for refills and returns.
#[derive(Debug)]
pub struct ReturnTx<F, B> {
    refills: Consumer<F>,
    returns: Producer<B>,
    /// Returns to send, one batch at a time.
    pub staged: Vec<B>,
    sender: Arc<Wakeup>,
    size: usize,
}

/// All ends of one channel.
pub type Ends<A, F, B> = (CreditTx<A, F, B>, CreditRx<A>, ReturnTx<F, B>);

/// A channel with at most `size` items in flight, of which at most `max_refills` are refills. `max_refills` is below `size`. The two
/// threads sleep on these wake-ups.
#[must_use]
pub fn credit_channel<A, F, B>(
    size: usize,
    max_refills: usize,
    sender: Arc<Wakeup>,
    receiver: Arc<Wakeup>,
) -> Ends<A, F, B> {
    let (items, ring) = RingBuffer::new(size);
    let (refills_in, refills_out) = RingBuffer::new(max_refills);
    let (returns_in, returns_out) = RingBuffer::new(size);
    let tx = CreditTx {
        items,
        staged: Vec::with_capacity(size),
        refills: refills_in,
        returns: returns_out,
        credit: size,
        size,
        max_refills,
        receiver: receiver.clone(),
    };
    let returns =
        ReturnTx { refills: refills_out, returns: returns_in, staged: Vec::with_capacity(size), sender, size };
    (tx, CreditRx { ring, wakeup: receiver }, returns)
}

impl<A, F, B> CreditTx<A, F, B> {
    /// Number of items that may still be staged. Missing refills are reserved first; otherwise a flood of items would starve the receiver
    /// of refills.
    #[must_use]
    pub fn credit(&self) -> usize {
        self.credit.saturating_sub(self.staged.len() + self.refills.slots())
    }

    /// Number of items in flight, including refills that the receiver took.
    #[must_use]
    pub fn out(&self) -> usize {
        self.size - self.credit - (self.max_refills - self.refills.slots())
    }

    /// Number of items sent and not yet taken. Reads an index that the receiver writes.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.size - self.items.slots()
    }

    /// Maximum number of items in flight.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.size - self.max_refills
    }

    /// Whether the receiver is gone and all its returns were taken.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.returns.is_abandoned() && !self.has_returns()
    }

    /// Writes off the items that the receiver did not return, once the channel is [closed](CreditTx::is_closed). Returns their number.
    pub fn write_off(&mut self) -> usize {
        std::mem::replace(&mut self.credit, self.size).abs_diff(self.size)
    }

    /// Number of staged items that the credit covers.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.staged.len().min(self.credit)
    }

    /// Sends staged items as far as the credit allows, and refills.
    pub fn send(&mut self, mut refill: impl FnMut() -> Option<F>) {
        let (before, count) = (self.credit, self.ready());
        // Send at least half of the refills at a time, and before the items for which the receiver may need them.
        if self.refills.slots() >= self.max_refills.div_ceil(2) {
            while self.credit > count && self.refills.slots() > 0 {
                let Some(refill) = refill() else { break };
                // The check above leaves a free slot.
                let _ = self.refills.push(refill);
                self.credit -= 1;
            }
        }
        // The ring has a slot for each credit.
        match send_all(&mut self.items, self.staged.drain(..count)) {
            Ok(sent) => self.credit -= sent,
            Err(room) => unreachable!("{count} items have credit, and the ring has room for {room}"),
        }
        if self.credit != before {
            self.receiver.notify();
        }
    }

    /// Takes all returns. Returns their number.
    pub fn reclaim(&mut self, each: impl FnMut(B)) -> usize {
        let slots = self.returns.slots();
        let count = take(&mut self.returns, slots, each);
        self.credit += count;
        count
    }

    /// Whether there are returns.
    #[must_use]
    pub fn has_returns(&self) -> bool {
        !self.returns.is_empty()
    }
}

impl<A> CreditRx<A> {
    /// Number of waiting items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.slots()
    }

    /// Whether no item waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next `count` items, which must be there. The index that both threads read is written once for all of them.
    #[inline]
    pub fn take(&mut self, count: usize, each: impl FnMut(A)) -> usize {
        take(&mut self.ring, count, each)
    }

    /// Whether the sender is gone and all its items were taken.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ring.is_abandoned() && self.is_empty()
    }

    /// The wake-up that the sender notifies.
    #[must_use]
    pub const fn wakeup(&self) -> &Arc<Wakeup> {
        &self.wakeup
    }
}

impl<F, B> ReturnTx<F, B> {
    /// Takes a refill.
    pub fn refill(&mut self) -> Option<F> {
        self.refills.pop().ok()
    }

    /// Number of waiting refills.
    #[must_use]
    pub fn refills(&self) -> usize {
        self.refills.slots()
    }

    /// Shows the next slots for returns, at most `max`.
    pub fn next_slots(&mut self, max: usize, look: impl FnMut(&[MaybeUninit<B>])) {
        next_slots(&mut self.returns, max, look);
    }

    /// Sends staged returns, if there are any.
    pub fn send(&mut self) {
        let count = self.staged.len();
        if count == 0 {
            return;
        }
        // The ring has a slot for every item in flight.
        match send_all(&mut self.returns, self.staged.drain(..)) {
            Ok(_) => self.sender.notify(),
            Err(room) => unreachable!("{count} are returned, and {room} are out"),
        }
    }

    /// Wakes the sender.
    pub fn notify(&self) {
        self.sender.notify();
    }

    /// Whether the sender is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.returns.is_abandoned()
    }

    /// Maximum number of items in flight, refills included.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::credit_channel;
    use crate::wakeup::Wakeup;

    #[test]
    fn each_end_knows_when_the_other_one_is_gone() {
        let wakeup = || Wakeup::new().expect("an event");
        let (tx, items, returns) = credit_channel::<u8, u8, u8>(16, 4, wakeup(), wakeup());
        assert!(!returns.is_closed() && !items.is_closed() && !tx.is_closed());
        drop(tx);
        assert!(returns.is_closed() && items.is_closed());
        let (tx, items, returns) = credit_channel::<u8, u8, u8>(16, 4, wakeup(), wakeup());
        drop((items, returns));
        assert!(tx.is_closed());
    }

    #[test]
    fn a_flood_of_items_leaves_room_for_refills() {
        let wakeup = || Wakeup::new().expect("an event");
        let (mut tx, mut items, mut returns) = credit_channel::<u8, u8, u8>(16, 4, wakeup(), wakeup());
        let mut used = 0;
        for _ in 0..100 {
            tx.reclaim(drop);
            let credit = tx.credit();
            tx.staged.extend(vec![0; credit]);
            tx.send(|| Some(1));
            // One item at a time, and a refill for each.
            let count = items.len().min(1);
            items.take(count, |item| returns.staged.push(item));
            if let Some(refill) = returns.refill() {
                used += 1;
                returns.staged.push(refill);
            }
            returns.send();
        }
        assert!(used >= 90, "{used}");
    }
}
