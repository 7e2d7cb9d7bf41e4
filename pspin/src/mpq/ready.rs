//! Owners of messages, and the ready queues of each.

use super::state::Queue;
use super::types::{MpqId, NONE, Owned};

/// Backlog of one owner.
#[derive(Clone, Copy)]
struct Owner {
    /// First and last ready queue. The last one is undefined if there is no first one.
    ready: [u32; 2],
    /// Number of HERs of the owner's messages.
    hers: u32,
    /// Whether the owner is in [`Owners::backlogged`].
    listed: bool,
}

impl Owner {
    const NEW: Self = Self { ready: [NONE; 2], hers: 0, listed: false };
}

/// All owners.
#[derive(Default)]
pub(super) struct Owners {
    owners: Vec<Owner>,
    /// Owners with ready queues, in no order. Owners without one stay until [`Owners::remove_backlog`].
    backlogged: Vec<u32>,
}

impl Owners {
    pub(super) fn add(&mut self, owner: u32) {
        let owners = self.owners.len().max(owner as usize + 1);
        self.owners.resize(owners, Owner::NEW);
        self.backlogged.reserve(owners);
    }

    #[inline]
    pub(super) fn backlogged(&self) -> &[u32] {
        &self.backlogged
    }

    pub(super) fn remove_backlog(&mut self, owner: u32) {
        if std::mem::take(&mut self.owners[owner as usize].listed) {
            self.backlogged.retain(|&other| other != owner);
        }
    }

    /// Number of HERs of the owner's messages.
    #[inline]
    pub(super) fn hers(&self, owner: u32) -> u32 {
        self.owners[owner as usize].hers
    }

    #[inline(always)]
    pub(super) fn add_her<C: Owned>(&mut self, context: &C) {
        self.owners[context.owner() as usize].hers += 1;
    }

    #[inline(always)]
    pub(super) fn remove_her<C: Owned>(&mut self, context: &C) {
        self.owners[context.owner() as usize].hers -= 1;
    }

    /// First ready queue of an owner, or [`NONE`].
    #[inline(always)]
    pub(super) fn first_ready(&self, owner: u32) -> u32 {
        self.owners[owner as usize].ready[0]
    }

    /// Removes the first ready queue of an owner.
    #[inline(always)]
    pub(super) fn pop_ready<C>(&mut self, owner: u32, first: &mut Queue<C>) {
        self.owners[owner as usize].ready[0] = std::mem::replace(&mut first.next_ready, NONE);
        first.listed = false;
    }

    /// Appends a ready queue to its owner's list.
    #[inline]
    pub(super) fn push_ready<C>(&mut self, queues: &mut [Queue<C>], mpq: MpqId, owner: u32) {
        queues[mpq.0 as usize].listed = true;
        let Owner { ready: [first, last], listed, .. } = &mut self.owners[owner as usize];
        let before = std::mem::replace(last, mpq.0);
        if *first != NONE {
            queues[before as usize].next_ready = mpq.0;
            return;
        }
        *first = mpq.0;
        if !std::mem::replace(listed, true) {
            self.backlogged.push(owner);
        }
    }

    pub(super) const fn count(&self) -> usize {
        self.owners.len()
    }

    /// Checks all owners' lists, and how many HERs each has. Returns how many queues are listed.
    pub(super) fn check<C: Owned>(&self, queues: &[Queue<C>], hers: &[u32]) -> usize {
        let mut all = 0;
        for (number, (owner, &hers)) in (0..).zip(self.owners.iter().zip(hers)) {
            assert_eq!(owner.hers, hers, "HERs of owner {number}");
            let entries = self.backlogged.iter().filter(|&&other| other == number).count();
            assert_eq!(entries, usize::from(owner.listed), "owner {number} among the backlogged ones");
            let (mut at, mut last) = (owner.ready[0], NONE);
            while let Some(queue) = queues.get(at as usize) {
                let of = queue.params.as_ref().map(|params| params.context.owner());
                assert!(queue.listed && of == Some(number), "queue {at} in the list of owner {number}");
                all += 1;
                assert!(all <= queues.len(), "a list of ready queues comes round");
                (last, at) = (at, queue.next_ready);
            }
            assert!(last == NONE || owner.listed && last == owner.ready[1], "the end of the list of owner {number}");
        }
        all
    }

    /// Removes a queue from its owner's list, if it is there.
    pub(super) fn unlist<C: Owned>(&mut self, queues: &mut [Queue<C>], mpq: MpqId) {
        let Queue { listed: true, params: Some(params), next_ready, .. } = &queues[mpq.0 as usize] else { return };
        let (next_ready, owner) = (*next_ready, params.context.owner());
        let [first, last] = &mut self.owners[owner as usize].ready;
        let (mut before, mut at) = (NONE, *first);
        while at != mpq.0 {
            (before, at) = (at, queues[at as usize].next_ready);
        }
        match queues.get_mut(before as usize) {
            Some(queue) => queue.next_ready = next_ready,
            None => *first = next_ready,
        }
        if next_ready == NONE {
            *last = before;
        }
        let queue = &mut queues[mpq.0 as usize];
        (queue.next_ready, queue.listed) = (NONE, false);
    }
}
