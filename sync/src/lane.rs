//! Things on loan to another thread.
//!
//! ```text
//! lender --out----> borrower     what is handed over
//!        --fresh--> borrower     blanks, which it may use or leave
//!        <--back--- borrower     each of them again
//! ```
//! A lane has room for so many. The lender counts those that are out, so that no ring is ever full: that is the borrower's credit.

use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::bell::Bell;
use crate::ring::{Consumer, Producer, RingBuffer, ahead, give, places, take};

/// The lender's end: lends `A`s and blank `F`s, and gets `B`s back.
#[derive(Debug)]
pub struct Lane<A, F, B> {
    out: Producer<A>,
    /// To be handed over: a batch at a time.
    pub staged: Vec<A>,
    fresh: Producer<F>,
    back: Consumer<B>,
    /// How many more may go out.
    credit: usize,
    /// What the lane has room for; and of blanks.
    size: usize,
    blanks: usize,
    bell: Arc<Bell>,
}

/// What the borrower is lent.
#[derive(Debug)]
pub struct Arrivals<A> {
    ring: Consumer<A>,
    bell: Arc<Bell>,
}

/// The borrower's blanks, and where all goes in the end.
#[derive(Debug)]
pub struct Returns<F, B> {
    fresh: Consumer<F>,
    back: Producer<B>,
    /// To be given back with the rest of the batch.
    pub staged: Vec<B>,
    /// The lender's.
    bell: Arc<Bell>,
    size: usize,
}

/// The ends of one lane: the lender's, and both of the borrower's.
pub type Ends<A, F, B> = (Lane<A, F, B>, Arrivals<A>, Returns<F, B>);

/// A lane for `size` things, `blanks` of them blank at most, which are fewer, with the bells of lender and borrower.
#[must_use]
pub fn lane<A, F, B>(size: usize, blanks: usize, lender: Arc<Bell>, bell: Arc<Bell>) -> Ends<A, F, B> {
    let (out, ring) = RingBuffer::new(size);
    let (fresh_in, fresh_out) = RingBuffer::new(blanks);
    let (back_in, back_out) = RingBuffer::new(size);
    let lane = Lane {
        out,
        staged: Vec::with_capacity(size),
        fresh: fresh_in,
        back: back_out,
        credit: size,
        size,
        blanks,
        bell: bell.clone(),
    };
    let returns = Returns { fresh: fresh_out, back: back_in, staged: Vec::with_capacity(size), bell: lender, size };
    (lane, Arrivals { ring, bell }, returns)
}

impl<A, F, B> Lane<A, F, B> {
    /// How many may be staged: what blanks are missing is theirs, or arrivals would take all that comes back.
    #[must_use]
    pub fn credit(&self) -> usize {
        self.credit.saturating_sub(self.staged.len() + self.fresh.slots())
    }

    /// How many the borrower has, but for blanks that it did not take.
    #[must_use]
    pub fn out(&self) -> usize {
        self.size - self.credit - (self.blanks - self.fresh.slots())
    }

    /// How many are handed over and not taken yet. Reads what the borrower writes.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.size - self.out.slots()
    }

    /// How many may be out at the most, without blanks.
    #[must_use]
    pub const fn most(&self) -> usize {
        self.size - self.blanks
    }

    /// So many things are lent some other way, for which there is [credit](Lane::credit).
    pub const fn lend(&mut self, count: usize) {
        self.credit -= count;
    }

    /// So many of these have come back some other way.
    pub const fn have_back(&mut self, count: usize) {
        self.credit += count;
    }

    /// Whether the borrower is gone, with all that it did not give back.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.back.is_abandoned() && !self.has_news()
    }

    /// Gives up what the borrower did not give back, which is [gone](Lane::is_over): it cannot be lent anything any more. Returns how many.
    pub fn write_off(&mut self) -> usize {
        std::mem::replace(&mut self.credit, self.size).abs_diff(self.size)
    }

    /// How many of those that are staged there is credit for.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.staged.len().min(self.credit)
    }

    /// Hands over what is staged, as far as there is credit, and blanks.
    pub fn hand_over(&mut self, mut blank: impl FnMut() -> Option<F>) {
        let (before, count) = (self.credit, self.ready());
        // Many of them at a time; and before what they may be needed for is there.
        if self.fresh.slots() >= self.blanks.div_ceil(2) {
            while self.credit > count && self.fresh.slots() > 0 {
                let Some(frame) = blank() else { break };
                // There is room, see above.
                let _ = self.fresh.push(frame);
                self.credit -= 1;
            }
        }
        // A lane has room for all that there is credit for.
        match give(&mut self.out, self.staged.drain(..count)) {
            Ok(given) => self.credit -= given,
            Err(room) => unreachable!("{count} are lent, there is room for {room}"),
        }
        if self.credit != before {
            self.bell.ring();
        }
    }

    /// Wakes the borrower.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Shows what came back, and leaves it there.
    pub fn ahead(&mut self, look: impl FnMut(&[B])) {
        ahead(&mut self.back, self.size, look);
    }

    /// Shows the places of what is handed over next, `most` at the most.
    pub fn places(&mut self, most: usize, look: impl FnMut(&[MaybeUninit<A>])) {
        places(&mut self.out, most, look);
    }

    /// Takes what came back. Returns how many.
    pub fn take_back(&mut self, each: impl FnMut(B)) -> usize {
        let slots = self.back.slots();
        let count = take(&mut self.back, slots, each);
        self.credit += count;
        count
    }

    /// Whether anything came back.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.back.is_empty()
    }
}

impl<A> Arrivals<A> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.slots()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows those that there are, `most` at the most, and leaves them there.
    pub fn ahead(&mut self, most: usize, look: impl FnMut(&[A])) {
        ahead(&mut self.ring, most, look);
    }

    /// Takes the next `count`, which there are, together: what both threads look at is written once for all of them.
    #[inline]
    pub fn take(&mut self, count: usize, each: impl FnMut(A)) -> usize {
        take(&mut self.ring, count, each)
    }

    /// Whether none will come any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ring.is_abandoned() && self.is_empty()
    }

    /// What rings when there are more.
    #[must_use]
    pub const fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }
}

impl<F, B> Returns<F, B> {
    /// A blank.
    pub fn blank(&mut self) -> Option<F> {
        self.fresh.pop().ok()
    }

    /// How many blanks there are.
    #[must_use]
    pub fn blanks(&self) -> usize {
        self.fresh.slots()
    }

    /// Shows the places of what is given back next, `most` at the most.
    pub fn places(&mut self, most: usize, look: impl FnMut(&[MaybeUninit<B>])) {
        places(&mut self.back, most, look);
    }

    /// Gives back what is staged, if there is something.
    pub fn give_back(&mut self) {
        let count = self.staged.len();
        if count == 0 {
            return;
        }
        // A lane has room for all that it lends.
        match give(&mut self.back, self.staged.drain(..)) {
            Ok(_) => self.bell.ring(),
            Err(room) => unreachable!("{count} come back, {room} are out"),
        }
    }

    /// Wakes the lender.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Whether the lender is gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.back.is_abandoned()
    }

    /// What the lane has room for.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::lane;
    use crate::bell::Bell;

    #[test]
    fn arrivals_without_end_leave_blanks_their_part() {
        let bell = Bell::new().expect("an event");
        let (mut lender, mut arrivals, mut returns) = lane::<u8, u8, u8>(16, 4, bell, Bell::new().expect("an event"));
        let mut used = 0;
        for _ in 0..100 {
            lender.take_back(drop);
            let credit = lender.credit();
            lender.staged.extend(vec![0; credit]);
            lender.hand_over(|| Some(1));
            // One arrival at a time, and a blank for each.
            let count = arrivals.len().min(1);
            arrivals.take(count, |arrival| returns.staged.push(arrival));
            if let Some(blank) = returns.blank() {
                used += 1;
                returns.staged.push(blank);
            }
            returns.give_back();
        }
        assert!(used >= 90, "{used}");
    }
}
