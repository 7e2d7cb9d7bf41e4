//! Memory for HERs: a pool of slots that all queues share, linked into queues and a free list.

use super::state::Queue;
use super::types::{HerIndex, MessageParams, NONE};

/// A slot for one HER, linked into its queue or into the free list.
pub(super) struct HerSlot<C, P> {
    /// `None` in the free list and while a task owns the packet.
    pub(super) packet: Option<P>,
    pub(super) params: MessageParams<C>,
    pub(super) end_of_message: bool,
    pub(super) next: HerIndex,
}

/// All slots.
pub(super) struct HerPool<C, P> {
    slots: Vec<HerSlot<C, P>>,
    /// Head of the free list.
    free: HerIndex,
    free_count: usize,
}

impl<C: Copy, P> HerPool<C, P> {
    /// `hers` free slots. `blank` fills unused ones.
    pub(super) fn new(hers: u32, blank: MessageParams<C>) -> Self {
        let slots = (0..hers)
            .map(|index| HerSlot {
                packet: None,
                params: blank,
                end_of_message: false,
                next: if index + 1 < hers { index + 1 } else { NONE },
            })
            .collect();
        Self { slots, free: if hers > 0 { 0 } else { NONE }, free_count: hers as usize }
    }

    /// Number of free slots.
    #[inline]
    pub(super) const fn room(&self) -> usize {
        self.free_count
    }

    /// At least one slot is free.
    #[inline]
    pub(super) const fn has_room(&self) -> bool {
        self.free != NONE
    }

    #[inline]
    pub(super) fn get(&self, index: HerIndex) -> Option<&HerSlot<C, P>> {
        self.slots.get(index as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: HerIndex) -> Option<&mut HerSlot<C, P>> {
        self.slots.get_mut(index as usize)
    }

    /// Moves the first HER of a queue that is not early to its head. Returns its parameters, if there is one.
    #[cold]
    pub(super) fn header_first(&mut self, queue: &mut Queue<C>) -> Option<MessageParams<C>> {
        let (mut before, mut at) = (NONE, queue.head);
        while self.get(at)?.params.early {
            (before, at) = (at, self.get(at)?.next);
        }
        let slot = self.get_mut(at)?;
        let (params, next) = (slot.params, slot.next);
        if before != NONE {
            slot.next = std::mem::replace(&mut queue.head, at);
            self.get_mut(before)?.next = next;
            if queue.tail == at {
                queue.tail = before;
            }
        }
        Some(params)
    }

    /// Number of HERs of a queue.
    #[cold]
    pub(super) fn count(&self, queue: &Queue<C>) -> u32 {
        std::iter::successors(self.get(queue.head), |slot| self.get(slot.next)).fold(0, |count, _| count + 1)
    }

    /// Checks the free list when `queued` slots are in queues.
    pub(super) fn check(&self, queued: usize) {
        let free = std::iter::successors(self.get(self.free), |slot| self.get(slot.next));
        let count = free.inspect(|slot| assert!(slot.packet.is_none(), "a free slot with a packet")).count();
        assert_eq!(count, self.free_count, "free HERs");
        assert_eq!(count + queued, self.slots.len(), "HERs that are free or queued");
    }

    /// Fills a free slot. The parts are stored one by one: a whole HER would be written to memory and read back before
    /// the stores have drained, and store forwarding would fail.
    ///
    /// # Panics
    /// When no slot is free.
    #[inline(always)]
    pub(super) fn fill(&mut self, params: MessageParams<C>, end_of_message: bool, packet: P) -> HerIndex {
        let index = self.free;
        let Some(slot @ HerSlot { packet: None, .. }) = self.slots.get_mut(index as usize) else {
            unreachable!("a slot that is free holds no packet")
        };
        self.free = slot.next;
        self.free_count -= 1;
        (slot.packet, slot.params, slot.end_of_message, slot.next) = (Some(packet), params, end_of_message, NONE);
        index
    }

    /// Frees the slot at the head of a queue and returns it.
    #[inline(always)]
    pub(super) fn free_head(&mut self, queue: &mut Queue<C>) -> Option<&mut HerSlot<C, P>> {
        let slot = self.slots.get_mut(queue.head as usize)?;
        let index = std::mem::replace(&mut queue.head, slot.next);
        if queue.head == NONE {
            queue.tail = NONE;
        }
        slot.next = std::mem::replace(&mut self.free, index);
        self.free_count += 1;
        Some(slot)
    }

    /// Frees a slot that is in no queue. Returns the next one, its context and its packet.
    pub(super) fn free_unlinked(&mut self, index: HerIndex) -> Option<(HerIndex, C, Option<P>)> {
        let slot = self.slots.get_mut(index as usize)?;
        let next = std::mem::replace(&mut slot.next, std::mem::replace(&mut self.free, index));
        self.free_count += 1;
        Some((next, slot.params.context, slot.packet.take()))
    }
}
