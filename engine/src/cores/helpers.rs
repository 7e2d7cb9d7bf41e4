//! Work sharing between threads: which ones are idle, and the channels for tasks between them.
//!
//! ```text
//! lender --shared task----> borrower     a payload task, with its packet
//!        <-shared result--- borrower     the task again, and its outcome
//! ```
//! Each ordered pair of threads has a [`spin_sync::CreditTx`], so a sender never waits for room.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use spin_sync::{CreditRx, CreditTx, PeerStatus, ReturnTx, Wakeup, credit_channel};

use spin_pspin::hpu::TaskIdentity;
use spin_pspin::hpu::command::DeferredSend;
use spin_pspin::ids::{MessageRef, Packet};
use spin_pspin::mpq::Task;

/// Maximum number of tasks that one thread holds of another one. A packet of another context that comes first may wait for some
/// of them. With fewer tasks than a batch, the thread would run out of work before the lender's next batch.
const MAX_SHARED_TASKS: usize = 64;

/// A payload task on its way to another thread.
#[derive(Debug)]
pub(crate) struct SharedTask {
    pub(crate) task: Task<MessageRef, Packet>,
    /// The id of its context: slots are reused.
    pub(crate) context: u32,
    /// The number by which handlers know its queue.
    pub(crate) flow: u32,
}

impl SharedTask {
    /// The identity that its handler sees.
    pub(crate) const fn identity(&self) -> TaskIdentity {
        TaskIdentity { flow: self.flow, message: self.task.context.message }
    }
}

/// The outcome of a shared task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The task has ended.
    Ended(Option<DeferredSend>),
    /// The task was not begun: the other thread lacks the context, or an idle HPU for it.
    NotRun,
    /// The task was parked when its context was removed.
    Abandoned,
}

/// A task that came back to its lender.
#[derive(Debug)]
pub(crate) struct SharedResult {
    pub(crate) shared_task: SharedTask,
    pub(crate) outcome: Outcome,
}

/// A thread that takes tasks of this one, and the channel to it.
#[derive(Debug)]
struct HelperTx {
    status: Arc<PeerStatus>,
    channel: CreditTx<SharedTask, Infallible, SharedResult>,
}

impl HelperTx {
    fn is_idle(&self) -> bool {
        self.status.is_idle() && !self.channel.is_closed()
    }
}

/// A thread that lends tasks to this one, and the channel from it.
#[derive(Debug)]
struct HelperRx {
    status: Arc<PeerStatus>,
    shared_tasks_in: CreditRx<SharedTask>,
    shared_result: ReturnTx<Infallible, SharedResult>,
}

/// The other threads, from the view of one of them.
#[derive(Debug)]
pub struct Helpers {
    status: Arc<PeerStatus>,
    /// Whether other threads see this one as idle.
    idle: bool,
    borrowers: Vec<HelperTx>,
    lenders: Vec<HelperRx>,
    /// Shared tasks waiting here, with the index of their lender in [`Helpers::lenders`].
    pub(crate) waiting: VecDeque<(usize, SharedTask)>,
    /// Own tasks that came back.
    pub(crate) back: Vec<SharedResult>,
    /// Scratch list for own tasks that have to wait for an HPU.
    pub(crate) not_run: Vec<SharedResult>,
    /// Whether shared tasks were here or came back in the last poll.
    pub(crate) exchanged: bool,
    /// The number of consecutive polls with too much work.
    pub(crate) loaded: u32,
}

impl Helpers {
    /// Connects threads, which sleep on these wake-ups. Returns the helpers of each thread.
    #[must_use]
    pub fn of(wakeups: &[Arc<Wakeup>]) -> Vec<Self> {
        let mut all: Vec<Self> = wakeups.iter().map(|_| Self::alone(wakeups.len())).collect();
        for from in 0..all.len() {
            for to in (0..all.len()).filter(|&to| to != from) {
                let (channel, shared_tasks_in, shared_result) =
                    credit_channel(MAX_SHARED_TASKS, 0, wakeups[from].clone(), wakeups[to].clone());
                let [lender, borrower] = [from, to].map(|thread| all[thread].status.clone());
                all[from].borrowers.push(HelperTx { status: borrower, channel });
                all[to].lenders.push(HelperRx { status: lender, shared_tasks_in, shared_result });
            }
        }
        all
    }

    /// The helpers of one of `threads` threads, without channels.
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

    /// The number of idle threads.
    pub(crate) fn idle(&self) -> usize {
        self.borrowers.iter().filter(|borrower| borrower.is_idle()).count()
    }

    /// Announces whether this thread is idle and takes tasks. After [`Helpers::stop_lending`] it is never announced as idle.
    pub(crate) fn announce(&mut self, idle: bool) {
        let idle = idle && self.status.lends();
        if idle != self.idle {
            self.idle = idle;
            self.status.set_idle(idle);
        }
    }

    /// The idle thread that holds fewest tasks of this one and has room for more; `None` after [`Helpers::stop_lending`].
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

    /// Sends staged tasks.
    pub(crate) fn hand_over(&mut self) {
        for HelperTx { channel, .. } in &mut self.borrowers {
            if !channel.staged.is_empty() {
                channel.send(|| None);
            }
        }
    }

    /// Takes shared tasks of other threads, and own tasks that came back. Returns how many are lost because their borrower has
    /// ended.
    pub(crate) fn take(&mut self) -> u64 {
        let mut lost = 0;
        for HelperTx { channel, .. } in &mut self.borrowers {
            if channel.has_returns() {
                channel.reclaim(|shared_result| self.back.push(shared_result));
            } else if channel.out() > 0 && channel.is_closed() {
                lost += channel.write_off() as u64;
            }
        }
        for (at, HelperRx { shared_tasks_in, .. }) in self.lenders.iter_mut().enumerate() {
            let count = shared_tasks_in.len();
            if count > 0 {
                shared_tasks_in.take(count, |shared_task| self.waiting.push_back((at, shared_task)));
            }
        }
        lost
    }

    /// Stages a task for its return to the lender.
    pub(crate) fn return_task(&mut self, lender: usize, shared_task: SharedTask, outcome: Outcome) {
        self.lenders[lender].shared_result.staged.push(SharedResult { shared_task, outcome });
    }

    /// Returns staged tasks.
    pub(crate) fn give_back(&mut self) {
        self.lenders.iter_mut().for_each(|lender| lender.shared_result.send());
    }

    /// Whether other threads hold tasks of this one, or this one holds theirs.
    pub(crate) fn has_loans(&self) -> bool {
        let lent = |HelperTx { channel, .. }: &HelperTx| channel.out() > 0;
        let here = !self.waiting.is_empty() || !self.back.is_empty();
        here || self.have_come() || self.borrowers.iter().any(lent)
    }

    /// Whether other threads have sent tasks.
    pub(crate) fn have_come(&self) -> bool {
        self.lenders.iter().any(|lender| !lender.shared_tasks_in.is_empty())
    }

    /// Stops lending tasks, and announces that this thread takes none.
    pub(crate) fn stop_lending(&mut self) {
        self.status.stop_lending();
        self.announce(false);
    }

    /// Whether other threads may still lend tasks to this one.
    pub(crate) fn may_borrow(&self) -> bool {
        let may = |HelperRx { status, shared_tasks_in, .. }: &HelperRx| status.lends() && !shared_tasks_in.is_closed();
        self.lenders.iter().any(may)
    }
}
