//! What the engine's threads know of each other, and the tasks that they hand each other: see [`crate::worker::shared_tasks`].
//!
//! ```text
//! lender --loan--> borrower     a payload task, with its packet
//!        <-repaid-- borrower    the same, and what became of it
//! ```
//! A [`spin_sync::CreditTx`] for each ordered pair of threads, so nobody ever waits for room.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use spin_sync::{CreditRx, CreditTx, PeerStatus, ReturnTx, Wakeup, credit_channel};

use spin_pspin::hpu::TaskIdentity;
use spin_pspin::hpu::command::DeferredSend;
use spin_pspin::ids::{MessageRef, Packet};
use spin_pspin::mpq::Task;

/// Tasks that a thread has of another one at the most: a packet of another context, which comes first when it is its turn, may wait for
/// some of them, and less than a batch would not keep a thread busy until the next one.
const LOANS: usize = 64;

/// A payload task on its way to another thread.
#[derive(Debug)]
pub(crate) struct Loan {
    pub(crate) task: Task<MessageRef, Packet>,
    /// Id of its context: slots are taken again.
    pub(crate) context: u32,
    /// What handlers know its queue by.
    pub(crate) flow: u32,
}

impl Loan {
    /// Its message, as handlers know it.
    pub(crate) const fn identity(&self) -> TaskIdentity {
        TaskIdentity { flow: self.flow, message: self.task.context.message }
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has ended.
    Ended(Option<DeferredSend>),
    /// It was not begun: that thread has no such context, or no HPU of it.
    NotRun,
    /// It waited on its HPU when its context went.
    Abandoned,
}

/// A task that is back.
#[derive(Debug)]
pub(crate) struct Repaid {
    pub(crate) loan: Loan,
    pub(crate) outcome: Outcome,
}

/// The way to another thread.
#[derive(Debug)]
struct Borrower {
    status: Arc<PeerStatus>,
    channel: CreditTx<Loan, Infallible, Repaid>,
}

impl Borrower {
    fn is_idle(&self) -> bool {
        self.status.is_idle() && !self.channel.is_closed()
    }
}

/// The way from another thread.
#[derive(Debug)]
struct Lender {
    status: Arc<PeerStatus>,
    loans: CreditRx<Loan>,
    repaid: ReturnTx<Infallible, Repaid>,
}

/// The other threads, as one of them knows them.
#[derive(Debug)]
pub struct Peers {
    status: Arc<PeerStatus>,
    /// What others know of this one.
    idle: bool,
    borrowers: Vec<Borrower>,
    lenders: Vec<Lender>,
    /// Others' tasks that wait here, and whose they are: places among [`Peers::lenders`].
    pub(crate) waiting: VecDeque<(usize, Loan)>,
    /// Own tasks that came back.
    pub(crate) back: Vec<Repaid>,
    /// Room for those of them that have to wait for an HPU.
    pub(crate) not_run: Vec<Repaid>,
    /// In the last turn, tasks were here or came back.
    pub(crate) exchanged: bool,
    /// Turns in a row that had more to do than is good.
    pub(crate) loaded: u32,
}

impl Peers {
    /// For each of some threads the others. They sleep on these wake-ups.
    #[must_use]
    pub fn of(wakeups: &[Arc<Wakeup>]) -> Vec<Self> {
        let mut all: Vec<Self> = wakeups.iter().map(|_| Self::alone(wakeups.len())).collect();
        for from in 0..all.len() {
            for to in (0..all.len()).filter(|&to| to != from) {
                let (channel, loans, repaid) = credit_channel(LOANS, 0, wakeups[from].clone(), wakeups[to].clone());
                let [lender, borrower] = [from, to].map(|thread| all[thread].status.clone());
                all[from].borrowers.push(Borrower { status: borrower, channel });
                all[to].lenders.push(Lender { status: lender, loans, repaid });
            }
        }
        all
    }

    /// One of so many.
    fn alone(threads: usize) -> Self {
        let most = LOANS * (threads - 1);
        Self {
            status: Arc::default(),
            idle: false,
            borrowers: Vec::new(),
            lenders: Vec::new(),
            waiting: VecDeque::with_capacity(most),
            back: Vec::with_capacity(most),
            not_run: Vec::with_capacity(most),
            exchanged: false,
            loaded: 0,
        }
    }

    /// How many others have nothing of their own to do.
    pub(crate) fn idle(&self) -> usize {
        self.borrowers.iter().filter(|borrower| borrower.is_idle()).count()
    }

    /// Lets the others know whether this one has nothing of its own to do, and may be lent tasks.
    pub(crate) fn announce(&mut self, idle: bool) {
        let idle = idle && self.status.lends();
        if idle != self.idle {
            self.idle = idle;
            self.status.set_idle(idle);
        }
    }

    /// The one that has fewest of this one's tasks, of those that have nothing of their own to do and take more; none once
    /// [no more are lent](Peers::stop_lending).
    pub(crate) fn least_loaded(&self) -> Option<usize> {
        if !self.status.lends() {
            return None;
        }
        let takes = |at: &usize| self.borrowers[*at].channel.credit() > 0 && self.borrowers[*at].is_idle();
        (0..self.borrowers.len()).filter(takes).max_by_key(|&at| self.borrowers[at].channel.credit())
    }

    /// Stages a task for another thread.
    pub(crate) fn lend(&mut self, to: usize, loan: Loan) {
        self.borrowers[to].channel.staged.push(loan);
    }

    /// Hands over what is staged.
    pub(crate) fn hand_over(&mut self) {
        for Borrower { channel, .. } in &mut self.borrowers {
            if !channel.staged.is_empty() {
                channel.send(|| None);
            }
        }
    }

    /// Takes what came from others: their tasks, and this one's, with what became of them. Returns how many will never come back, of
    /// threads that have ended.
    pub(crate) fn take(&mut self) -> u64 {
        let mut lost = 0;
        for Borrower { channel, .. } in &mut self.borrowers {
            if channel.has_returns() {
                channel.reclaim(|repaid| self.back.push(repaid));
            } else if channel.out() > 0 && channel.is_closed() {
                lost += channel.write_off() as u64;
            }
        }
        for (at, Lender { loans, .. }) in self.lenders.iter_mut().enumerate() {
            let count = loans.len();
            if count > 0 {
                loans.take(count, |loan| self.waiting.push_back((at, loan)));
            }
        }
        lost
    }

    /// Stages a task for the thread that it is of.
    pub(crate) fn repay(&mut self, lender: usize, loan: Loan, outcome: Outcome) {
        self.lenders[lender].repaid.staged.push(Repaid { loan, outcome });
    }

    /// Gives back what is staged.
    pub(crate) fn give_back(&mut self) {
        self.lenders.iter_mut().for_each(|lender| lender.repaid.send());
    }

    /// Whether other threads have tasks of this one, or this one theirs.
    pub(crate) fn has_loans(&self) -> bool {
        let lent = |Borrower { channel, .. }: &Borrower| channel.out() > 0;
        let here = !self.waiting.is_empty() || !self.back.is_empty();
        here || self.have_come() || self.borrowers.iter().any(lent)
    }

    /// Whether others have handed over tasks.
    pub(crate) fn have_come(&self) -> bool {
        self.lenders.iter().any(|lender| !lender.loans.is_empty())
    }

    /// No more tasks are lent, and others are to lend none.
    pub(crate) fn stop_lending(&mut self) {
        self.status.stop_lending();
        self.announce(false);
    }

    /// Whether other threads may still lend some.
    pub(crate) fn may_borrow(&self) -> bool {
        let may = |Lender { status, loans, .. }: &Lender| status.lends() && !loans.is_closed();
        self.lenders.iter().any(may)
    }
}
