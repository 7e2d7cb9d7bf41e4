//! What the threads of the engine know of each other, and the channels by which they share tasks.
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
const MAX_SHARED_TASKS: usize = 64;

/// A payload task on its way to another thread.
#[derive(Debug)]
pub(crate) struct SharedTask {
    pub(crate) task: Task<MessageRef, Packet>,
    /// Id of its context: slots are taken again.
    pub(crate) context: u32,
    /// What handlers know its queue by.
    pub(crate) flow: u32,
}

impl SharedTask {
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
pub(crate) struct SharedResult {
    pub(crate) shared_task: SharedTask,
    pub(crate) outcome: Outcome,
}

/// The way to another thread.
#[derive(Debug)]
struct Borrower {
    status: Arc<PeerStatus>,
    channel: CreditTx<SharedTask, Infallible, SharedResult>,
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
    shared_tasks_in: CreditRx<SharedTask>,
    shared_result: ReturnTx<Infallible, SharedResult>,
}

/// The other threads, as one of them knows them.
#[derive(Debug)]
pub struct Helpers {
    status: Arc<PeerStatus>,
    /// What others know of this one.
    idle: bool,
    borrowers: Vec<Borrower>,
    lenders: Vec<Lender>,
    /// Others' tasks that wait here, and whose they are: places among [`Helpers::lenders`].
    pub(crate) waiting: VecDeque<(usize, SharedTask)>,
    /// Own tasks that came back.
    pub(crate) back: Vec<SharedResult>,
    /// Room for those of them that have to wait for an HPU.
    pub(crate) not_run: Vec<SharedResult>,
    /// In the last turn, tasks were here or came back.
    pub(crate) exchanged: bool,
    /// Turns in a row that had more to do than is good.
    pub(crate) loaded: u32,
}

impl Helpers {
    /// For each of some threads the others. They sleep on these wake-ups.
    #[must_use]
    pub fn of(wakeups: &[Arc<Wakeup>]) -> Vec<Self> {
        let mut all: Vec<Self> = wakeups.iter().map(|_| Self::alone(wakeups.len())).collect();
        for from in 0..all.len() {
            for to in (0..all.len()).filter(|&to| to != from) {
                let (channel, shared_tasks_in, shared_result) =
                    credit_channel(MAX_SHARED_TASKS, 0, wakeups[from].clone(), wakeups[to].clone());
                let [lender, borrower] = [from, to].map(|thread| all[thread].status.clone());
                all[from].borrowers.push(Borrower { status: borrower, channel });
                all[to].lenders.push(Lender { status: lender, shared_tasks_in, shared_result });
            }
        }
        all
    }

    /// One of so many.
    fn alone(threads: usize) -> Self {
        let most = MAX_SHARED_TASKS * (threads - 1);
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
    /// [no more are lent](Helpers::stop_lending).
    pub(crate) fn least_loaded(&self) -> Option<usize> {
        if !self.status.lends() {
            return None;
        }
        let takes = |at: &usize| self.borrowers[*at].channel.credit() > 0 && self.borrowers[*at].is_idle();
        (0..self.borrowers.len()).filter(takes).max_by_key(|&at| self.borrowers[at].channel.credit())
    }

    /// Stages a task for another thread.
    pub(crate) fn share_tasks(&mut self, to: usize, shared_task: SharedTask) {
        self.borrowers[to].channel.staged.push(shared_task);
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
                channel.reclaim(|shared_result| self.back.push(shared_result));
            } else if channel.out() > 0 && channel.is_closed() {
                lost += channel.write_off() as u64;
            }
        }
        for (at, Lender { shared_tasks_in, .. }) in self.lenders.iter_mut().enumerate() {
            let count = shared_tasks_in.len();
            if count > 0 {
                shared_tasks_in.take(count, |shared_task| self.waiting.push_back((at, shared_task)));
            }
        }
        lost
    }

    /// Stages a task for the thread that it is of.
    pub(crate) fn return_task(&mut self, lender: usize, shared_task: SharedTask, outcome: Outcome) {
        self.lenders[lender].shared_result.staged.push(SharedResult { shared_task, outcome });
    }

    /// Gives back what is staged.
    pub(crate) fn give_back(&mut self) {
        self.lenders.iter_mut().for_each(|lender| lender.shared_result.send());
    }

    /// Whether other threads have tasks of this one, or this one theirs.
    pub(crate) fn has_loans(&self) -> bool {
        let lent = |Borrower { channel, .. }: &Borrower| channel.out() > 0;
        let here = !self.waiting.is_empty() || !self.back.is_empty();
        here || self.have_come() || self.borrowers.iter().any(lent)
    }

    /// Whether others have handed over tasks.
    pub(crate) fn have_come(&self) -> bool {
        self.lenders.iter().any(|lender| !lender.shared_tasks_in.is_empty())
    }

    /// No more tasks are lent, and others are to lend none.
    pub(crate) fn stop_lending(&mut self) {
        self.status.stop_lending();
        self.announce(false);
    }

    /// Whether other threads may still lend some.
    pub(crate) fn may_borrow(&self) -> bool {
        let may = |Lender { status, shared_tasks_in, .. }: &Lender| status.lends() && !shared_tasks_in.is_closed();
        self.lenders.iter().any(may)
    }
}
